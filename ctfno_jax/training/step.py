"""The state of a run and one step of it."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Float, Int, UInt32

from ctfno_jax.types import Key, Params

# Parameters and a batch to the loss on this shard.
Loss = Callable[[Params, Any], Float[Array, ""]]


class TrainState(struct.PyTreeNode):
    """The whole state of a run besides its data: restore it and the run continues bitwise.

    Attributes:
      step: number of updates made.
      params: parameters.
      opt_state: state of the optimizer.
      average: exponential moving average of the parameters, or None.
      key_data: the run's random key as plain integers; batches are a function of it and of ``step``.
    """

    step: Int[Array, ""]
    params: Params
    opt_state: Any
    average: Any
    key_data: UInt32[Array, " words"]

    @property
    def key(self) -> Key:
        return jax.random.wrap_key_data(self.key_data)

    @property
    def evaluation_params(self) -> Params:
        """The averaged parameters if there are any."""
        return self.params if self.average is None else self.average


def create_state(
    params: Params, optimizer: optax.GradientTransformation, key: Key, *, average_decay: float = 0.0
) -> TrainState:
    """State before the first step."""
    # Without weak types, which an update drops: the second call would compile the step once more.
    params = jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), params)
    # Copies: donated buffers must not be shared between two leaves, or with the caller's key.
    average = jax.tree.map(jnp.copy, params) if average_decay else None
    key_data = jnp.copy(jax.random.key_data(key))
    opt_state = jax.jit(optimizer.init)(_split(params)[0])  # one program instead of one for each shape
    return TrainState(jnp.zeros((), jnp.int32), params, opt_state, average, key_data)


def _split(params: Params) -> tuple[Params, dict[str, Any]]:
    """What is learned, and the constants of a model, which the optimizer need not see: they may be large."""
    if not isinstance(params, Mapping) or "constants" not in params:
        return params, {}
    return {k: v for k, v in params.items() if k != "constants"}, {"constants": params["constants"]}


def train_step(
    state: TrainState,
    batch: Any,
    *,
    loss_fn: Loss,
    optimizer: optax.GradientTransformation,
    average_decay: float = 0.0,
    axis_name: str | None = None,
) -> tuple[TrainState, Float[Array, ""]]:
    """One update; under a mapped axis, gradients and loss are averaged over it."""
    learned, constants = _split(state.params)
    whole = lambda some: {**some, **constants} if constants else some  # noqa: E731
    loss, grads = jax.value_and_grad(lambda some: loss_fn(whole(some), batch))(learned)
    if axis_name is not None:
        loss, grads = jax.lax.pmean((loss, grads), axis_name)
    updates, opt_state = optimizer.update(grads, state.opt_state, learned)
    params = whole(optax.apply_updates(learned, updates))
    average = state.average
    if average is not None:
        # A shorter memory early on, so that the initial parameters are soon forgotten.
        decay = jnp.minimum(average_decay, (1.0 + state.step) / (10.0 + state.step))
        # In this form what does not change keeps its value exactly.
        average = jax.tree.map(lambda a, p: a + (1 - decay) * (p - a), average, params)
    return state.replace(step=state.step + 1, params=params, opt_state=opt_state, average=average), loss
