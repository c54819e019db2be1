"""Linear interpolation of values that were observed in part, each at times of its own."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def interpolate(
    observed_times: Float[Array, "batch steps"],
    values: Float[Array, "batch steps features"],
    mask: Float[Array, "batch steps features"],
    times: Float[Array, "batch time"],
) -> Float[Array, "batch time features"]:
    """Every feature at the query times: linear between its two nearest observations, constant before and after them.

    A feature that was never observed is zero.
    """
    at = jnp.where(mask > 0, observed_times[..., None], jnp.nan)[:, None]  # (batch, 1, steps, features)
    query = times[:, :, None, None]
    before = jnp.where(at <= query, at, -jnp.inf)
    after = jnp.where(at >= query, at, jnp.inf)
    left, right = jnp.argmax(before, axis=2), jnp.argmin(after, axis=2)
    t_left, t_right = jnp.max(before, axis=2), jnp.min(after, axis=2)
    v_left, v_right = (jnp.take_along_axis(values, index, axis=1) for index in (left, right))
    has_left, has_right = jnp.isfinite(t_left), jnp.isfinite(t_right)
    width = jnp.where(has_left & has_right & (t_right > t_left), t_right - t_left, 1.0)
    share = jnp.where(has_left & has_right, (times[..., None] - t_left) / width, 0.0)
    between = v_left + jnp.where(t_right > t_left, share, 0.0) * (v_right - v_left)
    one_side = jnp.where(has_left, v_left, jnp.where(has_right, v_right, 0.0))
    return jnp.where(has_left & has_right, between, one_side)
