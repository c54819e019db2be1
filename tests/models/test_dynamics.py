"""Latent dynamics: identities at time zero, independence of the other times, and parts by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.models import dynamics
from ctfno_jax.models.ctfno import CTFNO

OPERATOR = CTFNO(out_channels=2, width=4, modes=(2,), depth=1, heads=1, time_width=8, time_features=4)
WEIGHT = np.random.default_rng(3).normal(size=(6, 2)).astype(np.float32)
DYNAMICS = {
    "grid": dynamics.GridDynamics(OPERATOR, points=3),
    "ode": dynamics.ODEDynamics(units=5, layers=1, solver="heun", stepping="constant", step_size=0.05),
    "flow": dynamics.FlowDynamics(num_layers=2, width=4, depth=1),
    "gru": dynamics.GRUDynamics(),
}
# The latent state of CTFNO always; the others take longer.
EACH = pytest.mark.parametrize(
    "name", [n if n == "grid" else pytest.param(n, marks=pytest.mark.slow) for n in DYNAMICS]
)
Z0 = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
TIMES = np.asarray([0.7, 0.2, 0.45], np.float32)


def _decode(z):
    return z @ WEIGHT


@functools.cache
def _move(name):
    # A callable is no argument of a compiled function: it is a part of it.
    return jax.jit(lambda params, z0, times: DYNAMICS[name].apply(params, z0, times, _decode))


def _parameters(name):
    shapes = jax.eval_shape(lambda key: DYNAMICS[name].init(key, Z0, TIMES, _decode), jax.random.key(0))
    leaves, tree = jax.tree.flatten(shapes)
    rng = np.random.default_rng(1)
    return tree.unflatten([jnp.asarray(0.4 * rng.standard_normal(leaf.shape), jnp.float32) for leaf in leaves])


@EACH
def test_own_times_that_are_equal_are_shared_times(name):
    params, move = _parameters(name), _move(name)
    shared, own = move(params, Z0, TIMES), move(params, Z0, np.tile(TIMES, (4, 1)))
    assert shared.shape == (4, 3, 6)
    np.testing.assert_allclose(shared, own, rtol=0, atol=1e-5)


@EACH
def test_the_order_of_the_times_does_not_matter(name):
    params, move = _parameters(name), _move(name)
    np.testing.assert_allclose(move(params, Z0, TIMES[::-1]), move(params, Z0, TIMES)[:, ::-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["grid", "ode", "flow"])
def test_the_answer_at_a_time_does_not_depend_on_the_other_times(name):
    params, move = _parameters(name), _move(name)
    np.testing.assert_allclose(move(params, Z0, TIMES[1:2]), move(params, Z0, TIMES)[:, 1:2], rtol=0, atol=1e-4)


def test_a_recurrent_network_depends_on_the_times_before():
    params, move = _parameters("gru"), _move("gru")
    assert np.abs(move(params, Z0, TIMES[:1]) - move(params, Z0, TIMES)[:, :1]).max() > 1e-3


@pytest.mark.parametrize("name", ["ode", "flow"])
def test_nothing_moves_in_no_time(name):
    z = _move(name)(_parameters(name), Z0, np.zeros(1, np.float32))
    np.testing.assert_allclose(z[:, 0], Z0, rtol=0, atol=1e-6)


def test_a_vector_field_that_does_not_depend_on_time_gives_a_semigroup():
    """Later states from the state at an earlier time are those from the beginning."""
    params, move = _parameters("ode"), _move("ode")
    half = move(params, Z0, np.asarray([0.4], np.float32))[:, 0]
    later = move(params, half, np.asarray([0.3], np.float32))
    np.testing.assert_allclose(later, move(params, Z0, np.asarray([0.7], np.float32)), rtol=0, atol=1e-4)


def test_a_latent_state_is_a_field_on_a_grid():
    params = _parameters("grid")
    field = Z0.reshape(4, 3, 2)
    expected = jax.jit(OPERATOR.apply)({"params": params["params"]["operator"]}, field, TIMES)
    np.testing.assert_allclose(_move("grid")(params, Z0, TIMES), expected.reshape(4, 3, 6), rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match=r"latent=7 must be points \* out_channels = 3 \* 2"):
        DYNAMICS["grid"].apply(params, np.zeros((4, 7), np.float32), TIMES, _decode)


def test_the_recurrent_network_reads_gap_values_and_ones():
    params = _parameters("gru")
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    z, last, expected = Z0.astype(np.float64), 0.0, {}
    for t in np.sort(TIMES):
        x = np.concatenate([np.full((4, 1), t - last), z @ WEIGHT, np.ones((4, 2))], axis=-1)
        r_x, z_x, n_x = np.split(x @ p["gru_input"]["weight"] + p["gru_input"]["bias"], 3, axis=-1)
        r_h, z_h, n_h = np.split(z @ p["gru_state"]["weight"] + p["gru_state"]["bias"], 3, axis=-1)
        update = sigmoid(z_x + z_h)
        z, last = update * z + (1 - update) * np.tanh(n_x + sigmoid(r_x + r_h) * n_h), t
        expected[float(t)] = z
    found = _move("gru")(params, Z0, TIMES)
    for i, t in enumerate(TIMES):
        np.testing.assert_allclose(found[:, i], expected[float(t)], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (dynamics.GridDynamics(OPERATOR, points=0), "points must be"),
        (dynamics.ODEDynamics(units=0), "units must be"),
        (dynamics.ODEDynamics(solver="rk5"), "solver must be one of"),
        (dynamics.FlowDynamics(time_network="square"), "time_network must be one of linear, tanh, fourier"),
    ],
)
def test_fields_out_of_range_are_refused(module, message):
    with pytest.raises(ValueError, match=message):
        module.check_fields()
