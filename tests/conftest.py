"""Settings that must be there before JAX is imported, and the smallest run that exercises everything."""

import os

# Eight virtual devices on a machine with few cores wait for each other forever unless there are threads for all.
# Tests compile hundreds of tiny programs and run each once: optimising them would take most of the time.
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_force_host_platform_device_count=8",
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
    ]
)
os.environ["NPROC"] = "32"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["MPLBACKEND"] = "Agg"

import jaxtyping
import pytest

# The axes that annotations promise are checked in the modules whose arguments are always arrays.
jaxtyping.install_import_hook(
    [
        "ctfno_jax.data.batching",
        "ctfno_jax.ops.gershgorin",
        "ctfno_jax.ops.time_features",
        "ctfno_jax.ops.time_modulated_fourier",
        "ctfno_jax.solvers",
    ],
    "beartype.beartype",
)

from ctfno_jax.config import DatasetConfig, ExperimentConfig, ModelConfig, OptimizerConfig, TrainConfig


@pytest.fixture(scope="session")
def tiny_config() -> ExperimentConfig:
    model_fields = {
        "width": 8,
        "modes": [6],
        "heads": 2,
        "time_width": 8,
        "time_features": 4,
        "time_scale": 20.0,
        "coordinates": False,
    }
    return ExperimentConfig(
        experiment="pde",
        preset="quick",
        seed=0,
        dataset=DatasetConfig(
            dataset="heat", num_train=24, num_validation=4, num_test=3, data_options={"num_points": 32, "num_times": 5}
        ),
        model=ModelConfig("ctfno", model_fields),
        optimizer=OptimizerConfig(learning_rate=3e-3),
        train=TrainConfig(steps=8, batch_size=8, times_per_step=2, train_grid=16, steps_per_call=2, eval_every=4),
    )
