"""A user's own irregular series: one CSV file in long or wide form.

* Long: the columns ``series,time,feature,value``, one observation per line.
* Wide: the columns ``series,time`` and one column per feature.

An empty cell, or ``nan``, is a missing value. Lines may be in any order, series may have different numbers of points,
and features may be observed at different times. Series are divided 80 to 10 to 10 by a seeded draw, which does not
depend on the order of the lines.
"""

import csv
import dataclasses
import math
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from ctfno_jax.data import cache, masked_series
from ctfno_jax.data.masked_series import MaskedDataset, Observations, Part, Rows

NAME = "csv"
TASKS = ("interpolation", "prediction")
CLOCKS = ("data", "series")
FEWEST_SERIES = 10
_LARGEST = float(np.finfo(np.float32).max)
_LONG = ["series", "time", "feature", "value"]
_HEADER = "the first line must be series,time,feature,value, or series,time and the names of the features"


@dataclasses.dataclass(frozen=True)
class Table:
    """Contents of a file: one entry for each observed value.

    Attributes:
      path: the file.
      names: names of the series, sorted.
      features: names of the features, in the order of the columns, or sorted in long form.
      lines: line on which each series begins.
      series: series of each entry, as an index of ``names``.
      times: time of each entry.
      feature: feature of each entry, as an index of ``features``.
      values: value of each entry.
      line: line of each entry.
    """

    path: Path
    names: tuple[str, ...]
    features: tuple[str, ...]
    lines: tuple[int, ...]
    series: Int[np.ndarray, " entries"]
    times: Float[np.ndarray, " entries"]
    feature: Int[np.ndarray, " entries"]
    values: Float[np.ndarray, " entries"]
    line: Int[np.ndarray, " entries"]


def find_file(data_dir: str | Path | None = None) -> Path:
    """The file that ``data_dir`` names, or the only CSV file in that folder."""
    if data_dir is None:
        raise ValueError(f"dataset {NAME} is a file of your own; name it by --data_dir=mine.csv")
    path = Path(data_dir)
    if path.is_file():
        return path
    if not path.is_dir():
        raise ValueError(f"{path}: there is no such file; name a CSV file, or a folder with one, by --data_dir")
    found = sorted(path.glob("*.csv"))
    if len(found) != 1:
        names = ", ".join(file.name for file in found[:5]) or "none"
        raise ValueError(f"{path} must hold one CSV file, got {names}; name the file itself by --data_dir")
    return found[0]


def load(
    path: str | Path,
    *,
    seed: int = 1,
    with_test: bool = True,
    progress: cache.Progress | None = None,
    task: str = "interpolation",
    observed: float = 0.5,
    horizon: float = 0.5,
    clock: str = "data",
    time_name: str = "",
) -> MaskedDataset:
    """Series of a file, z-scored by the observed training entries, with times in units of the training span.

    Args:
      path: the file.
      seed: seed of the split and of the observed points.
      with_test: return the test part.
      progress: not used; a file is read at once.
      task: ``"interpolation"`` of all points from some of them, or ``"prediction"`` of the later points.
      observed: interpolation: share of the points of each series that are observed, at least one, drawn once.
      horizon: prediction: part of the time span of each series that is observed.
      clock: time zero is the first time of the training ``"data"``, or the first time of each ``"series"``.
      time_name: unit of the times, such as ``"s"``.
    """
    del progress
    _check_options(task, observed, horizon, clock)
    table = read(path)
    split_rng, *draw_rngs = np.random.default_rng(seed).spawn(4)
    train, validation, test = _split(len(table.names), split_rng)
    offset, scale = _scaling(table, train)
    rows, start, unit = _timed(_rows(table, offset, scale), table, train, clock)
    if task == "prediction" and np.any(rows.lengths == 1):
        first = int(np.argmax(rows.lengths == 1))
        raise ValueError(
            f"{table.path}, line {table.lines[first]}: series {table.names[first]!r} has observations at one time "
            "only, prediction needs two; remove that series"
        )

    def part(index: np.ndarray, rng: np.random.Generator) -> Part:
        some = rows.select(index)
        if task == "prediction":
            first, last = some.times[some.starts], some.times[some.starts + some.lengths - 1]
            # The margin is for points exactly at the end of the observed span, as on regular grids.
            end = first + (horizon + 1e-9) * (last - first)
            early = (some.times <= end[some.series]) & (some.times < last[some.series])
            return Part(some.keep(early).padded(), some.keep(~early).padded())
        every = some.padded()
        if observed == 1:
            return Part(every, every)
        counts = np.maximum(np.floor(observed * some.lengths + 1e-9).astype(int), 1)
        return Part(masked_series.subsample(every, counts, rng), every)

    parts = (
        part(train, draw_rngs[0]), part(validation, draw_rngs[1]), part(test, draw_rngs[2]) if with_test else None,
    )  # fmt: skip
    info = {
        "num_series": len(rows.lengths), "num_features": len(table.features), "first_time": table.times.min(),
        "last_time": table.times.max(), "points_mean": rows.lengths.mean(), "points_min": rows.lengths.min(),
        "points_max": rows.lengths.max(), "share_observed": rows.mask.mean(), "train": len(train),
        "validation": len(validation), "test": len(test) if with_test else 0,
    }  # fmt: skip
    return MaskedDataset(
        NAME, task, *parts, table.features, tuple(map(float, offset)), tuple(map(float, scale)), time_unit=unit,
        time_name=time_name, subsample=0, num_classes=0, info={name: float(value) for name, value in info.items()},
        source=table.path.name, time_offset=start,
    )  # fmt: skip


