"""Random batches as a pure function of (key, step).

A run resumes exactly from its key and its step. Symmetries of the equation augment the data: translations, reflections,
changes of sign, and, for autonomous equations, any frame of a trajectory as the initial state of the later ones.

Frame 0 of a trajectory is its initial state, frame i the solution at the i-th time.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ctfno_jax.ops import permutation
from ctfno_jax.types import Key


class FieldArrays(NamedTuple):
    """Encoded trajectories on the device."""

    u0: Float[Array, "samples *space channels"]
    times: Float[Array, " time"] | Float[Array, "samples time"]
    u: Float[Array, "samples time *space out_channels"]


class Batch(NamedTuple):
    """Input of one training step: initial states, query times, and solutions at these times."""

    u0: Float[Array, "batch *space channels"]
    times: Float[Array, " time"] | Float[Array, "batch time"]
    target: Float[Array, "batch time *space out_channels"]


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Settings of a batch.

    Attributes:
      batch_size: trajectories over all shards, divisible by their number.
      times_per_step: number of random query times, without repetition; 0 for all times.
      own_times: draw query times for each trajectory, one from each of ``times_per_step`` strata of the time index of
        equal size (up to rounding), instead of sharing them within the batch.
      window: if positive, all query times lie within this number of frames after the start. Every trajectory has its
        own start. With ``times_per_step``, every trajectory also has its own stratified query times; without it, all
        frames of the window are queries. The times of the data must be shared and equispaced (:func:`check_window`).
      random_starts: probability of starting from a random frame instead of the initial state. With a window, a draw per
        trajectory, uniform over the frames that the window fits behind. Without one, one draw per batch among the
        frames that ``times_per_step`` later ones follow.
      sign_flips: multiply a random half of the trajectories by -1.
      translations: shift every trajectory on the periodic grid by its own random number of points.
      reflection: sign of each channel under x -> -x, applied to a random half of the trajectories; None for none.
    """

    batch_size: int
    times_per_step: int = 0
    own_times: bool = False
    window: int = 0
    random_starts: float = 0.0
    sign_flips: bool = False
    translations: bool = False
    reflection: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.times_per_step < 0 or self.window < 0 or not 0 <= self.random_starts <= 1:
            raise ValueError(
                "batch_size must be at least 1, times_per_step and window not negative and random_starts in [0, 1], "
                f"got {self.batch_size}, {self.times_per_step}, {self.window} and {self.random_starts}"
            )
        if self.own_times and not self.times_per_step:
            raise ValueError("own_times draws times_per_step times for each trajectory; set times_per_step")
        if self.random_starts and not self.window and (self.own_times or not self.times_per_step):
            raise ValueError("random_starts without a window needs times_per_step, and own_times needs a window then")


def check_window(times: np.ndarray) -> None:
    """Raises ValueError if a window needs other times: shared by all trajectories, equispaced from the first one on."""
    times = np.asarray(times)
    if times.ndim != 1:
        raise ValueError(f"a window needs times that all trajectories share, of shape (time,), got shape {times.shape}")
    even = times[0] * np.arange(1, len(times) + 1)
    if times[0] <= 0 or not np.allclose(times, even, rtol=1e-4, atol=0.0):
        raise ValueError("a window needs the times dt, 2 dt, 3 dt, ...; these are not multiples of the first in order")


def epoch_indices(key: Key, step: Int[Array, ""], num_samples: int, batch_size: int) -> Int[Array, " batch"]:
    """Indices of one batch. Every epoch is a new permutation, cut into batches; an incomplete last one is left out."""
    batches_per_epoch = num_samples // batch_size
    epoch, position = step // batches_per_epoch, step % batches_per_epoch
    index = position * batch_size + jnp.arange(batch_size)
    return permutation.permute(jax.random.fold_in(key, epoch), index, num_samples)


