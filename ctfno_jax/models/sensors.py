"""Inputs of a branch network: the initial state at fixed points."""

from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models.residual_mlp import ResidualMLP


def sensor_values(u0: Array, num_sensors: int) -> Float[Array, "batch values"]:
    """All channels of ``u0`` at the sensors, in one vector per sample."""
    batch, num_points, channels = u0.shape
    if num_points % num_sensors:
        raise ValueError(
            f"u0 has {num_points} points, which is not a multiple of num_sensors={num_sensors}; "
            "set num_sensors to the grid or to a divisor of it"
        )
    return u0[:, :: num_points // num_sensors].reshape(batch, num_sensors * channels)


def check_channels(model: nn.Module, branch: ResidualMLP, values: int, num_sensors: int) -> None:
    """Raises ValueError unless the branch was initialised for as many values at each sensor."""
    if model.is_initializing():
        return
    expected = branch.variables["params"]["input_weight"].shape[0]
    if values != expected:
        raise ValueError(
            f"u0 has {values // num_sensors} channels, but the parameters are for {expected // num_sensors}; "
            "initialise the model with the channels that it will be given"
        )
