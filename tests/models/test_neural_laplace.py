"""Neural Laplace: the encoder and the transform by hand, and what the answer depends on."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.parameters import random_parameters

from ctfno_jax.models import neural_laplace
from ctfno_jax.models.ctfno import num_parameters
from ctfno_jax.models.neural_laplace import FieldNeuralLaplace, ObservedNeuralLaplace, StackedGRU

TIMES = np.asarray([0.7, 0.2, 1.9, 1.0, 0.2], np.float32)
SMALL = {"latent": 3, "encoder_width": 6, "width": 8, "depth": 1, "num_terms": 9}


def _observed(batch: int = 7, steps: int = 4, inputs: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(batch, steps, inputs)).astype(np.float32)


@functools.cache
def _random():
    model = ObservedNeuralLaplace(out_features=2, **SMALL)
    return model, random_parameters(model, _observed(), TIMES, scale=0.3)


@functools.cache
def _jitted(model):
    return jax.jit(model.apply)


def _ask(model, variables, inputs, times) -> np.ndarray:
    return np.asarray(_jitted(model)(variables, inputs, times))


transform_inverse = jax.jit(neural_laplace.transform_inverse, static_argnums=3)


# --- the parts ----------------------------------------------------------------------------------------------------


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def test_two_recurrent_layers_by_hand():
    encoder, inputs = StackedGRU(3), _observed(inputs=5)
    shapes = jax.eval_shape(encoder.init, jax.random.key(0), inputs)
    rng = np.random.default_rng(1)
    variables = jax.tree.map(lambda a: rng.normal(size=a.shape).astype(np.float32), shapes)
    sequence = inputs
    for i in range(2):
        from_input, from_state = (variables["params"][f"{name}_{i}"] for name in ("input", "state"))
        state, states = np.zeros((7, 3)), []
        for step in range(4):
            r_in, z_in, n_in = np.split(sequence[:, step] @ from_input["weight"] + from_input["bias"], 3, axis=-1)
            r_state, z_state, n_state = np.split(state @ from_state["weight"] + from_state["bias"], 3, axis=-1)
            update = _sigmoid(z_in + z_state)
            candidate = np.tanh(n_in + _sigmoid(r_in + r_state) * n_state)
            state = update * state + (1 - update) * candidate
            states.append(state)
        sequence = np.stack(states, axis=1)
    np.testing.assert_allclose(jax.jit(encoder.apply)(variables, inputs), sequence[:, -1], rtol=0, atol=1e-5)


def test_the_transform_of_one_query_by_hand():
    num_terms, rng = 5, np.random.default_rng(2)
    draw = lambda *shape: (0.3 * rng.normal(size=shape)).astype(np.float32)  # noqa: E731
    (w0, b0), (w1, b1) = maps = [(draw(10 + 3, 8), draw(8)), (draw(8, 20), draw(20))]
    latent, times = draw(7, 3), np.tile(TIMES, (7, 1))
    u = transform_inverse(maps, latent, times, num_terms)
    assert u.shape == (7, 5, 2)
    t = 1.9
    line = 1e-3 + np.log(100) / (4 * t)
    s = line + 1j * np.arange(5) * np.pi / (2 * t)
    places = np.concatenate([np.angle(s), np.arcsin((abs(s) ** 2 - 1) / (abs(s) ** 2 + 1)), latent[4]])
    raw = (np.tanh(places @ w0 + b0) @ w1 + b1).reshape(2, 2, num_terms)  # angle and height, two features
    longitude, latitude = np.pi * np.tanh(raw[0]), np.pi / 2 * np.tanh(raw[1])
    answer = np.tan(latitude / 2 + np.pi / 4) * np.exp(1j * longitude)
    series = (answer * np.exp(1j * np.pi / 2 * np.arange(5))).real.sum(-1) - answer[:, 0].real / 2
    np.testing.assert_allclose(u[4, 2], np.exp(line * t) / (2 * t) * series, rtol=0, atol=1e-4)


def test_a_network_that_is_silent_has_the_transform_one():
    # The sum of 33 terms is a half, and the exponential the fourth root of a hundred.
    model = ObservedNeuralLaplace(**{**SMALL, "num_terms": 33})
    shapes = jax.eval_shape(model.init, jax.random.key(0), _observed(inputs=1), TIMES)
    silent = jax.tree.map(lambda a: jnp.zeros(a.shape), shapes)
    u = _ask(model, silent, _observed(inputs=1), TIMES)
    expected = np.exp(1e-3 * TIMES) * 100**0.25 / (4 * TIMES)
    np.testing.assert_allclose(u, np.broadcast_to(expected[:, None], (7, 5, 1)), rtol=1e-5)


# --- forecasts of vectors -----------------------------------------------------------------------------------------


def test_times_come_in_any_order():
    model, variables = _random()
    u, order = _ask(model, variables, _observed(), TIMES), np.asarray([3, 0, 4, 2, 1])
    assert u.shape == (7, 5, 2)
    np.testing.assert_allclose(_ask(model, variables, _observed(), TIMES[order]), u[:, order], rtol=1e-4, atol=1e-4)
    assert np.abs(u[:, 0] - u[:, 2]).max() > 1e-2


def test_shared_times_equal_the_same_times_for_each_sample():
    model, variables = _random()
    own = _ask(model, variables, _observed(), np.tile(TIMES, (7, 1)))
    np.testing.assert_allclose(own, _ask(model, variables, _observed(), TIMES), rtol=1e-4, atol=1e-4)


def test_the_answer_for_a_sample_does_not_depend_on_the_others():
    model, variables = _random()
    own = TIMES + np.arange(7, dtype=np.float32)[:, None] / 9
    order = np.asarray([2, 6, 0, 3, 5, 1, 4])
    u = _ask(model, variables, _observed(), own)
    np.testing.assert_allclose(_ask(model, variables, _observed()[order], own[order]), u[order], rtol=1e-4, atol=1e-4)


def test_the_last_point_is_read_first():
    model, variables = _random()
    p = variables["params"]
    state = jax.jit(StackedGRU(6).apply)({"params": p["encoder"]}, _observed()[:, ::-1])
    maps = [(p["transform"][f"weight_{i}"], p["transform"][f"bias_{i}"]) for i in range(2)]
    latent = state @ p["latent"]["weight"] + p["latent"]["bias"]
    expected = transform_inverse(maps, latent, np.tile(TIMES, (7, 1)), 9)
    np.testing.assert_allclose(_ask(model, variables, _observed(), TIMES), expected, rtol=1e-4, atol=1e-3)


def test_all_observations_and_their_times_are_read():
    model = ObservedNeuralLaplace(out_features=2, **SMALL)
    observed = _observed(inputs=3)
    variables = random_parameters(model, observed, TIMES, scale=0.5)
    u = _ask(model, variables, observed, TIMES)
    for step, feature in ((0, 0), (1, 2), (3, 1)):
        other = observed.copy()
        other[:, step, feature] += 1.0
        assert np.all(np.abs(_ask(model, variables, other, TIMES) - u).max((1, 2)) > 1e-6)


def test_derivatives_are_finite_and_reach_every_parameter():
    model, variables = _random()
    loss = lambda v: jnp.mean(jnp.sin(model.apply(v, _observed(), TIMES)))  # noqa: E731
    for slope in jax.tree.leaves(jax.jit(jax.grad(loss))(variables)):
        assert np.all(np.isfinite(slope))
        assert np.any(slope != 0)


@pytest.mark.parametrize("model_class", [ObservedNeuralLaplace, FieldNeuralLaplace])
def test_only_positive_times_can_be_answered(model_class):
    message = "the inverse transform needs positive times; leave out t=0, where the solution is known"
    assert model_class().answerable(np.asarray([[0.5, 0.2], [0.0, 0.3]])) == message
    assert model_class().answerable(np.asarray([0.5, 0.2])) is None


@pytest.mark.parametrize("model_class", [ObservedNeuralLaplace, FieldNeuralLaplace])
@pytest.mark.parametrize("field", ["latent", "encoder_width", "width", "depth", "num_terms"])
def test_sizes_must_be_positive(model_class, field):
    message = f"{field} must be positive and finite, got 0"
    with pytest.raises(ValueError, match=message):
        model_class(**{field: 0}).check_fields()
    with pytest.raises(ValueError, match=message):
        model_class(**{field: 0}).init(jax.random.key(0), np.zeros((3, 4, 1)), TIMES)


def test_observations_that_mean_nothing_are_refused():
    model, variables = _random()
    with pytest.raises(ValueError, match="with 2 features, or 3 with the time of observation last"):
        model.apply(variables, _observed(inputs=5), TIMES)


# --- fields -------------------------------------------------------------------------------------------------------


def test_a_field_is_one_observation_of_one_long_vector():
    model = FieldNeuralLaplace(out_channels=2, **SMALL)
    u0 = np.random.default_rng(3).normal(size=(7, 2, 3, 2)).astype(np.float32)
    variables = random_parameters(model, u0, TIMES, scale=0.3)
    u = _ask(model, variables, u0, TIMES)
    assert u.shape == (7, 5, 2, 3, 2)
    vector = ObservedNeuralLaplace(out_features=12, **SMALL)
    expected = _ask(vector, variables, u0.reshape(7, 1, 12), TIMES)
    np.testing.assert_allclose(u.reshape(7, 5, 12), expected, rtol=1e-4, atol=1e-4)


def test_the_solution_may_have_other_channels_than_the_initial_state():
    model = FieldNeuralLaplace(out_channels=2, **SMALL)
    u0 = np.random.default_rng(4).normal(size=(7, 6, 3)).astype(np.float32)
    variables = random_parameters(model, u0, TIMES, scale=0.3)
    u = _ask(model, variables, u0, TIMES)
    assert u.shape == (7, 5, 6, 2)
    own = _ask(model, variables, u0, np.tile(TIMES, (7, 1)))
    np.testing.assert_allclose(own, u, rtol=1e-4, atol=1e-4)


def test_numbers_of_parameters_for_fields():
    u0, times = jax.ShapeDtypeStruct((1, 1024, 1), jnp.float32), jax.ShapeDtypeStruct((3,), jnp.float32)
    shapes = jax.eval_shape(FieldNeuralLaplace().init, jax.random.key(0), u0, times)
    assert num_parameters(shapes) == 4_515_520


@pytest.mark.parametrize("model", [ObservedNeuralLaplace(out_features=2, **SMALL), FieldNeuralLaplace(**SMALL)])
def test_time_scale_is_another_unit_of_time(model):
    inputs = _observed() if isinstance(model, ObservedNeuralLaplace) else _observed(inputs=1)
    variables = random_parameters(model, inputs, TIMES, scale=0.3)
    scaled = model.clone(time_scale=2.5)
    np.testing.assert_allclose(
        _ask(scaled, variables, inputs, TIMES), _ask(model, variables, inputs, 2.5 * TIMES), rtol=1e-5, atol=1e-6
    )
    assert np.max(np.abs(_ask(scaled, variables, inputs, TIMES) - _ask(model, variables, inputs, TIMES))) > 1e-2
