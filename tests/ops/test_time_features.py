"""Sinusoids of one time and the network that reads them, against NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.ops import time_features


@pytest.mark.parametrize("num_features", [4, 6, 128])
def test_frequencies_are_geometric_from_one_to_one_ten_thousandth(num_features):
    w = time_features.angular_frequencies(num_features)
    assert w.shape == (num_features // 2,)
    np.testing.assert_allclose([w[0], w[-1]], [1.0, 1e-4], rtol=1e-12)
    np.testing.assert_allclose(w[1:] / w[:-1], 10 ** (-4 / (num_features // 2 - 1)), rtol=1e-12)


def test_one_pair_has_the_frequency_one():
    np.testing.assert_array_equal(time_features.angular_frequencies(2), [1.0])


@pytest.mark.parametrize("scale", [1.0, 7.5])
@pytest.mark.parametrize("t", [0.0, 0.3, 12.0])
def test_features_are_all_sines_then_all_cosines(t, scale):
    w = 10.0 ** np.array([0.0, -4 / 3, -8 / 3, -4.0])
    expected = np.concatenate([np.sin(w * scale * t), np.cos(w * scale * t)])
    features = time_features.sinusoidal_features(jnp.float32(t), 8, scale)
    assert features.dtype == jnp.float32
    np.testing.assert_allclose(np.asarray(features), expected, atol=2e-5, rtol=0)


def test_scale_multiplies_time():
    scaled = time_features.sinusoidal_features(jnp.float32(0.5), 6, 4.0)
    np.testing.assert_allclose(scaled, time_features.sinusoidal_features(jnp.float32(2.0), 6), atol=1e-7, rtol=0)


def test_each_sine_cosine_pair_lies_on_the_unit_circle():
    times = jnp.linspace(0.0, 50.0, 11)
    features = jax.vmap(lambda t: time_features.sinusoidal_features(t, 10))(times)
    sines, cosines = features[:, :5], features[:, 5:]
    np.testing.assert_allclose(np.asarray(sines**2 + cosines**2), 1.0, atol=1e-6, rtol=0)


def random_layers(*sizes: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    pairs = itertools.pairwise(sizes)
    return [(rng.standard_normal((a, b)), rng.standard_normal(b)) for a, b in pairs]


def as_jax(layers: list[tuple[np.ndarray, np.ndarray]]) -> list[time_features.Affine]:
    return [(jnp.asarray(w, jnp.float32), jnp.asarray(b, jnp.float32)) for w, b in layers]


def test_time_network_is_affine_maps_with_silu_between_and_none_at_the_end():
    layers = random_layers(4, 5, 3, 6)
    x = np.random.default_rng(1).standard_normal(4)

    def silu(z):
        return z / (1 + np.exp(-z))

    h = silu(x @ layers[0][0] + layers[0][1])
    h = silu(h @ layers[1][0] + layers[1][1])
    expected = h @ layers[2][0] + layers[2][1]
    result = time_features.time_network(as_jax(layers), jnp.asarray(x, jnp.float32))
    assert result.shape == (6,)
    np.testing.assert_allclose(np.asarray(result), expected, atol=1e-5, rtol=1e-5)


def test_time_network_of_one_layer_is_affine():
    layers = random_layers(4, 3)
    network = lambda x: np.asarray(time_features.time_network(as_jax(layers), x))  # noqa: E731
    a, b = jax.random.normal(jax.random.key(0), (2, 4))
    np.testing.assert_allclose(network(a) + network(b), network(a + b) + network(jnp.zeros(4)), atol=1e-5, rtol=0)
    np.testing.assert_allclose(network(jnp.zeros(4)), layers[0][1], atol=1e-6, rtol=0)
