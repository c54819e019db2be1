"""Settings of ``python -m experiments.vibration``: the plane vibration record with CTFNO and the second-order family.

default: tuned for two CPU cores, a few minutes. For every model, runs of the training part overlap, because 509 that do
not are soon known by heart, and what is observed comes interpolated to even times. Validation and test are the
published ones.
quick: proves the pipeline.
paper: the published settings, those of the recurrent models with one step of the solver between observations instead of
a tolerance of 1e-7.
"""

import dataclasses
from typing import Any

from ctfno_jax.config import DatasetConfig, ExperimentConfig, ModelConfig, OptimizerConfig, TrainConfig
from ctfno_jax.data import plane_vibration

MODELS = ("ctfno", "node", "anode", "sonode", "hbnode", "ghbnode")
# In the registry, the plain names are those of models that see the last observation only.
REGISTERED = {"node": "node_rnn", "anode": "anode_rnn"}
RULES = ("rows", "rows_and_columns")
# M of the paper, and the values that its effect is shown for.
BOUND = 1.2
BOUNDS = (0.3, 0.6, 1.2, 2.5, 5.0, 10.0, None)

_BATCH = 64
_PER_EPOCH = 8  # 509 segments


def _data(preset: str) -> DatasetConfig:
    options: dict[str, Any] = {} if preset == "paper" else {"train_stride": 4, "interpolated": True}
    return DatasetConfig(plane_vibration.NAME, data_file=plane_vibration.FILE, data_options=options)


def ctfno_fields(bound: float | None = BOUND, rule: str = "rows") -> dict[str, Any]:
    """The published size, 6,310 parameters."""
    stability = {"stability_bound": bound} | ({"stability_rule": rule} if bound is not None else {})
    return {
        "out_features": 5, "grid_points": 20, "width": 8, "modes": [10], "depth": 2, "heads": 1, "time_width": 16,
        "time_features": 16, "time_bias": False, "head": "mlp", "lifting": "low_pass", "padding": 0.125,
        "observation_scale": 1 / 64, **stability,
    }  # fmt: skip


def _fields(model: str, bound: float | None, rule: str) -> dict[str, Any]:
    if model == "ctfno":
        return ctfno_fields(bound, rule)
    # A third of the evaluations of a step of order five, which is one from an observation to the next either way.
    fields: dict[str, Any] = {"out_features": 5, "solver": "heun"}
    if model in REGISTERED:
        # From a hundredth, where the others start, equations of first order never leave their first plateau.
        fields["initial_scale"] = 0.2
    return fields


def _loss(model: str) -> str:
    return "mse" if model == "ctfno" else "with_steps"


def _default(model: str, bound: float | None, rule: str) -> tuple[ModelConfig, OptimizerConfig, TrainConfig]:
    steps = 8000 if model == "ctfno" else 3000
    train = TrainConfig(
        steps=steps, batch_size=_BATCH, times_per_step=0, train_grid=0, loss=_loss(model), eval_every=200,
        keep_checkpoints=1,
    )  # fmt: skip
    name = REGISTERED.get(model, model)
    return ModelConfig(name, _fields(model, bound, rule)), OptimizerConfig(learning_rate=1e-2), train


def _quick(model: str, bound: float | None, rule: str) -> tuple[ModelConfig, OptimizerConfig, TrainConfig]:
    model_config, optimizer, train = _default(model, bound, rule)
    return model_config, optimizer, dataclasses.replace(train, steps=400, eval_every=100)


def _paper(model: str, bound: float | None, rule: str) -> tuple[ModelConfig, OptimizerConfig, TrainConfig]:
    model_config, _, train = _default(model, bound, rule)
    if model == "ctfno":
        optimizer = OptimizerConfig("adamax", 1e-2, "step", decay_factor=0.5, decay_steps=100 * 10, clip_norm=0.0)
        return model_config, optimizer, dataclasses.replace(train, steps=500 * 10, batch_size=50)
    # A tenth of the rate after fifty epochs, and no less.
    optimizer = OptimizerConfig(
        "adam", 1e-3, "exponential", decay_factor=0.1 ** (1 / (50 * _PER_EPOCH)), final_fraction=0.1
    )
    fields = {"out_features": 5} | ({"ignore_gaps": True} if model == "sonode" else {})
    return (
        dataclasses.replace(model_config, model_fields=fields),
        optimizer,
        dataclasses.replace(train, steps=500 * _PER_EPOCH),
    )


def vibration_config(
    dataset: str, model: str, preset: str, seed: int, bound: float | None = BOUND, rule: str = "rows"
) -> ExperimentConfig:
    """The config of one cell; bound and rule are CTFNO's."""
    if dataset != plane_vibration.NAME:
        raise ValueError(f"unknown dataset {dataset!r}; there is {plane_vibration.NAME}")
    if model not in MODELS:
        raise ValueError(f"there is no cell {dataset} with {model}; models are {', '.join(MODELS)}")
    presets = {"quick": _quick, "default": _default, "paper": _paper}
    if preset not in presets:
        raise ValueError(f"unknown preset {preset!r}; known are {', '.join(presets)}")
    return ExperimentConfig("vibration", preset, seed, _data(preset), *presets[preset](model, bound, rule))


def stability_of(config: ExperimentConfig) -> dict[str, Any]:
    """Bound and rule of a config; both None where there is no bound."""
    fields = config.model.model_fields
    bound = fields.get("stability_bound")
    return {
        "stability_bound": bound,
        "stability_rule": None if bound is None else fields.get("stability_rule", "rows"),
    }


def variant(config: ExperimentConfig) -> str:
    """How the cells of CTFNO differ: by M, and by the rule."""
    if config.model.model != "ctfno":
        return ""
    stability = stability_of(config)
    bound = stability["stability_bound"]
    return "M_none" if bound is None else f"M{bound:g}_{stability['stability_rule']}"
