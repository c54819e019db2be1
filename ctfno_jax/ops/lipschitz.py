"""Lipschitz constants of the pieces of a network, and their composition.

A network is a chain ``S_m a_m S_{m-1} .. a_1 S_0`` of linear stages with a pointwise function ``a_j`` at each junction.
Every stage here is block-diagonal in frequency: the pointwise maps are the same matrix at all frequencies, a Fourier
kernel adds its own matrix at the retained ones. The Fourier transform is unitary, so the exact 2-norm of a stage, and
of any product of consecutive stages, is the largest 2-norm among the blocks.

A kernel with a complex matrix at frequency zero or Nyquist of the last axis (in two and three dimensions, on that whole
plane) maps a real field to a complex one, of which the inverse transform keeps the real part. That real part is taken
at the junction: it is ``Re z`` where nothing else happens, and ``gelu(Re z)`` at an activation.

Composition uses more than the product of norms. Every junction is ``z / 2`` plus a remainder: for GELU, of Lipschitz
constant ``rho = 0.629`` (on the imaginary part it is 1/2, which is less), for ``Re`` of 1/2. Expanding all of them
writes the network as a sum over paths in which consecutive stages meet directly, and the norm of *their product* can be
far below the product of their norms. With ``N(i, j)`` the norm of ``S_j .. S_i``, the triangle inequality gives

    L = T(m),   T(j) = sum_{i <= j} 2^(i - j) N(i, j) (rho_i T(i - 1) if i > 0 else 1),

which never exceeds ``prod_j (1/2 + rho_j) prod_j N(j, j)``, the plain product.

Reference:
  The bound per layer in the paper's appendix splits the squared norm of a sum as a sum of squared norms, which does
  not hold; here the norm of a sum of two terms is bounded by the exact norm of the summed operator.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

# Largest slope of GELU, in its tanh form and in its erf form alike, rounded up; the least slope is one minus this,
# because gelu(x) - x / 2 is even.
GELU_SLOPE = 1.12905
# The real part of a complex field, where a stage follows another without an activation.
REAL_PART_SLOPE = 1.0

# Covers the rounding of norms and products in float64.
_ROUNDING = 1.0 + 1e-6


def spectral_norm(blocks: np.ndarray) -> float:
    """Largest singular value among matrices ``(..., in, out)``."""
    return float(np.linalg.svd(blocks, compute_uv=False).max()) * _ROUNDING


def row_column_bound(blocks: np.ndarray) -> float:
    """``max sqrt(|A|_1 |A|_inf)`` over matrices ``(..., in, out)``: an upper bound on the 2-norm, without an SVD."""
    magnitude = np.abs(blocks)
    return float(np.sqrt(magnitude.sum(-1).max(-1) * magnitude.sum(-2).max(-1)).max()) * _ROUNDING


def frobenius_bound(blocks: np.ndarray) -> float:
    """Largest Frobenius norm among matrices ``(..., in, out)``: an upper bound on the 2-norm, without an SVD."""
    return float(np.sqrt((np.abs(blocks) ** 2).sum((-2, -1))).max()) * _ROUNDING


def cheap_norm(blocks: np.ndarray) -> float:
    """The better of the two bounds that need no SVD."""
    return min(row_column_bound(blocks), frobenius_bound(blocks))


def product_bound(norms: Sequence[float], slopes: Sequence[float] | None = None) -> float:
    """Lipschitz constant of stages with these norms and junctions with these slopes, GELU's if not given."""
    slopes = _slopes(slopes, len(norms))
    return float(np.prod(norms)) * float(np.prod(slopes))


def path_bound(norms: Float[np.ndarray, "stages stages"], slopes: Sequence[float] | None = None) -> float:
    """The sum over paths above, from ``norms[i, j]``, the norm of the product of stages i to j.

    ``slopes[i]`` belongs to the junction between stages i and i + 1; GELU's if not given.
    """
    num_stages = norms.shape[0]
    slopes = _slopes(slopes, num_stages)
    totals: list[float] = []
    for j in range(num_stages):
        total = 0.0
        for i in range(j + 1):
            before = (slopes[i - 1] - 0.5) * totals[i - 1] if i else 1.0
            total += 0.5 ** (j - i) * float(norms[i, j]) * before
        totals.append(total)
    return totals[-1]


def _slopes(slopes: Sequence[float] | None, num_stages: int) -> Sequence[float]:
    slopes = [GELU_SLOPE] * (num_stages - 1) if slopes is None else slopes
    if len(slopes) != num_stages - 1:
        raise ValueError(f"{num_stages} stages have {num_stages - 1} junctions, got {len(slopes)} slopes")
    return slopes


def segment_norms(stages: Sequence[np.ndarray], norm_fn=spectral_norm) -> Float[np.ndarray, "stages stages"]:
    """Norms of all products of consecutive stages, each ``(frequencies or 1, in, out)``; zero below the diagonal."""
    norms = np.zeros((len(stages), len(stages)))
    for i, product in enumerate(stages):
        norms[i, i] = norm_fn(product)
        for j in range(i + 1, len(stages)):
            product = product @ stages[j]
            # A product is never larger than its factors, whatever a cheap bound says of it.
            norms[i, j] = min(norm_fn(product), norms[i, j - 1] * norm_fn(stages[j]))
    return norms
