"""Settings of ``python -m experiments.pde``.

heat, default: two CPU cores, about 6 minutes, test RMSE about 0.7e-4 on 1024 points (paper: 2.6e-4).
heat, quick: about a minute, test RMSE about 7e-4: proves the pipeline.
heat, paper: after the released code, for a GPU: 40,000 steps on all 50 times and all 1024 points, M = 10 in the layers.
"""

from typing import Any

from ctfno_jax.config import DatasetConfig, ExperimentConfig, ModelConfig, OptimizerConfig, TrainConfig

# The heat equation is periodic and autonomous, so the model has no coordinates and commutes with translations.
# The time fed to the sinusoids is the frame index, 20 t.
_HEAT_MODEL: dict[str, Any] = {
    "out_channels": 1, "width": 64, "modes": [64], "depth": 2, "heads": 4, "time_width": 512, "time_features": 128,
    "time_scale": 20.0, "coordinates": False,
}  # fmt: skip

_HEAT_PAPER_MODEL: dict[str, Any] = {
    **_HEAT_MODEL, "coordinates": True, "padding": 1 / 64, "stability_bound": 10.0,
}  # fmt: skip

_HEAT: dict[str, tuple[ModelConfig, OptimizerConfig, TrainConfig]] = {
    "default": (
        ModelConfig("ctfno", _HEAT_MODEL),
        OptimizerConfig(learning_rate=3e-3, schedule="one_cycle", average_decay=0.0),
        TrainConfig(steps=4000, batch_size=20, times_per_step=5, train_grid=256, loss="mse"),
    ),
    "quick": (
        ModelConfig("ctfno", {**_HEAT_MODEL, "width": 32, "modes": [32], "time_width": 128, "time_features": 64}),
        OptimizerConfig(learning_rate=3e-3, schedule="one_cycle"),
        TrainConfig(steps=1000, batch_size=20, times_per_step=5, train_grid=128, loss="mse", eval_every=200),
    ),
    "paper": (
        ModelConfig("ctfno", _HEAT_PAPER_MODEL),
        OptimizerConfig(learning_rate=1e-3, schedule="step", decay_factor=0.8, decay_steps=2000, clip_norm=0.0),
        TrainConfig(steps=40000, batch_size=20, times_per_step=0, train_grid=0, loss="relative_l2"),
    ),
}

_CELLS = {("heat", "ctfno"): _HEAT}


def pde_config(dataset: str, model: str, preset: str, seed: int) -> ExperimentConfig:
    """The config of one cell."""
    if (dataset, model) not in _CELLS:
        known = ", ".join(f"{d} with {m}" for d, m in _CELLS)
        raise ValueError(f"there is no cell {dataset} with {model}; there is {known}")
    cell = _CELLS[dataset, model]
    if preset not in cell:
        raise ValueError(f"unknown preset {preset!r}; known are {', '.join(cell)}")
    model_config, optimizer, train = cell[preset]
    return ExperimentConfig("pde", preset, seed, DatasetConfig(dataset), model_config, optimizer, train)
