"""Latent dynamics: modules ``(z0, times, decode) -> z``, ``(batch, latent)`` to ``(batch, time, latent)``.

``decode`` maps a latent state to values; only a recurrent network that reads its own output needs it.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models import layers, mlp, neural_flow, neural_ode
from ctfno_jax.models.ctfno import CTFNO
from ctfno_jax.models.inputs import check_positive
from ctfno_jax.ops import recurrent

Decode = Callable[[Array], Array]
Times = Float[Array, " time"] | Float[Array, "batch time"]


class GridDynamics(nn.Module):
    """A latent state as a field on a small grid, moved by a one-dimensional CTFNO.

    Attributes:
      operator: the CTFNO; its ``out_channels`` are the channels of the latent field.
      points: of the grid; the latent state has ``points * out_channels`` components.
    """

    operator: CTFNO
    points: int = 20

    def check_fields(self) -> None:
        check_positive(self, ("points",))

    def __call__(self, z0: Float[Array, "batch latent"], times: Times, decode: Decode) -> Array:
        del decode
        channels = self.operator.out_channels
        if z0.shape[-1] != self.points * channels:
            raise ValueError(
                f"latent={z0.shape[-1]} must be points * out_channels = {self.points} * {channels}; change one of them"
            )
        z = self.operator(z0.reshape(len(z0), self.points, channels), times)
        return z.reshape(*z.shape[:2], -1)


class ODEDynamics(nn.Module):
    """A latent state that follows a vector field which does not depend on time.

    Attributes:
      units: width of the field.
      layers: maps between its hidden layers.
      solver: this and the following fields are those of :class:`ctfno_jax.models.neural_ode.Integration`.
    """

    units: int = 300
    layers: int = 3
    solver: str = "dopri5"
    stepping: str = "adaptive"
    step_size: float = 0.25
    rtol: float = 1e-3
    atol: float = 1e-4
    adjoint: str = "checkpoints"
    max_steps: int = 1000

    def check_fields(self) -> None:
        check_positive(self, ("units", "layers"))
        neural_ode.integration_of(self).check()

    @nn.nowrap
    def answerable(self, times: np.ndarray) -> str | None:
        return neural_ode.unanswerable(self.stepping, np.asarray(times))

    @nn.compact
    def __call__(self, z0: Float[Array, "batch latent"], times: Times, decode: Decode) -> Array:
        del decode
        latent = z0.shape[-1]
        maps = mlp.MLP((latent, *[self.units] * (self.layers + 1), latent), last_scale=0.1, name="field")()
        field = lambda _, y, args: mlp.mlp(args, y)  # noqa: E731
        z, _ = neural_ode.solve(field, maps, z0, jnp.asarray(times), neural_ode.integration_of(self))
        return z


class FlowDynamics(nn.Module):
    """A latent state moved by a coupling flow, the identity at time zero.

    Attributes:
      num_layers: of the flow.
      width: of its networks.
      depth: hidden layers of its networks.
      time_network: ``"linear"``, ``"tanh"`` or ``"fourier"``; see :class:`ctfno_jax.models.neural_flow.Flow`.
    """

    num_layers: int = 2
    width: int = 100
    depth: int = 2
    time_network: str = "linear"

    def check_fields(self) -> None:
        check_positive(self, ("num_layers", "width", "depth"))
        if self.time_network not in neural_flow.TIME_NETWORKS:
            known = ", ".join(neural_flow.TIME_NETWORKS)
            raise ValueError(f"time_network must be one of {known}, got {self.time_network!r}")

    @nn.compact
    def __call__(self, z0: Float[Array, "batch latent"], times: Times, decode: Decode) -> Array:
        del decode
        maps = neural_flow.Flow(
            z0.shape[-1], num_layers=self.num_layers, width=self.width, depth=self.depth,
            time_network=self.time_network, name="flow",
        )()  # fmt: skip
        t = times[None, :, None] if times.ndim == 1 else times[..., None]
        start = jnp.broadcast_to(z0[:, None], (len(z0), times.shape[-1], z0.shape[-1]))
        return neural_flow.flow(maps, start, t, kind="coupling", bounded=self.time_network == "tanh")


class GRUDynamics(nn.Module):
    """A recurrent network that goes from each query time to the next and reads its own decoded output.

    It is not continuous: what it answers at a time depends on which times are asked for before it.
    """

    @nn.compact
    def __call__(self, z0: Float[Array, "batch latent"], times: Times, decode: Decode) -> Array:
        latent = z0.shape[-1]
        every = jnp.broadcast_to(times, (len(z0), times.shape[-1]))
        order = jnp.argsort(every, axis=-1)
        ordered = jnp.take_along_axis(every, order, axis=-1)
        gaps = jnp.diff(ordered, axis=-1, prepend=jnp.zeros_like(ordered[:, :1]))
        features = jax.eval_shape(decode, z0).shape[-1]
        # As the encoder reads them: gap, values, and a mask of ones.
        input_weight, input_bias = layers.Affine(3 * latent, name="gru_input")(1 + 2 * features)
        state_weight, state_bias = layers.Affine(3 * latent, name="gru_state")(latent)

        def step(z: Array, gap: Array) -> tuple[Array, Array]:
            values = decode(z)
            inputs = jnp.concatenate([gap[:, None], values, jnp.ones_like(values)], axis=-1)
            z = recurrent.gru(z, inputs @ input_weight + input_bias, z @ state_weight + state_bias)
            return z, z

        _, z = jax.lax.scan(step, z0, gaps.T)
        z = jnp.swapaxes(z, 0, 1)
        return jnp.take_along_axis(z, jnp.argsort(order, axis=-1)[..., None], axis=1)
