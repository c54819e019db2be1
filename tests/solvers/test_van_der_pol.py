"""The Van der Pol oscillator: closed forms, another solver, and the balance of its energy."""

import types

import numpy as np
import pytest
from scipy import integrate

from ctfno_jax.solvers import van_der_pol

STARTS = np.asarray([[0.1, 0.0], [2.0, -0.5], [-1.3, 1.0]])
TIMES = np.asarray([0.4, 1.5, 2.0, 3.5])


def _radau(start: np.ndarray, times: np.ndarray, stiffness: float) -> np.ndarray:
    field = lambda t, u: [u[1], stiffness * (1 - u[0] ** 2) * u[1] - u[0]]  # noqa: E731
    solution = integrate.solve_ivp(field, (0, times[-1]), start, method="Radau", t_eval=times, rtol=1e-8, atol=1e-10)
    return solution.y.T


def test_without_stiffness_it_is_a_harmonic_oscillator():
    u = van_der_pol.solve(STARTS, TIMES, stiffness=0.0)
    x, y = STARTS[:, :1], STARTS[:, 1:]
    expected = [x * np.cos(TIMES) + y * np.sin(TIMES), y * np.cos(TIMES) - x * np.sin(TIMES)]
    np.testing.assert_allclose(u, np.stack(expected, axis=-1), rtol=0, atol=1e-6)


def test_another_implicit_method_gives_the_same():
    u = van_der_pol.solve(STARTS, TIMES, stiffness=4.0)
    assert u.shape == (3, 4, 2)
    np.testing.assert_allclose(u[1], _radau(STARTS[1], TIMES, 4.0), rtol=0, atol=1e-5)


def test_shared_times_equal_the_same_times_for_each_sample():
    shared = van_der_pol.solve(STARTS, TIMES, stiffness=2.0)
    np.testing.assert_array_equal(van_der_pol.solve(STARTS, np.tile(TIMES, (3, 1)), stiffness=2.0), shared)


def test_each_sample_is_solved_at_its_own_times():
    own = TIMES + np.asarray([[0.0], [0.3], [1.1]])
    u = van_der_pol.solve(STARTS, own, stiffness=2.0)
    for i in range(3):
        np.testing.assert_array_equal(u[i], van_der_pol.solve(STARTS[i : i + 1], own[i], stiffness=2.0)[0])


def test_the_first_time_may_be_zero():
    u = van_der_pol.solve(STARTS, np.asarray([0.0, 1.0]), stiffness=3.0)
    np.testing.assert_array_equal(u[:, 0], STARTS)


def test_the_energy_changes_by_the_work_of_the_damping():
    times = np.linspace(0.0, 3.0, 801)
    u = van_der_pol.solve(STARTS, times, stiffness=2.0)
    energy = 0.5 * np.square(u).sum(-1)
    work = integrate.simpson(2.0 * (1 - u[..., 0] ** 2) * u[..., 1] ** 2, x=times, axis=1)
    np.testing.assert_allclose(energy[:, -1] - energy[:, 0], work, rtol=0, atol=1e-6)
    assert np.abs(work).min() > 1e-2


def test_all_trajectories_end_on_one_cycle_of_amplitude_two():
    # The amplitude differs from two by the square of the stiffness.
    times = np.concatenate([[0.0], np.linspace(80.0, 90.0, 500)])
    x = van_der_pol.solve(STARTS, times, stiffness=0.15)[:, 1:, 0]
    np.testing.assert_allclose(x.max(1), 2.0, rtol=0, atol=0.01)
    np.testing.assert_allclose(x.min(1), -2.0, rtol=0, atol=0.01)


def test_at_high_stiffness_the_state_creeps_along_the_slow_curve():
    # There y = x / (stiffness (1 - x^2)), so that log x - x^2 / 2 grows with t / stiffness.
    stiffness = 1000.0
    u = van_der_pol.solve(np.asarray([[2.0, 0.0]]), np.asarray([50.0, 150.0, 300.0]), stiffness=stiffness)[0]
    slow = np.log(u[:, 0]) - u[:, 0] ** 2 / 2
    np.testing.assert_allclose(np.diff(slow), [0.1, 0.15], rtol=1e-4)
    np.testing.assert_allclose(u[:, 1], u[:, 0] / (stiffness * (1 - u[:, 0] ** 2)), rtol=1e-4)


def test_the_opposite_state_has_the_opposite_solution():
    u = van_der_pol.solve(np.concatenate([STARTS, -STARTS]), TIMES, stiffness=3.0)
    np.testing.assert_allclose(u[3:], -u[:3], rtol=0, atol=1e-12)


def test_the_method_is_given_the_derivative_of_the_field(monkeypatch):
    seen = []

    def recording(field, span, start, *, jac, **settings):
        seen.append((field, jac))
        return types.SimpleNamespace(success=True, y=np.zeros((2, len(settings["t_eval"]))))

    monkeypatch.setattr(van_der_pol.integrate, "solve_ivp", recording)
    van_der_pol.solve(STARTS[:1], TIMES, stiffness=7.0)
    (field, jacobian), state, step = seen[0], np.asarray([0.7, -1.2]), 1e-6
    slopes = [
        (np.asarray(field(0.0, state + step * e)) - np.asarray(field(0.0, state - step * e))) / (2 * step)
        for e in np.eye(2)
    ]
    np.testing.assert_allclose(jacobian(0.0, state), np.stack(slopes, axis=1), rtol=0, atol=1e-6)


def test_a_trajectory_that_could_not_be_solved_is_named(monkeypatch):
    results = iter([True, False])

    def failing(*args, t_eval, **settings):
        return types.SimpleNamespace(success=next(results), message="too much work", y=np.zeros((2, len(t_eval))))

    monkeypatch.setattr(van_der_pol.integrate, "solve_ivp", failing)
    with pytest.raises(ValueError, match=r"trajectory 1 from \[ 2.* could not be solved up to t=3\.5: too much work"):
        van_der_pol.solve(STARTS, TIMES)
