"""Series: refusals, the cut between observations and queries, and the input of a model."""

import numpy as np
import pytest

from ctfno_jax.data import series
from ctfno_jax.data.series import Series


def _arrays(batch=5, steps=4, num_times=3, features=2, own=False, seed=0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shared = {"observed_times": np.linspace(-0.9, 0.0, steps), "times": np.linspace(0.2, 1.5, num_times)}
    shifts = 1 + np.arange(batch)[:, None] if own else 1.0
    return {
        "observed_times": (shifts * shared["observed_times"]).astype(np.float32),
        "observed": rng.normal(size=(batch, steps, features)).astype(np.float32),
        "times": (shifts * shared["times"]).astype(np.float32),
        "values": rng.normal(size=(batch, num_times, features)).astype(np.float32),
    }


def _trajectories(batch=5, points=7, features=2) -> tuple[np.ndarray, np.ndarray]:
    times = 0.5 * np.arange(1, points + 1)
    return times, np.random.default_rng(1).normal(size=(batch, points, features))


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["observed_times", "observed", "times", "values"])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_values_that_are_not_finite_are_refused_by_name(name, value):
    arrays = _arrays()
    arrays[name].flat[-1] = value
    with pytest.raises(ValueError, match=f"^{name} contains values that are not finite; remove those trajectories"):
        Series(**arrays)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("second", [-0.95, -0.9])
def test_times_of_observation_that_fall_or_stand_still_are_refused(own, second):
    arrays = _arrays(own=own)
    arrays["observed_times"].flat[1] = second  # the first one is -0.9
    with pytest.raises(ValueError, match=r"observed_times must increase .*; sort them, drop repeats"):
        Series(**arrays)


def test_query_times_come_in_any_order():
    arrays = _arrays()
    assert len(Series(**{**arrays, "times": arrays["times"][::-1]})) == 5


@pytest.mark.parametrize("shape", [(3,), (5, 3), (4, 4), (1, 4), (5, 4, 1)])
def test_times_of_observation_must_agree_with_what_is_observed(shape):
    with pytest.raises(ValueError, match=r"observed_times must have shape \(4,\) or \(5, 4\) to agree with observed"):
        Series(**{**_arrays(), "observed_times": np.zeros(shape)})


@pytest.mark.parametrize(
    ("times", "values"),
    [((3,), (5, 4, 2)), ((3,), (4, 3, 2)), ((3,), (5, 3, 1)), ((4, 3), (5, 3, 2)), ((), (5, 3, 2)), ((3,), (5, 3))],
)
def test_values_must_agree_with_times_and_with_what_is_observed(times, values):
    with pytest.raises(ValueError, match=r"values must have shape \(batch, time, features\) = \(5, "):
        Series(**{**_arrays(), "times": np.ones(times), "values": np.zeros(values)})


# --- what they are ------------------------------------------------------------------------------------------------


def test_sizes():
    some = Series(**_arrays())
    assert (len(some), some.features) == (5, 2)
    assert some.regular
    assert not Series(**_arrays(own=True)).regular


@pytest.mark.parametrize("own", [False, True])
def test_selecting_takes_everything_of_the_same_trajectories(own):
    everything, index = Series(**_arrays(own=own)), np.asarray([3, 0])
    some = everything.select(index)
    np.testing.assert_array_equal(some.observed, everything.observed[index])
    np.testing.assert_array_equal(some.values, everything.values[index])
    for name in ("observed_times", "times"):
        whole = getattr(everything, name)
        np.testing.assert_array_equal(getattr(some, name), whole[index] if own else whole)


def test_a_model_reads_what_was_observed_and_its_times_if_asked():
    some = Series(**_arrays(own=True))
    np.testing.assert_array_equal(some.inputs(with_times=False), some.observed)
    inputs = some.inputs(with_times=True)
    assert (inputs.shape, inputs.dtype) == ((5, 4, 3), np.float32)
    np.testing.assert_array_equal(inputs[..., :2], some.observed)
    np.testing.assert_array_equal(inputs[..., 2], some.observed_times)


def test_times_that_are_shared_are_read_beside_every_trajectory():
    some = Series(**_arrays())
    np.testing.assert_array_equal(some.inputs(with_times=True)[..., 2], np.tile(some.observed_times, (5, 1)))


# --- cutting trajectories -----------------------------------------------------------------------------------------


def test_what_is_before_the_cut_is_seen_and_what_follows_is_asked_for():
    times, values = _trajectories()
    some = series.observe(times, values, 4)
    np.testing.assert_array_equal(np.concatenate([some.observed, some.values], axis=1), values.astype(np.float32))
    np.testing.assert_allclose(some.observed_times, [-1.5, -1.0, -0.5, 0.0], rtol=0, atol=1e-7)
    np.testing.assert_allclose(some.times, [0.5, 1.0, 1.5], rtol=1e-6)
    assert {a.dtype for a in (some.observed_times, some.observed, some.times, some.values)} == {np.dtype(np.float32)}


def test_times_can_count_from_the_origin():
    times, values = _trajectories()
    some = series.observe(times, values, 4, from_last=False)
    np.testing.assert_allclose(np.concatenate([some.observed_times, some.times]), times, rtol=1e-6)


def test_every_trajectory_counts_from_its_own_last_observation():
    times, values = _trajectories()
    own = times + np.arange(5)[:, None] ** 2 / 7
    some = series.observe(own, values, 3)
    np.testing.assert_array_equal(some.observed_times[:, -1], 0)
    np.testing.assert_allclose(some.times, own[:, 3:] - own[:, 2:3], rtol=1e-6)


@pytest.mark.parametrize("num_observed", [0, 7, 9])
def test_a_cut_that_leaves_nothing_on_one_side_is_refused(num_observed):
    with pytest.raises(ValueError, match=f"num_observed must be between 1 and 6 of 7 points, got {num_observed}"):
        series.observe(*_trajectories(), num_observed)
