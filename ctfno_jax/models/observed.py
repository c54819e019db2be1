"""CTFNO on vector-valued series: every observed point becomes a function on a small grid."""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models import ctfno, inputs, layers


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
