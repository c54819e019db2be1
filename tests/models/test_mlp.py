"""Fully connected networks: by hand, and their initial parameters."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.models import mlp


def _maps(*sizes: int, seed: int = 0) -> list[mlp.Affine]:
    rng = np.random.default_rng(seed)
    pairs = itertools.pairwise(sizes)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    return [(draw(a, b), draw(b)) for a, b in pairs]


def test_maps_and_activations_by_hand():
    (w0, b0), (w1, b1), (w2, b2) = maps = _maps(3, 5, 4, 2)
    v = np.random.default_rng(1).normal(size=(7, 6, 3)).astype(np.float32)
    expected = np.tanh(np.tanh(v @ w0 + b0) @ w1 + b1) @ w2 + b2
    np.testing.assert_allclose(mlp.mlp(maps, v), expected, rtol=0, atol=1e-5)


def test_one_map_is_affine():
    ((weight, bias),) = maps = _maps(3, 2)
    v = np.random.default_rng(2).normal(size=(5, 3)).astype(np.float32)
    np.testing.assert_allclose(mlp.mlp(maps, v), v @ weight + bias, rtol=0, atol=1e-6)


def test_another_activation_stands_between_the_maps_only():
    (w0, b0), (w1, b1) = maps = _maps(3, 4, 2)
    v = np.random.default_rng(3).normal(size=(5, 3)).astype(np.float32)
    expected = np.maximum(v @ w0 + b0, 0) @ w1 + b1
    np.testing.assert_allclose(mlp.mlp(maps, v, jax.nn.relu), expected, rtol=0, atol=1e-5)


def test_shapes_are_those_of_the_sizes_and_biases_start_at_zero():
    maps = mlp.MLP((3, 5, 2)).init_with_output(jax.random.key(0))[0]
    assert [(weight.shape, bias.shape) for weight, bias in maps] == [((3, 5), (5,)), ((5, 2), (2,))]
    assert all(np.all(bias == 0) for _, bias in maps)


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_only_the_last_map_starts_smaller(scale):
    first, last = (
        weight for weight, _ in mlp.MLP((40, 60, 30), last_scale=scale).init_with_output(jax.random.key(0))[0]
    )
    for weight, bound in ((first, np.sqrt(6 / 100)), (last, scale * np.sqrt(6 / 90))):
        assert np.abs(weight).max() <= bound * (1 + 1e-6)
        assert np.std(weight) == pytest.approx(bound / np.sqrt(3), rel=0.05)
