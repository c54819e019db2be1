"""Many steps in one compiled call, data-parallel over devices.

The batch is cut over the devices, the state is the same on all of them. Both ways run the same local function; they
differ only in what maps it: ``shard_map`` under ``jit`` (the default), or ``pmap``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

from ctfno_jax.training.step import TrainState

AXIS = "data"
WAYS = ("shard_map", "pmap")

# (data, state, index of the shard, number of shards) to the batch of that shard.
SampleFn = Callable[[Any, TrainState, Any, int], Any]
StepFn = Callable[[TrainState, Any], tuple[TrainState, Float[Array, ""]]]
MultiStep = Callable[[TrainState, Any], tuple[TrainState, Float[Array, " steps"]]]


def check_batch(batch_size: int, num_devices: int) -> None:
    """Raises ValueError if the batch cannot be cut evenly."""
    if batch_size % num_devices:
        raise ValueError(
            f"batch_size={batch_size} cannot be divided among {num_devices} devices; "
            f"use a multiple of {num_devices}, or fewer devices"
        )


def replicate(tree: Any, devices: Sequence[Any] | None = None) -> Any:
    """The arrays on all devices, so that no call has to copy them there."""
    mesh = Mesh(np.asarray(list(devices or jax.local_devices())), (AXIS,))
    return jax.device_put(tree, NamedSharding(mesh, P()))


def make_multi_step(
    step_fn: StepFn,
    sample_fn: SampleFn,
    num_steps: int,
    *,
    parallel: str = "shard_map",
    devices: Sequence[Any] | None = None,
) -> MultiStep:
    """A compiled function that makes ``num_steps`` steps on all devices.

    Args:
      step_fn: one step with gradients averaged over the axis ``AXIS``.
      sample_fn: (data, state, shard, number of shards) to this shard's batch.
      num_steps: steps per call, by ``lax.scan``.
      parallel: ``"shard_map"`` or ``"pmap"``.
      devices: all local ones by default.

    Returns:
      (state, data) to (state, losses). The given state is consumed: its buffers are reused where the backend can.
    """
    devices = list(devices or jax.local_devices())

    def local(state: TrainState, data: Any, shard: Any = None) -> tuple[TrainState, Float[Array, " steps"]]:
        shard = jax.lax.axis_index(AXIS) if shard is None else shard

        def body(state: TrainState, _: None) -> tuple[TrainState, Float[Array, ""]]:
            return step_fn(state, sample_fn(data, state, shard, len(devices)))

        return jax.lax.scan(body, state, None, length=num_steps)

    if parallel == "pmap":
        # At least one argument must be mapped: the index of the shard is.
        mapped = jax.pmap(local, axis_name=AXIS, in_axes=(None, None, 0), out_axes=None, devices=devices)
        return lambda state, data: mapped(state, data, np.arange(len(devices)))
    if parallel != "shard_map":
        raise ValueError(f"unknown way to run in parallel {parallel!r}; known are {', '.join(WAYS)}")
    if len(devices) == 1:
        # Nothing to cut: the axis alone is bound, by a map over nothing. Adjoints of ODE solvers may not be sharded.
        alone = jax.vmap(
            lambda state, data: local(state, data, 0), in_axes=None, out_axes=None, axis_name=AXIS, axis_size=1
        )
        return jax.jit(alone, donate_argnums=0)
    mesh = Mesh(np.asarray(devices), (AXIS,))
    # check_vma=False gives collectives the same meaning as in pmap: gradients are local until they are averaged. With
    # the check on, they would arrive summed, and the average would be too large by the number of devices.
    mapped = jax.shard_map(local, mesh=mesh, in_specs=(P(), P()), out_specs=P(), check_vma=False)
    return jax.jit(mapped, donate_argnums=0)
