"""The paper's sizes, and the parts of the models for time series."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.models import ctfno, encoders, latent, presets


def _shape(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _observed(features):
    return _shape(2, 6, features), _shape(2, 6, features), _shape(6), _shape(3)


@pytest.mark.parametrize(
    ("name", "inputs", "count"),
    [
        ("f1_low", (_shape(2, 100, 1), _shape(3)), 17858),
        ("f1_reaction", (_shape(2, 128, 1), _shape(3)), 1912321),
        ("f1_pde", (_shape(2, 128, 1), _shape(3)), 2502145),
        ("f1_navier_stokes", (_shape(2, 128, 3), _shape(3)), 2502403),
        ("f2_low", (_shape(2, 100, 1), _shape(3)), 17858),
        ("f2_mujoco", _observed(14), 150621),
        ("f2_physionet", _observed(41), 68016),
        ("f2_activity", _observed(12), 124746),
        ("f2_vibration", (_shape(2, 64, 6), _shape(3)), 6310),
    ],
)
def test_a_preset_has_the_stated_number_of_parameters(name, inputs, count):
    params = jax.eval_shape(presets.build_preset(name).init, jax.random.key(0), *inputs)
    assert all(not jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in jax.tree.leaves(params))
    assert ctfno.num_parameters(params) == count


def test_every_preset_is_counted_above():
    (mark,) = test_a_preset_has_the_stated_number_of_parameters.pytestmark
    assert {case[0] for case in mark.args[1]} == set(presets.PRESETS)


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown preset 'f3_pde'; known are f1_low, f1_reaction, f1_pde"):
        presets.build_preset("f3_pde")


@pytest.mark.parametrize(("name", "steps", "features", "out"), [("f2_low", 7, 1, 1), ("f2_vibration", 8, 6, 5)])
def test_forecasts_from_observed_points_have_one_vector_per_query_time(name, steps, features, out):
    model = presets.build_preset(name)
    shapes = _shape(2, steps, features), _shape(2, 3)
    params = jax.eval_shape(model.init, jax.random.key(0), *shapes)
    assert jax.eval_shape(model.apply, params, *shapes).shape == (2, 3, out)


# --- the encoder ----------------------------------------------------------------------------------------------


def _encoder_case(seed=0, num_times=4):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(3, num_times, 2)).astype(np.float32)
    mask = rng.integers(0, 2, size=values.shape).astype(np.float32)
    times = np.cumsum(rng.uniform(0.1, 1.0, num_times)).astype(np.float32)
    encoder = encoders.GRUEncoder(hidden=5, latent=6, readout=7)
    params = encoder.init(jax.random.key(seed), values, mask, times)
    leaves, tree = jax.tree.flatten(params)
    # Biases start at zero; random ones show whether each is where it belongs.
    leaves = [jnp.asarray(rng.normal(size=leaf.shape) * 0.5, jnp.float32) for leaf in leaves]
    return encoder, jax.tree.unflatten(tree, leaves), values, mask, times


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
    encoder, params, values, mask, times = _encoder_case(num_times=num_times)
    mean, std = encoder.apply(params, values, mask, times)
    expected_mean, expected_std = _gru_by_hand(params, values, mask, times)
    np.testing.assert_allclose(mean, expected_mean, rtol=0, atol=1e-5)
    np.testing.assert_allclose(std, expected_std, rtol=0, atol=1e-5)
    assert np.all(np.asarray(std) >= 0)


def test_values_that_were_not_observed_do_not_matter():
    encoder, params, values, mask, times = _encoder_case()
    changed = np.where(mask == 0, 1e3, values).astype(np.float32)
    first, second = (encoder.apply(params, v, mask, times) for v in (values, changed))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_only_gaps_between_observations_matter_not_when_they_begin():
    encoder, params, values, mask, times = _encoder_case()
    shifted = encoder.apply(params, values, mask, times + 4.0)[0]
    np.testing.assert_allclose(shifted, encoder.apply(params, values, mask, times)[0], rtol=0, atol=1e-5)
    stretched = encoder.apply(params, values, mask, 3 * times)[0]
    assert np.abs(stretched - encoder.apply(params, values, mask, times)[0]).max() > 1e-3


def test_the_order_of_observations_matters():
    encoder, params, values, mask, times = _encoder_case()
    swapped = encoder.apply(params, values[:, ::-1], mask[:, ::-1], times)[0]
    assert np.abs(swapped - encoder.apply(params, values, mask, times)[0]).max() > 1e-3


# --- the latent model -----------------------------------------------------------------------------------------


def _latent_case(num_classes=0):
    operator = ctfno.CTFNO(width=4, modes=(3,), depth=1, heads=1, time_width=8, time_features=4)
    encoder = encoders.GRUEncoder(hidden=5, latent=10, readout=7)
    model = latent.LatentCTFNO(operator, encoder, out_features=2, num_classes=num_classes)
    _, _, values, mask, times = _encoder_case()
    inputs = (values, mask, times, jnp.asarray([0.3, 0.1, 2.0]))
    return model, model.init(jax.random.key(0), *inputs), inputs


@pytest.mark.slow
def test_latent_prediction_without_a_key_is_deterministic_and_from_the_mean():
    model, params, inputs = _latent_case()
    first, second = model.apply(params, *inputs), model.apply(params, *inputs)
    np.testing.assert_array_equal(first.values, second.values)
    assert first.values.shape == (3, 3, 2)
    assert first.logits is None


def test_a_key_draws_from_the_posterior_and_repeats():
    model, params, inputs = _latent_case()
    mean = model.apply(params, *inputs)
    one, again, other = (model.apply(params, *inputs, jax.random.key(k)) for k in (1, 1, 2))
    np.testing.assert_array_equal(one.values, again.values)
    np.testing.assert_array_equal(one.mean, mean.mean)
    assert np.abs(one.values - other.values).max() > 1e-6
    assert np.abs(one.values - mean.values).max() > 1e-6


def test_classes_are_scored_at_every_query_time():
    model, params, inputs = _latent_case(num_classes=4)
    assert model.apply(params, *inputs).logits.shape == (3, 3, 4)
