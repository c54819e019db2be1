"""The ordinary Fourier layer, whose weights do not depend on time, and the affine map that goes with it.

    v  ->  W v  +  IFFT( R(xi) FFT(v)(xi) )  +  b

Shapes as in :mod:`ctfno_jax.ops.time_modulated_fourier`: fields ``(*space, *lead, channels)`` with any lead axes,
kernels ``(*modes, in, out)``, matrices ``(in, out)``.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ctfno_jax.ops import spectral
from ctfno_jax.types import Complex

# Up to this many inputs a sum of scaled channels, which fuses with what follows, beats a thin matrix product.
_FEW_CHANNELS = 6


def fourier_layer(
    v: Float[Array, "..."],
    kernel: Complex,
    weight: Float[Array, "in out"],
    bias: Float[Array, " out"],
    *,
    modes: tuple[int, ...],
    method: str = "auto",
) -> Float[Array, "..."]:
    """The layer before its activation.

    Args:
      v: ``(*space, *lead, in)`` with one to three space axes.
      kernel: R at the retained frequencies, ``(*modes, in, out)``.
      weight: W.
      bias: b.
      modes: retained frequencies of each space axis.
      method: ``"fft"``, ``"matmul"`` or ``"auto"``; they differ by rounding only.

    Returns:
      ``(*space, *lead, out)``.
    """
    return fourier_term(v, kernel, modes=modes, method=method) + affine(v, weight, bias)


def fourier_term(
    v: Float[Array, "..."], kernel: Complex, *, modes: tuple[int, ...], method: str = "auto"
) -> Float[Array, "..."]:
    """``IFFT(R FFT(v))``."""
    grid = v.shape[: len(modes)]
    if method == "auto":
        method = spectral.choose_method(modes, grid)
    if method == "fft":
        k = "xyz"[: len(modes)]
        v_hat = spectral.rfft_truncated(v, modes)
        mixed = jnp.einsum(f"{k}...i,{k}io->{k}...o", v_hat, jax.lax.complex(*kernel))
        return spectral.irfft_truncated(mixed, modes, grid)
    return spectral.idft_truncated(_mix(spectral.dft_truncated(v, modes), kernel), modes, grid)


def affine(v: Float[Array, "..."], weight: Float[Array, "in out"], bias: Float[Array, " out"]) -> Float[Array, "..."]:
    """``W v + b`` at every point of a field."""
    num_in, num_out = weight.shape
    if num_in <= _FEW_CHANNELS:
        return sum((v[..., c, None] * weight[c] for c in range(num_in)), bias)
    # A copy of W for each point of the first axis: its gradient is then many small products, which run in parallel,
    # instead of one with a very long inner axis, which does not.
    copies = jnp.broadcast_to(weight, (v.shape[0], num_in, num_out))
    return (v.reshape(v.shape[0], -1, num_in) @ copies).reshape(*v.shape[:-1], num_out) + bias


def _mix(v_hat: Float[Array, "..."], kernel: Complex) -> Float[Array, "..."]:
    """R v_hat at every frequency, for real and imaginary parts ``(*modes, 2, *lead, in)``."""
    *modes, num_in, num_out = kernel.re.shape
    lead = v_hat.shape[len(modes) + 1 : -1]
    # The rows (re v, im v) times the columns (re R, im R): all four real products of a complex one in one plain
    # batched product, which needs no transposed copy of the spectrum.
    columns = jnp.concatenate(kernel, axis=-1).reshape(-1, num_in, 2 * num_out)
    products = v_hat.reshape(math.prod(modes), -1, num_in) @ columns
    products = products.reshape(math.prod(modes), 2, -1, 2, num_out)
    re = products[:, 0, :, 0] - products[:, 1, :, 1]
    im = products[:, 0, :, 1] + products[:, 1, :, 0]
    return jnp.stack([re, im], axis=1).reshape(*modes, 2, *lead, num_out)
