"""PDEBench's random initial fields of a gas: ranges, period and refinement."""

import numpy as np
import pytest

from ctfno_jax.solvers import gas_fields


def _fields(num_samples: int, num_cells: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([gas_fields.sample(rng, num_cells) for _ in range(num_samples)])


def test_initial_fields_lie_in_the_ranges_of_the_recipe():
    u = _fields(200, 64)
    density, pressure, velocity = np.moveaxis(u, -1, 0)
    for field, low, high in ((density, 1, 10), (pressure, 10, 100)):
        minimum, span = field.min(axis=1), np.ptp(field, axis=1)
        for drawn in (minimum, span):
            assert low <= drawn.min() < 1.2 * low
            assert high / 1.2 < drawn.max() <= high
            assert abs(np.log(drawn / low).mean() / np.log(10) - 0.5) < 0.08
    assert np.abs(velocity).max() <= 3
    # Half of all fields vanish outside a window of the right half.
    outside = np.abs(velocity[:, :32]).max(axis=1) < 1e-6
    assert 0.4 < outside.mean() < 0.6


def test_the_period_of_initial_fields_is_that_of_the_first_to_the_last_centre():
    u = _fields(50, 40, seed=1)
    np.testing.assert_allclose(u[:, 0], u[:, -1], rtol=0, atol=1e-4)
    windowed = np.abs(u[..., 2]).min(axis=1) < 1e-6
    np.testing.assert_allclose(u[~windowed, 0, 2], u[~windowed, -1, 2], rtol=0, atol=1e-13)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_refinement_samples_the_same_fields_on_more_cells(seed):
    # The centres of 45 cells are every third of those of 135.
    coarse, fine = (gas_fields.sample(np.random.default_rng(seed), 45, refinement=r) for r in (1, 3))
    np.testing.assert_allclose(fine[1::3, 2], coarse[:, 2], rtol=0, atol=1e-13)
    # Density and pressure are scaled to the same minimum and span over whichever centres there are.
    np.testing.assert_allclose(fine.min(axis=0)[:2], coarse.min(axis=0)[:2], rtol=1e-13)
    np.testing.assert_allclose(np.ptp(fine, axis=0)[:2], np.ptp(coarse, axis=0)[:2], rtol=1e-13)
    for channel in range(2):
        line = np.polynomial.Polynomial.fit(coarse[:, channel], fine[1::3, channel], 1)
        np.testing.assert_allclose(fine[1::3, channel], line(coarse[:, channel]), rtol=1e-12)


def test_the_number_of_draws_does_not_depend_on_the_grid():
    first, second = np.random.default_rng(4), np.random.default_rng(4)
    gas_fields.sample(first, 10), gas_fields.sample(second, 20)
    assert first.uniform() == second.uniform()


def test_too_few_points_for_a_field_are_refused():
    with pytest.raises(ValueError, match="num_points must be at least 4 and refinement at least 1, got 3"):
        gas_fields.sample(np.random.default_rng(0), 3)
