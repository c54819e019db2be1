"""Features of one query time, and the small network that reads them.

Everything here is written for a single time ``t`` and vmapped by the caller.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# One affine map: weights (inputs, outputs) and bias (outputs,), of sizes that differ from map to map.
Affine = tuple[Float[Array, "_ _"], Float[Array, " _"]]


def angular_frequencies(num_features: int) -> np.ndarray:
    """Geometric from 1 down to 1e-4, both included, one for each sine-cosine pair."""
    half = num_features // 2
    return 10.0 ** (-4.0 * np.arange(half) / max(1, half - 1))


def sinusoidal_features(t: Float[Array, ""], num_features: int, scale: float = 1.0) -> Float[Array, " features"]:
    """``sin(w_i s t)`` for all i, then ``cos(w_i s t)``.

    ``scale`` multiplies ``t`` first: with ``w_i <= 1`` and t of order one, all features would be nearly linear.
    """
    dtype = jnp.promote_types(t.dtype, jnp.float32)
    angle = t * scale * jnp.asarray(angular_frequencies(num_features), dtype)
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)])


def time_network(layers: Sequence[Affine], features: Float[Array, " features"]) -> Float[Array, " time_width"]:
    """Affine maps with SiLU between them and none after the last."""
    *hidden, (last_weight, last_bias) = layers
    for weight, bias in hidden:
        features = jax.nn.silu(features @ weight + bias)
    return features @ last_weight + last_bias
