"""Settings of ``python -m experiments.synthetic``: low-dimensional dynamics and reaction, with every model.

default: tuned for two CPU cores, a few minutes for three seeds at once. Times of a step are a random choice, and the
models start from what they can know: the published Neural ODE puts the last observed point one step late, the published
Neural Flow is trained on an evidence bound; here neither, unless asked for (``--late_start``, ``--loss=elbo``).
quick: proves the pipeline in about a minute.
paper: the published settings: a thousand epochs of batches of 120 at a constant rate.
"""

import dataclasses
from typing import Any

from ctfno_jax.config import DatasetConfig, ExperimentConfig, ModelConfig, OptimizerConfig, TrainConfig
from ctfno_jax.data import synthetic
from experiments.configs import pde

SERIES = ("square", "sawtooth", "stiff", "spiral", "sine")
DATASETS = ("square", "sawtooth", "stiff", "spiral", "reaction", "sine")
MODELS = ("ctfno", "node", "anode", "neural_flow", "neural_laplace")

_FEATURES = {"stiff": 2, "spiral": 2}
# A grid of 31 x 31 initial states.
_SIZES = {"spiral": (864, 96, 97)}


def _data(dataset: str) -> DatasetConfig:
    num_train, num_validation, num_test = _SIZES.get(dataset, (900, 100, 100))
    return DatasetConfig(dataset, num_train=num_train, num_validation=num_validation, num_test=num_test)


def _fields(dataset: str, model: str) -> dict[str, Any]:
    shared: dict[str, Any] = {"out_features": _FEATURES.get(dataset, 1)}
    if model == "ctfno":
        return {
            **shared, "grid_points": 16, "width": 16, "modes": [4], "depth": 3, "heads": 1, "time_width": 32,
            "time_features": 16,
        }  # fmt: skip
    if model == "anode":
        return {**shared, "augmented": 1}
    return shared


def _default_fields(dataset: str, model: str) -> dict[str, Any]:
    """The published ones, but for the flow: two coupling layers of two coordinates cannot turn by a right angle."""
    return _fields(dataset, model) | ({"latent": 8} if model == "neural_flow" else {})


# Each model gets about the time of CTFNO on its data set or more, but for Neural ODEs on waves. The jump of the
# sawtooth is hard to place, and worth a longer training. A Neural ODE sees one point, and that of a square wave tells
# no phase: it knows all it can after 1500 steps.
_STEPS = {
    "square": {"ctfno": 10_000, "node": 1500, "anode": 1500, "neural_flow": 3500, "neural_laplace": 5000},
    "sawtooth": {"ctfno": 24_000, "node": 5000, "anode": 5000, "neural_flow": 5000, "neural_laplace": 7500},
    "stiff": {"ctfno": 12_000, "node": 3500, "anode": 3500, "neural_flow": 3500, "neural_laplace": 5000},
    "spiral": {"ctfno": 10_000, "node": 3500, "anode": 3500, "neural_flow": 3500, "neural_laplace": 7500},
    "sine": {"ctfno": 10_000, "node": 1500, "anode": 1500, "neural_flow": 3500, "neural_laplace": 5000},
}
_RATE = 5e-3
_TIMES = {"ctfno": 8, "node": 0, "anode": 0, "neural_flow": 25, "neural_laplace": 25}


def _default(dataset: str, model: str) -> tuple[ModelConfig, OptimizerConfig, TrainConfig]:
    return (
        ModelConfig(model, _default_fields(dataset, model)),
        OptimizerConfig(learning_rate=_RATE, schedule="one_cycle"),
        TrainConfig(
            steps=_STEPS[dataset][model], batch_size=120, times_per_step=_TIMES[model],
            train_grid=0, loss="mse", eval_every=500, keep_checkpoints=1,
        ),
    )  # fmt: skip


def _quick(dataset: str, model: str) -> tuple[ModelConfig, OptimizerConfig, TrainConfig]:
    model_config, optimizer, train = _default(dataset, model)
    return model_config, optimizer, dataclasses.replace(train, steps=300, eval_every=100)


def _paper(dataset: str, model: str) -> tuple[ModelConfig, OptimizerConfig, TrainConfig]:
    fields = _fields(dataset, model)
    loss = "mse"
    if model in ("node", "anode"):
        fields |= {"late_start": True, "solver": "euler", "stepping": "queries"}
    elif model == "neural_flow":
        loss = "elbo"
    per_epoch = (_data(dataset).num_train - _data(dataset).num_validation) // 120
    train = TrainConfig(
        steps=1000 * per_epoch, batch_size=120, times_per_step=0, train_grid=0, loss=loss, eval_every=100,
        keep_checkpoints=1,
    )  # fmt: skip
    return ModelConfig(model, fields), OptimizerConfig(learning_rate=1e-3, schedule="constant"), train


def synthetic_config(dataset: str, model: str, preset: str, seed: int) -> ExperimentConfig:
    """The config of one cell."""
    if dataset not in DATASETS:
        raise ValueError(f"unknown dataset {dataset!r}; known are {', '.join(DATASETS)}")
    if dataset == "reaction":
        return pde.pde_config(dataset, model, preset, seed, experiment="synthetic")
    if model not in MODELS:
        raise ValueError(f"there is no cell {dataset} with {model}; models are {', '.join(MODELS)}")
    assert dataset in synthetic.FAMILIES
    presets = {"quick": _quick, "default": _default, "paper": _paper}
    if preset not in presets:
        raise ValueError(f"unknown preset {preset!r}; known are {', '.join(presets)}")
    data = _data(dataset)
    if preset == "quick" and dataset == "stiff":
        data = dataclasses.replace(data, num_train=50, num_validation=10, num_test=10)
        # A batch cannot be larger than what is left.
        model_config, optimizer, train = presets[preset](dataset, model)
        return ExperimentConfig(
            "synthetic", preset, seed, data, model_config, optimizer, dataclasses.replace(train, batch_size=40)
        )
    return ExperimentConfig("synthetic", preset, seed, data, *presets[preset](dataset, model))
