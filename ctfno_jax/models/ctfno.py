"""CTFNO: initial state and query times in, the solution at all of those times out, in one call."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models import layers, marching
from ctfno_jax.models.inputs import as_float, check_inputs, input_field
from ctfno_jax.models.time_chunks import automatic_chunk, over_chunks
from ctfno_jax.ops import gershgorin, low_pass, sound, time_features
from ctfno_jax.ops import time_modulated_fourier as tmf
from ctfno_jax.types import Complex

# Up to this many input channels (with coordinates and the constant), folding the lifting into the first layer pays.
_FOLDED_CHANNELS = 6
# Steps of a horizon at most, unless said otherwise.
_MAX_STEPS = 16
STARTS = ("free", "state", "sound")


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
      pointwise_dtype: input type of the pointwise products, ``"float32"`` or ``"bfloat16"``; sums are float32. A first
        layer that is folded with the lifting has no such product.
      start: ``"free"``, the network gives the solution; ``"state"``, it gives what is added to the first channels of
        u0, which the solution then is at time zero; ``"sound"``, likewise, but the last two channels of the solution
        are pressure and velocity, and what is added to is how they would go on as weak sound
        (:mod:`ctfno_jax.ops.sound`, whose units times are in); the last channel of u0 is its viscosity.
      rise_time: with a start, what is added is multiplied by ``t / (t + rise_time)``.
      viscosity_unit: with the start as sound, the viscosity where the last channel of u0 is one.
      keeps_range: for equations with a maximum principle: every channel of an answer stays between the least and the
        largest value that it has in u0. With a horizon this holds for each step, so that no state can make the answer
        grow without end. Steps in training (:meth:`rollout`) are free.
      horizon: later times are reached by composing the operator with itself, in steps of this length; None answers all
        times at once. Further channels of u0 than the solution has do not change. Training makes single steps, see
        :meth:`rollout`.
      max_steps: with a horizon, steps at most: a later time is reached by a last step that is longer than the horizon.
        All of them are computed whatever is asked; :meth:`reaching` has as many as some times need.
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
    pointwise_dtype: str = "float32"
    start: str = "free"
    rise_time: float | None = None
    viscosity_unit: float | None = None
    keeps_range: bool = False
    horizon: float | None = None
    max_steps: int = _MAX_STEPS

    def setup(self) -> None:
        check_fields(self)
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

    def __call__(
        self,
        u0: Float[Array, "batch *space channels"],
        times: Float[Array, " time"] | Float[Array, "batch time"],
    ) -> Float[Array, "batch time *space out_channels"]:
        """The solution at ``times``, shared by all samples or one grid of times per sample, in any order."""
        check_inputs(u0, times, len(self.modes))
        # Accelerators would round float32 products to TF32 or bfloat16 unless told not to.
        with jax.default_matmul_precision("highest"):
            return self._answer(as_float(u0), as_float(times))

    def rollout(
        self, u0: Float[Array, "batch *space channels"], times: Float[Array, "batch time"]
    ) -> Float[Array, "batch time *space out_channels"]:
        """The solution at increasing times, each in one step from the one before; for training with a horizon."""
        check_inputs(u0, times, len(self.modes))
        with jax.default_matmul_precision("highest"):
            return marching.rollout(self._advance, as_float(u0), as_float(times))

    def answerable(self, times: Float[np.ndarray, "..."]) -> str | None:
        """None if all times are within the steps of a horizon, else a sentence that says what is wrong."""
        if self.horizon is None or np.max(times) <= self.horizon * self.max_steps * (1 + 1e-6):
            return None
        return (
            f"{self.max_steps} steps of {self.horizon:g} end at {self.horizon * self.max_steps:g}, but t="
            f"{np.max(times):g} was asked for; raise max_steps"
        )

    def reaching(self, times: Float[np.ndarray, "..."]) -> "CTFNO":
        """The same operator with as many steps as the times need, or up to twice as many: few sizes to compile."""
        if self.horizon is None:
            return self
        steps = math.ceil(float(np.max(times)) / self.horizon - 1e-6)
        return self.clone(max_steps=2 ** math.ceil(math.log2(max(steps, 1))), parent=None, name=None)

    def at_once(self) -> "CTFNO":
        """The same network, for the same parameters, without composition, without a start and without a range."""
        free = {"start": "free", "rise_time": None, "viscosity_unit": None, "keeps_range": False}
        return self.clone(**free, horizon=None, max_steps=_MAX_STEPS, parent=None, name=None)

    def _answer(self, u0: Array, times: Array) -> Array:
        if self.horizon is None or self.is_initializing():
            u = self._advance(u0, times)
            return self._within_range(u, u0) if self.keeps_range else u
        # What runs inside a scan must not read parameters of this module: an unbound copy gets them as an argument.
        one = self.clone(horizon=None, max_steps=_MAX_STEPS, parent=None, name=None)
        variables = {"params": self.variables["params"]}

        def advance(state: Array, some_times: Array) -> Any:
            return one.apply(variables, state, some_times)

        return marching.march(advance, u0, times, horizon=self.horizon, max_steps=self.max_steps)

    def _advance(self, u0: Array, times: Array) -> Array:
        """The solution in one step: the network, and what it starts from."""
        added = self._solve(u0, times)
        if self.rise_time is None:  # and only then is there no start
            return added
        times = jnp.broadcast_to(times, added.shape[:2])
        rise = times / (times + self.rise_time)
        added = rise.reshape(*times.shape, *[1] * (added.ndim - 2)) * added
        return self._start(u0, times) + added

    def _within_range(self, u: Array, u0: Array) -> Array:
        state = u0[:, None, ..., : self.out_channels]
        space = tuple(range(2, state.ndim - 1))
        return jnp.clip(u, state.min(space, keepdims=True), state.max(space, keepdims=True))

    def _start(self, u0: Array, times: Array) -> Array:
        """What the network adds to, with a time axis."""
        state = u0[:, None, ..., : self.out_channels]
        if self.viscosity_unit is None:  # and only then is it not sound
            return state
        waves = u0[..., self.out_channels - 2 : self.out_channels]
        later = sound.propagate(waves, times, self.viscosity_unit * jnp.mean(u0[..., -1], axis=1))
        others = jnp.broadcast_to(state[..., :-2], (*later.shape[:-1], self.out_channels - 2))
        return jnp.concatenate([others, later], axis=-1)

    def _solve(self, u0: Array, times: Array) -> Array:
        num_space = len(self.modes)
        grid = u0.shape[1:-1]
        a = input_field(u0, coordinates=self.coordinates, padding=self.padding)
        self._check_channels(u0.shape[-1], a.shape[-1] - 1)
        check_start(self, u0.shape[-1])
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

        chunk = self.time_chunk or automatic_chunk(u0.shape, times.shape[-1], self.width, self.padding)
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
        dtype = None if self.pointwise_dtype == "float32" else jnp.dtype(self.pointwise_dtype)
        return tmf.time_modulated_fourier(v, weights, factors, modes=modes, method=method, pointwise_dtype=dtype)

    def _head_weights(self) -> tuple[Any, Any]:
        if self.head == "linear":
            return None, self.projection(self.width)
        return self.hidden_projection(self.width), self.projection(2 * self.width)

    def _project(self, v: Array, head: tuple[Any, Any]) -> Array:
        hidden, (weight, bias) = head
        if hidden is not None:
            v = jax.nn.gelu(v @ hidden[0] + hidden[1])
        return v @ weight + bias


def check_fields(model: CTFNO) -> None:
    """Raises ValueError for hyper-parameters that contradict each other or are out of range."""
    if not 1 <= len(model.modes) <= 3:
        raise ValueError(f"modes must name one to three space axes, got {tuple(model.modes)}")
    positive = ("out_channels", "width", "depth", "heads", "time_width", "num_blocks")
    for name in positive:
        if getattr(model, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(model, name)}")
    for name, divisor in (("width", "heads"), ("time_width", "heads"), ("width", "num_blocks")):
        if getattr(model, name) % getattr(model, divisor):
            raise ValueError(f"{name}={getattr(model, name)} must be divisible by {divisor}={getattr(model, divisor)}")
    if model.num_blocks != 1 and model.kernel == "dense":
        raise ValueError(f"num_blocks={model.num_blocks} needs kernel='block_diagonal', got kernel='dense'")
    if model.time_features < 2 or model.time_features % 2:
        raise ValueError(f"time_features must be an even number of at least 2, got {model.time_features}")
    if not (model.time_scale > 0 and math.isfinite(model.time_scale)):
        raise ValueError(f"time_scale must be positive and finite, got {model.time_scale}")
    if model.stability_bound is not None and not (model.stability_bound > 0 and math.isfinite(model.stability_bound)):
        raise ValueError(f"stability_bound must be positive, or None for no bound, got {model.stability_bound}")
    if model.stability_bound is None and model.stability_rule == "rows_and_columns":
        raise ValueError("stability_rule='rows_and_columns' needs a stability_bound, got None")
    if model.time_chunk is not None and model.time_chunk < 1:
        raise ValueError(f"time_chunk must be at least 1, or None to choose by size, got {model.time_chunk}")
    fractions = model.padding if isinstance(model.padding, tuple | list) else (model.padding,)
    if len(fractions) not in (1, len(model.modes)) or not all(0 <= f <= 1 for f in fractions):
        raise ValueError(
            f"padding must be a fraction of each axis between 0 and 1, one number or one for each of the "
            f"{len(model.modes)} axes, got {model.padding}"
        )
    _check_marching(model)
    choices = {
        "start": STARTS,
        "lifting": ("linear", "low_pass"),
        "head": ("linear", "mlp"),
        "stability_rule": gershgorin.RULES,
        "fourier_method": ("auto", "fft", "matmul"),
        "kernel": ("dense", "block_diagonal"),
        "pointwise_dtype": ("float32", "bfloat16"),
    }
    for name, allowed in choices.items():
        if getattr(model, name) not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(model, name)!r}")


def _check_marching(model: CTFNO) -> None:
    if (model.rise_time is None) != (model.start == "free"):
        raise ValueError(_about_field(model, "rise_time"))
    if (model.viscosity_unit is None) != (model.start != "sound"):
        raise ValueError(_about_field(model, "viscosity_unit"))
    if model.start == "sound" and (len(model.modes) != 1 or model.out_channels < 2):
        raise ValueError(
            f"start='sound' is for one space axis, and pressure and velocity among the channels; got modes "
            f"{tuple(model.modes)} and out_channels={model.out_channels}"
        )
    for name in ("rise_time", "viscosity_unit", "horizon"):
        value = getattr(model, name)
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be positive and finite, or None, got {value}")
    if model.max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {model.max_steps}")
    if model.horizon is None and model.max_steps != _MAX_STEPS:
        raise ValueError(
            f"max_steps={model.max_steps} needs a horizon, got None; without one, leave it at {_MAX_STEPS}"
        )


def _about_field(model: CTFNO, name: str) -> str:
    missing = getattr(model, name) is None
    return f"start={model.start!r} " + (
        f"needs a {name}" if missing else f"does not read {name}; leave it out, at None"
    )


def check_start(model: CTFNO, channels: int) -> None:
    """Raises ValueError for states that a solution cannot start from, or go on from."""
    needed = model.out_channels + (model.start == "sound")
    if (model.start != "free" or model.horizon is not None or model.keeps_range) and channels < needed:
        viscosity = " and the viscosity" if model.start == "sound" else ""
        raise ValueError(
            f"u0 has {channels} channels, but start={model.start!r} with horizon={model.horizon} and keeps_range="
            f"{model.keeps_range} needs those of the solution{viscosity}, {needed}"
        )


def num_parameters(params: Any) -> int:
    """Number of real parameters; a complex weight counts as two."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
