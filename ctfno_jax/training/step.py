"""The state of a run, one step of it, and many steps in one compiled call.

A call makes steps of one run, data-parallel over all devices, or of several runs at once on one device. Over devices,
the batch is sharded and the state is replicated; ``shard_map`` under ``jit`` (the default) and ``pmap`` run the same
local function.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
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
    """Trainable variables and constants. The optimizer sees only the former, as constants may be large."""
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


# --- many steps ---------------------------------------------------------------------------------------------------

AXIS = "data"
WAYS = ("shard_map", "pmap")

# (data, state, index of the shard, number of shards) to the batch of that shard.
SampleFn = Callable[[Any, TrainState, Any, int], Any]
# (state, batch, mapped axis over which gradients are averaged or None, index of the shard) to the state and the loss.
StepFn = Callable[[TrainState, Any, str | None, Any], tuple[TrainState, Float[Array, ""]]]
# States of all runs and data to states and losses; the given states are consumed.
MultiStep = Callable[[list[TrainState], Any], tuple[list[TrainState], list[Float[Array, " steps"]]]]


def _mesh(devices: Sequence[Any]) -> Mesh:
    return jax.make_mesh((len(devices),), (AXIS,), axis_types=(AxisType.Auto,), devices=list(devices))


def replicate(tree: Any, devices: Sequence[Any]) -> Any:
    """The arrays on all devices, so that no call has to copy them there."""
    return jax.device_put(tree, NamedSharding(_mesh(devices), P()))


def over_devices(
    step_fn: StepFn, sample_fn: SampleFn, num_steps: int, *, devices: Sequence[Any], parallel: str = "shard_map"
) -> MultiStep:
    """A compiled function that makes ``num_steps`` steps of one run on all devices.

    Args:
      step_fn: one step.
      sample_fn: one shard of a batch.
      num_steps: steps per call, by ``lax.scan``.
      devices: devices that share the batch.
      parallel: ``"shard_map"`` or ``"pmap"``.
    """

    def local(state: TrainState, data: Any, shard: Any = None) -> tuple[TrainState, Float[Array, " steps"]]:
        shard = jax.lax.axis_index(AXIS) if shard is None else shard

        def body(state: TrainState, _: None) -> tuple[TrainState, Float[Array, ""]]:
            return step_fn(state, sample_fn(data, state, shard, len(devices)), AXIS, shard)

        return jax.lax.scan(body, state, None, length=num_steps)

    def on_list(one: Callable[[TrainState, Any], tuple[TrainState, Any]]) -> MultiStep:
        def call(states: list[TrainState], data: Any) -> tuple[list[TrainState], list[Any]]:
            state, losses = one(states[0], data)
            return [state], [losses]

        return call

    if parallel == "pmap":
        # At least one argument must be mapped: the index of the shard is.
        mapped = jax.pmap(local, axis_name=AXIS, in_axes=(None, None, 0), out_axes=None, devices=devices)
        return on_list(lambda state, data: mapped(state, data, np.arange(len(devices))))
    if parallel != "shard_map":
        raise ValueError(f"unknown way to run in parallel {parallel!r}; known are {', '.join(WAYS)}")
    if len(devices) == 1:
        # vmap binds the axis without sharding: adjoints of ODE solvers cannot be sharded, even over one device.
        alone = jax.vmap(
            lambda state, data: local(state, data, 0), in_axes=None, out_axes=None, axis_name=AXIS, axis_size=1
        )
        return on_list(jax.jit(alone, donate_argnums=0))
    # check_vma=False gives collectives the meaning that they have in pmap: gradients are local until they are averaged.
    # With the check on they would arrive summed, too large by the number of devices.
    mapped = jax.shard_map(local, mesh=_mesh(devices), in_specs=(P(), P()), out_specs=P(), check_vma=False)
    return on_list(jax.jit(mapped, donate_argnums=0))


def over_seeds(step_fn: StepFn, sample_fn: SampleFn, num_steps: int) -> MultiStep:
    """A compiled function that makes ``num_steps`` steps of several runs at once on one device, by ``vmap``."""

    @jax.jit
    def together(stacked: TrainState, data: Any) -> tuple[TrainState, Any]:
        def steps(state: TrainState) -> tuple[TrainState, Any]:
            body = lambda s, _: step_fn(s, sample_fn(data, s, 0, 1), None, 0)  # noqa: E731
            return jax.lax.scan(body, state, None, length=num_steps)

        return jax.vmap(steps)(stacked)

    def call(states: list[TrainState], data: Any) -> tuple[list[TrainState], list[Any]]:
        stacked, losses = together(jax.tree.map(lambda *leaves: jnp.stack(leaves), *states), data)
        return [jax.tree.map(lambda leaf, i=i: leaf[i], stacked) for i in range(len(states))], list(losses)

    return call
