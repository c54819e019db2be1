"""A proven bound on how fast the logits of a Fourier classifier change with the image.

The rules are those of :mod:`ctfno_jax.certify`: exact norms of linear stages that are block-diagonal in frequency, and
a sum over paths through the activations.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ctfno_jax.models import classifiers
from ctfno_jax.ops import lipschitz, spectral
from ctfno_jax.types import Complex, Params


def classifier_lipschitz(
    model: classifiers.FNOClassifier, params: Params, image_shape: tuple[int, int, int], *, exact: bool = True
) -> Float[np.ndarray, "classes classes"]:
    """For each pair of classes, a proven bound on the L2 Lipschitz constant of the difference of their logits.

    The average over an image with n pixels has norm ``1 / sqrt(n)``, so the bounds depend on the resolution.

    Args:
      model: a Fourier classifier.
      params: its variables.
      image_shape: height, width and channels.
      exact: as for :func:`certify`.
    """
    norm_fn = lipschitz.spectral_norm if exact else lipschitz.cheap_norm
    height, width, channels = image_shape
    found: Any = jax.jit(model.apply, static_argnames=("method", "channels"))(
        params, channels=channels, method="weights"
    )
    weights = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), found)
    to_complex = lambda pair: (pair.re + 1j * pair.im).reshape(-1, model.width, model.width)  # noqa: E731
    dropped = np.zeros((1, model.width, model.width))
    kept = np.broadcast_to(
        to_complex(weights.low_pass), (math.prod(spectral.modes_shape(tuple(model.modes))), *dropped.shape[1:])
    )
    stages = [
        weights.lifting[None, :channels], np.concatenate([kept, dropped]),
        *(_blocks(layer.weight, to_complex(layer.kernel)) for layer in weights.layers),
    ]  # fmt: skip
    slopes = [lipschitz.GELU_SLOPE, lipschitz.REAL_PART_SLOPE, *[lipschitz.GELU_SLOPE] * model.depth]
    head = weights.head[0] / math.sqrt(height * width)
    bounds = np.zeros((model.num_classes, model.num_classes))
    for i in range(model.num_classes):
        for j in range(i):
            last = (head[:, i] - head[:, j])[None, :, None]
            bounds[i, j] = bounds[j, i] = lipschitz.path_bound(
                lipschitz.segment_norms([*stages, last], norm_fn), slopes
            )
    return bounds


def estimated_classifier_lipschitz(
    model: classifiers.FNOClassifier, params: Params, image_shape: tuple[int, int, int], *, num_iterations: int = 6
) -> Float[Array, "classes classes"]:
    """A differentiable estimate of :func:`classifier_lipschitz`, for training: no proof.

    Norms are those that a few steps of power iteration find, from below; their product is that of the single stages.
    """
    height, width, channels = image_shape
    weights: Any = model.apply(params, channels, method="weights")
    matrices = [
        Complex(weights.lifting[None, :channels], jnp.zeros_like(weights.lifting[None, :channels])),
        Complex(*(part[None] for part in weights.low_pass)),
    ]
    for layer in weights.layers:
        kernel = Complex(*(part.reshape(-1, model.width, model.width) for part in layer.kernel))
        summed = jnp.concatenate([kernel.re + layer.weight, layer.weight[None]])
        matrices.append(Complex(summed, jnp.concatenate([kernel.im, jnp.zeros_like(layer.weight)[None]])))
    product = jnp.prod(jnp.stack([_estimated_norm(matrix, num_iterations) for matrix in matrices]))
    head = weights.head[0]
    squared = jnp.sum(jnp.square(head[:, :, None] - head[:, None, :]), axis=0)
    # The root of zero on the diagonal has no derivative.
    apart = jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1.0)), 0.0)
    return lipschitz.GELU_SLOPE ** (model.depth + 1) * product * apart / math.sqrt(height * width)


def _estimated_norm(matrices: Complex, num_iterations: int) -> Float[Array, ""]:
    """Largest 2-norm among complex matrices ``(count, in, out)``, from below, by power iteration."""
    count, _, size = matrices.re.shape
    # As real matrices of twice the size, which have the same norm.
    real = jnp.concatenate(
        [
            jnp.concatenate([matrices.re, matrices.im], axis=-1),
            jnp.concatenate([-matrices.im, matrices.re], axis=-1),
        ],
        axis=-2,
    )
    fixed = jax.lax.stop_gradient(real)
    direction = jax.random.normal(jax.random.key(0), (count, 2 * size), real.dtype)
    for _ in range(num_iterations):
        direction = jnp.einsum("kio,ki->ko", fixed, jnp.einsum("kio,ko->ki", fixed, direction))
        direction = direction / jnp.maximum(jnp.linalg.norm(direction, axis=-1, keepdims=True), 1e-30)
    return jnp.max(jnp.linalg.norm(jnp.einsum("kio,ko->ki", real, direction), axis=-1))


def _blocks(weight: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Matrices of a layer at the retained frequencies, and the pointwise map alone, which acts on all others."""
    return np.concatenate([weight + kernel, weight[None].astype(kernel.dtype)])
