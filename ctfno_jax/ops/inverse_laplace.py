"""Inverse Laplace transform by a Fourier series, and complex numbers as points of the Riemann sphere.

On a vertical line to the right of all poles the inversion integral is a Fourier integral; cut to a period of ``2 T``
and to finitely many terms it is

    x(t) = e^(sigma t) / T  Re( F(s_0) / 2 + sum_k F(s_k) e^(i k pi t / T) ),   s_k = sigma + i k pi / T,

here with ``T = 2 t`` for every time t. A network that represents F sees and gives points of the sphere, on which a pole
is a point like any other.

Reference:
  De Hoog, Knight and Stokes, 1982, An improved method for numerical inversion of Laplace transforms: the series before
  its acceleration.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from ctfno_jax.types import Complex

# How far right of the poles the line lies, and the aliasing error that the period allows for.
_SHIFT = 1e-3
_TOLERANCE = 1e-2


def query_points(
    times: Float[Array, "*times"], num_terms: int, *, shift: float = _SHIFT, tolerance: float = _TOLERANCE
) -> Complex:
    """The points s_0 .. s_(num_terms - 1) at which the transform is needed for each positive time."""
    period = 2 * times[..., None]
    line = shift - math.log(tolerance) / (2 * period)
    k = jnp.arange(num_terms, dtype=times.dtype)
    return Complex(jnp.broadcast_to(line, (*times.shape, num_terms)), k * math.pi / period)


def invert(
    transform: Complex, times: Float[Array, "*times"], *, shift: float = _SHIFT, tolerance: float = _TOLERANCE
) -> Float[Array, "*times"]:
    """The function at each time, from its transform at :func:`query_points` in the last axis."""
    num_terms = transform.re.shape[-1]
    # The angle k pi t / T is k pi / 2 at all times: cosines and sines are 1, 0, -1, 0 in turn.
    quarter = jnp.arange(num_terms) % 4
    cosine = jnp.asarray([1.0, 0.0, -1.0, 0.0], times.dtype)[quarter]
    sine = jnp.asarray([0.0, 1.0, 0.0, -1.0], times.dtype)[quarter]
    series = jnp.sum(transform.re * cosine - transform.im * sine, axis=-1) - transform.re[..., 0] / 2
    period = 2 * times
    line = shift - math.log(tolerance) / (2 * period)
    return jnp.exp(line * times) / period * series


def to_sphere(s: Complex) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Longitude in [-pi, pi] and latitude in (-pi/2, pi/2); zero is the south pole, infinity the north pole."""
    # The same as arcsin((|s|^2 - 1) / (|s|^2 + 1)), but large and small numbers stay apart from the poles.
    return jnp.arctan2(s.im, s.re), 2 * jnp.arctan(jnp.hypot(s.re, s.im)) - math.pi / 2


def from_sphere(longitude: Float[Array, "..."], latitude: Float[Array, "..."]) -> Complex:
    """The complex number at a point of the sphere other than the north pole."""
    radius = jnp.tan(latitude / 2 + math.pi / 4)
    return Complex(radius * jnp.cos(longitude), radius * jnp.sin(longitude))
