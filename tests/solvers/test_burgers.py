"""Burgers' equation: the closed form of Cole and Hopf, orders of convergence, invariants and symmetries."""

import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.solvers import burgers, heat, random_fields

TIMES = np.asarray([0.1, 0.25])
# Steps in the longest interval. Most tests share two samples, two times and 32 or 33 points: compiling takes longest.
STEPS = 30


def _x(num_points: int) -> np.ndarray:
    return np.arange(num_points) / num_points


def _cole_hopf(
    x: np.ndarray, times: np.ndarray, viscosity: float, *, frequency: int = 1, amplitude: float = 0.5
) -> np.ndarray:
    """``-2 viscosity theta_x / theta``, where ``theta = 1 + a exp(-viscosity k^2 t) cos(k x)`` solves heat."""
    k = 2 * np.pi * frequency
    decaying = amplitude * np.exp(-viscosity * k**2 * np.asarray(times))[:, None]
    return 2 * viscosity * k * decaying * np.sin(k * x) / (1 + decaying * np.cos(k * x))


def _spectrum(u0: np.ndarray) -> np.ndarray:
    return np.fft.rfft(np.atleast_2d(u0), norm="forward")


def _solve(u0: np.ndarray, times: np.ndarray, viscosity: float = 0.02, *, finer: int = 4, **options) -> np.ndarray:
    num_points = np.atleast_2d(u0).shape[1]
    options = {"max_step": float(np.diff(times, prepend=0.0).max()) / STEPS, **options}
    return burgers.solve(_spectrum(u0), times, num_points, viscosity, internal_points=finer * num_points, **options)


def _fields(num_samples: int, num_points: int, seed: int = 0) -> np.ndarray:
    coefficients = random_fields.sample(
        np.random.default_rng(seed), num_samples, num_points, sigma=49.0, tau=7.0, gamma=2.5
    )
    return np.fft.irfft(coefficients, n=num_points, norm="forward")


# --- closed forms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_points", "frequency", "viscosity"), [(48, 1, 0.05), (48, 2, 0.03), (45, 1, 0.2)])
def test_the_solution_of_cole_and_hopf(num_points, frequency, viscosity):
    x = _x(num_points)
    exact = _cole_hopf(x, np.concatenate([[0.0], TIMES]), viscosity, frequency=frequency)
    u = _solve(exact[0], TIMES, viscosity, finer=2, max_step=2e-3)
    np.testing.assert_allclose(u[0], exact[1:], rtol=0, atol=1e-9)
    assert np.abs(exact[-1] - exact[0]).max() > 0.01


def test_a_steep_solution_of_cole_and_hopf_on_a_coarse_grid_of_results():
    # The spectrum of the steep field needs the internal grid; the result is every eighth point of it.
    x, viscosity = _x(256), 0.01
    exact = _cole_hopf(x, np.concatenate([[0.0], TIMES]), viscosity, amplitude=0.99)
    u = burgers.solve(_spectrum(exact[0]), TIMES, 32, viscosity, internal_points=512, max_step=2e-3)
    np.testing.assert_allclose(u[0], exact[1:, ::8], rtol=0, atol=1e-8)


@pytest.mark.slow
def test_the_error_falls_with_the_fourth_power_of_the_step():
    x, viscosity, time = _x(64), 0.1, np.asarray([0.4])
    exact = _cole_hopf(x, np.asarray([0.0, 0.4]), viscosity, amplitude=0.8)
    errors = [
        np.abs(_solve(exact[0], time, viscosity, finer=2, max_step=0.4 / steps)[0, 0] - exact[1]).max()
        for steps in (16, 32, 64)
    ]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert errors[-1] > 1e-11  # above rounding
    assert np.all(orders > 3.7)


def test_the_error_falls_exponentially_with_the_internal_grid():
    viscosity, time = 0.05, np.asarray([0.3])
    exact = _cole_hopf(_x(96), np.asarray([0.0, 0.3]), viscosity, amplitude=0.9)
    grids = (12, 24, 48)
    errors = [
        np.abs(
            burgers.solve(_spectrum(exact[0]), time, 12, viscosity, internal_points=n, max_step=3e-3)[0, 0]
            - exact[1, ::8]
        ).max()
        for n in grids
    ]
    # Twice the points square the error, where a method of order four divides it by 16.
    assert errors[1] < errors[0] / 10
    assert errors[2] < errors[1] / 100


def test_small_fields_diffuse_and_advection_is_quadratic():
    u0 = _fields(2, 32) / np.abs(_fields(2, 32)).max()
    departures = []
    for amplitude in (2e-3, 1e-3):
        u = _solve(amplitude * u0, TIMES, 0.01)
        departures.append(np.abs(u - heat.solve(_spectrum(amplitude * u0), TIMES, 32, 0.01)).max())
    assert departures[0] < 2e-2 * 2e-3
    assert departures[0] / departures[1] == pytest.approx(4.0, rel=0.01)


