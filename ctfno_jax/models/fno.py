"""Fourier neural operators that know a fixed grid of times: one steps through it, one predicts it as a block.

Both are trained and evaluated on multiples of one time step; ``answerable`` says which times they can be asked for.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models import layers
from ctfno_jax.models.inputs import as_float, check_inputs, check_modes, float_inputs, padded_grid
from ctfno_jax.ops import spectral
from ctfno_jax.ops.fourier_layer import affine, fourier_layer
from ctfno_jax.types import Complex

_XAVIER = nn.initializers.xavier_uniform()
_ZEROS = nn.initializers.zeros_init()

# A time is on the grid if it misses it by no more than this part of a step: float32 cannot do much better.
_ON_GRID = 1e-3


class FourierWeights(NamedTuple):
    """All parameters of one Fourier layer: R, W and b."""

    kernel: Complex
    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]


class FourierParameters(nn.Module):
    """Holder of the parameters of one Fourier layer of constant width."""

    width: int
    modes: tuple[int, ...]

    @nn.compact
    def __call__(self) -> FourierWeights:
        shape = (*spectral.modes_shape(self.modes), self.width, self.width)
        init = nn.initializers.normal(1.0 / self.width)
        kernel = Complex(self.param("kernel_re", init, shape), self.param("kernel_im", init, shape))
        weight = self.param("pointwise", _XAVIER, (self.width, self.width))
        return FourierWeights(kernel, weight, self.param("bias", _ZEROS, (self.width,)))


def fold_lifting(lifting: tuple[Array, Array], first: FourierWeights) -> FourierWeights:
    """The first layer for inputs whose last channel is one: lifting and layer are linear, so one layer is both.

    This saves a transform at full width and a pointwise product, whose work it does with few channels.
    """
    matrix = jnp.concatenate([lifting[0], lifting[1][None]])
    kernel = Complex(*(jnp.einsum("ci,...io->...co", matrix, part) for part in first.kernel))
    return FourierWeights(kernel, matrix @ first.weight, first.bias)


class NetworkWeights(NamedTuple):
    """Parameters of a whole network, with the lifting folded into the first layer."""

    layers: list[FourierWeights]
    hidden: tuple[Array, Array]
    projection: tuple[Array, Array]


class FourierNetwork(nn.Module):
    """Holder of the parameters of lifting, Fourier layers and a head of two maps."""

    out_channels: int
    width: int
    modes: tuple[int, ...]
    depth: int
    head_width: int

    @nn.compact
    def __call__(self, in_channels: int) -> NetworkWeights:
        lifting_weights = layers.Affine(self.width, name="lifting")
        if not self.is_initializing():
            check_channels(in_channels, lifting_weights)
        lifting = lifting_weights(in_channels)
        first, *rest = [FourierParameters(self.width, self.modes, name=f"layer_{i}")() for i in range(self.depth)]
        hidden = layers.Affine(self.head_width, name="hidden_projection")(self.width)
        projection = layers.Affine(self.out_channels, name="projection")(self.head_width)
        return NetworkWeights([fold_lifting(lifting, first), *rest], hidden, projection)


def apply_layers(
    a: Array, weights: list[FourierWeights], modes: tuple[int, ...], method: str, activation_last: bool
) -> Array:
    """Fourier layers with GELU between them; ``a`` is ``(*space, *lead, in)`` and its last channel is one."""
    for i, layer in enumerate(weights):
        a = fourier_layer(a, layer.kernel, layer.weight, layer.bias, modes=modes, method=method)
        if activation_last or i < len(weights) - 1:
            a = jax.nn.gelu(a)
    return a


def apply_head(v: Array, weights: NetworkWeights) -> Array:
    """Two pointwise maps with GELU between."""
    return affine(jax.nn.gelu(affine(v, *weights.hidden)), *weights.projection)


class FNORNN(nn.Module):
    """Fourier neural operator for one time step, applied again and again: one space axis.

    Times are rounded to the nearest of the ``num_times + 1`` instants that a rollout visits, the first of which is the
    given state itself.

    Attributes:
      out_channels: channels of the solution, which is fed back, so the initial state begins with as many. Any further
        channels of it stay what they are.
      width: channels inside the network.
      modes: number of retained frequencies, as a tuple of one.
      depth: number of Fourier layers.
      head_width: hidden channels of the head.
      coordinates: append the grid coordinate in [0, 1) to the state. Off, and without padding, the network commutes
        with translations.
      padding: zeros appended to the space axis, as a fraction of its points, for fields that are not periodic.
      residual: the network predicts the change over a step instead of the next state.
      activation_last: GELU after the last Fourier layer too.
      time_step: time between two states.
      num_times: number of steps of a rollout.
      remat: recompute each step in the backward pass, so that memory does not hold all layers of all steps.
      fourier_method: ``"fft"``, ``"matmul"``, or ``"auto"`` to choose by shape and backend.
    """

    out_channels: int = 1
    width: int = 64
    modes: tuple[int, ...] = (64,)
    depth: int = 4
    head_width: int = 128
    coordinates: bool = True
    padding: float = 0.0
    residual: bool = False
    activation_last: bool = False
    time_step: float = 0.05
    num_times: int = 50
    remat: bool = False
    fourier_method: str = "auto"

    def setup(self) -> None:
        self.check_fields()
        self.network = FourierNetwork(self.out_channels, self.width, tuple(self.modes), self.depth, self.head_width)

    def check_fields(self) -> None:
        """Raises ValueError for hyper-parameters that are out of range."""
        _check_common(self, num_axes=1)
        if not (self.time_step > 0 and math.isfinite(self.time_step)):
            raise ValueError(f"time_step must be positive and finite, got {self.time_step}")

    def __call__(
        self, u0: Float[Array, "batch x channels"], times: Float[Array, " time"] | Float[Array, "batch time"]
    ) -> Float[Array, "batch time x out_channels"]:
        """The solution at ``times``, multiples of the time step in any order; others are rounded to the nearest."""
        check_inputs(u0, times, 1)
        u0, times = float_inputs(u0, times)
        later = self.rollout(u0, self.num_times)
        states = jnp.concatenate([u0[:, None, ..., : self.out_channels], later], axis=1)
        return take_times(states, jnp.round(times / self.time_step))

    def rollout(
        self, u0: Float[Array, "batch x channels"], num_steps: int
    ) -> Float[Array, "batch steps x out_channels"]:
        """The next ``num_steps`` states; a static number, so that training can unroll only as far as its data go."""
        if num_steps < 1:
            raise ValueError(f"num_steps must be at least 1, got {num_steps}")
        if u0.ndim != 3:
            raise ValueError(f"u0 must have the axes (batch, x, channels), got shape {u0.shape}")
        if u0.shape[-1] < self.out_channels:
            raise ValueError(
                f"u0 has {u0.shape[-1]} channels and out_channels is {self.out_channels}: a state that is fed back, or "
                "that a residual is added to, needs as many; set out_channels to the channels of u0 that change"
            )
        # Accelerators would round float32 products to TF32 or bfloat16 unless told not to.
        with jax.default_matmul_precision("highest"):
            return self._rollout(as_float(u0), num_steps)

    def _rollout(self, u0: Array, num_steps: int) -> Array:
        # Parameters are read here, once: what runs inside the scan is a pure function of arrays.
        weights = self.network(u0.shape[-1] + self.coordinates)
        u, others = jnp.split(jnp.moveaxis(u0, 0, 1), [self.out_channels], axis=-1)
        constant = [others, jnp.ones_like(u[..., :1])]
        if self.coordinates:
            x = jnp.arange(len(u), dtype=u.dtype) / len(u)
            constant.insert(1, jnp.broadcast_to(x[:, None, None], constant[-1].shape))

        pad = [(0, padded_grid((len(u),), self.padding)[0] - len(u)), (0, 0), (0, 0)]

        def step(u: Array, _: None) -> tuple[Array, Array]:
            a = jnp.pad(jnp.concatenate([u, *constant], axis=-1), pad)
            v = apply_layers(a, weights.layers, tuple(self.modes), self.fourier_method, self.activation_last)
            new = apply_head(v[: len(u)], weights)
            new = u + new if self.residual else new
            return new, new

        _, states = jax.lax.scan(jax.checkpoint(step) if self.remat else step, u, length=num_steps)
        # (step, x, batch, channels) -> (batch, step, x, channels)
        return jnp.moveaxis(states, 2, 0)

    def reaching(self, times: Float[np.ndarray, "..."]) -> "FNORNN":
        """The same network with as many steps as these concrete times need."""
        num_times = max(1, math.ceil(float(np.max(times)) / self.time_step - _ON_GRID))
        return self.clone(num_times=num_times, parent=None, name=None)

    def answerable(self, times: Float[np.ndarray, "..."]) -> str | None:
        """None if all times are multiples of the step within a rollout, else a sentence that says what is wrong."""
        return off_grid(times, self.time_step, 0, self.num_times, "fno_rnn")


class FNO2D(nn.Module):
    """Fourier neural operator in space and time: the whole solution as one field, one space axis.

    The input is the initial state, repeated over the ``num_times`` instants ``k final_time / num_times`` with k from 1.
    The output is the solution at these instants, from which the nearest to every query time is taken. Time zero is not
    among them: the state at time zero is what was given.

    Attributes:
      out_channels: channels of the solution.
      width: channels inside the network.
      modes: retained frequencies in x and in t.
      depth: number of Fourier layers.
      head_width: hidden channels of the head.
      coordinates: append the grid coordinate in [0, 1) to the input. Off, and without padding, the network commutes
        with translations in x. Time, in (0, 1], is appended always: the input has no other mark of it.
      padding: zeros appended to the space axis, as a fraction of its points, for fields that are not periodic.
      time_padding: zeros appended to the time axis, which is not periodic, as a fraction of its points.
      final_time: the last instant.
      num_times: number of instants.
      activation_last: GELU after the last Fourier layer too.
      fourier_method: ``"fft"``, ``"matmul"``, or ``"auto"`` to choose by shape and backend.
    """

    out_channels: int = 1
    width: int = 32
    modes: tuple[int, ...] = (64, 16)
    depth: int = 3
    head_width: int = 128
    coordinates: bool = True
    padding: float = 0.0
    time_padding: float = 0.0
    final_time: float = 2.5
    num_times: int = 50
    activation_last: bool = False
    fourier_method: str = "auto"

    def setup(self) -> None:
        self.check_fields()
        self.network = FourierNetwork(self.out_channels, self.width, tuple(self.modes), self.depth, self.head_width)

    def check_fields(self) -> None:
        """Raises ValueError for hyper-parameters that are out of range."""
        _check_common(self, num_axes=2)
        if not (self.final_time > 0 and math.isfinite(self.final_time)):
            raise ValueError(f"final_time must be positive and finite, got {self.final_time}")
        if not 0 <= self.time_padding <= 1:
            raise ValueError(f"time_padding must be a fraction between 0 and 1, got {self.time_padding}")
        largest = self._padded_times() // 2 + 1
        if self.modes[1] > largest:
            raise ValueError(
                f"modes {tuple(self.modes)} keep {self.modes[1]} frequencies in t, but {self._padded_times()} instants "
                f"carry at most {largest}; use fewer modes or more num_times"
            )

    def _padded_times(self) -> int:
        return self.num_times + round(self.time_padding * self.num_times)

    def __call__(
        self, u0: Float[Array, "batch x channels"], times: Float[Array, " time"] | Float[Array, "batch time"]
    ) -> Float[Array, "batch time x out_channels"]:
        """The solution at ``times``, instants of the block in any order; others are rounded to the nearest."""
        check_inputs(u0, times, 1)
        u0, times = float_inputs(u0, times)
        return take_times(self.block(u0), jnp.round(times * (self.num_times / self.final_time)) - 1)

    def resampled(self, num_times: int) -> "FNO2D":
        """The same network on another number of instants up to the same final time: parameters fit both."""
        return self.clone(num_times=num_times, parent=None, name=None)

    def block(self, u0: Float[Array, "batch x channels"]) -> Float[Array, "batch num_times x out_channels"]:
        """The solution at all instants."""
        # Accelerators would round float32 products to TF32 or bfloat16 unless told not to.
        with jax.default_matmul_precision("highest"):
            a = self._input_field(as_float(u0))
            weights = self.network(a.shape[-1] - 1)
            v = apply_layers(a, weights.layers, tuple(self.modes), self.fourier_method, self.activation_last)
            u = apply_head(v[: u0.shape[1], : self.num_times], weights)
        # (x, t, batch, channels) -> (batch, t, x, channels)
        return jnp.moveaxis(u, (2, 1), (0, 1))

    def _input_field(self, u0: Array) -> Array:
        """State, coordinates and a constant, zero-padded in space and time: ``(x, t, batch, in)``."""
        num_samples, num_points, _ = u0.shape
        grid = (num_points, self.num_times, num_samples)
        state = jnp.moveaxis(u0, 0, 1)[:, None]
        x = (jnp.arange(num_points, dtype=u0.dtype) / num_points)[:, None, None, None]
        t = (jnp.arange(1, self.num_times + 1, dtype=u0.dtype) / self.num_times)[:, None, None]
        # The constant carries the lifting's bias, which so vanishes in the padding with everything else.
        parts = [state, *([x] if self.coordinates else []), t, jnp.ones((1, 1, 1, 1), u0.dtype)]
        a = jnp.concatenate([jnp.broadcast_to(part, (*grid, part.shape[-1])) for part in parts], axis=-1)
        space = padded_grid((num_points,), self.padding)[0] - num_points
        return jnp.pad(a, [(0, space), (0, self._padded_times() - self.num_times), (0, 0), (0, 0)])

    def answerable(self, times: Float[np.ndarray, "..."]) -> str | None:
        """None if all times are instants of the block, else a sentence that says what is wrong."""
        return off_grid(times, self.final_time / self.num_times, 1, self.num_times, "fno_2d")


# --- shared -----------------------------------------------------------------------------------------------------


def take_times(u: Float[Array, "batch instant x channels"], index: Array) -> Float[Array, "batch time x channels"]:
    """The instants of these numbers, ``(time,)`` for all samples or ``(batch, time)``, clipped to those there are."""
    index = jnp.clip(index, 0, u.shape[1] - 1).astype(jnp.int32)
    if index.ndim == 1:
        return u[:, index]
    return u[jnp.arange(len(u))[:, None], index]


def off_grid(times: Float[np.ndarray, "..."], step: float, first: int, last: int, name: str) -> str | None:
    """None if every time is one of ``first * step, ..., last * step``, else a sentence with the first that is not."""
    times = np.asarray(times, np.float64)
    number = np.clip(np.round(times / step), first, last)
    wrong = ~(np.abs(times - number * step) <= _ON_GRID * step)
    if not np.any(wrong):
        return None
    beginning = "" if first == 0 else f"from {first * step:g} "
    return (
        f"{name} answers only at multiples of {step:g} {beginning}up to {last * step:g}, got "
        f"{times[wrong].flat[0]:g}; train ctfno for other times"
    )


def _check_common(model: FNORNN | FNO2D, num_axes: int) -> None:
    check_modes(model.modes)
    if not 0 <= model.padding <= 1:
        raise ValueError(f"padding must be a fraction of the space axis between 0 and 1, got {model.padding}")
    if len(model.modes) != num_axes:
        axes = "x" if num_axes == 1 else "x and t"
        raise ValueError(f"modes must be {num_axes} long, for {axes}, got {tuple(model.modes)}")
    for name in ("out_channels", "width", "depth", "head_width", "num_times"):
        if getattr(model, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(model, name)}")
    if min(model.modes) < 1:
        raise ValueError(f"modes must be at least 1, got {tuple(model.modes)}")
    methods = ("auto", "fft", "matmul")
    if model.fourier_method not in methods:
        raise ValueError(f"fourier_method must be one of {', '.join(methods)}, got {model.fourier_method!r}")


def check_channels(in_channels: int, lifting: nn.Module) -> None:
    """Raises ValueError if a lifting was initialised for another number of channels."""
    expected = lifting.variables["params"]["weight"].shape[0]
    if in_channels != expected:
        raise ValueError(
            f"u0 and the coordinates have {in_channels} channels, but the parameters are for {expected}; "
            "initialise the model with the channels that it will be given"
        )
