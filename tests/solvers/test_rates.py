"""Time derivatives from states: exact derivatives of waves, the reference solvers, and laws of conservation."""

import inspect

import numpy as np
import pytest

from ctfno_jax.data import problems
from ctfno_jax.solvers import burgers, diffusion_sorption, heat, random_fields, rates, reaction
from ctfno_jax.solvers import compressible_navier_stokes as navier_stokes

# Rounding of second derivatives of waves of order one, on grids of this size.
ATOL = 1e-10


def _grid(num_points: int, length: float = 1.0) -> np.ndarray:
    return length * np.arange(num_points) / num_points


def _relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


# --- derivatives along x ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_points", [15, 16])
@pytest.mark.parametrize("length", [1.0, 2.0, 0.3])
def test_waves_are_differentiated_exactly(num_points, length):
    x = _grid(num_points, length)
    for frequency in range((num_points - 1) // 2 + 1):
        k = 2 * np.pi * frequency / length
        wave, slope = np.sin(k * x + 0.4), k * np.cos(k * x + 0.4)
        u = wave[:, None]
        np.testing.assert_allclose(rates.derivative(u, length)[:, 0], slope, rtol=0, atol=ATOL * (1 + k))
        np.testing.assert_allclose(rates.derivative(u, length, 2)[:, 0], -(k**2) * wave, rtol=0, atol=ATOL * (1 + k**2))


def test_the_highest_wave_of_an_even_grid_has_no_slope_and_its_own_curvature():
    """One value up, one down: the derivative of its cosine vanishes at every point."""
    u = np.where(np.arange(8) % 2, -1.0, 1.0)[:, None]
    np.testing.assert_array_equal(rates.derivative(u, 1.0), 0.0)
    np.testing.assert_array_equal(rates.derivative(u, 1.0, 3), 0.0)
    np.testing.assert_allclose(rates.derivative(u, 1.0, 2), -((8 * np.pi) ** 2) * u, rtol=1e-13)


@pytest.mark.parametrize("num_points", [9, 10])
def test_the_derivative_of_a_derivative_is_the_second_below_the_highest_wave(num_points):
    rng = np.random.default_rng(0)
    u_hat = rng.normal(size=(num_points - 1) // 2 + 1) + 1j * rng.normal(size=(num_points - 1) // 2 + 1)
    u = np.fft.irfft(u_hat, n=num_points)[:, None]
    twice = rates.derivative(rates.derivative(u, 0.7), 0.7)
    np.testing.assert_allclose(twice, rates.derivative(u, 0.7, 2), rtol=0, atol=1e-11 * np.abs(twice).max())


def test_leading_axes_and_channels_are_apart():
    u = np.random.default_rng(1).normal(size=(3, 2, 12, 4))
    whole = rates.derivative(u, 1.0)
    assert whole.shape == u.shape
    np.testing.assert_allclose(whole[1, 0, :, 2:3], rates.derivative(u[1, 0, :, 2:3], 1.0), rtol=0, atol=1e-12)


def test_single_precision_is_computed_in_double():
    u = np.random.default_rng(2).normal(size=(16, 1)).astype(np.float32)
    for name in ("heat", "burgers", "reaction", "diffusion_sorption"):
        positive = 0.5 + 0.1 * np.abs(u)
        found = rates.RATES[name](positive)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, rates.RATES[name](positive.astype(np.float64)), rtol=1e-6)


# --- against the reference solvers --------------------------------------------------------------------------------


def _differences(solve, rate_of, t: float, step: float) -> tuple[float, float]:
    """How far central differences of solutions are from the rate, with the step and with half of it.

    Args:
      solve: times to solutions, ``(batch, time, x)``.
      rate_of: states ``(batch, x, 1)`` to rates.
      t: where to compare.
      step: the longer of two steps.
    """
    u = solve(t + np.asarray([-step, -step / 2, 0.0, step / 2, step]))
    rate = rate_of(u[:, 2, :, None])[..., 0]
    return _relative((u[:, 4] - u[:, 0]) / (2 * step), rate), _relative((u[:, 3] - u[:, 1]) / step, rate)


@pytest.mark.parametrize("num_points", [31, 32])
def test_heat_is_what_its_solutions_do(num_points):
    u0_hat = random_fields.sample(np.random.default_rng(0), 3, num_points, sigma=20.0, tau=3.5, gamma=2.5)
    solve = lambda times: heat.solve(u0_hat, times, num_points, 2e-2)  # noqa: E731
    coarse, fine = _differences(solve, lambda u: rates.heat(u, viscosity=2e-2), t=0.3, step=0.02)
    assert fine < 2e-3
    assert coarse / fine == pytest.approx(4, rel=0.02)


def test_reaction_is_what_its_solutions_do():
    u0 = np.random.default_rng(0).uniform(0.1, 1.5, (3, 20))
    solve = lambda times: reaction.solve(u0, times, rate=4.0)  # noqa: E731
    coarse, fine = _differences(solve, lambda u: rates.reaction(u, rate=4.0), t=0.3, step=0.02)
    assert fine < 2e-3
    assert coarse / fine == pytest.approx(4, rel=0.02)


def test_burgers_is_what_its_solutions_do():
    x = _grid(128)
    u0 = np.stack([np.sin(2 * np.pi * x) + 0.3 * np.cos(4 * np.pi * x + 1), 0.5 + 0.4 * np.cos(2 * np.pi * x)])
    u0_hat = np.fft.rfft(u0, norm="forward")
    solve = lambda times: burgers.solve(u0_hat, times, 128, 2e-2, internal_points=128)  # noqa: E731
    coarse, fine = _differences(solve, lambda u: rates.burgers(u, viscosity=2e-2), t=0.1, step=0.004)
    assert fine < 2e-3
    assert coarse / fine == pytest.approx(4, rel=0.02)


# One shape for all solutions of sorption, so that its solver is compiled once.
CONCENTRATIONS = np.stack([np.full(24, 0.1), 0.5 + 0.4 * np.sin(np.arange(24))])


def test_diffusion_with_sorption_is_what_its_solutions_do():
    solve = lambda times: diffusion_sorption.solve(CONCENTRATIONS, times, refinement=4)  # noqa: E731
    coarse, fine = _differences(solve, rates.diffusion_sorption_rate, t=20.0, step=1.0)
    assert fine < 2e-3
    assert coarse / fine == pytest.approx(4, rel=0.02)


def test_constants_of_sorption_enter_the_rate_as_they_enter_the_solution():
    constants = {"diffusion": 1e-3, "porosity": 0.4, "bulk_density": 1500.0, "freundlich_exponent": 0.7}
    solve = lambda times: diffusion_sorption.solve(CONCENTRATIONS, times, refinement=4, **constants)  # noqa: E731
    coarse, fine = _differences(
        solve, lambda u: diffusion_sorption.rate(u[..., 0], **constants)[..., None], t=20.0, step=1.0
    )
    assert fine < 2e-3
    assert coarse / fine == pytest.approx(4, rel=0.02)


def _smooth_flow(num_points: int, first: float = 0.0) -> np.ndarray:
    """Density, pressure and velocity that vary by tens of percent, at ``first`` cells from the origin on."""
    x = np.pi * 2 * (np.arange(num_points) + first) / num_points
    density = 2 + 0.5 * np.sin(x) + 0.2 * np.cos(2 * x)
    pressure = 5 + 1.5 * np.cos(x + 0.3)
    return np.stack([density, pressure, 0.4 * np.sin(x - 1) + 0.2], axis=-1)


@pytest.mark.parametrize(("viscous_law", "other"), [navier_stokes.VISCOUS_LAWS, navier_stokes.VISCOUS_LAWS[::-1]])
def test_compressible_flow_is_what_its_solutions_do(viscous_law, other):
    """By one-sided differences from the initial state: later ones have kinks where the solver limits slopes."""
    start, step = _smooth_flow(128, 0.5), 0.004
    times = np.asarray([step, 2 * step])
    (u,) = navier_stokes.solve(start[None], times, eta=0.1, zeta=0.05, viscous_law=viscous_law)
    difference = (-3 * start + 4 * u[0] - u[1]) / (2 * step)
    ours, theirs = (rates.navier_stokes(start, eta=0.1, zeta=0.05, viscous_law=law) for law in (viscous_law, other))
    for channel in range(3):
        assert _relative(difference[:, channel], ours[:, channel]) < 4e-3
    assert _relative(difference[:, 2], theirs[:, 2]) > 0.1


# --- where nothing changes ----------------------------------------------------------------------------------------


def test_constant_states_do_not_change_but_react():
    u = np.full((2, 9, 1), 0.3)
    np.testing.assert_allclose(rates.heat(u), 0, atol=1e-15)
    np.testing.assert_allclose(rates.burgers(u), 0, atol=1e-15)
    np.testing.assert_allclose(rates.reaction(u), 6 * 0.3 * 0.7, rtol=1e-15)
    np.testing.assert_array_equal(rates.reaction(np.asarray([[0.0], [1.0]])), 0.0)


def test_the_steady_state_of_sorption_rests():
    late = diffusion_sorption.solve(CONCENTRATIONS, np.asarray([1e5]))[:, 0]
    assert np.abs(diffusion_sorption.rate(late)).max() < 1e-7
    assert np.abs(diffusion_sorption.rate(CONCENTRATIONS)).max() > 1e-2


def test_sorption_of_states_that_rounding_made_negative_is_finite():
    u = np.asarray([0.5, 0.1, -1e-9, 0.0, -1e-3, 0.0])
    assert np.all(np.isfinite(diffusion_sorption.rate(u)))


@pytest.mark.parametrize("viscous_law", navier_stokes.VISCOUS_LAWS)
def test_a_uniform_flow_stays_as_it_is(viscous_law):
    u = np.broadcast_to(np.asarray([3.0, 20.0, -1.5]), (2, 10, 3))
    np.testing.assert_allclose(rates.navier_stokes(u, viscous_law=viscous_law), 0, atol=1e-13)


# --- what a flow keeps --------------------------------------------------------------------------------------------


def _totals_change(num_points: int, gamma: float = 5 / 3, **options) -> np.ndarray:
    """Rates of all mass, momentum and energy, over the sum of the absolute rates at the points."""
    u = _smooth_flow(num_points)
    rate = rates.navier_stokes(u, gamma=gamma, **options)
    (density, _, velocity), (density_t, pressure_t, velocity_t) = u.T, rate.T
    momentum_t = density_t * velocity + density * velocity_t
    energy_t = pressure_t / (gamma - 1) + density_t * velocity**2 / 2 + density * velocity * velocity_t
    return np.asarray([np.sum(q) / np.sum(np.abs(q)) for q in (density_t, momentum_t, energy_t)])


@pytest.mark.parametrize("viscous_law", navier_stokes.VISCOUS_LAWS)
@pytest.mark.parametrize("viscosity", [0.0, 0.1])
def test_mass_momentum_and_energy_are_kept(viscous_law, viscosity):
    change = _totals_change(48, eta=viscosity, zeta=viscosity, viscous_law=viscous_law)
    np.testing.assert_allclose(change, 0, atol=1e-13)
    np.testing.assert_allclose(_totals_change(47, gamma=1.4), 0, atol=1e-13)


def test_what_a_coarse_grid_misses_of_energy_vanishes_faster_than_any_power():
    misses = [abs(_totals_change(num_points)[2]) for num_points in (4, 8)]
    assert misses[0] > 1e-4
    assert misses[1] < 1e-12


def test_friction_turns_motion_into_heat():
    u = _smooth_flow(32)
    heated = rates.navier_stokes(u)[:, 1] - rates.navier_stokes(u, eta=0.0, zeta=0.0)[:, 1]
    v_x = rates.derivative(u[:, 2:], 2.0)[:, 0]
    np.testing.assert_allclose(heated, 2 / 3 * (0.4 / 3 + 0.1) * u[:, 0] * v_x**2, rtol=0, atol=1e-12)


# --- waves and friction -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize(("density", "pressure", "gamma"), [(1.0, 1.0, 5 / 3), (2.5, 40.0, 1.4)])
def test_sound_moves_with_its_speed(direction, density, pressure, gamma):
    """A small wave to one side, of fluctuations c v / (density, gamma p), changes by -c times its slope."""
    x, size, flow = _grid(32, 2.0), 1e-6, 0.3
    speed = direction * np.sqrt(gamma * pressure / density)
    shape, slope = np.sin(np.pi * x), np.pi * np.cos(np.pi * x)
    amplitudes = np.asarray([density, gamma * pressure, speed])
    u = np.asarray([density, pressure, flow]) + size * amplitudes * shape[:, None]
    rate = rates.navier_stokes(u, eta=0.0, zeta=0.0, gamma=gamma) / size
    expected = -(flow + speed) * amplitudes * slope[:, None]
    np.testing.assert_allclose(rate, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_an_entropy_wave_moves_with_the_flow():
    x = _grid(32, 2.0)
    u = np.stack([2 + np.sin(np.pi * x), np.full(32, 5.0), np.full(32, 0.7)], axis=-1)
    expected = np.stack([-0.7 * np.pi * np.cos(np.pi * x), np.zeros(32), np.zeros(32)], axis=-1)
    np.testing.assert_allclose(rates.navier_stokes(u), expected, rtol=0, atol=1e-12)


def _friction(u: np.ndarray, **options) -> np.ndarray:
    """Force on the gas, per volume."""
    without = rates.navier_stokes(u, eta=0.0, zeta=0.0)
    return (rates.navier_stokes(u, **options) - without)[:, 2] * u[:, 0]


def test_the_two_laws_of_friction_are_as_stated():
    """Force is the slope of (4/3 eta + zeta) v_x, times the density or not."""
    x = _grid(32, 2.0)
    density, density_x = 2 + 0.5 * np.sin(np.pi * x), 0.5 * np.pi * np.cos(np.pi * x)
    v_x, v_xx = -np.pi * np.sin(np.pi * x), -(np.pi**2) * np.cos(np.pi * x)
    u = np.stack([density, np.full(32, 3.0), np.cos(np.pi * x)], axis=-1)
    dynamic = _friction(u, eta=0.3, zeta=0.2, viscous_law="dynamic")
    kinematic = _friction(u, eta=0.3, zeta=0.2, viscous_law="kinematic")
    np.testing.assert_allclose(dynamic, 0.6 * v_xx, rtol=0, atol=1e-12)
    np.testing.assert_allclose(kinematic, 0.6 * (density * v_xx + density_x * v_x), rtol=0, atol=1e-12)


def test_only_one_combination_of_the_viscosities_counts():
    u = _smooth_flow(16)
    np.testing.assert_allclose(_friction(u, eta=0.3, zeta=0.1), _friction(u, eta=0.0, zeta=0.5), rtol=0, atol=1e-13)


# --- the table ----------------------------------------------------------------------------------------------------


def test_every_equation_has_a_rate_with_the_constants_of_its_generator():
    fields = {name: entry for name, entry in problems.PROBLEMS.items() if isinstance(entry, problems.FieldProblem)}
    assert {name: entry.rate for name, entry in fields.items()} == rates.RATES
    for name, rate in rates.RATES.items():
        known = inspect.signature(fields[name].generate).parameters
        for constant, parameter in inspect.signature(rate).parameters.items():
            if constant in ("u", "gamma"):  # the ratio of heats is no option of the data
                continue
            assert parameter.default == known[constant].default, f"{constant} of {name}"


@pytest.mark.parametrize("name", ["heat", "burgers", "navier_stokes"])
def test_periods_are_those_of_the_data(name):
    """A wave round the domain, read on a grid of any size, has the slope of a wave of that length."""
    length = problems.PROBLEMS[name].length
    x, k = _grid(64, length), 2 * np.pi / length
    wave = np.sin(k * x)
    if name == "navier_stokes":
        u = np.stack([2 + wave, np.full(64, 5.0), np.ones(64)], axis=-1)
        found, expected = rates.navier_stokes(u)[:, 0], -k * np.cos(k * x)
    else:
        found = rates.RATES[name](1e-4 * wave[:, None])[:, 0] / 1e-4
        expected = -1e-3 * k**2 * wave - (1e-4 * wave * k * np.cos(k * x) if name == "burgers" else 0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
