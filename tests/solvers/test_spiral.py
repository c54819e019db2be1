"""The spiral: another solver, its linear limit, its symmetry and the energy that it loses."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, linalg

from ctfno_jax.solvers import spiral

MATRIX = np.asarray(spiral.MATRIX)
TIMES = np.linspace(0.05, 6.0, 120)
TURN = np.asarray([[0.0, 1.0], [-1.0, 0.0]])


def _states(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2, 2, size=(count, 2))


@functools.cache
def _solutions() -> np.ndarray:
    """Of three states, the same after a quarter turn, zero, and two small ones; solved once: compiling takes long."""
    return spiral.solve(np.concatenate([_states(3), _states(3) @ TURN, np.zeros((1, 2)), _small()]), TIMES)


def _small() -> np.ndarray:
    return 1e-3 * _states(2, seed=3)


@pytest.mark.slow
def test_another_method_gives_the_same():
    u = _solutions()
    assert (u.shape, u.dtype) == ((9, 120, 2), np.float64)
    for start, found in zip(_states(3), u, strict=False):
        solution = integrate.solve_ivp(
            lambda t, v: MATRIX @ np.tanh(v), (0, 6), start, method="DOP853", t_eval=TIMES, rtol=1e-11, atol=1e-12
        )
        np.testing.assert_allclose(found, solution.y.T, rtol=0, atol=1e-8)


def test_each_sample_is_solved_at_its_own_times():
    # Together they take common steps, each for itself others.
    own = np.stack([TIMES[first : first + 50 : 7] for first in (3, 20, 60)])
    u = spiral.solve(_states(3), own)
    assert u.shape == (3, 8, 2)
    for i, first in enumerate((3, 20, 60)):
        np.testing.assert_allclose(u[i], _solutions()[i, first : first + 50 : 7], rtol=0, atol=1e-8)


def test_small_states_turn_and_decay_linearly():
    # The tanh differs from the identity by a third of the cube, 3e-9 at most.
    expected = np.stack([_small() @ linalg.expm(t * MATRIX).T for t in TIMES], axis=1)
    np.testing.assert_allclose(_solutions()[7:], expected, rtol=0, atol=1e-8)


def test_a_quarter_turn_of_the_state_turns_the_solution_and_zero_stays():
    u = _solutions()
    np.testing.assert_allclose(u[3:6], u[:3] @ TURN, rtol=0, atol=1e-8)
    np.testing.assert_array_equal(u[6], 0.0)


def test_the_energy_falls_all_the_time():
    # The derivative of the sum of log cosh is minus an eighth of the square of the tanh.
    u = _solutions()[:3]
    energy = np.log(np.cosh(u)).sum(-1)
    lost = 0.125 * integrate.simpson(np.square(np.tanh(u)).sum(-1), x=TIMES, axis=1)
    np.testing.assert_allclose(energy[:, 0] - energy[:, -1], lost, rtol=1e-5)
    assert np.all(np.diff(energy, axis=1) < 0)


def test_precision_is_as_before_afterwards():
    assert _solutions().dtype == np.float64
    assert jnp.asarray(np.ones(3)).dtype == jnp.float32
