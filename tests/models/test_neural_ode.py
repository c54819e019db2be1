"""Neural ordinary differential equations: closed forms, orders of convergence, and derivatives through the steps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.parameters import random_parameters
from scipy import linalg

from ctfno_jax.models import neural_ode
from ctfno_jax.models.ctfno import num_parameters
from ctfno_jax.models.neural_ode import FieldNeuralODE, Integration, ObservedNeuralODE

TIMES = np.asarray([0.7, 0.25, 1.6, 1.0, 0.25], np.float32)
# Constant steps of a cheap solver: the quickest program to compile.
QUICK = {"solver": "heun", "stepping": "constant", "step_size": 0.125, "max_steps": 32}
SMALL = {"out_features": 2, "width": 4, "depth": 2, "augmented": 1}


def _observed(batch: int = 3, steps: int = 6, inputs: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(batch, steps, inputs)).astype(np.float32)


@functools.cache
def _jitted(model):
    return jax.jit(functools.partial(model.apply, count_evaluations=True))


def _ask_and_count(model, variables, inputs, times):
    return jax.tree.map(np.asarray, _jitted(model)(variables, inputs, times))


def _ask(model, variables, inputs, times):
    return _ask_and_count(model, variables, inputs, times)[0]


def _random(**fields):
    model = ObservedNeuralODE(**{**SMALL, **QUICK, **fields})
    return model, random_parameters(model, _observed(), TIMES, scale=0.6)


# --- the solver ---------------------------------------------------------------------------------------------------


def _waves(t, u, rates):
    """Solved by ``u0 exp(rates sin t)``."""
    return rates * jnp.cos(t) * u


def _solve(times, integration: Integration, field=_waves):
    """From three states, compiled as a whole."""
    start, rates = jnp.asarray(_observed()[:, 0]), jnp.asarray([0.9, 1.2])
    solve = jax.jit(lambda ts: neural_ode.solve(field, rates, start, ts, integration))
    return jax.tree.map(np.asarray, solve(jnp.asarray(times)))


@pytest.mark.parametrize(
    ("solver", "order", "steps"),
    [
        ("euler", 1, 64),
        pytest.param("heun", 2, 32, marks=pytest.mark.slow),
        ("tsit5", 5, 8),
        pytest.param("dopri5", 5, 8, marks=pytest.mark.slow),
        pytest.param("dopri8", 8, 2, marks=pytest.mark.slow),
    ],
)
def test_half_the_step_divides_the_error_by_two_to_the_order(solver, order, steps):
    with jax.enable_x64(True):
        start, rates = jnp.asarray(_observed()[:, 0], jnp.float64), jnp.asarray([0.9, 1.2])
        exact = start * jnp.exp(rates * jnp.sin(2.0))

        @jax.jit
        def error(step_size):
            how = Integration(solver, "constant", step_size=step_size)
            return jnp.abs(neural_ode.solve(_waves, rates, start, jnp.asarray([2.0]), how)[0][:, 0] - exact).max()

        errors = [float(error(2.0 / n)) for n in (steps, 2 * steps)]
    # Some do better on an equation this simple.
    assert order - 0.6 < np.log2(errors[0] / errors[1]) < order + 1.1
    assert errors[1] < 0.05


def _solve_and_count(times, integration: Integration):
    """The solution and its evaluations, after a check that these are the calls, but for the very first."""
    calls = []

    def counting(t, u, rates):
        jax.debug.callback(lambda: calls.append(1))
        return _waves(t, u, rates)

    u, count = _solve(times, integration, counting)
    jax.effects_barrier()
    assert count.shape == (3,)
    assert len(set(count.tolist())) == 1
    assert 0 <= len(calls) - int(count[0]) <= 1
    return u, int(count[0])


def test_adaptive_steps_keep_to_the_tolerance_and_are_counted():
    u, _ = _solve_and_count(TIMES, Integration("tsit5", rtol=1e-5, atol=1e-6))
    exact = _observed()[:, :1] * np.exp(np.asarray([0.9, 1.2]) * np.sin(TIMES)[:, None])
    np.testing.assert_allclose(u, exact, rtol=0, atol=2e-4)


@pytest.mark.slow
def test_constant_steps_are_counted():
    _, count = _solve_and_count([0.4, 2.0], Integration("heun", "constant", step_size=0.5))
    assert count == 4 * 2


@pytest.mark.slow
def test_after_too_many_steps_later_times_have_no_answer():
    times = np.asarray([0.8, 0.5, 2.0, 0.7], np.float32)
    for asked in (times, np.tile(times, (3, 1))):
        u, _ = _solve(asked, Integration(**{**QUICK, "step_size": 0.25, "max_steps": 3}))
        assert np.all(np.isfinite(u[:, [1, 3]]))
        assert not np.any(np.isfinite(u[:, [0, 2]]))


@pytest.mark.slow
def test_one_step_to_each_query_equals_constant_steps_between_even_queries():
    times = [0.5, 0.25, 1.0, 0.75]
    constant, queries = (
        _solve(times, Integration("heun", stepping, step_size=0.25)) for stepping in ("constant", "queries")
    )
    np.testing.assert_allclose(queries[0], constant[0], rtol=1e-6)
    np.testing.assert_array_equal(queries[1], constant[1])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"solver": "rk4"}, "solver must be one of euler, heun, tsit5, dopri5, dopri8, got 'rk4'"),
        ({"stepping": "none"}, "stepping must be one of adaptive, constant, queries, got 'none'"),
        ({"adjoint": "none"}, "adjoint must be one of checkpoints, direct, backward, got 'none'"),
        ({"step_size": 0.0}, "step_size must be positive and finite, got 0"),
        ({"rtol": float("nan")}, "rtol must be positive and finite, got nan"),
        ({"atol": -1.0}, "atol must be positive and finite, got -1"),
        ({"max_steps": 0}, "max_steps must be positive and finite, got 0"),
        ({"solver": "euler"}, "solver=euler has no error estimate .*; use stepping=constant"),
        ({"width": 0}, "width must be positive and finite"),
        ({"depth": 0}, "depth must be positive and finite"),
        ({"augmented": -1}, "augmented must not be negative, got -1"),
    ],
)
def test_fields_out_of_range_are_refused(fields, message):
    for model, inputs in ((ObservedNeuralODE(**fields), (3, 6, 1)), (FieldNeuralODE(**fields), (3, 6, 1))):
        with pytest.raises(ValueError, match=message):
            model.check_fields()
        with pytest.raises(ValueError, match=message):
            model.init(jax.random.key(0), np.zeros(inputs), TIMES)


# --- forecasts of vectors -----------------------------------------------------------------------------------------

# A network of one hidden layer that is almost linear: the tanh of something small.
LINEAR = ObservedNeuralODE(2, width=4, depth=1, augmented=1, solver="dopri5", stepping="constant", step_size=0.125)
_SMALLNESS = 3e-3


def _linear(matrix: np.ndarray, slope: np.ndarray):
    """Parameters for ``u' = matrix u + slope t``."""
    last = np.concatenate([slope[None], matrix.T]) / _SMALLNESS
    arrays = {"weight_0": _SMALLNESS * np.eye(4), "bias_0": np.zeros(4), "weight_1": last, "bias_1": np.zeros(3)}
    return {"params": {"field": {name: jnp.asarray(a, jnp.float32) for name, a in arrays.items()}}}


