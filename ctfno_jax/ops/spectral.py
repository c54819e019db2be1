"""Truncated real Fourier transforms in one, two and three dimensions, by FFT and by matrix product.

Conventions, shared by both forms:

* Fields are ``(*space, *lead, channels)``: the grid leads, so that a transform is one large matrix product.
* Spectra are a :class:`Complex` pair of ``(*modes, *lead, channels)`` arrays.
* The last space axis keeps the frequencies ``0 .. m - 1``; every other axis keeps ``0 .. m - 1, -m .. -1``
  in this order, hence ``2 m`` entries.
* The forward transform divides by the number of grid points, so a coefficient means the same on every grid.
* The inverse equals ``irfftn`` of the spectrum with zeros at all other frequencies.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ctfno_jax.types import Complex

# Float32 products must not be rounded to TF32 or bfloat16 on accelerators: the error would be 1e-3.
_PRECISION = jax.lax.Precision.HIGHEST


def frequencies(modes: tuple[int, ...]) -> list[np.ndarray]:
    """Retained integer frequencies of each axis, in storage order."""
    signed = [np.concatenate([np.arange(m), np.arange(-m, 0)]) for m in modes[:-1]]
    return [*signed, np.arange(modes[-1])]


def modes_shape(modes: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the retained spectrum: ``2 m`` on every axis but the last, which has ``m``."""
    return (*(2 * m for m in modes[:-1]), modes[-1])


