"""Batches: a pure function of key and step, fair to all trajectories, and the same on any number of shards."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.data import batching
from ctfno_jax.data.batching import Sampling

NUM_SAMPLES, NUM_TIMES, NUM_POINTS, BATCH, NUM_STEPS = 40, 6, 7, 8, 60
TIMES = np.asarray([1, 2, 4, 7, 11, 16], np.float32)  # no two differences between neighbours are the same
EVEN_TIMES = np.arange(1, NUM_TIMES + 1, dtype=np.float32) / 4
SIGNS = (1.0, 1.0, -1.0)
NUM_CHANNELS = len(SIGNS)


@functools.cache
def _data(times: str = "uneven") -> batching.FieldArrays:
    """Every value is 1 + its place among (sample, frame, point, channel); a last channel of u0 numbers the samples."""
    shape = (NUM_SAMPLES, NUM_TIMES + 1, NUM_POINTS, NUM_CHANNELS)
    frames = 1 + np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    number = np.broadcast_to(np.arange(NUM_SAMPLES, dtype=np.float32)[:, None, None], (NUM_SAMPLES, NUM_POINTS, 1))
    u0 = np.concatenate([frames[:, 0], number], axis=-1)
    shared = {"uneven": TIMES, "even": EVEN_TIMES, "own": 100.0 * np.arange(NUM_SAMPLES)[:, None] + TIMES}[times]
    return batching.FieldArrays(*(jnp.asarray(array, jnp.float32) for array in (u0, shared, frames[:, 1:])))


def _places(values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Sample, frame and point of values of the data, whatever their sign."""
    place = (np.abs(values[..., :NUM_CHANNELS]).astype(int) - 1) // NUM_CHANNELS
    sample, frame = np.divmod(place // NUM_POINTS, NUM_TIMES + 1)
    return sample, frame, place % NUM_POINTS


def _assert_repeated(values: np.ndarray, pattern: np.ndarray) -> None:
    """The pattern, repeated along its axes of length one, is the values."""
    np.testing.assert_array_equal(values, np.broadcast_to(pattern, values.shape))


EVERYTHING = {"sign_flips": True, "translations": True, "reflection": SIGNS}
# Name, sampling, and the times of the data.
SAMPLINGS = {
    "some times": (Sampling(BATCH, times_per_step=2, **EVERYTHING), "own"),
    "random starts": (Sampling(BATCH, times_per_step=2, random_starts=0.7), "uneven"),
    "own times": (Sampling(BATCH, times_per_step=4, own_times=True), "own"),
    "window": (Sampling(BATCH, window=3, random_starts=1.0), "even"),
    "window, own times": (Sampling(BATCH, window=4, times_per_step=2, random_starts=0.5), "even"),
}
MORE = {
    "plain": (Sampling(BATCH), "uneven"),
    "plain, even": (Sampling(BATCH), "even"),
    "two times": (Sampling(BATCH, times_per_step=2), "uneven"),
    "two times, own": (Sampling(BATCH, times_per_step=2), "own"),
    "three strata": (Sampling(BATCH, times_per_step=3, own_times=True), "uneven"),
    "sign flips": (Sampling(BATCH, sign_flips=True), "uneven"),
    "translations": (Sampling(BATCH, translations=True), "uneven"),
    "reflection": (Sampling(BATCH, reflection=SIGNS), "uneven"),
    "later starts": (Sampling(BATCH, times_per_step=2, random_starts=1.0), "uneven"),
    "second start": (Sampling(BATCH, times_per_step=NUM_TIMES - 1, random_starts=1.0), "uneven"),
    "whole window": (Sampling(BATCH, window=NUM_TIMES, random_starts=1.0), "even"),
    "whole window, first start": (Sampling(BATCH, window=NUM_TIMES), "even"),
}
EACH_SAMPLING = pytest.mark.parametrize("name", list(SAMPLINGS))


@functools.partial(jax.jit, static_argnums=(3, 4))
def _draw(data: dict[str, batching.FieldArrays], key, shard, num_shards: int, more: bool) -> dict[str, batching.Batch]:
    """All samplings in one program: they share their random draws, and compiling these takes most of the time."""

    def draw(step):
        return {
            name: batching.sample(data[times], key, step, sampling, shard=shard, num_shards=num_shards)
            for name, (sampling, times) in (SAMPLINGS | MORE if more else SAMPLINGS).items()
        }

    return jax.vmap(draw)(jnp.arange(NUM_STEPS))


@functools.cache
def _all_data() -> dict[str, batching.FieldArrays]:
    return {times: _data(times) for times in ("uneven", "even", "own")}


@functools.cache
def _all_batches(key: int = 0, shard: int = 0, num_shards: int = 1) -> dict[str, batching.Batch]:
    batches = _draw(_all_data(), jax.random.key(key), shard, num_shards, num_shards == 1)
    return jax.tree.map(np.asarray, batches)


def _batches(name: str, **options: int) -> batching.Batch:
    """The batches of 60 steps, stacked along a first axis."""
    return _all_batches(**options)[name]


# --- trajectories -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [8, 1])
def test_an_epoch_visits_every_sample_exactly_once_in_an_order_of_its_own(batch_size):
    per_epoch = NUM_SAMPLES // batch_size
    draw = jax.vmap(lambda s: batching.epoch_indices(jax.random.key(1), s, NUM_SAMPLES, batch_size))
    epochs = np.asarray(draw(jnp.arange(3 * per_epoch))).reshape(3, NUM_SAMPLES)
    _assert_repeated(np.sort(epochs, axis=1), np.arange(NUM_SAMPLES))
    assert not np.array_equal(epochs[0], epochs[1])
    assert not np.array_equal(epochs[1], epochs[2])


def test_an_incomplete_last_batch_is_left_out_without_repeating_a_sample():
    draw = jax.vmap(lambda s: batching.epoch_indices(jax.random.key(1), s, 11, 4))
    first, second = np.asarray(draw(jnp.arange(4))).reshape(2, 8)
    assert len(np.unique(first)) == len(np.unique(second)) == 8


@EACH_SAMPLING
def test_a_batch_is_a_function_of_key_and_step_and_the_union_of_its_shards(name):
    whole = _batches(name)
    assert not np.array_equal(_batches(name, key=1).u0, whole.u0)
    assert not np.array_equal(whole.u0[7], whole.u0[8])
    parts = [_batches(name, shard=shard, num_shards=2) for shard in range(2)]
    for field in ("u0", "target", *(["times"] if whole.times.ndim == 3 else [])):
        joined = np.concatenate([getattr(part, field) for part in parts], axis=1)
        np.testing.assert_array_equal(joined, getattr(whole, field))
    assert whole.times.ndim == 3 or all(np.array_equal(part.times, whole.times) for part in parts)


@EACH_SAMPLING
def test_constant_channels_go_with_every_start_and_targets_with_their_trajectory(name):
    batch = _batches(name)
    sample, _, point = _places(batch.u0)
    number = np.abs(batch.u0[..., -1:])
    _assert_repeated(sample, number.astype(int))
    _assert_repeated(_places(batch.target)[0], sample[:, :, None])
    _assert_repeated(_places(batch.target)[2], point[:, :, None])


# --- query times --------------------------------------------------------------------------------------------------


def test_query_times_are_drawn_without_repetition_and_targets_belong_to_them():
    batch = _batches("two times")
    np.testing.assert_array_equal(_places(batch.u0)[1], 0)
    _assert_repeated(TIMES[_places(batch.target)[1] - 1], batch.times[:, None, :, None, None])
    assert np.all(batch.times[:, 0] != batch.times[:, 1])
    assert set(batch.times.flat) == set(TIMES)


def test_zero_times_per_step_means_all_in_order():
    batch = _batches("plain")
    _assert_repeated(batch.times, TIMES)
    _assert_repeated(_places(batch.target)[1], np.arange(1, NUM_TIMES + 1)[:, None, None])


def test_trajectories_with_times_of_their_own_keep_them():
    """The same draws as with shared times."""
    shared, own = _batches("two times"), _batches("two times, own")
    np.testing.assert_array_equal(own.target, shared.target)
    sample = _places(own.u0)[0][:, :, 0, 0]
    np.testing.assert_array_equal(own.times, 100.0 * sample[..., None] + shared.times[:, None])


@pytest.mark.parametrize("name", ["own times", "three strata"])
def test_own_times_are_one_from_each_stratum_of_the_time_index(name):
    batch, (sampling, times) = _batches(name), (SAMPLINGS | MORE)[name]
    per_step = sampling.times_per_step
    sample = _places(batch.u0)[0][:, :, 0, 0]
    index = _places(batch.target)[1][..., 0, 0] - 1
    np.testing.assert_array_equal(batch.times, TIMES[index] + (100.0 * sample[..., None] if times == "own" else 0.0))
    edges = np.arange(per_step + 1) * NUM_TIMES // per_step
    for stratum in range(per_step):
        drawn, counts = np.unique(index[..., stratum], return_counts=True)
        np.testing.assert_array_equal(drawn, np.arange(edges[stratum], edges[stratum + 1]))
        # 480 draws from at most two: a standard deviation of 0.023.
        np.testing.assert_allclose(counts / index[..., stratum].size, 1 / len(drawn), atol=0.08)
    # Trajectories of one batch differ.
    assert np.mean(index != index[:, :1]) > 0.1


# --- symmetries ---------------------------------------------------------------------------------------------------


def test_a_sign_flip_acts_on_state_and_solution_and_on_about_half_of_the_trajectories():
    batch, plain = _batches("sign flips"), _batches("plain")
    sign = (batch.u0 / np.where(plain.u0 == 0, 1, plain.u0))[:, :, :1, :1]
    assert set(sign.flat) == {-1.0, 1.0}
    np.testing.assert_array_equal(batch.u0, sign * plain.u0)
    np.testing.assert_array_equal(batch.target, sign[:, :, None] * plain.target)
    # 480 fair coins: a standard deviation of 0.023.
    assert abs(np.mean(sign < 0) - 0.5) < 0.08


def test_every_trajectory_is_translated_as_a_whole_by_its_own_shift():
    moved, plain = _batches("translations"), _batches("plain")
    # The point that has come to the origin tells the shift.
    shifts = -_places(moved.u0)[2][:, :, 0, 0] % NUM_POINTS
    index = (np.arange(NUM_POINTS) - shifts[..., None]) % NUM_POINTS
    np.testing.assert_array_equal(moved.u0, np.take_along_axis(plain.u0, index[..., None], axis=2))
    np.testing.assert_array_equal(moved.target, np.take_along_axis(plain.target, index[:, :, None, :, None], axis=3))
    assert set(shifts.flat) == set(range(NUM_POINTS))
    assert all(len(set(of_step)) > 1 for of_step in shifts)


def test_a_reflection_acts_on_about_half_of_the_trajectories_and_leaves_constant_channels():
    batch, plain = _batches("reflection"), _batches("plain")
    flipped = (_places(batch.u0)[2][:, :, 1, 0] != 1)[..., None, None]
    mirror = -np.arange(NUM_POINTS) % NUM_POINTS
    np.testing.assert_array_equal(batch.u0, np.where(flipped, plain.u0[:, :, mirror] * [*SIGNS, 1.0], plain.u0))
    mirrored = plain.target[:, :, :, mirror] * SIGNS
    np.testing.assert_array_equal(batch.target, np.where(flipped[:, :, None], mirrored, plain.target))
    # 480 fair coins: a standard deviation of 0.023.
    assert abs(np.mean(flipped) - 0.5) < 0.08


@pytest.mark.parametrize("num_points", [6, 7])
def test_an_even_field_with_sign_one_and_an_odd_field_with_sign_minus_one_are_their_own_reflections(num_points):
    x = 2 * np.pi * np.arange(num_points) / num_points
    field = np.stack([np.cos(x), 2 + np.cos(2 * x), np.sin(x)], axis=-1)[None]
    np.testing.assert_allclose(batching.reflected(jnp.asarray(field), 1, SIGNS), field, rtol=0, atol=1e-6)


def test_a_symmetry_changes_neither_the_trajectories_nor_the_times_that_are_drawn():
    plain, batch = _batches("two times, own"), _batches("some times")
    np.testing.assert_array_equal(batch.times, plain.times)
    for drawn, expected in ((batch.u0, plain.u0), (batch.target, plain.target)):
        for axis in (0, 1):
            np.testing.assert_array_equal(_places(drawn)[axis], _places(expected)[axis])


# --- later frames as initial states -------------------------------------------------------------------------------


def _starts(batch: batching.Batch) -> np.ndarray:
    """The frame that each trajectory starts from, after a check that it is one frame at all points."""
    frame = _places(batch.u0)[1]
    _assert_repeated(frame, frame[:, :, :1, :1])
    return frame[:, :, 0, 0]


@pytest.mark.parametrize("name", ["later starts", "second start"])
def test_with_probability_one_every_batch_starts_from_a_later_frame(name):
    batch, times_per_step = _batches(name), MORE[name][0].times_per_step
    starts = _starts(batch)[:, :1]
    _assert_repeated(_starts(batch), starts)
    # All frames that leave enough others after them.
    assert set(starts.flat) == set(range(1, NUM_TIMES - times_per_step + 1))
    frame = _places(batch.target)[1][:, 0, :, 0, 0]
    assert np.all(frame > starts)
    assert all(len(np.unique(of_step)) == times_per_step for of_step in frame)
    np.testing.assert_array_equal(batch.times, TIMES[frame - 1] - TIMES[starts - 1])


def test_the_probability_of_a_later_start_is_obeyed():
    batch = _batches("random starts")
    later = _starts(batch)[:, 0] > 0
    # 60 coins: a standard deviation of 0.06.
    assert abs(np.mean(later) - 0.7) < 0.15
    # A step that starts from the initial state has the query times of the data.
    assert set(batch.times[~later].flat) == set(TIMES)


def test_a_window_holds_the_frames_after_a_start_of_each_trajectory():
    batch, window = _batches("window"), 3
    starts = _starts(batch)
    drawn, counts = np.unique(starts, return_counts=True)
    np.testing.assert_array_equal(drawn, np.arange(NUM_TIMES - window + 1))
    # 480 draws from four: a standard deviation of 0.02.
    np.testing.assert_allclose(counts / starts.size, 1 / len(drawn), atol=0.07)
    frames = starts[:, :, None, None, None] + 1 + np.arange(window)[:, None, None]
    _assert_repeated(_places(batch.target)[1], frames)
    _assert_repeated(batch.times, EVEN_TIMES[:window])
    assert all(len(set(of_step)) > 1 for of_step in starts)


def test_a_window_with_fewer_times_has_strata_of_its_own_in_each_trajectory():
    batch = _batches("window, own times")
    starts = _starts(batch)
    offsets = _places(batch.target)[1][..., 0, 0] - starts[..., None]
    np.testing.assert_array_equal(batch.times, EVEN_TIMES[offsets - 1])
    for stratum, allowed in enumerate(({1, 2}, {3, 4})):
        assert set(offsets[..., stratum].flat) == allowed
    # Half of the starts are drawn from the frames 0, 1 and 2.
    assert set(starts.flat) == {0, 1, 2}
    assert np.mean(starts > 0) == pytest.approx(0.5 * 2 / 3, abs=0.08)


def test_a_window_of_all_times_from_the_initial_state_is_the_whole_trajectory():
    for name in ("whole window", "whole window, first start"):
        jax.tree.map(np.testing.assert_array_equal, _batches(name), _batches("plain, even"))


def test_solutions_of_an_autonomous_equation_stay_solutions():
    """Of ``u' = -u``, in the shapes of the other tests, so that nothing is compiled again."""
    data = {}
    for name, arrays in _all_data().items():
        ts = arrays.times / 8 if name != "own" else arrays.times / 400
        u0 = jnp.asarray(np.random.default_rng(0).normal(size=arrays.u0.shape), jnp.float32)
        decay = jnp.exp(-jnp.broadcast_to(ts, arrays.u.shape[:2]))[..., None, None]
        data[name] = batching.FieldArrays(u0, ts, u0[:, None, :, :NUM_CHANNELS] * decay)
    batches = _draw(data, jax.random.key(0), 0, 1, True)
    for name in ("random starts", "later starts", "window", "window, own times"):
        batch = batches[name]
        decay = np.exp(-(batch.times if batch.times.ndim == 3 else batch.times[:, None]))[..., None, None]
        np.testing.assert_allclose(batch.target, batch.u0[:, :, None, :, :NUM_CHANNELS] * decay, rtol=1e-5, atol=1e-7)


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"window": -1}, "times_per_step and window not negative"),
        ({"random_starts": 1.5, "window": 2}, r"random_starts in \[0, 1\], got"),
        ({"own_times": True}, "own_times draws times_per_step times for each trajectory; set times_per_step"),
        ({"random_starts": 0.5}, "random_starts without a window needs times_per_step"),
        ({"random_starts": 0.5, "times_per_step": 2, "own_times": True}, "and own_times needs a window then"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**{"batch_size": BATCH, **options})


