"""Batches: a pure function of key and step, fair to all trajectories, and the same on any number of shards."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.data import batching
from ctfno_jax.data.batching import Sampling

NUM_SAMPLES, NUM_TIMES, BATCH = 40, 6, 8
TIMES = np.asarray([1, 2, 4, 7, 11, 16], np.float32)  # no two differences between neighbours are the same
SIGNS = (1.0, 1.0, -1.0)


NUM_CHANNELS = len(SIGNS)
STEPS = jnp.arange(60)


@functools.cache
def _data(num_points: int = 6) -> batching.FieldArrays:
    """Every value is 1 + its own place among (sample, frame, point, channel); frame 0 is the initial state."""
    shape = (NUM_SAMPLES, NUM_TIMES + 1, num_points, NUM_CHANNELS)
    frames = 1 + np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return batching.FieldArrays(jnp.asarray(frames[:, 0]), jnp.asarray(TIMES), jnp.asarray(frames[:, 1:]))


def _places(values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Sample, frame and point of values of the data, whatever their sign."""
    place = (np.abs(values).astype(int) - 1) // NUM_CHANNELS
    num_points = values.shape[-2]
    sample, frame = np.divmod(place // num_points, NUM_TIMES + 1)
    return sample, frame, place % num_points


@functools.partial(jax.jit, static_argnums=(0, 3))
def _draw(sampling: Sampling, data: batching.FieldArrays, shard, num_shards: int = 1) -> batching.Batch:
    key = jax.random.key(0)
    return jax.vmap(lambda s: batching.sample(data, key, s, sampling, shard=shard, num_shards=num_shards))(STEPS)


def _batches(sampling: Sampling, data: batching.FieldArrays | None = None) -> batching.Batch:
    """The batches of 60 steps, stacked along a first axis."""
    return jax.tree.map(np.asarray, _draw(sampling, _data() if data is None else data, 0))


def _sample(step, key_seed=0, **options):
    sampling = Sampling(**{"batch_size": BATCH, **options})
    return batching.sample(_data(), jax.random.key(key_seed), jnp.asarray(step), sampling)


def _assert_repeated(values: np.ndarray, pattern: np.ndarray) -> None:
    """The pattern, repeated along its axes of length one, is the values."""
    np.testing.assert_array_equal(values, np.broadcast_to(pattern, values.shape))


# --- trajectories -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [8, 10, 1])
@pytest.mark.parametrize("epoch", [0, 3])
def test_an_epoch_visits_every_sample_exactly_once(batch_size, epoch):
    per_epoch = NUM_SAMPLES // batch_size
    steps = epoch * per_epoch + jnp.arange(per_epoch)
    draw = jax.vmap(lambda s: batching.epoch_indices(jax.random.key(1), s, NUM_SAMPLES, batch_size))
    np.testing.assert_array_equal(np.sort(draw(steps), axis=None), np.arange(NUM_SAMPLES))


def test_a_last_short_batch_is_skipped_without_repeating_a_sample():
    draw = jax.vmap(lambda s: batching.epoch_indices(jax.random.key(1), s, 11, 4))
    first, second = np.asarray(draw(jnp.arange(4))).reshape(2, 8)
    assert len(np.unique(first)) == len(np.unique(second)) == 8


def test_every_epoch_has_its_own_order():
    first, second = (batching.epoch_indices(jax.random.key(1), jnp.asarray(e), 40, 40) for e in (0, 1))
    assert not np.array_equal(first, second)


def test_a_batch_is_a_function_of_key_and_step():
    options = {"times_per_step": 3, "sign_flips": True}
    first, again = _sample(5, **options), _sample(5, **options)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first.u0, _sample(6, **options).u0)
    assert not np.array_equal(first.u0, _sample(5, key_seed=1, **options).u0)


EVERYTHING = {"sign_flips": True, "translations": True, "reflection": SIGNS}
SAMPLINGS = {
    "all times": Sampling(BATCH, **EVERYTHING),
    "some times": Sampling(BATCH, times_per_step=2, **EVERYTHING),
    "random starts": Sampling(BATCH, times_per_step=2, random_starts=0.7, **EVERYTHING),
    "window": Sampling(BATCH, window=3, **EVERYTHING),
}
EACH_SAMPLING = pytest.mark.parametrize("sampling", list(SAMPLINGS.values()), ids=list(SAMPLINGS))


def test_compiling_does_not_change_a_batch():
    sampling = SAMPLINGS["random starts"]
    eager = batching.sample(_data(), jax.random.key(0), jnp.asarray(7), sampling)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[7], b), _batches(sampling), eager)


