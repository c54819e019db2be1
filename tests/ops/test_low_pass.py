"""Low-pass lifting: what passes, what does not, and what the bias adds."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.ops import low_pass as low_pass_lib
from ctfno_jax.ops import spectral
from ctfno_jax.types import Complex

METHODS = ("fft", "matmul")

# Compiled as a whole, which is quicker than one operation after the other.
low_pass = jax.jit(low_pass_lib.low_pass, static_argnames=("modes", "method"))
to_modes = jax.jit(spectral.to_modes, static_argnums=(1, 2))
from_modes = jax.jit(spectral.from_modes, static_argnums=(1, 2, 3))


def identity_map(channels: int) -> tuple[Complex, Complex]:
    weight = Complex(jnp.eye(channels), jnp.zeros((channels, channels)))
    return weight, Complex(jnp.zeros(channels), jnp.zeros(channels))


def random_map(channels: int, out: int) -> tuple[Complex, Complex]:
    rng = np.random.default_rng(3)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)  # noqa: E731
    return Complex(draw(channels, out), draw(channels, out)), Complex(draw(out), draw(out))


def wave(grid: tuple[int, int], k: tuple[int, int], phase: float) -> np.ndarray:
    x, y = np.meshgrid(*(np.arange(n) / n for n in grid), indexing="ij")
    return np.cos(2 * np.pi * (k[0] * x + k[1] * y) + phase)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("grid", [(8, 9), (7, 10)])
def test_identity_keeps_retained_waves_and_drops_the_others(grid, method):
    low = np.stack([wave(grid, (1, 2), 0.3), wave(grid, (-2, 1), 1.1), wave(grid, (0, 0), 0.5)], axis=-1)
    high = np.stack([wave(grid, (3, 1), 0.2), wave(grid, (1, 4), 0.9), wave(grid, (-3, 3), 0.0)], axis=-1)
    both = jnp.asarray(low + high, jnp.float32)[:, :, None, None, :]
    kept = low_pass(both, *identity_map(3), modes=(2, 3), method=method)
    assert kept.shape == (*grid, 1, 1, 3)
    # The frequency 2 = m of the first axis is stored only with a negative sign: (-2, 1) is kept.
    np.testing.assert_allclose(np.asarray(kept)[:, :, 0, 0], low, atol=3e-6, rtol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [9, 10])
def test_bias_adds_a_comb(n, method):
    """Bias at the frequencies 0 .. m - 1 is ``b_re + 2 sum_k (b_re cos(2 pi k x) - b_im sin(2 pi k x))``."""
    weight, _ = random_map(3, 2)
    bias = Complex(jnp.asarray([0.5, -1.0]), jnp.asarray([2.0, 0.25]))
    x = np.arange(n)[:, None] / n
    expected = np.asarray(bias.re) + 2 * sum(
        np.asarray(bias.re) * np.cos(2 * np.pi * k * x) - np.asarray(bias.im) * np.sin(2 * np.pi * k * x)
        for k in range(1, 4)
    )
    field = low_pass(jnp.zeros((n, 3)), weight, bias, modes=(4,), method=method)
    np.testing.assert_allclose(np.asarray(field), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_bias_adds_the_same_to_every_field(method):
    weight, bias = random_map(3, 4)
    none = Complex(jnp.zeros(4), jnp.zeros(4))
    v = jnp.asarray(np.random.default_rng(0).standard_normal((7, 6, 2, 5, 3)), jnp.float32)
    with_bias, without = (low_pass(v, weight, b, modes=(2, 3), method=method) for b in (bias, none))
    comb = low_pass(jnp.zeros((7, 6, 3)), weight, bias, modes=(2, 3), method=method)
    expected = without + comb[:, :, None, None]
    chex.assert_trees_all_close(with_bias, expected, atol=5e-5, rtol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("grid", "modes"), [((9,), (4,)), ((8, 7), (3, 2)), ((4, 6, 5), (2, 1, 3))])
def test_equals_one_complex_product_at_every_frequency(grid, modes, method):
    weight, bias = random_map(3, 4)
    v = np.random.default_rng(1).standard_normal((*grid, 2, 3)).astype(np.float32)
    v_hat = to_modes(v, modes, "fft")
    z = (np.asarray(v_hat.re) + 1j * np.asarray(v_hat.im)) @ (np.asarray(weight.re) + 1j * np.asarray(weight.im))
    z = z + np.asarray(bias.re) + 1j * np.asarray(bias.im)
    mixed = Complex(jnp.asarray(z.real, jnp.float32), jnp.asarray(z.imag, jnp.float32))
    expected = from_modes(mixed, grid, modes, "fft")
    chex.assert_trees_all_close(low_pass(v, weight, bias, modes=modes, method=method), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_without_bias_it_commutes_with_translations(method):
    weight, _ = random_map(3, 4)
    none = Complex(jnp.zeros(4), jnp.zeros(4))
    v = np.random.default_rng(2).standard_normal((9, 3)).astype(np.float32)
    moved, still = (low_pass(f, weight, none, modes=(4,), method=method) for f in (np.roll(v, 4, 0), v))
    np.testing.assert_allclose(np.asarray(moved), np.roll(still, 4, 0), atol=1e-5, rtol=0)
