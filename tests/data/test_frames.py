"""Frames of a flow: what goes in comes out, and the equations do not notice."""

import numpy as np
import pytest

from ctfno_jax import config
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


def test_units_are_the_density_and_sound_speed_at_rest():
    """A gas of one entropy: at rest it is uniform, with the mass that it has and the pressure that its energy tells."""
    u0 = np.zeros((1, 2, 3))
    u0[..., 0], u0[..., 1] = [1, 3], [1, 3 ** (5 / 3)]
    u0[..., 2] = [3.0, -1.0]  # no drift, and rho v^2 / 2 is 3 on average
    placement = _frame("acoustic").place(u0)
    at_rest = (1 + 3 ** (5 / 3)) / 2 + 2
    density_at_rest = 2.0
    np.testing.assert_allclose(placement.density, density_at_rest)
    np.testing.assert_allclose(placement.speed, np.sqrt(5 / 3 * at_rest / density_at_rest))
    np.testing.assert_allclose(placement.state[..., 0], 0, atol=1e-6)
    np.testing.assert_allclose(placement.impedance, 1)


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
def test_leaving_undoes_entering(num_points):
    frame = _frame()
    u0 = _waves(num_points)
    u = np.stack([u0, u0 + 0.1, u0[:, ::-1]], axis=1)
    inside = frame.enter(Trajectories(u0, TIMES, u))
    placement = frame.place(u0)
    # Some points of the top frequency of an even grid cannot be moved and moved back.
    np.testing.assert_allclose(frame.leave(inside.u, TIMES, placement), u, rtol=1e-5, atol=1e-5)
    own_times = np.tile(TIMES, (len(u0), 1))
    np.testing.assert_array_equal(frame.leave(inside.u, own_times, placement), frame.leave(inside.u, TIMES, placement))


@pytest.mark.parametrize("num_points", [96, 97])
@pytest.mark.parametrize("kind", ["particles", "acoustic"])
def test_particles_are_followed_and_released(num_points, kind):
    """Up to the error of interpolation, where mass is kept."""
    frame = _frame(kind)
    u0 = _waves(num_points)
    u = navier_stokes.solve(u0, TIMES)
    inside = frame.enter(Trajectories(u0, TIMES, u))
    assert inside.u0.shape == (4, num_points, 4)
    np.testing.assert_allclose(frame.leave(inside.u, TIMES, frame.place(u0)), u, rtol=5e-4, atol=5e-4)


def test_time_is_counted_in_turns_of_sound():
    u0 = np.full((1, 8, 3), [2.0, 5.0, 0.3])
    turns = np.sqrt(5 / 3 * 5 / 2) * TIMES / LENGTH
    np.testing.assert_allclose(_frame("acoustic").enter_times(TIMES, _frame("acoustic").place(u0)), [turns], rtol=1e-6)
    np.testing.assert_array_equal(_frame("particles").enter_times(TIMES, _frame("particles").place(u0)), TIMES)


def _nearly_without_friction(kind: str) -> frames.FlowFrame:
    return frames.FlowFrame(kind, LENGTH, viscosity=7 / 3 * 1e-8)


@pytest.mark.parametrize("turns", [0.3, 1.0])
@pytest.mark.parametrize("direction", [1, -1])
def test_a_small_wave_through_thin_and_dense_gas_is_known_beforehand(turns, direction):
    """A pulse without friction keeps its shape and comes back in a turn: but for its echoes nothing is left of it."""
    num_points = 512
    x = 2 * np.pi * np.arange(num_points) / num_points
    density = 2 + np.cos(x)
    speed = np.sqrt(5 / 3 * 5 / density)
    pulse = 1e-3 * np.exp(8 * (np.cos(x - 1) - 1))
    u0 = np.stack([density + pulse * density, 5 * (1 + 5 / 3 * pulse), direction * speed * pulse], axis=-1)[None]
    frame = _nearly_without_friction("acoustic")
    placement = frame.place(u0)
    time = turns * LENGTH / placement.speed
    u = navier_stokes.solve(u0, time, eta=1e-8, zeta=1e-8)
    inside = frame.enter(Trajectories(u0, time, u))
    np.testing.assert_allclose(inside.times, [[turns]], rtol=1e-6)
    for channel in (1, 2):
        pulse_there, left = inside.u0[0, :, channel], inside.u[0, 0, :, channel]
        assert np.sqrt(np.mean(left**2)) < 0.25 * np.sqrt(np.mean(pulse_there**2))


