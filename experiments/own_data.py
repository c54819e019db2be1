"""Trajectories of the user's own: what is read, how it is split, and the settings chosen by its shape.

| space axes | modes per axis | width |
|---|---|---|
| 1 | a quarter of the grid points, at most 32 | 64 |
| 2 | a quarter of the grid points, at most 16 | 32 |
| 3 | a quarter of the grid points, at most 8 | 16 |

``time_scale`` is 50 over the last query time. Fields that are not periodic get grid coordinates and a zero padding of
an eighth of each axis. Semigroup steps are a fifth of the last query time; with equispaced query times, training uses
windows of two steps that start at random frames. A tenth of the trajectories, chosen by ``data_seed``, is for
validation, and another tenth for the test.
"""

import dataclasses
import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from ctfno_jax.config import ConfigError, ExperimentConfig, OptimizerConfig, from_dict
from ctfno_jax.data import batching, problems
from ctfno_jax.data.readers import npz
from ctfno_jax.data.trajectories import FieldDataset, Trajectories
from ctfno_jax.fit import train_config
from ctfno_jax.models import registry
from ctfno_jax.tasks.fields import FieldSettings, FieldTask, dataset_of_arrays
from experiments import configs, program

FLAGS = flags.FLAGS

EXPERIMENT = "train"
LABELS = FieldTask.labels
MODELS = ("ctfno", "ctfno_semigroup")
PRESETS = ("quick", "default")
_STEPS = {"quick": 200, "default": 2000}

_MOST_MODES = {1: 32, 2: 16, 3: 8}
_WIDTH = {1: 64, 2: 32, 3: 16}
_SEMIGROUP_STEPS = 5
_WINDOW_STEPS = 2


def read(path: str | Path) -> Trajectories:
    """The trajectories in an ``.npz`` file; see :mod:`ctfno_jax.data.readers.npz`."""
    everything = Trajectories(*npz.read(path))
    if not everything.times.max() > 0:
        raise ValueError(f"{path}: all times are zero; add query times after the initial states")
    return everything


def facts(everything: Trajectories, config: ExperimentConfig) -> str:
    """Description of the file in one line."""
    times, u0, u = everything.times, everything.u0, everything.u
    own = "" if times.ndim == 1 else " of their own"
    name, grid = Path(config.data.data_file).name, " x ".join(map(str, everything.grid))
    return (
        f"{name}: {len(everything)} trajectories on {grid} points, {u0.shape[-1]} -> {u.shape[-1]} channels, "
        f"{everything.num_times} times{own} from {times.min():g} to {times.max():g}, u0 from {u0.min():g} to "
        f"{u0.max():g}, u from {u.min():g} to {u.max():g}"
    )


