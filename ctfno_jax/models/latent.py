"""CTFNO on vector-valued time series: by embedding observed points, or through a latent state."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models import ctfno, encoders, inputs, layers
from ctfno_jax.types import Key


class ObservedCTFNO(nn.Module):
    """Forecasts a vector from observed points: each becomes a function on a small grid, one channel per point.

    Attributes:
      operator: a one-dimensional CTFNO with one output channel.
      grid_points: points of the grid that a vector is mapped to.
      out_features: components of the forecast.
      observation_scale: multiplies the times of observation, where points have them, to be of the order of one.
    """

    operator: ctfno.CTFNO
    grid_points: int = 16
    out_features: int = 1
    observation_scale: float = 1.0

    @nn.compact
    def __call__(
        self,
        observations: Float[Array, "batch steps features"],
        times: Float[Array, " time"] | Float[Array, "batch time"],
    ) -> Float[Array, "batch time out_features"]:
        """Values at ``times``; times of observation may come as a last feature of the points."""
        inputs.check_real("observations", observations)
        weight, bias = layers.Affine(self.grid_points, name="point_embedding")(observations.shape[-1])
        if self.observation_scale != 1:
            values, clock = jnp.split(observations, [self.out_features], axis=-1)
            observations = jnp.concatenate([values, self.observation_scale * clock], axis=-1)
        functions = observations @ weight + bias
        u = self.operator(functions.swapaxes(1, 2), times)[..., 0]
        weight, bias = layers.Affine(self.out_features, name="point_projection")(self.grid_points)
        return u @ weight + bias


class LatentPrediction(NamedTuple):
    """Decoded values at the query times, the posterior they came from, and class scores if there is a classifier."""

    values: Float[Array, "batch time features"]
    mean: Float[Array, "batch latent"]
    std: Float[Array, "batch latent"]
    logits: Float[Array, "batch time classes"] | None


class LatentCTFNO(nn.Module):
    """Encoder to a latent state, CTFNO from there to the latent state at any time, and a linear decoder.

    Attributes:
      operator: a one-dimensional CTFNO with one output channel; its grid is the latent state.
      encoder: of the observations.
      out_features: components of the series.
      num_classes: outputs of a linear classifier on the latent state at each time; 0 for none.
    """

    operator: ctfno.CTFNO
    encoder: encoders.GRUEncoder
    out_features: int
    num_classes: int = 0

    @nn.compact
    def __call__(
        self,
        values: Float[Array, "batch observed features"],
        mask: Float[Array, "batch observed features"],
        observed_times: Float[Array, " observed"],
        times: Float[Array, " time"] | Float[Array, "batch time"],
        key: Key | None = None,
    ) -> LatentPrediction:
        """Predicts from the posterior mean, or from one draw if there is a key."""
        mean, std = self.encoder(values, mask, observed_times)
        z0 = mean if key is None else mean + std * jax.random.normal(key, mean.shape, mean.dtype)
        z = self.operator(z0[..., None], times)[..., 0]
        weight, bias = layers.Affine(self.out_features, name="decoder")(self.encoder.latent)
        logits = None
        if self.num_classes:
            class_weight, class_bias = layers.Affine(self.num_classes, name="classifier")(self.encoder.latent)
            logits = z @ class_weight + class_bias
        return LatentPrediction(z @ weight + bias, mean, std, logits)
