"""The heat equation: closed forms and the equation itself."""

import numpy as np
import pytest

from ctfno_jax.solvers import heat, random_fields


def _coefficients(num_samples: int, num_points: int, seed: int = 0) -> np.ndarray:
    return random_fields.sample(np.random.default_rng(seed), num_samples, num_points, sigma=20.0, tau=3.5, gamma=2.5)


@pytest.mark.parametrize("num_points", [16, 15])
def test_at_time_zero_the_solution_is_the_field(num_points):
    u0_hat = _coefficients(3, num_points)
    field = np.fft.irfft(u0_hat, n=num_points, norm="forward")
    np.testing.assert_allclose(heat.solve(u0_hat, np.zeros(1), num_points, 0.7)[:, 0], field, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("frequency", "viscosity"), [(1, 1e-3), (3, 0.02), (5, 1.0)])
def test_one_cosine_decays_by_the_closed_form(frequency, viscosity):
    num_points, times = 24, np.asarray([0.0, 0.1, 0.7, 2.0])
    x = np.arange(num_points) / num_points
    wave = np.cos(2 * np.pi * frequency * x + 0.3)
    u = heat.solve(np.fft.rfft(wave, norm="forward")[None], times, num_points, viscosity)
    expected = np.exp(-viscosity * (2 * np.pi * frequency) ** 2 * times)[:, None] * wave
    np.testing.assert_allclose(u[0], expected, rtol=0, atol=1e-13)


def test_the_mean_does_not_decay():
    np.testing.assert_array_equal(heat.decay(5, np.asarray([0.0, 1.0, 9.0]), 0.3)[:, 0], 1.0)


def test_solving_twice_equals_solving_for_the_sum_of_the_times():
    num_points, viscosity = 20, 5e-3
    u0_hat = _coefficients(2, num_points)
    first = heat.solve(u0_hat, np.asarray([0.4]), num_points, viscosity)[:, 0]
    second = heat.solve(np.fft.rfft(first, norm="forward"), np.asarray([0.9]), num_points, viscosity)
    direct = heat.solve(u0_hat, np.asarray([1.3]), num_points, viscosity)
    np.testing.assert_allclose(second, direct, rtol=0, atol=1e-13)


def test_the_solution_satisfies_the_equation():
    num_points, viscosity, t, dt = 32, 2e-3, 0.5, 1e-3
    u0_hat = _coefficients(2, num_points)
    u = heat.solve(u0_hat, np.asarray([t - dt, t, t + dt]), num_points, viscosity)
    rate = (u[:, 2] - u[:, 0]) / (2 * dt)
    k = np.arange(num_points // 2 + 1)
    second = np.fft.irfft(-((2 * np.pi * k) ** 2) * np.fft.rfft(u[:, 1]), n=num_points)
    np.testing.assert_allclose(rate, viscosity * second, rtol=0, atol=1e-5 * np.abs(rate).max())


def test_energy_never_grows():
    u = heat.solve(_coefficients(4, 16), np.linspace(0, 3, 7), 16, 1e-2)
    assert np.all(np.diff(np.square(u).sum(-1), axis=1) < 0)


def test_a_finer_grid_shows_the_same_solution():
    u0_hat, times = _coefficients(2, 15), np.asarray([0.2, 1.0])
    coarse = heat.solve(u0_hat, times, 15, 1e-3)
    fine = heat.solve(u0_hat, times, 45, 1e-3)
    np.testing.assert_allclose(fine[..., ::3], coarse, rtol=0, atol=1e-13)
