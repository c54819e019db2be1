"""Where time enters: shifts against joined channels, and what must and must not depend on time."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.parameters import random_parameters

from ctfno_jax.models import ablations
from ctfno_jax.models.ctfno import num_parameters
from ctfno_jax.ops import time_features

# Predictions are of order one and pass two layers in float32.
ATOL = 2e-5

CLASSES = [ablations.AblationInput, ablations.AblationLifted, ablations.AblationFeatures]
# What all three share is checked for one of them, and for all in the slow tests.
ONE_ALWAYS = [CLASSES[0], *(pytest.param(cls, marks=pytest.mark.slow) for cls in CLASSES[1:])]
SMALL = dict(out_channels=4, width=7, modes=(4,), depth=2, time_scale=3.0)
TIMES = np.array([0.7, 0.0, 1.3, 0.2, 2.5], np.float32)


def model_of(cls, **changes):
    own = {} if cls is ablations.AblationInput else dict(time_features=6, time_channels=5)
    return cls(**{**SMALL, **own, **changes})


def state(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def init(model, u0, seed: int = 0):
    return random_parameters(model, u0, TIMES, scale=0.4, seed=seed)


@functools.partial(jax.jit, static_argnums=0)
def _run(model, variables, u0, times):
    return model.apply(variables, u0, times)


def run(*arguments) -> np.ndarray:
    """On the host, where nothing is compiled to compare results."""
    return np.asarray(_run(*arguments))


def _literal(model, variables, u0, t):
    """One time, with time channels really joined to the field and really transformed."""
    weights = jax.tree.map(lambda x: np.asarray(x, np.float64), variables["params"])
    num_samples, n, _ = u0.shape
    rng = np.random.default_rng(9)
    v = [u0, np.broadcast_to(np.arange(n)[:, None] / n, (num_samples, n, 1))]
    if model.injection == "input":
        v.append(np.full((num_samples, n, 1), t * model.time_scale))
    v = np.concatenate(v, axis=-1) @ weights["lifting"]["weight"] + weights["lifting"]["bias"]
    for i in range(model.depth):
        layer = weights[f"layer_{i}"]
        kernel, pointwise = layer["kernel_re"] + 1j * layer["kernel_im"], layer["pointwise"]
        if f"time_{i}" in weights:
            join = weights[f"time_{i}"]
            features = time_features.sinusoidal_features(jnp.float32(t), model.time_features, model.time_scale)
            tau = np.asarray(features) @ join["time_map"]["weight"] + join["time_map"]["bias"]
            v = np.concatenate([v, np.broadcast_to(tau, (num_samples, n, len(tau)))], axis=-1)
            pointwise = np.concatenate([pointwise, join["pointwise"]])
            # Whatever the kernel is elsewhere, it meets zeros there.
            rows = rng.standard_normal((len(kernel), len(tau), model.width))
            rows[0] = join["kernel_re"]
            kernel = np.concatenate([kernel, rows], axis=1)
        mixed = np.einsum("bki,kio->bko", np.fft.rfft(v, axis=1)[:, : len(kernel)], kernel)
        v = np.asarray(jax.nn.gelu(np.fft.irfft(mixed, n=n, axis=1) + v @ pointwise + layer["bias"]), np.float64)
    return v @ weights["projection"]["weight"] + weights["projection"]["bias"]


# --- time -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "n"), [(CLASSES[0], 9), (CLASSES[1], 10), (CLASSES[2], 9)])
def test_shifts_equal_channels_that_are_joined_literally(cls, n):
    model, u0 = model_of(cls), state(3, n, 2)
    variables = init(model, u0)
    expected = np.stack([_literal(model, variables, u0, t) for t in TIMES], axis=1)
    u = run(model, variables, u0, TIMES)
    assert u.shape == (3, 5, n, 4)
    np.testing.assert_allclose(u, expected, rtol=0, atol=ATOL * np.abs(expected).max())
    assert float(np.abs(u[:, 0] - u[:, 1]).max()) > 1e-2


@pytest.mark.parametrize("cls", CLASSES)
def test_without_weights_for_time_nothing_depends_on_time(cls):
    model, u0 = model_of(cls), state(3, 9, 2)
    variables = init(model, u0)
    params = variables["params"]
    if cls is ablations.AblationInput:
        params["lifting"]["weight"] = params["lifting"]["weight"].at[-1].set(0)
    for name in [name for name in params if name.startswith("time_")]:
        params[name]["time_map"]["weight"] = np.zeros_like(params[name]["time_map"]["weight"])
    u = run(model, variables, u0, TIMES)
    np.testing.assert_allclose(u, np.broadcast_to(u[:, :1], u.shape), rtol=0, atol=ATOL)


def test_features_with_a_second_map_of_zero_equals_lifted():
    u0 = state(3, 9, 2)
    features, lifted = model_of(ablations.AblationFeatures), model_of(ablations.AblationLifted)
    variables = init(features, u0)
    params = variables["params"]
    params["time_1"] = jax.tree.map(np.zeros_like, params["time_1"])
    fewer = {"params": {name: leaf for name, leaf in params.items() if name != "time_1"}}
    expected = run(lifted, fewer, u0, TIMES)
    np.testing.assert_allclose(run(features, variables, u0, TIMES), expected, rtol=0, atol=ATOL)


@pytest.mark.parametrize("cls", CLASSES)
def test_time_and_its_scale_enter_as_a_product(cls):
    u0 = state(3, 9, 2)
    variables = init(model_of(cls), u0)
    one = run(model_of(cls, time_scale=6.0), variables, u0, TIMES)
    np.testing.assert_allclose(one, run(model_of(cls, time_scale=3.0), variables, u0, 2 * TIMES), rtol=0, atol=ATOL)


@pytest.mark.parametrize("cls", ONE_ALWAYS)
def test_shared_times_equal_times_of_each_sample_and_chunks_change_nothing(cls):
    model, u0 = model_of(cls), state(3, 9, 2)
    variables = init(model, u0)
    shared = run(model, variables, u0, TIMES)
    turned = np.stack([np.roll(TIMES, k) for k in range(3)])
    expected = np.stack([np.roll(shared[k], k, axis=0) for k in range(3)])
    np.testing.assert_allclose(run(model, variables, u0, turned), expected, rtol=0, atol=ATOL)
    chunked = model_of(cls, time_chunk=2)
    np.testing.assert_allclose(run(chunked, variables, u0, TIMES), shared, rtol=0, atol=ATOL)
    np.testing.assert_allclose(run(chunked, variables, u0, turned), expected, rtol=0, atol=ATOL)


# --- space, channels, parameters --------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", ONE_ALWAYS)
def test_without_coordinates_a_shifted_state_gives_a_shifted_solution(cls):
    u0 = state(3, 9, 2)
    for coordinates in (False, True):
        model = model_of(cls, coordinates=coordinates)
        variables = init(model, u0)
        error = run(model, variables, np.roll(u0, 3, axis=1), TIMES) - np.roll(run(model, variables, u0, TIMES), 3, 2)
        assert (float(np.abs(error).max()) < ATOL) != coordinates


@pytest.mark.parametrize("cls", CLASSES)
def test_two_space_axes_three_channels_and_both_methods(cls):
    u0 = state(2, 8, 7, 3)
    fields = dict(modes=(3, 2), out_channels=3, head="mlp", depth=1)
    variables = init(model_of(cls, **fields), u0)
    one, other = (run(model_of(cls, fourier_method=m, **fields), variables, u0, TIMES) for m in ("fft", "matmul"))
    assert one.shape == (2, 5, 8, 7, 3)
    np.testing.assert_allclose(one, other, rtol=0, atol=ATOL * float(np.abs(one).max()))


@pytest.mark.slow
@pytest.mark.parametrize("cls", CLASSES)
def test_every_parameter_has_a_gradient_and_chunks_do_not_change_it(cls):
    u0 = state(3, 9, 2)
    variables = init(model_of(cls), u0)

    def slopes(model):
        return jax.jit(jax.grad(lambda p: jnp.mean(jnp.sin(model.apply(p, u0, TIMES)))))(variables)

    whole, chunked = (jax.tree.leaves(slopes(model_of(cls, time_chunk=chunk))) for chunk in (None, 2))
    for one, other in zip(whole, chunked, strict=True):
        assert np.all(np.isfinite(one))
        assert np.any(np.asarray(one) != 0)
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("cls", "count"), list(zip(CLASSES, [1_057_217, 1_073_601, 1_090_049], strict=True)))
def test_numbers_of_parameters(cls, count):
    # Two layers of 64 * 64 (2 * 64 + 1) + 64, a lifting and a projection; 128 * 64 + 64 and 2 * 64 * 64 for each map.
    u0 = jax.ShapeDtypeStruct((1, 128, 1), jnp.float32)
    shapes = jax.eval_shape(cls().init, jax.random.key(0), u0, jax.ShapeDtypeStruct((1,), jnp.float32))
    assert num_parameters(shapes) == count


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"modes": ()}, "modes must be positive and name one to three"),
        ({"time_features": 5}, "time_features must be an even number"),
        ({"time_scale": 0.0}, "time_scale must be positive"),
        ({"time_chunk": 0}, "time_chunk must be at least 1"),
        ({"head": "deep"}, "head must be one of linear, mlp, got 'deep'"),
    ],
)
def test_fields_out_of_range_are_refused(cls, fields, text):
    with pytest.raises(ValueError, match=text):
        cls(**fields).check_fields()


def test_time_as_an_input_channel_refuses_the_fields_of_the_sinusoids():
    with pytest.raises(ValueError, match="no time_features and no time_channels"):
        ablations.AblationInput(time_features=16).check_fields()


@pytest.mark.parametrize("cls", CLASSES)
def test_modes_and_channels_that_do_not_fit_are_refused(cls):
    model, u0 = model_of(cls), state(2, 9, 2)
    with pytest.raises(ValueError, match="do not fit a grid"):
        init(model, u0[:, :5])
    with pytest.raises(ValueError, match="but the parameters are for"):
        model.apply(init(model, u0), state(2, 9, 3), TIMES)