@EACH_SAMPLING
def test_the_union_of_the_shards_is_the_whole_batch(sampling):
    whole = _batches(sampling)
    parts = [_draw(sampling, _data(), shard, 4) for shard in range(4)]
    np.testing.assert_array_equal(np.concatenate([part.u0 for part in parts], axis=1), whole.u0)
    np.testing.assert_array_equal(np.concatenate([part.target for part in parts], axis=1), whole.target)
    for part in parts:
        np.testing.assert_array_equal(part.times, whole.times)


# --- query times --------------------------------------------------------------------------------------------------


def test_query_times_are_drawn_without_repetition_and_targets_belong_to_them():
    batch = _batches(Sampling(BATCH, times_per_step=2))
    start_sample, start_frame, start_point = _places(batch.u0)
    sample, frame, point = _places(batch.target)
    np.testing.assert_array_equal(start_frame, 0)
    _assert_repeated(sample, start_sample[:, :, None])
    _assert_repeated(point, start_point[:, :, None])
    _assert_repeated(TIMES[frame - 1], batch.times[:, None, :, None, None])
    assert np.all(batch.times[:, 0] != batch.times[:, 1])
    assert set(batch.times.flat) == set(TIMES)


def test_zero_times_per_step_means_all_in_order():
    batch = _batches(Sampling(BATCH))
    _assert_repeated(batch.times, TIMES)
    assert batch.target.shape == (60, BATCH, NUM_TIMES, 6, NUM_CHANNELS)
    _assert_repeated(_places(batch.target)[1], np.arange(1, NUM_TIMES + 1)[:, None, None])


# --- symmetries ---------------------------------------------------------------------------------------------------


def test_a_sign_flip_acts_on_state_and_solution_alike_and_on_about_half_of_them():
    batch, plain = (_batches(Sampling(BATCH, sign_flips=flips)) for flips in (True, False))
    sign = (batch.u0 / plain.u0)[:, :, :1, :1]
    assert set(sign.flat) == {-1.0, 1.0}
    np.testing.assert_array_equal(batch.u0, sign * plain.u0)
    np.testing.assert_array_equal(batch.target, sign[:, :, None] * plain.target)
    # 480 fair coins: a deviation of 0.023.
    assert abs(np.mean(sign < 0) - 0.5) < 0.08


EVEN_AND_ODD = pytest.mark.parametrize("num_points", [6, 7])


@EVEN_AND_ODD
def test_every_trajectory_is_moved_as_a_whole_by_its_own_shift(num_points):
    data = _data(num_points)
    moved, plain = (_batches(Sampling(BATCH, translations=t), data) for t in (True, False))
    # The point that has come to the origin tells the shift.
    shifts = -_places(moved.u0)[2][:, :, 0, 0] % num_points
    for step, i in np.ndindex(10, BATCH):
        shift = shifts[step, i]
        np.testing.assert_array_equal(moved.u0[step, i], np.roll(plain.u0[step, i], shift, axis=0))
        np.testing.assert_array_equal(moved.target[step, i], np.roll(plain.target[step, i], shift, axis=1))
    np.testing.assert_array_equal(np.sort(moved.u0, axis=2), np.sort(plain.u0, axis=2))
    np.testing.assert_array_equal(np.sort(moved.target, axis=3), np.sort(plain.target, axis=3))
    assert set(shifts.flat) == set(range(num_points))
    assert all(len(set(of_step)) > 1 for of_step in shifts)


@EVEN_AND_ODD
def test_a_reflection_sends_every_point_to_its_negative_with_the_sign_of_its_channel(num_points):
    data = _data(num_points)
    batch, plain = (_batches(Sampling(BATCH, reflection=r), data) for r in (SIGNS, None))
    flipped = (_places(batch.u0)[2][:, :, 1, 0] != 1)[..., None, None]
    mirror = -np.arange(num_points) % num_points
    np.testing.assert_array_equal(batch.u0, np.where(flipped, plain.u0[:, :, mirror] * SIGNS, plain.u0))
    mirrored = plain.target[:, :, :, mirror] * SIGNS
    np.testing.assert_array_equal(batch.target, np.where(flipped[:, :, None], mirrored, plain.target))
    # 480 fair coins: a deviation of 0.023.
    assert abs(np.mean(flipped) - 0.5) < 0.08


