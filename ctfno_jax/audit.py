"""Properties that a flow of an autonomous equation has, and how far a learned one is from them.

At time zero it is the identity; going on for s from where t has led is the same as going for t + s at once; its time
derivative is what the equation says about the state. A network need not have any of these, and the defects say, without
reference solutions, where it can be trusted.

``solve`` is a function ``(u0, times) -> u`` in physical units, as :func:`ctfno_jax.load_predictor` returns it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ctfno_jax.types import Apply, Params

Solve = Callable[[Any, Any], Float[np.ndarray, "batch time *space channels"]]


def relative_norm(
    difference: Float[np.ndarray, "batch ..."], reference: Float[np.ndarray, "batch ..."]
) -> Float[np.ndarray, " batch"]:
    """L2 norm of each sample's difference over that of its reference, the mean over channels of different units."""
    axes = tuple(range(1, difference.ndim - 1))
    norm = lambda a: np.sqrt(np.sum(np.square(np.asarray(a, np.float64)), axis=axes))  # noqa: E731
    return np.mean(norm(difference) / np.maximum(norm(reference), 1e-30), axis=-1)


def identity_defect(solve: Solve, u0: Float[np.ndarray, "batch *space channels"]) -> Float[np.ndarray, " batch"]:
    """Relative distance of the solution at time zero from the initial state."""
    u = solve(u0, np.zeros(1, np.float32))[:, 0]
    return relative_norm(u - u0[..., : u.shape[-1]], u0[..., : u.shape[-1]])


def semigroup_defect(
    solve: Solve, u0: Float[np.ndarray, "batch *space channels"], first: float, second: float
) -> Float[np.ndarray, " batch"]:
    """Relative distance of the solution after both times from the solution after the second, from that after the first.

    The solution must have the channels of a state.
    """
    half_way = solve(u0, np.asarray([first], np.float32))[:, 0]
    if half_way.shape[-1] != u0.shape[-1]:
        raise ValueError(
            f"a solution of {half_way.shape[-1]} channels is no initial state of {u0.shape[-1]}: nothing to compose"
        )
    composed = solve(half_way, np.asarray([second], np.float32))[:, 0]
    at_once = solve(u0, np.asarray([first + second], np.float32))[:, 0]
    return relative_norm(composed - at_once, at_once)


def time_derivative(
    apply_fn: Apply, params: Params, u0: Float[Array, "batch *space channels"], times: Float[Array, " time"]
) -> Float[np.ndarray, "batch time *space channels"]:
    """Of the solution, by forward-mode differentiation."""
    times = jnp.asarray(times, jnp.float32)
    _, rate = jax.jit(lambda ts: jax.jvp(lambda t: apply_fn(params, jnp.asarray(u0), t), (ts,), (jnp.ones_like(ts),)))(
        times
    )
    return np.asarray(rate)


def finite_difference(
    solve: Solve, u0: Float[np.ndarray, "batch *space channels"], times: Float[np.ndarray, " time"], step: float
) -> Float[np.ndarray, "batch time *space channels"]:
    """The same by central differences; times must not be less than the step."""
    times = np.asarray(times, np.float32)
    # What single precision makes of the two times is what the difference is divided by.
    later, earlier = times + np.float32(step), times - np.float32(step)
    rise = np.asarray(solve(u0, later), np.float64) - np.asarray(solve(u0, earlier), np.float64)
    width = (later.astype(np.float64) - earlier).reshape(1, -1, *[1] * (rise.ndim - 2))
    return rise / width
