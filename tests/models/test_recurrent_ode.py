"""Recurrent networks along differential equations: closed forms, the order of convergence, clocks, the loss by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.parameters import random_parameters
from scipy import integrate, linalg

from ctfno_jax.models.ctfno import num_parameters
from ctfno_jax.models.recurrent_ode import GHBNODE, HBNODE, SONODE, RecurrentANODE, RecurrentNODE

BATCH, STEPS, FEATURES, HIDDEN = 3, 5, 2, 3
SIZES = {"out_features": FEATURES, "hidden": HIDDEN}
# After the last observations, in any order, for each sample; the first sample that is asked for is never in one place.
TIMES = np.asarray([[0.7, 0.0, 0.4, 1.1], [0.3, 0.8, 0.1, 0.1], [0.2, 0.6, 1.2, 0.9]], np.float32)
# Far enough from the kinks of the field.
_OFFSET = 30.0

# One step of high order in each gap: accurate where gaps are short, and the quickest to compile.
NODE, ANODE, SECOND, HEAVY = (
    model_class(**SIZES, solver="dopri5", step_size=1.0)
    for model_class in (RecurrentNODE, RecurrentANODE, SONODE, HBNODE)
)
IGNORING = SECOND.clone(ignore_gaps=True)


def _observed(seed: int = 0) -> np.ndarray:
    """Values, and times with gaps of their own for each sample; the last ones are shortly before zero."""
    rng = np.random.default_rng(seed)
    gaps = rng.uniform(0.1, 0.6, size=(BATCH, STEPS))
    clock = -np.cumsum(gaps[:, ::-1], axis=1)[:, ::-1]
    values = rng.normal(size=(BATCH, STEPS, FEATURES))
    return np.concatenate([values, clock[..., None]], axis=-1).astype(np.float32)


@functools.cache
def _jitted(model):
    return jax.jit(model.apply)


def _ask(model, variables, observed, times) -> np.ndarray:
    return np.asarray(_jitted(model)(variables, observed, times))


@functools.cache
def _random(model, scale: float = 0.2):
    return random_parameters(model, _observed(), TIMES, scale=scale)


def _with(variables, **changes):
    """Other parameters in the place of those of these names."""
    params = dict(variables["params"])
    for name, array in changes.items():
        assert np.shape(array) == params[name].shape
        params[name] = jnp.asarray(array, params[name].dtype)
    return {"params": params}


def _without_field(variables):
    """The same with a field that is zero."""
    return _with(variables, **{k: np.zeros(a.shape) for k, a in variables["params"].items() if k.startswith("field")})


def _with_linear_field(variables, matrix: np.ndarray):
    """The same with a field that multiplies its input, a row, by a matrix as long as the input is small."""
    inputs, outputs = matrix.shape
    arrays = {k: np.zeros(a.shape) for k, a in variables["params"].items() if k.startswith("field")}
    arrays["field_0_weight"][:inputs, :inputs] = np.eye(inputs)
    arrays["field_0_bias"][:inputs] = _OFFSET
    arrays["field_1_weight"][:inputs, :outputs] = matrix
    arrays["field_1_bias"][:outputs] = _OFFSET - _OFFSET * matrix.sum(axis=0)
    arrays["field_2_weight"][:outputs] = np.eye(outputs)
    arrays["field_2_bias"][:] = -_OFFSET
    return _with(variables, **arrays)


def _by_hand(variables, flow, observed, times, gap=None):
    """The forecast, what is read at each observation, and before each but the first; a flow maps (state, time)."""
    p = {name: np.asarray(array, np.float64) for name, array in variables["params"].items()}
    parts = [name for name in ("from_state", "from_positions", "from_velocities") if f"{name}_weight" in p]
    from_state = np.concatenate([p[f"{name}_weight"] for name in parts])
    bias = p["from_input_bias"] + sum(p[f"{name}_bias"] for name in parts)
    read = lambda state: state[:HIDDEN] @ p["readout_weight"] + p["readout_bias"]  # noqa: E731
    forecast, seen, following = [], [], []
    for points, asked in zip(np.asarray(observed, np.float64), np.asarray(times, np.float64), strict=True):
        values, clock = points[:, :FEATURES], points[:, FEATURES]
        start = values.reshape(-1) @ p["start_weight"] + p["start_bias"]
        state = np.concatenate([start, np.zeros(len(from_state) - len(start))])
        after, before = [], []
        for k, value in enumerate(values):
            state = state + value @ p["from_input_weight"] + state @ from_state + bias
            after.append(read(state))
            if k + 1 < len(values):
                state = flow(state, clock[k + 1] - clock[k] if gap is None else gap)
                before.append(read(state))
        forecast.append([read(flow(state, t - clock[-1])) for t in asked])
        seen.append(after)
        following.append(before)
    return np.asarray(forecast), np.asarray(seen), np.asarray(following)


def _linear_case(model, seed: int = 1):
    """Parameters for which the equation is linear, and its flow."""
    rng, n = np.random.default_rng(seed), model.hidden
    variables, draw = _random(model), lambda: 0.4 * rng.normal(size=(n, n))
    zero, one = np.zeros((n, n)), np.eye(n)
    if not model.second_order:
        matrix = generator = draw() - 0.5 * one
    elif isinstance(model, SONODE):
        # y' = v, v' = (y, v) times a matrix.
        matrix = np.concatenate([draw() - one, draw() - 0.5 * one])
        generator = np.block([[zero, matrix[:n]], [one, matrix[n:]]])
    else:
        # h' = -m, m' = h times a matrix - sigmoid(g) m + softplus(c) h.
        matrix = draw()
        variables = _with(variables, damping=0.7, correction=-0.4)
        damping, correction = 1 / (1 + np.exp(-0.7)), np.log1p(np.exp(-0.4))
        generator = np.block([[zero, matrix + correction * one], [-one, -damping * one]])
    return _with_linear_field(variables, matrix), lambda state, time: state @ linalg.expm(time * generator)


# --- closed forms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [NODE, ANODE, SECOND, HEAVY], ids=lambda model: type(model).__name__)
def test_a_linear_equation_is_followed_by_the_matrix_exponential(model):
    variables, flow = _linear_case(model)
    u = _ask(model, variables, _observed(), TIMES)
    assert u.shape == (3, 4, 2)
    np.testing.assert_allclose(u, _by_hand(variables, flow, _observed(), TIMES)[0], rtol=0, atol=1e-4)
    assert np.abs(u - _ask(model, _without_field(variables), _observed(), TIMES)).max() > 0.05


def test_without_a_field_the_first_order_is_a_linear_recurrence():
    variables, observed = _without_field(_random(NODE)), _observed()
    p = jax.tree.map(np.asarray, variables["params"])
    state = observed[..., :2].reshape(3, 10) @ p["start_weight"] + p["start_bias"]
    for step in range(5):
        added = state @ p["from_state_weight"] + p["from_state_bias"]
        state = state + added + observed[:, step, :2] @ p["from_input_weight"] + p["from_input_bias"]
    expected = state @ p["readout_weight"] + p["readout_bias"]
    u = _ask(NODE, variables, observed, TIMES)
    np.testing.assert_allclose(u, np.repeat(expected[:, None], 4, axis=1), rtol=1e-4, atol=1e-5)


def test_without_a_field_the_second_order_moves_evenly():
    variables, observed = _without_field(_random(SECOND)), _observed()
    even = lambda state, t: np.concatenate([state[:HIDDEN] + t * state[HIDDEN:], state[HIDDEN:]])  # noqa: E731
    expected, _, _ = _by_hand(variables, even, observed, TIMES)
    np.testing.assert_allclose(_ask(SECOND, variables, observed, TIMES), expected, rtol=1e-4, atol=1e-5)


def _bounded_flow(state: np.ndarray, time: float, damping: float, correction: float) -> np.ndarray:
    """``h' = tanh(-m), m' = -sigmoid(g) m + softplus(c) h``."""

    def slope(_, y):
        h, m = np.split(y, 2)
        return np.concatenate([np.tanh(-m), np.log1p(np.exp(correction)) * h - m / (1 + np.exp(-damping))])

    return integrate.solve_ivp(slope, (0, time), state, "DOP853", rtol=1e-10, atol=1e-12).y[:, -1]


@pytest.mark.slow
def test_half_the_step_divides_the_error_by_two_to_the_order():
    with jax.enable_x64(True):
        model = GHBNODE(**SIZES, solver="heun", step_size=0.5)
        observed = _observed().astype(np.float64)
        variables = random_parameters(model, observed, TIMES, scale=0.8)
        variables = _with(_without_field(variables), damping=-0.5, correction=0.6)
        flow = functools.partial(_bounded_flow, damping=-0.5, correction=0.6)
        exact = _by_hand(variables, flow, observed, TIMES)[0]
        errors = [
            np.abs(_ask(model.clone(step_size=step), variables, observed, TIMES) - exact).max() for step in (0.5, 0.25)
        ]
    assert 1.7 < np.log2(errors[0] / errors[1]) < 2.3
    assert errors[1] < 0.02 * np.abs(exact).max()


@pytest.mark.slow
def test_the_last_step_ends_where_the_gap_does():
    variables, flow = _linear_case(HEAVY)
    u = _ask(HEAVY.clone(step_size=0.4), variables, _observed(), TIMES)
    np.testing.assert_allclose(u, _by_hand(variables, flow, _observed(), TIMES)[0], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_adaptive_steps_agree_with_constant_ones():
    variables, flow = _linear_case(HEAVY)
    adaptive = HBNODE(**SIZES, solver="dopri5", stepping="adaptive", rtol=1e-5, atol=1e-6)
    u = _ask(adaptive, variables, _observed(), TIMES)
    np.testing.assert_allclose(u, _ask(HEAVY, variables, _observed(), TIMES), rtol=0, atol=5e-4)
    np.testing.assert_allclose(u, _by_hand(variables, flow, _observed(), TIMES)[0], rtol=0, atol=1e-4)


# --- the state ----------------------------------------------------------------------------------------------------


def test_the_augmented_state_starts_at_zero_but_for_as_many_components_as_values():
    # Nothing moves, and nothing is added: what is read is the initial state.
    still = _without_field(_random(ANODE))
    names = ("from_state_weight", "from_state_bias", "from_input_weight", "from_input_bias", "readout_bias")
    still = _with(still, **{name: np.zeros(still["params"][name].shape) for name in names})
    read = lambda component: _with(still, readout_weight=np.eye(HIDDEN)[:, [component] * FEATURES])  # noqa: E731
    for component in range(HIDDEN):
        u, other = (_ask(ANODE, read(component), _observed(seed), TIMES) for seed in (0, 1))
        if component < FEATURES:
            assert np.all(np.abs(u - other).min(axis=(1, 2)) > 1e-3)
        else:
            np.testing.assert_array_equal([u, other], 0)


def test_every_observed_value_and_every_gap_matters():
    variables, observed = _random(HEAVY), _observed()
    u = _ask(HEAVY, variables, observed, TIMES)
    for step in range(STEPS):
        for feature in range(FEATURES + 1):
            other = observed.copy()
            other[:, step, feature] += 0.05
            assert np.all(np.abs(_ask(HEAVY, variables, other, TIMES) - u).max(axis=(1, 2)) > 1e-6)


def test_ignored_gaps_are_one_unit_each():
    (variables, flow), observed = _linear_case(SECOND), _observed()
    # So is the one before the first sample that is asked for.
    times = observed[:, -1:, FEATURES] + np.asarray([1.2, 1.0, 2.1, 1.5], np.float32)
    expected, _, _ = _by_hand(variables, flow, observed, times, gap=1.0)
    np.testing.assert_allclose(_ask(IGNORING, variables, observed, times), expected, rtol=0, atol=3e-3)
    assert np.abs(_ask(SECOND, variables, observed, times) - expected).max() > 0.05


def test_the_gap_before_the_first_sample_that_is_asked_for_is_ignored_too():
    (variables, _), observed = _linear_case(SECOND), _observed()
    times = observed[:, -1:, FEATURES] + np.asarray([1.2, 1.0, 2.1, 1.5], np.float32)
    near, far = (_ask(IGNORING, variables, observed, times + more) for more in (0.0, 1.0))
    np.testing.assert_allclose(near, far, rtol=0, atol=1e-5)


# --- clocks -------------------------------------------------------------------------------------------------------


def test_times_come_in_any_order():
    variables, order = _random(HEAVY), np.asarray([[2, 0, 3, 1], [0, 3, 2, 1], [3, 1, 0, 2]])
    u = _ask(HEAVY, variables, _observed(), TIMES)
    shuffled = _ask(HEAVY, variables, _observed(), np.take_along_axis(TIMES, order, axis=1))
    np.testing.assert_allclose(shuffled, np.take_along_axis(u, order[..., None], axis=1), rtol=0, atol=1e-6)
    np.testing.assert_allclose(u[1, 2], u[1, 3], rtol=0, atol=1e-6)
    assert np.abs(u[:, 0] - u[:, 2]).max() > 1e-2


def test_shared_times_equal_the_same_times_for_each_sample():
    variables = _random(HEAVY)
    own = _ask(HEAVY, variables, _observed(), np.tile(TIMES[0], (3, 1)))
    np.testing.assert_allclose(_ask(HEAVY, variables, _observed(), TIMES[0]), own, rtol=0, atol=1e-6)


def test_the_answer_for_a_sample_does_not_depend_on_the_others():
    variables, order = _random(HEAVY), np.asarray([2, 0, 1])
    u = _ask(HEAVY, variables, _observed(), TIMES)
    np.testing.assert_allclose(_ask(HEAVY, variables, _observed()[order], TIMES[order]), u[order], rtol=0, atol=1e-6)


def test_the_clock_may_start_anywhere():
    variables, later = _random(HEAVY), _observed()
    later[..., FEATURES] += 1.75
    u = _ask(HEAVY, variables, _observed(), TIMES)
    np.testing.assert_allclose(_ask(HEAVY, variables, later, TIMES + 1.75), u, rtol=1e-4, atol=1e-5)


def test_observations_without_times_are_even_and_the_last_is_at_zero():
    variables, observed = _random(HEAVY), _observed()
    observed[..., FEATURES] = 0.3 * np.arange(1 - STEPS, 1)
    u = _ask(HEAVY.clone(time_step=0.3), variables, observed[..., :FEATURES], TIMES)
    np.testing.assert_allclose(u, _ask(HEAVY, variables, observed, TIMES), rtol=1e-4, atol=1e-5)


# --- training -----------------------------------------------------------------------------------------------------


@functools.cache
def _loss_and_slopes():
    loss = lambda variables, *data: HEAVY.apply(variables, *data, method="loss_with_steps")  # noqa: E731
    return jax.jit(jax.value_and_grad(loss))


def _target() -> np.ndarray:
    return np.random.default_rng(2).normal(size=(BATCH, 4, FEATURES)).astype(np.float32)


def test_the_loss_with_steps_by_hand():
    (variables, flow), observed, target = _linear_case(HEAVY), _observed(), _target()
    forecast, seen, following = _by_hand(variables, flow, observed, TIMES)
    values = observed[..., :FEATURES]
    # After the last observation comes the earliest of the samples that are asked for.
    earliest = np.asarray([1, 2, 0])
    following = np.concatenate([following, forecast[np.arange(3), earliest][:, None]], axis=1)
    truth = np.concatenate([values[:, 1:], target[np.arange(3), earliest][:, None]], axis=1)
    error = lambda a, b: np.square(a - b).mean()  # noqa: E731
    expected = error(forecast, target) + 0.1 * (error(seen, values) + error(following, truth))
    loss, _ = _loss_and_slopes()(variables, observed, TIMES, target)
    assert float(loss) == pytest.approx(expected, rel=1e-3)


def test_derivatives_are_finite_and_reach_every_parameter():
    _, slopes = _loss_and_slopes()(_random(HEAVY), _observed(), TIMES, _target())
    for slope in jax.tree.leaves(slopes):
        assert np.all(np.isfinite(slope))
        assert np.any(slope != 0)


@functools.cache
def _initial(initial_scale: float):
    model = HBNODE(out_features=2, hidden=40, initial_scale=initial_scale, solver="euler", step_size=1.0)
    return jax.jit(model.init)(jax.random.key(0), _observed(), TIMES)["params"]


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_the_initial_scale_multiplies_the_damping_too(scale):
    params = _initial(scale)
    assert float(params["damping"]) == pytest.approx(-3 * scale)
    assert float(params["correction"]) == 0


def test_initial_parameters_are_uniform_and_scaled():
    plain, small = _initial(1.0), _initial(0.01)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(b, 0.01 * a, rtol=1e-5, atol=0), plain, small)
    for name in ("field_0_weight", "from_positions_weight", "readout_weight"):
        weight = np.asarray(plain[name])
        assert np.abs(weight).max() <= 40**-0.5
        assert weight.std() == pytest.approx(120**-0.5, rel=0.15)


# --- sizes and settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model_class", "count"),
    [(RecurrentNODE, 15_986), (RecurrentANODE, 16_730), (SONODE, 16_649), (HBNODE, 16_127), (GHBNODE, 16_127)],
)
def test_numbers_of_parameters_of_the_published_models(model_class, count):
    shapes = jax.eval_shape(model_class().init, jax.random.key(0), jnp.zeros((1, 64, 6)), jnp.arange(8.0))
    assert num_parameters(shapes) == count


def test_adaptive_steps_need_no_other_setting():
    for model_class in (RecurrentNODE, RecurrentANODE, SONODE, HBNODE, GHBNODE):
        model = model_class(stepping="adaptive")
        model.check_fields()
        assert model.stepping == "adaptive"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stepping": "queries"}, "stepping must be adaptive or constant here: time runs from zero to one between"),
        ({"stepping": "none"}, "stepping must be one of adaptive, constant, queries, got 'none'"),
        ({"solver": "rk4"}, "solver must be one of euler, heun, tsit5, dopri5, dopri8, got 'rk4'"),
        ({"solver": "euler", "stepping": "adaptive"}, "solver=euler has no error estimate .*; use stepping=constant"),
        ({"adjoint": "none"}, "adjoint must be one of checkpoints, direct, backward, got 'none'"),
        ({"rtol": 1e-5}, "stepping=constant does not read rtol; leave it out, or change stepping"),
        ({"step_size": 0.0}, "step_size must be positive and finite, got 0"),
        ({"step_size": float("nan")}, "step_size must be positive and finite, got nan"),
        ({"max_steps": 0}, "max_steps must be positive and finite, got 0"),
        ({"hidden": 0}, "hidden must be positive and finite, got 0"),
        ({"initial_scale": 0.0}, "initial_scale must be positive and finite, got 0"),
        ({"time_step": float("inf")}, "time_step must be positive and finite, got inf"),
    ],
)
def test_fields_out_of_range_are_refused(fields, message):
    for model_class in (RecurrentANODE, SONODE, GHBNODE):
        with pytest.raises(ValueError, match=message):
            model_class(**fields).check_fields()
        with pytest.raises(ValueError, match=message):
            model_class(**fields).init(jax.random.key(0), np.zeros((3, 5, 6)), TIMES)


def test_the_augmented_state_has_room_for_the_values():
    with pytest.raises(ValueError, match="hidden must be at least out_features=5, got 4"):
        RecurrentANODE(hidden=4).check_fields()
    RecurrentANODE(hidden=5).check_fields()
    RecurrentNODE(hidden=4).check_fields()


def test_observations_and_times_that_mean_nothing_are_refused():
    variables, observed = _random(HEAVY), _observed()
    with pytest.raises(ValueError, match="with 2 features, or 3 with the time of observation last"):
        HEAVY.apply(variables, np.tile(observed, 2), TIMES)
    with pytest.raises(ValueError, match="finite and >= 0, got -1"):
        HEAVY.apply(variables, observed, np.asarray([-1.0]))
    with pytest.raises(ValueError, match="ask for at least one query time"):
        HEAVY.apply(variables, observed, np.zeros((3, 0)))
