"""Singular values of the weights as they act: by hand without a bound, and below the bound with one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import small_ctfno
from helpers.parameters import random_parameters

from ctfno_jax.certify import certify, singular_values
from ctfno_jax.ops import time_modulated_fourier as tmf

TIMES = np.asarray([0.0, 0.3, 2.5], np.float32)
MODES, WIDTH, DEPTH = 4, 8, 2


@functools.cache
def _case(scale=1.0, **options):
    model = small_ctfno.model_of(**options)
    return model, random_parameters(model, small_ctfno.state(1, 12, 2), TIMES, scale=scale)


def _by_hand(params, t, layer):
    """R(t, xi) and W(t) of one layer, from the parameters as they are written in the paper."""
    p = jax.tree.map(lambda a: np.asarray(a, np.float64), params["params"])
    angle = small_ctfno.SMALL["time_scale"] * float(t) * np.asarray([1.0, 1e-4])
    features = np.concatenate([np.sin(angle), np.cos(angle)])
    networks = []
    for name in ("kernel_time_network", "pointwise_time_network"):
        net, h = p[name], features
        for i in range(3):
            h = h @ net[f"weight_{i}"] + net[f"bias_{i}"]
            h = h / (1 + np.exp(-h)) if i < 2 else h
        networks.append(h)
    weights = p[f"layer_{layer}"]
    heads = networks[0].reshape(2, -1)
    modulation = weights["modulation_re"] + 1j * weights["modulation_im"]
    phi = np.einsum("hkc,hc->kh", modulation, heads)
    kernel = weights["kernel_re"] + 1j * weights["kernel_im"]
    # The outputs are cut into as many blocks as there are heads.
    kernel = kernel * np.repeat(phi, WIDTH // 2, axis=-1)[:, None, :]
    psi = (networks[1] @ weights["time_map"] + weights["time_map_bias"])[:WIDTH]
    return kernel, psi[:, None] * weights["pointwise"]


def test_there_is_a_value_for_every_time_layer_frequency_and_channel():
    kernels, pointwise = singular_values(*_case(), TIMES)
    assert kernels.shape == (len(TIMES), DEPTH, MODES, WIDTH)
    assert pointwise.shape == (len(TIMES), DEPTH, WIDTH)
    for values in (kernels, pointwise):
        assert np.all(values >= 0)
        assert np.all(np.diff(values, axis=-1) <= 0)


def test_without_a_bound_they_are_those_of_the_weights_times_the_factors_of_time():
    model, params = _case()
    kernels, pointwise = singular_values(model, params, TIMES)
    for i, t in enumerate(TIMES):
        for layer in range(DEPTH):
            kernel, matrix = _by_hand(params, t, layer)
            np.testing.assert_allclose(kernels[i, layer], np.linalg.svd(kernel)[1], rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(pointwise[i, layer], np.linalg.svd(matrix)[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("bound", [0.3, 2.0])
def test_rows_and_columns_keep_all_of_them_below_the_bound(bound):
    model, params = _case(scale=2.0, stability_bound=bound, stability_rule="rows_and_columns")
    free = singular_values(model.clone(stability_bound=None, stability_rule="rows"), params, TIMES)
    for values, without in zip(singular_values(model, params, TIMES), free, strict=True):
        assert values.max() <= bound * (1 + 1e-5)
        assert without.max() > 2 * bound
        assert values.max() > 0.2 * bound  # and not by being nothing


@pytest.mark.parametrize(
    ("rule", "largest"), [("rows", np.sqrt(WIDTH) * 0.5), ("rows_and_columns", 0.5 / np.sqrt(WIDTH))]
)
def test_rows_alone_do_not(rule, largest):
    """If all outputs read one input, rows of L1 norm M make a norm of sqrt(8) M; in one column, 8 entries share M."""
    model, params = _case(stability_bound=0.5, stability_rule=rule)
    changed = jax.tree.map(lambda a: a, params)
    layer = changed["params"]["layer_0"]
    for name in ("pointwise", "kernel_re", "kernel_im"):
        layer[name] = jnp.zeros_like(layer[name]).at[..., 0, :].set(1e5)
    for values in singular_values(model, changed, TIMES):
        np.testing.assert_allclose(values[:, 0, ..., 0], largest, rtol=1e-4)
        np.testing.assert_allclose(values[:, 0, ..., 1:], 0, atol=1e-5)


def test_a_bound_that_is_never_reached_changes_nothing():
    model, params = _case()
    bounded = model.clone(stability_bound=1e6, stability_rule="rows_and_columns")
    for with_bound, without in zip(*(singular_values(m, params, TIMES) for m in (bounded, model)), strict=True):
        np.testing.assert_allclose(with_bound, without, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"stability_bound": 0.7, "stability_rule": "rows_and_columns"}])
def test_the_largest_are_the_norms_of_the_certificate(options):
    model, params = _case(**options)
    kernels, pointwise = singular_values(model, params, TIMES)
    for i, layer in enumerate(certify(model, params, TIMES).layers):
        np.testing.assert_allclose(kernels[:, i].max((-2, -1)), layer.kernel, rtol=1e-4)
        np.testing.assert_allclose(pointwise[:, i].max(-1), layer.pointwise, rtol=1e-4)


def test_they_are_of_the_layer_as_it_acts():
    """A layer without kernel and shift maps constants, one channel at a time, to the rows of W(t)."""
    model, params = _case(stability_bound=0.7, stability_rule="rows_and_columns")

    @jax.jit
    def act(params, t):
        (weights, factors), *_ = model.apply(params, t[None], method=model.time_factors)
        at = jax.tree.map(lambda a: a[0], factors)._replace(shift=jnp.zeros(WIDTH))
        return tmf.pointwise_term(jnp.eye(WIDTH)[None], weights.pointwise, at)[0]

    _, pointwise = singular_values(model, params, TIMES)
    for i, t in enumerate(TIMES):
        acted = np.linalg.svd(np.asarray(act(params, t)))[1]
        np.testing.assert_allclose(pointwise[i, 0], acted, rtol=1e-4, atol=1e-5)
