"""Frames of a flow: what goes in comes out, and the equations do not notice."""

import numpy as np
import pytest

from ctfno_jax.data import frames
from ctfno_jax.data.fields import Trajectories
from ctfno_jax.solvers import compressible_navier_stokes as navier_stokes

LENGTH = 2.0
TIMES = np.array([0.05, 0.2, 0.45])


def _waves(num_points: int, num_samples: int = 4) -> np.ndarray:
    """Smooth flows with means of their own: density, pressure, velocity."""
    rng = np.random.default_rng(0)
    x = np.arange(num_points) / num_points
    phases = rng.uniform(0, 2 * np.pi, (num_samples, 1, 3))
    waves = np.sin(2 * np.pi * x[None, :, None] * np.array([1, 2, 1]) + phases)
    means = np.array([2.0, 5.0, 0.0]) + rng.uniform(0, 1, (num_samples, 1, 3))
    return means + waves * np.array([0.5, 1.0, 0.2])


def _frame(kind: str = "comoving", law: str = "kinematic") -> frames.FlowFrame:
    return frames.FlowFrame(kind, LENGTH, law)


def test_the_drift_is_momentum_over_mass():
    u0 = np.ones((2, 4, 3))
    u0[..., 0] = [[1, 1, 1, 1], [1, 2, 3, 4]]
    u0[..., 2] = [[3, 3, 3, 3], [0, 0, 0, 5]]
    np.testing.assert_allclose(_frame().place(u0).velocity, [3.0, 2.0])


def test_the_units_are_mean_density_and_sound_speed():
    u0 = np.zeros((1, 2, 3))
    u0[..., 0], u0[..., 1] = [1, 3], [2, 8]  # means 2 and 5: the speed is sqrt(5/3 * 5 / 2)
    placement = _frame("acoustic").place(u0)
    speed = np.sqrt(25 / 6)
    np.testing.assert_allclose([placement.density[0], placement.speed[0]], [2.0, speed])
    np.testing.assert_allclose(placement.units[0], [2.0, 2 * speed**2, speed])


@pytest.mark.parametrize("num_points", [8, 9])
def test_a_translation_by_whole_cells_is_a_roll(num_points):
    u = np.random.default_rng(1).normal(size=(2, 3, num_points, 3))
    cells = np.array([[0, 1, -2], [3, 5, 7]])
    moved = frames.translate(u, cells * LENGTH / num_points, LENGTH)
    for sample in range(2):
        for time in range(3):
            expected = np.roll(u[sample, time], -cells[sample, time], axis=0)
            np.testing.assert_allclose(moved[sample, time], expected, atol=1e-12)


def test_a_translation_moves_a_wave_by_any_distance():
    x = np.arange(16) / 16 * LENGTH
    u = np.cos(2 * np.pi * 3 * x / LENGTH)[None, None, :, None]
    moved = frames.translate(u, np.array([[0.123]]), LENGTH)
    np.testing.assert_allclose(moved[0, 0, :, 0], np.cos(2 * np.pi * 3 * (x + 0.123) / LENGTH), atol=1e-12)


@pytest.mark.parametrize("num_points", [16, 17])
@pytest.mark.parametrize("kind", frames.FRAMES)
def test_leaving_undoes_entering(num_points, kind):
    frame = _frame(kind)
    u0 = _waves(num_points)
    u = np.stack([u0, u0 + 0.1, u0[:, ::-1]], axis=1)
    inside = frame.enter(Trajectories(u0, TIMES, u))
    placement = frame.place(u0)
    # Some points of the top frequency of an even grid cannot be moved and moved back.
    np.testing.assert_allclose(frame.leave(inside.u, TIMES, placement), u, rtol=1e-5, atol=1e-5)
    own_times = np.tile(TIMES, (len(u0), 1))
    np.testing.assert_array_equal(frame.leave(inside.u, own_times, placement), frame.leave(inside.u, TIMES, placement))


def test_inside_the_centre_of_mass_rests_and_units_are_one():
    u0 = _waves(16)
    inside = _frame("acoustic").enter(Trajectories(u0, TIMES, np.stack([u0] * 3, axis=1)))
    placement = _frame("acoustic").place(inside.u0[..., :3])
    np.testing.assert_allclose(placement.velocity, 0, atol=1e-6)
    np.testing.assert_allclose(placement.density, 1, rtol=1e-6)
    np.testing.assert_allclose(placement.speed, 1, rtol=1e-6)
    assert inside.u0.shape == (4, 16, 4)
    assert inside.u.shape == (4, 3, 16, 3)
    speed = _frame("acoustic").place(u0).speed
    np.testing.assert_allclose(inside.times, speed[:, None] * TIMES, rtol=1e-6)
    np.testing.assert_allclose(inside.u0[..., 3], np.log(speed)[:, None] * np.ones(16), rtol=1e-6)


def test_flows_that_differ_by_their_drift_are_one_flow_inside():
    u0 = _waves(64, num_samples=1)
    flows = np.concatenate([u0, frames.boost(u0, np.array([1.7]))])
    u = navier_stokes.solve(flows, TIMES)
    inside = _frame().enter(Trajectories(flows, TIMES, u))
    np.testing.assert_allclose(inside.u0[0], inside.u0[1], atol=1e-6)
    # The solver's steps and limiters are not invariant: they differ by its error on this coarse grid.
    assert np.abs(u[0] - u[1]).max() > 1.0
    assert np.abs(inside.u[0] - inside.u[1]).max() < 0.02


@pytest.mark.parametrize("law", navier_stokes.VISCOUS_LAWS)
def test_flows_of_other_units_but_equal_viscosity_are_one_flow_inside(law):
    """Density times 3 and speed times 2: with twice the viscosity (six times if dynamic) the same flow, faster."""
    u0 = _waves(32, num_samples=1)
    density, speed = 3.0, 2.0
    scaled = u0 * np.array([density, density * speed**2, speed])
    factor = speed * (density if law == "dynamic" else 1.0)
    u = navier_stokes.solve(u0, TIMES, viscous_law=law)
    faster = navier_stokes.solve(scaled, TIMES / speed, eta=0.1 * factor, zeta=0.1 * factor, viscous_law=law)
    frame = _frame("acoustic", law)
    one = frame.enter(Trajectories(u0, TIMES, u))
    other = frame.enter(Trajectories(scaled, TIMES / speed, faster))
    np.testing.assert_allclose(one.u, other.u, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one.times, other.times, rtol=1e-6)
    np.testing.assert_allclose(one.u0[..., :3], other.u0[..., :3], rtol=1e-5, atol=1e-6)
    # What tells them apart is the viscosity over density and speed.
    np.testing.assert_allclose(other.u0[..., 3] - one.u0[..., 3], np.log(factor), rtol=1e-5)


def test_inputs_are_left_alone():
    u0 = _waves(8).astype(np.float32)
    before = u0.copy()
    assert frames.boost(u0, np.ones(len(u0))).dtype == np.float32
    np.testing.assert_array_equal(u0, before)


def test_what_is_no_flow_is_refused():
    with pytest.raises(ValueError, match="unknown frame 'moving'; known are comoving, acoustic"):
        frames.FlowFrame("moving", 1.0)
    with pytest.raises(ValueError, match="must be positive on average"):
        _frame("acoustic").place(-_waves(8))
