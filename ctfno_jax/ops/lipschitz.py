"""Lipschitz constants of the pieces of a network, and their composition.

A network is a chain ``S_m act S_{m-1} act .. act S_0`` of linear stages and pointwise activations. Every stage here is
block-diagonal in frequency: the pointwise maps are the same matrix at all frequencies, a Fourier kernel adds its own
matrix at the retained ones. The Fourier transform is unitary, so the exact 2-norm of a stage, and of any product of
consecutive stages, is the largest 2-norm among the blocks.

Composition uses more than the product of norms. GELU is ``x / 2`` plus a remainder of Lipschitz constant
``rho = 0.629``; expanding every activation this way writes the network as a sum over paths in which consecutive
stages meet without an activation between them, and the norm of *their product* can be far below the product of their
norms. With ``N(i, j)`` the norm of ``S_j .. S_i``, the triangle inequality gives

    L = T(m),   T(j) = sum_{i <= j} 2^(i - j) N(i, j) (rho T(i - 1) if i > 0 else 1),

which never exceeds ``(1/2 + rho)^m prod_j N(j, j)``, the plain product.

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
GELU_REMAINDER = GELU_SLOPE - 0.5

# Covers the rounding of singular values in float64 and of the float32 forward pass.
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


def product_bound(norms: Sequence[float]) -> float:
    """Lipschitz constant of stages with these norms and an activation between any two."""
    return GELU_SLOPE ** (len(norms) - 1) * float(np.prod(norms))


def path_bound(norms: Float[np.ndarray, "stages stages"]) -> float:
    """The sum over paths above, from ``norms[i, j]``, the norm of the product of stages i to j."""
    num_stages = norms.shape[0]
    totals: list[float] = []
    for j in range(num_stages):
        total = 0.0
        for i in range(j + 1):
            before = GELU_REMAINDER * totals[i - 1] if i else 1.0
            total += 0.5 ** (j - i) * float(norms[i, j]) * before
        totals.append(total)
    return totals[-1]


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
