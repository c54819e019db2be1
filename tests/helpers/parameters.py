"""Parameters without any special value."""

import jax
import jax.numpy as jnp
import numpy as np


def random_parameters(model, u0, *further, scale: float, seed: int = 0):
    """Drawn on the host from one normal distribution: no bias is zero, no scale is one."""
    shapes = jax.eval_shape(lambda key: model.init(key, u0, *further), jax.random.key(0))
    leaves, tree = jax.tree.flatten(shapes)
    rng = np.random.default_rng(seed)
    return tree.unflatten([jnp.asarray(scale * rng.standard_normal(leaf.shape), leaf.dtype) for leaf in leaves])
