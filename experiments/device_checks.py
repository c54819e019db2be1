"""What a run refuses because of the devices it would be cut over."""

from typing import Any

from ctfno_jax.config import ConfigError, ExperimentConfig
from ctfno_jax.training import sharding


def check_devices(config: ExperimentConfig, model: Any, num_devices: int) -> None:
    """Raises for a batch, or a model, that cannot be cut over so many devices."""
    sharding.check_batch(config.train.batch_size, num_devices)
    adjoint = getattr(model, "adjoint", "direct")
    if num_devices > 1 and adjoint != "direct":
        raise ConfigError(
            f"adjoint={adjoint} cannot be cut over {num_devices} devices; use --adjoint=direct, which has the same "
            "derivatives, or one device"
        )
