"""Generators of the five equations, and the symmetries that the table of problems declares for each."""

import functools

import numpy as np
import pytest

from ctfno_jax.data import equations, problems
from ctfno_jax.data.trajectories import Trajectories
from ctfno_jax.solvers import burgers, diffusion_sorption, heat, reaction
from ctfno_jax.solvers import compressible_navier_stokes as navier_stokes

OPTIONS = {
    "heat": {"num_points": 16, "num_times": 3},
    "burgers": {"num_points": 16, "num_times": 3, "final_time": 0.03},
    "diffusion_sorption": {"num_points": 16, "num_times": 3, "final_time": 50.0},
    "navier_stokes": {"num_points": 16, "num_times": 3, "final_time": 0.02},
    "reaction": {"num_points": 16, "num_times": 3, "final_time": 0.6},
}
EQUATIONS = {name: entry for name, entry in problems.PROBLEMS.items() if isinstance(entry, problems.FieldProblem)}
EACH_EQUATION = pytest.mark.parametrize("name", sorted(EQUATIONS))


@functools.cache
def _generate(name: str, first: int = 0, seed: int = 0) -> Trajectories:
    """Two samples on 16 points at three times, always: every other shape would be compiled again."""
    return EQUATIONS[name].generate(2, seed, first, **OPTIONS[name])


# --- generators ---------------------------------------------------------------------------------------------------


@EACH_EQUATION
def test_shapes_times_and_precision(name):
    data, num_channels = _generate(name), len(EQUATIONS[name].channels)
    assert (data.u0.shape, data.u.shape) == ((2, 16, num_channels), (2, 3, 16, num_channels))
    assert {data.u0.dtype, data.times.dtype, data.u.dtype} == {np.dtype(np.float32)}
    final_time = OPTIONS[name].get("final_time", 2.5)
    np.testing.assert_allclose(data.times, final_time * np.arange(1, 4) / 3, rtol=1e-6)


@EACH_EQUATION
def test_a_sample_is_the_same_whichever_others_are_asked_for(name):
    one, other = _generate(name), _generate(name, first=1)
    np.testing.assert_array_equal(other.u0[0], one.u0[1])
    np.testing.assert_allclose(other.u[0], one.u[1], rtol=1e-5, atol=1e-6)


@EACH_EQUATION
def test_samples_of_different_seeds_and_of_one_seed_all_differ(name):
    u0 = np.concatenate([_generate(name).u0, _generate(name, seed=1).u0])
    distance = np.abs(u0[:, None] - u0[None]).max((2, 3))
    assert np.all(distance[~np.eye(4, dtype=bool)] > 1e-3)


@EACH_EQUATION
def test_the_solution_starts_from_the_initial_state(name):
    # After a millionth of the time between two samples nothing has moved but the first cell of diffusion-sorption.
    data = EQUATIONS[name].generate(2, 0, **{**OPTIONS[name], "final_time": 1e-6})
    np.testing.assert_allclose(data.u[:, 0], data.u0, rtol=1e-5, atol=1e-5 * np.abs(data.u0).max())


@pytest.mark.parametrize("option", [{"num_points": 1}, {"num_times": 0}, {"refinement": 0}])
@EACH_EQUATION
def test_sizes_that_are_too_small_are_refused(name, option):
    with pytest.raises(ValueError, match="num_points must be at least 2, num_times and refinement at least 1"):
        EQUATIONS[name].generate(1, 0, **{**OPTIONS[name], **option})


@pytest.mark.parametrize(
    ("name", "option"),
    [(name, "final_time") for name in sorted(EQUATIONS)]
    + [(name, option) for name in ("heat", "burgers") for option in ("viscosity", "sigma", "tau")]
    + [("reaction", option) for option in ("rate", "max_wave", "margin")],
)
def test_options_that_must_be_positive(name, option):
    with pytest.raises(ValueError, match=f"must all be positive: .*{option}=-1.0"):
        EQUATIONS[name].generate(1, 0, **{**OPTIONS[name], option: -1.0})


def test_an_unknown_viscous_law_is_refused():
    with pytest.raises(ValueError, match="viscous_law"):
        equations.navier_stokes_trajectories(1, 0, **OPTIONS["navier_stokes"], viscous_law="turbulent")


