"""Vector-valued series: observations, query times, and the values at the query times."""

import dataclasses

import numpy as np
from jaxtyping import Float


@dataclasses.dataclass(frozen=True)
class Series:
    """Observations and the values that follow them.

    Attributes:
      observed_times: increasing times of the observations, ``(steps,)`` shared by all series or ``(batch, steps)``.
      observed: values at these times, ``(batch, steps, features)``.
      times: query times, ``(time,)`` or ``(batch, time)``. Both kinds of times count from the last observation, unless
        the data set says otherwise.
      values: values at the query times, ``(batch, time, features)``.
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
        """All series share their observation times, so a model does not need them as an input."""
        return self.observed_times.ndim == 1

    def select(self, index: np.ndarray | slice) -> "Series":
        """The series at ``index``."""
        observed_times, times = (t if t.ndim == 1 else t[index] for t in (self.observed_times, self.times))
        return Series(observed_times, self.observed[index], times, self.values[index])

    def inputs(self, *, with_times: bool) -> Float[np.ndarray, "batch steps inputs"]:
        """Input of a model: the observations, with their times as a last feature if ``with_times``."""
        if not with_times:
            return self.observed
        times = np.broadcast_to(self.observed_times, self.observed.shape[:2])
        return np.concatenate([self.observed, times[..., None].astype(self.observed.dtype)], axis=-1)


@dataclasses.dataclass(frozen=True)
class SeriesDataset:
    """Three disjoint sets of series.

    Attributes:
      name: name of the problem.
      train: training series.
      validation: series that select the best state of a run.
      test: series for the final evaluation; None if they were not loaded.
      info: facts to log.
      scaled: values are of order one; if False, tasks normalise them by statistics of the training set.
      source: "generated", or the name of the file.
    """

    name: str
    train: Series
    validation: Series
    test: Series | None
    info: dict[str, float]
    scaled: bool = True
    source: str = "generated"


def observe(
    times: Float[np.ndarray, " points"] | Float[np.ndarray, "batch points"],
    values: Float[np.ndarray, "batch points features"],
    num_observed: int,
    *,
    from_last: bool = True,
) -> Series:
    """Series whose first ``num_observed`` points are observations and whose other points are queries.

    Args:
      times: increasing times of all points.
      values: values at these times.
      num_observed: number of observations.
      from_last: shift times so that the last observation is at 0.
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
