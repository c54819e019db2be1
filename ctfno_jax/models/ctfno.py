"""CTFNO: the solution at any set of query times, from an initial state, in one call."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models import layers
from ctfno_jax.models.inputs import check_inputs, check_modes, float_inputs, input_field
from ctfno_jax.models.time_chunks import automatic_chunk, over_chunks
from ctfno_jax.ops import gershgorin, low_pass, time_features
from ctfno_jax.ops import time_modulated_fourier as tmf
from ctfno_jax.types import Complex

# Up to this many input channels (with coordinates and the constant), folding the lifting into the first layer pays.
_FOLDED_CHANNELS = 6


class CTFNO(nn.Module):
    """Continuous-time Fourier neural operator.

    Attributes:
      out_channels: channels of the solution.
      width: channels inside the network, divisible by ``heads``.
      modes: retained frequencies, one number for each space axis; its length is the number of space axes.
      depth: number of time-modulated Fourier layers.
      heads: blocks of kernel rows that have their own time factor.
      time_width: width of the two time networks, divisible by ``heads``.
      time_features: number of sinusoids that the time networks read, even.
      time_scale: multiplies t before the sinusoids, whose fastest is sin(t).
      time_bias: True for a time-dependent shift in every layer, False for a constant bias.
      coordinates: append the grid coordinates in [0, 1) to the input. Off, and without padding, the network commutes
        with translations.
      padding: zeros appended to each axis, as a fraction of its points; one number or one for each axis.
      lifting: ``"linear"``, or ``"low_pass"`` for a linear map, GELU and one complex map of the retained modes.
      head: ``"linear"``, or ``"mlp"`` for two maps with GELU between.
      stability_bound: M, the bound on L1 norms of R(t, xi) and W(t); None for no bound.
      stability_rule: ``"rows"``, the paper's, or ``"rows_and_columns"``, which bounds 2-norms.
      fourier_method: ``"fft"``, ``"matmul"``, or ``"auto"`` to choose by shape and backend.
      kernel: ``"dense"``, or ``"block_diagonal"`` plus a channel map shared by all frequencies.
      num_blocks: blocks of a block-diagonal kernel.
      time_chunk: query times evaluated at once; None chooses by size so that memory stays bounded. Chunks are
        recomputed in the backward pass.
    """

    out_channels: int = 1
    width: int = 64
    modes: tuple[int, ...] = (64,)
    depth: int = 2
    heads: int = 4
    time_width: int = 512
    time_features: int = 128
    time_scale: float = 1.0
    time_bias: bool = True
    coordinates: bool = True
    padding: float | tuple[float, ...] = 0.0
    lifting: str = "linear"
    head: str = "linear"
    stability_bound: float | None = None
    stability_rule: str = "rows"
    fourier_method: str = "auto"
    kernel: str = "dense"
    num_blocks: int = 1
    time_chunk: int | None = None

    def setup(self) -> None:
        self.check_fields()
        self.lifting_weights = layers.Affine(self.width, name="lifting")
        if self.lifting == "low_pass":
            self.low_pass_weights = layers.ComplexAffine(self.width, name="low_pass")
        sizes = (self.time_features, self.time_width, self.time_width, self.time_width)
        self.kernel_time_network = layers.TimeNetwork(sizes, name="kernel_time_network")
        self.pointwise_time_network = layers.TimeNetwork(sizes, name="pointwise_time_network")
        self.layer_weights = [
            layers.FourierLayer(
                self.width, tuple(self.modes), self.heads, self.time_width, self.time_bias,
                self.kernel, self.num_blocks, name=f"layer_{i}",
            )
            for i in range(self.depth)
        ]  # fmt: skip
        if self.head == "mlp":
            self.hidden_projection = layers.Affine(2 * self.width, name="hidden_projection")
        self.projection = layers.Affine(self.out_channels, name="projection")

    @nn.nowrap
    def check_fields(self) -> None:
        """Raises ValueError for hyper-parameters that contradict each other or are out of range."""
        check_modes(self.modes)
        if not 1 <= len(self.modes) <= 3:
            raise ValueError(f"modes must name one to three space axes, got {tuple(self.modes)}")
        positive = ("out_channels", "width", "depth", "heads", "time_width", "num_blocks")
        for name in positive:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name, divisor in (("width", "heads"), ("time_width", "heads"), ("width", "num_blocks")):
            if getattr(self, name) % getattr(self, divisor):
                raise ValueError(
                    f"{name}={getattr(self, name)} must be divisible by {divisor}={getattr(self, divisor)}"
                )
        if self.num_blocks != 1 and self.kernel == "dense":
            raise ValueError(f"num_blocks={self.num_blocks} needs kernel='block_diagonal', got kernel='dense'")
        if self.time_features < 2 or self.time_features % 2:
            raise ValueError(f"time_features must be an even number of at least 2, got {self.time_features}")
        if not (self.time_scale > 0 and math.isfinite(self.time_scale)):
            raise ValueError(f"time_scale must be positive and finite, got {self.time_scale}")
        if self.stability_bound is not None and not (self.stability_bound > 0 and math.isfinite(self.stability_bound)):
            raise ValueError(f"stability_bound must be positive, or None for no bound, got {self.stability_bound}")
        if self.stability_bound is None and self.stability_rule == "rows_and_columns":
            raise ValueError("stability_rule='rows_and_columns' needs a stability_bound, got None")
        if self.time_chunk is not None and self.time_chunk < 1:
            raise ValueError(f"time_chunk must be at least 1, or None to choose by size, got {self.time_chunk}")
        fractions = self.padding if isinstance(self.padding, tuple | list) else (self.padding,)
        if len(fractions) not in (1, len(self.modes)) or not all(0 <= f <= 1 for f in fractions):
            raise ValueError(
                f"padding must be a fraction of each axis between 0 and 1, one number or one for each of the "
                f"{len(self.modes)} axes, got {self.padding}"
            )
        choices = {
            "lifting": ("linear", "low_pass"),
            "head": ("linear", "mlp"),
            "stability_rule": gershgorin.RULES,
            "fourier_method": ("auto", "fft", "matmul"),
            "kernel": ("dense", "block_diagonal"),
        }
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
        grid = u0.shape[1:-1]
        a = input_field(u0, coordinates=self.coordinates, padding=self.padding)
        self._check_channels(u0.shape[-1], a.shape[-1] - 1)
        lift = self._lifting_matrix(a.shape[-1])
        if self.lifting == "low_pass":
            first = jax.nn.gelu(a @ lift)
            first = low_pass.low_pass(
                first, *self.low_pass_weights(self.width), modes=tuple(self.modes), method=self.fourier_method
            )
            lift = None
        elif self._folds_lifting(a.shape[-1]):
            first = a
        else:
            first, lift = a @ lift, None
        # Parameters are read here, once: what runs inside a scan over chunks is a pure function of arrays.
        weights = [layer() for layer in self.layer_weights]
        networks = (self.kernel_time_network(), self.pointwise_time_network())
        head = self._head_weights()

        def at_times(some_times: Array) -> Array:
            factors = self._factors_at_times(some_times, weights, networks)
            v = first
            for i, (weight, factor) in enumerate(zip(weights, factors, strict=True)):
                v = jax.nn.gelu(self._layer(v, lift if i == 0 else None, weight.layer, factor))
            v = v[tuple(slice(n) for n in grid)]
            return self._project(v, head)

        chunk = self.time_chunk or automatic_chunk(
            u0.shape, times.shape[-1], self.width, self.padding, u0.dtype.itemsize
        )
        u = over_chunks(at_times, times, chunk, num_space)
        # (*space, time, batch, channels) -> (batch, time, *space, channels)
        return jnp.moveaxis(u, (num_space + 1, num_space), (0, 1))

    # --- the pieces, also used by the certificate ---------------------------------------------------------------

    def time_factors(self, times: Float[Array, " time"]) -> list[tuple[tmf.LayerWeights, tmf.TimeFactors]]:
        """Weights and, with a leading time axis, stabilised time factors of every layer."""
        weights = [layer() for layer in self.layer_weights]
        networks = (self.kernel_time_network(), self.pointwise_time_network())
        factors = jax.vmap(lambda t: self._factors_at(t, weights, networks))(times)
        return [(w.layer, f) for w, f in zip(weights, factors, strict=True)]

    def _factors_at(self, t: Float[Array, ""], weights: list[Any], networks: tuple[Any, Any]) -> list[tmf.TimeFactors]:
        """Time factors of all layers at one time."""
        features = time_features.sinusoidal_features(t, self.time_features, self.time_scale)
        kernel_features, pointwise_features = (time_features.time_network(net, features) for net in networks)
        result = []
        for weight in weights:
            scale, shift = weight.scale_and_shift(pointwise_features)
            factors = tmf.TimeFactors(
                phi=tmf.head_factors(kernel_features, weight.modulation, self.width),
                kernel_columns=None, scale=scale, pointwise_rows=None, shift=shift,
            )  # fmt: skip
            if self.stability_bound is not None:
                factors = tmf.stabilize(weight.layer, factors, self.stability_bound, self.stability_rule)
            result.append(factors)
        return result

    def _factors_at_times(self, times: Array, weights: list[Any], networks: tuple[Any, Any]) -> list[tmf.TimeFactors]:
        """Time factors with lead axes ``(time, 1)`` for shared times and ``(time, batch)`` for one grid per sample."""
        at_one = lambda t: self._factors_at(t, weights, networks)  # noqa: E731
        num_space = len(self.modes)
        # The time axis goes behind the modes, where it stays in one piece with batch and channels.
        after_modes = tmf.TimeFactors(Complex(num_space, num_space), num_space, 0, 0, 0)  # type: ignore[arg-type]
        if self.stability_bound is None or self.stability_rule == "rows":
            after_modes = after_modes._replace(kernel_columns=None)
        if self.stability_bound is None:
            after_modes = after_modes._replace(pointwise_rows=None)
        axes = [after_modes] * self.depth
        if times.ndim == 2:
            return jax.vmap(jax.vmap(at_one, out_axes=axes), in_axes=1, out_axes=axes)(times)
        factors = jax.vmap(at_one, out_axes=axes)(times)
        return jax.tree.map(lambda x: jnp.expand_dims(x, -2), factors)

    def _check_channels(self, channels: int, lifted: int) -> None:
        if self.is_initializing():
            return
        expected = self.lifting_weights.variables["params"]["weight"].shape[0]
        if lifted != expected:
            raise ValueError(
                f"u0 has {channels} channels, but the parameters are for {channels + expected - lifted}; "
                "initialise the model with the channels that it will be given"
            )

    def _lifting_matrix(self, in_channels: int) -> Array:
        weight, bias = self.lifting_weights(in_channels - 1)
        return jnp.concatenate([weight, bias[None]])

    def _folds_lifting(self, in_channels: int) -> bool:
        columns = self.stability_bound is not None and self.stability_rule == "rows_and_columns"
        return in_channels <= _FOLDED_CHANNELS and not columns

    def _layer(self, v: Array, lift: Array | None, weights: tmf.LayerWeights, factors: tmf.TimeFactors) -> Array:
        modes, method = tuple(self.modes), self.fourier_method
        if lift is not None:
            # Without padding, the constant that carries the lifting's bias is one everywhere.
            return tmf.lifted_time_modulated_fourier(
                v, lift, weights, factors, modes=modes, method=method, constant_last=not np.any(self.padding)
            )
        return tmf.time_modulated_fourier(v, weights, factors, modes=modes, method=method)

    def _head_weights(self) -> tuple[Any, Any]:
        if self.head == "linear":
            return None, self.projection(self.width)
        return self.hidden_projection(self.width), self.projection(2 * self.width)

    def _project(self, v: Array, head: tuple[Any, Any]) -> Array:
        hidden, (weight, bias) = head
        if hidden is not None:
            v = jax.nn.gelu(v @ hidden[0] + hidden[1])
        return v @ weight + bias


def num_parameters(params: Any) -> int:
    """Number of real parameters; a complex weight counts as two."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