def test_heat_solutions_follow_from_their_own_initial_states():
    data = equations.heat_trajectories(4, 0, num_points=16, num_times=3, viscosity=5e-3, final_time=1.5)
    np.testing.assert_allclose(data.times, [0.5, 1.0, 1.5], rtol=1e-6)
    u0_hat = np.fft.rfft(data.u0[..., 0].astype(np.float64), norm="forward")
    expected = heat.solve(u0_hat, data.times.astype(np.float64), 16, 5e-3)
    np.testing.assert_allclose(data.u[..., 0], expected, rtol=0, atol=1e-6)


def test_initial_fields_of_burgers_have_the_size_of_the_public_generator():
    # Initial states only: they are those of the heat equation with the same spectrum, which is solved at once.
    options = {"num_points": 16, "tau": 7.0, "num_times": 3}
    public, literal = (equations.heat_trajectories(200, 0, sigma=sigma, **options).u0 for sigma in (49.0, 7.0))
    np.testing.assert_array_equal(_generate("burgers").u0, public[:2])
    assert public.std() == pytest.approx(0.27, abs=0.02)
    np.testing.assert_allclose(7 * literal, public, rtol=1e-5, atol=1e-7)


def test_initial_states_of_diffusion_sorption_are_constants():
    u0 = _generate("diffusion_sorption").u0
    np.testing.assert_array_equal(u0, np.broadcast_to(u0[:, :1], u0.shape))
    assert np.all((u0 >= 0) & (u0 <= 0.2))


def test_reactions_follow_from_their_own_initial_states():
    data = equations.reaction_trajectories(4, 0, num_points=16, num_times=3, rate=2.0, final_time=1.5)
    np.testing.assert_allclose(data.times, [0.5, 1.0, 1.5], rtol=1e-6)
    expected = reaction.solve(data.u0[..., 0].astype(np.float64), data.times.astype(np.float64), rate=2.0)
    np.testing.assert_allclose(data.u[..., 0], expected, rtol=0, atol=1e-5)


def test_initial_states_of_reactions_are_two_sines_and_an_exponential_around_two():
    x = np.arange(32) / 32
    basis = np.stack([*(np.sin(2 * np.pi * k * x) for k in range(1, 4)), np.exp(-x)], axis=-1)
    u0 = equations.reaction_trajectories(7, 0, num_points=32, num_times=1, max_wave=3).u0[..., 0]
    weights, residuals, _, _ = np.linalg.lstsq(basis, u0.T - 2, rcond=None)
    assert residuals.max() < 1e-9
    # At most two of the three sines, one of them if both are the same.
    assert np.all((np.abs(weights[:3]) > 1e-4).sum(0) <= 2)
    assert np.abs(weights[2]).max() > 1e-2


def test_a_larger_margin_rejects_the_states_below_it_and_leaves_the_others():
    options = {"num_points": 16, "num_times": 1}
    low, high = (equations.reaction_trajectories(40, 0, margin=margin, **options).u0 for margin in (0.05, 0.9))
    assert low.min() >= 0.05
    assert high.min() >= 0.9
    kept = low.min((1, 2)) >= 0.9
    assert 5 < kept.sum() < 35
    np.testing.assert_array_equal(low[kept], high[kept])
    assert np.all(np.abs(low[~kept] - high[~kept]).max((1, 2)) > 1e-3)
    few, many = (equations.rejected_reactions(40, 0, num_points=16, margin=margin) for margin in (0.05, 0.9))
    assert many - few >= np.sum(~kept)


def test_rejected_draws_are_those_of_all_samples_together():
    counts = [equations.rejected_reactions(1, 0, first, num_points=16, margin=1.5) for first in range(6)]
    assert 0 < max(counts) < sum(counts)
    assert equations.rejected_reactions(6, 0, num_points=16, margin=1.5) == sum(counts)
    assert equations.rejected_reactions(3, 0, 2, num_points=16, margin=1.5) == sum(counts[2:5])


def test_a_margin_that_no_draw_can_keep_is_refused():
    with pytest.raises(ValueError, match=r"no draw stays above margin=1000\.0; choose a smaller one"):
        equations.reaction_trajectories(1, 0, num_points=4, num_times=1, margin=1000.0)


# --- refinement ---------------------------------------------------------------------------------------------------

# Of 16 cells the second-order scheme for the flow resolves little; the others are converged to single precision.
ERRORS = {"heat": 0.0, "burgers": 1e-6, "diffusion_sorption": 1e-5, "navier_stokes": 0.3, "reaction": 0.0}