def test_a_linear_field_is_solved_by_the_matrix_exponential():
    matrix = np.random.default_rng(1).normal(size=(3, 3))
    observed = _observed()
    u = _ask(LINEAR, _linear(matrix, np.zeros(3)), observed, TIMES)
    start = np.concatenate([observed[:, -1], np.zeros((3, 1))], axis=-1)
    expected = np.stack([start @ linalg.expm(t * matrix).T for t in TIMES.astype(float)], axis=1)[..., :2]
    np.testing.assert_allclose(u, expected, rtol=0, atol=1e-3)


@pytest.mark.slow
def test_derivatives_by_the_state_and_by_the_matrix_of_a_linear_field():
    """Of ``exp(t matrix)``: the matrix itself, and a difference quotient along one direction of matrices."""
    rng = np.random.default_rng(1)
    matrix, direction, weights = rng.normal(size=(3, 3)), rng.normal(size=(3, 3)), rng.normal(size=2)
    times, observed = np.asarray([0.7], np.float32), _observed()

    def loss(variables, last):
        return jnp.sum(LINEAR.apply(variables, last[:, None], times)[:, 0] @ weights)

    slopes = jax.jit(jax.grad(loss, argnums=(0, 1)))(_linear(matrix, np.zeros(3)), jnp.asarray(observed[:, -1]))
    flow = lambda a: linalg.expm(0.7 * a).T[:2, :2]  # noqa: E731
    np.testing.assert_allclose(slopes[1], np.tile(flow(matrix) @ weights, (3, 1)), rtol=0, atol=1e-3)
    # The matrix is in the rows of the last map below that of time, divided by the smallness.
    by_matrix = np.asarray(slopes[0]["params"]["field"]["weight_1"])[1:].T / _SMALLNESS
    quotient = (flow(matrix + 1e-4 * direction) - flow(matrix - 1e-4 * direction)) / 2e-4
    expected = np.sum(observed[:, -1] @ quotient @ weights)
    np.testing.assert_allclose(np.sum(by_matrix * direction), expected, rtol=0.01)


