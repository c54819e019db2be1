"""Compressible Navier-Stokes: closed forms, conservation, symmetries and orders of convergence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.solvers import compressible_navier_stokes as cns
from ctfno_jax.solvers import gas_fields

# Tests share a few shapes: compiling takes longer than solving.
INVISCID = {"eta": 0.0, "zeta": 0.0}


def _centres(num_cells: int, length: float = 2.0) -> np.ndarray:
    return (np.arange(num_cells) + 0.5) * length / num_cells


def _fields(num_samples: int, num_cells: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([gas_fields.sample(rng, num_cells) for _ in range(num_samples)])


def _smooth(num_cells: int) -> np.ndarray:
    """Waves that are not small, but well resolved at all sizes used here."""
    x = np.pi * _centres(num_cells)
    return np.stack([1 + 0.3 * np.sin(x), 2 + 0.4 * np.cos(x), 0.5 * np.sin(x + 1)], axis=-1)[None]


def _totals(u: np.ndarray, gamma: float = 5 / 3) -> np.ndarray:
    """Mean density, momentum and total energy."""
    density, pressure, velocity = np.moveaxis(u, -1, 0)
    parts = [density, density * velocity, pressure / (gamma - 1) + density * velocity**2 / 2]
    return np.stack([q.mean(axis=-1) for q in parts], axis=-1)


def _orders(errors: list[float]) -> np.ndarray:
    return np.log2(np.asarray(errors[:-1]) / np.asarray(errors[1:]))


# --- the exact Riemann problem --------------------------------------------------------------------------------


def _wave(p: float, side: tuple[float, float, float], gamma: float) -> float:
    """Change of velocity across the wave that takes one side to pressure ``p``: a shock up, a rarefaction down."""
    density, pressure, _ = side
    if p > pressure:
        return (p - pressure) * np.sqrt(2 / density / ((gamma + 1) * p + (gamma - 1) * pressure))
    sound = np.sqrt(gamma * pressure / density)
    return 2 * sound / (gamma - 1) * ((p / pressure) ** ((gamma - 1) / (2 * gamma)) - 1)


def _star(left: tuple, right: tuple, gamma: float) -> tuple[float, float]:
    """Pressure and velocity between the waves; bisection, since the velocity mismatch grows with pressure."""
    low, high = 1e-14, 1e3
    for _ in range(200):
        p = np.sqrt(low * high)
        mismatch = _wave(p, left, gamma) + _wave(p, right, gamma) + right[2] - left[2]
        low, high = (p, high) if mismatch < 0 else (low, p)
    return p, (left[2] + right[2] + _wave(p, right, gamma) - _wave(p, left, gamma)) / 2


def _left_part(s: np.ndarray, side: tuple, p: float, v: float, gamma: float) -> np.ndarray:
    """State left of the contact at the speeds ``s = x / t``."""
    density, pressure, velocity = side
    sound, ratio = np.sqrt(gamma * pressure / density), p / pressure
    if p > pressure:
        speed = velocity - sound * np.sqrt(((gamma + 1) * ratio + gamma - 1) / (2 * gamma))
        behind = density * ((gamma + 1) * ratio + gamma - 1) / ((gamma - 1) * ratio + gamma + 1)
        return np.where((s < speed)[:, None], side, (behind, p, v))
    behind = density * ratio ** (1 / gamma)
    tail = v - np.sqrt(gamma * p / behind)
    c = (2 * sound + (gamma - 1) * (velocity - s)) / (gamma + 1)
    c = np.clip(c, 1e-12, None)
    fan_density = density * (c / sound) ** (2 / (gamma - 1))
    fan = np.stack([fan_density, pressure * (c / sound) ** (2 * gamma / (gamma - 1)), s + c], axis=-1)
    inside = np.where((s < tail)[:, None], fan, (behind, p, v))
    return np.where((s < velocity - sound)[:, None], side, inside)


def _riemann(s: np.ndarray, left: tuple, right: tuple, gamma: float) -> np.ndarray:
    p, v = _star(left, right, gamma)
    # The right part is the mirror image of a left part.
    mirrored = _left_part(-s, (right[0], right[1], -right[2]), p, -v, gamma) * [1, 1, -1]
    return np.where((s < v)[:, None], _left_part(s, left, p, v, gamma), mirrored)


def _tube(num_cells: int, left: tuple, right: tuple, t: float) -> tuple[np.ndarray, np.ndarray]:
    """Computed and exact states of a tube of length one whose wall in the middle is taken away; gamma is 1.4."""
    x = _centres(num_cells, 1.0) - 0.5
    initial = np.where((x < 0)[:, None], left, right)[None]
    u = cns.solve(initial, np.asarray([t]), length=1.0, gamma=1.4, boundary="outflow", **INVISCID)[0, 0]
    # Cell averages of the exact states, by ten points in each cell.
    fine = (_centres(10 * num_cells, 1.0) - 0.5) / t
    return u, _riemann(fine, left, right, 1.4).reshape(num_cells, 10, 3).mean(axis=1)


def test_the_exact_star_state_of_sod_is_the_known_one():
    np.testing.assert_allclose(_star((1.0, 1.0, 0.0), (0.125, 0.1, 0.0), 1.4), (0.30313, 0.92745), atol=1e-5)


def test_sods_shock_tube_converges_to_the_exact_solution():
    errors = []
    for num_cells in (25, 50, 100):
        u, exact = _tube(num_cells, (1.0, 1.0, 0.0), (0.125, 0.1, 0.0), 0.2)
        errors.append(np.abs(u - exact).mean(axis=0))
    assert np.all(errors[-1] < [0.006, 0.006, 0.012])
    assert np.all(np.diff(errors, axis=0) < 0)
    # Discontinuities allow first order at best, and a contact less.
    assert np.all(np.log2(errors[0] / errors[-1]) / 2 > 0.75)


def test_gas_torn_apart_to_near_vacuum_keeps_positive_density_and_pressure():
    u, exact = _tube(100, (1.0, 0.4, -2.0), (1.0, 0.4, 2.0), 0.15)
    assert exact[:, 1].min() < 0.003
    assert u[:, :2].min() > 0
    np.testing.assert_allclose(u[:, :2].mean(axis=0), exact[:, :2].mean(axis=0), rtol=0.02)
    assert np.all(np.abs(u - exact)[:, :2].mean(axis=0) < 0.02)


def test_even_a_vacuum_that_opens_stays_positive():
    # Faster than both gases can expand, so that the exact solution has no gas in the middle.
    x = _centres(100, 1.0) - 0.5
    initial = np.where((x < 0)[:, None], (1.0, 0.4, -8.0), (1.0, 0.4, 8.0))[None]
    u = cns.solve(initial, np.asarray([0.04]), length=1.0, gamma=1.4, boundary="outflow", **INVISCID)
    assert np.all(u[..., :2] > 0)
    assert u[0, 0, 50, 0] < 0.05


# --- smooth flows -------------------------------------------------------------------------------------------------


def _entropy_wave(num_cells: int, shift: float) -> np.ndarray:
    """Cell averages of a wave of density that has moved by ``shift``."""
    half = np.pi / num_cells  # half a cell, in the phase of the wave
    return 1 + 0.2 * np.sin(np.pi * (_centres(num_cells) - shift)) * np.sin(half) / half


@pytest.mark.slow
def test_an_entropy_wave_is_carried_along_with_second_order():
    errors, t, speed = [], 0.5, 1.3
    for num_cells in (32, 64, 128):
        initial = np.stack(
            [_entropy_wave(num_cells, 0.0), np.full(num_cells, 0.7), np.full(num_cells, speed)], axis=-1
        )[None]
        u = cns.solve(initial, np.asarray([t]))[0, 0]
        # Friction has nothing to do: velocity and pressure are constant, and stay so.
        np.testing.assert_allclose(u[:, 1:], initial[0, :, 1:], rtol=1e-12)
        errors.append(np.abs(u[:, 0] - _entropy_wave(num_cells, speed * t)).mean())
    assert np.all(_orders(errors) > 1.8)
    assert errors[-1] < 2e-4


def test_a_smooth_viscous_flow_converges_with_second_order():
    solutions = [cns.solve(_smooth(n), np.asarray([0.3]))[0, 0] for n in (32, 64, 128)]
    halved = [u.reshape(-1, 2, 3).mean(axis=1) for u in solutions]
    differences = [np.abs(halved[i + 1] - solutions[i]).mean(axis=0) for i in range(2)]
    assert np.all(np.log2(differences[0] / differences[1]) > 1.7)


@pytest.mark.parametrize("viscous_law", cns.VISCOUS_LAWS)
def test_a_weak_standing_sound_wave_is_damped_as_the_linear_equations_say(viscous_law):
    density, pressure, amplitude, t = 2.0, 3.0, 1e-5, 0.5
    x, k = _centres(128), np.pi
    v0 = amplitude * np.sin(k * x)
    initial = np.stack([np.full(128, density), np.full(128, pressure), v0], axis=-1)[None]
    u = cns.solve(initial, np.asarray([t]), eta=0.15, zeta=0.1, gamma=1.5, viscous_law=viscous_law)[0, 0, :, 2]
    # v'' + nu k^2 v' + (c k)^2 v = 0 with v'(0) = -nu k^2 v(0), since pressure is flat at first.
    nu = 0.3 if viscous_law == "kinematic" else 0.3 / density
    rate = nu * k**2 / 2
    frequency = np.sqrt(1.5 * pressure / density * k**2 - rate**2)
    factor = np.exp(-rate * t) * (np.cos(frequency * t) - rate / frequency * np.sin(frequency * t))
    np.testing.assert_allclose(u, factor * v0, rtol=0, atol=2e-3 * amplitude)


# --- invariants ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("viscous_law", "num_samples", "num_cells"), [
    ("kinematic", 3, 33), pytest.param("dynamic", 1, 128, marks=pytest.mark.slow)
])  # fmt: skip
def test_mass_momentum_and_energy_are_conserved(viscous_law, num_samples, num_cells):
    initial = _fields(num_samples, num_cells)
    u = cns.solve(initial, np.asarray([0.01, 0.1]), viscous_law=viscous_law)
    before = _totals(initial)[:, None]
    scale = np.maximum(np.abs(before), 1)  # momentum may be near zero
    assert np.all(np.abs(_totals(u) - before) < 1e-12 * scale)
    assert np.abs(u[:, -1] - initial).max() > 1


def test_reflection_of_the_flow_reflects_the_solution():
    initial, times = _fields(3, 33, seed=1), np.asarray([0.05, 0.1])
    mirror = np.asarray([1.0, 1.0, -1.0])
    u = cns.solve(initial, times)
    mirrored = cns.solve(np.ascontiguousarray(initial[:, ::-1] * mirror), times)
    np.testing.assert_allclose(mirrored[:, :, ::-1] * mirror, u, rtol=0, atol=1e-9)


def test_translation_by_whole_cells_translates_the_solution():
    initial, times = _fields(3, 33, seed=2), np.asarray([0.05, 0.1])
    moved = cns.solve(np.roll(initial, 7, axis=1), times)
    np.testing.assert_allclose(moved, np.roll(cns.solve(initial, times), 7, axis=2), rtol=0, atol=1e-9)


def test_a_moving_observer_sees_the_same_flow():
    # In half a unit of time an observer of this speed passes eight of 64 cells.
    initial, t, wind = _smooth(64), np.asarray([0.5]), np.asarray([0.0, 0.0, 0.5])
    u = cns.solve(initial, t)
    seen = np.roll(cns.solve(initial + wind, t), -8, axis=2) - wind
    assert np.abs(seen - u).max() < 0.01
    assert np.abs(u[:, 0] - initial).max() > 0.2


@pytest.mark.parametrize(("boundary", "num_cells"), [("periodic", 32), ("outflow", 50)])
def test_gas_at_rest_stays_at_rest(boundary, num_cells):
    # A jump of density at rest is a contact, which HLLC keeps exactly.
    initial = np.full((1, num_cells, 3), [1.0, 2.5, 0.0])
    initial[:, 5:, 0] = 4.0
    u = cns.solve(initial, np.asarray([0.3]), boundary=boundary)
    np.testing.assert_allclose(u[:, 0], initial, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_samples_of_a_batch_do_not_influence_each_other(monkeypatch):
    initial, times = _fields(3, 33, seed=3), np.asarray([0.03, 0.08])
    together = cns.solve(initial, times)
    alone = np.concatenate([cns.solve(initial[i : i + 1], times) for i in range(3)])
    np.testing.assert_allclose(together, alone, rtol=1e-10, atol=1e-10)
    monkeypatch.setattr(cns, "_CHUNK", 1)
    np.testing.assert_allclose(cns.solve(initial, times), together, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_more_save_times_change_the_solution_only_by_the_time_step_error():
    initial = _smooth(64)
    direct = cns.solve(initial, np.asarray([0.3]))
    often = cns.solve(initial, np.asarray([0.0, 0.001, 0.05, 0.1, 0.1, 0.2, 0.3]))
    np.testing.assert_array_equal(often[:, 0], initial)
    np.testing.assert_array_equal(often[:, 3], often[:, 4])
    assert np.abs(often[:, -1] - direct[:, 0]).max() < 1e-3


def test_precision_is_double_inside_and_untouched_outside():
    u = cns.solve(_smooth(32).astype(np.float32), np.asarray([0.01]))
    assert u.dtype == np.float64
    assert jnp.asarray(1.5).dtype == jnp.float32


# --- friction alone -------------------------------------------------------------------------------------------


def _friction(w: np.ndarray, dt: np.ndarray, boundary: str, viscous_law: str) -> np.ndarray:
    with jax.enable_x64(True):
        constants = cns.Constants(*(jnp.asarray(c) for c in (0.1, 0.3, 1.4, 0.5, 1.0)))
        gas = cns.Gas(*(jnp.asarray(w[..., i].T) for i in range(3)))
        result = cns._viscous_step(gas, jnp.asarray(dt), constants, boundary, viscous_law)
        return np.stack([np.asarray(u).T for u in result], axis=-1)


@pytest.mark.parametrize("viscous_law", cns.VISCOUS_LAWS)
@pytest.mark.parametrize("boundary", cns.BOUNDARIES)
def test_friction_conserves_momentum_and_energy_and_never_cools(boundary, viscous_law):
    rng = np.random.default_rng(5)
    w = np.stack([rng.uniform(0.1, 5, (4, 13)), rng.uniform(1e-6, 1, (4, 13)), rng.normal(size=(4, 13))], axis=-1)
    result = _friction(w, np.asarray([0.0, 1e-3, 0.1, 100.0]), boundary, viscous_law)
    np.testing.assert_array_equal(result[0], w[0])
    np.testing.assert_array_equal(result[..., 0], w[..., 0])
    change = np.abs(_totals(result, 1.4) - _totals(w, 1.4))
    assert change[:, :2].max() < 1e-13
    # What the elimination rounds off is kinetic energy in proportion to the step.
    assert np.all(change[:, 2] < [1e-15, 1e-14, 1e-13, 1e-10])
    assert np.all(result[1:, :, 1] > w[1:, :, 1])


@pytest.mark.slow
def test_the_viscous_laws_agree_where_density_is_one():
    rng = np.random.default_rng(6)
    w = np.stack([np.ones((2, 9)), rng.uniform(1, 2, (2, 9)), rng.normal(size=(2, 9))], axis=-1)
    dt = np.asarray([0.01, 0.2])
    kinematic, dynamic = (_friction(w, dt, "periodic", law) for law in cns.VISCOUS_LAWS)
    np.testing.assert_allclose(kinematic, dynamic, rtol=1e-15)
    assert np.abs(kinematic[..., 2] - w[..., 2]).max() > 0.1


@pytest.mark.parametrize("closing", [0.0, 0.8])
def test_the_ring_of_coupled_cells_is_solved_as_a_dense_matrix_would_be(closing):
    rng = np.random.default_rng(7)
    num_cells = 11
    density, coupling = rng.uniform(1, 3, num_cells), rng.uniform(0, 9, num_cells)
    coupling[-1] = closing
    rhs = rng.normal(size=num_cells)
    shift = np.roll(np.eye(num_cells), 1, axis=1)  # takes y_i to y_{i+1}
    difference = shift - np.eye(num_cells)
    matrix = np.diag(density) + difference.T @ np.diag(coupling) @ difference
    with jax.enable_x64(True):
        y = cns._solve_coupled(*(jnp.asarray(a[:, None]) for a in (density, coupling, rhs)))
        y = np.asarray(y)[:, 0]
    np.testing.assert_allclose(y, np.linalg.solve(matrix, rhs), rtol=0, atol=1e-13)


# --- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": 0.0}, "length must be positive and finite, got 0.0"),
        ({"eta": -0.1}, "eta must be finite and >= 0, got -0.1"),
        ({"zeta": float("nan")}, "zeta must be finite and >= 0, got nan"),
        ({"gamma": 1.0}, "gamma must be finite and greater than 1, got 1.0"),
        ({"cfl": 0.6}, "cfl must be positive and at most 0.5, got 0.6"),
        ({"viscous_law": "linear"}, "viscous_law must be one of kinematic, dynamic, got 'linear'"),
        ({"boundary": "wall"}, "boundary must be one of periodic, outflow, got 'wall'"),
        ({"times": np.asarray([0.2, 0.1])}, "times must be finite, >= 0 and in ascending order"),
        ({"times": np.asarray([-0.1, 0.1])}, "times must be finite, >= 0 and in ascending order"),
        ({"times": np.zeros(0)}, "at least one time, got shape"),
        ({"initial": np.ones((1, 3, 3))}, "initial must have shape"),
        ({"initial": np.ones((0, 8, 3))}, "initial must have shape"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    arguments = {"initial": np.ones((1, 8, 3)), "times": np.asarray([0.1])} | change
    with pytest.raises(ValueError, match=message):
        cns.solve(**arguments)


@pytest.mark.parametrize(("channel", "value"), [(0, 0.0), (1, -1.0), (2, np.inf)])
def test_an_impossible_initial_state_is_refused_with_its_sample(channel, value):
    initial = np.ones((3, 8, 3))
    initial[2, 4, channel] = value
    with pytest.raises(ValueError, match="but sample 2 is not"):
        cns.solve(initial, np.asarray([0.1]))


def test_a_solution_that_breaks_down_is_reported_with_sample_and_time():
    initial = np.full((3, 33, 3), [1.0, 1.0, 0.1])
    initial[1, 3] = [1e-300, 1e300, 0.0]  # an infinite speed of sound
    with (
        np.errstate(over="ignore"),
        pytest.raises(ValueError, match=r"sample 1 has values that are not finite.* at time 0\.25"),
    ):
        cns.solve(initial, np.asarray([0.0, 0.25]))