@pytest.mark.parametrize("num_points", [16, 17])
def test_waves_of_both_directions_are_held(num_points):
    """Two waves that have run apart are put together again; entropy is left alone."""
    label = 2 * np.pi * np.arange(num_points) / num_points
    wave = lambda k, turns: np.cos(k * (label - 2 * np.pi * turns))  # noqa: E731
    fields = lambda turns: np.stack(  # noqa: E731
        [label, wave(1, turns) + wave(2, -turns), wave(1, turns) - wave(2, -turns)], axis=-1
    )
    turns = np.array([[0.0, 1.3, 1.6]])
    u = np.stack([fields(t) for t in turns[0]])[None]
    held = frames.hold_waves(u, turns)
    np.testing.assert_allclose(held, np.stack([fields(0.0)] * 3)[None], atol=1e-12)
    np.testing.assert_allclose(frames.hold_waves(held, -turns), u, atol=1e-12)


def test_particles_of_a_smooth_flow_gain_no_entropy_but_by_friction():
    frame = _frame("particles")
    u0 = _waves(96)
    seen = [
        frame.enter(Trajectories(u0, TIMES[:2], navier_stokes.solve(u0, TIMES[:2], eta=nu, zeta=nu))).u[..., 0]
        for nu in (1e-6, 0.1)
    ]
    # The limiter of the solver flattens extrema a little, which looks like entropy of either sign.
    assert np.sqrt(np.mean(seen[0] ** 2)) < 5e-4
    assert seen[1].mean() > 2e-3


def test_the_density_that_comes_out_has_the_mass_that_went_in():
    frame = _frame("particles")
    u0 = _waves(24)
    answer = 0.3 * np.random.default_rng(2).normal(size=(4, 3, 24, 3))
    u = frame.leave(answer, TIMES, frame.place(u0))
    np.testing.assert_allclose(u[..., 0].sum(-1), np.tile(u0[..., 0].sum(-1)[:, None], 3), rtol=1e-6)


