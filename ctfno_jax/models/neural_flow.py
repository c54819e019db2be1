"""Neural flows: the solution of an unknown equation as an invertible map of the state, the identity at time zero.

Two kinds. A *coupling* layer keeps one part of the coordinates and maps the other by ``x exp(a g_a(t)) + b g_b(t)``,
with functions a and b of time and of the part that is kept. A *resnet* layer is ``x + g(t) h(t, x)`` with a contraction
h and ``|g| < 1``. The functions g vanish at zero.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models import layers, mlp, observations
from ctfno_jax.models.inputs import check_inputs, check_positive, check_times, float_inputs
from ctfno_jax.ops import gershgorin
from ctfno_jax.types import Complex, Key

KINDS = ("coupling", "resnet")
TIME_NETWORKS = ("linear", "tanh", "fourier")
# Below one, so that a resnet layer is invertible by iteration.
_CONTRACTION = 0.97


class FlowLayer(NamedTuple):
    """Parameters of one layer.

    Attributes:
      maps: the network of a and b, or of h.
      rates: of the functions g, ``(outputs,)`` for linear ones and ``(outputs, sinusoids)`` for Fourier sums.
      weights: of the sinusoids, or None.
    """

    maps: list[mlp.Affine]
    rates: Float[Array, "outputs *sinusoids"]
    weights: Float[Array, "outputs sinusoids"] | None


class Flow(nn.Module):
    """Parameters of a flow; the functions of them are below.

    Attributes:
      dimension: of the state.
      kind: ``"coupling"`` or ``"resnet"``.
      num_layers: layers.
      width: of the hidden layers of its networks.
      depth: hidden layers.
      time_network: g is ``"linear"`` in t, its ``"tanh"``, or a ``"fourier"`` sum of sines. Resnets need a bounded one.
      num_sinusoids: of a Fourier sum.
    """

    dimension: int
    kind: str = "coupling"
    num_layers: int = 2
    width: int = 31
    depth: int = 2
    time_network: str = "linear"
    num_sinusoids: int = 8

    @nn.compact
    def __call__(self) -> list[FlowLayer]:
        outputs = (2 if self.kind == "coupling" else 1) * self.dimension
        sizes = (self.dimension + 1, *[self.width] * self.depth, outputs)
        result = []
        for i in range(self.num_layers):
            maps = mlp.MLP(sizes, name=f"layer_{i}")()
            if self.time_network != "fourier":
                bound = math.sqrt(6 / (outputs + 1))
                rates = self.param(f"rates_{i}", _uniform, (outputs,), bound)
                result.append(FlowLayer(maps, rates, None))
                continue
            shape = (outputs, self.num_sinusoids)
            rates = self.param(f"rates_{i}", _exponential, shape)
            weights = self.param(f"weights_{i}", nn.initializers.xavier_normal(), shape)
            result.append(FlowLayer(maps, rates, weights))
        return result


def _uniform(key: Key, shape: tuple[int, ...], bound: float) -> Array:
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def _exponential(key: Key, shape: tuple[int, ...]) -> Array:
    return 2 * jax.random.exponential(key, shape)


def flow(
    flow_layers: list[FlowLayer],
    x: Float[Array, "*points state"],
    t: Float[Array, "*#points 1"],
    *,
    kind: str,
    bounded: bool,
) -> Float[Array, "*points state"]:
    """The state of every point after a time of its own; ``bounded`` takes the tanh of linear functions of time."""
    for i, layer in enumerate(flow_layers):
        x = (_coupling if kind == "coupling" else _resnet)(layer, x, t, i, bounded)
    return x


def inverse_flow(
    flow_layers: list[FlowLayer], y: Float[Array, "*points state"], t: Float[Array, "*#points 1"], *, kind: str,
    bounded: bool, iterations: int = 500,
) -> Float[Array, "*points state"]:  # fmt: skip
    """The state that ``flow`` takes to ``y``: in closed form for coupling layers, by iteration for resnets."""
    for i, layer in reversed(list(enumerate(flow_layers))):
        if kind == "coupling":
            y = _inverse_coupling(layer, y, t, i, bounded)
        else:
            target = y
            step = lambda _, x, layer=layer, target=target, i=i: (  # noqa: E731
                target - (_resnet(layer, x, t, i, bounded) - x)
            )
            y = jax.lax.fori_loop(0, iterations, step, target)
    return y


def _kept(x: Float[Array, "*points state"], index: int) -> Float[Array, " state"]:
    """One for the coordinates that a coupling layer keeps: halves in turn; none if there is one coordinate only."""
    dimension = x.shape[-1]
    if dimension == 1:
        return jnp.zeros(1, x.dtype)
    first = jnp.arange(dimension) < (dimension + 1) // 2
    return (first if index % 2 == 0 else ~first).astype(x.dtype)


def _time_functions(layer: FlowLayer, t: Array, bounded: bool) -> Array:
    """The functions g at the times: zero at zero."""
    if layer.weights is not None:
        return jnp.mean(layer.weights * jnp.sin(layer.rates * t[..., None]), axis=-1)
    return jnp.tanh(layer.rates * t) if bounded else layer.rates * t


def _scale_and_shift(layer: FlowLayer, kept: Array, t: Array, bounded: bool) -> tuple[Array, Array]:
    """Logarithm of the scale, and the shift."""
    conditions = jnp.concatenate([kept, jnp.broadcast_to(t, (*kept.shape[:-1], 1))], axis=-1)
    log_scale, shift = jnp.split(mlp.mlp(layer.maps, conditions) * _time_functions(layer, t, bounded), 2, axis=-1)
    return log_scale, shift


def _coupling(layer: FlowLayer, x: Array, t: Array, index: int, bounded: bool) -> Array:
    mask = _kept(x, index)
    log_scale, shift = _scale_and_shift(layer, mask * x, t, bounded)
    return mask * x + (1 - mask) * (x * jnp.exp(log_scale) + shift)


def _inverse_coupling(layer: FlowLayer, y: Array, t: Array, index: int, bounded: bool) -> Array:
    mask = _kept(y, index)
    log_scale, shift = _scale_and_shift(layer, mask * y, t, bounded)
    return mask * y + (1 - mask) * (y - shift) * jnp.exp(-log_scale)


def _resnet(layer: FlowLayer, x: Array, t: Array, index: int, bounded: bool) -> Array:
    del index
    inputs = jnp.concatenate([x, jnp.broadcast_to(t, (*x.shape[:-1], 1))], axis=-1)
    g = _time_functions(layer, t, bounded)
    if layer.weights is not None:
        g = jnp.tanh(g)  # a sum of sines may exceed one
    return x + g * mlp.mlp([(_contraction(weight), bias) for weight, bias in layer.maps], inputs)


def _contraction(weight: Float[Array, "in out"]) -> Array:
    """The matrix with a 2-norm below one."""
    return gershgorin.normalize(Complex(weight, jnp.zeros_like(weight)), _CONTRACTION, "rows_and_columns").re


def _check(model: Any) -> None:
    check_positive(model, ("num_layers", "width", "depth", "num_sinusoids"))
    for name, known in (("kind", KINDS), ("time_network", TIME_NETWORKS)):
        if getattr(model, name) not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(model, name)!r}")
    if model.time_network != "fourier" and model.num_sinusoids != type(model).num_sinusoids:
        raise ValueError(f"time_network={model.time_network} does not read num_sinusoids; leave it out")


def _is_bounded(kind: str, time_network: str) -> bool:
    return time_network == "tanh" or kind == "resnet"


def _of_points(times: Array) -> Float[Array, "#batch time 1"]:
    """Times of points (sample, time); shared ones once, because functions of time can be costly."""
    return times[None, :, None] if times.ndim == 1 else times[..., None]


class FlowPosterior(NamedTuple):
    """Values at the query times, and the Gaussian that the latent state was drawn from."""

    values: Float[Array, "batch time features"]
    mean: Float[Array, "batch latent"]
    std: Float[Array, "batch latent"]


class ObservedNeuralFlow(nn.Module):
    """Forecasts a vector through a latent flow; a recurrent network, itself moved by a flow, reads what was observed.

    Attributes:
      out_features: components of the vector.
      latent: components of the latent state.
      hidden: size of the recurrent state.
      readout: width of the layer between the recurrent state and the latent one.
      kind: this and the following fields are those of :class:`Flow`.
      time_step: between observations that come without their times.
      observation_std: standard deviation of values in the likelihood of :meth:`negative_elbo`.
    """

    out_features: int = 1
    latent: int = 2
    hidden: int = 31
    readout: int = 100
    kind: str = "coupling"
    num_layers: int = 2
    width: int = 31
    depth: int = 2
    time_network: str = "linear"
    num_sinusoids: int = 8
    time_step: float = 0.1
    observation_std: float = 1e-3

    from_last_observation = True

    def check_fields(self) -> None:
        _check(self)
        check_positive(self, ("out_features", "latent", "hidden", "readout", "time_step", "observation_std"))

    def setup(self) -> None:
        shape = {"kind": self.kind, "num_layers": self.num_layers, "width": self.width, "depth": self.depth}
        shape |= {"time_network": self.time_network, "num_sinusoids": self.num_sinusoids}
        self.latent_flow = Flow(self.latent, **shape)
        self.recurrent_flow = Flow(self.hidden, **shape)
        self.cell_input = layers.Affine(4 * self.hidden)
        self.cell_state = layers.Affine(4 * self.hidden)
        self.readout_maps = mlp.MLP((self.hidden, self.readout, 2 * self.latent))
        self.decoder = layers.Affine(self.out_features)

    def __call__(
        self,
        observed: Float[Array, "batch steps inputs"],
        times: Float[Array, " time"] | Float[Array, "batch time"],
    ) -> Float[Array, "batch time out_features"]:
        """Values at ``times``, from the mean of the latent state."""
        return self.posterior(observed, times).values

    def posterior(self, observed: Array, times: Array, key: Key | None = None) -> FlowPosterior:
        """From the mean of the latent state, or from one draw if there is a key."""
        self.check_fields()
        observations.check_features(observed, self.out_features)
        check_times(times)
        observed, times = float_inputs(observed, times)
        raw = mlp.mlp(self.readout_maps(), self._read(observed))
        mean, raw_std = jnp.split(raw, 2, axis=-1)
        std = jax.nn.softplus(raw_std)
        start = mean if key is None else mean + std * jax.random.normal(key, mean.shape, mean.dtype)
        every = _of_points(times)
        start = jnp.broadcast_to(start[:, None], (len(observed), times.shape[-1], self.latent))
        state = flow(
            self.latent_flow(), start, every, kind=self.kind, bounded=_is_bounded(self.kind, self.time_network)
        )
        weight, bias = self.decoder(self.latent)
        return FlowPosterior(state @ weight + bias, mean, std)

    def negative_elbo(self, observed: Array, times: Array, target: Array, key: Key) -> Float[Array, ""]:
        """Minus the evidence bound per value: one draw of the latent state against a standard normal prior."""
        values, mean, std = self.posterior(observed, times, key)
        variance = self.observation_std**2
        likelihood = -0.5 * jnp.mean(jnp.square(values - target)) / variance - 0.5 * math.log(2 * math.pi * variance)
        divergence = 0.5 * jnp.mean(jnp.sum(mean**2 + std**2 - 1 - 2 * jnp.log(std), axis=-1))
        return -likelihood + divergence / (target.shape[1] * target.shape[2])

    def _read(self, observed: Array) -> Float[Array, "batch hidden"]:
        """The recurrent state after the last observation; between two of them it follows its flow."""
        times = observations.times_of_observation(observed, self.out_features, self.time_step)
        gaps = jnp.diff(times, axis=1, prepend=times[:, :1])
        values = observed[..., : self.out_features]
        # Beside each value stands a mark that it was observed, as in data where some are not.
        inputs = jnp.concatenate([values, jnp.ones_like(values)], axis=-1)
        input_weight, input_bias = self.cell_input(inputs.shape[-1])
        state_weight, state_bias = self.cell_state(self.hidden)
        recurrent = self.recurrent_flow()
        bounded = _is_bounded(self.kind, self.time_network)

        def step(carry: tuple[Array, Array], now: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
            state, memory = carry
            projected, gap = now
            state = flow(recurrent, state, gap[:, None], kind=self.kind, bounded=bounded)
            gates = projected + state @ state_weight + state_bias
            enter, forget, candidate, leave = jnp.split(gates, 4, axis=-1)
            memory = jax.nn.sigmoid(forget) * memory + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
            return (jax.nn.sigmoid(leave) * jnp.tanh(memory), memory), None

        zeros = jnp.zeros((len(observed), self.hidden), observed.dtype)
        sequence = (jnp.swapaxes(inputs @ input_weight + input_bias, 0, 1), gaps.T)
        (state, _), _ = jax.lax.scan(step, (zeros, zeros), sequence)
        return state


class FieldNeuralFlow(nn.Module):
    """A flow of all values of a field; the grid is that of the training.

    Attributes:
      out_channels: channels of the field.
      kind: this and the following fields are those of :class:`Flow`.
    """

    out_channels: int = 1
    kind: str = "coupling"
    num_layers: int = 32
    width: int = 128
    depth: int = 2
    time_network: str = "fourier"
    num_sinusoids: int = 32

    def check_fields(self) -> None:
        _check(self)

    @nn.compact
    def __call__(
        self,
        u0: Float[Array, "batch *space channels"],
        times: Float[Array, " time"] | Float[Array, "batch time"],
    ) -> Float[Array, "batch time *space out_channels"]:
        self.check_fields()
        u0, times = float_inputs(*check_inputs(u0, times))
        if u0.shape[-1] != self.out_channels:
            raise ValueError(f"u0 must have {self.out_channels} channels, as the solution has, got {u0.shape[-1]}")
        state = math.prod(u0.shape[1:])
        flow_layers = Flow(
            state, self.kind, self.num_layers, self.width, self.depth, self.time_network, self.num_sinusoids,
            name="flow",
        )()  # fmt: skip
        x = jnp.broadcast_to(u0.reshape(len(u0), 1, state), (len(u0), times.shape[-1], state))
        bounded = _is_bounded(self.kind, self.time_network)
        u = flow(flow_layers, x, _of_points(times), kind=self.kind, bounded=bounded)
        return u.reshape(*x.shape[:2], *u0.shape[1:])