# --- the file ---------------------------------------------------------------------------------------------------------


def read(path: str | Path, fewest: int = FEWEST_SERIES) -> Table:
    """The contents of a file; ValueError with the line for anything that is not as described above.

    Args:
      path: the file.
      fewest: series that there must be.
    """
    path = Path(path)
    begins: dict[str, int] = {}
    entries: list[tuple[str, float, str, float, int]] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = _header(path, next(reader, None))
            features = set() if header == _LONG else set(header[2:])
            for row in reader:
                if not any(cell.strip() for cell in row):
                    continue
                line = reader.line_num
                series, cells = _cells(path, line, header, row)
                begins.setdefault(series, line)
                features.update(name for _, name, _ in cells)
                entries += [(series, time, name, value, line) for time, name, value in cells if not math.isnan(value)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a CSV file of UTF-8 text: {' '.join(str(error).split())}") from error
    order = tuple(sorted(features)) if header == _LONG else tuple(header[2:])
    table = _table(path, begins, order, entries)
    _check(table, fewest)
    return table


def observations(table: Table, features: tuple[str, ...]) -> Observations:
    """All points of a file as they are, in real units, for a model that was trained on these features."""
    if sorted(table.features) != sorted(features):
        raise ValueError(
            f"{table.path} has the features {', '.join(table.features)}; the run was trained on {', '.join(features)}"
        )
    place = np.asarray([features.index(name) for name in table.features])
    table = dataclasses.replace(table, features=features, feature=place[table.feature])
    return _rows(table, np.zeros(len(features)), np.ones(len(features))).padded()


def _header(path: Path, row: list[str] | None) -> list[str]:
    """Names of the columns."""
    if row is None or not any(row):
        raise ValueError(f"{path} is empty; {_HEADER}")
    names = [cell.strip() for cell in row]
    if names[:2] != _LONG[:2] or len(names) < 3 or not all(names):
        raise ValueError(f"{path}, line 1: {_HEADER}, got {','.join(row)!r}")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{path}, line 1: the column {repeated[0]!r} is there twice; rename one")
    return names


def _cells(path: Path, line: int, header: list[str], row: list[str]) -> tuple[str, list[tuple[float, str, float]]]:
    """Name of the series, and time, feature and value of each cell of a line; NaN for a missing value."""
    if len(row) != len(header):
        raise ValueError(f"{path}, line {line}: expected {len(header)} columns, got {len(row)}")
    series, time, *rest = (cell.strip() for cell in row)
    if not series:
        raise ValueError(f"{path}, line {line}: the name of the series is missing")
    at = _number(path, line, "time", time)
    if math.isnan(at):
        raise ValueError(f"{path}, line {line}: the time is missing")
    pairs = [(rest[0], rest[1])] if header == _LONG else zip(header[2:], rest, strict=True)
    cells = [(at, name, _number(path, line, name, text)) for name, text in pairs]
    if not cells[0][1]:
        raise ValueError(f"{path}, line {line}: the name of the feature is missing")
    return series, cells


def _number(path: Path, line: int, name: str, text: str) -> float:
    """The number, or NaN for an empty cell."""
    try:
        number = float(text) if text else math.nan
    except ValueError:
        raise ValueError(f"{path}, line {line}: {name} must be a number, got {text!r}") from None
    if abs(number) > _LARGEST:
        raise ValueError(f"{path}, line {line}: {name} is infinite or beyond float32, got {text!r}; leave it empty")
    return number


def _table(
    path: Path, begins: dict[str, int], features: tuple[str, ...], entries: list[tuple[str, float, str, float, int]]
) -> Table:
    """The entries in the order of series, time and feature."""
    names = tuple(sorted(begins))
    number, column = ({name: i for i, name in enumerate(known)} for known in (names, features))
    series = np.asarray([number[entry[0]] for entry in entries], int)
    feature = np.asarray([column[entry[2]] for entry in entries], int)
    times, values = (np.asarray([entry[i] for entry in entries], np.float64) for i in (1, 3))
    line = np.asarray([entry[4] for entry in entries], int)
    order = np.lexsort((feature, times, series))
    sorted_arrays = (array[order] for array in (series, times, feature, values, line))
    return Table(path, names, features, tuple(begins[name] for name in names), *sorted_arrays)


def _check(table: Table, fewest: int) -> None:
    """Raises ValueError for what makes a file useless as a whole."""
    path = table.path
    if not table.names:
        raise ValueError(f"{path} has no line after the first; add observations")
    counts = np.bincount(table.series, minlength=len(table.names))
    if np.any(counts == 0):
        empty = int(np.argmax(counts == 0))
        raise ValueError(
            f"{path}, line {table.lines[empty]}: series {table.names[empty]!r} has no observation; remove it"
        )
    unseen = np.bincount(table.feature, minlength=len(table.features)) == 0
    if np.any(unseen):
        raise ValueError(f"{path}: feature {table.features[int(np.argmax(unseen))]!r} is never observed; remove it")
    keys = (table.series, table.times, table.feature)
    twice = np.all([key[1:] == key[:-1] for key in keys], axis=0)
    if np.any(twice):
        i = int(np.argmax(twice))
        first, second = sorted((int(table.line[i]), int(table.line[i + 1])))
        raise ValueError(
            f"{path}, line {second}: feature {table.features[table.feature[i]]!r} of series "
            f"{table.names[table.series[i]]!r} has a value at time {table.times[i]:g} on line {first} already; keep one"
        )
    if len(table.names) < fewest:
        raise ValueError(f"{path} holds {len(table.names)} series; at least {fewest} are needed")


# --- arrays -----------------------------------------------------------------------------------------------------------


def _split(num_series: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices of training, validation and test series, 80 to 10 to 10."""
    order, tenth = rng.permutation(num_series), num_series // 10
    return np.sort(order[2 * tenth :]), np.sort(order[tenth : 2 * tenth]), np.sort(order[:tenth])


def _scaling(table: Table, train: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each feature over the training entries."""
    offset, scale = np.empty(len(table.features)), np.empty(len(table.features))
    used = np.isin(table.series, train)
    for i, name in enumerate(table.features):
        values = table.values[used & (table.feature == i)]
        if not len(values):
            raise ValueError(
                f"{table.path}: feature {name!r} is observed in no training series; remove it or take another seed"
            )
        offset[i], scale[i] = values.mean(), values.std() or 1.0
    return offset, scale


def _rows(table: Table, offset: np.ndarray, scale: np.ndarray) -> Rows:
    """One row for each time of a series, with scaled values."""
    new = np.ones(len(table.series), bool)
    new[1:] = (table.series[1:] != table.series[:-1]) | (table.times[1:] != table.times[:-1])
    row = np.cumsum(new) - 1
    values = np.zeros((int(new.sum()), len(table.features)))
    mask = np.zeros(values.shape, bool)
    values[row, table.feature] = (table.values - offset[table.feature]) / scale[table.feature]
    mask[row, table.feature] = True
    return Rows(np.bincount(table.series[new], minlength=len(table.names)), table.times[new], values, mask)


def _timed(rows: Rows, table: Table, train: np.ndarray, clock: str) -> tuple[Rows, float, float]:
    """Rows in units of the span of the training times, the real time of time zero, and the unit."""
    times, start = rows.times, 0.0
    if clock == "series":
        times = times - times[rows.starts][rows.series]
    training = times[np.isin(rows.series, train)]
    if clock == "data":
        start = float(training.min())
    unit = float(training.max() - start) or 1.0
    scaled = (times - start) / unit
    same = (np.diff(scaled.astype(np.float32)) <= 0) & (np.diff(rows.series) == 0)
    if np.any(same):
        i = int(np.argmax(same))
        raise ValueError(
            f"{table.path}: times {rows.times[i]:.12g} and {rows.times[i + 1]:.12g} of series "
            f"{table.names[rows.series[i]]!r} are too close for float32 in a span of {unit:g}; "
            "join these points, or count times per series by clock=series"
        )
    return dataclasses.replace(rows, times=scaled), start, unit


def _check_options(task: str, observed: float, horizon: float, clock: str) -> None:
    masked_series.check_choice(NAME, "task", task, TASKS)
    masked_series.check_choice(NAME, "clock", clock, CLOCKS)
    masked_series.check_share(NAME, "observed", observed)
    masked_series.check_share(NAME, "horizon", horizon, below_one=True)
    for option, value, owner in (("observed", observed, "interpolation"), ("horizon", horizon, "prediction")):
        if task != owner and value != 0.5:
            raise ValueError(f"option {option} of dataset {NAME} belongs to task={owner}; remove it")
