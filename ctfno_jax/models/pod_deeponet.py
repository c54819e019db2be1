"""POD-DeepONet: networks give the coefficients of modes that are taken from the training solutions."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.core import Tracer
from jaxtyping import Array, Float

from ctfno_jax.models.inputs import check_inputs, check_positive, float_inputs
from ctfno_jax.models.residual_mlp import ResidualMLP, residual_mlp
from ctfno_jax.models.sensors import check_channels, sensor_values
from ctfno_jax.ops import pod

# Snapshots from which the basis is computed; the covariance of more would not differ by much.
_MAX_SNAPSHOTS = 4096

# A query time is a time of the data if it is that close to it, in units of the time step.
_TIME_TOLERANCE = 1e-3


class PODBasis(nn.Module):
    """Mean and modes of the training solutions: constants of the model, found from data and not by descent.

    Attributes:
      shape: axes of one solution or of one snapshot.
      num_modes: number of modes.
    """

    shape: tuple[int, ...]
    num_modes: int

    @nn.compact
    def __call__(self) -> tuple[Float[Array, "*shape"], Float[Array, "*shape modes"]]:
        mean = self.variable("constants", "mean", jnp.zeros, self.shape)
        basis = self.variable("constants", "basis", jnp.zeros, (*self.shape, self.num_modes))
        return jax.lax.stop_gradient(mean.value), jax.lax.stop_gradient(basis.value)


class PODDeepONet(nn.Module):
    """Networks give the coefficients of the modes of the training solutions.

    With ``basis="snapshots"`` the modes are functions of x and the trunk carries time,
    ``u(x, t) = mean(x) + sum_k branch_k(u0) trunk_k(t) basis_k(x)``. With ``basis="space_time"`` they are functions of
    x and of the times of the data, ``u = mean + sum_k branch_k(u0) basis_k``, and only those times can be answered:
    others raise ValueError or, where times are traced and cannot be looked at, give NaN.

    Several output channels are one field of ``x * channels`` values with one set of coefficients, so that a mode
    couples the channels as the data do.

    The variables are ``{"params": ..., "constants": ...}``. After ``init`` the constants are zero, and so is the
    output: :meth:`initialize_from_data` fills them.

    Attributes:
      out_channels: channels of the solution.
      width: features of both networks.
      depth: residual blocks of two maps in each network.
      num_modes: modes of the basis.
      num_sensors: points of the grid, on which ``u0`` is read, the basis lives and the answer is given.
      time_scale: multiplies t before the trunk reads it.
      basis: ``"snapshots"`` or ``"space_time"``.
      num_times: times of the data, ``final_time * i / num_times`` for i from 1; read by ``"space_time"`` only.
      final_time: last time of the data; read by ``"space_time"`` only.
    """

    out_channels: int = 1
    width: int = 256
    depth: int = 6
    num_modes: int = 64
    num_sensors: int = 1024
    time_scale: float = 1.0
    basis: str = "snapshots"
    num_times: int = 50
    final_time: float = 2.5

    @nn.nowrap
    def check_fields(self) -> None:
        """Raises ValueError for hyper-parameters that are out of range."""
        positive = (
            "out_channels",
            "width",
            "depth",
            "num_modes",
            "num_sensors",
            "time_scale",
            "num_times",
            "final_time",
        )
        check_positive(self, positive)
        if self.basis not in ("snapshots", "space_time"):
            raise ValueError(f"basis must be one of snapshots, space_time, got {self.basis!r}")
        features = math.prod(self._shape())
        if self.num_modes > features:
            raise ValueError(f"num_modes={self.num_modes} must be at most the {features} values of one field")

    @nn.nowrap
    def answerable(self, times: np.ndarray) -> str | None:
        """None if all of ``times`` can be answered, otherwise a sentence that says which can."""
        if self.basis == "snapshots":
            return None
        _, on_grid = self._time_index(np.asarray(times, np.float64))
        if np.all(on_grid):
            return None
        step = self.final_time / self.num_times
        return (
            f"pod_deeponet with basis='space_time' answers only at the {self.num_times} times of its data, "
            f"{step:g}, {2 * step:g}, ..., {self.final_time:g}"
        )

    @nn.nowrap
    def initialize_from_data(self, variables: Mapping[str, Any], u0: Any, times: Any, u: Any) -> dict[str, Any]:
        """The variables with mean and modes of the given solutions, which must be the training set and normalised.

        Args:
          variables: as ``init`` returns them.
          u0: initial states, ``(samples, x, channels)``; not read.
          times: ``(time,)``.
          u: solutions, ``(samples, time, x, out_channels)``; x may be a multiple of ``num_sensors``.
        """
        del u0
        times, u = np.asarray(times), np.asarray(u)
        if u.ndim != 4 or u.shape[2] % self.num_sensors or u.shape[3] != self.out_channels:
            raise ValueError(
                f"u must have shape (samples, time, x, channels) with x a multiple of num_sensors={self.num_sensors} "
                f"and {self.out_channels} channels, got {u.shape}"
            )
        if times.shape != u.shape[1:2]:
            raise ValueError(f"times must have shape ({u.shape[1]},) to agree with u {u.shape}, got {times.shape}")
        u = u[:, :, :: u.shape[2] // self.num_sensors]
        if self.basis == "space_time":
            self._check_data_times(times)
        else:
            u = u.reshape(-1, *u.shape[2:])
        shape = self._shape()
        mean, basis, _ = pod.pod_basis(_some_rows(u).reshape(-1, math.prod(shape)), self.num_modes)
        constants = {
            "mean": jnp.asarray(mean.reshape(shape), float),
            "basis": jnp.asarray(basis.reshape(*shape, self.num_modes), float),
        }
        return {**variables, "constants": {"pod": constants}}

    def setup(self) -> None:
        self.check_fields()
        # The modes add up, and most of them are weak: with small coefficients at the start the error falls much faster.
        self.branch = ResidualMLP(self.width, self.depth, self.num_modes, 1 / self.num_modes)
        if self.basis == "snapshots":
            self.trunk = ResidualMLP(self.width, self.depth, self.num_modes)
        self.pod = PODBasis(self._shape(), self.num_modes)

    def __call__(
        self, u0: Float[Array, "batch x channels"], times: Float[Array, " time"] | Float[Array, "batch time"]
    ) -> Float[Array, "batch time x out_channels"]:
        """The solution at ``times``, shared by all samples or one grid of times per sample, in any order."""
        u0, times = check_inputs(u0, times, 1)
        if u0.shape[1] != self.num_sensors:
            raise ValueError(
                f"pod_deeponet answers only on its {self.num_sensors} training points, got a grid of {u0.shape[1]}; "
                "set num_sensors to the training grid and ask on that grid"
            )
        if not isinstance(times, Tracer) and not self.is_initializing():
            refusal = self.answerable(np.asarray(times))
            if refusal is not None:
                raise ValueError(f"{refusal}, got times {_first_few(times)}")
        with jax.default_matmul_precision("highest"):
            return self._solve(*float_inputs(u0, times))

    def _solve(self, u0: Array, times: Array) -> Array:
        a = sensor_values(u0, self.num_sensors)
        check_channels(self, self.branch, a.shape[-1], self.num_sensors)
        coefficients = residual_mlp(self.branch(a.shape[-1]), a)
        mean, basis = self.pod()
        if self.basis == "snapshots":
            in_time = residual_mlp(self.trunk(1), (times * self.time_scale)[..., None])
            product = coefficients[:, None] * in_time
            return jnp.einsum("btk,xck->btxc", product, basis) + mean
        index, on_grid = self._time_index(times)
        if times.ndim == 1:
            u = jnp.einsum("bk,txck->btxc", coefficients, basis[index]) + mean[index]
        else:
            block = jnp.einsum("bk,txck->btxc", coefficients, basis) + mean
            u = jnp.take_along_axis(block, index[..., None, None], axis=1)
        return jnp.where(on_grid[..., None, None], u, jnp.nan)

    @nn.nowrap
    def _shape(self) -> tuple[int, ...]:
        """Axes of what the basis is a basis of."""
        snapshot = (self.num_sensors, self.out_channels)
        return snapshot if self.basis == "snapshots" else (self.num_times, *snapshot)

    @nn.nowrap
    def _time_index(self, times: Any) -> tuple[Any, Any]:
        """Index of the nearest time of the data, and whether it is that time."""
        numpy = np if isinstance(times, np.ndarray) else jnp
        position = times * (self.num_times / self.final_time)
        nearest = numpy.clip(numpy.round(position), 1, self.num_times)
        return nearest.astype(numpy.int32) - 1, numpy.abs(position - nearest) < _TIME_TOLERANCE

    @nn.nowrap
    def _check_data_times(self, times: np.ndarray) -> None:
        index, on_grid = self._time_index(np.asarray(times, np.float64))
        if not np.all(on_grid) or not np.array_equal(index, np.arange(self.num_times)):
            raise ValueError(
                f"times of the data must be the {self.num_times} equally spaced ones up to {self.final_time:g}, got "
                f"{times.size}, {_first_few(times)}; set num_times and final_time to those of the data"
            )


def _some_rows(u: np.ndarray) -> np.ndarray:
    """At most ``_MAX_SNAPSHOTS`` rows, always the same ones; random, as a stride might always hit the same time."""
    if len(u) <= _MAX_SNAPSHOTS:
        return u
    return u[np.sort(np.random.default_rng(0).choice(len(u), _MAX_SNAPSHOTS, replace=False))]


def _first_few(times: Any) -> str:
    values = np.ravel(np.asarray(times))
    return ", ".join(f"{t:g}" for t in values[:3]) + (", ..." if values.size > 3 else "")