def settings(
    everything: Trajectories, model: str, *, periodic: bool, preset: str = "default",
    overrides: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Flat settings by the rule above, with single ones replaced."""
    if model not in MODELS:
        raise ConfigError(f"unknown model {model!r}; known are {', '.join(MODELS)}")
    if min(everything.grid) < 4:
        raise ConfigError(f"the grid {everything.grid} is too coarse: 4 points per axis or more are needed")
    given = dict(overrides or {})
    num_space, final_time = len(everything.grid), float(everything.times.max())
    sizes = {name: given.get(name, max(1, len(everything) // 10)) for name in ("num_validation", "num_test")}
    num_train = given.get("num_train", len(everything) - sum(sizes.values()))
    length = train_config(given.get("steps", _STEPS[preset]))
    chosen: dict[str, Any] = {
        "network": model, "out_channels": everything.u.shape[-1], "width": _WIDTH[num_space],
        "modes": [min(_MOST_MODES[num_space], n // 4) for n in everything.grid], "depth": 2, "heads": 4,
        "time_width": 256, "time_features": 64, "time_scale": 50 / final_time, "coordinates": not periodic,
        "padding": 0.0 if periodic else 0.125, "learning_rate": 2e-3, "batch_size": max(1, min(20, num_train)),
        "times_per_step": min(5, everything.num_times), "steps": length.steps,
        "steps_per_call": length.steps_per_call, "eval_every": length.eval_every, "num_train": num_train, **sizes,
        "data_options": {"periodic": periodic},
    }  # fmt: skip
    if model == "ctfno_semigroup":
        chosen |= _of_semigroup(everything, final_time)
    return chosen | given


def _of_semigroup(everything: Trajectories, final_time: float) -> dict[str, Any]:
    step_size = final_time / _SEMIGROUP_STEPS
    chosen: dict[str, Any] = {
        "step_size": step_size, "num_steps": _SEMIGROUP_STEPS, "rise_time": final_time / 50,
        "shared_normalization": True,
    }  # fmt: skip
    try:
        batching.check_window(everything.times)
    except ValueError:
        return chosen  # whole trajectories
    window = int(np.sum(everything.times <= _WINDOW_STEPS * step_size * (1 + 1e-6)))
    if not window:
        return chosen
    return {**chosen, "window": window, "times_per_step": min(2, window), "random_starts": 0.9}


def config(
    path: str | Path, everything: Trajectories, model: str, *, periodic: bool, preset: str = "default", seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
) -> ExperimentConfig:  # fmt: skip
    """The whole config of a run on a file."""
    path = Path(path).resolve()
    chosen = settings(everything, model, periodic=periodic, preset=preset, overrides=overrides)
    configs.refuse_unread(overrides or {}, chosen.get("schedule", OptimizerConfig.schedule))
    problem = problems.FieldProblem(path.stem)
    made = configs.from_flat(chosen, EXPERIMENT, path.stem, model, preset, seed, data_file=str(path), problem=problem)
    sizes = (made.data.num_train, made.data.num_validation, made.data.num_test)
    if sum(sizes) > len(everything):
        raise ConfigError(
            f"num_train, num_validation and num_test add up to more than the {len(everything)} trajectories of "
            f"{path.name}, got {sizes}; lower them"
        )
    return made


def dataset(config: ExperimentConfig, everything: Trajectories) -> FieldDataset:
    """The trajectories, split as the config says: test, validation and training in a seeded order."""
    order = np.random.default_rng(config.data.data_seed).permutation(len(everything))
    cuts = np.cumsum([config.data.num_test, config.data.num_validation, config.data.num_train])
    test, validation, train, _ = (everything.select(np.sort(part)) for part in np.split(order, cuts))
    made = dataset_of_arrays(
        config.dataset, train, validation, test, source=Path(config.data.data_file).name,
        periodic=bool(config.data.data_options["periodic"]),
    )  # fmt: skip
    return dataclasses.replace(made, info={"initial_std": float(train.u0.std()), "solution_std": float(train.u.std())})


def task(config: ExperimentConfig, everything: Trajectories) -> FieldTask:
    """Task of a run on these trajectories."""
    model = registry.build_model(config.network.network, **config.network.network_fields)
    return FieldTask(dataset(config, everything), model, from_dict(FieldSettings, config.settings, "settings"))


# --- the program ------------------------------------------------------------------------------------------------------

_OWN_FLAGS = ("data", "periodic", "model", "preset", "seed", "evaluate", "workdir", "resume", "parallel", "tensorboard")


def define_flags() -> None:
    """Flags of ``python -m experiments.train``."""
    program.define_run_flags()
    program.define_setting_flags()
    flags.DEFINE_string("data", None, ".npz file with the arrays u0, times and u")
    # DeepONets have a setting of this name, which is not asked for here.
    text = "the fields are periodic: no coordinates, no padding"
    flags.DEFINE_boolean("periodic", False, text, allow_override=True)
    flags.DEFINE_enum("model", MODELS[0], MODELS, "model: " + " or ".join(MODELS))
    flags.DEFINE_enum("preset", "default", PRESETS, "default, or quick: few steps that prove the pipeline")
    flags.DEFINE_integer("seed", 0, "seed of the run: initial parameters and batches", lower_bound=0)
    flags.DEFINE_enum("evaluate", "test", ("test", "validation"), "test, or validation for trials")


def flag_help() -> str:
    """The flags, and the settings of the chosen model."""
    lines = [f"  --{name:<12} {FLAGS[name].help}" for name in _OWN_FLAGS]
    names = [n for n in configs.setting_types(FLAGS.model, "fields") if n not in ("data_file", "data_options")]
    names_text = textwrap.fill(", ".join(names), 100, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(["Flags:", *lines, "", f"Settings of {FLAGS.model}, as --name=value:", names_text])


def from_flags(values: flags.FlagValues) -> tuple[ExperimentConfig, Trajectories, dict[str, Any]]:
    """Config and data of the run that the flags describe, and how its row begins."""
    if not values.data:
        raise ValueError("--data is missing; name an .npz file with the arrays u0, times and u")
    given = [values[name].serialize() for name in ("model", "preset", "seed", "periodic", "evaluate")]
    overrides = program.overrides_from_flags(values.model, "fields", leave_out="periodic")
    everything = read(values.data)
    identity = {"model": values.model, "preset": values.preset, "seed": values.seed}
    made = config(values.data, everything, periodic=values.periodic, overrides=overrides, **identity)
    given = [f"--data={made.data.data_file}", *given, *(values[name].serialize() for name in overrides)]
    row = {
        "experiment": EXPERIMENT, "dataset": made.dataset, **identity, "overrides": overrides, "paper": None,
        "command": "python -m experiments.train " + shlex.join(given),
    }  # fmt: skip
    return made, everything, row
