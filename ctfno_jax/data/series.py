"""Vector-valued series: what was observed, the times asked for, and the values there."""

import dataclasses

import numpy as np
from jaxtyping import Float

from ctfno_jax.data.normalization import ChannelStatistics, Normalization, channel_statistics


@dataclasses.dataclass(frozen=True)
class Series:
    """Observed points and what follows them. Times count from the last observation unless said otherwise.

    Attributes:
      observed_times: ``(steps,)`` for all or ``(batch, steps)`` for each, increasing.
      observed: values there, ``(batch, steps, features)``.
      times: query times, ``(time,)`` or ``(batch, time)``, positive.
      values: at those times, ``(batch, time, features)``.
    """

    observed_times: Float[np.ndarray, " steps"] | Float[np.ndarray, "batch steps"]
    observed: Float[np.ndarray, "batch steps features"]
    times: Float[np.ndarray, " time"] | Float[np.ndarray, "batch time"]
    values: Float[np.ndarray, "batch time features"]

    def __post_init__(self) -> None:
        batch, steps, features = self.observed.shape
        if self.observed_times.shape not in ((steps,), (batch, steps)):
            raise ValueError(
                f"observed_times must have shape ({steps},) or ({batch}, {steps}) to agree with observed "
                f"{self.observed.shape}, got {self.observed_times.shape}"
            )
        num_times = self.times.shape[-1] if self.times.ndim else 0
        if self.times.shape not in ((num_times,), (batch, num_times)) or self.values.shape != (
            batch, num_times, features,
        ):  # fmt: skip
            raise ValueError(
                f"values must have shape (batch, time, features) = {(batch, num_times, features)} to agree with "
                f"observed {self.observed.shape} and times {self.times.shape}, got {self.values.shape}"
            )
        for name in ("observed_times", "observed", "times", "values"):
            if not np.all(np.isfinite(getattr(self, name))):
                raise ValueError(f"{name} contains values that are not finite; remove those trajectories first")
        if np.any(np.diff(self.observed_times, axis=-1) <= 0):
            raise ValueError("observed_times must increase from each observation to the next; sort them, drop repeats")

    def __len__(self) -> int:
        return len(self.observed)

    @property
    def features(self) -> int:
        return self.observed.shape[-1]

    @property
    def regular(self) -> bool:
        """All trajectories are observed at the same times, so that a model need not be told them."""
        return self.observed_times.ndim == 1

    def select(self, index: np.ndarray | slice) -> "Series":
        """The trajectories at ``index``."""
        observed_times, times = (t if t.ndim == 1 else t[index] for t in (self.observed_times, self.times))
        return Series(observed_times, self.observed[index], times, self.values[index])

    def inputs(self, *, with_times: bool) -> Float[np.ndarray, "batch steps inputs"]:
        """What a model reads: the observed points, and the times of observation as a last feature if asked for."""
        if not with_times:
            return self.observed
        times = np.broadcast_to(self.observed_times, self.observed.shape[:2])
        return np.concatenate([self.observed, times[..., None].astype(self.observed.dtype)], axis=-1)


@dataclasses.dataclass(frozen=True)
class SeriesDataset:
    """Three disjoint sets of series, and facts worth logging.

    Attributes:
      name: of the data set.
      train: to learn from.
      validation: for choosing the best state.
      test: that nothing but the final evaluation sees.
      info: facts.
      scaled: values are of the order of one by construction; if not, runs normalise them by the training set.
    """

    name: str
    train: Series
    validation: Series
    test: Series
    info: dict[str, float]
    scaled: bool = True


def no_normalization(inputs: int, outputs: int) -> Normalization:
    """Statistics that change nothing."""
    return Normalization(*(ChannelStatistics((0.0,) * features, (1.0,) * features) for features in (inputs, outputs)))


def normalization_of(data: SeriesDataset, inputs: int) -> Normalization:
    """Statistics of the training set for models that read so many inputs, of which times of observation stay as are."""
    if data.scaled:
        return no_normalization(inputs, data.train.features)
    both = np.concatenate([data.train.observed, data.train.values], axis=1)
    values = channel_statistics(both)
    more = inputs - data.train.features
    return Normalization(ChannelStatistics(values.mean + (0.0,) * more, values.std + (1.0,) * more), values)


def observe(
    times: Float[np.ndarray, " points"] | Float[np.ndarray, "batch points"],
    values: Float[np.ndarray, "batch points features"],
    num_observed: int,
    *,
    from_last: bool = True,
) -> Series:
    """Trajectories cut after ``num_observed`` points: what is before is seen, what follows is asked for.

    Args:
      times: increasing.
      values: there.
      num_observed: points before the cut.
      from_last: count times from the last observation; else from the origin of the clock.
    """
    num_points = values.shape[1]
    if not 1 <= num_observed < num_points:
        raise ValueError(
            f"num_observed must be between 1 and {num_points - 1} of {num_points} points, got {num_observed}"
        )
    seen, asked = times[..., :num_observed], times[..., num_observed:]
    if from_last:
        seen, asked = seen - seen[..., -1:], asked - seen[..., -1:]
    single = lambda a: np.ascontiguousarray(a, np.float32)  # noqa: E731
    return Series(single(seen), single(values[:, :num_observed]), single(asked), single(values[:, num_observed:]))