@EVEN_AND_ODD
def test_an_even_field_with_sign_one_and_an_odd_field_with_sign_minus_one_stay_the_same(num_points):
    x = 2 * np.pi * np.arange(num_points) / num_points
    field = np.stack([np.cos(x), 2 + np.cos(2 * x), np.sin(x)], axis=-1).astype(np.float32)
    u0 = np.arange(1, NUM_SAMPLES + 1, dtype=np.float32)[:, None, None] * field
    data = batching.FieldArrays(*map(jnp.asarray, (u0, TIMES, u0[:, None] / TIMES[:, None, None])))
    batch, plain = (_batches(Sampling(BATCH, reflection=r), data) for r in (SIGNS, None))
    np.testing.assert_allclose(batch.u0, plain.u0, rtol=0, atol=1e-4)
    np.testing.assert_allclose(batch.target, plain.target, rtol=0, atol=1e-4)


def test_a_symmetry_changes_neither_the_trajectories_nor_the_times_that_are_drawn():
    plain, batch = _batches(Sampling(BATCH, times_per_step=2)), _batches(SAMPLINGS["some times"])
    np.testing.assert_array_equal(batch.times, plain.times)
    for drawn, expected in ((batch.u0, plain.u0), (batch.target, plain.target)):
        for axis in (0, 1):
            np.testing.assert_array_equal(_places(drawn)[axis], _places(expected)[axis])


# --- later frames as initial states -------------------------------------------------------------------------------


def _starts(batch: batching.Batch) -> np.ndarray:
    """The frame that each trajectory starts from, after a check that it is one frame of one sample."""
    sample, frame, point = _places(batch.u0)
    _assert_repeated(sample, sample[:, :, :1])
    _assert_repeated(frame, frame[:, :, :1])
    _assert_repeated(np.sort(point, axis=2), np.arange(6)[:, None])
    # The solutions are of the same sample and in the same order of points.
    _assert_repeated(_places(batch.target)[0], sample[:, :, None])
    _assert_repeated(_places(batch.target)[2], point[:, :, None])
    return frame[:, :, 0, 0]


@pytest.mark.parametrize("times_per_step", [2, NUM_TIMES - 1])
def test_with_certainty_every_batch_starts_from_a_later_frame_and_looks_ahead(times_per_step):
    batch = _batches(Sampling(BATCH, times_per_step=times_per_step, random_starts=1.0))
    starts = _starts(batch)[:, :1]
    _assert_repeated(_starts(batch), starts)
    # All frames that leave enough others after them.
    assert set(starts.flat) == set(range(1, NUM_TIMES - times_per_step + 1))
    frame = _places(batch.target)[1][:, 0, :, 0, 0]
    assert np.all(frame > starts)
    assert all(len(np.unique(of_step)) == times_per_step for of_step in frame)
    np.testing.assert_array_equal(batch.times, TIMES[frame - 1] - TIMES[starts - 1])


def test_the_probability_of_a_later_start_is_obeyed():
    batch = _batches(SAMPLINGS["random starts"])
    later = _starts(batch)[:, 0] > 0
    # 60 coins: a deviation of 0.06.
    assert abs(np.mean(later) - SAMPLINGS["random starts"].random_starts) < 0.15
    # A step that starts from the initial state has the query times of the data, each of them sooner or later.
    assert set(batch.times[~later].flat) == set(TIMES)


