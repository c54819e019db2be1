"""Zero mean and unit standard deviation per channel, by statistics of the training data."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float


@dataclasses.dataclass(frozen=True)
class ChannelStatistics:
    """Mean and standard deviation of each channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not all(std > 0 for std in self.std):
            raise ValueError(
                f"mean and std must have one entry per channel and std must be positive, got {self.mean} and {self.std}"
            )

    def normalize(self, u: ArrayLike) -> Float[Array, "*lead channels"]:
        """``(u - mean) / std`` in the precision of ``u``."""
        u, mean, std = self._constants(u)
        return jnp.asarray((u - mean) / std)

    def denormalize(self, u: ArrayLike) -> Float[Array, "*lead channels"]:
        """``u * std + mean``, the inverse of :meth:`normalize`."""
        u, mean, std = self._constants(u)
        return jnp.asarray(u * std + mean)

    def _constants(self, u: ArrayLike) -> tuple[Any, Any, Any]:
        """``u`` as floats, and the statistics in its dtype."""
        # NumPy arrays stay on the host: XLA would multiply by the rounded reciprocal of std instead of dividing.
        xp: Any = np if isinstance(u, np.ndarray) else jnp
        fields = xp.asarray(u)
        if fields.shape[-1:] != (len(self.mean),):
            raise ValueError(f"fields must have {len(self.mean)} channels in their last axis, got shape {fields.shape}")
        dtype = fields.dtype if jnp.issubdtype(fields.dtype, jnp.floating) else np.dtype(np.float32)
        return xp.asarray(fields, dtype), xp.asarray(self.mean, dtype), xp.asarray(self.std, dtype)


@dataclasses.dataclass(frozen=True)
class Normalization:
    """A transform by the statistics of inputs and of outputs.

    Attributes:
      inputs: statistics of the initial states.
      outputs: statistics of the solutions.
    """

    inputs: ChannelStatistics
    outputs: ChannelStatistics

    def encode(self, u0: ArrayLike) -> Float[Array, "batch *space channels"]:
        return self.inputs.normalize(u0)

    def encode_times(self, times: ArrayLike) -> Array:
        return jnp.asarray(times)

    def encode_solution(self, u: ArrayLike) -> Float[Array, "batch time *space out_channels"]:
        return self.outputs.normalize(u)

    def decode(self, u: ArrayLike, grid: tuple[int, ...]) -> Float[Array, "batch time *space out_channels"]:
        del grid  # the same as that of u
        return self.outputs.denormalize(u)

    def encoded_grid(self, grid: tuple[int, ...]) -> tuple[int, ...]:
        return grid

    def gain(self, grid: tuple[int, ...]) -> float:
        """Largest output deviation over smallest input deviation."""
        del grid
        return max(self.outputs.std) / min(self.inputs.std)

    def to_dict(self) -> dict[str, Any]:
        statistics = {
            name: {"mean": list(s.mean), "std": list(s.std)}
            for name, s in (("inputs", self.inputs), ("outputs", self.outputs))
        }
        return {"kind": "normalization", **statistics}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Normalization":
        inputs, outputs = (
            ChannelStatistics(tuple(values[name]["mean"]), tuple(values[name]["std"])) for name in ("inputs", "outputs")
        )
        return cls(inputs, outputs)


def channel_statistics(u: ArrayLike) -> ChannelStatistics:
    """Statistics over all axes but the last, in float64; a constant channel gets standard deviation one."""
    u = np.asarray(u)
    axes = tuple(range(u.ndim - 1))
    mean = u.mean(axes, dtype=np.float64)
    std = u.std(axes, dtype=np.float64)
    std = np.where(std > 1e-12 * np.maximum(1.0, np.abs(mean)), std, 1.0)
    return ChannelStatistics(tuple(map(float, mean)), tuple(map(float, std)))


def fit(u0: ArrayLike, u: ArrayLike, *, shared: bool = False, centred: tuple[bool, ...] | None = None) -> Normalization:
    """Statistics of training trajectories.

    Args:
      u0: initial states, ``(batch, *space, channels)``.
      u: solutions, ``(batch, time, *space, out_channels)``.
      shared: use one set of statistics for inputs and outputs, so that an encoded solution is an encoded initial state.
        The first ``out_channels`` channels of ``u0`` must be those of ``u``; further ones are constants in time.
      centred: channels whose mean is zero by a symmetry of the equation; their mean is set to zero.
    """
    u0, u = np.asarray(u0), np.asarray(u)
    if shared:
        channels = u.shape[-1]
        both = channel_statistics(np.concatenate([u0[:, None, ..., :channels], u], axis=1))
        others = channel_statistics(u0[..., channels:])
        statistics = Normalization(ChannelStatistics(both.mean + others.mean, both.std + others.std), both)
    else:
        statistics = Normalization(channel_statistics(u0), channel_statistics(u))
    if centred is None:
        return statistics
    return Normalization(*(_centre(s, centred) for s in (statistics.inputs, statistics.outputs)))


def _centre(statistics: ChannelStatistics, centred: tuple[bool, ...]) -> ChannelStatistics:
    # Inputs may have further channels, which the symmetry leaves alone.
    mean = tuple(0.0 if i < len(centred) and centred[i] else m for i, m in enumerate(statistics.mean))
    return ChannelStatistics(mean, statistics.std)
