"""Random batches as a pure function of (key, step): nothing to save but the two, and resuming is exact."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ctfno_jax.types import Key


class FieldArrays(NamedTuple):
    """Normalised trajectories on the device."""

    u0: Float[Array, "samples *space channels"]
    times: Float[Array, " time"]
    u: Float[Array, "samples time *space out_channels"]


class Batch(NamedTuple):
    """What one step reads: initial states, query times, solutions there."""

    u0: Float[Array, "batch *space channels"]
    times: Float[Array, " time"]
    target: Float[Array, "batch time *space out_channels"]


def epoch_indices(key: Key, step: Int[Array, ""], num_samples: int, batch_size: int) -> Int[Array, " batch"]:
    """Indices of one batch: every epoch is a new permutation, cut into batches; a last short one is skipped."""
    batches_per_epoch = num_samples // batch_size
    epoch, position = step // batches_per_epoch, step % batches_per_epoch
    permutation = jax.random.permutation(jax.random.fold_in(key, epoch), num_samples)
    return jax.lax.dynamic_slice_in_dim(permutation, position * batch_size, batch_size)


def sample(
    data: FieldArrays,
    key: Key,
    step: Int[Array, ""],
    *,
    batch_size: int,
    times_per_step: int = 0,
    sign_flips: bool = False,
    shard: Int[Array, ""] | int = 0,
    num_shards: int = 1,
) -> Batch:
    """This shard's part of the batch of one step: random trajectories at random query times, shared by the batch.

    All shards draw the same whole batch and take their own slice, so that the union does not depend on their number.

    Args:
      data: all trajectories.
      key: of the run, the same at every step.
      step: index of the step.
      batch_size: trajectories over all shards, divisible by their number.
      times_per_step: query times without repetition; 0 for all.
      sign_flips: multiply a random half of the trajectories by -1.
      shard: which slice to take.
      num_shards: number of slices.
    """
    order_key, step_key = jax.random.split(key)
    time_key, sign_key = jax.random.split(jax.random.fold_in(step_key, step))
    local = batch_size // num_shards
    index = epoch_indices(order_key, step, data.u0.shape[0], batch_size)
    mine = jax.lax.dynamic_slice_in_dim(index, shard * local, local)
    u0, u = data.u0[mine], data.u[mine]
    times = data.times
    if times_per_step:
        chosen = jax.random.choice(time_key, times.shape[0], (times_per_step,), replace=False)
        times, u = times[chosen], u[:, chosen]
    if sign_flips:
        signs = jax.random.rademacher(sign_key, (batch_size,), u0.dtype)
        signs = jax.lax.dynamic_slice_in_dim(signs, shard * local, local)
        u0 = u0 * signs.reshape(-1, *[1] * (u0.ndim - 1))
        u = u * signs.reshape(-1, *[1] * (u.ndim - 1))
    return Batch(u0, jnp.asarray(times), u)
