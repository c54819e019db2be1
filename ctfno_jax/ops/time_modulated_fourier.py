"""The layer of the library: a Fourier layer whose weights depend on continuous time.

    v  <-  act( W diag(psi(t)) v  +  IFFT( phi(t, xi) R(xi) FFT(v)(xi) )  [+ psi_b(t) * b] )

``R`` and ``W`` do not depend on time; all that does is collected in :class:`TimeFactors`, which is computed for one
time and vmapped over the query times. Its arrays then carry axes for time (and batch) that *broadcast* against those of
the field: a field that does not depend on time yet, such as the lifted input, has a time axis of length one, and
its transform and its mixing by R are computed once per sample, not once per query time.

Shapes: fields ``(*space, *lead, channels)``, spectra ``(*modes, *lead, channels)`` with ``lead = (time, batch)`` in
the network and anything that broadcasts elsewhere. Matrices are stored ``(in, out)``.

Stabilisation needs no other code path: the factors that bound rows go into ``phi`` and ``pointwise_rows``, those that
bound columns into ``kernel_columns`` and ``scale`` (see :mod:`ctfno_jax.ops.gershgorin`).
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ctfno_jax.ops import gershgorin, spectral
from ctfno_jax.types import Complex


class LayerWeights(NamedTuple):
    """Time-independent weights of one layer.

    Attributes:
      kernel: R, ``(*modes, in, out)``.
      pointwise: W, ``(in, out)``.
    """

    kernel: Complex
    pointwise: Float[Array, "in out"]


class TimeFactors(NamedTuple):
    """Time-dependent factors of one layer, for one time (no lead axes) or for many.

    Attributes:
      phi: factor of each output of the kernel, ``(*modes, *lead, out)``.
      kernel_columns: factor of each input of the kernel, ``(*modes, *lead, in)``, or None for one.
      scale: psi, factor of each input of the pointwise map, ``(*lead, in)``.
      pointwise_rows: factor of each output of the pointwise map, ``(*lead, out)``, or None for one.
      shift: additive term, ``(*lead, out)``.
    """

    phi: Complex
    kernel_columns: Float[Array, "..."] | None
    scale: Float[Array, "..."]
    pointwise_rows: Float[Array, "..."] | None
    shift: Float[Array, "..."]


def head_factors(features: Float[Array, " time_width"], modulation: Complex, out_channels: int) -> Complex:
    """phi(t, xi) of every output channel at one time: ``<features_h, A_h(xi)>`` for its head h.

    The features are cut into as many slices as there are heads, each with its own A, and the outputs (rows of R)
    into as many blocks; so the number of parameters does not depend on the number of heads.

    Args:
      features: output of the time network.
      modulation: A, ``(heads, *modes, time_width / heads)``.
      out_channels: divisible by the number of heads.

    Returns:
      ``(*modes, out_channels)``.
    """
    heads = modulation.re.shape[0]
    slices = features.reshape(heads, -1)

    def factor(a: Array) -> Array:
        phi = jnp.einsum("h...c,hc->...h", a, slices)
        return jnp.repeat(phi, out_channels // heads, axis=-1)

    return Complex(factor(modulation.re), factor(modulation.im))


def stabilize(weights: LayerWeights, factors: TimeFactors, bound: float, rule: str) -> TimeFactors:
    """Factors of one time under which the rows (and columns) of R(t, xi) and W(t) have L1 norm at most ``bound``."""
    rows, columns = gershgorin.modulated_kernel_scales(
        gershgorin.modulus(factors.phi), gershgorin.modulus(weights.kernel), bound, rule
    )
    pointwise_rows, pointwise_columns = gershgorin.modulated_pointwise_scales(
        jnp.abs(factors.scale), jnp.abs(weights.pointwise), bound, rule
    )
    scale = factors.scale if pointwise_columns is None else factors.scale * pointwise_columns
    return TimeFactors(
        phi=Complex(factors.phi.re * rows, factors.phi.im * rows),
        kernel_columns=columns,
        scale=scale,
        pointwise_rows=pointwise_rows,
        shift=factors.shift,
    )


def fourier_term_fft(
    v: Float[Array, "..."], kernel: Complex, factors: TimeFactors, modes: tuple[int, ...]
) -> Float[Array, "..."]:
    """``IFFT(phi R FFT(v))`` by ``jnp.fft.rfftn`` with one complex weight matrix per frequency: the reference."""
    v_hat = spectral.rfft_truncated(v, modes)
    if factors.kernel_columns is not None:
        v_hat = v_hat * factors.kernel_columns
    num_space = len(modes)
    k = "xyz"[:num_space]
    mixed = jnp.einsum(f"{k}...i,{k}io->{k}...o", v_hat, jax.lax.complex(*kernel))
    return spectral.irfft_truncated(mixed * jax.lax.complex(*factors.phi), modes, v.shape[:num_space])


def fourier_term_matmul(
    v: Float[Array, "..."], kernel: Complex, factors: TimeFactors, modes: tuple[int, ...]
) -> Float[Array, "..."]:
    """The same by truncated DFT matrices and real products: faster on CPU, and it shards without gathering."""
    num_space = len(modes)
    v_hat = spectral.dft_truncated(v, modes)
    if factors.kernel_columns is not None:
        v_hat = v_hat * jnp.expand_dims(factors.kernel_columns, num_space)
    # All four real products of a complex one at once, without taking real and imaginary parts out first.
    products = _mix(v_hat, jnp.concatenate(kernel, axis=-1))
    (re_re, re_im), (im_re, im_im) = (jnp.split(part, 2, axis=-1) for part in jnp.moveaxis(products, num_space, 0))
    mixed_re, mixed_im = re_re - im_im, re_im + im_re
    phi = factors.phi
    modulated = jnp.stack(
        [mixed_re * phi.re - mixed_im * phi.im, mixed_re * phi.im + mixed_im * phi.re], axis=num_space
    )
    return spectral.idft_truncated(modulated, modes, v.shape[:num_space])


def _mix(v_hat: Float[Array, "..."], kernel: Float[Array, "*modes in out"]) -> Float[Array, "..."]:
    """One matrix product per frequency, with the lead axes flattened so that it is a plain batched product."""
    modes, (num_in, num_out) = kernel.shape[:-2], kernel.shape[-2:]
    lead = v_hat.shape[len(modes) : -1]
    flat = v_hat.reshape(math.prod(modes), -1, num_in) @ kernel.reshape(-1, num_in, num_out)
    return flat.reshape(*modes, *lead, num_out)


def pointwise_term(v: Float[Array, "..."], weight: Float[Array, "in out"], factors: TimeFactors) -> Float[Array, "..."]:
    """``W diag(psi(t)) v + shift(t)``."""
    scaled = v * factors.scale
    # One product per point of the first axis, each with its own copy of W: the gradient of W is then a sum of many
    # small products, which run in parallel, instead of one with a very long inner axis, which does not.
    copies = jnp.broadcast_to(weight, (scaled.shape[0], *weight.shape))
    flat = jnp.matmul(scaled.reshape(scaled.shape[0], -1, weight.shape[0]), copies)
    mapped = flat.reshape(*scaled.shape[:-1], weight.shape[1])
    if factors.pointwise_rows is not None:
        mapped = mapped * factors.pointwise_rows
    return mapped + factors.shift


def time_modulated_fourier(
    v: Float[Array, "..."],
    weights: LayerWeights,
    factors: TimeFactors,
    *,
    modes: tuple[int, ...],
    method: str = "auto",
) -> Float[Array, "..."]:
    """The layer before its activation.

    Args:
      v: ``(*space, *lead, in)``.
      weights: R and W.
      factors: phi, psi and the shift; their lead axes broadcast against those of ``v``.
      modes: retained frequencies for each space axis.
      method: ``"fft"``, ``"matmul"`` or ``"auto"``; they differ by rounding only.

    Returns:
      ``(*space, *lead, out)``.
    """
    term = _fourier_term(method, modes, v.shape[: len(modes)])
    return term(v, weights.kernel, factors, modes) + pointwise_term(v, weights.pointwise, factors)


def lifted_time_modulated_fourier(
    a: Float[Array, "..."],
    lifting: Float[Array, "in width"],
    weights: LayerWeights,
    factors: TimeFactors,
    *,
    modes: tuple[int, ...],
    method: str = "auto",
    constant_last: bool = False,
) -> Float[Array, "..."]:
    """The layer applied to ``a @ lifting`` without ever forming it: both are linear, so their matrices are multiplied.

    With a few input channels this saves a transform and a pointwise product at full width for every query time.
    Kernel column factors act between the two and cannot be folded, so there must be none. With ``constant_last``, the
    last channel of ``a`` is one everywhere, and what the pointwise map makes of it is a shift.
    """
    if factors.kernel_columns is not None:
        raise ValueError("kernel_columns must be None: they act between the lifting and the kernel")
    kernel = Complex(*(jnp.einsum("ci,...io->...co", lifting, part) for part in weights.kernel))
    folded = (lifting * factors.scale[..., None, :]) @ weights.pointwise
    num_fields = a.shape[-1] - 1 if constant_last else a.shape[-1]
    # A sum over few channels is elementwise work that fuses with the activation; a thin product would not.
    pointwise = sum(a[..., c, None] * folded[..., c, :] for c in range(num_fields))
    if constant_last:
        pointwise = pointwise + folded[..., -1, :]
    if factors.pointwise_rows is not None:
        pointwise = pointwise * factors.pointwise_rows
    term = _fourier_term(method, modes, a.shape[: len(modes)])
    return term(a, kernel, factors, modes) + (pointwise + factors.shift)


def _fourier_term(method: str, modes: tuple[int, ...], grid: tuple[int, ...]):
    if method == "auto":
        method = spectral.choose_method(modes, grid)
    return fourier_term_fft if method == "fft" else fourier_term_matmul


def block_diagonal_kernel(blocks: Complex, channel_map: Complex) -> Complex:
    """R + V as one dense kernel: R block-diagonal over channels, V the same at every frequency.

    V couples all channels anyway, so the sum costs no more to apply than V alone.

    Args:
      blocks: ``(*modes, num_blocks, block, block)``.
      channel_map: V, ``(width, width)``.

    Returns:
      ``(*modes, width, width)``.
    """

    def assemble(part: Array, v: Array) -> Array:
        num_blocks, block = part.shape[-3], part.shape[-1]
        width = num_blocks * block
        eye = jnp.eye(num_blocks, dtype=part.dtype)
        dense = jnp.einsum("...bio,bc->...bico", part, eye).reshape(*part.shape[:-3], width, width)
        return dense + v

    return Complex(assemble(blocks.re, channel_map.re), assemble(blocks.im, channel_map.im))
