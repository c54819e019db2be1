"""Losses on arrays ``(batch, time, *space, channels)``; each is a mean over samples, so shards can be averaged."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from ctfno_jax.config import ConfigError

# Prediction and target to one number.
Loss = Callable[[Array, Array], Float[Array, ""]]


def _trajectory_rms(u: Float[Array, "batch ..."]) -> Float[Array, " batch"]:
    mean_square = jnp.mean(jnp.square(u), axis=tuple(range(1, u.ndim)))
    # The root has an infinite slope at zero; a perfect trajectory must not turn the gradient into NaN.
    return jnp.sqrt(jnp.maximum(mean_square, 1e-20))


def mse(prediction: Float[Array, "batch ..."], target: Float[Array, "batch ..."]) -> Float[Array, ""]:
    """Mean squared error."""
    return jnp.mean(jnp.square(prediction - target))


def rmse(prediction: Float[Array, "batch ..."], target: Float[Array, "batch ..."]) -> Float[Array, ""]:
    """Root mean squared error of each trajectory, averaged over trajectories."""
    return jnp.mean(_trajectory_rms(prediction - target))


def relative_l2(prediction: Float[Array, "batch ..."], target: Float[Array, "batch ..."]) -> Float[Array, ""]:
    """Relative L2 error of each trajectory, averaged over trajectories."""
    return jnp.mean(_trajectory_rms(prediction - target) / _trajectory_rms(target))


LOSSES: dict[str, Loss] = {"mse": mse, "rmse": rmse, "relative_l2": relative_l2}


def loss(name: str) -> Loss:
    """The loss of that name."""
    if name not in LOSSES:
        raise ConfigError(f"unknown loss {name!r}; known are {', '.join(LOSSES)}")
    return LOSSES[name]
