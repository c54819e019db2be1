"""DeepONet, and what both kinds share: counts, symmetries, the meaning of branch and trunk, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.small_deeponet import SMALL, TIMES, ask, random_variables, state

from ctfno_jax.models import deeponet
from ctfno_jax.models.ctfno import num_parameters
from ctfno_jax.models.deeponet import DeepONet
from ctfno_jax.models.pod_deeponet import PODDeepONet
from ctfno_jax.models.residual_mlp import ResidualMLP, residual_mlp


def _models(**fields):
    """A DeepONet and both kinds of POD-DeepONet, with variables in which nothing is zero."""
    pod_fields = {"num_modes": 3, "num_times": 10, "final_time": 1.0}
    models = [
        DeepONet(**SMALL, **fields),
        PODDeepONet(**SMALL, **pod_fields, **fields),
        PODDeepONet(**SMALL, **pod_fields, basis="space_time", **fields),
    ]
    return [(model, random_variables(model)) for model in models]


# --- both ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (DeepONet(periodic=False), 1_842_177),
        (DeepONet(), 1_842_945),
        (DeepONet(time_features=8), 1_842_945 + 8 * 256),
        (DeepONet(out_channels=3), 1_842_945 + 2 + (256 + 1) * 3 * 256),
        (PODDeepONet(), 1_874_816),
        (PODDeepONet(basis="space_time"), 1_874_816 - 790_016 - 16_448),
        (PODDeepONet(out_channels=3), 1_874_816),
    ],
)
def test_numbers_of_trained_parameters(model, count):
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 1024, 1)), jnp.ones(1))
    assert num_parameters(shapes["params"]) == count


def test_the_answer_for_a_sample_does_not_depend_on_the_others():
    u0, order = state(), np.asarray([2, 0, 3, 1])
    for model, variables in _models():
        u = ask(model, variables, u0, TIMES)
        np.testing.assert_allclose(ask(model, variables, u0[order], TIMES), u[order], rtol=0, atol=1e-5)


def test_shared_times_equal_the_same_times_for_each_sample():
    u0 = state()
    for model, variables in _models(out_channels=2):
        own = ask(model, variables, u0, np.tile(TIMES, (4, 1)))
        np.testing.assert_allclose(own, ask(model, variables, u0, TIMES), rtol=0, atol=1e-5)


def test_each_sample_is_answered_at_its_own_times():
    u0 = state(2)
    own_times = np.asarray([[0.1, 0.5, 0.2], [0.9, 0.4, 0.4]], np.float32)
    for model, variables in _models():
        u = ask(model, variables, u0, own_times)
        for i in range(2):
            alone = ask(model, variables, u0[i : i + 1], own_times[i])
            np.testing.assert_allclose(u[i], alone[0], rtol=0, atol=1e-5)


def test_times_come_in_any_order_and_number():
    u0, times = state(), np.asarray([0.7, 0.2, 0.2, 0.9, 0.1], np.float32)
    for model, variables in _models():
        u = ask(model, variables, u0, times)
        np.testing.assert_allclose(ask(model, variables, u0, times[::-1]), u[:, ::-1], rtol=0, atol=1e-5)
        np.testing.assert_allclose(ask(model, variables, u0, times[3:4]), u[:, 3:4], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_gradients_are_finite_and_reach_every_parameter():
    u0 = state()
    for model, variables in _models(out_channels=2):
        loss = lambda v, model=model: jnp.mean(model.apply(v, u0, TIMES) ** 2)  # noqa: E731
        for gradient in jax.tree.leaves(jax.jit(jax.grad(loss))(variables)["params"]):
            assert np.all(np.isfinite(gradient))
            assert np.any(gradient != 0)


def test_a_residual_network_whose_second_maps_vanish_is_affine():
    weights = ResidualMLP(5, 3, 2)
    shapes = jax.eval_shape(lambda: weights.init(jax.random.key(0), 4))["params"]
    rng = np.random.default_rng(0)
    silent = {k: np.zeros(a.shape) if "second" in k else rng.normal(size=a.shape) for k, a in shapes.items()}
    first, _, last = maps = weights.apply({"params": silent}, 4)
    v = rng.normal(size=(3, 4))
    expected = (v @ first[0] + first[1]) @ last[0] + last[1]
    np.testing.assert_allclose(jax.jit(residual_mlp)(maps, v), expected, rtol=0, atol=1e-4)


def test_all_channels_of_the_state_are_read():
    u0 = state(channels=2)
    other = u0.copy()
    other[:, 5, 1] += 1.0
    for model in (DeepONet(**SMALL), PODDeepONet(**SMALL, num_modes=3)):
        variables = random_variables(model, channels=2)
        assert np.all(np.abs(ask(model, variables, u0, TIMES) - ask(model, variables, other, TIMES)).max((1, 2)) > 0)
        with pytest.raises(ValueError, match="u0 has 1 channels, but the parameters are for 2"):
            model.apply(variables, state(), TIMES)


@pytest.mark.parametrize("model_class", [DeepONet, PODDeepONet])
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 0}, "width must be positive"),
        ({"depth": -1}, "depth must be positive"),
        ({"num_sensors": 0}, "num_sensors must be positive"),
        ({"time_scale": float("nan")}, "time_scale must be positive and finite"),
    ],
)
def test_fields_out_of_range_are_refused(model_class, fields, message):
    with pytest.raises(ValueError, match=message):
        model_class(**fields).check_fields()
    with pytest.raises(ValueError, match=message):
        model_class(**fields).init(jax.random.key(0), state(1), TIMES)


def test_wrong_shapes_and_times_are_refused():
    for model, variables in _models():
        with pytest.raises(ValueError, match="3 axes"):
            model.apply(variables, state()[..., 0], TIMES)
        with pytest.raises(ValueError, match="batch=4"):
            model.apply(variables, state(), np.ones((3, 2), np.float32))
        with pytest.raises(ValueError, match="finite and >= 0"):
            model.apply(variables, state(), np.asarray([-1.0], np.float32))


# --- DeepONet -----------------------------------------------------------------------------------------------------


def test_a_trunk_that_vanishes_leaves_the_bias():
    model = DeepONet(**SMALL, out_channels=2)
    params = random_variables(model)["params"]
    params = {**params, "trunk": jax.tree.map(np.zeros_like, params["trunk"])}
    u = ask(model, {"params": params}, state(), TIMES)
    np.testing.assert_array_equal(u, np.broadcast_to(params["bias"], (4, 3, 32, 2)))


def test_the_output_is_linear_in_the_last_map_of_the_branch():
    model = DeepONet(**SMALL, out_channels=2)
    params = random_variables(model)["params"]

    def without_bias(factor: float):
        last = {k: factor * v if k.startswith("output") else v for k, v in params["branch"].items()}
        return ask(model, {"params": {**params, "branch": last}}, state(), TIMES) - params["bias"]

    np.testing.assert_allclose(without_bias(-3.0), -3.0 * without_bias(1.0), rtol=0, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
def test_one_answer_by_hand(channels):
    """Each channel has coefficients of its own, from one more map of the branch; the trunk is shared."""
    model = DeepONet(**SMALL, out_channels=channels, periodic=False, time_scale=2.0)
    variables = random_variables(model)
    u0 = state()
    params = variables["params"]
    branch = ResidualMLP(16, 1, None if channels == 1 else 16 * channels).apply({"params": params["branch"]}, 32)
    trunk = ResidualMLP(16, 1).apply({"params": params["trunk"]}, 2)
    coefficients = np.asarray(residual_mlp(branch, jnp.asarray(u0[2, :, 0]))).reshape(channels, 16)
    g = residual_mlp(trunk, jnp.asarray([7 / 32, 2.0 * TIMES[1]]))
    expected = coefficients @ g / 4.0 + params["bias"]
    u = ask(model, variables, u0, TIMES)
    assert u.shape == (4, 3, 32, channels)
    np.testing.assert_allclose(u[2, 1, 7], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("periodic", [True, False])
def test_a_finer_grid_is_read_at_the_same_sensors(periodic):
    model = DeepONet(**SMALL, periodic=periodic)
    variables = random_variables(model)
    fine = state(num_points=96)
    u = ask(model, variables, fine, TIMES)
    assert u.shape == (4, 3, 96, 1)
    np.testing.assert_allclose(u[:, :, ::3], ask(model, variables, fine[:, ::3], TIMES), rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_points", [16, 33])
def test_grids_without_the_sensors_are_refused(num_points):
    model = DeepONet(**SMALL)
    with pytest.raises(ValueError, match=f"{num_points} points, which is not a multiple of num_sensors=32"):
        model.apply(random_variables(model), state(num_points=num_points), TIMES)


def test_the_trunk_is_periodic_if_asked():
    x, t = jnp.asarray([0.0, 0.2, 0.7]), jnp.asarray(0.4)
    once, twice = (DeepONet(periodic=True).trunk_inputs(x + shift, t) for shift in (0.0, 1.0))
    assert once.shape == (3, 5)
    np.testing.assert_allclose(once, twice, rtol=0, atol=1e-5)
    np.testing.assert_allclose(once[1, :4], np.cos([0.4 * np.pi, 0.8 * np.pi, -0.1 * np.pi, 0.3 * np.pi]), atol=1e-6)
    plain = DeepONet(periodic=False).trunk_inputs(x, t)
    np.testing.assert_allclose(plain, np.stack([x, np.full(3, 0.4)], axis=-1), rtol=1e-6)


def test_sinusoids_of_time_follow_the_scaled_time():
    inputs = DeepONet(periodic=False, time_scale=5.0, time_features=4).trunk_inputs(jnp.zeros(2), jnp.asarray(0.4))
    expected = [0.0, 2.0, np.sin(2.0), np.sin(2e-4), np.cos(2.0), np.cos(2e-4)]
    np.testing.assert_allclose(inputs, np.tile(expected, (2, 1)), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("own_times", [False, True])
def test_many_points_are_taken_in_turns_with_the_same_answer_and_gradient(monkeypatch, own_times):
    model = DeepONet(**SMALL)
    variables = random_variables(model)
    u0, times = state(), np.asarray([0.3, 1.0, 0.1, 0.6, 0.2], np.float32)
    times = np.tile(times, (4, 1)) if own_times else times
    value_and_grad = lambda: jax.jit(jax.value_and_grad(lambda v: jnp.mean(model.apply(v, u0, times) ** 2)))(variables)  # noqa: E731
    whole = value_and_grad()
    monkeypatch.setattr(deeponet, "_TRUNK_POINTS", 64)
    for a, b in zip(jax.tree.leaves(value_and_grad()), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_an_odd_number_of_sinusoids_is_refused():
    with pytest.raises(ValueError, match="time_features must be 0 or an even"):
        DeepONet(time_features=3).check_fields()
