"""Ablations of the time modulation: ordinary Fourier layers with time as input channels.

Three places: the scalar t next to the initial state, an affine map of the sinusoids of t next to the lifted field, or
such a map next to the input of every layer. Compared with CTFNO, nothing multiplies the weights.

A channel that is constant in space has one Fourier coefficient, at frequency zero. What a layer makes of it is thus a
shift, ``tau(t) (W + Re R(0))``, and joining channels is computed as adding shifts: the first layer then does its work
on the field once for all times. Weights of R for those channels at other frequencies would never be used and are not
parameters.
"""

import math
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models import layers
from ctfno_jax.models.fno import FourierParameters, FourierWeights, check_channels, fold_lifting
from ctfno_jax.models.inputs import check_inputs, check_modes, float_inputs, input_field
from ctfno_jax.models.time_chunks import automatic_chunk, over_chunks
from ctfno_jax.ops import time_features
from ctfno_jax.ops.fourier_layer import affine, fourier_layer

_XAVIER = nn.initializers.xavier_uniform()

INJECTIONS = ("input", "lifted", "features")


class TimeChannels(nn.Module):
    """Shift of a layer by time channels: an affine map of the features of t, then its joined rows of W and R(0)."""

    time_channels: int
    width: int

    @nn.compact
    def __call__(self, num_features: int) -> tuple[Array, Array]:
        """Matrix ``(features, width)`` and bias ``(width,)`` from time features to the shift."""
        weight, bias = layers.Affine(self.time_channels, name="time_map")(num_features)
        shape = (self.time_channels, self.width)
        # Xavier by the shape of the joined matrix would depend on the field's channels; this differs by a factor.
        pointwise = self.param("pointwise", _XAVIER, shape)
        kernel = self.param("kernel_re", nn.initializers.normal(1.0 / self.width), shape)
        return weight @ (pointwise + kernel), bias @ (pointwise + kernel)


