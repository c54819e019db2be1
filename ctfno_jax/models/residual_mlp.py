"""Residual networks for the branch and the trunk of DeepONets."""

from collections.abc import Callable

import jax
from flax import linen as nn
from jaxtyping import Array, Float

# One affine map: weights (inputs, outputs) and bias (outputs,).
Affine = tuple[Float[Array, "_ _"], Float[Array, " _"]]

_XAVIER = nn.initializers.xavier_uniform()
_ZEROS = nn.initializers.zeros_init()
# Blocks start near the identity: POD-DeepONets trained best with it, and DeepONets as well as with larger scales.
_SECOND = nn.initializers.variance_scaling(0.1, "fan_avg", "uniform")


class ResidualMLP(nn.Module):
    """Parameters of :func:`residual_mlp`.

    Attributes:
      width: features inside.
      depth: residual blocks of two maps each.
      outputs: features of a last affine map; None for no such map.
      output_scale: of the initial weights of that map.
    """

    width: int
    depth: int
    outputs: int | None = None
    output_scale: float = 1.0

    @nn.compact
    def __call__(self, inputs: int) -> tuple[Affine, list[tuple[Affine, Affine]], Affine | None]:
        first = self._affine("input", inputs, self.width)
        blocks = [
            (
                self._affine(f"block_{i}_first", self.width, self.width),
                self._affine(f"block_{i}_second", self.width, self.width, _SECOND),
            )
            for i in range(self.depth)
        ]
        init = nn.initializers.variance_scaling(self.output_scale**2, "fan_avg", "uniform")
        last = None if self.outputs is None else self._affine("output", self.width, self.outputs, init)
        return first, blocks, last

    def _affine(self, name: str, inputs: int, outputs: int, init: Callable = _XAVIER) -> Affine:
        weight = self.param(f"{name}_weight", init, (inputs, outputs))
        return weight, self.param(f"{name}_bias", _ZEROS, (outputs,))


def residual_mlp(
    weights: tuple[Affine, list[tuple[Affine, Affine]], Affine | None], v: Float[Array, "*points inputs"]
) -> Float[Array, "*points outputs"]:
    """An affine map, blocks ``v + W2 silu(W1 v)`` with biases, and an affine map if there is one."""
    first, blocks, last = weights
    v = _affine(first, v)
    for one, two in blocks:
        v = v + _affine(two, jax.nn.silu(_affine(one, v)))
    return v if last is None else _affine(last, v)


def _affine(weights: Affine, v: Array) -> Array:
    return v @ weights[0] + weights[1]
