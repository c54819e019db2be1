"""Fields between walls: the line goes, reflections are odd, sines come back, and the walls are where they are."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.data import equations, mirrored
from ctfno_jax.data.fields import Trajectories
from ctfno_jax.ops import diffusion
from ctfno_jax.solvers import diffusion_sorption

WALLS = mirrored.Walls(left=2.0, right=-0.5, right_slip=0.03)


def _field(places, coefficients):
    """The line between the walls and sines that vanish at both."""
    line = WALLS.left + (WALLS.right - WALLS.left) * places
    waves = np.arange(1, len(coefficients) + 1)
    return (line + np.sin(np.pi * np.outer(places, waves)) @ coefficients)[None, :, None].astype(np.float32)


@pytest.mark.parametrize(("here", "there"), [(50, 16), (51, 17), (20, 24)])
def test_sines_between_the_walls_come_in_and_out_exactly(here, there):
    frame = mirrored.Mirrored(WALLS, there)
    coefficients = np.random.default_rng(0).standard_normal((there - 1) // 2)
    u = _field(frame.places(here), coefficients)
    seen = frame.reflected(jnp.asarray(u))
    period = 2 * np.arange(there) / there  # the walls are at 0 and 1, and beyond 1 the way back
    expected = np.sin(np.pi * np.outer(period, np.arange(1, len(coefficients) + 1))) @ coefficients
    np.testing.assert_allclose(seen[0, :, 0], expected, atol=2e-5)
    np.testing.assert_allclose(frame.between(seen, here), u, atol=2e-5)


def test_the_walls_are_one_cell_beyond_the_centres_but_for_the_slip():
    places = mirrored.Mirrored(WALLS, 16).places(10)
    cell = places[1] - places[0]
    assert places[0] == pytest.approx(cell)  # the left wall is at 0
    assert 1 - places[-1] == pytest.approx(cell + 0.03 * 10 * cell)


def test_the_even_part_of_an_answer_does_not_count():
    frame = mirrored.Mirrored(WALLS, 16)
    rng = np.random.default_rng(1)
    answer = jnp.asarray(rng.standard_normal((1, 16, 1)), jnp.float32)
    cosines = np.cos(2 * np.pi * np.outer(np.arange(16) / 16, np.arange(9))) @ rng.standard_normal(9)
    with_cosines = answer + jnp.asarray(cosines[None, :, None], jnp.float32)
    np.testing.assert_allclose(frame.between(with_cosines, 30), frame.between(answer, 30), atol=1e-5)


def test_a_state_has_the_reflected_field_the_field_itself_and_the_cosine():
    frame = mirrored.Mirrored(WALLS, 20)
    u0 = np.full((3, 40, 1), 0.7, np.float32)
    state = frame.state(jnp.asarray(u0))
    assert state.shape == (3, 20, 3)
    np.testing.assert_allclose(state[..., :1], frame.reflected(jnp.asarray(u0)))
    np.testing.assert_allclose(state[..., 1], 0.7, rtol=1e-5)
    np.testing.assert_allclose(state[0, :, 2], np.cos(2 * np.pi * np.arange(20) / 20), atol=1e-6)


@pytest.mark.parametrize("here", [12, 33, 64])
def test_growth_is_that_of_the_model_and_of_the_way_in_and_out(here):
    frame = mirrored.Mirrored(WALLS, 20)
    zero = jnp.zeros((1, here, 1))
    into = jax.jacobian(lambda e: frame.state(zero + e.reshape(1, here, 1)).ravel())(jnp.zeros(here))
    answers = jnp.zeros(20)
    out = jax.jacobian(lambda e: frame.between(e.reshape(1, 20, 1), here).ravel())(answers)
    odd = jax.jacobian(lambda e: frame.reflected(zero + e.reshape(1, here, 1)).ravel())(jnp.zeros(here))
    norms = [np.linalg.norm(matrix, 2) for matrix in (into, out, odd)]
    model = np.array([0.5, 3.0])
    np.testing.assert_allclose(frame.growth(model, here), norms[0] * norms[1] * model, rtol=1e-4)
    diffusing = dataclasses.replace(frame, diffusivity=0.01)
    np.testing.assert_allclose(diffusing.growth(model, here), norms[1] * (norms[0] * model + norms[2]), rtol=1e-4)


def test_trajectories_come_in_and_answers_come_out():
    frame = mirrored.Mirrored(WALLS, 16)
    rng, times = np.random.default_rng(2), np.array([0.1, 0.2, 0.3], np.float32)
    u = np.stack([[_field(frame.places(30), rng.standard_normal(7))[0] for _ in times] for _ in range(5)])
    seen = frame.enter(Trajectories(u[:, 0], times, u))
    assert (seen.u0.shape, seen.u.shape) == ((5, 16, 3), (5, 3, 16, 1))
    placement = frame.place(u[:, 0])
    np.testing.assert_array_equal(placement.state, seen.u0)
    np.testing.assert_array_equal(frame.enter_times(times, placement), times)
    np.testing.assert_allclose(seen.u[:, 0], seen.u0[..., :1], atol=2e-5)  # solutions are states again
    np.testing.assert_allclose(frame.leave(seen.u, times, placement), u, atol=2e-5)
    np.testing.assert_allclose(frame.worth(placement, np.array([4.0])), np.full((5, 1), 0.25))


def test_what_diffusion_would_do_is_subtracted_and_added_again():
    """Nothing is left of fields that diffuse between the walls, and something of others."""
    frame = mirrored.Mirrored(WALLS, 16, diffusivity=0.004)
    times = np.array([0.1, 0.5, 2.0], np.float32)
    u0 = _field(frame.places(30), np.random.default_rng(3).standard_normal(7))
    decays = diffusion.propagate(frame.reflected(jnp.asarray(u0)), jnp.asarray(times), 0.004)
    solutions = np.asarray(frame.between(decays, 30))
    np.testing.assert_allclose(frame.enter(Trajectories(u0, times, solutions)).u, 0, atol=2e-5)
    others = solutions + 0.3 * np.sin(np.pi * frame.places(30))[:, None].astype(np.float32)
    seen = frame.enter(Trajectories(u0, times, others))
    expected = 0.3 * np.sin(2 * np.pi * np.arange(16) / 16)
    np.testing.assert_allclose(seen.u[0, :, :, 0], np.tile(expected, (3, 1)), atol=2e-5)
    np.testing.assert_allclose(frame.leave(seen.u, times, frame.place(u0)), others, atol=2e-5)


@pytest.mark.parametrize("here", [8, 9, 30, 64, 200])
def test_little_grows_on_the_way_on_any_grid(here):
    assert mirrored.Mirrored(mirrored.Walls(1.0, 0.0, 5e-4), 64).growth(np.ones(1), here) < 2


def test_two_channels_and_times_of_each_sample_are_as_good():
    frame = mirrored.Mirrored(WALLS, 16, diffusivity=0.004)
    rng = np.random.default_rng(4)
    u0 = np.concatenate([_field(frame.places(30), rng.standard_normal(7)) for _ in range(6)]).reshape(2, 3, 30)
    u0 = np.moveaxis(u0[:, :2], 1, 2)  # two samples of two channels
    each = np.array([[0.1, 0.4, 0.9], [0.2, 0.3, 2.0]], np.float32)
    u = rng.standard_normal((2, 3, 16, 2)).astype(np.float32)
    together = frame.leave(u, each, frame.place(u0))
    for i in range(2):
        for channel in range(2):
            one = (slice(i, i + 1), ..., slice(channel, channel + 1))
            alone = frame.leave(u[one], each[i], frame.place(u0[one]))
            np.testing.assert_allclose(together[one], alone, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 7, 1), (2, 16), (2, 8, 8, 1)])
def test_states_of_another_kind_are_refused(shape):
    with pytest.raises(ValueError, match=r"states must have shape \(batch, x, channels\) with 8 points or more, got"):
        mirrored.Mirrored(WALLS, 16).place(np.zeros(shape, np.float32))


def test_solutions_of_diffusion_sorption_are_a_few_sines_between_its_walls():
    """With walls half a cell away from where they are, as many sines miss the solution by a hundred times as much."""
    u0 = np.repeat([[0.003], [0.19]], 256, axis=1)
    u = diffusion_sorption.solve(u0, np.array([10.0, 300.0]))[..., None].astype(np.float32)
    walls = equations.EQUATIONS["diffusion_sorption"].walls
    assert walls is not None

    def missed(walls):
        frame = mirrored.Mirrored(walls, 128)
        return float(np.sqrt(np.mean((frame.between(frame.reflected(jnp.asarray(u)), 256) - u) ** 2)))

    assert missed(walls) < 2e-6
    assert missed(mirrored.Walls(walls.left, walls.right, walls.right_slip + 0.5 / 256)) > 2e-5