@EACH_EQUATION
def test_refinement_gives_nearly_the_same_solution(name):
    error = equations.discretisation_error(EQUATIONS[name].generate, 0, **OPTIONS[name])
    assert 0 <= error <= ERRORS[name]


def test_the_discretisation_error_is_that_of_the_worst_channel_and_falls_with_the_grid():
    options = OPTIONS["navier_stokes"]
    coarse, fine = (equations.navier_stokes_trajectories(2, 0, refinement=r, **options).u.astype(float) for r in (1, 2))
    by_channel = np.sqrt(np.square(coarse - fine).mean((0, 1, 2)) / np.square(fine).mean((0, 1, 2)))
    generate = equations.navier_stokes_trajectories
    error = equations.discretisation_error(generate, 0, **options)
    assert error == pytest.approx(by_channel.max(), rel=1e-4)
    finer = equations.discretisation_error(generate, 0, refinement=2, **options)
    assert finer < error


# --- symmetries ---------------------------------------------------------------------------------------------------

NUM_POINTS, TIMES = 15, np.asarray([0.02, 0.05])


def _solve(name: str, u0: np.ndarray) -> np.ndarray:
    """Solutions of states ``(batch, x, channels)``, by the solver itself."""
    if name == "navier_stokes":
        return navier_stokes.solve(u0, TIMES)
    if name == "diffusion_sorption":
        return diffusion_sorption.solve(u0[..., 0], 1000 * TIMES)[..., None]
    if name == "reaction":
        return reaction.solve(u0[..., 0], TIMES)[..., None]
    u0_hat = np.fft.rfft(u0[..., 0], norm="forward")
    if name == "heat":
        return heat.solve(u0_hat, TIMES, NUM_POINTS, 0.02)[..., None]
    return burgers.solve(u0_hat, TIMES, NUM_POINTS, 0.02, internal_points=4 * NUM_POINTS, max_step=5e-3)[..., None]


def _state(name: str) -> np.ndarray:
    """A state without symmetry that every equation accepts."""
    x = 2 * np.pi * np.arange(NUM_POINTS) / NUM_POINTS
    field = 0.5 + 0.3 * np.sin(x + 0.4) + 0.15 * np.cos(3 * x)
    if name == "navier_stokes":
        return np.stack([1 + field, 10 * (1 + field**2), field - 0.3], axis=-1)[None]
    return field[None, :, None]


def _reflect(u: np.ndarray, signs: tuple[float, ...]) -> np.ndarray:
    return u[..., -np.arange(NUM_POINTS) % NUM_POINTS, :] * np.asarray(signs)


def _shows(name: str, transform) -> bool:
    """Whether the solution of the transformed state is the transformed solution."""
    u0 = _state(name)
    expected = transform(_solve(name, u0))
    found = _solve(name, transform(u0))
    assert np.abs(expected - transform(u0)[:, None]).max() > 1e-3  # something has happened
    return bool(np.abs(found - expected).max() < 1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("name", [name for name in sorted(EQUATIONS) if EQUATIONS[name].reflection is not None])
def test_reflections_map_solutions_to_solutions_where_they_are_declared(name):
    signs = EQUATIONS[name].reflection
    assert signs is not None
    assert len(signs) == len(EQUATIONS[name].channels)
    assert _shows(name, lambda u: _reflect(u, signs))


@EACH_EQUATION
def test_translations_map_solutions_to_solutions_exactly_where_they_are_declared(name):
    assert _shows(name, lambda u: np.roll(u, 4, axis=-2)) is EQUATIONS[name].periodic


def test_diffusion_sorption_is_the_only_one_that_is_not_periodic():
    assert [name for name in sorted(EQUATIONS) if not EQUATIONS[name].periodic] == ["diffusion_sorption"]
    assert EQUATIONS["diffusion_sorption"].reflection is None


def test_a_change_of_sign_maps_solutions_to_solutions_of_heat_only():
    # Two of the others need positive states.
    for name in ("heat", "burgers", "reaction"):
        assert _shows(name, lambda u: -u) is EQUATIONS[name].odd
    assert not EQUATIONS["diffusion_sorption"].odd
    assert not EQUATIONS["navier_stokes"].odd


def test_burgers_is_reflected_with_a_change_of_sign_and_not_without():
    assert not _shows("burgers", lambda u: _reflect(u, (1.0,)))
