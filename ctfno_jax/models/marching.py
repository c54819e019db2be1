"""An operator for short times composed with itself: the solution at any time from steps of a fixed length.

The solution of an equation that does not depend on time itself is a semigroup: the state at t + s is where the state at
t gets to in s. So an operator that answers times up to a horizon answers all others, and what it learns from one part
of a trajectory it knows for all of them.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

# States (batch, *space, channels) and times (batch, time) to the solution there, (batch, time, *space, out_channels).
Advance = Callable[[Array, Array], Array]


def cut(times: Float[Array, "*any"], horizon: float, max_steps: int) -> tuple[Int[Array, "*any"], Float[Array, "*any"]]:
    """Steps of a whole horizon, and the length of the last one, which is at most a horizon.

    After the last of ``max_steps`` a longer last step takes what is left.
    """
    whole = jnp.clip(jnp.ceil(times / horizon) - 1, 0, max_steps - 1)
    # Rounding may take the last bit of a multiple of the horizon.
    return whole.astype(jnp.int32), jnp.maximum(times - whole * jnp.asarray(horizon, times.dtype), 0)


def next_state(u: Float[Array, "batch *space out_channels"], state: Float[Array, "batch *space channels"]) -> Array:
    """The solution as the state of the next step, with the channels that do not change appended again."""
    return jnp.concatenate([u, state[..., u.shape[-1] :]], axis=-1)


def march(
    advance: Advance,
    u0: Float[Array, "batch *space channels"],
    times: Float[Array, " time"] | Float[Array, "batch time"],
    *,
    horizon: float,
    max_steps: int,
) -> Float[Array, "batch time *space out_channels"]:
    """The solution at ``times``: whole steps are made once, and one last step for every query."""
    batch = len(u0)
    every = jnp.broadcast_to(times, (batch, times.shape[-1]))
    whole = jnp.full((batch, 1), horizon, every.dtype)

    before, rest = cut(every, horizon, max_steps)
    needed = jnp.max(before)

    def step(state: Array, index: Array) -> tuple[Array, Array]:
        # Steps that nobody asked for stand still: they might overflow, and spoil derivatives.
        state = jnp.where(index < needed, next_state(advance(state, whole)[:, 0], state), state)
        return state, state

    _, later = jax.lax.scan(step, u0, jnp.arange(max_steps - 1))
    states = jnp.concatenate([u0[None], later])

    def last_step(query: tuple[Array, Array]) -> Array:
        index, time = query
        return advance(states[index, jnp.arange(batch)], time[:, None])[:, 0]

    # One query time after the other: their states differ, so there is nothing that they could share.
    return jnp.moveaxis(jax.lax.map(last_step, (before.T, rest.T)), 0, 1)


def rollout(
    advance: Advance, u0: Float[Array, "batch *space channels"], times: Float[Array, "batch time"]
) -> Float[Array, "batch time *space out_channels"]:
    """The solution at increasing times, each in one step from the one before."""
    state, solution = u0, []
    steps = jnp.diff(times, axis=1, prepend=jnp.zeros_like(times[:, :1]))
    for i in range(times.shape[1]):
        u = advance(state, steps[:, i : i + 1])[:, 0]
        solution.append(u)
        state = next_state(u, state)
    return jnp.stack(solution, axis=1)
