"""Truncated Fourier transforms: both forms against each other, against NumPy and against closed forms."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.ops import spectral
from ctfno_jax.types import Complex

# Float32 rounding of sums over a few hundred points of order one.
ATOL = 2e-6

METHODS = ("fft", "matmul")

# Compiled as a whole, which is both how they are used and quicker than one operation after the other.
to_modes = jax.jit(spectral.to_modes, static_argnums=(1, 2))
from_modes = jax.jit(spectral.from_modes, static_argnums=(1, 2, 3))

# (grid, modes): odd and even grids, few modes and as many as fit (Nyquist included on even axes).
CASES = [
    pytest.param((9,), (3,), id="1d-odd"),
    pytest.param((10,), (4,), id="1d-even"),
    pytest.param((9,), (5,), id="1d-odd-all"),
    pytest.param((10,), (6,), id="1d-even-nyquist"),
    pytest.param((8, 7), (3, 2), id="2d-even-odd"),
    pytest.param((7, 8), (3, 5), id="2d-odd-even-nyquist"),
    pytest.param((6, 9), (3, 5), id="2d-all"),
    pytest.param((5, 6, 8), (2, 1, 3), id="3d"),
    pytest.param((4, 7, 6), (2, 3, 4), id="3d-all-nyquist"),
]

# Those whose gradients are compared: with Nyquist on an even axis, in one to three dimensions.
GRADIENT_CASES = [case for case in CASES if str(case.id).endswith("nyquist")]


def random_field(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def random_spectrum(modes: tuple[int, ...], *rest: int, seed: int = 1) -> np.ndarray:
    """Arbitrary complex numbers: in general not the spectrum of any real field."""
    rng = np.random.default_rng(seed)
    shape = (*spectral.modes_shape(modes), *rest)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


def as_pair(z: np.ndarray) -> Complex:
    return Complex(jnp.asarray(z.real), jnp.asarray(z.imag))


def as_complex(z: Complex) -> np.ndarray:
    return np.asarray(z.re) + 1j * np.asarray(z.im)


def zero_filled(v_hat: np.ndarray, modes: tuple[int, ...], grid: tuple[int, ...]) -> np.ndarray:
    """The layout of ``rfftn`` with every retained coefficient written at its own frequency, one by one."""
    full = np.zeros((*grid[:-1], grid[-1] // 2 + 1, *v_hat.shape[len(grid) :]), np.complex128)
    ks = spectral.frequencies(modes)
    for index in itertools.product(*(range(len(k)) for k in ks)):
        full[tuple(int(k[i]) for k, i in zip(ks, index, strict=True))] = v_hat[index]
    return full


def mesh(grid: tuple[int, ...]) -> list[np.ndarray]:
    return np.meshgrid(*(np.arange(n) / n for n in grid), indexing="ij")


def random_waves(num_space: int, largest: int, seed: int = 2) -> list[tuple[tuple[int, ...], float, float]]:
    """A trigonometric polynomial as (frequency, amplitude, phase), every frequency at most ``largest``."""
    rng = np.random.default_rng(seed)
    ks = itertools.product(*[range(-largest, largest + 1)] * (num_space - 1), range(largest + 1))
    return [(k, float(rng.standard_normal()), float(rng.uniform(0, 2 * np.pi))) for k in ks]


def evaluate(waves: list[tuple[tuple[int, ...], float, float]], grid: tuple[int, ...], axis: int | None = None):
    """Values of the polynomial, or of its derivative along ``axis``, in float64."""
    x = mesh(grid)
    total = np.zeros(grid)
    for k, amplitude, phase in waves:
        angle = 2 * np.pi * sum(ki * xi for ki, xi in zip(k, x, strict=True)) + phase
        total += amplitude * (np.cos(angle) if axis is None else -2 * np.pi * k[axis] * np.sin(angle))
    return total


# --- the two forms against each other ---------------------------------------------------------------------------


@pytest.mark.parametrize(("grid", "modes"), GRADIENT_CASES)
def test_gradients_of_both_forms_agree(grid, modes):
    """Through forward, a nonlinear function of the spectrum, and inverse."""
    v = random_field(*grid, 2, 3)
    target = random_field(*grid, 2, 3, seed=4)

    def loss(v, method):
        v_hat = to_modes(v, modes, method)
        squeezed = Complex(jnp.tanh(v_hat.re), v_hat.im * v_hat.re)
        return jnp.mean((from_modes(squeezed, grid, modes, method) - target) ** 2)

    by_fft, by_matmul = (jax.jit(jax.grad(loss), static_argnums=1)(v, method) for method in METHODS)
    assert float(jnp.abs(by_fft).max()) > 1e-4
    chex.assert_trees_all_close(by_fft, by_matmul, atol=ATOL, rtol=1e-4)


@pytest.mark.parametrize(("grid", "modes"), GRADIENT_CASES)
def test_gradients_of_the_inverse_agree_on_any_spectrum(grid, modes):
    v_hat = as_pair(random_spectrum(modes, 3))
    target = random_field(*grid, 3)

    def loss(v_hat, method):
        return jnp.mean((from_modes(v_hat, grid, modes, method) - target) ** 2)

    by_fft, by_matmul = (jax.jit(jax.grad(loss), static_argnums=1)(v_hat, method) for method in METHODS)
    chex.assert_trees_all_close(by_fft, by_matmul, atol=2e-5, rtol=1e-4)


def test_auto_is_one_of_the_two():
    v = random_field(8, 7, 3)
    modes = (3, 2)
    v_hat = to_modes(v, modes)
    chex.assert_trees_all_close(v_hat, to_modes(v, modes, "fft"), atol=ATOL, rtol=0)
    field = from_modes(v_hat, (8, 7), modes)
    chex.assert_trees_all_close(field, from_modes(v_hat, (8, 7), modes, "fft"), atol=5e-6, rtol=0)


# --- against NumPy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("grid", "modes"), CASES)
def test_coefficients_are_those_of_numpy_at_the_stated_frequencies(grid, modes, method):
    v = random_field(*grid, 2, 1, 3)
    full = np.fft.rfftn(v.astype(np.float64), axes=range(len(grid)), norm="forward")
    expected = full[np.ix_(*spectral.frequencies(modes))]
    np.testing.assert_allclose(as_complex(to_modes(v, modes, method)), expected, atol=ATOL, rtol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("grid", "modes"), CASES)
def test_inverse_is_irfftn_of_the_zero_filled_spectrum(grid, modes, method):
    v_hat = random_spectrum(modes, 2, 3)
    expected = np.fft.irfftn(zero_filled(v_hat, modes, grid), s=grid, axes=range(len(grid)), norm="forward")
    field = from_modes(as_pair(v_hat), grid, modes, method)
    np.testing.assert_allclose(np.asarray(field), expected, atol=5e-5, rtol=0)


def test_frequencies_in_storage_order():
    first, second, last = spectral.frequencies((2, 3, 4))
    assert first.tolist() == [0, 1, -2, -1]
    assert second.tolist() == [0, 1, 2, -3, -2, -1]
    assert last.tolist() == [0, 1, 2, 3]
    assert spectral.modes_shape((2, 3, 4)) == (4, 6, 4)
    assert spectral.modes_shape((5,)) == (5,)


# --- closed forms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("grid", [(9, 8), (10, 7)])
@pytest.mark.parametrize("k", [(-2, 1), (2, 1), (-1, 3), (-3, 2)])
def test_pure_wave_has_one_coefficient_at_its_frequency(k, grid, method):
    """``3 cos(2 pi k.x + 0.4)`` has the coefficient ``1.5 exp(0.4 i)`` at k and nothing else is stored."""
    modes = (3, 4)
    v = evaluate([(k, 3.0, 0.4)], grid)[..., None].astype(np.float32)
    v_hat = as_complex(to_modes(v, modes, method))[..., 0]
    ks = spectral.frequencies(modes)
    index = tuple(int(np.flatnonzero(axis == ki)[0]) for axis, ki in zip(ks, k, strict=True))
    expected = np.zeros(spectral.modes_shape(modes), complex)
    expected[index] = 1.5 * np.exp(0.4j)
    np.testing.assert_allclose(v_hat, expected, atol=ATOL, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_pure_wave_in_three_dimensions(method):
    modes = (2, 3, 2)
    v = evaluate([((1, -3, 1), 2.0, 0.0)], (5, 8, 6))[..., None].astype(np.float32)
    v_hat = as_complex(to_modes(v, modes, method))[..., 0]
    expected = np.zeros((4, 6, 2), complex)
    expected[1, 3, 1] = 1.0
    np.testing.assert_allclose(v_hat, expected, atol=ATOL, rtol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("grid", "modes", "largest"),
    [((9,), (5,), 4), ((10,), (5,), 4), ((8, 7), (3, 3), 2), ((7, 9), (3, 4), 2), ((5, 6, 7), (2, 2, 2), 1)],
)
def test_round_trip_of_a_band_limited_field(grid, modes, largest, method):
    fields = [evaluate(random_waves(len(grid), largest, seed), grid) for seed in (0, 1)]
    v = np.stack(fields, axis=-1).astype(np.float32)
    back = from_modes(to_modes(v, modes, method), grid, modes, method)
    np.testing.assert_allclose(np.asarray(back), v, atol=2e-5, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_round_trip_with_all_modes_of_an_even_grid_is_the_identity(method):
    """With every frequency up to Nyquist retained nothing is lost, whatever the field."""
    v = random_field(6, 8, 3)
    back = from_modes(to_modes(v, (3, 5), method), (6, 8), (3, 5), method)
    np.testing.assert_allclose(np.asarray(back), v, atol=5e-6, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_truncation_is_a_projection_that_drops_higher_waves(method):
    low = evaluate([((1,), 1.0, 0.2), ((0,), 0.5, 0.0)], (11,))
    high = evaluate([((3,), 2.0, 0.7), ((5,), 1.0, 0.1)], (11,))
    v = (low + high)[..., None].astype(np.float32)
    kept = from_modes(to_modes(v, (3,), method), (11,), (3,), method)
    np.testing.assert_allclose(np.asarray(kept)[..., 0], low, atol=ATOL, rtol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("grid", "modes", "axis"),
    [((9,), (5,), 0), ((12,), (5,), 0), ((8, 9), (3, 4), 0), ((8, 9), (3, 4), 1), ((6, 5, 7), (2, 2, 3), 1)],
)
def test_multiplying_by_two_pi_i_k_differentiates(grid, modes, axis, method):
    waves = random_waves(len(grid), min(modes) - 1)
    v = evaluate(waves, grid)[..., None].astype(np.float32)
    v_hat = to_modes(v, modes, method)
    shape = [1] * (len(grid) + 1)
    shape[axis] = -1
    k = jnp.asarray(2 * np.pi * spectral.frequencies(modes)[axis].reshape(shape), jnp.float32)
    derivative = from_modes(Complex(-k * v_hat.im, k * v_hat.re), grid, modes, method)
    exact = evaluate(waves, grid, axis)
    np.testing.assert_allclose(np.asarray(derivative)[..., 0], exact, atol=2e-6 * np.abs(exact).max() * 10, rtol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("coarse", "fine", "modes"), [((9,), (16,), (4,)), ((8, 7), (13, 10), (3, 3))])
def test_coefficients_do_not_depend_on_the_grid(coarse, fine, modes, method):
    waves = random_waves(len(modes), 2)
    on_coarse, on_fine = (
        to_modes(evaluate(waves, grid)[..., None].astype(np.float32), modes, method) for grid in (coarse, fine)
    )
    chex.assert_trees_all_close(on_coarse, on_fine, atol=5e-6, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_a_spectrum_is_evaluated_on_whatever_grid_is_asked_for(method):
    waves = random_waves(2, 2)
    v_hat = to_modes(evaluate(waves, (7, 8))[..., None].astype(np.float32), (3, 3), method)
    field = from_modes(v_hat, (12, 9), (3, 3), method)
    np.testing.assert_allclose(np.asarray(field)[..., 0], evaluate(waves, (12, 9)), atol=2e-5, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_translation_multiplies_coefficients_by_a_phase(method):
    v = random_field(9, 8, 2)
    modes, shift = (3, 4), (2, 5)
    v_hat, moved = (as_complex(to_modes(f, modes, method)) for f in (v, np.roll(v, shift, (0, 1))))
    kx, ky = np.meshgrid(*spectral.frequencies(modes), indexing="ij")
    phase = np.exp(-2j * np.pi * (kx * shift[0] / 9 + ky * shift[1] / 8))[..., None]
    np.testing.assert_allclose(moved, v_hat * phase, atol=ATOL, rtol=0)


# --- what does not fit, and what is chosen ----------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("grid", "modes", "largest"),
    [
        ((9,), (6,), r"\(5,\)"),
        ((8,), (6,), r"\(5,\)"),
        ((8,), (0,), r"\(5,\)"),
        ((7, 8), (4, 2), r"\(3, 5\)"),
        ((7, 8), (2, 6), r"\(3, 5\)"),
    ],
)
def test_too_many_modes_say_what_would_be_possible(grid, modes, largest, method):
    text = rf"do not fit a grid of .* points: between 1 and {largest} are possible; use fewer modes or a finer grid"
    with pytest.raises(ValueError, match=text):
        to_modes(jnp.zeros((*grid, 3)), modes, method)
    with pytest.raises(ValueError, match=text):
        from_modes(as_pair(random_spectrum(modes, 3)), grid, modes, method)


def test_modes_and_grid_of_different_rank_are_refused():
    with pytest.raises(ValueError, match=r"modes \(3, 2\) name 2 space axes, but the grid \(8,\) has 1"):
        spectral.check_modes((3, 2), (8,))


@pytest.mark.parametrize(("modes", "grid"), [((5,), (8,)), ((5,), (9,)), ((4, 5), (8, 9)), ((3, 2, 4), (7, 4, 6))])
def test_the_largest_possible_modes_are_accepted_and_one_more_is_not(modes, grid):
    assert spectral.check_modes(modes, grid) is None
    for axis in range(len(modes)):
        more = tuple(m + (i == axis) for i, m in enumerate(modes))
        with pytest.raises(ValueError, match="do not fit"):
            spectral.check_modes(more, grid)


def test_choose_method_prefers_products_on_cpu_while_modes_are_few():
    # 16 log2(256) = 128 is the last number of modes for which the product is chosen.
    assert spectral.choose_method((128,), (256,), "cpu") == "matmul"
    assert spectral.choose_method((129,), (256,), "cpu") == "fft"
    assert spectral.choose_method((8, 129), (64, 256), "cpu") == "fft"
    assert spectral.choose_method((8, 12), (64, 32), "tpu") == "matmul"
    assert spectral.choose_method((1,), (1,), "cpu") == "matmul"


@pytest.mark.parametrize("backend", ["gpu", "cuda", "rocm"])
def test_choose_method_takes_the_fft_on_gpu(backend):
    assert spectral.choose_method((4,), (256,), backend) == "fft"


def test_choose_method_asks_for_the_backend_in_use():
    assert spectral.choose_method((4,), (256,)) == spectral.choose_method((4,), (256,), jax.default_backend())
