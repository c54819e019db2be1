"""Many steps in one compiled call: one run data-parallel over all devices, or several runs at once on one device.

The batch is sharded over the devices and the state is replicated. ``shard_map`` under ``jit`` (the default) and
``pmap`` run the same local function.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

from ctfno_jax.training.step import TrainState

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