def check_modes(modes: tuple[int, ...], grid: tuple[int, ...]) -> None:
    """Raises ValueError if the grid cannot carry the retained frequencies."""
    if len(modes) != len(grid):
        raise ValueError(f"modes {modes} name {len(modes)} space axes, but the grid {grid} has {len(grid)}")
    largest = (*(n // 2 for n in grid[:-1]), grid[-1] // 2 + 1)
    if any(m < 1 or m > limit for m, limit in zip(modes, largest, strict=True)):
        raise ValueError(
            f"modes {modes} do not fit a grid of {grid} points: between 1 and {largest} are possible; "
            "use fewer modes or a finer grid"
        )


def choose_method(modes: tuple[int, ...], grid: tuple[int, ...], backend: str | None = None) -> str:
    """``"matmul"`` or ``"fft"``, whichever should be faster for these sizes.

    On CPU an FFT inside a compiled program runs at a few percent of the matrix-product rate, so the product wins
    while ``modes <= 16 log2(points)``. TPUs favour products likewise. On GPU the FFT libraries are good.
    """
    if (backend or jax.default_backend()) in ("gpu", "cuda", "rocm"):
        return "fft"
    cheap = all(m <= 16 * max(1.0, math.log2(n)) for m, n in zip(modes, grid, strict=True))
    return "matmul" if cheap else "fft"


# --- by FFT: the reference ------------------------------------------------------------------------------------


def _take_low(v_hat: Array, modes: tuple[int, ...]) -> Array:
    for axis, m in enumerate(modes[:-1]):
        low = jax.lax.slice_in_dim(v_hat, 0, m, axis=axis)
        high = jax.lax.slice_in_dim(v_hat, v_hat.shape[axis] - m, v_hat.shape[axis], axis=axis)
        v_hat = jnp.concatenate([low, high], axis=axis)
    return jax.lax.slice_in_dim(v_hat, 0, modes[-1], axis=len(modes) - 1)


def _insert_zeros(v_hat: Array, axis: int, at: int, count: int) -> Array:
    shape = list(v_hat.shape)
    shape[axis] = count
    first, second = jnp.split(v_hat, [at], axis=axis)
    return jnp.concatenate([first, jnp.zeros(shape, v_hat.dtype), second], axis=axis)


def rfft_truncated(v: Float[Array, "..."], modes: tuple[int, ...]) -> Array:
    """Retained coefficients of a real field, as one complex array ``(*modes, *lead, channels)``."""
    grid = v.shape[: len(modes)]
    check_modes(modes, grid)
    v_hat = jnp.fft.rfftn(v, axes=range(len(modes)), norm="forward")
    return _take_low(v_hat, modes)


def irfft_truncated(v_hat: Array, modes: tuple[int, ...], grid: tuple[int, ...]) -> Float[Array, "..."]:
    """Real field on ``grid`` whose retained coefficients are given; all others are zero."""
    check_modes(modes, grid)
    for axis, (m, n) in enumerate(zip(modes[:-1], grid[:-1], strict=True)):
        v_hat = _insert_zeros(v_hat, axis, at=m, count=n - 2 * m)
    last = len(modes) - 1
    v_hat = _insert_zeros(v_hat, last, at=modes[-1], count=grid[-1] // 2 + 1 - modes[-1])
    if last:
        v_hat = jnp.fft.ifftn(v_hat, axes=range(last), norm="forward")
    # At zero and Nyquist of the last axis only the real part counts. Not every FFT library drops the rest by itself.
    n = grid[-1]
    real_only = np.isin(np.arange(n // 2 + 1), [0, n // 2] if n % 2 == 0 else [0])
    real_only = real_only.reshape(-1, *[1] * (v_hat.ndim - last - 1))
    v_hat = jnp.where(real_only, v_hat.real, v_hat)
    return jnp.fft.irfft(v_hat, n=n, axis=last, norm="forward")


# --- by matrix product: the fast form -------------------------------------------------------------------------


def _angles(ks: np.ndarray, n: int) -> np.ndarray:
    # Reducing k j modulo n in integers keeps the angle exact before it is multiplied by 2 pi / n.
    return 2 * np.pi * (np.outer(ks, np.arange(n)) % n) / n


@functools.lru_cache(maxsize=64)
def _real_matrices(m: int, n: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Forward ``(m, 2, n)`` and inverse ``(n, m, 2)`` matrices of the last axis; the 2 is real, imaginary."""
    angle = _angles(np.arange(m), n)
    forward = np.stack([np.cos(angle), -np.sin(angle)], axis=1) / n
    # Frequencies between zero and Nyquist stand for themselves and for their mirror image.
    weight = np.where((np.arange(m) == 0) | (2 * np.arange(m) == n), 1.0, 2.0)[:, None]
    inverse = np.stack([weight * np.cos(angle), -weight * np.sin(angle)], axis=1)
    return forward.astype(dtype), np.moveaxis(inverse, 2, 0).astype(dtype)


@functools.lru_cache(maxsize=64)
def _complex_matrices(m: int, n: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Forward ``(2m, 2, n, 2)`` and inverse ``(n, 2, 2m, 2)`` matrices of the other axes, acting on pairs."""
    angle = _angles(frequencies((m, 1))[0], n)
    cos, sin = np.cos(angle), np.sin(angle)
    forward = np.stack([np.stack([cos, sin], -1), np.stack([-sin, cos], -1)], axis=1) / n
    inverse = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], axis=1)
    return forward.astype(dtype), np.swapaxes(inverse, 0, 2).astype(dtype)


def _contract(matrix: Array, v: Array, axes: tuple[int, ...]) -> Array:
    """Contracts the trailing axes of a matrix with ``axes`` of a field; its other axes lead the result.

    Both are flattened to two dimensions first: only then does the compiler turn the transposed product of the
    backward pass around instead of copying its result.
    """
    kept = matrix.shape[: matrix.ndim - len(axes)]
    v = jnp.moveaxis(v, axes, range(len(axes)))
    flat = jnp.matmul(
        matrix.reshape(math.prod(kept), -1),
        v.reshape(math.prod(v.shape[: len(axes)]), -1),
        precision=_PRECISION,
    )
    return flat.reshape(*kept, *v.shape[len(axes) :])


def _pair_first(v: Array, num_space: int) -> Array:
    """``(*modes, 2, *lead, channels)`` to ``(2, *modes, *lead, channels)``."""
    return jnp.moveaxis(v, num_space, 0)


def dft_truncated(v: Float[Array, "..."], modes: tuple[int, ...]) -> Float[Array, "..."]:
    """Retained coefficients as one real array ``(*modes, 2, *lead, channels)``; equals :func:`rfft_truncated`.

    The pair axis follows the modes: it comes out of the product there, and mixing channels per frequency then
    needs no transposed copy.
    """
    grid = v.shape[: len(modes)]
    check_modes(modes, grid)
    v = v.astype(jnp.promote_types(v.dtype, jnp.float32))  # a matrix of whole numbers would be no transform
    last = len(modes) - 1
    forward = jnp.asarray(_real_matrices(modes[-1], grid[-1], v.dtype.name)[0])
    # (*outer, n, *rest) -> (m, 2, *outer, *rest)
    v_hat = _contract(forward, v, (last,))
    for axis in reversed(range(last)):
        # Now (*done, 2, *outer, n, *rest) with `done` holding the transformed axes, newest first.
        num_done = last - axis
        matrix = jnp.asarray(_complex_matrices(modes[axis], grid[axis], v.dtype.name)[0])
        v_hat = _contract(matrix, v_hat, (num_done + axis + 1, num_done))
        v_hat = jnp.moveaxis(v_hat, 1, num_done + 1)
    return v_hat


def idft_truncated(v_hat: Float[Array, "..."], modes: tuple[int, ...], grid: tuple[int, ...]) -> Float[Array, "..."]:
    """Real field on ``grid`` from ``(*modes, 2, *lead, channels)``; equals :func:`irfft_truncated`."""
    check_modes(modes, grid)
    last = len(modes) - 1
    v = v_hat
    for axis in range(last):
        # (k_axis, .., k_last, 2, *done, *rest): transform the leading axis and queue it behind the pair.
        matrix = jnp.asarray(_complex_matrices(modes[axis], grid[axis], v.dtype.name)[1])
        num_left = len(modes) - axis
        v = _contract(matrix, v, (0, num_left))
        # (n, 2, *left, *done, *rest) -> (*left, 2, *done, n, *rest)
        v = jnp.moveaxis(v, (1, 0), (num_left - 1, num_left + axis))
    inverse = jnp.asarray(_real_matrices(modes[-1], grid[-1], v.dtype.name)[1])
    field = _contract(inverse, v, (0, 1))
    return jnp.moveaxis(field, 0, last)


# --- one door for both ----------------------------------------------------------------------------------------


def to_modes(v: Float[Array, "..."], modes: tuple[int, ...], method: str = "auto") -> Complex:
    """Retained coefficients of a real field as a :class:`Complex` pair, by the chosen method."""
    if method == "auto":
        method = choose_method(modes, v.shape[: len(modes)])
    if method == "fft":
        v_hat = rfft_truncated(v, modes)
        return Complex(v_hat.real, v_hat.imag)
    return Complex(*_pair_first(dft_truncated(v, modes), len(modes)))


def from_modes(v_hat: Complex, grid: tuple[int, ...], modes: tuple[int, ...], method: str = "auto") -> Array:
    """Real field on ``grid`` from a :class:`Complex` pair, by the chosen method."""
    if method == "auto":
        method = choose_method(modes, grid)
    if method == "fft":
        return irfft_truncated(jax.lax.complex(*v_hat), modes, grid)
    return idft_truncated(jnp.stack(v_hat, axis=len(modes)), modes, grid)