def test_zeros_that_are_appended_make_room_for_a_velocity():
    # x' = v, v' = -x from rest; the second component stands still.
    matrix = np.asarray([[0.0, 0, 1], [0, 0, 0], [-1, 0, 0]])
    observed = _observed()
    u = _ask(LINEAR, _linear(matrix, np.zeros(3)), observed, TIMES)
    np.testing.assert_allclose(u[..., 0], observed[:, -1, :1] * np.cos(TIMES), rtol=0, atol=1e-3)
    np.testing.assert_allclose(u[..., 1], np.broadcast_to(observed[:, -1, 1:], (3, 5)), rtol=0, atol=1e-4)


def test_the_field_knows_the_time():
    observed = _observed()
    u = _ask(LINEAR, _linear(np.zeros((3, 3)), np.asarray([1.0, -2.0, 0.0])), observed, TIMES)
    expected = observed[:, -1, None] + TIMES[:, None] ** 2 / 2 * np.asarray([1.0, -2.0])
    np.testing.assert_allclose(u, expected, rtol=0, atol=1e-3)


@pytest.mark.slow
def test_a_late_start_is_a_delay_by_the_first_query():
    variables, observed = _linear(np.random.default_rng(1).normal(size=(3, 3)), np.zeros(3)), _observed()
    late = _ask(LINEAR.clone(late_start=True), variables, observed, TIMES)
    np.testing.assert_allclose(late[:, [1, 4]], np.repeat(observed[:, -1:], 2, axis=1), rtol=0, atol=1e-6)
    # With steps of 0.125, a delay of 0.25 is two of them.
    np.testing.assert_allclose(late, _ask(LINEAR, variables, observed, TIMES - 0.25), rtol=0, atol=1e-3)


def test_shapes_with_all_axes_different_and_evaluations_for_each_sample():
    model, variables = _random()
    u, count = _ask_and_count(model, variables, _observed(), TIMES)
    assert (u.shape, count.shape) == ((3, 5, 2), (3,))
    alone = jax.jit(model.apply)(variables, _observed(), TIMES)
    np.testing.assert_array_equal(alone, u)
    np.testing.assert_array_equal(count, 2 * 13)  # Heun's two, in steps of an eighth up to 1.6


