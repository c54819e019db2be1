"""Neural flows: the identity at time zero, invertible at all times, and what the recurrent network reads."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.parameters import random_parameters

from ctfno_jax.models import neural_flow
from ctfno_jax.models.ctfno import num_parameters
from ctfno_jax.models.neural_flow import FieldNeuralFlow, Flow, ObservedNeuralFlow

TIMES = np.asarray([0.7, 0.2, 1.9, 1.0, 0.2], np.float32)
KINDS = [
    ("coupling", "linear"),
    ("coupling", "tanh"),
    ("coupling", "fourier"),
    ("resnet", "tanh"),
    ("resnet", "fourier"),
]
EACH_KIND = pytest.mark.parametrize(("kind", "time_network"), KINDS)


def _layers(dimension: int, kind: str, time_network: str, *, num_layers: int = 3, scale: float = 0.5):
    """Layers without any special value."""
    module = Flow(dimension, kind, num_layers, width=4, depth=2, time_network=time_network, num_sinusoids=6)
    rng = np.random.default_rng(dimension)
    shapes = jax.eval_shape(module.init, jax.random.key(0))
    draw = lambda a: jnp.asarray(scale * rng.normal(size=a.shape), a.dtype)  # noqa: E731
    return module.apply(jax.tree.map(draw, shapes))


@functools.cache
def _compiled(which, kind: str, bounded: bool):
    return jax.jit(functools.partial(which, kind=kind, bounded=bounded))


def _flow(which, layers, x, t, kind, time_network):
    return np.asarray(_compiled(which, kind, neural_flow._is_bounded(kind, time_network))(layers, x, t))


def _points(dimension: int, batch: int = 7, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(batch, dimension)).astype(np.float32)


# --- flows --------------------------------------------------------------------------------------------------------


@EACH_KIND
@pytest.mark.parametrize("dimension", [1, 5])
def test_a_flow_is_the_identity_at_time_zero_and_invertible_later(kind, time_network, dimension):
    layers, x = _layers(dimension, kind, time_network, num_layers=2), _points(dimension)
    there, back = (functools.partial(_flow, f, layers) for f in (neural_flow.flow, neural_flow.inverse_flow))
    np.testing.assert_array_equal(there(x, np.zeros((7, 1), np.float32), kind, time_network), x)
    t = np.linspace(0.1, 1.5, 7, dtype=np.float32)[:, None]
    y = there(x, t, kind, time_network)
    assert np.abs(y - x).max() > 1e-3
    np.testing.assert_allclose(back(y, t, kind, time_network), x, rtol=1e-4, atol=1e-4)
    forth = there(back(x, t, kind, time_network), t, kind, time_network)
    np.testing.assert_allclose(forth, x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("index", [0, 1])
def test_a_coupling_layer_by_hand(index):
    (layer,) = _layers(3, "coupling", "linear", num_layers=1)
    x, t = _points(3), np.linspace(0.1, 1.5, 7, dtype=np.float32)[:, None]
    kept = np.asarray([[1, 1, 0], [0, 0, 1]][index], bool)  # the larger half first
    (w0, b0), (w1, b1), (w2, b2) = layer.maps
    hidden = np.tanh(np.tanh(np.concatenate([np.where(kept, x, 0), t], axis=1) @ w0 + b0) @ w1 + b1)
    raw = (hidden @ w2 + b2) * (np.asarray(layer.rates) * t)
    expected = np.where(kept, x, x * np.exp(raw[:, :3]) + raw[:, 3:])
    found = neural_flow._coupling(layer, jnp.asarray(x), jnp.asarray(t), index, False)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("time_network", ["tanh", "fourier"])
def test_what_a_resnet_layer_adds_is_a_contraction(time_network):
    # Three maps of norm below 0.97, however large their weights are.
    layers = _layers(5, "resnet", time_network, num_layers=1, scale=20.0)
    a, b = _points(5, 40), _points(5, 40) + 1e-2 * _points(5, 40, seed=1)
    t = np.linspace(0.1, 9.0, 40, dtype=np.float32)[:, None]
    added = [_flow(neural_flow.flow, layers, x, t, "resnet", time_network) - x for x in (a, b)]
    quotients = np.linalg.norm(added[0] - added[1], axis=1) / np.linalg.norm(a - b, axis=1)
    assert quotients.max() <= 0.97**3 * (1 + 1e-3)
    assert quotients.max() > 0


@pytest.mark.parametrize("scale", [0.01, 30.0])
def test_matrices_of_a_resnet_have_norm_below_one(scale):
    weight = jnp.asarray(scale * np.random.default_rng(0).normal(size=(6, 4)), jnp.float32)
    found = np.asarray(neural_flow._contraction(weight))
    assert np.linalg.norm(found, 2) <= 0.97 * (1 + 1e-5)
    if scale < 0.1:
        np.testing.assert_array_equal(found, weight)


def test_functions_of_time_by_hand():
    t = np.asarray([[0.0], [0.4], [2.0]], np.float32)
    (linear,) = _layers(2, "coupling", "linear", num_layers=1)
    (fourier,) = _layers(2, "coupling", "fourier", num_layers=1)
    plain, bounded = (neural_flow._time_functions(linear, t, b) for b in (False, True))
    np.testing.assert_allclose(plain, t * linear.rates, rtol=1e-6)
    np.testing.assert_allclose(bounded, np.tanh(t * linear.rates), rtol=1e-5)
    waves = (fourier.weights * np.sin(fourier.rates * t[..., None])).mean(-1)
    assert waves.shape == (3, 4)
    np.testing.assert_allclose(neural_flow._time_functions(fourier, t, False), waves, rtol=1e-4, atol=1e-6)


def test_every_coordinate_is_moved_by_some_layer():
    for dimension in (1, 2, 5):
        kept = np.stack([neural_flow._kept(np.zeros(dimension, np.float32), index) for index in range(2)])
        assert np.all(kept.min(0) == 0)
        assert np.all(kept.max(0) == (dimension > 1))


# --- forecasts of vectors -----------------------------------------------------------------------------------------

SMALL = {"out_features": 2, "latent": 3, "hidden": 4, "readout": 6, "width": 5, "depth": 1, "time_step": 0.25}


def _observed(batch: int = 7, steps: int = 4, inputs: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(batch, steps, inputs)).astype(np.float32)


def _with_times(observed: np.ndarray, times: np.ndarray) -> np.ndarray:
    times = np.broadcast_to(times, observed.shape[:2]).astype(np.float32)
    return np.concatenate([observed, times[..., None]], axis=-1)


@functools.cache
def _random(kind: str = "coupling", time_network: str = "linear"):
    model = ObservedNeuralFlow(**SMALL, kind=kind, time_network=time_network)
    return model, random_parameters(model, _observed(), TIMES, scale=0.4)


@functools.cache
def _jitted(model, method: str = "__call__"):
    return jax.jit(functools.partial(model.apply, method=method))


def _ask(model, variables, observed, times) -> np.ndarray:
    return np.asarray(_jitted(model)(variables, observed, times))


@pytest.mark.slow
@EACH_KIND
def test_shapes_with_all_axes_different_and_times_in_any_order(kind, time_network):
    model, variables = _random(kind, time_network)
    u, order = _ask(model, variables, _observed(), TIMES), np.asarray([3, 0, 4, 2, 1])
    assert u.shape == (7, 5, 2)
    np.testing.assert_allclose(_ask(model, variables, _observed(), TIMES[order]), u[:, order], rtol=0, atol=1e-5)
    assert np.abs(u[:, 0] - u[:, 2]).max() > 1e-3


@pytest.mark.slow
@EACH_KIND
def test_shared_times_equal_the_same_times_for_each_sample(kind, time_network):
    model, variables = _random(kind, time_network)
    own = _ask(model, variables, _observed(), np.tile(TIMES, (7, 1)))
    np.testing.assert_allclose(own, _ask(model, variables, _observed(), TIMES), rtol=0, atol=1e-5)


def test_the_answer_for_a_sample_does_not_depend_on_the_others():
    model, variables = _random()
    own = TIMES + np.arange(7, dtype=np.float32)[:, None] / 9
    order = np.asarray([2, 6, 0, 3, 5, 1, 4])
    u = _ask(model, variables, _observed(), own)
    np.testing.assert_allclose(_ask(model, variables, _observed()[order], own[order]), u[order], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("kind", "time_network"), [("coupling", "linear"), ("resnet", "fourier")])
def test_at_time_zero_the_latent_state_is_decoded_as_it_is(kind, time_network):
    model, variables = _random(kind, time_network)
    values, mean, std = _jitted(model, "posterior")(variables, _observed(), np.zeros(1, np.float32))
    decoder = variables["params"]["decoder"]
    np.testing.assert_allclose(values[:, 0], mean @ decoder["weight"] + decoder["bias"], rtol=0, atol=1e-6)
    assert mean.shape == std.shape == (7, 3)
    assert np.all(std > 0)


def test_one_observation_by_hand():
    model, variables = _random()
    observed, p = _observed(steps=1), variables["params"]
    marked = np.concatenate([observed[:, 0], np.ones((7, 2))], axis=1)
    gates = marked @ p["cell_input"]["weight"] + p["cell_input"]["bias"] + p["cell_state"]["bias"]
    enter, _, candidate, leave = np.split(gates, 4, axis=-1)
    sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    state = sigmoid(leave) * np.tanh(sigmoid(enter) * np.tanh(candidate))
    readout = p["readout_maps"]
    hidden = np.tanh(state @ readout["weight_0"] + readout["bias_0"])
    raw = hidden @ readout["weight_1"] + readout["bias_1"]
    _, mean, std = _jitted(model, "posterior")(variables, observed, TIMES)
    np.testing.assert_allclose(mean, raw[:, :3], rtol=0, atol=1e-5)
    np.testing.assert_allclose(std, np.log1p(np.exp(raw[:, 3:])), rtol=0, atol=1e-5)


def test_observations_without_times_are_even():
    model, variables = _random()
    timed = _with_times(_observed(), np.asarray([-0.75, -0.5, -0.25, 0.0]))
    expected = _ask(model, variables, _observed(), TIMES)
    np.testing.assert_allclose(_ask(model, variables, timed, TIMES), expected, rtol=0, atol=1e-6)


def test_only_the_gaps_between_observations_matter():
    model, variables = _random()
    times = np.asarray([-1.0, -0.75, -0.25, 0.0])
    u, shifted = (_ask(model, variables, _with_times(_observed(), times + shift), TIMES) for shift in (0.0, 2.0))
    np.testing.assert_allclose(shifted, u, rtol=0, atol=1e-5)
    other = _ask(model, variables, _with_times(_observed(), np.asarray([-1.0, -0.5, -0.25, 0.0])), TIMES)
    assert np.abs(other - u).max() > 1e-4


def test_all_observations_are_read():
    model, variables = _random()
    u = _ask(model, variables, _observed(), TIMES)
    for step in range(4):
        other = _observed()
        other[:, step] += 1.0
        assert np.all(np.abs(_ask(model, variables, other, TIMES) - u).max((1, 2)) > 1e-5)


def test_a_draw_starts_from_another_latent_state():
    model, variables = _random()
    key, zero = jax.random.key(5), np.zeros(1, np.float32)
    values, mean, std = _jitted(model, "posterior")(variables, _observed(), zero, key)
    again = _jitted(model, "posterior")(variables, _observed(), zero, key)
    np.testing.assert_array_equal(again.values, values)
    decoder = variables["params"]["decoder"]
    start = mean + std * jax.random.normal(key, (7, 3))
    np.testing.assert_allclose(values[:, 0], start @ decoder["weight"] + decoder["bias"], rtol=0, atol=1e-5)


def test_the_evidence_bound_by_hand():
    model, variables = _random()
    model = model.clone(observation_std=0.3)
    key, target = jax.random.key(5), np.random.default_rng(3).normal(size=(7, 5, 2)).astype(np.float32)
    found = _jitted(model, "negative_elbo")(variables, _observed(), TIMES, target, key)
    values, mean, std = (
        np.asarray(a, np.float64) for a in _jitted(model, "posterior")(variables, _observed(), TIMES, key)
    )
    log_density = -0.5 * ((values - target) / 0.3) ** 2 - math.log(0.3) - 0.5 * math.log(2 * math.pi)
    divergence = np.sum(-np.log(std) + (std**2 + mean**2) / 2 - 0.5, axis=-1)
    expected = -np.mean(log_density.sum((1, 2)) - divergence) / 10
    assert divergence.min() > 0
    assert float(found) == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
@EACH_KIND
def test_derivatives_of_the_bound_are_finite_and_reach_every_parameter(kind, time_network):
    model, variables = _random(kind, time_network)
    target = np.zeros((7, 5, 2), np.float32)
    loss = lambda v: model.apply(v, _observed(), TIMES, target, jax.random.key(5), method="negative_elbo")  # noqa: E731
    for slope in jax.tree.leaves(jax.jit(jax.grad(loss))(variables)):
        assert np.all(np.isfinite(slope))
        assert np.any(slope != 0)


def test_number_of_parameters_of_resnets_for_series():
    model = ObservedNeuralFlow(kind="resnet", num_layers=4, width=26, hidden=26)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 100, 1)), jnp.ones(1))
    assert num_parameters(shapes) == 18_307


# --- fields -------------------------------------------------------------------------------------------------------


def _field_case(**fields):
    model = FieldNeuralFlow(**{"out_channels": 2, "num_layers": 3, "width": 5, **fields})
    u0 = np.random.default_rng(2).normal(size=(7, 2, 3, 2)).astype(np.float32)
    return model, random_parameters(model, u0, TIMES, scale=0.4), u0


@pytest.mark.parametrize("kind", neural_flow.KINDS)
def test_a_field_is_moved_from_its_initial_state(kind):
    model, variables, u0 = _field_case(kind=kind)
    times = np.asarray([0.7, 0.0, 1.9, 0.2], np.float32)
    u = _ask(model, variables, u0, times)
    assert u.shape == (7, 4, 2, 3, 2)
    np.testing.assert_array_equal(u[:, 1], u0)
    assert np.abs(u[:, 2] - u0).max() > 1e-3
    np.testing.assert_allclose(_ask(model, variables, u0, times[::-1]), u[:, ::-1], rtol=0, atol=1e-5)
    own = _ask(model, variables, u0, np.tile(times, (7, 1)))
    np.testing.assert_allclose(own, u, rtol=0, atol=1e-5)


def test_a_field_is_one_long_vector():
    model, variables, u0 = _field_case(time_network="tanh")
    layers = Flow(12, "coupling", 3, 5, 2, "tanh", 6).apply({"params": variables["params"]["flow"]})
    expected = _flow(neural_flow.flow, layers, u0.reshape(7, 12), np.full((7, 1), 0.7, np.float32), "coupling", "tanh")
    u = _ask(model, variables, u0, np.asarray([0.7], np.float32))
    np.testing.assert_allclose(u.reshape(7, 12), expected, rtol=0, atol=1e-5)


def test_numbers_of_parameters_for_fields():
    u0, times = jax.ShapeDtypeStruct((1, 1024, 1), jnp.float32), jax.ShapeDtypeStruct((3,), jnp.float32)
    shapes = jax.eval_shape(FieldNeuralFlow().init, jax.random.key(0), u0, times)
    assert num_parameters(shapes) == 17_379_328


def test_a_field_with_other_channels_than_the_solution_is_refused():
    model, variables, u0 = _field_case()
    with pytest.raises(ValueError, match="u0 must have 2 channels, as the solution has, got 1"):
        model.apply(variables, u0[..., :1], TIMES)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "planar"}, "kind must be one of coupling, resnet, got 'planar'"),
        ({"time_network": "sine"}, "time_network must be one of linear, tanh, fourier, got 'sine'"),
        ({"num_layers": 0}, "num_layers must be positive"),
        ({"width": 0}, "width must be positive"),
        ({"depth": -1}, "depth must be positive"),
        ({"num_sinusoids": 0}, "num_sinusoids must be positive"),
        ({"time_network": "tanh", "num_sinusoids": 6}, "time_network=tanh does not read num_sinusoids; leave it out"),
    ],
)
@pytest.mark.parametrize("model_class", [ObservedNeuralFlow, FieldNeuralFlow])
def test_fields_out_of_range_are_refused(model_class, fields, message):
    with pytest.raises(ValueError, match=message):
        model_class(**fields).check_fields()
    with pytest.raises(ValueError, match=message):
        model_class(**fields).init(jax.random.key(0), np.zeros((3, 4, 1)), TIMES)


@pytest.mark.parametrize("field", ["latent", "hidden", "readout", "time_step", "observation_std"])
def test_sizes_of_the_recurrent_network_must_be_positive(field):
    with pytest.raises(ValueError, match=f"{field} must be positive and finite, got 0"):
        ObservedNeuralFlow(**{field: 0}).check_fields()


def test_observations_that_mean_nothing_are_refused():
    model, variables = _random()
    with pytest.raises(ValueError, match="with 2 features, or 3 with the time of observation last"):
        model.apply(variables, _observed(inputs=4), TIMES)
