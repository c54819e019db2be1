"""Low-pass lifting: one complex channel map, the same at every retained frequency; the others are dropped."""

from jaxtyping import Array, Float

from ctfno_jax.ops import spectral
from ctfno_jax.types import Complex


def low_pass(
    v: Float[Array, "..."], weight: Complex, bias: Complex, *, modes: tuple[int, ...], method: str = "auto"
) -> Float[Array, "..."]:
    """``IFFT(V FFT(v) + b)`` on the retained frequencies.

    Args:
      v: ``(*space, *lead, in)``.
      weight: the matrix V as ``(in, out)``.
      bias: ``(out,)``, added at every retained frequency.
      modes: retained frequencies for each space axis.
      method: how to transform; see :func:`spectral.to_modes`.

    Returns:
      ``(*space, *lead, out)``.
    """
    v_hat = spectral.to_modes(v, modes, method)
    mixed = Complex(
        v_hat.re @ weight.re - v_hat.im @ weight.im + bias.re,
        v_hat.re @ weight.im + v_hat.im @ weight.re + bias.im,
    )
    return spectral.from_modes(mixed, v.shape[: len(modes)], modes, method)
