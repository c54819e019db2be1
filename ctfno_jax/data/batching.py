"""Random batches as a pure function of (key, step): nothing to save but the two, and resuming is exact.

Symmetries of the equation make more data out of the same trajectories: translations, reflections, changes of sign, and,
because none of the equations depends on time itself, any frame of a trajectory as the initial state of the later ones.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ctfno_jax.types import Key


class FieldArrays(NamedTuple):
    """Normalised trajectories on the device; ``weight`` is what an error counts, one where it is None."""

    u0: Float[Array, "samples *space channels"]
    times: Float[Array, " time"] | Float[Array, "samples time"]
    u: Float[Array, "samples time *space out_channels"]
    weight: Float[Array, "samples out_channels"] | None = None


class Batch(NamedTuple):
    """What one step reads: initial states, query times, solutions there, and what an error in them counts."""

    u0: Float[Array, "batch *space channels"]
    times: Float[Array, " time"] | Float[Array, "batch time"]
    target: Float[Array, "batch time *space out_channels"]
    weight: Float[Array, "batch #time *#space out_channels"] | None = None


@dataclasses.dataclass(frozen=True)
class Sampling:
    """What a batch is made of.

    Attributes:
      batch_size: trajectories over all shards, divisible by their number.
      times_per_step: query times without repetition; 0 for all.
      random_starts: probability that a step starts from a random later frame instead of the initial state; the frame
        is the same for the whole batch, and there must be ``times_per_step`` frames after it.
      window: if positive, every trajectory starts from its own random frame and the targets are the ``window`` frames
        that follow; the other two settings are then not used, unless there is a horizon.
      horizon: with a window, every trajectory takes its own random stride between its frames, at most so long; the
        times of a trajectory must be multiples of the first. ``random_starts`` is then the part of trajectories that
        start from a random frame instead of the initial state. Channels of the initial state that the solution does
        not have are those of every frame.
      random_splits: with a horizon, the part of trajectories whose steps are of random lengths instead and end at a
        frame only together: steps between frames have few lengths, and any may be asked for. Only the end is compared.
      sign_flips: multiply a random half of the trajectories by -1.
      translations: move every trajectory round the periodic domain by its own random number of points.
      reflection: sign of each channel under x -> -x, applied to a random half of the trajectories; None for none.
    """

    batch_size: int
    times_per_step: int = 0
    random_starts: float = 0.0
    window: int = 0
    horizon: float | None = None
    random_splits: float = 0.0
    sign_flips: bool = False
    translations: bool = False
    reflection: tuple[float, ...] | None = None


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
    sampling: Sampling,
    *,
    shard: Int[Array, ""] | int = 0,
    num_shards: int = 1,
) -> Batch:
    """This shard's part of the batch of one step: random trajectories at random query times, shared by the batch.

    All shards draw the same whole batch and take their own slice, so that the union does not depend on their number.

    Args:
      data: all trajectories.
      key: of the run, the same at every step.
      step: index of the step.
      sampling: what to draw.
      shard: which slice to take.
      num_shards: number of slices.
    """
    order_key, step_key = jax.random.split(key)
    step_key = jax.random.fold_in(step_key, step)
    time_key, sign_key = jax.random.split(step_key)
    start_key, translation_key, reflection_key = jax.random.split(jax.random.fold_in(step_key, 1), 3)
    local = sampling.batch_size // num_shards

    def mine(values: Array) -> Array:
        return jax.lax.dynamic_slice_in_dim(values, shard * local, local)

    whole_index = epoch_indices(order_key, step, data.u0.shape[0], sampling.batch_size)
    index = mine(whole_index)
    if data.times.ndim == 2 and (sampling.window or sampling.random_starts) and sampling.horizon is None:
        raise ValueError("window and random_starts need times that all trajectories share, or a horizon")
    if sampling.window and sampling.horizon is not None:
        starts, strides = _strides(start_key, data, whole_index, sampling)
        batch = _strided_window(data, index, mine(starts), mine(strides), sampling.window)
        if sampling.random_splits:
            split_key = jax.random.fold_in(start_key, 1)
            split, *path = _random_splits(split_key, data, whole_index, sampling)
            batch = _either(mine(split), _split_path(data, index, *map(mine, path)), batch)
    elif sampling.window:
        starts = _window_starts(start_key, data, sampling)
        batch = _window(data, index, mine(starts), sampling.window)
    elif sampling.random_starts:
        batch = _from_random_frame(data, index, start_key, time_key, sampling)
    else:
        batch = _from_initial_state(data, index, time_key, sampling.times_per_step)
    if sampling.sign_flips:
        signs = mine(jax.random.rademacher(sign_key, (sampling.batch_size,), batch.u0.dtype))
        batch = _multiply(batch, signs[:, None])
    if sampling.translations:
        shifts = mine(jax.random.randint(translation_key, (sampling.batch_size,), 0, data.u0.shape[1]))
        batch = _translate(batch, shifts)
    if sampling.reflection is not None:
        flips = mine(jax.random.bernoulli(reflection_key, 0.5, (sampling.batch_size,)))
        batch = _reflect(batch, flips, sampling.reflection)
    if data.weight is not None:
        weight = data.weight[index]
        weight = weight.reshape(local, *[1] * (batch.target.ndim - 2), weight.shape[-1])
        batch = batch._replace(weight=weight if batch.weight is None else weight * batch.weight)
    return batch


def _from_initial_state(data: FieldArrays, index: Array, key: Key, times_per_step: int) -> Batch:
    times = data.times if data.times.ndim == 1 else data.times[index]
    if not times_per_step:
        return Batch(data.u0[index], jnp.asarray(times), data.u[index])
    chosen = jax.random.choice(key, times.shape[-1], (times_per_step,), replace=False)
    # In one step: whole trajectories would be copied first otherwise.
    return Batch(data.u0[index], jnp.asarray(times[..., chosen]), data.u[index[:, None], chosen])


def _from_random_frame(data: FieldArrays, index: Array, start_key: Key, time_key: Key, sampling: Sampling) -> Batch:
    """Frame 0 is the initial state, frame i the solution at ``times[i - 1]``."""
    num_times, wanted = data.times.shape[0], sampling.times_per_step
    choice_key, frame_key = jax.random.split(start_key)
    later = jax.random.bernoulli(choice_key, sampling.random_starts)
    # If every frame is a target, there is no later one to start from.
    last = max(1, num_times - wanted)
    start = jnp.where(later & (wanted < num_times), jax.random.randint(frame_key, (), 1, last + 1), 0)
    u0 = _frame(data, index, jnp.broadcast_to(start, index.shape))
    # Distinct frames after the start: the largest of random scores among those that are allowed.
    scores = jnp.where(jnp.arange(num_times) >= start, jax.random.uniform(time_key, (num_times,)), -1.0)
    _, chosen = jax.lax.top_k(scores, wanted)
    start_time = jnp.where(start == 0, 0.0, data.times[start - 1])
    return Batch(u0, data.times[chosen] - start_time, data.u[index][:, chosen])


def _window_starts(key: Key, data: FieldArrays, sampling: Sampling) -> Int[Array, " batch"]:
    return jax.random.randint(key, (sampling.batch_size,), 0, data.times.shape[0] - sampling.window + 1)


def _window(data: FieldArrays, index: Array, starts: Array, window: int) -> Batch:
    frames = starts[:, None] + jnp.arange(window)
    return Batch(_frame(data, index, starts), data.times[:window], data.u[index[:, None], frames])


def _strides(
    key: Key, data: FieldArrays, index: Int[Array, " batch"], sampling: Sampling
) -> tuple[Int[Array, " batch"], Int[Array, " batch"]]:
    """The frame that each trajectory starts from, and the frames of one step."""
    assert sampling.horizon is not None
    num_times, window = data.times.shape[-1], sampling.window
    first = jnp.broadcast_to(data.times[..., 0], data.u0.shape[:1])[index]
    # A little more than the horizon is let through, so that rounding does not cut a stride that fits exactly.
    longest = jnp.clip(jnp.floor(1.0001 * sampling.horizon / first).astype(jnp.int32), 1, num_times // window)
    stride_key, frame_key, later_key = jax.random.split(key, 3)
    strides = jax.random.randint(stride_key, index.shape, 1, longest + 1)
    frames = jax.random.randint(frame_key, index.shape, 0, num_times - window * strides + 1)
    later = jax.random.bernoulli(later_key, sampling.random_starts, index.shape)
    return jnp.where(later, frames, 0), strides


def _strided_window(data: FieldArrays, index: Array, starts: Array, strides: Array, window: int) -> Batch:
    steps = strides[:, None] * jnp.arange(1, window + 1)
    first = jnp.broadcast_to(data.times[..., 0], data.u0.shape[:1])[index]
    target = data.u[index[:, None], starts[:, None] + steps - 1]
    return Batch(_frame(data, index, starts), steps * first[:, None], target)


def _frame(data: FieldArrays, index: Array, frames: Array) -> Array:
    """Frame 0 is the initial state, frame i the solution at the i-th time, with the channels that do not change."""
    initial = data.u0[index]
    solution = data.u[index, jnp.maximum(frames - 1, 0)]
    later = jnp.concatenate([solution, initial[..., data.u.shape[-1] :]], axis=-1)
    return jnp.where((frames == 0).reshape(-1, *[1] * (later.ndim - 1)), initial, later)


def _random_splits(
    key: Key, data: FieldArrays, index: Int[Array, " batch"], sampling: Sampling
) -> tuple[Array, Int[Array, " batch"], Int[Array, " batch"], Float[Array, "batch window"]]:
    """Which trajectories are split; the frame that each starts from, the one that it ends at, and when its steps end.

    Steps are of random lengths, none of them longer than a horizon.
    """
    assert sampling.horizon is not None
    num_times, window = data.times.shape[-1], sampling.window
    first = jnp.broadcast_to(data.times[..., 0], data.u0.shape[:1])[index]
    split_key, stride_key, frame_key, later_key, cut_key = jax.random.split(key, 5)
    longest = jnp.clip(jnp.floor(window * sampling.horizon / first).astype(jnp.int32), 1, num_times)
    strides = jax.random.randint(stride_key, index.shape, 1, longest + 1)
    frames = jax.random.randint(frame_key, index.shape, 0, num_times - strides + 1)
    starts = jnp.where(jax.random.bernoulli(later_key, sampling.random_starts, index.shape), frames, 0)
    whole = strides * first
    # Equal steps, each a part of which goes to another: between nothing and a horizon, or what is left of one.
    equal = (whole / window)[:, None]
    room = jnp.minimum(equal, jnp.maximum(sampling.horizon - equal, 0.0))
    shares = jax.random.uniform(cut_key, (len(index), window), first.dtype, -1.0, 1.0)
    lengths = equal + room * (shares - jnp.roll(shares, 1, axis=1)) / 2
    split = jax.random.bernoulli(split_key, sampling.random_splits, index.shape)
    return split, starts, starts + strides, jnp.cumsum(lengths, axis=1)


def _split_path(data: FieldArrays, index: Array, starts: Array, ends: Array, times: Array) -> Batch:
    """From one frame to another; of the steps between, which end at no frame, nothing is asked."""
    window = times.shape[1]
    target = jnp.repeat(data.u[index, ends - 1][:, None], window, axis=1)
    last = (jnp.arange(window) == window - 1).astype(target.dtype)
    # Squared, a weight of the end alone counts as much as all would.
    weight = (last * jnp.sqrt(float(window))).reshape(1, window, *[1] * (target.ndim - 2))
    return Batch(_frame(data, index, starts), times, target, jnp.broadcast_to(weight, (len(index), *weight.shape[1:])))


def _either(first: Array, one: Batch, other: Batch) -> Batch:
    """Trajectories of one batch where ``first`` holds, those of another elsewhere."""
    ones = jnp.ones((*other.times.shape, *[1] * (other.target.ndim - 2)), other.target.dtype)
    other = other._replace(weight=ones)
    choose = lambda a, b: jnp.where(first.reshape(-1, *[1] * (a.ndim - 1)), a, b)  # noqa: E731
    return jax.tree.map(choose, one, other)


def _multiply(batch: Batch, factors: Float[Array, "batch channels"]) -> Batch:
    """Every channel of every trajectory times its factor."""
    over_space = lambda f, u: f.reshape(f.shape[0], *[1] * (u.ndim - 2), f.shape[1])  # noqa: E731
    return batch._replace(
        u0=batch.u0 * over_space(factors, batch.u0), target=batch.target * over_space(factors, batch.target)
    )


def _translate(batch: Batch, shifts: Int[Array, " batch"]) -> Batch:
    roll = jax.vmap(lambda u, s, axis: jnp.roll(u, s, axis), in_axes=(0, 0, None))
    return batch._replace(u0=roll(batch.u0, shifts, 0), target=roll(batch.target, shifts, 1))


def reflected(u: Array, axis: int, signs: tuple[float, ...]) -> Array:
    """x -> -x on the periodic grid, where point 0 stays: index j goes to -j."""
    # Channels of the input besides those of the solution are constants, which stay.
    signs_of_all = (*signs, *[1.0] * (u.shape[-1] - len(signs)))
    return jnp.roll(jnp.flip(u, axis), 1, axis) * jnp.asarray(signs_of_all, u.dtype)


def _reflect(batch: Batch, flips: Array, signs: tuple[float, ...]) -> Batch:
    def mirrored(u: Array, axis: int) -> Array:
        return jnp.where(flips.reshape(-1, *[1] * (u.ndim - 1)), reflected(u, axis, signs), u)

    return batch._replace(u0=mirrored(batch.u0, 1), target=mirrored(batch.target, 2))
