"""DeepONet: a branch network reads the initial state, a trunk network reads where and when."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models.inputs import check_inputs, check_positive, float_inputs
from ctfno_jax.models.residual_mlp import ResidualMLP, residual_mlp
from ctfno_jax.models.sensors import check_channels, sensor_values
from ctfno_jax.ops import time_features

# Points of space and time at which the trunk is evaluated at once; more of them are taken in turns and recomputed in
# the backward pass, which bounds memory.
_TRUNK_POINTS = 2**16


class DeepONet(nn.Module):
    """Inner product of what the branch makes of ``u0`` with what the trunk makes of ``(x, t)``, plus a bias.

    With several output channels, the branch ends in one more affine map, to one vector of coefficients per channel; the
    trunk is shared. With one channel neither network has an output layer.

    Attributes:
      out_channels: channels of the solution.
      width: features of both networks, also the number of terms of the inner product.
      depth: residual blocks of two maps in each network.
      num_sensors: equally spaced points at which the branch reads ``u0``. The grid may have a multiple of them.
      periodic: the trunk reads sines and cosines of 2 pi x and 4 pi x; otherwise x itself, in [0, 1).
      time_scale: multiplies t before the trunk reads it.
      time_features: number of sinusoids of the scaled time that the trunk reads besides it, even; 0 for none.
    """

    out_channels: int = 1
    width: int = 256
    depth: int = 6
    num_sensors: int = 1024
    periodic: bool = True
    time_scale: float = 1.0
    time_features: int = 0

    @nn.nowrap
    def check_fields(self) -> None:
        """Raises ValueError for hyper-parameters that are out of range."""
        check_positive(self, ("out_channels", "width", "depth", "num_sensors", "time_scale"))
        if self.time_features < 0 or self.time_features % 2:
            raise ValueError(f"time_features must be 0 or an even positive number, got {self.time_features}")

    def setup(self) -> None:
        self.check_fields()
        outputs = None if self.out_channels == 1 else self.width * self.out_channels
        self.branch = ResidualMLP(self.width, self.depth, outputs)
        self.trunk = ResidualMLP(self.width, self.depth)
        self.bias = self.param("bias", nn.initializers.zeros_init(), (self.out_channels,))

    def __call__(
        self, u0: Float[Array, "batch x channels"], times: Float[Array, " time"] | Float[Array, "batch time"]
    ) -> Float[Array, "batch time x out_channels"]:
        """The solution at ``times``, shared by all samples or one grid of times per sample, in any order."""
        u0, times = check_inputs(u0, times, 1)
        with jax.default_matmul_precision("highest"):
            return self._solve(*float_inputs(u0, times))

    def _solve(self, u0: Array, times: Array) -> Array:
        batch, num_points, _ = u0.shape
        a = sensor_values(u0, self.num_sensors)
        check_channels(self, self.branch, a.shape[-1], self.num_sensors)
        coefficients = residual_mlp(self.branch(a.shape[-1]), a).reshape(batch, self.out_channels, self.width)
        coefficients = coefficients / math.sqrt(self.width)
        # Parameters are read here, once: what runs inside a loop over times is a pure function of arrays.
        weights, bias = self.trunk(self._num_trunk_inputs()), self.bias
        x = jnp.arange(num_points, dtype=u0.dtype) / num_points

        def at_shared_time(t: Float[Array, ""]) -> Float[Array, "batch x out_channels"]:
            features = residual_mlp(weights, self.trunk_inputs(x, t))
            return jnp.einsum("bcw,xw->bxc", coefficients, features) + bias

        def at_own_times(t: Float[Array, " batch"]) -> Float[Array, "batch x out_channels"]:
            features = residual_mlp(weights, jax.vmap(lambda s: self.trunk_inputs(x, s))(t))
            return jnp.einsum("bcw,bxw->bxc", coefficients, features) + bias

        if times.ndim == 1:
            u = _over_times(at_shared_time, times, num_points)
        else:
            u = _over_times(at_own_times, times.T, batch * num_points)
        return jnp.moveaxis(u, 0, 1)

    @nn.nowrap
    def trunk_inputs(self, x: Float[Array, " x"], t: Float[Array, ""]) -> Float[Array, "x inputs"]:
        """Trunk inputs at the points ``x`` of the unit interval and one time."""
        if self.periodic:
            angles = 2 * math.pi * jnp.stack([x, 2 * x], axis=-1)
            space = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)
        else:
            space = x[:, None]
        time = jnp.reshape(t * self.time_scale, (1,))
        if self.time_features:
            sinusoids = time_features.sinusoidal_features(t, self.time_features, self.time_scale)
            time = jnp.concatenate([time, sinusoids])
        return jnp.concatenate([space, jnp.broadcast_to(time, (x.shape[0], time.shape[0]))], axis=-1)

    def _num_trunk_inputs(self) -> int:
        return (4 if self.periodic else 1) + 1 + self.time_features


def _over_times(at_time: Callable[[Array], Array], times: Array, points: int) -> Array:
    """``at_time`` for every entry of the first axis of ``times``, at most ``_TRUNK_POINTS`` points at once."""
    if times.shape[0] * points <= _TRUNK_POINTS:
        return jax.vmap(at_time)(times)
    return jax.lax.map(jax.checkpoint(at_time), times, batch_size=max(1, _TRUNK_POINTS // points))
