"""Per-channel mean and standard deviation, from training data only."""

import dataclasses

import numpy as np

from ctfno_jax.data import fields


@dataclasses.dataclass(frozen=True)
class ChannelStatistics:
    """Mean and standard deviation of each channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalize(self, u):
        """Zero mean and unit deviation, channel by channel."""
        return (u - np.asarray(self.mean, np.float32)) / np.asarray(self.std, np.float32)

    def denormalize(self, u):
        """Inverse of :meth:`normalize`."""
        return u * np.asarray(self.std, np.float32) + np.asarray(self.mean, np.float32)


@dataclasses.dataclass(frozen=True)
class Normalization:
    """Statistics of inputs and of outputs."""

    inputs: ChannelStatistics
    outputs: ChannelStatistics

    def to_dict(self) -> dict:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict) -> "Normalization":
        return cls(*(ChannelStatistics(**{k: tuple(v) for k, v in values[n].items()}) for n in ("inputs", "outputs")))


def channel_statistics(u: np.ndarray) -> ChannelStatistics:
    """Statistics over all axes but the last; a constant channel gets deviation one."""
    axes = tuple(range(u.ndim - 1))
    mean = u.mean(axes, dtype=np.float64)
    std = u.std(axes, dtype=np.float64)
    std = np.where(std > 1e-12 * np.maximum(1.0, np.abs(mean)), std, 1.0)
    return ChannelStatistics(tuple(map(float, mean)), tuple(map(float, std)))


def identity(in_channels: int, out_channels: int) -> Normalization:
    """For fields that are in units of their own already."""
    return Normalization(*(ChannelStatistics((0.0,) * n, (1.0,) * n) for n in (in_channels, out_channels)))


def fit(train: fields.Trajectories, *, shared: bool = False, centred: tuple[bool, ...] | None = None) -> Normalization:
    """Statistics of the training trajectories.

    Args:
      train: training trajectories.
      shared: one set of statistics for inputs and outputs, so that a solution can be an initial state again.
      centred: channels whose mean is zero by a symmetry of the equation, whatever it is in the sample.
    """
    if shared:
        channels = train.u.shape[-1]
        both = channel_statistics(np.concatenate([train.u0[:, None, ..., :channels], train.u], axis=1))
        # An initial state may have further channels, which do not change.
        others = channel_statistics(train.u0[..., channels:])
        statistics = Normalization(ChannelStatistics(both.mean + others.mean, both.std + others.std), both)
    else:
        statistics = Normalization(channel_statistics(train.u0), channel_statistics(train.u))
    if centred is None:
        return statistics
    return Normalization(*(_centre(s, centred) for s in (statistics.inputs, statistics.outputs)))


def _centre(statistics: ChannelStatistics, centred: tuple[bool, ...]) -> ChannelStatistics:
    # An input may have further channels, which no symmetry turns round.
    mean = tuple(0.0 if i < len(centred) and centred[i] else m for i, m in enumerate(statistics.mean))
    return ChannelStatistics(mean, statistics.std)
