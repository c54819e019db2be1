"""Settings of ``python -m experiments.data_efficiency``: heat with a part of its training trajectories.

default: half a minute a cell on two CPU cores, half the steps of heat's quick preset. quick: fewer steps still. paper:
the paper's network and schedule, for a GPU.
"""

from ctfno_jax.config import ExperimentConfig, replace_fields
from experiments.configs import pde

PERCENTS = (5, 10, 20, 50, 100)
# None, and that of the released code on plane vibration; its 10 on heat is never reached.
BOUNDS = (None, 1.2)

_STEPS = {"quick": 200, "default": 500}
_BASE = {"quick": "quick", "default": "quick", "paper": "paper"}


def efficiency_config(percent: int, bound: float | None, preset: str, seed: int) -> ExperimentConfig:
    """The config of one cell."""
    if not 1 <= percent <= 100:
        raise ValueError(f"a part of the training set is between 1 and 100 percent, got {percent}")
    base = pde.pde_config("heat", "ctfno", _BASE[preset], seed, experiment="data_efficiency")
    whole = base.dataset.num_train - base.dataset.num_validation
    part = max(1, round(percent / 100 * whole))
    changes = {
        "num_train": part + base.dataset.num_validation,
        "batch_size": min(base.train.batch_size, part),
        "model_fields": {**base.model.model_fields, "stability_bound": bound},
    }
    if preset in _STEPS:
        changes |= {"steps": _STEPS[preset], "eval_every": 100}
    config = replace_fields(base, changes)
    return ExperimentConfig(
        "data_efficiency", preset, seed, config.dataset, config.model, config.optimizer, config.train
    )


def percent_of(config: ExperimentConfig) -> int:
    """The part of the training set that a config has."""
    whole = pde.PROBLEMS["heat"].data.num_train - config.dataset.num_validation
    return round(100 * (config.dataset.num_train - config.dataset.num_validation) / whole)


def variant(config: ExperimentConfig) -> str:
    """How the cells differ."""
    bound = config.model.model_fields["stability_bound"]
    return f"{percent_of(config)}percent-M_{'none' if bound is None else f'{bound:g}'}"
