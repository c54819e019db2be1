"""Encoders of partly observed series: by hand, and what must not matter to them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from helpers import partly_observed

from ctfno_jax.models import encoders, mlp, neural_flow

LATENT = 6
ENCODERS = {
    "gru": encoders.GRUEncoder(hidden=5, readout=7),
    "ode_rnn": encoders.ODERNNEncoder(hidden=4, units=5, depth=1, gate_units=3, readout=7, substeps=2),
    "flow": encoders.FlowEncoder(hidden=4, readout=5, num_layers=2, width=3, depth=1),
    "attention": encoders.AttentionEncoder(num_queries=3, width=8, heads=2, time_features=4, time_scale=3.0),
}
EVERY = pytest.mark.parametrize("name", ENCODERS)


def _parameters(name, observations):
    encoder = ENCODERS[name]
    key = jax.eval_shape(lambda key: encoder.init(key, observations, LATENT), jax.random.key(0))
    leaves, tree = jax.tree.flatten(key)
    rng = np.random.default_rng(1)
    return tree.unflatten([jnp.asarray(0.5 * rng.standard_normal(leaf.shape), jnp.float32) for leaf in leaves])


@functools.cache
def _encode(name):
    return jax.jit(lambda params, observations: ENCODERS[name].apply(params, observations, LATENT))


def _gru_by_hand(params, observations):
    """Backwards in time, one matrix product at a time, in double precision."""
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    state = np.zeros((len(observations), 5))
    last_time = observations[:, -1, :1]
    for index in reversed(range(observations.shape[1])):
        time, read = observations[:, index, :1], observations[:, index, 1:]
        x = np.concatenate([last_time - time, read], axis=-1).astype(np.float64)
        last_time = time
        r_x, z_x, n_x = np.split(x @ p["gru_input"]["weight"] + p["gru_input"]["bias"], 3, axis=-1)
        r_h, z_h, n_h = np.split(state @ p["gru_state"]["weight"] + p["gru_state"]["bias"], 3, axis=-1)
        reset, update = sigmoid(r_x + r_h), sigmoid(z_x + z_h)
        state = (1 - update) * np.tanh(n_x + reset * n_h) + update * state
    hidden = np.tanh(state @ p["readout_hidden"]["weight"] + p["readout_hidden"]["bias"])
    mean, raw = np.split(hidden @ p["readout"]["weight"] + p["readout"]["bias"], 2, axis=-1)
    return mean, np.abs(raw)


@pytest.mark.parametrize("steps", [1, 4])
def test_the_recurrent_encoder_is_a_gru_that_reads_backwards_in_time(steps):
    observations = partly_observed.packed(steps=steps)
    params = _parameters("gru", observations)
    found, expected = _encode("gru")(params, observations), _gru_by_hand(params, observations)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


def test_the_flow_encoder_is_an_lstm_that_reads_backwards_and_whose_flow_runs_backwards():
    observations = partly_observed.packed(steps=4)
    params = _parameters("flow", observations)
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    between = nn.apply(lambda flow: flow(), neural_flow.Flow(4, num_layers=2, width=3, depth=1))(
        {"params": params["params"]["flow"]}
    )
    state = memory = np.zeros((len(observations), 4))
    last_time = observations[:, -1, :1]
    for index in reversed(range(observations.shape[1])):
        time, read = observations[:, index, :1], observations[:, index, 1:]
        moved = neural_flow.flow(between, jnp.float32(state), time - last_time, kind="coupling", bounded=False)
        last_time = time
        raw = read @ p["cell_input"]["weight"] + p["cell_input"]["bias"]
        raw = raw + np.asarray(moved) @ p["cell_state"]["weight"] + p["cell_state"]["bias"]
        enter, forget, candidate, leave = np.split(raw, 4, axis=-1)
        memory = sigmoid(forget) * memory + sigmoid(enter) * np.tanh(candidate)
        state = sigmoid(leave) * np.tanh(memory)
    readout = mlp.MLP((4, 5, 2 * LATENT))
    maps = nn.apply(lambda module: module(), readout)({"params": params["params"]["readout"]})
    mean, raw = np.split(np.asarray(mlp.mlp(maps, jnp.float32(state))), 2, axis=-1)
    found = _encode("flow")(params, observations)
    np.testing.assert_allclose(found[0], mean, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found[1], np.logaddexp(0, raw), rtol=0, atol=1e-5)


@EVERY
def test_the_form_on_the_union_of_all_times_gives_the_same_numbers(name):
    """Steps at which a series has nothing are padding wherever they stand, so per-series times are as good."""
    observations = partly_observed.packed()
    union = partly_observed.on_union_grid(observations)
    assert union.shape[1] == 15
    params, encode = _parameters(name, observations), _encode(name)
    for a, b in zip(encode(params, observations), encode(params, union), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


@EVERY
def test_what_was_not_observed_influences_neither_outputs_nor_gradients(name):
    observations = partly_observed.packed()
    observations[0, -2:, 1:] = 0  # padding
    observed = np.concatenate([np.ones((3, 5, 1)), observations[..., 3:], np.ones((3, 5, 2))], axis=-1) > 0
    observed[0, -2:] = False
    observed[0, -2:, 3:] = True  # the mask says that it is padding
    disturbed = np.where(observed, observations, np.nan).astype(np.float32)
    disturbed[0, -2:, 0] = 7.0
    params = _parameters(name, observations)

    def total(params, some):
        mean, std = ENCODERS[name].apply(params, some, LATENT)
        return jnp.sum(jnp.sin(mean)) + jnp.sum(std**2)

    value_and_grad = jax.jit(jax.value_and_grad(total))
    (first, grads), (second, other) = (value_and_grad(params, some) for some in (observations, disturbed))
    assert np.isfinite(first)
    assert first == second
    jax.tree.map(np.testing.assert_array_equal, grads, other)


@EVERY
def test_a_series_without_any_observation_has_a_finite_state_and_gradient(name):
    observations = partly_observed.packed()
    observations[1] = 0
    params = _parameters(name, observations)
    grads = jax.jit(jax.grad(lambda p: jnp.sum(jnp.stack(ENCODERS[name].apply(p, observations, LATENT)))))(params)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(grads))


@pytest.mark.parametrize("name", ["gru", "ode_rnn", "flow"])
def test_only_gaps_between_observations_matter_not_when_they_begin(name):
    observations = partly_observed.packed()
    params, encode = _parameters(name, observations), _encode(name)
    shifted, stretched = observations.copy(), observations.copy()
    shifted[..., 0] += 4.0
    stretched[..., 0] *= 3.0
    mean = encode(params, observations)[0]
    np.testing.assert_allclose(encode(params, shifted)[0], mean, rtol=0, atol=1e-5)
    assert np.abs(encode(params, stretched)[0] - mean).max() > 1e-3


def test_attention_does_not_know_the_order_of_the_steps_but_knows_their_times():
    observations = partly_observed.packed()
    params, encode = _parameters("attention", observations), _encode("attention")
    mean = encode(params, observations)[0]
    np.testing.assert_allclose(encode(params, observations[:, [3, 0, 4, 2, 1]])[0], mean, rtol=0, atol=1e-5)
    later = observations.copy()
    later[..., 0] += 0.5
    assert np.abs(encode(params, later)[0] - mean).max() > 1e-3


@EVERY
def test_the_standard_deviation_is_never_negative(name):
    observations = partly_observed.packed(batch=20)
    _, std = _encode(name)(_parameters(name, observations), observations)
    assert std.shape == (20, LATENT)
    assert np.all(std >= 0)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (encoders.GRUEncoder(hidden=0), "hidden must be"),
        (encoders.GRUEncoder(std="square"), "std must be one of abs, softplus, got 'square'"),
        (encoders.ODERNNEncoder(substeps=0), "substeps must be"),
        (encoders.FlowEncoder(width=-1), "width must be"),
        (encoders.AttentionEncoder(width=10, heads=4), "width=10 must be divisible by heads=4"),
        (encoders.AttentionEncoder(time_features=5), "time_features must be even, got 5"),
    ],
)
def test_fields_out_of_range_are_refused(encoder, message):
    with pytest.raises(ValueError, match=message):
        encoder.check_fields()


def test_shapes_that_cannot_be_packed_observations_are_refused():
    for shape in ((3, 5), (3, 5, 4), (3, 5, 1)):
        with pytest.raises(ValueError, match=r"observations must have shape \(batch, steps, 1 \+ 2 features\)"):
            ENCODERS["gru"].init(jax.random.key(0), np.zeros(shape, np.float32), LATENT)
    with pytest.raises(ValueError, match="latent=7 must be a multiple of num_queries=3"):
        ENCODERS["attention"].init(jax.random.key(0), partly_observed.packed(), 7)
