"""The reaction equation: its closed form against the equation itself."""

import numpy as np
import pytest

from ctfno_jax.solvers import reaction

TIMES = np.asarray([0.0, 0.1, 0.45, 1.0])


def _states(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.05, 3.0, size=(3, 5))


def test_at_time_zero_the_solution_is_the_field():
    u = reaction.solve(_states(), TIMES)
    assert u.shape == (3, 4, 5)
    np.testing.assert_allclose(u[:, 0], _states(), rtol=1e-14)


@pytest.mark.parametrize("rate", [0.5, 6.0])
def test_the_solution_satisfies_the_equation(rate):
    t, step = 0.3, 1e-5
    before, now, after = np.moveaxis(reaction.solve(_states(), np.asarray([t - step, t, t + step]), rate=rate), 1, 0)
    np.testing.assert_allclose((after - before) / (2 * step), rate * now * (1 - now), rtol=0, atol=1e-7)


def test_solving_twice_equals_solving_for_the_sum_of_the_times():
    first = reaction.solve(_states(), np.asarray([0.2]))[:, 0]
    second = reaction.solve(first, np.asarray([0.3]))
    np.testing.assert_allclose(second, reaction.solve(_states(), np.asarray([0.5])), rtol=1e-13)


def test_zero_and_one_stay_where_they_are():
    states = np.stack([np.zeros(5), np.ones(5)])
    np.testing.assert_array_equal(reaction.solve(states, TIMES), np.repeat(states[:, None], 4, axis=1))


def test_everything_positive_ends_at_one_without_overflow():
    np.testing.assert_allclose(reaction.solve(_states(), np.asarray([10.0, 1e6])), 1.0, rtol=1e-12)


def test_values_approach_one_from_their_own_side():
    u = reaction.solve(_states(), TIMES)
    low = np.repeat((_states() < 1)[:, None], 3, axis=1)
    assert np.all((np.diff(u, axis=1) > 0) == low)
    assert np.all((u[:, 1:] < 1) == low)


def test_the_rate_is_a_unit_of_time():
    np.testing.assert_allclose(
        reaction.solve(_states(), 3 * TIMES, rate=2.0), reaction.solve(_states(), TIMES, rate=6.0), rtol=1e-13
    )