def test_times_come_in_any_order():
    model, variables = _random()
    u, order = _ask(model, variables, _observed(), TIMES), np.asarray([3, 0, 4, 2, 1])
    np.testing.assert_allclose(_ask(model, variables, _observed(), TIMES[order]), u[:, order], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(u[:, 1], u[:, 4])


@pytest.mark.slow
def test_shared_times_equal_the_same_times_for_each_sample():
    model, variables = _random()
    own = _ask(model, variables, _observed(), np.tile(TIMES, (3, 1)))
    np.testing.assert_allclose(own, _ask(model, variables, _observed(), TIMES), rtol=0, atol=1e-6)


def test_each_sample_is_answered_at_its_own_times():
    model, variables = _random()
    own = TIMES + np.asarray([[0.0], [0.5], [0.25]], np.float32)
    u = _ask(model, variables, _observed(), own)
    for i in range(3):
        alone = _ask(model, variables, np.repeat(_observed()[i : i + 1], 3, axis=0), own[i])
        # Alone, the last step is cut at the last time; among others it is whole, and interpolated.
        np.testing.assert_allclose(u[i], alone[0], rtol=0, atol=1e-4)


def test_only_the_last_observed_values_are_read():
    model, variables = _random()
    u, other = _ask(model, variables, _observed(), TIMES), _observed(seed=1)
    other[:, -1] = _observed()[:, -1]
    np.testing.assert_array_equal(_ask(model, variables, other, TIMES), u)
    timed = np.concatenate([_observed(), np.ones((3, 6, 1), np.float32)], axis=-1)
    np.testing.assert_allclose(_ask(model, variables, timed, TIMES), u, rtol=0, atol=1e-6)


def test_at_time_zero_the_answer_is_the_last_observed_point():
    model, variables = _random()
    u = _ask(model, variables, _observed(), np.where(TIMES == 1.0, 0.0, TIMES).astype(np.float32))
    np.testing.assert_array_equal(u[:, 3], _observed()[:, -1])


@pytest.mark.slow
def test_small_constant_steps_agree_with_adaptive_ones():
    model, variables = _random(step_size=0.02, max_steps=100)
    adaptive = _random(solver="tsit5", stepping="adaptive", step_size=0.25, rtol=1e-5, atol=1e-6)[0]
    expected = _ask(adaptive, variables, _observed(), TIMES)
    np.testing.assert_allclose(_ask(model, variables, _observed(), TIMES), expected, rtol=0, atol=1e-3)
    assert np.abs(expected - _observed()[:, -1:]).max() > 0.1


# Derivatives take long to compile, the more so the more stages there are.
FEW_STEPS = {"solver": "euler", "step_size": 0.25, "max_steps": 8}


@functools.cache
def _slopes(adjoint: str, own: bool = False):
    model, variables = _random(**FEW_STEPS, adjoint=adjoint)
    times = np.tile(TIMES, (3, 1)) if own else TIMES
    loss = lambda v: jnp.mean(jnp.sin(model.apply(v, _observed(), times)))  # noqa: E731
    return jax.tree.map(np.asarray, jax.jit(jax.grad(loss))(variables))


@pytest.mark.slow
@pytest.mark.parametrize("adjoint", ["checkpoints", "direct", "backward"])
def test_derivatives_do_not_depend_on_whether_times_are_shared(adjoint):
    compare = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)  # noqa: E731
    jax.tree.map(compare, _slopes(adjoint, own=True), _slopes(adjoint))


@pytest.mark.slow
@pytest.mark.parametrize(("adjoint", "tolerance"), [("direct", 1e-5), ("backward", 0.2)])
def test_derivatives_do_not_depend_on_how_they_are_found(adjoint, tolerance):
    # The equation that is solved backward is another discretisation.
    expected = _slopes("checkpoints")
    scale = max(np.abs(a).max() for a in jax.tree.leaves(expected))
    assert scale > 1e-2
    compare = lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)  # noqa: E731
    jax.tree.map(compare, _slopes(adjoint), expected)


@pytest.mark.slow
def test_a_derivative_is_a_quotient_of_differences():
    model, variables = _random(**FEW_STEPS)
    slopes = _slopes("checkpoints")
    change = jax.tree.map(lambda g: 1e-2 * g / np.sqrt(np.square(g).sum() + 1e-12), slopes)
    values = []
    for sign in (-1, 1):
        moved = jax.tree.map(lambda v, c, sign=sign: v + sign * c, variables, change)
        values.append(float(np.mean(np.sin(_ask(model, moved, _observed(), TIMES)))))
    expected = sum(float(np.sum(g * c)) for g, c in zip(*map(jax.tree.leaves, (slopes, change)), strict=True))
    assert (values[1] - values[0]) / 2 == pytest.approx(expected, rel=0.02)


