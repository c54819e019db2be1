"""Gershgorin-disc normalisation: rows (and columns) of a matrix scaled so that their L1 norm is at most M.

Matrices are stored ``(..., in, out)``: what the literature calls a row, the weights of one output, is a column of
the stored array, summed over ``in``.

Rule ``rows`` is the paper's: every row has L1 norm at most M. It bounds the infinity norm and the spectral radius,
**not** the 2-norm, which can still reach ``sqrt(out) M``. Rule ``rows_and_columns`` bounds both kinds of sums, and
since ``|A|_2^2 <= |A|_1 |A|_inf`` its result has 2-norm at most M.

A scale is ``M / max(M, norm)``: exactly one inside the bound, without a division by zero, and differentiable
except on the boundary itself.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ctfno_jax.types import Complex

RULES = ("rows", "rows_and_columns")


def modulus(z: Complex) -> Float[Array, "..."]:
    """``|z|``, with gradient zero (not NaN) where z vanishes."""
    square = z.re**2 + z.im**2
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


def shrink(norm: Float[Array, "..."], bound: float) -> Float[Array, "..."]:
    """Factor in (0, 1] that brings a norm down to ``bound``, and is one if it is there already."""
    return bound / jnp.maximum(norm, bound)


def row_scales(magnitude: Float[Array, "... in out"], bound: float) -> Float[Array, "... out"]:
    """Factors for the outputs that bound every row of a matrix with these moduli."""
    return shrink(magnitude.sum(-2), bound)


def column_scales(magnitude: Float[Array, "... in out"], bound: float) -> Float[Array, "... in"]:
    """Factors for the inputs that bound every column of a matrix with these moduli."""
    return shrink(magnitude.sum(-1), bound)


def scales(
    magnitude: Float[Array, "... in out"], bound: float, rule: str
) -> tuple[Float[Array, "... out"], Float[Array, "... in"] | None]:
    """Row factors and, under ``rows_and_columns``, the column factors of the row-scaled matrix.

    Scaling columns afterwards can only shrink rows, so both bounds hold in the end.
    """
    rows = row_scales(magnitude, bound)
    if rule == "rows":
        return rows, None
    return rows, column_scales(magnitude * rows[..., None, :], bound)


def normalize(matrix: Complex, bound: float, rule: str = "rows") -> Complex:
    """The matrix with its rows, or rows and columns, inside the bound; unchanged if they are already."""
    rows, columns = scales(modulus(matrix), bound, rule)
    factor = rows[..., None, :] if columns is None else rows[..., None, :] * columns[..., :, None]
    return Complex(matrix.re * factor, matrix.im * factor)


def modulated_kernel_scales(
    phi_modulus: Float[Array, "*modes out"], kernel_modulus: Float[Array, "*modes in out"], bound: float, rule: str
) -> tuple[Float[Array, "*modes out"], Float[Array, "*modes in"] | None]:
    """Scales of ``diag(phi(t, xi)) R(xi)`` at one time, without forming the product for the row rule."""
    rows = shrink(phi_modulus * kernel_modulus.sum(-2), bound)
    if rule == "rows":
        return rows, None
    return rows, shrink(jnp.einsum("...o,...io->...i", rows * phi_modulus, kernel_modulus), bound)


def modulated_pointwise_scales(
    psi_modulus: Float[Array, " in"], weight_modulus: Float[Array, "in out"], bound: float, rule: str
) -> tuple[Float[Array, " out"], Float[Array, " in"] | None]:
    """Scales of ``W diag(psi(t))`` at one time."""
    rows = shrink(psi_modulus @ weight_modulus, bound)
    if rule == "rows":
        return rows, None
    return rows, shrink(psi_modulus * (weight_modulus @ rows), bound)