def test_probability_zero_is_plain_sampling():
    zero = _batches(Sampling(BATCH, times_per_step=2, random_starts=0.0))
    np.testing.assert_array_equal(_starts(zero), 0)
    for a, b in zip(zero, _batches(Sampling(BATCH, times_per_step=2)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("sampling", [SAMPLINGS["random starts"], Sampling(BATCH, times_per_step=2, random_starts=1.0)])
def test_solutions_of_an_autonomous_equation_stay_solutions(sampling):
    u0 = np.random.default_rng(0).normal(size=(NUM_SAMPLES, 6, NUM_CHANNELS)).astype(np.float32)
    times = TIMES / 8
    data = batching.FieldArrays(*map(jnp.asarray, (u0, times, u0[:, None] * np.exp(-times)[:, None, None])))
    batch = _batches(sampling, data)
    expected = batch.u0[:, :, None] * np.exp(-batch.times)[:, None, :, None, None]
    np.testing.assert_allclose(batch.target, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("sampling", [SAMPLINGS["window"], Sampling(BATCH, window=NUM_TIMES)])
def test_a_window_is_consecutive_frames_after_a_start_of_each_trajectory(sampling):
    batch, window = _batches(sampling), sampling.window
    starts = _starts(batch)
    assert set(starts.flat) == set(range(NUM_TIMES - window + 1))
    frames = starts[:, :, None, None, None] + 1 + np.arange(window)[:, None, None]
    _assert_repeated(_places(batch.target)[1], frames)
    _assert_repeated(batch.times, TIMES[:window])
    assert window == NUM_TIMES or all(len(set(of_step)) > 1 for of_step in starts)


def test_a_window_of_all_times_is_the_whole_trajectory():
    for a, b in zip(_batches(Sampling(BATCH, window=NUM_TIMES)), _batches(Sampling(BATCH)), strict=True):
        np.testing.assert_array_equal(a, b)


# --- times and weights of their own ---------------------------------------------------------------------------------


def test_trajectories_with_times_of_their_own_keep_them_and_their_weights():
    data = _data()
    own_times = jnp.arange(NUM_SAMPLES)[:, None] * 100.0 + data.times
    weight = jnp.arange(NUM_SAMPLES * NUM_CHANNELS, dtype=jnp.float32).reshape(NUM_SAMPLES, NUM_CHANNELS)
    own = data._replace(times=own_times, weight=weight)
    sampling = Sampling(BATCH, times_per_step=2)
    shared, batch = (batching.sample(d, jax.random.key(0), jnp.asarray(3), sampling) for d in (data, own))
    np.testing.assert_array_equal(batch.u0, shared.u0)
    np.testing.assert_array_equal(batch.target, shared.target)
    samples = _places(np.asarray(batch.u0))[0][:, 0, 0]
    np.testing.assert_array_equal(batch.times, samples[:, None] * 100.0 + np.asarray(shared.times))
    np.testing.assert_array_equal(batch.weight[:, 0, 0], weight[samples])
    assert batch.weight.ndim == batch.target.ndim


@pytest.mark.parametrize("options", [{"window": 2}, {"random_starts": 0.5, "times_per_step": 2}])
def test_times_of_their_own_allow_no_other_starts(options):
    data = _data()._replace(times=jnp.ones((NUM_SAMPLES, NUM_TIMES)))
    with pytest.raises(ValueError, match="need times that all trajectories share, or a horizon"):
        batching.sample(data, jax.random.key(0), jnp.asarray(0), Sampling(BATCH, **options))


def test_a_reflection_leaves_further_channels_of_the_input_alone():
    data = _data()
    constant = jnp.broadcast_to(jnp.arange(NUM_SAMPLES, dtype=jnp.float32)[:, None, None], (NUM_SAMPLES, 6, 1))
    more = data._replace(u0=jnp.concatenate([data.u0, constant], axis=-1))
    sampling = Sampling(NUM_SAMPLES, reflection=SIGNS)
    plain, batch = (batching.sample(d, jax.random.key(0), jnp.asarray(0), sampling) for d in (data, more))
    np.testing.assert_array_equal(batch.u0[..., :3], plain.u0)
    samples = _places(np.asarray(batch.u0[..., :3]))[0][:, 0, 0]
    np.testing.assert_array_equal(batch.u0[..., 3], np.broadcast_to(samples[:, None], (NUM_SAMPLES, 6)))


# --- strides within a horizon ---------------------------------------------------------------------------------------


def _with_even_times(step: np.ndarray | float) -> batching.FieldArrays:
    """Times at multiples of one step, of each trajectory if there is one for each; and a channel that never changes."""
    data = _data()
    constant = jnp.broadcast_to(jnp.arange(NUM_SAMPLES, dtype=jnp.float32)[:, None, None], (NUM_SAMPLES, 6, 1))
    times = np.asarray(step)[..., None] * np.arange(1, NUM_TIMES + 1)
    return data._replace(u0=jnp.concatenate([data.u0, constant], axis=-1), times=jnp.asarray(times, jnp.float32))


def _strides_and_starts(batch: batching.Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    samples, starts, _ = (place[..., 0, 0] for place in _places(batch.u0[..., :NUM_CHANNELS]))
    return samples, starts, _places(batch.target)[1][..., 0, 0] - starts[..., None]


@pytest.mark.parametrize("window", [1, 2])
def test_strides_stay_within_the_horizon(window):
    """Frames at multiples of the stride after the start, and times that say how far."""
    batch = _batches(Sampling(BATCH, window=window, horizon=0.3, random_starts=0.7), _with_even_times(0.1))
    _, starts, frames = _strides_and_starts(batch)
    strides = frames[..., 0]
    np.testing.assert_array_equal(frames, strides[..., None] * np.arange(1, window + 1))
    assert set(strides.flat) == {1, 2, 3}
    assert starts.max() == NUM_TIMES - window
    assert (starts + window * strides).max() <= NUM_TIMES
    np.testing.assert_allclose(batch.times, 0.1 * frames, rtol=1e-6)


def test_each_trajectory_has_strides_for_its_own_times():
    """One that is so fast that a frame is more than the horizon goes from frame to frame."""
    step = np.where(np.arange(NUM_SAMPLES) % 2, 0.1, 0.4)
    batch = _batches(Sampling(BATCH, window=1, horizon=0.3, random_starts=0.5), _with_even_times(step))
    samples, _, frames = _strides_and_starts(batch)
    assert set(frames[samples % 2 == 1].flat) == {1, 2, 3}
    assert set(frames[samples % 2 == 0].flat) == {1}
    np.testing.assert_allclose(batch.times, step[samples][..., None] * frames, rtol=1e-6)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(BATCH, window=1, horizon=0.3, random_starts=1.0),
        Sampling(BATCH, window=2),
        Sampling(BATCH, times_per_step=2, random_starts=1.0),
    ],
    ids=["strides", "windows", "later starts"],
)
def test_channels_that_do_not_change_go_with_every_start(sampling):
    batch = _batches(sampling, _with_even_times(0.1))
    assert batch.u0.shape[-1] == NUM_CHANNELS + 1
    samples, starts, _ = (place[..., 0, 0] for place in _places(batch.u0[..., :NUM_CHANNELS]))
    assert starts.max() > 0
    _assert_repeated(batch.u0[..., -1], samples[..., None])


@pytest.mark.parametrize("probability", [0.0, 0.25, 1.0])
def test_the_part_of_later_starts_is_obeyed(probability):
    batch = _batches(Sampling(NUM_SAMPLES, window=1, horizon=0.1, random_starts=probability), _with_even_times(0.1))
    _, starts, _ = _strides_and_starts(batch)
    # A start that is drawn at random may be the first frame, too.
    assert np.mean(starts > 0) == pytest.approx(probability * (NUM_TIMES - 1) / NUM_TIMES, abs=0.03)


def test_strides_do_not_depend_on_the_number_of_shards():
    data, sampling = _with_even_times(0.1), Sampling(BATCH, window=2, horizon=0.3, random_starts=0.5)
    whole = _batches(sampling, data)
    parts = [jax.tree.map(np.asarray, _draw(sampling, data, shard, 2)) for shard in range(2)]
    for name in ("u0", "times", "target"):
        joined = np.concatenate([getattr(part, name) for part in parts], axis=1)
        np.testing.assert_array_equal(joined, getattr(whole, name))


# --- steps of random lengths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [2, 3])
def test_split_steps_end_together_at_a_frame(window):
    """None is longer than the horizon, they are of many lengths, and only the last of them is compared."""
    sampling = Sampling(BATCH, window=window, horizon=0.25, random_starts=0.7, random_splits=1.0)
    batch = _batches(sampling, _with_even_times(0.1))
    _, _, frames = _strides_and_starts(batch)
    np.testing.assert_allclose(batch.times[..., -1], 0.1 * frames[..., -1], rtol=1e-5)
    lengths = np.diff(batch.times, axis=-1, prepend=0.0)
    assert lengths.min() >= -1e-6
    assert lengths.max() <= 0.25 + 1e-6
    assert len(np.unique(np.round(lengths, 4))) > 20
    counted = np.broadcast_to(np.squeeze(batch.weight, (-1, -2)), lengths.shape)
    np.testing.assert_allclose(counted, np.broadcast_to(np.eye(window)[-1] * np.sqrt(window), lengths.shape), rtol=1e-6)


def test_only_a_part_is_split_and_the_rest_goes_from_frame_to_frame():
    sampling = Sampling(BATCH, window=2, horizon=0.25, random_starts=0.5, random_splits=0.3)
    batch = _batches(sampling, _with_even_times(0.1))
    whole = np.squeeze(batch.weight, (-1, -2))[..., 0] == 1
    assert np.mean(whole) == pytest.approx(0.7, abs=0.1)
    _, _, frames = _strides_and_starts(batch)
    np.testing.assert_allclose(batch.times[whole], 0.1 * frames[whole], rtol=1e-5)


def test_weights_of_trajectories_and_of_splits_multiply():
    data = _with_even_times(0.1)
    weight = jnp.asarray(np.random.default_rng(0).uniform(1, 2, (NUM_SAMPLES, NUM_CHANNELS)), jnp.float32)
    sampling = Sampling(BATCH, window=2, horizon=0.25, random_splits=0.5)
    plain, weighted = (
        batching.sample(d, jax.random.key(0), jnp.asarray(0), sampling) for d in (data, data._replace(weight=weight))
    )
    samples = _places(np.asarray(plain.u0[..., :NUM_CHANNELS]))[0][:, 0, 0]
    np.testing.assert_allclose(weighted.weight, plain.weight * weight[samples][:, None, None], rtol=1e-6)
