"""Residual and Semigroup: closed forms of simple operators, and CTFNO against recorded output."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import traverse_util
from helpers import small_ctfno
from helpers.small_ctfno import ATOL

from ctfno_jax.models import interface
from ctfno_jax.models.composition import Residual, Semigroup, split_times
from ctfno_jax.models.ctfno import CTFNO
from ctfno_jax.models.deeponet import DeepONet
from ctfno_jax.models.fno import FNORNN

STEP = 0.3
TIMES = np.array([0.7, 0.0, 0.3, 1.15, 0.1, 0.6], np.float32)


def _times_like(u0, times):
    """``(batch, time, 1, ..., 1)``, to multiply fields with a time axis."""
    return jnp.broadcast_to(times, (len(u0), times.shape[-1])).reshape(len(u0), -1, *[1] * (u0.ndim - 1))


class Growth(nn.Module):
    """``u0 exp(-0.8 t)``: a semigroup."""

    def __call__(self, u0, times):
        return jnp.exp(-0.8 * _times_like(u0, times)) * u0[:, None]


class Polynomial(nn.Module):
    """``(1 + 0.7 t) u + t^2 c`` of two channels u and a third channel c of the state: no semigroup."""

    def __call__(self, u0, times):
        t = _times_like(u0, times)
        return (1 + 0.7 * t) * u0[:, None, ..., :2] + t**2 * u0[:, None, ..., 2:3]


def _run(model, u0, times):
    """Without parameters; compiled once for each model and shape."""
    return np.asarray(small_ctfno.run(model, {}, u0, times))


# --- recorded output ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded():
    with np.load(pathlib.Path(__file__).parent / "data" / "composed_parity.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize(
    ("name", "channels", "depth"),
    [("residual", 1, 1), ("constants", 2, 2), pytest.param("semigroup", 1, 2, marks=pytest.mark.slow)],
)
def test_recorded_output_is_reproduced(recorded, name, channels, depth):
    """Output of CTFNO when it had these as fields: start="state", rise_time=0.3, horizon=0.5, max_steps=4.

    "residual" was without the last two; "constants" has a second channel of u0, which does not change.
    """
    network = CTFNO(width=4, modes=(3,), depth=2, heads=2, time_width=4, time_features=6, coordinates=False)
    model = Residual(network, rise_time=0.3)
    if depth == 2:
        model = Semigroup(model, step_size=0.5, num_steps=4)
    params = {k.removeprefix("params/"): v for k, v in recorded.items() if k.startswith("params/")}
    params["lifting/weight"] = params["lifting/weight"][:channels]
    nested = traverse_util.unflatten_dict(params, sep="/")
    for _ in range(depth):
        nested = {"operator": nested}
    u0 = recorded["u0"][..., :channels]
    apply_fn = jax.jit(model.apply, compiler_options=small_ctfno.QUICK)
    for times, u in (("times", "shared"), ("own_times", "own")):
        result = apply_fn({"params": nested}, u0, recorded[times])
        np.testing.assert_allclose(result, recorded[f"{name}/{u}"], rtol=0, atol=2e-6)


# --- Residual -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [(5,), (4, 3)])
def test_residual_adds_a_rising_part_of_the_output_to_the_first_channels(grid):
    u0, times = small_ctfno.state(2, *grid, 4), np.array([0.9, 0.0, 0.1], np.float32)
    expected = _run(Polynomial(), u0, times)
    rise = np.array([0.9, 0.0, 0.5], np.float32).reshape(3, *[1] * (u0.ndim - 1))
    expected = u0[:, None, ..., :2] + rise * expected
    model = Residual(Polynomial(), rise_time=0.1)
    u = _run(model, u0, times)
    np.testing.assert_allclose(u, expected, rtol=0, atol=ATOL)
    np.testing.assert_array_equal(u[:, 1], u0[..., :2])
    own = np.stack([times, times[::-1]])
    np.testing.assert_allclose(_run(model, u0, own)[1], expected[1, ::-1], rtol=0, atol=ATOL)


# --- Semigroup ----------------------------------------------------------------------------------------------------


def test_composing_a_semigroup_changes_nothing():
    u0 = small_ctfno.state(3, 5, 4, 2)
    u = _run(Semigroup(Growth(), STEP, 4), u0, TIMES)
    np.testing.assert_allclose(u, _run(Growth(), u0, TIMES), rtol=0, atol=ATOL)


@pytest.mark.parametrize("operator", [Polynomial(), Residual(Polynomial(), rise_time=0.2)])
def test_whole_steps_then_one_shorter_step(operator):
    """Step by step in a loop; the channels that the solution does not have are passed on unchanged."""
    u0 = small_ctfno.state(3, 5, 4)
    result = _run(Semigroup(operator, STEP, 4), u0, TIMES)
    for i, (time, whole) in enumerate(zip(TIMES, (2, 0, 0, 3, 0, 1), strict=True)):
        state = u0
        for dt in (*[STEP] * whole, time - whole * STEP):
            u = _run(operator, state, np.array([dt], np.float32))[:, 0]
            state = np.concatenate([u, u0[..., 2:]], axis=-1)
        np.testing.assert_allclose(result[:, i], u, rtol=0, atol=10 * ATOL)


def test_times_of_each_sample_in_any_order():
    u0, own = small_ctfno.state(3, 5, 4), np.array([[0.7, 0.1], [0.0, 1.1], [0.4, 0.3]], np.float32)
    model = Semigroup(Polynomial(), STEP, 4)
    together = _run(model, u0, own)
    for i in range(3):
        np.testing.assert_allclose(together[i], _run(model, u0, own[i])[i], rtol=0, atol=ATOL)


def test_a_time_beyond_the_steps_is_reached_by_a_longer_last_step():
    u0 = small_ctfno.state(3, 5, 3)
    late = _run(Semigroup(Polynomial(), STEP, 2), u0, np.array([1.3], np.float32))
    first = _run(Polynomial(), u0, np.array([STEP], np.float32))[:, 0]
    state = np.concatenate([first, u0[..., 2:]], axis=-1)
    np.testing.assert_allclose(late, _run(Polynomial(), state, np.array([1.0], np.float32)), rtol=0, atol=ATOL)


def test_times_are_split_into_whole_steps_and_a_rest_within_one_step():
    times = np.arange(1, 13, dtype=np.float32) * np.float32(0.15)
    for some in (times, jnp.asarray(times)):
        whole, rest = split_times(some, STEP, 8)
        np.testing.assert_array_equal(whole, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
        np.testing.assert_allclose(rest, np.tile([0.15, 0.3], 6), rtol=0, atol=1e-6)
        assert np.all(rest >= 0)


def test_unused_steps_leave_gradients_finite():
    """In 30 more steps of an operator that squares its state, numbers overflow."""

    class Square(nn.Module):
        @nn.compact
        def __call__(self, u0, times):
            scale = self.param("scale", nn.initializers.constant(3.0), ())
            return scale * jnp.ones_like(times)[..., None, None] * u0[:, None] ** 2

    u0, times = 2 + np.abs(small_ctfno.state(3, 5, 1)), np.array([[0.5], [0.2], [0.4]], np.float32)
    model = Semigroup(Square(), STEP, 32)
    variables = {"params": {"operator": {"scale": jnp.asarray(3.0)}}}
    loss = lambda v: jnp.mean(model.apply(v, u0, times))  # noqa: E731
    value, slope = jax.jit(jax.value_and_grad(loss))(variables)
    # 3 (3 u^2)^2 after two steps, 3 u^2 after one: powers 3 and 1 of the scale.
    expected = np.mean([3 * 27 * u0[0] ** 4, 1 * 3 * u0[1] ** 2, 3 * 27 * u0[2] ** 4]) / 3
    assert np.isfinite(value)
    np.testing.assert_allclose(slope["params"]["operator"]["scale"], expected, rtol=1e-4)


def test_init_gives_the_output_of_apply():
    u0 = small_ctfno.state(3, 5, 3)
    model = Semigroup(Residual(Polynomial(), 0.2), STEP, 4)
    u, _ = jax.jit(model.init_with_output)(jax.random.key(0), u0, TIMES)
    np.testing.assert_allclose(u, _run(model, u0, TIMES), rtol=0, atol=ATOL)


@pytest.mark.slow
def test_derivatives_reach_every_parameter_of_the_network_through_all_steps():
    u0 = small_ctfno.state(3, 10, 2)
    model = Semigroup(Residual(small_ctfno.model_of(coordinates=False, depth=1), rise_time=0.1), STEP, 3)
    _, slopes = small_ctfno.run_and_slopes(model, small_ctfno.init(model, u0), u0, np.array([0.8], np.float32))
    for leaf in jax.tree.leaves(slopes):
        assert np.all(np.isfinite(leaf))
        assert np.any(leaf != 0)


def test_other_operators_can_be_wrapped():
    u0, times = small_ctfno.state(3, 8, 1), np.array([0.5, 0.3], np.float32)
    model = Semigroup(Residual(DeepONet(width=6, depth=1, num_sensors=8), rise_time=0.2), STEP, 2)
    variables = small_ctfno.init(model, u0)
    inner = {"params": variables["params"]["operator"]}
    first = small_ctfno.run(model.operator, inner, u0, np.array([STEP], np.float32))
    last = small_ctfno.run(model.operator, inner, np.asarray(first[:, 0]), np.array([0.2], np.float32))
    expected = jnp.concatenate([last, first], axis=1)
    np.testing.assert_allclose(small_ctfno.run(model, variables, u0, times), expected, rtol=0, atol=10 * ATOL)


# --- steps and times ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("time", "num_steps"), [(0.0, 1), (0.3, 1), (0.31, 2), (0.9, 4), (1.2, 4), (1.21, 8)])
def test_reaching_has_a_power_of_two_of_steps(time, num_steps):
    model = Semigroup(Growth(), STEP, 3)
    reached = model.reaching(np.array([0.1, time], np.float32))
    assert (reached.num_steps, reached.operator, reached.step_size) == (num_steps, model.operator, STEP)


def test_times_after_the_last_step_are_named():
    model = Semigroup(Growth(), STEP, 3)
    assert model.answerable(np.array([[0.9, 0.1]], np.float32)) is None
    assert model.answerable(np.array([1.0])) == "3 steps of 0.3 end at 0.9, got t=1; raise num_steps"
    assert interface.unanswerable(model, np.array([1.0])) is None


def test_steps_that_the_operator_does_not_answer_are_named():
    model = Semigroup(FNORNN(time_step=0.1, num_times=3), STEP, 3)
    assert model.answerable(np.array([0.8, 0.3])) is None
    assert "fno_rnn answers only at multiples of 0.1" in str(model.answerable(np.array([0.45])))


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Residual(Growth(), rise_time=0.0), r"rise_time must be positive and finite, got 0\.0"),
        (Semigroup(Growth(), step_size=-1.0, num_steps=2), r"step_size must be positive and finite, got -1\.0"),
        (Semigroup(Growth(), step_size=float("inf"), num_steps=2), "step_size must be positive and finite, got inf"),
        (Semigroup(Growth(), step_size=0.1, num_steps=0), "num_steps must be at least 1, got 0"),
    ],
)
def test_fields_out_of_range_are_refused(model, message):
    with pytest.raises(ValueError, match=message):
        interface.check_fields(model)
    with pytest.raises(ValueError, match=message):
        model.init(jax.random.key(0), small_ctfno.state(2, 5, 2), TIMES)


@pytest.mark.parametrize("wrapper", [lambda op: Residual(op, 0.1), lambda op: Semigroup(op, STEP, 2)])
def test_states_with_fewer_channels_than_the_solution_are_refused(wrapper):
    model = wrapper(small_ctfno.model_of())
    with pytest.raises(ValueError, match="u0 has 1 channels, but the operator answers with 2"):
        jax.eval_shape(model.init, jax.random.key(0), small_ctfno.state(2, 8, 1), TIMES)
    with pytest.raises(ValueError, match=r"1 to 3 space axes, got shape \(2, 8\)"):
        model.init(jax.random.key(0), small_ctfno.state(2, 8), TIMES)
