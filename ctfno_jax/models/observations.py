"""Inputs of series models: observed points, with the time of observation as an optional last feature."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ctfno_jax.models.inputs import check_real


def check_features(observations: Float[Array, "batch steps inputs"], features: int) -> None:
    """Raises ValueError unless each point has ``features`` real values, and possibly its time as one more."""
    check_real("observations", observations)
    if observations.ndim != 3 or observations.shape[-1] not in (features, features + 1):
        raise ValueError(
            f"observations must have shape (batch, steps, features) with {features} features, or {features + 1} with "
            f"the time of observation last, got {observations.shape}"
        )


def times_of_observation(
    observations: Float[Array, "batch steps inputs"], features: int, time_step: float
) -> Float[Array, "batch steps"]:
    """The last feature if there is one more than values, else even steps; the last observation is at zero."""
    if observations.shape[-1] > features:
        return observations[..., features]
    steps = observations.shape[1]
    return jnp.broadcast_to(time_step * jnp.arange(1 - steps, 1, dtype=observations.dtype), observations.shape[:2])
