"""Latent models: their parts in turn, parameter counts of the published ones, and what must not matter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import partly_observed, small_latent
from helpers.parameters import random_parameters

from ctfno_jax.certify import certify, latent_lipschitz, measured_gain
from ctfno_jax.models import dynamics, encoders, latent, registry
from ctfno_jax.models.ctfno import CTFNO, num_parameters
from ctfno_jax.ops.interpolation import interpolate

OPERATOR = CTFNO(out_channels=2, width=4, modes=(2,), depth=1, heads=1, time_width=8, time_features=4)
QUERIES = np.asarray([0.3, 0.1, 0.6], np.float32)


def _model(**fields):
    encoder = encoders.GRUEncoder(hidden=5, readout=7)
    return latent.LatentModel(encoder, dynamics.GridDynamics(OPERATOR, 3), out_features=2, latent=6, **fields)


def _affine(weights, v):
    return v @ weights["weight_0"] + weights["bias_0"]


def test_a_prediction_is_encoder_dynamics_and_linear_maps_in_turn():
    """From the mean, or from one draw for a key: mean plus standard deviation times a normal number."""
    observations, model = partly_observed.packed(), _model(num_classes=4)
    variables = random_parameters(model, observations, QUERIES, scale=0.5)
    weights = variables["params"]
    mean, std = model.encoder.apply({"params": weights["encoder"]}, observations, 6)
    posterior = jax.jit(lambda key: model.apply(variables, observations, QUERIES, key, method="posterior"))
    for key in (None, jax.random.key(1), jax.random.key(2)):
        z0 = mean if key is None else mean + std * jax.random.normal(key, mean.shape)
        z = model.dynamics.apply({"params": weights["dynamics"]}, z0, QUERIES, None)
        found = posterior(key)
        np.testing.assert_allclose(found.values, _affine(weights["decoder"], z), rtol=0, atol=1e-5)
        classifier = weights["classifier"]
        np.testing.assert_allclose(found.logits, z @ classifier["weight"] + classifier["bias"], rtol=0, atol=1e-5)
        np.testing.assert_allclose(found.mean, mean, rtol=0, atol=1e-6)
        np.testing.assert_allclose(found.std, std, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(model.apply(variables, observations, QUERIES).shape, (3, 3, 4))


def test_with_a_linear_baseline_answers_pass_through_the_observations():
    observations = partly_observed.packed()
    plain, corrected = _model(), _model(baseline="linear")
    variables = random_parameters(plain, observations, QUERIES, scale=0.5)
    times, values, mask = observations[..., 0], observations[..., 1:3], observations[..., 3:]
    through = corrected.apply(variables, observations, times)
    np.testing.assert_allclose(through * mask, values * mask, rtol=0, atol=1e-5)
    assert np.abs((plain.apply(variables, observations, times) - values) * mask).max() > 0.1
    # Between them it is the line between what the latent state leaves unexplained, for the same draw of it.
    for key in (None, jax.random.key(1)):
        free = lambda t, key=key: plain.apply(variables, observations, t, key, method="posterior").values  # noqa: E731
        line = interpolate(times, values - free(times), mask, np.tile(QUERIES, (3, 1)))
        found = corrected.apply(variables, observations, QUERIES, key, method="posterior").values
        np.testing.assert_allclose(found - free(QUERIES), line, rtol=0, atol=1e-5)


def test_training_does_not_see_a_linear_baseline():
    observations = partly_observed.packed()
    plain, corrected = _model(), _model(baseline="linear")
    variables = random_parameters(plain, observations, QUERIES, scale=0.5)
    expected, found = (
        model.apply(variables, observations, QUERIES, jax.random.key(1), method="decoded")
        for model in (plain, corrected)
    )
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_a_decoder_may_have_a_hidden_layer():
    observations = partly_observed.packed()
    variables = random_parameters(_model(decoder_units=9), observations, QUERIES, scale=0.5)
    assert variables["params"]["decoder"]["weight_0"].shape == (6, 9)
    assert variables["params"]["decoder"]["weight_1"].shape == (9, 2)


# --- the ODE-RNN, which has no latent distribution ----------------------------------------------------------------

ODE_RNN = latent.ODERNN(out_features=2, hidden=4, units=5, depth=1, gate_units=3)


def test_an_answer_knows_earlier_observations_only():
    observations = partly_observed.packed()
    variables = random_parameters(ODE_RNN, observations, QUERIES, scale=0.5)
    apply_fn = jax.jit(ODE_RNN.apply)
    queries = (observations[:, 2:3, 0] + observations[:, 3:4, 0]) / 2  # between the third and the fourth
    changed_later, changed_before = observations.copy(), observations.copy()
    changed_later[:, 3:, 1:3] += 1.0
    changed_before[:, 2, 1:3] += 1.0
    answer = apply_fn(variables, observations, queries)
    np.testing.assert_array_equal(apply_fn(variables, changed_later, queries), answer)
    assert np.abs(apply_fn(variables, changed_before, queries) - answer).max() > 1e-3
    # At the time of an observation itself, that observation is not known yet.
    at = observations[:, 3:4, 0]
    np.testing.assert_array_equal(apply_fn(variables, changed_later, at), apply_fn(variables, observations, at))


@pytest.mark.slow
def test_an_ode_rnn_on_the_union_of_all_times_gives_the_same_numbers():
    observations = partly_observed.packed()
    variables = random_parameters(ODE_RNN, observations, QUERIES, scale=0.5)
    union = partly_observed.on_union_grid(observations)
    found = (ODE_RNN.apply(variables, some, QUERIES) for some in (observations, union))
    np.testing.assert_allclose(*found, rtol=0, atol=1e-5)


# --- by name ------------------------------------------------------------------------------------------------------

F2 = {"width": 32, "modes": [10], "heads": 1, "time_width": 64, "time_bias": False, "head": "mlp",
      "lifting": "low_pass", "padding": 0.1}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "features", "fields", "count"),
    [
        ("latent_ctfno", 14, {**F2, "depth": 3, "time_features": 64}, 150_621),
        ("latent_ctfno", 41, {**F2, "depth": 1, "time_features": 16, "encoder_hidden": 40}, 68_016),
        ("latent_ctfno", 12, {**F2, "depth": 2, "time_features": 64, "num_classes": 11}, 124_746),
        ("latent_ode", 14, {"latent": 15}, 617_619),
        ("latent_ode_rnn", 14, {"latent": 15, "encoder_hidden": 30}, 289_009),
        ("rnn_vae", 14, {"latent": 15, "encoder_hidden": 30, "encoder_readout": 300, "decoder_units": 300}, 34_904),
        ("latent_flow", 14, {}, 180_594),
        ("latent_ode", 41, {"encoder_hidden": 40, "encoder_units": 50, "encoder_gate_units": 50, "units": 50}, 67_071),
        ("latent_ode_rnn", 41, {"encoder_hidden": 40, "units": 50}, 29_671),
        ("latent_flow", 41, {"encoder_hidden": 40, "encoder_width": 50, "encoder_depth": 3, "width": 50, "depth": 3},
         68_121),
    ],
)  # fmt: skip
def test_published_models_have_their_numbers_of_parameters(name, features, fields, count):
    model = registry.build_model(name, out_features=features, **fields)
    observations = jax.ShapeDtypeStruct((2, 6, 1 + 2 * features), jnp.float32)
    params = jax.eval_shape(model.init, jax.random.key(0), observations, jax.ShapeDtypeStruct((3,), jnp.float32))
    assert num_parameters(params) == count
    assert registry.from_dict(registry.to_dict(model)) == model


def test_fields_of_an_encoder_have_a_prefix():
    model = registry.build_model("latent_flow", width=7, encoder_width=9)
    assert (model.dynamics.width, model.encoder.width) == (7, 9)
    with pytest.raises(ValueError, match="model latent_flow has no field encoder_units"):
        registry.build_model("latent_flow", encoder_units=3)
    with pytest.raises(ValueError, match="hidden must be"):
        registry.build_model("latent_ctfno", encoder_hidden=0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"baseline": "cubic"}, "baseline must be one of none, linear"),
        ({"num_classes": -1}, "num_classes must not"),
        (
            {"baseline": "linear", "num_classes": 4},
            "baseline=linear corrects values, and num_classes=4 asks for classes",
        ),
    ],
)
def test_fields_out_of_range_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        _model(**fields).check_fields()


def test_another_number_of_features_is_refused():
    observations = partly_observed.packed(features=3)
    with pytest.raises(ValueError, match="observations have 3 features, but out_features is 2"):
        _model().init(jax.random.key(0), observations, QUERIES)


# --- latent states and their certificate ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["latent_ctfno", *(pytest.param(n, marks=pytest.mark.slow) for n in ("latent_ode_rnn", "latent_flow", "rnn_vae"))],
)
def test_encoding_and_evolving_are_the_two_halves_of_a_model(name):
    task = small_latent.task(name)
    params = task.init(jax.random.key(0))
    observed, times = jnp.asarray(task.data.validation.observed.packed()), jnp.asarray([0.1, 0.9, 0.4])
    mean, std = jax.jit(lambda p: latent.encode(task.model, p, observed))(params)
    assert mean.shape == std.shape == (5, task.model.latent)
    found = jax.jit(lambda p: latent.evolve(task.model, p, mean, times))(params)
    np.testing.assert_allclose(found, jax.jit(task.model.apply)(params, observed, times), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("latent_ctfno", "regular"), pytest.param("latent_ctfno_attention", "classes", marks=pytest.mark.slow)],
)
def test_no_error_in_the_latent_state_grows_by_more_than_is_certified(name, kind):
    task = small_latent.task(name, kind)
    params = jax.tree.map(lambda leaf: 2 * leaf, task.init(jax.random.key(1)))
    times = jnp.asarray([0.0, 0.3, 1.0])
    certified = latent_lipschitz(task.model, params, times)
    a, b = 3 * jax.random.normal(jax.random.key(2), (2, 64, task.model.latent))
    evolve = jax.jit(lambda z0: latent.evolve(task.model, params, z0, times))
    ends = [evolve(z0) for z0 in (a, a + 1e-2 * b)]
    grown = jnp.linalg.norm(ends[1] - ends[0], axis=-1) / jnp.linalg.norm(1e-2 * b, axis=-1)[:, None]
    assert np.all(np.max(grown, axis=0) <= 1.001 * certified)
    measured = measured_gain(lambda p, z, t: latent.evolve(task.model, p, z, t), params, a[0], times)
    assert np.all(measured <= 1.001 * certified)
    assert np.all(measured > 0.05 * certified)


@pytest.mark.slow
def test_a_wider_decoder_multiplies_the_norms_of_its_maps():
    """With a decoder of two diagonal maps the certificate is that of the operator times both of their entries."""
    task = small_latent.task("latent_ctfno", data=None)
    model = task.model.clone(decoder_units=2)
    times = jnp.asarray([0.5])
    params = model.init(jax.random.key(0), *task._example())
    inside = certify(model.dynamics.operator, {"params": params["params"]["dynamics"]["operator"]}, times).lipschitz
    decoder = params["params"]["decoder"]
    decoder["weight_0"] = jnp.zeros_like(decoder["weight_0"]).at[0, 0].set(3.0)
    decoder["weight_1"] = jnp.zeros_like(decoder["weight_1"]).at[0, 1].set(-5.0)
    np.testing.assert_allclose(latent_lipschitz(model, params, times), 15 * inside, rtol=1e-5)


@pytest.mark.slow
def test_there_is_no_certificate_for_other_dynamics():
    task = small_latent.task("latent_flow")
    with pytest.raises(ValueError, match="latent states that CTFNO moves, not for FlowDynamics"):
        latent_lipschitz(task.model, task.init(jax.random.key(0)), jnp.asarray([0.5]))
