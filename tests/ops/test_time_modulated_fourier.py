"""The time-modulated Fourier layer: special cases with exact answers, symmetries, and equal ways to compute it."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.ops import spectral
from ctfno_jax.ops import time_modulated_fourier as tmf
from ctfno_jax.types import Complex

METHODS = ("fft", "matmul")

layer = jax.jit(tmf.time_modulated_fourier, static_argnames=("modes", "method"))
lifted_layer = jax.jit(tmf.lifted_time_modulated_fourier, static_argnames=("modes", "method"))


def draw(*shape: int, seed: int = 0) -> jnp.ndarray:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def draw_pair(*shape: int, seed: int = 0) -> Complex:
    return Complex(*draw(2, *shape, seed=seed))


def as_complex(z: Complex) -> np.ndarray:
    return np.asarray(z.re) + 1j * np.asarray(z.im)


def random_layer(
    modes: tuple[int, ...], num_in: int, out: int, lead: tuple[int, ...] = (), columns: bool = False, rows: bool = False
) -> tuple[tmf.LayerWeights, tmf.TimeFactors]:
    """A layer without any special structure; its optional factors are present on request."""
    ks = spectral.modes_shape(modes)
    weights = tmf.LayerWeights(draw_pair(*ks, num_in, out, seed=1), draw(num_in, out, seed=2))
    factors = tmf.TimeFactors(
        phi=draw_pair(*ks, *lead, out, seed=3),
        kernel_columns=draw(*ks, *lead, num_in, seed=4) if columns else None,
        scale=draw(*lead, num_in, seed=5),
        pointwise_rows=draw(*lead, out, seed=6) if rows else None,
        shift=draw(*lead, out, seed=7),
    )
    return weights, factors


def squared_wave_numbers(modes: tuple[int, ...]) -> np.ndarray:
    """``|2 pi xi|^2`` of every retained frequency."""
    ks = np.meshgrid(*spectral.frequencies(modes), indexing="ij")
    return (2 * np.pi) ** 2 * sum(k.astype(float) ** 2 for k in ks)


def wave(grid: tuple[int, ...], k: tuple[int, ...], phase: float) -> np.ndarray:
    x = np.meshgrid(*(np.arange(n) / n for n in grid), indexing="ij")
    return np.cos(2 * np.pi * sum(ki * xi for ki, xi in zip(k, x, strict=True)) + phase)


# --- exact answers ----------------------------------------------------------------------------------------------

# Two channels, each a sum of waves (frequency, amplitude, phase) that the retained modes of the case hold.
WAVES = {
    1: ([((0,), 1.0, 0.0), ((1,), 2.0, 0.3), ((3,), -1.0, 1.0)], [((2,), 1.5, 0.2), ((3,), 0.5, 2.0)]),
    2: ([((0, 1), 1.0, 0.1), ((-2, 1), 2.0, 0.3)], [((1, 2), 1.0, 0.7), ((2, 0), 0.5, 1.1), ((0, 0), 2.0, 0.0)]),
    3: ([((1, -1, 1), 1.0, 0.2), ((0, 0, 2), 2.0, 0.5)], [((-1, 1, 0), 1.0, 0.9), ((1, 1, 2), 1.5, 0.4)]),
}
HEAT_MODES = {1: (4,), 2: (3, 3), 3: (2, 2, 3)}


def heat_solution(grid: tuple[int, ...], t: float, nu: float) -> np.ndarray:
    """Every wave of every channel decayed by ``exp(-nu |2 pi k|^2 t)``."""
    decay = lambda k: np.exp(-nu * (2 * np.pi) ** 2 * sum(ki**2 for ki in k) * t)  # noqa: E731
    channels = [
        sum(amplitude * decay(k) * wave(grid, k, phase) for k, amplitude, phase in waves) for waves in WAVES[len(grid)]
    ]
    return np.stack(channels, axis=-1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("grid", [(9,), (12,), (7, 8), (6, 5, 7)], ids=str)
def test_with_the_heat_kernel_the_layer_is_the_heat_solver(grid, method):
    """phi = exp(-nu |2 pi xi|^2 t); R embeds the two channels into three in the same way at every frequency."""
    nu, modes = 0.01, HEAT_MODES[len(grid)]
    embedding = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, -2.0]])
    ks = spectral.modes_shape(modes)
    kernel = jnp.broadcast_to(jnp.asarray(embedding, jnp.float32), (*ks, 2, 3))
    weights = tmf.LayerWeights(Complex(kernel, jnp.zeros_like(kernel)), jnp.zeros((2, 3)))
    for t in (0.0, 0.37, 5.0):
        phi = jnp.asarray(np.exp(-nu * squared_wave_numbers(modes) * t)[..., None] * np.ones(3), jnp.float32)
        factors = tmf.TimeFactors(Complex(phi, jnp.zeros_like(phi)), None, jnp.ones(2), None, jnp.zeros(3))
        u = layer(jnp.asarray(heat_solution(grid, 0.0, nu), jnp.float32), weights, factors, modes=modes, method=method)
        np.testing.assert_allclose(np.asarray(u), heat_solution(grid, t, nu) @ embedding, atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("grid", [(9, 8), (8, 7)], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_with_the_kernel_two_pi_i_k_the_layer_differentiates(axis, grid, method):
    modes = (3, 3)
    k = 2 * np.pi * np.meshgrid(*spectral.frequencies(modes), indexing="ij")[axis]
    kernel_im = jnp.asarray(k[..., None, None] * np.eye(2), jnp.float32)
    weights = tmf.LayerWeights(Complex(jnp.zeros_like(kernel_im), kernel_im), jnp.zeros((2, 2)))
    ones = jnp.ones((6, 3, 2))
    factors = tmf.TimeFactors(Complex(ones, jnp.zeros_like(ones)), None, jnp.ones(2), None, jnp.zeros(2))
    v = jnp.asarray(heat_solution(grid, 0.0, 1.0), jnp.float32)
    slope = [
        # d/dx cos(2 pi k.x + p) = 2 pi k cos(2 pi k.x + p + pi / 2)
        sum(2 * np.pi * q[axis] * amplitude * wave(grid, q, phase + np.pi / 2) for q, amplitude, phase in waves)
        for waves in WAVES[2]
    ]
    result = layer(v, weights, factors, modes=modes, method=method)
    np.testing.assert_allclose(np.asarray(result), np.stack(slope, axis=-1), atol=1e-4, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_complex_phi_of_modulus_one_translates(method):
    """phi = exp(-2 pi i k c) moves a band-limited field by c, here by three grid points."""
    n, modes = 10, (4,)
    angle = -2 * np.pi * np.arange(4) * 3 / n
    phi = np.exp(1j * angle)[:, None] * np.ones(2)
    kernel = jnp.broadcast_to(jnp.eye(2), (4, 2, 2))
    weights = tmf.LayerWeights(Complex(kernel, jnp.zeros_like(kernel)), jnp.zeros((2, 2)))
    pair = Complex(jnp.asarray(phi.real, jnp.float32), jnp.asarray(phi.imag, jnp.float32))
    factors = tmf.TimeFactors(pair, None, jnp.ones(2), None, jnp.zeros(2))
    v = heat_solution((n,), 0.0, 1.0)
    result = layer(jnp.asarray(v, jnp.float32), weights, factors, modes=modes, method=method)
    np.testing.assert_allclose(np.asarray(result), np.roll(v, 3, axis=0), atol=5e-6, rtol=0)


def test_with_no_kernel_only_the_pointwise_map_is_left():
    weights, factors = random_layer((3, 2), 4, 3, rows=True)
    weights = weights._replace(kernel=jax.tree.map(jnp.zeros_like, weights.kernel))
    v = draw(7, 6, 4)
    scaled = np.asarray(v) * np.asarray(factors.scale)
    expected = (scaled @ np.asarray(weights.pointwise)) * np.asarray(factors.pointwise_rows) + np.asarray(factors.shift)
    np.testing.assert_allclose(np.asarray(layer(v, weights, factors, modes=(3, 2))), expected, atol=1e-5, rtol=0)


# --- symmetries -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("grid", "modes", "shift"),
    [((9,), (4,), (2,)), ((8, 7), (3, 4), (3, 5)), ((5, 6, 4), (2, 2, 2), (1, 4, 2))],
    ids=["1d", "2d", "3d"],
)
def test_commutes_with_translations(grid, modes, shift, method):
    weights, factors = random_layer(modes, 3, 4)
    v = np.asarray(draw(*grid, 3))
    axes = tuple(range(len(grid)))
    still, moved = (
        np.asarray(layer(f, weights, factors, modes=modes, method=method)) for f in (v, np.roll(v, shift, axes))
    )
    np.testing.assert_allclose(moved, np.roll(still, shift, axes), atol=1e-4, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_without_shift_the_layer_is_linear(method):
    weights, factors = random_layer((3, 2), 4, 3, columns=True, rows=True)
    factors = factors._replace(shift=jnp.zeros(3))
    a, b = draw(2, 7, 6, 4)
    apply = lambda v: layer(v, weights, factors, modes=(3, 2), method=method)  # noqa: E731
    chex.assert_trees_all_close(apply(2 * a - 3 * b), 2 * apply(a) - 3 * apply(b), atol=2e-4, rtol=0)


# --- equal ways -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "modes", "columns"),
    [((9,), (5,), False), ((10,), (6,), True), ((7, 8), (3, 5), True), ((4, 5, 6), (2, 1, 3), False)],
    ids=str,
)
def test_fft_and_matmul_terms_agree(grid, modes, columns):
    """With lead axes that broadcast, complex phi, and modes up to Nyquist; values and gradients."""
    weights, factors = random_layer(modes, 3, 4, lead=(2, 1), columns=columns)
    v = draw(*grid, 1, 5, 3)

    @functools.partial(jax.jit, static_argnums=0)
    def run(term, v, kernel, phi):
        def loss(v, kernel, phi):
            out = term(v, kernel, factors._replace(phi=phi), modes)
            return jnp.sum(jnp.sin(out)), out

        return jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)(v, kernel, phi)

    (_, by_fft), slopes_fft = run(tmf.fourier_term_fft, v, weights.kernel, factors.phi)
    (_, by_matmul), slopes_matmul = run(tmf.fourier_term_matmul, v, weights.kernel, factors.phi)
    assert by_fft.shape == (*grid, 2, 5, 4)
    chex.assert_trees_all_close(by_fft, by_matmul, atol=1e-4, rtol=0)
    chex.assert_trees_all_close(slopes_fft, slopes_matmul, atol=1e-3, rtol=1e-3)


def test_one_matrix_per_frequency_by_hand():
    """The defining formula, with loops over frequencies, in float64."""
    grid, modes = (7, 6), (2, 3)
    weights, factors = random_layer(modes, 3, 2, columns=True, rows=True)
    v = np.asarray(draw(*grid, 3), np.float64)
    spectrum = np.fft.rfftn(v, axes=(0, 1), norm="forward")
    out = np.zeros((7, 4, 2), complex)
    for i, kx in enumerate((0, 1, -2, -1)):
        for j, ky in enumerate((0, 1, 2)):
            column = spectrum[kx, ky] * np.asarray(factors.kernel_columns)[i, j]
            out[kx, ky] = as_complex(factors.phi)[i, j] * (column @ as_complex(weights.kernel)[i, j])
    expected = np.fft.irfftn(out, s=grid, axes=(0, 1), norm="forward")
    pointwise = (v * np.asarray(factors.scale)) @ np.asarray(weights.pointwise) * np.asarray(factors.pointwise_rows)
    expected = expected + pointwise + np.asarray(factors.shift)
    for method in METHODS:
        result = layer(jnp.asarray(v, jnp.float32), weights, factors, modes=modes, method=method)
        np.testing.assert_allclose(np.asarray(result), expected, atol=3e-5, rtol=0)


def at_time(factors: tmf.TimeFactors, i: int, num_space: int) -> tmf.TimeFactors:
    """The factors of the i-th time alone, from factors with lead axes ``(time, 1)``."""
    behind_modes = lambda x: x[(slice(None),) * num_space + (i, 0)]  # noqa: E731
    return tmf.TimeFactors(
        phi=jax.tree.map(behind_modes, factors.phi),
        kernel_columns=jax.tree.map(behind_modes, factors.kernel_columns),
        scale=factors.scale[i, 0],
        pointwise_rows=jax.tree.map(lambda x: x[i, 0], factors.pointwise_rows),
        shift=factors.shift[i, 0],
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("full", [False, True], ids=["plain", "with-rows-and-columns"])
def test_broadcast_over_times_equals_a_loop_and_a_vmap(full, method):
    grid, modes, num_times, batch = (7, 6), (2, 3), 3, 5
    weights, factors = random_layer(modes, 4, 2, lead=(num_times, 1), columns=full, rows=full)
    v = draw(*grid, 1, batch, 4)
    together = layer(v, weights, factors, modes=modes, method=method)
    assert together.shape == (*grid, num_times, batch, 2)

    singles = [at_time(factors, i, 2) for i in range(num_times)]
    looped = [
        [layer(v[:, :, 0, b], weights, single, modes=modes, method=method) for b in range(batch)] for single in singles
    ]
    looped = jnp.stack([jnp.stack(row, axis=2) for row in looped], axis=2)
    chex.assert_trees_all_close(together, looped, atol=5e-5, rtol=0)

    stacked = jax.tree.map(lambda *x: jnp.stack(x), *singles)
    alone = functools.partial(layer, modes=modes, method=method)
    over_batch = jax.vmap(alone, in_axes=(2, None, None), out_axes=2)
    mapped = jax.vmap(over_batch, in_axes=(None, None, 0), out_axes=2)(v[:, :, 0], weights, stacked)
    chex.assert_trees_all_close(together, mapped, atol=5e-5, rtol=0)


# --- folded lifting ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("lead", "field_lead", "rows"), [((), (), True), ((3, 1), (1, 4), False)], ids=["one-time", "many-times"]
)
def test_folded_lifting_equals_lifting_first(lead, field_lead, rows, method):
    grid, modes = (8, 7), (3, 2)
    weights, factors = random_layer(modes, 5, 6, lead=lead, rows=rows)
    a, lifting = draw(*grid, *field_lead, 2), draw(2, 5, seed=9)
    folded = lifted_layer(a, lifting, weights, factors, modes=modes, method=method)
    unfolded = layer(a @ lifting, weights, factors, modes=modes, method=method)
    assert folded.shape == unfolded.shape
    chex.assert_trees_all_close(folded, unfolded, atol=2e-4, rtol=0)


def test_folding_refuses_column_factors():
    weights, factors = random_layer((3,), 5, 4, columns=True)
    with pytest.raises(ValueError, match="kernel_columns must be None: they act between the lifting and the kernel"):
        tmf.lifted_time_modulated_fourier(draw(8, 2), draw(2, 5), weights, factors, modes=(3,))


# --- heads and blocks -------------------------------------------------------------------------------------------


def test_head_factors_by_hand():
    """Six outputs, two heads: outputs 0-2 read features 0-3 with A_0, outputs 3-5 read features 4-7 with A_1."""
    features, modulation = draw(8, seed=1), draw_pair(2, 4, 3, 4, seed=2)
    phi = as_complex(tmf.head_factors(features, modulation, 6))
    assert phi.shape == (4, 3, 6)
    f, a = np.asarray(features), as_complex(modulation)
    for i in range(4):
        for j in range(3):
            first, second = a[0, i, j] @ f[:4], a[1, i, j] @ f[4:]
            np.testing.assert_allclose(phi[i, j], [first] * 3 + [second] * 3, atol=1e-5, rtol=0)


def test_with_one_head_all_outputs_share_one_factor():
    features, modulation = draw(5, seed=1), draw_pair(1, 7, 5, seed=2)
    phi = as_complex(tmf.head_factors(features, modulation, 3))
    expected = as_complex(modulation)[0] @ np.asarray(features)
    np.testing.assert_allclose(phi, np.repeat(expected[:, None], 3, axis=1), atol=1e-5, rtol=0)


def test_with_as_many_heads_as_outputs_each_has_its_own_factor():
    features, modulation = draw(6, seed=1), draw_pair(3, 5, 2, seed=2)
    phi = as_complex(tmf.head_factors(features, modulation, 3))
    expected = np.stack([as_complex(modulation)[h] @ np.asarray(features)[2 * h : 2 * h + 2] for h in range(3)], -1)
    np.testing.assert_allclose(phi, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("num_blocks", "block"), [(3, 2), (1, 4), (5, 1)])
def test_block_diagonal_kernel_by_hand(num_blocks, block):
    width = num_blocks * block
    blocks, channel_map = draw_pair(4, 3, num_blocks, block, block, seed=1), draw_pair(width, width, seed=2)
    expected = np.broadcast_to(as_complex(channel_map), (4, 3, width, width)).copy()
    for b in range(num_blocks):
        part = slice(b * block, (b + 1) * block)
        expected[:, :, part, part] += as_complex(blocks)[:, :, b]
    np.testing.assert_allclose(as_complex(tmf.block_diagonal_kernel(blocks, channel_map)), expected, atol=1e-6, rtol=0)
