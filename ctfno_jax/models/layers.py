"""Holders of parameters: each module declares arrays and returns them; the mathematics is in ``ops``."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ctfno_jax.ops import spectral, time_features
from ctfno_jax.ops import time_modulated_fourier as tmf
from ctfno_jax.types import Complex

_XAVIER = nn.initializers.xavier_uniform()
_ZEROS = nn.initializers.zeros_init()


class Affine(nn.Module):
    """Weight ``(in, features)`` and bias of an affine map."""

    features: int

    @nn.compact
    def __call__(self, in_channels: int) -> tuple[Float[Array, "in out"], Float[Array, " out"]]:
        weight = self.param("weight", _XAVIER, (in_channels, self.features))
        return weight, self.param("bias", _ZEROS, (self.features,))


class ComplexAffine(nn.Module):
    """Weight and bias of a complex affine map, as pairs of real arrays."""

    features: int

    @nn.compact
    def __call__(self, in_channels: int) -> tuple[Complex, Complex]:
        shape = (in_channels, self.features)
        weight = Complex(self.param("weight_re", _XAVIER, shape), self.param("weight_im", _XAVIER, shape))
        bias = Complex(*(self.param(name, _ZEROS, (self.features,)) for name in ("bias_re", "bias_im")))
        return weight, bias


class TimeNetwork(nn.Module):
    """Affine maps of a time network, from ``sizes[0]`` features to ``sizes[-1]``."""

    sizes: tuple[int, ...]

    @nn.compact
    def __call__(self) -> list[time_features.Affine]:
        pairs = zip(self.sizes[:-1], self.sizes[1:], strict=True)
        return [
            (self.param(f"weight_{i}", _XAVIER, (a, b)), self.param(f"bias_{i}", _ZEROS, (b,)))
            for i, (a, b) in enumerate(pairs)
        ]


class TimeModulatedWeights(NamedTuple):
    """All parameters of one time-modulated Fourier layer.

    Attributes:
      layer: R and W.
      modulation: A, ``(heads, *modes, time_width / heads)``.
      time_map: from time features to scales, or to scales and shifts, ``(time_width, blocks * width)``.
      time_map_bias: its bias, or None.
      bias: constant bias of W, or None if the shift depends on time.
    """

    layer: tmf.LayerWeights
    modulation: Complex
    time_map: Float[Array, "time_width blocks_width"]
    time_map_bias: Float[Array, " blocks_width"] | None
    bias: Float[Array, " width"] | None

    def scale_and_shift(self, features: Float[Array, " time_width"]) -> tuple[Array, Array]:
        """psi(t) and the shift at one time."""
        mapped = features @ self.time_map
        if self.time_map_bias is None:
            assert self.bias is not None
            return mapped, self.bias
        scale, shift = jnp.split(mapped + self.time_map_bias, 2)
        return scale, shift


class FourierLayer(nn.Module):
    """Parameters of one time-modulated Fourier layer; see :class:`ctfno_jax.models.ctfno.CTFNO` for the fields."""

    width: int
    modes: tuple[int, ...]
    heads: int
    time_width: int
    time_bias: bool
    kernel: str
    num_blocks: int

    @nn.compact
    def __call__(self) -> TimeModulatedWeights:
        modulation_shape = (self.heads, *spectral.modes_shape(self.modes), self.time_width // self.heads)
        modulation = self._complex("modulation", nn.initializers.normal(self.heads / self.time_width), modulation_shape)
        pointwise = self.param("pointwise", _XAVIER, (self.width, self.width))
        blocks = 2 if self.time_bias else 1
        time_map = self.param("time_map", _XAVIER, (self.time_width, blocks * self.width))
        time_map_bias = self.param("time_map_bias", _ones_then_zeros, (2 * self.width,)) if self.time_bias else None
        bias = None if self.time_bias else self.param("bias", _ZEROS, (self.width,))
        layer = tmf.LayerWeights(self._kernel(), pointwise)
        return TimeModulatedWeights(layer, modulation, time_map, time_map_bias, bias)

    def _kernel(self) -> Complex:
        modes = spectral.modes_shape(self.modes)
        init = nn.initializers.normal(1.0 / self.width)
        if self.kernel == "dense":
            return self._complex("kernel", init, (*modes, self.width, self.width))
        block = self.width // self.num_blocks
        blocks = self._complex("kernel", init, (*modes, self.num_blocks, block, block))
        channel_map = self._complex("channel_map", init, (self.width, self.width))
        return tmf.block_diagonal_kernel(blocks, channel_map)

    def _complex(self, name: str, init: jax.nn.initializers.Initializer, shape: tuple[int, ...]) -> Complex:
        return Complex(self.param(f"{name}_re", init, shape), self.param(f"{name}_im", init, shape))


def _ones_then_zeros(key: Array, shape: tuple[int, ...], dtype: DTypeLike = float) -> Array:
    """Scales start at one and shifts at zero, so that the layer starts as an ordinary Fourier layer."""
    del key
    half = shape[0] // 2
    return jnp.concatenate([jnp.ones(half, dtype), jnp.zeros(shape[0] - half, dtype)])