def sample(
    data: FieldArrays,
    key: Key,
    step: Int[Array, ""],
    sampling: Sampling,
    *,
    shard: Int[Array, ""] | int = 0,
    num_shards: int = 1,
) -> Batch:
    """One shard's part of the batch of one step.

    All shards draw the same whole batch and take their own slice, so the union does not depend on their number.

    Args:
      data: all trajectories.
      key: key of the run, the same at every step.
      step: index of the step.
      sampling: settings.
      shard: index of the slice.
      num_shards: number of slices.
    """
    _check(data, sampling, num_shards)
    order_key, step_key = jax.random.split(key)
    step_key = jax.random.fold_in(step_key, step)
    time_key, sign_key = jax.random.split(step_key)
    start_key, translation_key, reflection_key = jax.random.split(jax.random.fold_in(step_key, 1), 3)
    local = sampling.batch_size // num_shards

    def mine(values: Array) -> Array:
        return jax.lax.dynamic_slice_in_dim(values, shard * local, local)

    def own_frames(num_times: int) -> Int[Array, "batch time"]:
        return mine(strata(time_key, sampling.batch_size, sampling.times_per_step, num_times))

    index = mine(epoch_indices(order_key, step, data.u0.shape[0], sampling.batch_size))
    if sampling.window:
        starts = mine(_window_starts(start_key, data, sampling))
        chosen = own_frames(sampling.window) if sampling.times_per_step else None
        batch = _window(data, index, starts, sampling.window, chosen)
    elif sampling.random_starts:
        batch = _from_random_frame(data, index, start_key, time_key, sampling)
    elif sampling.own_times:
        batch = _at_own_times(data, index, own_frames(data.times.shape[-1]))
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
    return batch


def _check(data: FieldArrays, sampling: Sampling, num_shards: int) -> None:
    num_samples, num_times = data.u0.shape[0], data.times.shape[-1]
    if sampling.batch_size % num_shards:
        raise ValueError(
            f"batch_size={sampling.batch_size} cannot be divided among {num_shards} devices; "
            f"use a multiple of {num_shards}, or fewer devices"
        )
    if sampling.batch_size > num_samples:
        raise ValueError(f"batch_size={sampling.batch_size} exceeds the {num_samples} training trajectories; lower it")
    if (sampling.window or sampling.random_starts) and data.times.ndim == 2:
        raise ValueError("window and random_starts need times that all trajectories share")
    if sampling.window > num_times:
        raise ValueError(f"window={sampling.window} exceeds the {num_times} times of the data; lower it")
    if sampling.times_per_step > (sampling.window or num_times):
        raise ValueError(
            f"times_per_step={sampling.times_per_step} exceeds the {sampling.window or num_times} times to draw from; "
            "lower it"
        )


def _from_initial_state(data: FieldArrays, index: Array, key: Key, times_per_step: int) -> Batch:
    times = data.times if data.times.ndim == 1 else data.times[index]
    if not times_per_step:
        return Batch(data.u0[index], jnp.asarray(times), data.u[index])
    chosen = jax.random.choice(key, times.shape[-1], (times_per_step,), replace=False)
    # One gather: indexing trajectories first would copy them with all their times.
    return Batch(data.u0[index], jnp.asarray(times[..., chosen]), data.u[index[:, None], chosen])


def _from_random_frame(data: FieldArrays, index: Array, start_key: Key, time_key: Key, sampling: Sampling) -> Batch:
    """Start and query times shared by the batch."""
    num_times, wanted = data.times.shape[0], sampling.times_per_step
    choice_key, frame_key = jax.random.split(start_key)
    later = jax.random.bernoulli(choice_key, sampling.random_starts)
    # If every frame is a target, no later one can be the start.
    last = max(1, num_times - wanted)
    start = jnp.where(later & (wanted < num_times), jax.random.randint(frame_key, (), 1, last + 1), 0)
    u0 = _frame(data, index, jnp.broadcast_to(start, index.shape))
    # Distinct frames after the start: those with the largest random scores.
    scores = jnp.where(jnp.arange(num_times) >= start, jax.random.uniform(time_key, (num_times,)), -1.0)
    _, chosen = jax.lax.top_k(scores, wanted)
    start_time = jnp.where(start == 0, 0.0, data.times[start - 1])
    return Batch(u0, data.times[chosen] - start_time, data.u[index[:, None], chosen])


