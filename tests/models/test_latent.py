"""CTFNO on series: the recurrent encoder, and models around an operator, against their parts by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.parameters import random_parameters

from ctfno_jax.models import ctfno, encoders, latent

OPERATOR = ctfno.CTFNO(width=4, modes=(3,), depth=1, heads=1, time_width=8, time_features=4)
QUERIES = np.asarray([0.3, 0.1], np.float32)

# --- the encoder --------------------------------------------------------------------------------------------------


ENCODER = encoders.GRUEncoder(hidden=5, latent=6, readout=7)
_encode = jax.jit(ENCODER.apply)


def _encoder_case(seed=0, num_times=4):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(3, num_times, 2)).astype(np.float32)
    mask = rng.integers(0, 2, size=values.shape).astype(np.float32)
    times = np.cumsum(rng.uniform(0.1, 1.0, num_times)).astype(np.float32)
    params = jax.eval_shape(ENCODER.init, jax.random.key(seed), values, mask, times)
    leaves, tree = jax.tree.flatten(params)
    # Biases start at zero; random ones show whether each is where it belongs.
    leaves = [jnp.asarray(rng.normal(size=leaf.shape) * 0.5, jnp.float32) for leaf in leaves]
    return ENCODER, jax.tree.unflatten(tree, leaves), values, mask, times


def _gru_by_hand(params, values, mask, times):
    """Backwards in time, one matrix product at a time, in double precision."""
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    state = np.zeros((values.shape[0], 5))
    last_time = times[-1]
    for index in reversed(range(len(times))):
        gap = np.full((values.shape[0], 1), last_time - times[index], np.float64)
        last_time = times[index]
        x = np.concatenate([gap, values[:, index] * mask[:, index], mask[:, index]], axis=-1)
        r_x, z_x, n_x = np.split(x @ p["gru_input"]["weight"] + p["gru_input"]["bias"], 3, axis=-1)
        r_h, z_h, n_h = np.split(state @ p["gru_state"]["weight"] + p["gru_state"]["bias"], 3, axis=-1)
        reset, update = sigmoid(r_x + r_h), sigmoid(z_x + z_h)
        state = (1 - update) * np.tanh(n_x + reset * n_h) + update * state
    hidden = np.tanh(state @ p["readout_hidden"]["weight"] + p["readout_hidden"]["bias"])
    mean, raw = np.split(hidden @ p["readout"]["weight"] + p["readout"]["bias"], 2, axis=-1)
    return mean, np.abs(raw)


@pytest.mark.parametrize("num_times", [1, 4])
def test_the_encoder_is_a_gru_that_reads_backwards_in_time(num_times):
    _, params, values, mask, times = _encoder_case(num_times=num_times)
    mean, std = _encode(params, values, mask, times)
    expected_mean, expected_std = _gru_by_hand(params, values, mask, times)
    np.testing.assert_allclose(mean, expected_mean, rtol=0, atol=1e-5)
    np.testing.assert_allclose(std, expected_std, rtol=0, atol=1e-5)
    assert np.all(np.asarray(std) >= 0)


def test_values_that_were_not_observed_do_not_matter():
    _, params, values, mask, times = _encoder_case()
    changed = np.where(mask == 0, 1e3, values).astype(np.float32)
    first, second = (_encode(params, v, mask, times) for v in (values, changed))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_only_gaps_between_observations_matter_not_when_they_begin():
    _, params, values, mask, times = _encoder_case()
    shifted = _encode(params, values, mask, times + 4.0)[0]
    np.testing.assert_allclose(shifted, _encode(params, values, mask, times)[0], rtol=0, atol=1e-5)
    stretched = _encode(params, values, mask, 3 * times)[0]
    assert np.abs(stretched - _encode(params, values, mask, times)[0]).max() > 1e-3


def test_the_order_of_observations_matters():
    _, params, values, mask, times = _encoder_case()
    swapped = _encode(params, values[:, ::-1], mask[:, ::-1], times)[0]
    assert np.abs(swapped - _encode(params, values, mask, times)[0]).max() > 1e-3


# --- models around an operator ------------------------------------------------------------------------------------


def _affine(weights, v):
    return v @ weights["weight"] + weights["bias"]


def test_a_latent_prediction_is_encoder_operator_and_linear_maps_in_turn():
    """From the mean, or from one draw for a key: mean plus standard deviation times a normal number."""
    encoder, _, values, mask, times = _encoder_case()
    model = latent.LatentCTFNO(OPERATOR, encoder, out_features=2, num_classes=4)
    variables = random_parameters(model, values, mask, times, QUERIES, scale=0.5)
    apply_fn, operator = jax.jit(model.apply), jax.jit(OPERATOR.apply)
    weights = variables["params"]
    mean, std = jax.jit(encoder.apply)({"params": weights["encoder"]}, values, mask, times)
    for key in (None, jax.random.key(1), jax.random.key(2)):
        draw = 0.0 if key is None else std * jax.random.normal(key, mean.shape)
        z = operator({"params": weights["operator"]}, (mean + draw)[..., None], QUERIES)[..., 0]
        prediction = apply_fn(variables, values, mask, times, QUERIES, key)
        np.testing.assert_allclose(prediction.values, _affine(weights["decoder"], z), rtol=0, atol=1e-5)
        np.testing.assert_allclose(prediction.logits, _affine(weights["classifier"], z), rtol=0, atol=1e-5)
        np.testing.assert_allclose(prediction.mean, mean, rtol=0, atol=1e-6)
        np.testing.assert_allclose(prediction.std, std, rtol=0, atol=1e-6)


@pytest.mark.parametrize("observation_scale", [1.0, 0.25])
def test_a_forecast_maps_points_to_functions_and_the_solution_back(observation_scale):
    """Two values and their time of observation, which alone is scaled; points are channels of the operator."""
    observed = np.random.default_rng(0).normal(size=(3, 5, 3)).astype(np.float32)
    model = latent.ObservedCTFNO(OPERATOR, grid_points=7, out_features=2, observation_scale=observation_scale)
    variables = random_parameters(model, observed, QUERIES, scale=0.5)
    weights = variables["params"]
    scaled = observed * np.asarray([1.0, 1.0, observation_scale], np.float32)
    functions = np.swapaxes(_affine(weights["point_embedding"], scaled), 1, 2)
    u = jax.jit(OPERATOR.apply)({"params": weights["operator"]}, functions, QUERIES)[..., 0]
    expected = _affine(weights["point_projection"], u)
    np.testing.assert_allclose(jax.jit(model.apply)(variables, observed, QUERIES), expected, rtol=0, atol=1e-5)
