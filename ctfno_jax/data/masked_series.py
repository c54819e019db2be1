"""Irregular, partly observed, multivariate time series: points with a time each and a mask over their features."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

TASKS = ("interpolation", "prediction", "classification")
NO_LABEL = -1


@dataclasses.dataclass(frozen=True)
class Observations:
    """Observed points of several series, padded to a common number of steps.

    Attributes:
      times: times of the steps, ``(batch, steps)``, float32. They increase over the valid steps of a series. Padding
        steps follow the valid ones and repeat the last valid time; a series without observations has zeros only.
      values: ``(batch, steps, features)``, float32, zero where not observed.
      mask: 1 where a value was observed, else 0, ``(batch, steps, features)``, float32.
    """

    times: Float[np.ndarray, "batch steps"]
    values: Float[np.ndarray, "batch steps features"]
    mask: Float[np.ndarray, "batch steps features"]

    def __post_init__(self) -> None:
        for name in ("times", "values", "mask"):
            array = getattr(self, name)
            if array.dtype != np.float32:
                raise ValueError(f"{name} must be of dtype float32, got {array.dtype}")
        shape = self.values.shape
        if len(shape) != 3 or self.mask.shape != shape or self.times.shape != shape[:2]:
            raise ValueError(
                "times, values and mask must have the shapes (batch, steps), (batch, steps, features) and "
                f"(batch, steps, features), got {self.times.shape}, {shape} and {self.mask.shape}"
            )
        for name in ("times", "values"):
            if not np.all(np.isfinite(getattr(self, name))):
                raise ValueError(f"{name} contains numbers that are not finite; mark those points as not observed")
        if not np.all((self.mask == 0) | (self.mask == 1)):
            raise ValueError("mask must contain only 0 and 1")
        if np.any((self.mask == 0) & (self.values != 0)):
            raise ValueError("values must be zero where mask is zero")
        self._check_order()

    def _check_order(self) -> None:
        valid = self.valid
        if np.any(valid[:, 1:] & ~valid[:, :-1]):
            raise ValueError("steps without any observation must follow all others of their series")
        steps = np.diff(self.times, axis=1)
        if np.any(valid[:, 1:] & (steps <= 0)):
            series = int(np.argmax(np.any(valid[:, 1:] & (steps <= 0), axis=1)))
            raise ValueError(f"times must increase from each step to the next, series {series} does not; sort it")
        if np.any(~valid[:, 1:] & (steps != 0)) or np.any(~valid[:, :1] & (self.times[:, :1] != 0)):
            raise ValueError("times of padding steps must repeat the last valid time, or be zero if there is none")

    def __len__(self) -> int:
        return len(self.values)

    @property
    def features(self) -> int:
        return self.values.shape[-1]

    @property
    def steps(self) -> int:
        return self.values.shape[1]

    @property
    def valid(self) -> Bool[np.ndarray, "batch steps"]:
        """Steps at which anything is observed."""
        return np.any(self.mask != 0, axis=-1)

    @property
    def num_valid(self) -> Int[np.ndarray, " batch"]:
        """Number of valid steps of each series."""
        return np.sum(self.valid, axis=1)

    def select(self, index: np.ndarray | slice) -> "Observations":
        """The series at ``index``."""
        return Observations(self.times[index], self.values[index], self.mask[index])

    def packed(self) -> Float[np.ndarray, "batch steps inputs"]:
        """Time, values and mask side by side, ``(batch, steps, 1 + 2 * features)``: the input of a latent model."""
        return np.concatenate([self.times[..., None], self.values, self.mask], axis=-1)

    @staticmethod
    def from_packed(packed: Float[np.ndarray, "batch steps inputs"]) -> "Observations":
        """The inverse of :meth:`packed`."""
        if packed.ndim != 3 or packed.shape[-1] % 2 == 0 or packed.shape[-1] < 3:
            raise ValueError(
                f"packed observations must have shape (batch, steps, 1 + 2 * features), got {packed.shape}"
            )
        features = packed.shape[-1] // 2
        return Observations(packed[..., 0], packed[..., 1 : 1 + features], packed[..., 1 + features :])

    def padded(self, steps: int) -> "Observations":
        """The same series with padding up to ``steps`` steps."""
        more = steps - self.steps
        if more < 0:
            raise ValueError(f"steps must be at least {self.steps}, the steps there are, got {steps}")
        if not more:
            return self
        last = self.times[:, -1:] if self.steps else np.zeros((len(self), 1), np.float32)
        times = np.concatenate([self.times, np.repeat(last, more, axis=1)], axis=1)
        values, mask = (np.pad(array, ((0, 0), (0, more), (0, 0))) for array in (self.values, self.mask))
        return Observations(times, values, mask)

    def trimmed(self) -> "Observations":
        """The same series without the padding steps that none of them needs; at least one step remains."""
        steps = max(int(np.max(self.num_valid, initial=0)), 1)
        if steps >= self.steps:
            return self
        arrays = (np.ascontiguousarray(array[:, :steps]) for array in (self.times, self.values, self.mask))
        return Observations(*arrays)

    @staticmethod
    def concatenate(several: Sequence["Observations"]) -> "Observations":
        """All series one after another, padded to the longest."""
        if not several:
            raise ValueError("there must be at least one set of observations to concatenate")
        if len({some.features for some in several}) > 1:
            found = ", ".join(str(some.features) for some in several)
            raise ValueError(f"observations must have the same number of features, got {found}")
        steps = max(some.steps for some in several)
        padded = [some.padded(steps) for some in several]
        names = ("times", "values", "mask")
        return Observations(*(np.concatenate([getattr(some, name) for some in padded]) for name in names))


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of several series one after another, without padding.

    Attributes:
      lengths: number of rows of each series, ``(batch,)``; their sum is the number of rows.
      times: time of each row, increasing within a series, ``(rows,)``.
      values: value of each feature, ignored where not observed, ``(rows, features)``.
      mask: observed features, at least one in each row, ``(rows, features)``.
    """

    lengths: Int[np.ndarray, " batch"]
    times: Float[np.ndarray, " rows"]
    values: Float[np.ndarray, "rows features"]
    mask: Bool[np.ndarray, "rows features"]

    @property
    def series(self) -> Int[np.ndarray, " rows"]:
        """Index of the series that each row belongs to."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def starts(self) -> Int[np.ndarray, " batch"]:
        """Index of the first row of each series."""
        return np.cumsum(self.lengths) - self.lengths

    def select(self, index: np.ndarray) -> "Rows":
        """The series at ``index``."""
        lengths = self.lengths[index]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        rows = np.repeat(self.starts[index], lengths) + within
        return Rows(lengths, self.times[rows], self.values[rows], self.mask[rows])

    def keep(self, rows: Bool[np.ndarray, " rows"]) -> "Rows":
        """The same series with the chosen rows only."""
        lengths = np.bincount(self.series[rows], minlength=len(self.lengths))
        return Rows(lengths, self.times[rows], self.values[rows], self.mask[rows])

    def padded(self) -> Observations:
        """The same series, padded to the longest."""
        steps = max(int(np.max(self.lengths, initial=0)), 1)
        series, step = self.series, np.arange(len(self.times)) - np.repeat(self.starts, self.lengths)
        shape = (len(self.lengths), steps, self.values.shape[-1])
        times, values, mask = (np.zeros(axes, np.float32) for axes in (shape[:2], shape, shape))
        times[series, step] = self.times
        values[series, step] = np.where(self.mask, self.values, 0)
        mask[series, step] = self.mask
        return Observations(_repeat_last(times, self.lengths), values, mask)


def subsample(
    observations: Observations, count: int | Int[np.ndarray, " batch"], rng: np.random.Generator
) -> Observations:
    """Random valid steps of every series, in order of time, padded to the largest count.

    Args:
      observations: series to draw from.
      count: number of steps to keep, one for all series or one for each; all steps of a series that has fewer.
      rng: generator of the draws.
    """
    counts = np.broadcast_to(np.asarray(count), (len(observations),))
    if np.any(counts < 1):
        raise ValueError(f"count must be at least 1, got {int(counts.min())}")
    steps, valid = int(counts.max(initial=1)), observations.valid
    # Valid steps in random order first, then the others; of each series the first ``counts`` are kept.
    order = np.argsort(np.where(valid, rng.random(valid.shape), 2.0), axis=1)[:, :steps]
    kept = np.minimum(counts, observations.num_valid)
    outside = np.arange(order.shape[1]) >= kept[:, None]
    order = np.sort(np.where(outside, observations.steps, order), axis=1)
    index = np.minimum(order, observations.steps - 1)
    inside = ~outside[..., None]
    times = _repeat_last(np.where(outside, 0, np.take_along_axis(observations.times, index, axis=1)), kept)
    values, mask = (
        np.where(inside, np.take_along_axis(array, index[..., None], axis=1), np.float32(0))
        for array in (observations.values, observations.mask)
    )
    return Observations(times, values, mask).padded(steps)


def _repeat_last(times: np.ndarray, lengths: np.ndarray) -> Float[np.ndarray, "batch steps"]:
    """Times whose steps from ``lengths`` on repeat the one before them; zero where the length is zero."""
    if not times.size:
        return times.astype(np.float32)
    last = np.take_along_axis(times, np.maximum(lengths - 1, 0)[:, None], axis=1)
    beyond = np.arange(times.shape[1]) >= lengths[:, None]
    return np.where(beyond, np.where(lengths[:, None] > 0, last, 0), times).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Part:
    """Series of one split: what a model reads, and what it is to predict.

    Attributes:
      observed: observations that the model reads.
      target: points at which it is evaluated; the same object as ``observed`` where these are the same points.
      labels: class of each target step, ``(batch, target steps)``, int32, -1 where there is none; None without classes.
    """

    observed: Observations
    target: Observations
    labels: Int[np.ndarray, "batch target_steps"] | None = None

    def __post_init__(self) -> None:
        observed, target = self.observed.values.shape, self.target.values.shape
        if (observed[0], observed[2]) != (target[0], target[2]):
            raise ValueError(
                "observed and target must have the same series and features, got values of shapes "
                f"{observed} and {target}"
            )
        if self.labels is None:
            return
        if self.labels.shape != target[:2] or self.labels.dtype != np.int32:
            raise ValueError(
                f"labels must be int32 of shape (batch, target steps) = {target[:2]}, "
                f"got {self.labels.dtype} of shape {self.labels.shape}"
            )
        if np.any(self.labels < NO_LABEL) or np.any(self.labels[~self.target.valid] != NO_LABEL):
            raise ValueError(f"labels must be classes from 0 on, and {NO_LABEL} at padding steps")

    def __len__(self) -> int:
        return len(self.target)

    def select(self, index: np.ndarray | slice) -> "Part":
        """The series at ``index``."""
        target = self.target.select(index)
        observed = target if self.observed is self.target else self.observed.select(index)
        return Part(observed, target, None if self.labels is None else self.labels[index])


@dataclasses.dataclass(frozen=True)
class MaskedDataset:
    """Three disjoint sets of partly observed series.

    Attributes:
      name: name of the problem.
      task: one of :data:`TASKS`.
      train: training series.
      validation: series that select the best state of a run.
      test: series for the final evaluation; None if they were not loaded.
      features: names of the features.
      offset: offset of each feature: a value in its own unit is ``value * scale + offset``.
      scale: scale of each feature.
      time_unit: real time is ``time * time_unit + time_offset``.
      time_name: unit of real time, such as "s" or "h"; empty if unknown.
      subsample: observed steps that training draws anew for every batch; 0 for all of them. Validation and test parts
        hold their draw.
      num_classes: number of classes; 0 without labels.
      info: counts to log.
      source: "generated", or the name of the file, with a note where the data differ from the official ones.
      time_offset: real time of time zero.
      class_names: names of the first classes, those that occur; empty if they have none.
    """

    name: str
    task: str
    train: Part
    validation: Part
    test: Part | None
    features: tuple[str, ...]
    offset: tuple[float, ...]
    scale: tuple[float, ...]
    time_unit: float
    time_name: str
    subsample: int
    num_classes: int
    info: dict[str, float]
    source: str
    time_offset: float = 0.0
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ValueError(f"task must be one of {', '.join(TASKS)}, got {self.task!r}")
        sizes = {"features": len(self.features), "offset": len(self.offset), "scale": len(self.scale)}
        for split in ("train", "validation", "test"):
            part = getattr(self, split)
            if part is None:
                continue
            sizes[split] = part.target.features
            if (part.labels is not None) != bool(self.num_classes):
                raise ValueError(f"labels and num_classes belong together, {split} has only one of them")
            if part.labels is not None and np.any(part.labels >= self.num_classes):
                raise ValueError(f"labels of {split} must be below num_classes={self.num_classes}")
        if len(set(sizes.values())) > 1:
            raise ValueError(f"the number of features must be the same everywhere, got {sizes}")
        if not self.time_unit > 0 or self.subsample < 0:
            raise ValueError(
                f"time_unit must be above zero and subsample at least zero, got {self.time_unit} and {self.subsample}"
            )


def check_choice(dataset: str, option: str, value: str, known: Sequence[str]) -> None:
    """Raises ValueError unless ``value`` is one of the known ones."""
    if value not in known:
        raise ValueError(f"option {option} of dataset {dataset} must be one of {', '.join(known)}, got {value!r}")


def check_share(dataset: str, option: str, value: float, *, least: float = 0.0, below_one: bool = False) -> None:
    """Raises ValueError unless ``value`` is a number above ``least`` and at most one, or below one."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not least < value <= 1 or (below_one and value == 1):
        end = "below 1" if below_one else "at most 1"
        raise ValueError(f"option {option} of dataset {dataset} must be above {least:g} and {end}, got {value!r}")


def min_max_scaling(
    lowest: np.ndarray, highest: np.ndarray, how: str
) -> tuple[Float[np.ndarray, " features"], Float[np.ndarray, " features"]]:
    """Offset and scale of ``(x - min) / max`` (``"max"``, the published habit) or of ``(x - min) / (max - min)``.

    A scale of zero is replaced by one.
    """
    scale = highest if how == "max" else highest - lowest
    return lowest, np.where(scale == 0, 1.0, scale)