def test_observations_and_times_that_mean_nothing_are_refused():
    model, variables = _random()
    with pytest.raises(ValueError, match="with 2 features, or 3 with the time of observation last"):
        model.apply(variables, _observed(inputs=5), TIMES)
    with pytest.raises(ValueError, match="finite and >= 0, got -1"):
        model.apply(variables, _observed(), np.asarray([-1.0]))


# --- times that can be answered -----------------------------------------------------------------------------------


@pytest.mark.parametrize("model_class", [ObservedNeuralODE, FieldNeuralODE])
def test_equal_times_have_no_step_between_them(model_class):
    message = model_class(stepping="queries").answerable(np.asarray([[0.5, 0.2], [0.3, 0.3]]))
    assert (
        message
        == "stepping=queries goes from each query time to the next, but some are equal; ask for each of them once"
    )
    assert model_class(stepping="queries").answerable(np.asarray([[0.5, 0.2], [0.3, 0.2]])) is None
    assert model_class().answerable(np.asarray([0.3, 0.3])) is None


@pytest.mark.parametrize("model_class", [ObservedNeuralODE, FieldNeuralODE])
def test_from_time_zero_there_is_no_step_to_time_zero(model_class):
    assert model_class(stepping="queries").answerable(np.asarray([0.0, 0.5])) is not None
    assert model_class(stepping="constant").answerable(np.asarray([0.0, 0.5])) is None


def test_a_late_start_alone_makes_no_step():
    model = ObservedNeuralODE(stepping="queries", late_start=True)
    assert model.answerable(np.asarray([0.5])) is not None
    assert model.answerable(np.asarray([0.0, 0.5])) is None


# --- fields -------------------------------------------------------------------------------------------------------


def _field_case(**fields):
    model = FieldNeuralODE(**{"out_channels": 2, "width": 4, "depth": 1, "augmented": 1, **QUICK, **fields})
    u0 = np.random.default_rng(2).normal(size=(3, 2, 4, 2)).astype(np.float32)
    return model, random_parameters(model, u0, TIMES, scale=0.4), u0


@pytest.mark.slow
def test_a_field_is_one_long_vector():
    model, variables, u0 = _field_case()
    times = np.where(TIMES == 1.0, 0.0, TIMES).astype(np.float32)
    u, count = _ask_and_count(model, variables, u0, times)
    assert u.shape == (3, 5, 2, 4, 2)
    np.testing.assert_array_equal(u[:, 3], u0)
    vector = ObservedNeuralODE(16, width=4, depth=1, augmented=1, **QUICK)
    expected, expected_count = _ask_and_count(vector, variables, u0.reshape(3, 1, 16), times)
    np.testing.assert_allclose(u.reshape(3, 5, 16), expected, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(count, expected_count)


def test_number_of_parameters_for_fields():
    model = FieldNeuralODE(augmented=100)
    u0 = jax.ShapeDtypeStruct((1, 1024, 1), jnp.float32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), u0, jax.ShapeDtypeStruct((3,), jnp.float32))
    assert num_parameters(shapes) == 5_453_924


def test_a_field_with_other_channels_than_the_solution_is_refused():
    model, variables, u0 = _field_case()
    with pytest.raises(ValueError, match="u0 must have 2 channels, as the solution has, got 1"):
        model.apply(variables, u0[..., :1], TIMES)
    with pytest.raises(ValueError, match=r"with batch=3, got shape \(2, 5\)"):
        model.apply(variables, u0, np.ones((2, 5), np.float32))


@pytest.mark.parametrize(
    ("fields", "unread"),
    [
        ({"stepping": "adaptive", "step_size": 0.1}, "step_size"),
        ({"stepping": "constant", "rtol": 1e-5}, "rtol"),
        ({"stepping": "queries", "atol": 1e-6}, "atol"),
    ],
)
def test_a_setting_that_the_stepping_does_not_read_is_refused(fields, unread):
    with pytest.raises(ValueError, match=f"stepping={fields['stepping']} does not read {unread}"):
        neural_ode.Integration(**fields).check()