@pytest.mark.parametrize(
    ("sampling", "times", "message"),
    [
        (Sampling(NUM_SAMPLES + 1), "even", "batch_size=41 exceeds the 40 training trajectories; lower it"),
        (Sampling(BATCH, window=7), "even", "window=7 exceeds the 6 times of the data; lower it"),
        (Sampling(BATCH, window=2, times_per_step=3), "even", "times_per_step=3 exceeds the 2 times to draw from"),
        (Sampling(BATCH, times_per_step=7), "even", "times_per_step=7 exceeds the 6 times to draw from"),
        (Sampling(BATCH, window=2), "own", "window and random_starts need times that all trajectories share"),
    ],
)
def test_data_that_do_not_fit_are_refused(sampling, times, message):
    with pytest.raises(ValueError, match=message):
        batching.sample(_data(times), jax.random.key(0), jnp.asarray(0), sampling)


def test_a_batch_that_cannot_be_divided_among_the_shards_is_refused():
    with pytest.raises(ValueError, match="batch_size=8 cannot be divided among 3 devices; use a multiple of 3, or"):
        batching.sample(_data(), jax.random.key(0), jnp.asarray(0), Sampling(BATCH), num_shards=3)


def test_a_window_needs_shared_and_even_times():
    batching.check_window(EVEN_TIMES)
    batching.check_window(np.arange(1, 201, dtype=np.float32) * np.float32(0.005))
    with pytest.raises(ValueError, match=r"times that all trajectories share, of shape \(time,\), got shape \(3, 4\)"):
        batching.check_window(np.ones((3, 4)))
    for times in (TIMES, np.zeros(3), EVEN_TIMES + 0.1):
        with pytest.raises(ValueError, match=r"a window needs the times dt, 2 dt, 3 dt, \.\.\."):
            batching.check_window(times)
