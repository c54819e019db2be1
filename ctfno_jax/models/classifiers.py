"""Classifiers of images: ``(batch, height, width, channels)`` to ``(batch, num_classes)`` logits.

The Fourier classifier treats an image as a function on the unit square: one set of parameters reads images of any
resolution.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models import layers, neural_ode
from ctfno_jax.models.inputs import as_float, check_modes, check_positive, check_real, input_field
from ctfno_jax.ops import gershgorin, low_pass, spectral
from ctfno_jax.ops.fourier_layer import fourier_layer
from ctfno_jax.ops.time_modulated_fourier import block_diagonal_kernel
from ctfno_jax.types import Complex

_XAVIER = nn.initializers.xavier_uniform()
_ZEROS = nn.initializers.zeros_init()

Images = Float[Array, "batch height width channels"]
Logits = Float[Array, "batch classes"]


def check_images(images: Any) -> None:
    """Raises ValueError for what is no batch of images."""
    check_real("images", images)
    if images.ndim != 4:
        raise ValueError(f"images must have the axes (batch, height, width, channels), got shape {images.shape}")


class KernelWeights(NamedTuple):
    """Weights of one Fourier layer as they act: after stabilisation."""

    kernel: Complex
    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]


class ClassifierWeights(NamedTuple):
    """All weights of a Fourier classifier as they act.

    Attributes:
      lifting: matrix of the lifting, its bias as the last row.
      low_pass: complex map of the retained frequencies, ``(width, width)``.
      layers: Fourier layers.
      head: matrix and bias of the logits.
    """

    lifting: Float[Array, "in width"]
    low_pass: Complex
    layers: list[KernelWeights]
    head: tuple[Array, Array]


class FNOClassifier(nn.Module):
    """Fourier layers without time, an average over the image and a linear head.

    Attributes:
      num_classes: number of logits.
      width: channels inside the network, divisible by ``num_blocks``.
      modes: retained frequencies of the two axes.
      depth: number of Fourier layers.
      num_blocks: blocks of channels that a kernel mixes at each frequency; a map that all frequencies share mixes the
        blocks.
      coordinates: append the two coordinates in [0, 1) to the image.
      padding: zeros appended to each axis, as a fraction of its points.
      stability_bound: M, the bound on L1 norms of all kernels and pointwise maps; None for no bound.
      stability_rule: ``"rows"``, the paper's, or ``"rows_and_columns"``, which bounds 2-norms.
      fourier_method: ``"fft"``, ``"matmul"``, or ``"auto"`` to choose by shape and backend.
    """

    num_classes: int = 10
    width: int = 32
    modes: tuple[int, ...] = (6, 6)
    depth: int = 3
    num_blocks: int = 8
    coordinates: bool = True
    padding: float = 3 / 28
    stability_bound: float | None = None
    stability_rule: str = "rows"
    fourier_method: str = "auto"

    @nn.nowrap
    def check_fields(self) -> None:
        """Raises ValueError for hyper-parameters that contradict each other or are out of range."""
        check_modes(self.modes)
        if len(self.modes) != 2:
            raise ValueError(f"modes must name the two axes of an image, got {tuple(self.modes)}")
        check_positive(self, ("num_classes", "width", "depth", "num_blocks"))
        if self.width % self.num_blocks:
            raise ValueError(f"width={self.width} must be divisible by num_blocks={self.num_blocks}")
        if not 0 <= self.padding <= 1:
            raise ValueError(f"padding must be a fraction of each axis between 0 and 1, got {self.padding}")
        if self.stability_bound is not None and not (self.stability_bound > 0 and math.isfinite(self.stability_bound)):
            raise ValueError(f"stability_bound must be positive, or None for no bound, got {self.stability_bound}")
        choices = {"stability_rule": gershgorin.RULES, "fourier_method": ("auto", "fft", "matmul")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")

    def __call__(self, images: Images) -> Logits:
        """Logits of all classes."""
        check_images(images)
        images = as_float(images)
        with jax.default_matmul_precision("highest"):
            return self._logits(images, self.weights(images.shape[-1]))

    def _logits(self, images: Array, weights: ClassifierWeights) -> Array:
        modes, method = tuple(self.modes), self.fourier_method
        # (height, width, batch, channels): the time axis of an operator is not there.
        a = input_field(images, coordinates=self.coordinates, padding=self.padding)[:, :, 0]
        no_bias = Complex(*(jnp.zeros(self.width, a.dtype),) * 2)
        v = low_pass.low_pass(jax.nn.gelu(a @ weights.lifting), weights.low_pass, no_bias, modes=modes, method=method)
        for layer in weights.layers:
            v = jax.nn.gelu(fourier_layer(v, *layer, modes=modes, method=method))
        v = v[: images.shape[1], : images.shape[2]]
        weight, bias = weights.head
        return jnp.mean(v, axis=(0, 1)) @ weight + bias

    @nn.compact
    def weights(self, channels: int) -> ClassifierWeights:
        """All weights as they act on images with so many channels; also what the certificate reads."""
        self.check_fields()
        inputs = channels + (2 if self.coordinates else 0)
        lifting, lifting_bias = layers.Affine(self.width, name="lifting")(inputs)
        shape = (self.width, self.width)
        low = Complex(*(self.param(f"low_pass_{part}", _XAVIER, shape) for part in ("re", "im")))
        made = [self._layer(i) for i in range(self.depth)]
        head = layers.Affine(self.num_classes, name="head")(self.width)
        return ClassifierWeights(jnp.concatenate([lifting, lifting_bias[None]]), low, made, head)

    def _layer(self, index: int) -> KernelWeights:
        block = self.width // self.num_blocks
        modes = spectral.modes_shape(tuple(self.modes))
        init = nn.initializers.normal(1.0 / self.width)

        def pair(name: str, shape: tuple[int, ...]) -> Complex:
            return Complex(*(self.param(f"layer_{index}_{name}_{part}", init, shape) for part in ("re", "im")))

        kernel = block_diagonal_kernel(
            pair("kernel", (*modes, self.num_blocks, block, block)), pair("channel_map", (self.width, self.width))
        )
        weight = self.param(f"layer_{index}_pointwise", _XAVIER, (self.width, self.width))
        bias = self.param(f"layer_{index}_bias", _ZEROS, (self.width,))
        if self.stability_bound is not None:
            kernel = gershgorin.normalize(kernel, self.stability_bound, self.stability_rule)
            real = Complex(weight, jnp.zeros_like(weight))
            weight = gershgorin.normalize(real, self.stability_bound, self.stability_rule).re
        return KernelWeights(kernel, weight, bias)


class CNN(nn.Module):
    """Convolutions with GELU, an average over the image and a linear head.

    Attributes:
      num_classes: number of logits.
      width: channels of every convolution.
      kernels: side of the kernel of each convolution.
    """

    num_classes: int = 10
    width: int = 32
    kernels: tuple[int, ...] = (7, 7, 3, 3, 3)

    @nn.nowrap
    def check_fields(self) -> None:
        check_positive(self, ("num_classes", "width"))
        if not self.kernels or any(side < 1 for side in self.kernels):
            raise ValueError(f"kernels must name the positive side of each convolution, got {tuple(self.kernels)}")

    @nn.compact
    def __call__(self, images: Images) -> Logits:
        """Logits of all classes."""
        self.check_fields()
        check_images(images)
        v = as_float(images)
        for side in self.kernels:
            v = jax.nn.gelu(nn.Conv(self.width, (side, side))(v))
        return nn.Dense(self.num_classes)(jnp.mean(v, axis=(1, 2)))


class ImageANODE(nn.Module):
    """Images with additional channels that follow a convolutional vector field from time 0 to 1, and a linear head.

    Attributes:
      num_classes: number of logits.
      width: filters of the field.
      augmented: channels that are appended to an image and start at zero.
      solver: this and the following fields are those of :class:`ctfno_jax.models.neural_ode.Integration`.
    """

    num_classes: int = 10
    width: int = 64
    augmented: int = 5
    solver: str = "dopri5"
    stepping: str = "adaptive"
    step_size: float = 0.25
    rtol: float = 1e-3
    atol: float = 1e-4
    adjoint: str = "checkpoints"
    max_steps: int = 1000

    @nn.nowrap
    def check_fields(self) -> None:
        check_positive(self, ("num_classes", "width"))
        if self.augmented < 0:
            raise ValueError(f"augmented must not be negative, got {self.augmented}")
        neural_ode.integration_of(self).check()

    @nn.compact
    def __call__(self, images: Images) -> Logits:
        """Logits of all classes."""
        self.check_fields()
        check_images(images)
        images = as_float(images)
        batch, height, width, channels = images.shape
        states = channels + self.augmented
        sizes = ((1, states, self.width), (3, self.width, self.width), (1, self.width, states))
        maps = [
            (
                self.param(f"kernel_{i}", nn.initializers.lecun_normal(), (side, side, before + 1, after)),
                self.param(f"bias_{i}", _ZEROS, (after,)),
            )
            for i, (side, before, after) in enumerate(sizes)
        ]
        start = jnp.pad(images, ((0, 0), (0, 0), (0, 0), (0, self.augmented)))

        def field(t: Array, y: Array, args: Any) -> Array:
            v = y.reshape(-1, height, width, states)
            for i, (kernel, bias) in enumerate(args):
                clock = jnp.full((*v.shape[:-1], 1), t, v.dtype)
                v = jax.lax.conv_general_dilated(
                    jnp.concatenate([v, clock], axis=-1), kernel, (1, 1), "SAME",
                    dimension_numbers=("NHWC", "HWIO", "NHWC"),
                ) + bias  # fmt: skip
                v = jax.nn.relu(v) if i < len(args) - 1 else v
            return v.reshape(y.shape)

        # All images are one state of the solver: their steps are the same, as in the published model.
        ends = neural_ode.advance(field, maps, start.reshape(batch, -1), neural_ode.integration_of(self))
        return nn.Dense(self.num_classes)(ends)
