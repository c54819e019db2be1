"""Settings of every cell: one flat table per data set, and the config that a cell resolves to.

A table has three dictionaries of cells by model: ``DEFAULT``, tuned for two CPU cores; ``QUICK``, changes to the
default that prove the pipeline in about a minute; ``PAPER``, the paper's own settings, for a GPU. A setting is a field
of :mod:`ctfno_jax.config`, of the task's settings or of the network; sizes of the splits come from
:mod:`ctfno_jax.data.problems`.
"""

import dataclasses
import importlib
import typing
from collections.abc import Mapping
from typing import Any

from ctfno_jax import config as config_lib
from ctfno_jax.config import ConfigError, ExperimentConfig
from ctfno_jax.data import problems
from ctfno_jax.models import registry
from ctfno_jax.tasks.fields import FieldSettings, FieldTask
from ctfno_jax.tasks.images import ImageSettings, ImageTask
from ctfno_jax.tasks.latent import LatentSettings, LatentTask
from ctfno_jax.tasks.series import SeriesSettings, SeriesTask
from ctfno_jax.training import optimizers

PRESETS = ("quick", "default", "paper")
SETTINGS = {"fields": FieldSettings, "series": SeriesSettings, "latent": LatentSettings, "images": ImageSettings}
TASKS = {"fields": FieldTask, "series": SeriesTask, "latent": LatentTask, "images": ImageTask}
SECTIONS = {
    "data": config_lib.DataConfig,
    "optimizer": config_lib.OptimizerConfig,
    "train": config_lib.TrainConfig,
}

# Data sets of each training program.
EXPERIMENTS = {
    "pde": ("heat", "burgers", "diffusion_sorption", "navier_stokes", "reaction"),
    "synthetic": ("square", "sawtooth", "stiff", "spiral", "sine", "reaction"),
    "vibration": ("plane_vibration",),
    "timeseries": ("mujoco", "physionet", "activity", "csv"),
    "images": ("mnist", "cifar10"),
}
DATASETS = tuple(dict.fromkeys(dataset for datasets in EXPERIMENTS.values() for dataset in datasets))


def experiment(dataset: str) -> str:
    """The program whose table has the data set; reaction is among the dynamics."""
    return next(name for name, datasets in reversed(EXPERIMENTS.items()) if dataset in datasets)


def table(dataset: str) -> Any:
    """The module with the settings of a data set."""
    if dataset not in DATASETS:
        raise ConfigError(f"unknown dataset {dataset!r}; known are {', '.join(DATASETS)}")
    return importlib.import_module(f"experiments.configs.{dataset}")


def models(dataset: str) -> tuple[str, ...]:
    """The models that a data set has settings for."""
    return tuple(table(dataset).DEFAULT)


def presets(dataset: str, model: str) -> tuple[str, ...]:
    """The presets that a cell has; the paper does not have every cell."""
    return PRESETS if model in table(dataset).PAPER else PRESETS[:-1]


def flat_settings(dataset: str, model: str, preset: str) -> dict[str, Any]:
    """The settings that the table of a data set names for one cell."""
    settings = table(dataset)
    if model not in settings.DEFAULT:
        raise ConfigError(f"there is no cell {dataset} with {model}; models are {', '.join(settings.DEFAULT)}")
    if preset == "default":
        return dict(settings.DEFAULT[model])
    if preset == "quick":
        return {**settings.DEFAULT[model], **settings.QUICK[model]}
    if preset != "paper":
        raise ConfigError(f"unknown preset {preset!r}; known are {', '.join(PRESETS)}")
    if model not in settings.PAPER:
        raise ConfigError(f"the paper has no {model} on {dataset}; preset=paper has {', '.join(settings.PAPER)}")
    return dict(settings.PAPER[model])


def cell(
    experiment: str, dataset: str, model: str, preset: str = "default", seed: int = 0, *,
    overrides: Mapping[str, Any] | None = None, data_file: str = "",
) -> ExperimentConfig:  # fmt: skip
    """The whole config of one cell, with single settings replaced."""
    settings = {**flat_settings(dataset, model, preset), **(overrides or {})}
    refuse_unread(overrides or {}, settings.get("schedule", config_lib.OptimizerConfig.schedule))
    return from_flat(settings, experiment, dataset, model, preset, seed, data_file=data_file)


def from_flat(
    settings: Mapping[str, Any], experiment: str, dataset: str, model: str, preset: str, seed: int, *,
    data_file: str = "", problem: problems.Problem | None = None,
) -> ExperimentConfig:  # fmt: skip
    """A config from flat settings; an unknown one is an error that lists the known ones."""
    problem = problem or problems.problem(dataset)
    left = dict(settings)
    network = left.pop("network")
    known = registry.hyper_parameters(network)
    fields = {name: default for name, (_, default) in known.items() if default is not dataclasses.MISSING}
    fields |= {name: left.pop(name) for name in list(left) if name in known}
    fields = {name: config_lib.typed(name, value, known[name][0]) for name, value in fields.items()}
    sections: dict[str, Any] = {"data": {"data_file": data_file, **_sizes(problem, left)}}
    for section, cls in SECTIONS.items():
        names = typing.get_type_hints(cls)
        sections.setdefault(section, {}).update({name: left.pop(name) for name in list(left) if name in names})
    cls = SETTINGS[problem.kind]
    names = typing.get_type_hints(cls)
    own = {name: left.pop(name) for name in list(left) if name in names}
    if left:
        raise ConfigError(
            f"{model} on {dataset} has no setting {', '.join(sorted(left))}; network {network} has {', '.join(known)}, "
            f"training has {', '.join(names)}"
        )
    made = {name: config_lib.from_dict(SECTIONS[name], values, name) for name, values in sections.items()}
    if problem.num_train:
        config_lib.at_least(made["data"], num_train=1, num_validation=1, num_test=1)
    optimizers.optimizer(made["optimizer"], made["train"].steps)  # an unknown name is an error before data are made
    return ExperimentConfig(
        experiment=experiment, dataset=dataset, model=model, preset=preset, seed=seed, task=problem.kind,
        network=config_lib.NetworkConfig(network, fields),
        settings=dataclasses.asdict(config_lib.from_dict(cls, own, "settings")), **made,
    )  # fmt: skip


def _sizes(problem: problems.Problem, settings: Mapping[str, Any]) -> dict[str, int]:
    """Default numbers of samples; none for a record, which its options divide."""
    sizes = ("num_train", "num_validation", "num_test")
    if problem.num_train:
        return {name: getattr(problem, name) for name in sizes}
    given = [name for name in sizes if name in settings]
    if given:
        raise ConfigError(f"{problem.name} is a record that its options divide; remove {', '.join(given)}")
    return {}


def setting_types(network: str, kind: str) -> dict[str, Any]:
    """Type of every setting that a cell with that network can have."""
    types: dict[str, Any] = {}
    for cls in (*SECTIONS.values(), SETTINGS[kind]):
        types |= typing.get_type_hints(cls)
    return types | {name: hint for name, (hint, _) in registry.hyper_parameters(network).items()}


def refuse_unread(overrides: Mapping[str, Any], schedule: str) -> None:
    """Refuses settings of the learning rate that the chosen schedule would not read."""
    settings = set().union(*optimizers.SCHEDULES.values())
    for name in sorted(settings & set(overrides)):
        if schedule in optimizers.SCHEDULES and name not in optimizers.SCHEDULES[schedule]:
            raise ConfigError(f"schedule {schedule} does not read {name}; remove --{name}")