@pytest.mark.parametrize("kind", ["comoving", "particles", "acoustic"])
def test_a_small_error_inside_is_worth_what_it_is_outside(kind):
    """All channels together, on the average over a turn, for a flow that is nearly uniform."""
    frame = _frame(kind)
    u0 = np.array([2.0, 5.0, 0.0]) + 1e-6 * _waves(16)
    deviation = np.array([0.3, 2.0, 0.7])
    placement = frame.place(u0)
    times = np.arange(8) / 8 * LENGTH / np.sqrt(5 / 3 * 5 / 2)
    inside = frame.enter(Trajectories(u0, times, np.stack([u0] * 8, axis=1))).u.astype(np.float64)
    before = frame.leave(inside, times, placement)
    for channel in range(3):
        # Mass is kept, so an error that is the same everywhere is no error of the density.
        error = np.zeros_like(inside)
        error[..., channel] = 1e-3 * np.cos(2 * np.pi * np.arange(16) / 16)
        change = (frame.leave(inside + error, times, placement) - before) / deviation
        size = np.sqrt(np.sum(np.mean(change**2, axis=(1, 2)), axis=-1))
        np.testing.assert_allclose(size, 1e-3 * frame.worth(placement, deviation)[:, channel] / np.sqrt(2), rtol=0.02)


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
    one = _frame("acoustic", law).enter(Trajectories(u0, TIMES, u))
    stickier = frames.FlowFrame("acoustic", LENGTH, law, viscosity=factor * 7 / 30)
    other = stickier.enter(Trajectories(scaled, TIMES / speed, faster))
    np.testing.assert_allclose(one.u, other.u, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(one.times, other.times, rtol=1e-6)
    np.testing.assert_allclose(one.u0, other.u0, rtol=1e-5, atol=1e-6)
    # What would tell them apart is the viscosity over density and speed.
    same = _frame("acoustic", law).place(scaled).state
    np.testing.assert_allclose(one.u0[..., 3] / same[..., 3], factor, rtol=1e-5)


def test_inputs_are_left_alone():
    u0 = _waves(8).astype(np.float32)
    before = u0.copy()
    assert frames.boost(u0, np.ones(len(u0))).dtype == np.float32
    np.testing.assert_array_equal(u0, before)


def test_what_is_no_flow_is_refused():
    with pytest.raises(ValueError, match="unknown frame 'moving'; known are comoving, particles, acoustic, states"):
        frames.FlowFrame("moving", 1.0)
    vacuum = _waves(8)
    vacuum[0, 3, 0] = 0.0
    with pytest.raises(ValueError, match="must be positive; check the order of channels"):
        _frame("acoustic").place(vacuum)


@pytest.mark.parametrize("kind", ["acoustic", "states"])
def test_labels_have_the_mass_that_sound_at_rest_sees(kind):
    """Impedance times label is mass: momentum is then the mean of sqrt(impedance) times the velocity inside."""
    u0 = _waves(128)
    placement = _frame(kind).place(u0)
    for i, particles in enumerate(placement.particles):
        mass = particles.mass / particles.mass.mean()
        np.testing.assert_allclose(mass, placement.impedance[i] ** 2 / np.mean(placement.impedance[i] ** 2), rtol=2e-3)


def test_what_comes_out_has_the_momentum_and_energy_that_went_in():
    frame = _frame("acoustic")
    u0 = _waves(256)
    answer = 0.02 * frames.resample(np.random.default_rng(5).normal(size=(4, 3, 16, 3)), 256)
    u = frame.leave(answer, TIMES, frame.place(u0))
    energy = lambda w: np.mean(1.5 * w[..., 1] + w[..., 0] * w[..., 2] ** 2 / 2, axis=-1)  # noqa: E731
    momentum = lambda w: np.mean(w[..., 0] * w[..., 2], axis=-1)  # noqa: E731
    for invariant in (energy, momentum):
        before = np.repeat(invariant(u0)[:, None], 3, axis=1)
        np.testing.assert_allclose(invariant(u), before, rtol=1e-4, atol=1e-4)
    # It is the answer that has them, not the frame that ignores it.
    assert np.abs(u - frame.leave(0 * answer, TIMES, frame.place(u0))).max() > 0.05


def test_an_answer_of_more_motion_than_energy_stays_finite():
    frame = _frame("acoustic")
    u0 = _waves(64)
    answer = np.zeros((4, 3, 64, 3))
    answer[..., 2] = 5 * np.cos(2 * np.pi * np.arange(64) / 64)
    assert np.isfinite(frame.leave(answer, TIMES, frame.place(u0))).all()


@pytest.mark.parametrize("num_labels", [48, 49])
def test_states_go_on_from_the_initial_one_and_come_out_again(num_labels):
    frame = frames.FlowFrame("states", LENGTH, num_labels=num_labels)
    u0 = _waves(192)
    times = np.array([0.0, 0.05, 0.2])
    u = navier_stokes.solve(u0, times)
    inside = frame.enter(Trajectories(u0, times, u))
    assert inside.u0.shape == (4, num_labels, 5)
    assert inside.u.shape == (4, 3, num_labels, 3)
    # At time zero the solution is the first channels of the state; no entropy has been gained.
    np.testing.assert_allclose(inside.u[:, 0], inside.u0[..., :3], atol=2e-3)
    np.testing.assert_allclose(frame.leave(inside.u, times, frame.place(u0)), u, rtol=3e-3, atol=3e-3)
    np.testing.assert_allclose(inside.times, _frame("acoustic").enter_times(times, frame.place(u0)))


def test_states_by_the_clock_are_the_same_states_at_times_as_they_are():
    by_sound, by_clock = (frames.FlowFrame(kind, LENGTH, num_labels=32) for kind in config.STATE_FRAMES)
    u0, times = _waves(64), np.array([0.05, 0.2])
    trajectories = Trajectories(u0, times, navier_stokes.solve(u0, times))
    one, other = by_sound.enter(trajectories), by_clock.enter(trajectories)
    np.testing.assert_array_equal(one.u0, other.u0)
    np.testing.assert_array_equal(one.u, other.u)
    np.testing.assert_array_equal(other.times, times)
    left = [f.leave(one.u, times, f.place(u0)) for f in (by_sound, by_clock)]
    np.testing.assert_array_equal(*left)
    assert (by_clock.own_grid, by_clock.own_units) == (True, True)


def test_a_state_looks_the_same_from_every_grid():
    fine, coarse = (_waves(n) for n in (256, 128))
    frame = frames.FlowFrame("states", LENGTH, num_labels=32)
    one, other = (np.abs(np.fft.rfft(frame.place(u0).state, axis=1)) for u0 in (fine, coarse))
    # Labels begin half a cell after the first point, so phases differ and sizes do not.
    np.testing.assert_allclose(one, other, rtol=1e-2, atol=2e-2)


def test_states_are_of_the_order_of_one():
    rng = np.random.default_rng(7)
    u0 = np.stack([navier_stokes.sample_initial_fields(rng, 256) for _ in range(50)])
    deviation = frames.FlowFrame("states", LENGTH).place(u0).state.std(axis=(0, 1))[1:]
    assert np.all((deviation > 0.2) & (deviation < 5))


@pytest.mark.parametrize(("before", "after"), [(16, 9), (9, 16), (15, 15), (12, 40)])
def test_resampling_keeps_the_waves_that_fit(before, after):
    waves = lambda n: (1 + np.sin(2 * np.pi * np.arange(n) / n) + np.cos(6 * np.pi * np.arange(n) / n))[:, None]  # noqa: E731
    np.testing.assert_allclose(frames.resample(waves(before), after), waves(after), atol=1e-12)


def test_resampling_drops_the_waves_that_do_not_fit():
    short = np.cos(2 * np.pi * 6 * np.arange(16) / 16)[:, None]
    np.testing.assert_allclose(frames.resample(short, 8), 0, atol=1e-12)
