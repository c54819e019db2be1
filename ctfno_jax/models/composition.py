"""Modules around any operator ``(u0, times) -> u``: a residual connection, and composition with itself.

The parameters of the operator inside are under the name ``operator``.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models import interface
from ctfno_jax.models.inputs import check_inputs, check_positive, float_inputs

# Times that exceed the end of the last step by no more than this fraction of a step are rounding errors.
_ROUNDING = 1e-6


class Residual(nn.Module):
    """The initial state plus the operator's output, so that the solution at t = 0 is exact:

        u(t) = u0 + t / (t + rise_time) operator(u0, t)

    If ``u0`` has more channels than the operator's output, the first ones are the state.

    Attributes:
      operator: module ``(u0, times) -> u``.
      rise_time: time at which half of the operator's output is added.
    """

    operator: nn.Module
    rise_time: float

    @nn.nowrap
    def check_fields(self) -> None:
        """Raises ValueError for a rise time that is not positive."""
        check_positive(self, ("rise_time",))

    def __call__(
        self,
        u0: Float[Array, "batch *space channels"],
        times: Float[Array, " time"] | Float[Array, "batch time"],
    ) -> Float[Array, "batch time *space out_channels"]:
        """The solution at ``times``, shared by all samples or one grid of times per sample, in any order."""
        self.check_fields()
        u0, times = check_inputs(u0, times)
        added = self.operator(u0, times)  # pyright: ignore[reportCallIssue]
        u0, times = float_inputs(u0, times)
        check_state_channels(u0, added.shape[-1])
        times = jnp.broadcast_to(times, added.shape[:2])
        rise = times / (times + self.rise_time)
        added = rise.reshape(*times.shape, *[1] * (added.ndim - 2)) * added
        return u0[:, None, ..., : added.shape[-1]] + added


class Semigroup(nn.Module):
    """The operator composed with itself: any time up to ``num_steps * step_size`` by steps of at most ``step_size``.

    The solution operator of an autonomous equation is a semigroup, ``S(t + s) = S(t) S(s)``. Whole steps are computed
    once, and one last, shorter step for every query time. If ``u0`` has more channels than the solution, the others
    are constants and are passed to every step.

    All ``num_steps`` are computed, whatever the query times; :meth:`reaching` has as many as concrete times need.
    A time beyond the last step is reached by a last step longer than ``step_size``.

    Attributes:
      operator: module ``(u0, times) -> u``.
      step_size: duration of one step.
      num_steps: number of steps.
    """

    operator: nn.Module
    step_size: float
    num_steps: int

    @nn.nowrap
    def check_fields(self) -> None:
        """Raises ValueError for fields that are not positive."""
        check_positive(self, ("step_size",))
        if self.num_steps < 1:
            raise ValueError(f"num_steps must be at least 1, got {self.num_steps}")

    @nn.nowrap
    def answerable(self, times: Float[np.ndarray, "..."]) -> str | None:
        """None if all times are within the steps and the operator answers each step, else a sentence."""
        last, latest = self.step_size * self.num_steps, np.max(times)
        if latest > last * (1 + _ROUNDING):
            return f"{self.num_steps} steps of {self.step_size:g} end at {last:g}, got t={latest:g}; raise num_steps"
        whole, rest = split_times(np.asarray(times, np.float32), self.step_size, self.num_steps)
        steps = np.unique([*np.ravel(rest), *([self.step_size] if np.any(whole) else [])])
        return interface.unanswerable(self.operator, steps)

    @nn.nowrap
    def reaching(self, times: Float[np.ndarray, "..."]) -> "Semigroup":
        """The same operator with the number of steps that the times need, rounded up to a power of two.

        Rounding keeps the number of programs to compile small.
        """
        steps = math.ceil(float(np.max(times)) / self.step_size - _ROUNDING)
        operator = interface.reaching(self.operator, np.asarray([self.step_size]))
        num_steps = 2 ** math.ceil(math.log2(max(steps, 1)))
        return self.clone(operator=operator, num_steps=num_steps, parent=None, name=None)

    def __call__(
        self,
        u0: Float[Array, "batch *space channels"],
        times: Float[Array, " time"] | Float[Array, "batch time"],
    ) -> Float[Array, "batch time *space out_channels"]:
        """The solution at ``times``, shared by all samples or one grid of times per sample, in any order."""
        self.check_fields()
        u0, times = check_inputs(u0, times)
        if self.is_initializing():
            self.operator(u0, times)  # pyright: ignore[reportCallIssue]
        # A bound module must not be called inside a scan: the steps call an unbound copy of it.
        operator, variables = self.operator.unbind()
        u0, times = float_inputs(u0, times)
        return compose(lambda *args: operator.apply(variables, *args), u0, times, self.step_size, self.num_steps)


def compose(advance: Callable[[Array, Array], Any], u0: Array, times: Array, step_size: float, num_steps: int) -> Array:
    """The solution at ``times`` by steps of ``step_size`` and one last step for each of them.

    Args:
      advance: function ``(states, times (batch, 1)) -> (batch, 1, *space, out_channels)``.
      u0: ``(batch, *space, channels)``.
      times: ``(time,)`` or ``(batch, time)``.
      step_size: duration of a step.
      num_steps: number of steps.

    Returns:
      ``(batch, time, *space, out_channels)``.
    """
    batch = len(u0)
    every = jnp.broadcast_to(times, (batch, times.shape[-1]))
    whole = jnp.full((batch, 1), step_size, every.dtype)
    before, rest = split_times(every, step_size, num_steps)
    needed = jnp.max(before)

    def step(state: Array, index: Array) -> tuple[Array, Array]:
        # Mask unused steps: they could overflow and produce NaN gradients.
        state = jnp.where(index < needed, _next_state(advance(state, whole)[:, 0], state), state)
        return state, state

    _, later = jax.lax.scan(step, u0, jnp.arange(num_steps - 1))
    states = jnp.concatenate([u0[None], later])

    def last_step(query: tuple[Array, Array]) -> Array:
        index, time = query
        return advance(states[index, jnp.arange(batch)], time[:, None])[:, 0]

    # Query times start from different states, so that evaluating them together would save nothing.
    return jnp.moveaxis(jax.lax.map(last_step, (before.T, rest.T)), 0, 1)


def split_times(times: Any, step_size: float, num_steps: int) -> tuple[Any, Any]:
    """Number of whole steps before each time, at most ``num_steps - 1``, and the duration of the last step.

    The last step is at most ``step_size`` long, but for times beyond ``num_steps * step_size``. Times may be a
    NumPy or a JAX array, and the results are of the same kind.
    """
    numpy: Any = np if isinstance(times, np.ndarray) else jnp
    whole = numpy.clip(numpy.ceil(times / step_size) - 1, 0, num_steps - 1)
    # Rounding can make the difference negative at a multiple of the step size.
    return whole.astype(numpy.int32), numpy.maximum(times - whole * numpy.asarray(step_size, times.dtype), 0)


def check_state_channels(u0: Array, out_channels: int) -> None:
    """Raises ValueError for a state with fewer channels than the solution."""
    if u0.shape[-1] < out_channels:
        raise ValueError(
            f"u0 has {u0.shape[-1]} channels, but the operator answers with {out_channels}: u0 must begin with the "
            "channels of the solution; set out_channels to the channels of u0 that change"
        )


def _next_state(u: Float[Array, "batch *space out_channels"], state: Float[Array, "batch *space channels"]) -> Array:
    """The solution as the state of the next step, with the constant channels appended."""
    check_state_channels(state, u.shape[-1])
    return jnp.concatenate([u, state[..., u.shape[-1] :]], axis=-1)
