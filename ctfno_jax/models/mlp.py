"""Plain fully connected networks: parameters as a list of affine maps, and the function of them."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

# One affine map: weights (inputs, outputs) and bias (outputs,).
Affine = tuple[Float[Array, "_ _"], Float[Array, " _"]]

_XAVIER = nn.initializers.xavier_uniform()
_ZEROS = nn.initializers.zeros_init()


class MLP(nn.Module):
    """Affine maps from ``sizes[0]`` features to ``sizes[-1]``.

    Attributes:
      sizes: features before, between and after the maps.
      last_scale: of the initial weights of the last map; small for a field that starts near zero.
    """

    sizes: tuple[int, ...]
    last_scale: float = 1.0

    @nn.compact
    def __call__(self) -> list[Affine]:
        pairs = list(zip(self.sizes[:-1], self.sizes[1:], strict=True))
        last = nn.initializers.variance_scaling(self.last_scale**2, "fan_avg", "uniform")
        return [
            (
                self.param(f"weight_{i}", last if i == len(pairs) - 1 else _XAVIER, pair),
                self.param(f"bias_{i}", _ZEROS, pair[1:]),
            )
            for i, pair in enumerate(pairs)
        ]


def mlp(
    maps: Sequence[Affine], v: Float[Array, "*points inputs"], activation: Callable[[Array], Array] = jnp.tanh
) -> Float[Array, "*points outputs"]:
    """The maps in turn, with the activation between them and none after the last."""
    *hidden, (last_weight, last_bias) = maps
    for weight, bias in hidden:
        v = activation(v @ weight + bias)
    return v @ last_weight + last_bias
