"""Trajectories: refusals, splits, coarser grids and fewer times."""

import numpy as np
import pytest

from ctfno_jax.data import trajectories
from ctfno_jax.data.trajectories import Trajectories


def _trajectories(num_samples=7, num_times=3, grid=(24,), in_channels=1, out_channels=2, seed=0):
    rng = np.random.default_rng(seed)
    return Trajectories(
        u0=rng.normal(size=(num_samples, *grid, in_channels)).astype(np.float32),
        times=np.arange(1, num_times + 1, dtype=np.float32),
        u=rng.normal(size=(num_samples, num_times, *grid, out_channels)).astype(np.float32),
    )


def test_split_cuts_into_the_asked_sizes_without_losing_or_sharing_a_trajectory():
    everything = _trajectories(num_samples=11)
    train, validation, test = trajectories.split(everything, num_test=2, num_validation=3)
    assert [len(part) for part in (train, validation, test)] == [6, 3, 2]
    np.testing.assert_array_equal(np.concatenate([test.u0, validation.u0, train.u0]), everything.u0)
    np.testing.assert_array_equal(np.concatenate([test.u, validation.u, train.u]), everything.u)


def test_test_and_validation_stay_the_same_however_many_are_trained_on():
    few, many = (
        trajectories.split(_trajectories(num_samples=11).select(slice(n)), num_test=2, num_validation=3)
        for n in (6, 11)
    )
    np.testing.assert_array_equal(few[1].u0, many[1].u0)
    np.testing.assert_array_equal(few[2].u, many[2].u)


def test_split_refuses_to_leave_nothing_for_training():
    with pytest.raises(
        ValueError, match="5 trajectories leave none for training after num_test=2 and num_validation=3"
    ):
        trajectories.split(_trajectories(num_samples=5), num_test=2, num_validation=3)


@pytest.mark.parametrize("grid", [(24,), (12, 24)])
def test_coarsening_takes_every_kth_point_of_every_axis(grid):
    fine = _trajectories(grid=grid)
    coarse = fine.coarsen(6)
    assert coarse.grid == (6,) * len(grid)
    steps = tuple(slice(None, None, n // 6) for n in grid)
    np.testing.assert_array_equal(coarse.u0, fine.u0[(slice(None), *steps)])
    np.testing.assert_array_equal(coarse.u, fine.u[(slice(None), slice(None), *steps)])
    np.testing.assert_array_equal(coarse.times, fine.times)


def test_coarsening_to_the_same_grid_changes_nothing():
    fine = _trajectories()
    np.testing.assert_array_equal(fine.coarsen(24).u, fine.u)


def test_coarsening_to_a_grid_that_does_not_divide_names_those_that_do():
    with pytest.raises(ValueError, match=r"grid of 24 points cannot be cut to 10; use one of \[8, 12, 24\]"):
        _trajectories().coarsen(10)


@pytest.mark.parametrize("name", ["u0", "times", "u"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused_by_name(name, value):
    good = _trajectories()
    arrays = {key: getattr(good, key).copy() for key in ("u0", "times", "u")}
    arrays[name].flat[-1] = value
    with pytest.raises(ValueError, match=f"^{name} contains values that are not finite"):
        Trajectories(**arrays)


@pytest.mark.parametrize(
    ("u0", "times", "u"),
    [
        ((7, 24, 1), (3,), (7, 4, 24, 2)),
        ((6, 24, 1), (3,), (7, 3, 24, 2)),
        ((7, 12, 1), (3,), (7, 3, 24, 2)),
        ((7, 24, 1), (3, 1), (7, 3, 24, 2)),
    ],
)
def test_shapes_that_disagree_are_refused(u0, times, u):
    with pytest.raises(ValueError, match=r"u must have shape \(batch, time, \*space, channels\)"):
        Trajectories(np.zeros(u0), np.zeros(times), np.zeros(u))


def test_selecting_takes_states_and_solutions_of_the_same_trajectories():
    everything = _trajectories()
    some = everything.select(np.asarray([4, 1]))
    np.testing.assert_array_equal(some.u0, everything.u0[[4, 1]])
    np.testing.assert_array_equal(some.u, everything.u[[4, 1]])


def test_times_of_their_own_go_with_the_trajectories():
    shared = _trajectories(num_samples=5, num_times=4)
    own = Trajectories(shared.u0, np.arange(20, dtype=np.float32).reshape(5, 4), shared.u)
    np.testing.assert_array_equal(own.select(np.array([3, 0])).times, [[12, 13, 14, 15], [0, 1, 2, 3]])
    np.testing.assert_array_equal(own.thin(2).times, own.times[:, 1::2])
    np.testing.assert_array_equal(own.coarsen(12).times, own.times)
    with pytest.raises(ValueError, match="to agree with u0"):
        Trajectories(shared.u0, own.times[:4], shared.u)


def test_thinning_keeps_every_kth_time_and_the_last():
    everything = _trajectories(num_times=6)
    thin = everything.thin(2)
    np.testing.assert_array_equal(thin.times, [3, 6])
    np.testing.assert_array_equal(thin.u, everything.u[:, [2, 5]])
    with pytest.raises(ValueError, match=r"6 times cannot be cut to 4; use one of \[1, 2, 3, 6\]"):
        everything.thin(4)
