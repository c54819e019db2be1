"""The ordinary Fourier layer: against a literal transform, and both methods against each other."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.ops import fourier_layer as fl
from ctfno_jax.ops import spectral
from ctfno_jax.types import Complex

# Sums of some hundred float32 numbers of order one.
ATOL = 2e-5

CASES = [((11,), (4,)), ((12,), (7,)), ((8, 7), (4, 4)), ((6, 5, 4), (2, 1, 3))]


def _normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _case(grid, modes, num_in=3, num_out=5, lead=(2, 4)):
    shape = (*spectral.modes_shape(modes), num_in, num_out)
    kernel = Complex(*(jnp.asarray(_normal(seed, *shape)) for seed in (1, 2)))
    weight, bias = jnp.asarray(_normal(3, num_in, num_out)), jnp.asarray(_normal(4, num_out))
    return _normal(0, *grid, *lead, num_in), kernel, weight, bias


def _literal(v, kernel, weight, bias, modes):
    """Frequency by frequency, with the full transforms of numpy."""
    grid = v.shape[: len(modes)]
    axes = range(len(modes))
    v_hat = np.fft.rfftn(v.astype(np.float64), axes=axes)
    mixed = np.zeros((*v_hat.shape[:-1], weight.shape[1]), complex)
    matrices = np.asarray(kernel.re, np.float64) + 1j * np.asarray(kernel.im, np.float64)
    for stored in itertools.product(*(range(n) for n in matrices.shape[: len(modes)])):
        place = tuple(int(ks[i]) % n for ks, i, n in zip(spectral.frequencies(modes), stored, grid, strict=True))
        mixed[place] = v_hat[place] @ matrices[stored]
    return v @ np.asarray(weight) + np.fft.irfftn(mixed, s=grid, axes=axes) + np.asarray(bias)


@pytest.mark.parametrize("method", ["fft", "matmul"])
@pytest.mark.parametrize(("grid", "modes"), CASES)
def test_the_layer_is_what_its_formula_says(grid, modes, method):
    v, kernel, weight, bias = _case(grid, modes)
    layer = jax.jit(lambda *arguments: fl.fourier_layer(*arguments, modes=modes, method=method))
    out = layer(v, kernel, weight, bias)
    assert out.shape == (*grid, 2, 4, 5)
    np.testing.assert_allclose(out, _literal(v, kernel, weight, bias, modes), rtol=0, atol=ATOL)


@pytest.mark.parametrize(("grid", "modes"), [((12,), (7,)), ((9, 8), (3, 4))])
def test_both_methods_have_the_same_gradients(grid, modes):
    # Seven inputs: more than are summed channel by channel.
    v, kernel, weight, bias = _case(grid, modes, num_in=7, lead=(3,))

    def slopes(method):
        def loss(*arguments):
            return jnp.mean(jnp.sin(fl.fourier_layer(*arguments, modes=modes, method=method)))

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))(jnp.asarray(v), kernel, weight, bias)

    for one, other in zip(jax.tree.leaves(slopes("fft")), jax.tree.leaves(slopes("matmul")), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
        assert np.any(np.asarray(one) != 0)


def test_auto_is_one_of_the_two():
    v, kernel, weight, bias = _case((16,), (5,))
    auto, *both = (
        fl.fourier_layer(jnp.asarray(v), kernel, weight, bias, modes=(5,), method=method)
        for method in ("auto", "fft", "matmul")
    )
    assert any(np.array_equal(auto, one) for one in both)


@pytest.mark.parametrize("method", ["fft", "matmul"])
@pytest.mark.parametrize("num_points", [15, 16])
def test_a_layer_with_weights_of_the_derivative_differentiates(num_points, method):
    x = np.arange(num_points, dtype=np.float32) / num_points
    v = jnp.asarray(np.sin(2 * np.pi * 3 * x) + np.cos(2 * np.pi * x))[:, None]
    kernel = Complex(jnp.zeros((5, 1, 1)), jnp.asarray(2 * np.pi * np.arange(5, dtype=np.float32))[:, None, None])
    slope = fl.fourier_layer(v, kernel, jnp.zeros((1, 1)), jnp.zeros(1), modes=(5,), method=method)[:, 0]
    expected = 2 * np.pi * (3 * np.cos(2 * np.pi * 3 * x) - np.sin(2 * np.pi * x))
    np.testing.assert_allclose(slope, expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("num_in", [1, 6, 7, 9])
def test_the_affine_map_is_a_product_for_few_and_for_many_channels(num_in):
    v, weight, bias = (jnp.asarray(x) for x in (_normal(0, 4, 2, 3, num_in), _normal(1, num_in, 5), _normal(2, 5)))
    np.testing.assert_allclose(fl.affine(v, weight, bias), v @ weight + bias, rtol=0, atol=1e-5)


def test_too_many_modes_for_the_grid_are_refused():
    v, kernel, weight, bias = _case((8,), (6,))
    with pytest.raises(ValueError, match="do not fit a grid"):
        fl.fourier_layer(jnp.asarray(v), kernel, weight, bias, modes=(6,), method="matmul")