def strata(key: Key, batch_size: int, count: int, num_times: int) -> Int[Array, "batch count"]:
    """Increasing indices below ``num_times`` for each trajectory, one uniform draw from each of ``count`` strata."""
    edges = np.arange(count + 1) * num_times // count
    return jax.random.randint(key, (batch_size, count), jnp.asarray(edges[:-1]), jnp.asarray(edges[1:]))


def _at_own_times(data: FieldArrays, index: Array, chosen: Int[Array, "batch time"]) -> Batch:
    times = data.times[chosen] if data.times.ndim == 1 else data.times[index[:, None], chosen]
    return Batch(data.u0[index], times, data.u[index[:, None], chosen])


def _window_starts(key: Key, data: FieldArrays, sampling: Sampling) -> Int[Array, " batch"]:
    shape = (sampling.batch_size,)
    frames = jax.random.randint(key, shape, 0, data.times.shape[0] - sampling.window + 1)
    if sampling.random_starts == 1:
        return frames
    return jnp.where(jax.random.bernoulli(jax.random.fold_in(key, 1), sampling.random_starts, shape), frames, 0)


def _window(
    data: FieldArrays, index: Array, starts: Array, window: int, chosen: Int[Array, "batch time"] | None
) -> Batch:
    """The frames after each start: those at ``chosen``, or all in order."""
    times = data.times[:window] if chosen is None else data.times[chosen]
    frames = starts[:, None] + (jnp.arange(window) if chosen is None else chosen)
    return Batch(_frame(data, index, starts), times, data.u[index[:, None], frames])


def _frame(data: FieldArrays, index: Array, frames: Array) -> Array:
    """One frame of each trajectory; channels of u0 that the solution does not have are constants in time."""
    initial = data.u0[index]
    solution = data.u[index, jnp.maximum(frames - 1, 0)]
    later = jnp.concatenate([solution, initial[..., data.u.shape[-1] :]], axis=-1)
    return jnp.where((frames == 0).reshape(-1, *[1] * (later.ndim - 1)), initial, later)


def _multiply(batch: Batch, factors: Float[Array, "batch channels"]) -> Batch:
    """Multiplies each channel of each trajectory by its factor."""
    over_space = lambda f, u: f.reshape(f.shape[0], *[1] * (u.ndim - 2), f.shape[1])  # noqa: E731
    return batch._replace(
        u0=batch.u0 * over_space(factors, batch.u0), target=batch.target * over_space(factors, batch.target)
    )


def _translate(batch: Batch, shifts: Int[Array, " batch"]) -> Batch:
    roll = jax.vmap(lambda u, s, axis: jnp.roll(u, s, axis), in_axes=(0, 0, None))
    return batch._replace(u0=roll(batch.u0, shifts, 0), target=roll(batch.target, shifts, 1))


def reflected(u: Array, axis: int, signs: tuple[float, ...]) -> Array:
    """The field at -x on the periodic grid: index j becomes -j, and point 0 stays."""
    # Channels of u0 that the solution does not have are constants, which keep their sign.
    signs_of_all = (*signs, *[1.0] * (u.shape[-1] - len(signs)))
    return jnp.roll(jnp.flip(u, axis), 1, axis) * jnp.asarray(signs_of_all, u.dtype)


def _reflect(batch: Batch, flips: Array, signs: tuple[float, ...]) -> Batch:
    def mirrored(u: Array, axis: int) -> Array:
        return jnp.where(flips.reshape(-1, *[1] * (u.ndim - 1)), reflected(u, axis, signs), u)

    return batch._replace(u0=mirrored(batch.u0, 1), target=mirrored(batch.target, 2))
