"""Diffusion-sorption: another integrator, a linear closed form, convergence orders and the maximum principle."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from ctfno_jax.solvers import diffusion_sorption

D = 5e-4


def _constant(value: float, num_points: int) -> np.ndarray:
    return np.full((1, num_points), value)


def _right_hand_side(u: np.ndarray, exponent: float = 0.874) -> np.ndarray:
    """du/dt written out cell by cell, as PDEBench describes it."""
    n, dx = len(u), 1 / len(u)
    rate = np.empty(n)
    for i in range(n):
        left = u[i - 1] if i > 0 else 1.0
        right = u[i + 1] if i < n - 1 else D * (u[n - 2] - u[n - 1]) / dx
        retardation = 1 + (1 - 0.29) / 0.29 * 2880 * 3.5e-4 * exponent * (u[i] + 1e-6) ** (exponent - 1)
        rate[i] = D / retardation * (left - 2 * u[i] + right) / dx**2
    return rate


def _relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.parametrize(("value", "num_points"), [(0.02, 24), (0.2, 31)])
def test_agrees_with_a_stiff_integrator_of_the_same_equations(value, num_points):
    times = np.asarray([1.0, 7.0, 60.0, 500.0])
    ours = diffusion_sorption.solve(_constant(value, num_points), times)[0]
    reference = solve_ivp(
        lambda t, u: _right_hand_side(u), (0, times[-1]), np.full(num_points, value), "Radau", times,
        rtol=1e-9, atol=1e-11,
    )  # fmt: skip
    assert reference.success
    assert _relative(ours, reference.y.T) < 1e-6


def test_agrees_from_a_state_that_is_not_constant():
    num_points, times = 24, np.asarray([3.0, 40.0])
    u0 = 0.5 + 0.4 * np.sin(np.arange(num_points))
    reference = solve_ivp(lambda t, u: _right_hand_side(u), (0, 40.0), u0, "Radau", times, rtol=1e-9, atol=1e-11)
    assert _relative(diffusion_sorption.solve(u0[None], times)[0], reference.y.T) < 1e-6


def test_linear_sorption_agrees_with_the_matrix_exponential():
    num_points, times = 12, np.asarray([0.5, 20.0, 300.0])
    source = _right_hand_side(np.zeros(num_points), exponent=1.0)
    matrix = np.stack([_right_hand_side(e, exponent=1.0) - source for e in np.eye(num_points)], axis=1)
    steady = -np.linalg.solve(matrix, source)
    u0 = np.linspace(0.9, 0.1, num_points)
    expected = np.stack([steady + expm(t * matrix) @ (u0 - steady) for t in times])
    ours = diffusion_sorption.solve(u0[None], times, freundlich_exponent=1.0, refinement=4)[0]
    assert _relative(ours, expected) < 1e-8


def test_constants_enter_as_the_equation_says():
    times, u0 = np.asarray([4.0, 30.0]), _constant(0.1, 12)
    base = diffusion_sorption.solve(u0, times)
    # Only (1 - porosity) / porosity * density * k counts, and it is the same for these two.
    changed = diffusion_sorption.solve(u0, times, bulk_density=1440.0, freundlich_k=7e-4)
    np.testing.assert_allclose(changed, base, rtol=0, atol=1e-13)
    # Without solid matter nothing is sorbed: the exponent does not matter, and the front is ahead.
    free = [diffusion_sorption.solve(u0, times, porosity=1.0, freundlich_exponent=n) for n in (0.5, 1.0)]
    np.testing.assert_allclose(free[0], free[1], rtol=0, atol=1e-13)
    assert np.all(free[0][:, :, :3] > base[:, :, :3])


def test_error_falls_with_the_fourth_power_of_the_step():
    times, u0 = np.asarray([10.0, 100.0]), _constant(0.1, 24)
    exact = diffusion_sorption.solve(u0, times, steps_per_decade=6, refinement=16)
    errors = [
        _relative(diffusion_sorption.solve(u0, times, steps_per_decade=6, refinement=r), exact) for r in (1, 2, 4)
    ]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert np.all(orders > 3.5)
    assert np.all(orders < 4.7)


def test_runge_kutta_coefficients_satisfy_the_conditions_of_order_four():
    stages = diffusion_sorption._STAGES
    a = np.asarray([np.pad(row, (0, len(stages) - len(row))) for row in stages])
    b, c, ones = a[-1], a.sum(axis=1), np.ones(len(a))
    np.testing.assert_array_equal(np.diag(a), diffusion_sorption._GAMMA)
    conditions = [b @ ones, b @ c, b @ c**2, b @ a @ c, b @ c**3, b @ (c * (a @ c)), b @ a @ c**2, b @ a @ a @ c]
    np.testing.assert_allclose(conditions, [1, 1 / 2, 1 / 3, 1 / 6, 1 / 4, 1 / 8, 1 / 12, 1 / 24], rtol=1e-13)
    # A decay that is infinitely fast is damped in a single step.
    assert 1 - b @ np.linalg.solve(a, ones) == pytest.approx(0, abs=1e-12)


def test_single_precision_input_is_computed_in_double():
    u0, times = _constant(0.125, 12), np.asarray([2.0, 64.0])
    single = diffusion_sorption.solve(u0.astype(np.float32), times.astype(np.float32))
    assert single.dtype == np.float64
    np.testing.assert_array_equal(single, diffusion_sorption.solve(u0, times))


@pytest.mark.slow
def test_error_of_the_grid_falls_at_first_order():
    times = np.asarray([100.0, 400.0])
    fine = diffusion_sorption.solve(_constant(0.1, 192), times)
    errors = []
    for num_points in (12, 24, 48):
        ratio = 192 // num_points
        # A coarse centre lies half-way between two fine ones.
        same_places = (fine[:, :, ratio // 2 - 1 :: ratio] + fine[:, :, ratio // 2 :: ratio]) / 2
        errors.append(_relative(diffusion_sorption.solve(_constant(0.1, num_points), times), same_places))
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert np.all((orders > 0.8) & (orders < 1.6))
    assert errors[-1] < 0.04


@pytest.fixture(scope="module")
def family() -> np.ndarray:
    values = np.asarray([0.0, 1e-3, 0.05, 0.11, 0.2])
    return diffusion_sorption.solve(np.repeat(values[:, None], 40, axis=1), np.asarray([0.1, 2.0, 30.0, 500.0]))


def test_values_stay_between_zero_and_the_boundary_value(family):
    assert family.min() >= -1e-9
    assert family.max() < 1
    assert family.max() > 0.9


def test_concentration_falls_along_x(family):
    assert np.all(np.diff(family, axis=2) <= 1e-9)


def test_a_larger_initial_value_gives_a_larger_solution(family):
    assert np.all(np.diff(family, axis=0) >= -1e-9)


def test_an_empty_column_fills_and_a_full_one_drains(family):
    assert np.all(np.diff(family[0], axis=0) >= -1e-9)
    draining = diffusion_sorption.solve(_constant(1.0, 40), np.asarray([0.1, 2.0, 30.0, 500.0]))
    assert np.all(np.diff(draining[0], axis=0) <= 1e-9)
    # Both tend to the one steady state.
    low, high = (diffusion_sorption.solve(_constant(value, 40), np.asarray([1e5]))[0, 0] for value in (0.0, 1.0))
    np.testing.assert_allclose(low, high, rtol=0, atol=1e-6)
    np.testing.assert_allclose(_right_hand_side(low), 0, atol=1e-7)


def test_a_sample_does_not_depend_on_its_batch(family):
    alone = diffusion_sorption.solve(_constant(0.11, 40), np.asarray([0.1, 2.0, 30.0, 500.0]))
    np.testing.assert_allclose(alone[0], family[3], rtol=0, atol=1e-10)


def test_saved_times_do_not_matter():
    u0 = _constant(0.07, 24)
    many = diffusion_sorption.solve(u0, np.asarray([0.0, 3.0, 11.0, 50.0, 90.0]))
    np.testing.assert_array_equal(many[:, 0], u0)
    once = diffusion_sorption.solve(u0, np.asarray([90.0]))
    assert _relative(many[:, -1], once[:, 0]) < 1e-6
    np.testing.assert_array_equal(diffusion_sorption.solve(u0, np.zeros(1))[:, 0], u0)


def test_time_steps_meet_all_times():
    times = np.asarray([0.3, 10.0, 11.0, 500.0])
    intervals = diffusion_sorption._intervals(times, start=0.01, steps_per_decade=7, refinement=3)
    lengths = [first * growth ** np.arange(count) for first, growth, count in intervals]
    np.testing.assert_allclose(np.cumsum([length.sum() for length in lengths]), times, rtol=1e-13)
    assert intervals[2].num_steps == 3
    # The first step is as fine as the start asks for, and no step is longer than its share of a decade.
    assert intervals[0].first_step < 0.01 * (10 ** (1 / 21) - 1)
    assert max(growth for _, growth, _ in intervals) <= 10 ** (1 / 21)


def test_initial_values_are_uniform_and_reproducible():
    rng = np.random.default_rng(3)
    values = [diffusion_sorption.sample_initial_value(rng) for _ in range(2000)]
    assert 0 <= min(values) < 0.001
    assert 0.199 < max(values) <= 0.2
    assert np.mean(values) == pytest.approx(0.1, abs=0.005)
    assert diffusion_sorption.sample_initial_value(np.random.default_rng(3)) == values[0]


def test_a_solution_that_is_not_finite_is_refused_by_sample(monkeypatch):
    def advance(u, *args):
        return u.at[2, 1].set(np.nan)

    monkeypatch.setattr(diffusion_sorption, "_advance", advance)
    with pytest.raises(ValueError, match="solution of sample 1 is not finite"):
        diffusion_sorption.solve(np.zeros((3, 8)), np.ones(1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"times": np.asarray([1.0, 1.0])}, "strictly increasing"),
        ({"times": np.asarray([-1.0, 1.0])}, "not negative"),
        ({"times": np.zeros(0)}, "times must be"),
        ({"times": np.asarray([1.0, np.inf])}, "finite"),
        ({"initial": np.asarray([[0.1, 0.2], [0.1, 1.1]])}, r"initial must lie in \[0, 1\], sample 1"),
        ({"initial": np.asarray([[np.nan, 0.2]])}, "sample 0"),
        ({"initial": np.zeros((1, 1))}, "at least 2 points"),
        ({"initial": np.zeros((0, 4))}, "at least one sample"),
        ({"diffusion": 0.0}, "diffusion must be positive"),
        ({"freundlich_exponent": -0.5}, "freundlich_exponent must be positive"),
        ({"porosity": 0.0}, "porosity must lie in"),
        ({"porosity": 1.5}, "porosity must lie in"),
        ({"steps_per_decade": 0}, "steps_per_decade must be positive"),
        ({"refinement": 0}, "refinement must be positive"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    arguments = {"initial": np.zeros((1, 4)), "times": np.ones(1)} | changes
    initial, times = arguments.pop("initial"), arguments.pop("times")
    with pytest.raises(ValueError, match=message):
        diffusion_sorption.solve(initial, times, **arguments)
