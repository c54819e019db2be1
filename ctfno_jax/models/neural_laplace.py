"""Neural Laplace: a network is the Laplace transform of the solution, and is inverted at the query times."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models import layers, mlp, observations
from ctfno_jax.models.inputs import check_inputs, check_positive, check_times, float_inputs
from ctfno_jax.ops import inverse_laplace, recurrent


class StackedGRU(nn.Module):
    """Last state of two recurrent layers, one above the other.

    Attributes:
      hidden: size of each state.
    """

    hidden: int

    @nn.compact
    def __call__(self, inputs: Float[Array, "batch steps features"]) -> Float[Array, "batch hidden"]:
        sequence = jnp.swapaxes(inputs, 0, 1)
        for i in range(2):
            input_weight, input_bias = layers.Affine(3 * self.hidden, name=f"input_{i}")(sequence.shape[-1])
            state_weight, state_bias = layers.Affine(3 * self.hidden, name=f"state_{i}")(self.hidden)

            def cell(state: Array, projected: Array, weight=state_weight, bias=state_bias) -> tuple[Array, Array]:
                state = recurrent.gru(state, projected, state @ weight + bias)
                return state, state

            start = jnp.zeros((inputs.shape[0], self.hidden), inputs.dtype)
            _, sequence = jax.lax.scan(cell, start, sequence @ input_weight + input_bias)
        return sequence[-1]


def transform_inverse(
    maps: list[mlp.Affine], latent: Float[Array, "batch latent"], times: Float[Array, "batch time"], num_terms: int
) -> Float[Array, "batch time outputs"]:
    """The function whose transform is the network: it reads all points of a query on the sphere, and answers there."""
    s = inverse_laplace.query_points(times, num_terms)
    longitude, latitude = inverse_laplace.to_sphere(s)
    latent = jnp.broadcast_to(latent[:, None], (*times.shape, latent.shape[-1]))
    raw = mlp.mlp(maps, jnp.concatenate([longitude, latitude, latent], axis=-1))
    raw = raw.reshape(*times.shape, 2, -1, num_terms)
    answer = inverse_laplace.from_sphere(
        math.pi * jnp.tanh(raw[..., 0, :, :]), math.pi / 2 * jnp.tanh(raw[..., 1, :, :])
    )
    return inverse_laplace.invert(answer, times[..., None])


def _check(model: Any) -> None:
    check_positive(model, ("latent", "encoder_width", "width", "depth", "num_terms", "time_scale"))


def _positive_times(times: np.ndarray) -> str | None:
    if np.any(np.asarray(times) <= 0):
        return "the inverse transform needs positive times; leave out t=0, where the solution is known"
    return None


class ObservedNeuralLaplace(nn.Module):
    """Forecasts a vector by an inverse transform; a recurrent network reads what was observed, the last point first.

    Attributes:
      out_features: components of the vector.
      latent: components of what the encoder says.
      encoder_width: size of the recurrent states.
      width: of the hidden layers of the transform.
      depth: hidden layers of the transform.
      num_terms: of the series.
      time_scale: multiplies t. The series asks for the transform at points of the order of 1/t; if the times are far
        from one, they lie close together by a pole of the sphere.
    """

    out_features: int = 1
    latent: int = 2
    encoder_width: int = 21
    width: int = 64
    depth: int = 2
    num_terms: int = 33
    time_scale: float = 1.0

    def check_fields(self) -> None:
        _check(self)

    def answerable(self, times: np.ndarray) -> str | None:
        return _positive_times(times)

    @nn.compact
    def __call__(
        self,
        observed: Float[Array, "batch steps inputs"],
        times: Float[Array, " time"] | Float[Array, "batch time"],
    ) -> Float[Array, "batch time out_features"]:
        self.check_fields()
        observations.check_features(observed, self.out_features)
        check_times(times)
        observed, times = float_inputs(observed, times)
        state = StackedGRU(self.encoder_width, name="encoder")(observed[:, ::-1])
        weight, bias = layers.Affine(self.latent, name="latent")(self.encoder_width)
        outputs = 2 * self.num_terms * self.out_features
        maps = mlp.MLP((2 * self.num_terms + self.latent, *[self.width] * self.depth, outputs), name="transform")()
        every = self.time_scale * jnp.broadcast_to(times, (len(observed), times.shape[-1]))
        return transform_inverse(maps, state @ weight + bias, every, self.num_terms)


class FieldNeuralLaplace(nn.Module):
    """The same for all values of a field, whose initial state is the one observation; the grid is that of the training.

    Attributes:
      out_channels: channels of the field.
      latent: components of what the encoder says.
      encoder_width: size of the recurrent states.
      width: of the hidden layers of the transform.
      depth: hidden layers of the transform.
      num_terms: of the series.
      time_scale: multiplies t. The series asks for the transform at points of the order of 1/t; if the times are far
        from one, they lie close together by a pole of the sphere.
    """

    out_channels: int = 1
    latent: int = 64
    encoder_width: int = 32
    width: int = 64
    depth: int = 2
    num_terms: int = 33
    time_scale: float = 1.0

    def check_fields(self) -> None:
        _check(self)

    def answerable(self, times: np.ndarray) -> str | None:
        return _positive_times(times)

    @nn.compact
    def __call__(
        self,
        u0: Float[Array, "batch *space channels"],
        times: Float[Array, " time"] | Float[Array, "batch time"],
    ) -> Float[Array, "batch time *space out_channels"]:
        self.check_fields()
        u0, times = float_inputs(*check_inputs(u0, times))
        outputs = math.prod(u0.shape[1:-1]) * self.out_channels
        state = StackedGRU(self.encoder_width, name="encoder")(u0.reshape(len(u0), 1, -1))
        weight, bias = layers.Affine(self.latent, name="latent")(self.encoder_width)
        sizes = (2 * self.num_terms + self.latent, *[self.width] * self.depth, 2 * self.num_terms * outputs)
        every = self.time_scale * jnp.broadcast_to(times, (len(u0), times.shape[-1]))
        u = transform_inverse(mlp.MLP(sizes, name="transform")(), state @ weight + bias, every, self.num_terms)
        return u.reshape(*every.shape, *u0.shape[1:-1], self.out_channels)
