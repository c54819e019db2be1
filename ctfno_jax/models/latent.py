"""Irregular series through a latent state: an encoder of the observations, dynamics, and a decoder."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models import encoders, layers, mlp
from ctfno_jax.models.inputs import as_float, check_positive, check_times
from ctfno_jax.models.packing import Unpacked, unpack
from ctfno_jax.ops.interpolation import interpolate
from ctfno_jax.types import Key, Params

BASELINES = ("none", "linear")


class LatentPrediction(NamedTuple):
    """Answers at the query times, and the Gaussian that the latent state was drawn from.

    Attributes:
      values: of all features.
      mean: of the latent state at time zero.
      std: its standard deviation.
      logits: scores of the classes, if there are any.
    """

    values: Float[Array, "batch time features"]
    mean: Float[Array, "batch latent"]
    std: Float[Array, "batch latent"]
    logits: Float[Array, "batch time classes"] | None


class LatentModel(nn.Module):
    """An encoder to a latent state, dynamics that take it to any time, and a decoder.

    Attributes:
      encoder: module ``(observations, latent) -> (mean, std)``; see :mod:`ctfno_jax.models.encoders`.
      dynamics: module ``(z0, times, decode) -> z``; see :mod:`ctfno_jax.models.dynamics`.
      out_features: components of the series; 0 for as many as the observations have.
      latent: size of the latent state.
      num_classes: outputs of a linear classifier of the latent state at each time, which are then the answer; 0 for
        none.
      decoder_units: width of a hidden layer of the decoder; 0 for one linear map.
      baseline: ``"linear"`` adds the linear interpolation of what the answers leave unexplained at the observations, so
        that they pass through these. Training does not see it.
    """

    encoder: Any
    dynamics: Any
    out_features: int = 0
    latent: int = 20
    num_classes: int = 0
    decoder_units: int = 0
    baseline: str = "none"

    def check_fields(self) -> None:
        self.encoder.check_fields()
        check_positive(self, ("latent",))
        for name in ("out_features", "num_classes", "decoder_units"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.baseline not in BASELINES:
            raise ValueError(f"baseline must be one of {', '.join(BASELINES)}, got {self.baseline!r}")
        if self.num_classes and self.baseline != "none":
            raise ValueError(
                f"baseline={self.baseline} corrects values, and num_classes={self.num_classes} asks for classes"
            )

    def __call__(
        self,
        observations: Float[Array, "batch steps inputs"],
        times: Float[Array, " time"] | Float[Array, "batch time"],
    ) -> Float[Array, "batch time outputs"]:
        """Values at ``times``, or scores of classes, from the mean of the latent state.

        Args:
          observations: packed, see :mod:`ctfno_jax.models.packing`.
          times: shared by all series, or one grid of times per series; in any order.
        """
        found = self.posterior(observations, times)
        return found.values if found.logits is None else found.logits

    def posterior(self, observations: Array, times: Array, key: Key | None = None) -> LatentPrediction:
        """From the mean of the latent state, or from one draw if there is a key."""
        if self.baseline == "none":
            return self.decoded(observations, times, key)
        check_times(times)
        parts = unpack(as_float(observations))
        every = jnp.broadcast_to(jnp.asarray(times).astype(parts.times.dtype), (len(parts.times), times.shape[-1]))
        observed_at = jnp.where(parts.valid > 0, parts.times, 0.0)
        found = self.decoded(observations, jnp.concatenate([every, observed_at], axis=1), key)
        asked, known = jnp.split(found.values, [every.shape[1]], axis=1)
        unexplained = interpolate(parts.times, parts.values - known, parts.mask, every)
        return found._replace(values=asked + unexplained)

    @nn.compact
    def decoded(self, observations: Array, times: Array, key: Key | None = None) -> LatentPrediction:
        """Predicts from the latent state alone, without the baseline; training does so."""
        self.check_fields()
        check_times(times)
        observations = as_float(observations)
        times = jnp.asarray(times).astype(observations.dtype)
        parts = unpack(observations)
        features = _features(self.out_features, parts)
        mean, std = self.encoder(observations, self.latent)
        z0 = mean if key is None else mean + std * jax.random.normal(key, mean.shape, mean.dtype)
        hidden = [self.decoder_units] if self.decoder_units else []
        maps = mlp.MLP((self.latent, *hidden, features), name="decoder")()
        decode = lambda z: mlp.mlp(maps, z)  # noqa: E731
        z = self.dynamics(z0, times, decode)
        values = decode(z)
        logits = None
        if self.num_classes:
            weight, bias = layers.Affine(self.num_classes, name="classifier")(self.latent)
            logits = z @ weight + bias
        return LatentPrediction(values, mean, std, logits)


def _features(stated: int, parts: Unpacked) -> int:
    """Features of the observations; ValueError if another number is stated."""
    found = parts.values.shape[-1]
    if stated not in (0, found):
        raise ValueError(f"observations have {found} features, but out_features is {stated}")
    return found


def encode(
    model: LatentModel, params: Params, observations: Float[Array, "batch steps inputs"]
) -> tuple[Float[Array, "batch latent"], Float[Array, "batch latent"]]:
    """Mean and standard deviation of the latent state at time zero."""
    return model.encoder.apply({"params": params["params"]["encoder"]}, observations, model.latent)


def evolve(
    model: LatentModel, params: Params, z0: Float[Array, "batch latent"], times: Array
) -> Float[Array, "batch time outputs"]:
    """Values at ``times``, or scores of classes, from a latent state; without the baseline of the observations."""
    weights = params["params"]
    decoder = weights["decoder"]
    maps = [(decoder[f"weight_{i}"], decoder[f"bias_{i}"]) for i in range(len(decoder) // 2)]
    decode = functools.partial(mlp.mlp, maps)
    z = model.dynamics.apply({"params": weights.get("dynamics", {})}, z0, times, decode)
    if not model.num_classes:
        return decode(z)
    return z @ weights["classifier"]["weight"] + weights["classifier"]["bias"]


class ODERNN(nn.Module):
    """Forecasts from the state after the last observation before each query time, moved there by its vector field.

    No latent distribution: every answer knows all earlier observations, so where most points are observed its task is
    easier than that of a latent model.

    Attributes:
      out_features: components of the series; 0 for as many as the observations have.
      hidden: size of the recurrent mean, and of the recurrent spread.
      units: width of the vector field, and of the decoder.
      depth: maps between hidden layers of the field.
      gate_units: width of the three gates.
      substeps: steps of Euler's method from one time to the next.
      num_classes: outputs of a linear classifier of the state, which are then the answer; 0 for none.
    """

    out_features: int = 0
    hidden: int = 15
    units: int = 300
    depth: int = 3
    gate_units: int = 100
    substeps: int = 2
    num_classes: int = 0

    def check_fields(self) -> None:
        check_positive(self, ("hidden", "units", "depth", "gate_units", "substeps"))

    @nn.compact
    def __call__(self, observations: Array, times: Array) -> Float[Array, "batch time outputs"]:
        """Values at ``times``, or scores of classes."""
        check_times(times)
        observations = as_float(observations)
        times = jnp.asarray(times).astype(observations.dtype)
        parts = unpack(observations)
        features = _features(self.out_features, parts)
        read = jnp.concatenate([parts.values, parts.mask], axis=-1)
        cell = encoders.ODERNNCell(self.hidden, self.units, self.depth, self.gate_units, name="cell")(read.shape[-1])

        def step(carry: Any, now: Any) -> tuple[Any, Any]:
            mean, spread, last, started = carry
            time, some, valid = now
            gap = jnp.where(started > 0, time - last, 0)
            moved = encoders.euler(cell[0], mean, gap, self.substeps)
            new = (*encoders.ode_rnn_step(cell, moved, spread, some), time, jnp.ones_like(started))
            carry = tuple(jnp.where(valid > 0, a, b) for a, b in zip(new, carry, strict=True))
            return carry, carry[0]

        batch = len(observations)
        zeros = jnp.zeros((batch, self.hidden), observations.dtype)
        start = (zeros, zeros, jnp.zeros((batch, 1), zeros.dtype), jnp.zeros((batch, 1), zeros.dtype))
        sequence = tuple(jnp.swapaxes(a, 0, 1) for a in (parts.times[..., None], read, parts.valid[..., None]))
        _, states = jax.lax.scan(step, start, sequence)
        # The state before any observation comes first.
        states = jnp.concatenate([zeros[:, None], jnp.swapaxes(states, 0, 1)], axis=1)
        every = jnp.broadcast_to(times, (batch, times.shape[-1]))
        at = jnp.where(parts.valid > 0, parts.times, jnp.inf)
        earlier = (at[:, None] < every[..., None]) * jnp.arange(1, at.shape[1] + 1)
        index = jnp.max(earlier, axis=-1)  # zero if there is none
        since = jnp.take_along_axis(jnp.concatenate([jnp.zeros((batch, 1), at.dtype), at], axis=1), index, axis=1)
        state = jnp.take_along_axis(states, index[..., None], axis=1)
        state = encoders.euler(cell[0], state, jnp.where(index > 0, every - since, 0.0)[..., None], self.substeps)
        if self.num_classes:
            weight, bias = layers.Affine(self.num_classes, name="classifier")(self.hidden)
            return state @ weight + bias
        decoder = mlp.MLP((self.hidden, self.units, features), name="decoder")()
        return mlp.mlp(decoder, state)
