"""Tasks on a heat problem of a size for tests, one for every network of fields."""

import functools
from typing import Any

from ctfno_jax.config import OptimizerConfig, TrainConfig
from ctfno_jax.data import problems
from ctfno_jax.data.trajectories import FieldDataset
from ctfno_jax.models import registry
from ctfno_jax.tasks.fields import FieldSettings, FieldTask

# The cheapest solver to compile, in a form that can be sharded.
EULER = {"solver": "euler", "stepping": "constant", "step_size": 0.5, "adjoint": "direct", "max_steps": 16}
FOURIER = {"width": 4, "modes": [4], "depth": 1}
CTFNO = {**FOURIER, "heads": 2, "time_width": 4, "time_features": 4, "time_scale": 20.0, "coordinates": False}
SINUSOIDS = {"time_features": 4, "time_channels": 3, "time_scale": 20.0}
BRANCHES = {"width": 6, "depth": 1, "num_sensors": 32}
NETWORKS: dict[str, dict[str, Any]] = {
    "ctfno": CTFNO,
    "ctfno_semigroup": {**CTFNO, "rise_time": 0.1, "step_size": 1.0, "num_steps": 3},
    "fno_rnn": {**FOURIER, "head_width": 5, "time_step": 0.5, "num_times": 5},
    "fno_2d": {**FOURIER, "modes": [4, 3], "head_width": 5, "final_time": 2.5, "num_times": 5},
    "deeponet": BRANCHES,
    "pod_deeponet": {**BRANCHES, "num_modes": 7},
    "neural_ode": {"width": 5, "depth": 1, "augmented": 3, **EULER},
    "neural_flow": {"num_layers": 2, "width": 5, "depth": 1, "num_sinusoids": 3},
    "neural_laplace": {"latent": 3, "encoder_width": 4, "width": 5, "depth": 1, "num_terms": 5},
    "ablation_input": FOURIER,
    "ablation_lifted": {**FOURIER, **SINUSOIDS},
    "ablation_features": {**FOURIER, **SINUSOIDS},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "ctfno_semigroup": {"window": 2, "times_per_step": 0, "random_starts": 0.5, "shared_normalization": True},
    "fno_rnn": {"window": 3, "times_per_step": 0, "shared_normalization": True},
    "fno_2d": {"times_per_step": 0, "reflections": True},
    "deeponet": {"translations": True, "sign_flips": True},
    "pod_deeponet": {"reflections": True},
    "neural_ode": {"shared_normalization": True, "times_per_step": 0},
    "neural_flow": {"shared_normalization": True, "translations": True},
    "ablation_features": {"shared_normalization": True, "random_starts": 0.5},
    "ablation_lifted": {"own_times": True},
}
# The cheapest optimizer to compile.
OPTIMIZER = OptimizerConfig(optimizer="sgd", learning_rate=0.1, schedule="constant", clip_norm=0.0)
TRAIN = TrainConfig(steps=2, steps_per_call=1, eval_every=2)


@functools.cache
def dataset(name: str = "heat", **options: Any) -> FieldDataset:
    """Sixteen training trajectories on 32 points, at five times up to 2.5."""
    options = {"num_points": 32, "num_times": 5, "final_time": 2.5, **options}
    data = problems.load_dataset(name, num_train=16, num_validation=4, num_test=3, **options)
    assert isinstance(data, FieldDataset)
    return data


def network(name: str, **changes: Any) -> Any:
    """The small network of that name, with single fields replaced."""
    return registry.build_model(name, **{**NETWORKS[name], **changes})


def task(name: str, *, data: FieldDataset | None = None, fields: Any = None, **settings: Any) -> FieldTask:
    """The task of the small network of that name, with single settings replaced."""
    chosen = {"batch_size": 8, "times_per_step": 2, **SETTINGS.get(name, {}), **settings}
    return FieldTask(data or dataset(), network(name, **(fields or {})), FieldSettings(**chosen))