class TimeInjectedFNO(nn.Module):
    """Fourier neural operator with the query time as a channel: the common part of the three ablations.

    Attributes:
      injection: where time enters, fixed by each subclass: ``"input"``, ``"lifted"`` or ``"features"``.
      out_channels: channels of the solution.
      width: channels inside the network.
      modes: retained frequencies, one number for each space axis; its length is the number of space axes.
      depth: number of Fourier layers, each followed by GELU.
      time_features: number of sinusoids, even; ``"input"`` has none and takes no other value.
      time_channels: channels that an affine map of the sinusoids appends; ``"input"`` has none likewise.
      time_scale: multiplies t: before the sinusoids, whose fastest is sin(t), or for ``"input"`` as the channel itself.
      coordinates: append the grid coordinates in [0, 1) to the input. Off, the network commutes with translations.
      head: ``"linear"``, or ``"mlp"`` for two maps with GELU between.
      fourier_method: ``"fft"``, ``"matmul"``, or ``"auto"`` to choose by shape and backend.
      time_chunk: query times evaluated at once; None chooses by size so that memory stays bounded. Chunks are
        recomputed in the backward pass.
    """

    injection: ClassVar[str]

    out_channels: int = 1
    width: int = 64
    modes: tuple[int, ...] = (64,)
    depth: int = 2
    time_features: int = 128
    time_channels: int = 64
    time_scale: float = 1.0
    coordinates: bool = True
    head: str = "linear"
    fourier_method: str = "auto"
    time_chunk: int | None = None

    def setup(self) -> None:
        self.check_fields()
        self.lifting_weights = layers.Affine(self.width, name="lifting")
        modes = tuple(self.modes)
        self.layer_weights = [FourierParameters(self.width, modes, name=f"layer_{i}") for i in range(self.depth)]
        num_joined = {"input": 0, "lifted": 1, "features": self.depth}[self.injection]
        self.joined = [TimeChannels(self.time_channels, self.width, name=f"time_{i}") for i in range(num_joined)]
        if self.head == "mlp":
            self.hidden_projection = layers.Affine(2 * self.width, name="hidden_projection")
        self.projection = layers.Affine(self.out_channels, name="projection")

    def check_fields(self) -> None:
        """Raises ValueError for hyper-parameters that are out of range."""
        check_modes(self.modes)
        if not 1 <= len(self.modes) <= 3 or min(self.modes) < 1:
            raise ValueError(f"modes must be positive and name one to three space axes, got {tuple(self.modes)}")
        for name in ("out_channels", "width", "depth", "time_channels"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.time_features < 2 or self.time_features % 2:
            raise ValueError(f"time_features must be an even number of at least 2, got {self.time_features}")
        if not (self.time_scale > 0 and math.isfinite(self.time_scale)):
            raise ValueError(f"time_scale must be positive and finite, got {self.time_scale}")
        if self.time_chunk is not None and self.time_chunk < 1:
            raise ValueError(f"time_chunk must be at least 1, or None to choose by size, got {self.time_chunk}")
        if self.injection == "input" and (self.time_features, self.time_channels) != (128, 64):
            raise ValueError("time as an input channel has no time_features and no time_channels: leave them out")
        choices = {"head": ("linear", "mlp"), "fourier_method": ("auto", "fft", "matmul")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")

    def __call__(
        self,
        u0: Float[Array, "batch *space channels"],
        times: Float[Array, " time"] | Float[Array, "batch time"],
    ) -> Float[Array, "batch time *space out_channels"]:
        """The solution at ``times``, shared by all samples or one grid of times per sample, in any order."""
        check_inputs(u0, times, len(self.modes))
        # Accelerators would round float32 products to TF32 or bfloat16 unless told not to.
        with jax.default_matmul_precision("highest"):
            return self._solve(*float_inputs(u0, times))

    def _solve(self, u0: Array, times: Array) -> Array:
        num_space = len(self.modes)
        a = input_field(u0, coordinates=self.coordinates)
        # Parameters are read here, once: what runs inside a map over chunks is a pure function of arrays.
        first, *rest = [layer() for layer in self.layer_weights]
        lifted, time_row = self._lift(a.shape[-1] - 1, first)
        shifts = self._shift_fns(time_row, first)
        hidden, projection = self._head_weights()
        start = self._layer(a, lifted)

        def at_times(some_times: Array) -> Array:
            # (time, batch) or, for shared times, (time, 1), to broadcast against the lead axes of the field.
            t = some_times.T if some_times.ndim == 2 else some_times[:, None]
            v = jax.nn.gelu(start + shifts[0](t))
            for layer, shift in zip(rest, shifts[1:], strict=True):
                v = jax.nn.gelu(self._layer(v, layer) + shift(t))
            if hidden is not None:
                v = jax.nn.gelu(affine(v, *hidden))
            return affine(v, *projection)

        chunk = self.time_chunk or automatic_chunk(u0.shape, times.shape[-1], self.width, 0.0, u0.dtype.itemsize)
        u = over_chunks(at_times, times, chunk, num_space)
        # (*space, time, batch, channels) -> (batch, time, *space, channels)
        return jnp.moveaxis(u, (num_space + 1, num_space), (0, 1))

    def _lift(self, num_fields: int, first: FourierWeights) -> tuple[FourierWeights, Array | None]:
        """First layer with the lifting of the fields folded in, and the lifting's row for t if t is an input."""
        num_inputs = num_fields + (self.injection == "input")
        if not self.is_initializing():
            check_channels(num_inputs, self.lifting_weights)
        weight, bias = self.lifting_weights(num_inputs)
        time_row = weight[num_fields:] if self.injection == "input" else None
        return fold_lifting((weight[:num_fields], bias), first), time_row

    def _shift_fns(self, time_row: Array | None, first: FourierWeights) -> list[Callable[[Array], Array | float]]:
        """For every layer, what the time channels at its input add to its output, as a function of t."""
        if time_row is not None:
            at_zero = first.kernel.re[(0,) * len(self.modes)]
            row = time_row[0] @ (first.weight + at_zero)
            fns = [lambda t: (t * self.time_scale)[..., None] * row]
        else:
            fns = [self._joined_shift(*joined(self.time_features)) for joined in self.joined]
        return [*fns, *[lambda t: 0.0] * (self.depth - len(fns))]

    def _joined_shift(self, matrix: Array, bias: Array) -> Callable[[Array], Array]:
        def features(t: Array) -> Array:
            return time_features.sinusoidal_features(t, self.time_features, self.time_scale)

        return lambda t: jax.vmap(jax.vmap(features))(t) @ matrix + bias

    def _layer(self, v: Array, weights: FourierWeights) -> Array:
        return fourier_layer(v, *weights, modes=tuple(self.modes), method=self.fourier_method)

    def _head_weights(self) -> tuple[tuple[Array, Array] | None, tuple[Array, Array]]:
        if self.head == "linear":
            return None, self.projection(self.width)
        return self.hidden_projection(self.width), self.projection(2 * self.width)


class AblationInput(TimeInjectedFNO):
    """Time as a channel of the input: ``t * time_scale`` beside the initial state. Fields as in the common part."""

    injection = "input"


class AblationLifted(TimeInjectedFNO):
    """Time beside the lifted field: an affine map of its sinusoids. Fields as in the common part."""

    injection = "lifted"


class AblationFeatures(TimeInjectedFNO):
    """Time beside the input of every layer, one affine map of its sinusoids each. Fields as in the common part."""

    injection = "features"