def test_a_leading_time_of_zero_gives_back_the_field():
    u0 = _fields(2, 33)
    u = _solve(u0, np.asarray([0.0, 0.05]))
    np.testing.assert_allclose(u[:, 0], u0, rtol=0, atol=1e-14)
    np.testing.assert_allclose(u[:, 1], _solve(u0, np.asarray([0.05, 0.1]))[:, 0], rtol=0, atol=1e-13)


def test_solving_twice_equals_solving_for_the_sum_of_the_times():
    # The highest frequency of an even grid would not survive the way through the values at its points.
    direct = _solve(_fields(2, 33), TIMES)
    again = _solve(direct[:, 0], np.asarray([0.15, 0.3]))
    np.testing.assert_allclose(again[:, 0], direct[:, 1], rtol=0, atol=1e-12)
    assert np.abs(direct[:, 1] - direct[:, 0]).max() > 0.1


def test_more_saved_times_do_not_change_the_solution():
    u0 = _fields(2, 32)
    few = _solve(u0, np.asarray([0.1, 0.2]))
    many = _solve(u0, np.asarray([0.013, 0.1, 0.17, 0.2]))
    np.testing.assert_allclose(many[:, [1, 3]], few, rtol=0, atol=1e-8)


# --- invariants and symmetries ------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_points", [32, 33])
def test_the_mean_stays_and_the_energy_falls(num_points):
    u0 = _fields(2, num_points) + np.asarray([0.0, -0.7])[:, None]
    u = _solve(u0, TIMES)
    np.testing.assert_allclose(u.mean(-1), np.repeat(u0.mean(-1)[:, None], 2, axis=1), rtol=0, atol=1e-13)
    energy = np.square(np.concatenate([u0[:, None], u], axis=1)).mean(-1)
    assert np.all(np.diff(energy, axis=1) < 0)


def test_an_observer_who_moves_sees_the_same_solution():
    # The observer of this speed passes 4 of 32 points between two times.
    u0, speed, times = _fields(2, 32), 1.25, np.asarray([0.1, 0.2])
    u, moving = _solve(u0, times), _solve(u0 + speed, times)
    seen = np.stack([np.roll(moving[:, i], -4 * (i + 1), axis=-1) for i in range(2)], axis=1) - speed
    np.testing.assert_allclose(seen, u, rtol=0, atol=1e-6)
    assert np.abs(u[:, 0] - u0).max() > 0.05


@pytest.mark.parametrize("num_points", [32, 33])
def test_reflected_and_translated_fields_have_reflected_and_translated_solutions(num_points):
    u0, mirror = _fields(2, num_points), -np.arange(num_points) % num_points
    u = _solve(u0, TIMES)
    np.testing.assert_allclose(_solve(-u0[:, mirror], TIMES), -u[..., mirror], rtol=0, atol=1e-12)
    moved = _solve(np.roll(u0, 5, axis=1), TIMES)
    np.testing.assert_allclose(moved, np.roll(u, 5, axis=2), rtol=0, atol=1e-12)


def test_frequencies_above_the_dealiasing_limit_are_dropped():
    x = _x(32)
    low, high = np.sin(2 * np.pi * x), np.cos(2 * np.pi * 11 * x)
    kept = burgers.solve(_spectrum(low), TIMES, 32, 0.02, internal_points=32, max_step=0.01)
    both = burgers.solve(_spectrum(low + high), TIMES, 32, 0.02, internal_points=32, max_step=0.01)
    np.testing.assert_allclose(both, kept, rtol=0, atol=1e-13)


def test_precision_is_double_inside_and_untouched_outside():
    assert _solve(_fields(2, 32), TIMES).dtype == np.float64
    assert jnp.asarray(1.5).dtype == jnp.float32


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [[0.2, 0.1], [0.1, 0.1], [-0.1, 0.2]])
def test_times_that_do_not_increase_from_zero_are_refused(times):
    with pytest.raises(ValueError, match="times must increase and be at least zero"):
        _solve(_fields(1, 16), np.asarray(times))


def test_a_result_grid_that_does_not_divide_the_internal_one_is_refused():
    with pytest.raises(ValueError, match="internal_points=40 must be a multiple of num_points=16"):
        burgers.solve(_spectrum(_fields(1, 16)), TIMES, 16, 0.02, internal_points=40)


@pytest.mark.parametrize("bad", [{"viscosity": 0.0}, {"viscosity": -1.0}, {"max_step": 0.0}])
def test_viscosity_and_step_must_be_positive(bad):
    with pytest.raises(ValueError, match="viscosity and max_step must be positive"):
        _solve(_fields(1, 16), TIMES, **bad)


def test_a_step_that_is_too_long_is_said_to_blow_up():
    with pytest.raises(ValueError, match=r"blew up; max_step=0\.1 is too long for this field"):
        _solve(1e4 * _fields(2, 32), np.asarray([2.0, 5.0]), 1e-4, max_step=0.1)
