"""Human Activity: positions of four tags on five persons, with the activity at every time.

The file is the "Localization Data for Person Activity" of the UCI repository. The protocol is that of Latent ODEs:
times are rounded to 10 milliseconds, positions of one tag at one such time are averaged, and the sequences are cut into
windows of 50 rows that begin every 25 rows. Eleven activities are merged into seven classes; published label vectors
have eleven entries, of which seven are used. Where the activity changes within 10 milliseconds, the lower class counts.
"""

import lzma
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ctfno_jax.data import cache, masked_series, splits
from ctfno_jax.data.masked_series import MaskedDataset, Observations, Part

NAME = "activity"
TASKS = ("classification",)
LABELS = ("merged", "published")
SPLITS = ("published", "person")
TAGS = {
    "010-000-024-033": "ankle_left", "010-000-030-096": "ankle_right", "020-000-033-111": "chest",
    "020-000-032-221": "belt",
}  # fmt: skip
FEATURES = tuple(f"{place}_{axis}" for place in TAGS.values() for axis in "xyz")
CLASSES = {
    "walking": 0, "falling": 1, "lying": 2, "lying down": 2, "sitting": 3, "sitting down": 3,
    "standing up from lying": 4, "standing up from sitting": 4, "standing up from sitting on the ground": 4,
    "on all fours": 5, "sitting on the ground": 6,
}  # fmt: skip
CLASS_NAMES = ("walking", "falling", "lying", "sitting", "standing up", "on all fours", "sitting on the ground")
# The published code has another spelling of this activity, and leaves it without a label.
_UNKNOWN_TO_PUBLISHED = "standing up from sitting on the ground"
# As many as there are activities, for comparability; classes from 7 on never occur.
NUM_CLASSES = 11
WINDOW = 50
STRIDE = 25
BIN_SECONDS = 0.01
# Bins of the longest window; Neural Flows divides times by it.
SPAN_BINS = 227

FILE = "ConfLongDemo_JSI.txt"
COPY = "human_activity_all_lowres.csv.xz"
_COPY_HEADER = "sequence,tag,x,y,z,activity,t_est_s"
_COPY_NOTE = "coordinates cut to 0.1 m, reconstructed times"
_WHERE = (
    f"{FILE} (21,546,346 bytes) is the Localization Data for Person Activity of the UCI Machine Learning Repository, "
    "data set 196: https://archive.ics.uci.edu/dataset/196"
)
_TAG_INDEX = {tag: i for i, tag in enumerate(TAGS)}


class Record(NamedTuple):
    """One line: sequence, such as A01, bin of its time, index of the tag, position, and class."""

    sequence: str
    bin: int
    tag: int
    position: tuple[float, float, float]
    label: int


class Windows(NamedTuple):
    """Windows of all sequences: their sequence and arrays with 50 rows each."""

    sequences: list[str]
    bins: np.ndarray
    values: np.ndarray
    mask: np.ndarray
    labels: np.ndarray


def find_file(data_dir: str | Path | None = None) -> Path:
    """The official file, or else the copy with coarse coordinates, in ``data_dir`` or ``CTFNO_DATA_DIR``.

    Both are also found in the subfolders human_activity and activity.
    """
    folder = data_dir if data_dir is not None else os.environ.get("CTFNO_DATA_DIR")
    if folder is None:
        raise ValueError(f"{NAME} is read from {FILE}; name its folder by --data_dir: {_WHERE}")
    for file in (FILE, COPY):
        for place in (Path(folder), Path(folder) / "human_activity", Path(folder) / NAME):
            if (place / file).is_file():
                return place / file
    raise ValueError(f"{folder} holds no {FILE}; get it first: {_WHERE}")


def load(
    path: str | Path,
    *,
    seed: int = 1,
    with_test: bool = True,
    progress: cache.Progress | None = None,
    task: str = "classification",
    split: str = "published",
    redrawn: bool = False,
    labels: str = "merged",
    validation_person: str = "D",
    test_person: str = "E",
) -> MaskedDataset:
    """Windows with a class at every time; times are in units of 227 bins, coordinates in metres.

    Args:
      path: the file.
      seed: seed of the windows that ``redrawn`` draws.
      with_test: return the test part.
      progress: not used; the file is read at once.
      task: ``"classification"``; all points are observed.
      split: ``"published"``, windows shuffled and divided 80 to 20, the last tenth of the training windows for
        validation: neighbouring windows share 25 rows and may be in different parts. ``"person"`` holds out all windows
        of one person for validation and of one for the test.
      redrawn: draw training and test windows with replacement from their own part, as the published code does.
      labels: ``"merged"`` for a class at every time; ``"published"`` leaves standing up from sitting on the ground
        without a label, as the published code does because of its spelling.
      validation_person: letter of the person that validates with ``split="person"``.
      test_person: letter of the person that tests with ``split="person"``.
    """
    del progress
    masked_series.check_choice(NAME, "task", task, TASKS)
    masked_series.check_choice(NAME, "split", split, SPLITS)
    masked_series.check_choice(NAME, "labels", labels, LABELS)
    if not isinstance(redrawn, bool):
        raise ValueError(f"option redrawn of dataset {NAME} must be true or false, got {redrawn!r}")
    if redrawn and split != "published":
        raise ValueError(f"option redrawn of dataset {NAME} belongs to split=published; remove it")
    if split != "person" and (validation_person, test_person) != ("D", "E"):
        raise ValueError(f"options validation_person and test_person of dataset {NAME} belong to split=person")
    path = Path(path)
    skipped = test_person if split == "person" and not with_test else None
    classes = CLASSES if labels == "merged" else {**CLASSES, _UNKNOWN_TO_PUBLISHED: NUM_CLASSES}
    windows, num_records, malformed = read_windows(path, classes, skipped)
    if split == "person":
        train, validation, test = _by_person(windows.sequences, validation_person, test_person, with_test)
    else:
        train, test = splits.shuffled(len(windows.sequences))
        train, validation = splits.last_tenth(train)
    if min(len(train), len(validation), len(test) if with_test else 1) < 1:
        raise ValueError(f"{path} holds {len(windows.sequences)} windows, too few for three parts; get the whole file")
    if redrawn:
        train_rng, test_rng = np.random.default_rng(seed).spawn(2)
        train, test = train_rng.choice(train, len(train)), test_rng.choice(test, len(test))
    parts = (_part(windows, train), _part(windows, validation), _part(windows, test) if with_test else None)
    partial = path.name == COPY
    info = {
        "num_records": num_records, "num_windows": len(windows.sequences), "malformed_lines": malformed,
        "bins_max": windows.bins.max(initial=0), "share_observed": windows.mask.mean(), "train": len(train),
        "validation": len(validation), "test": len(test) if with_test else 0,
    }  # fmt: skip
    if partial:
        info |= {"coordinates_cut_to_metres": 0.1, "reconstructed_times": 1}
    return MaskedDataset(
        NAME, task, *parts, FEATURES, (0.0,) * len(FEATURES), (1.0,) * len(FEATURES),
        time_unit=SPAN_BINS * BIN_SECONDS, time_name="s", subsample=0, num_classes=NUM_CLASSES,
        info={name: float(value) for name, value in info.items()},
        source=f"{path.name} ({_COPY_NOTE})" if partial else path.name, class_names=CLASS_NAMES,
    )  # fmt: skip


# --- the file ---------------------------------------------------------------------------------------------------------


def read_windows(
    path: Path, classes: Mapping[str, int] = MappingProxyType(CLASSES), skipped_person: str | None = None
) -> tuple[Windows, int, int]:
    """Windows of all sequences, the number of records and the number of malformed lines.

    Args:
      path: the official file or the copy.
      classes: class of each activity; ``NUM_CLASSES`` for no label.
      skipped_person: letter of a person whose lines are skipped.
    """
    sequences: dict[str, list[Record]] = {}
    malformed = 0
    for record in _records(path, classes, skipped_person):
        if record is None:
            malformed += 1
        else:
            sequences.setdefault(record.sequence, []).append(record)
    cut = [_windows(name, records) for name, records in sequences.items()]
    if not any(some.sequences for some in cut):
        raise ValueError(f"{path} holds no sequence of more than {WINDOW} rows; get the whole file: {_WHERE}")
    arrays = (np.concatenate([some[i] for some in cut]) for i in range(1, 5))
    windows = Windows([name for some in cut for name in some.sequences], *arrays)
    return windows, sum(map(len, sequences.values())), malformed


def _records(path: Path, classes: Mapping[str, int], skipped_person: str | None) -> Iterator[Record | None]:
    """The records of a file, None for a malformed line."""
    if path.name != COPY:
        yield from _official_records(path, classes, skipped_person)
        return
    try:
        with lzma.open(path, "rt") as file:
            header = file.readline().strip()
            if header != _COPY_HEADER:
                raise ValueError(f"{path}, line 1: expected {_COPY_HEADER}, got {header!r}; get the file again")
            for line in filter(str.strip, file):
                if skipped_person is None or not line.startswith(skipped_person):
                    sequence, tag, x, y, z, label, seconds = _fields(line, 7)
                    yield _record(sequence, _bin(seconds, 0.0, BIN_SECONDS), tag, (x, y, z), classes.get(label))
    except (lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged or cut short ({' '.join(str(error).split())}); get it again") from error


def _official_records(path: Path, classes: Mapping[str, int], skipped_person: str | None) -> Iterator[Record | None]:
    """Records of the official file, whose times count 100 nanoseconds from a common origin."""
    first: dict[str, str] = {}
    with path.open(errors="replace") as file:
        for line in filter(str.strip, file):
            if skipped_person is not None and line.startswith(skipped_person):
                continue
            sequence, tag, stamp, _, x, y, z, label = _fields(line, 8)
            start = first.setdefault(sequence, stamp) if _is_number(stamp) else ""
            yield _record(sequence, _bin(stamp, start, 1e7 * BIN_SECONDS), tag, (x, y, z), classes.get(label))


def _fields(line: str, count: int) -> list[str]:
    """The fields of a line, empty ones if it has not as many."""
    fields = [field.strip() for field in line.split(",")]
    return fields if len(fields) == count else [""] * count


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _bin(time: str, start: str | float, width: float) -> int | None:
    """Nearest bin of a time; None if it is not a number."""
    return round((float(time) - float(start)) / width) if _is_number(time) else None


def _record(
    sequence: str, bin_: int | None, tag: str, position: tuple[str, str, str], label: int | None
) -> Record | None:
    if not sequence or bin_ is None or tag not in _TAG_INDEX or label is None or not all(map(_is_number, position)):
        return None
    x, y, z = map(float, position)
    return Record(sequence, bin_, _TAG_INDEX[tag], (x, y, z), label)


# --- windows ----------------------------------------------------------------------------------------------------------


def _windows(sequence: str, records: list[Record]) -> Windows:
    """Windows of one sequence, with times from zero."""
    bins, row = np.unique([record.bin for record in records], return_inverse=True)
    tag = np.asarray([record.tag for record in records])
    total, count = np.zeros((len(bins), len(TAGS), 3)), np.zeros((len(bins), len(TAGS), 1))
    np.add.at(total, (row, tag), np.asarray([record.position for record in records]))
    np.add.at(count, (row, tag), 1)
    labels = np.full(len(bins), NUM_CLASSES, np.int32)
    np.minimum.at(labels, row, np.asarray([record.label for record in records], np.int32))
    labels[labels == NUM_CLASSES] = masked_series.NO_LABEL
    values = (total / np.maximum(count, 1)).reshape(len(bins), -1).astype(np.float32)
    mask = np.repeat(count > 0, 3, axis=2).reshape(len(bins), -1)
    # A window that would end with the last row is left out, as in the published code.
    starts = np.arange(0, len(bins) - WINDOW, STRIDE)
    rows = starts[:, None] + np.arange(WINDOW)
    return Windows([sequence] * len(starts), bins[rows] - bins[starts][:, None], values[rows], mask[rows], labels[rows])


def _part(windows: Windows, index: np.ndarray) -> Part:
    times = (windows.bins[index] / SPAN_BINS).astype(np.float32)
    points = Observations(times, windows.values[index], windows.mask[index].astype(np.float32))
    return Part(points, points, windows.labels[index])


def _by_person(
    sequences: list[str], validation_person: str, test_person: str, with_test: bool
) -> tuple[Int[np.ndarray, " windows"], Int[np.ndarray, " windows"], Int[np.ndarray, " windows"]]:
    """Windows of the other persons, of the one that validates, and of the one that tests."""
    persons = np.asarray([name[0] for name in sequences])
    # Without the test part, the lines of its person were not read.
    known = sorted({name[0] for name in sequences} | (set() if with_test else {test_person}))
    for option, person in (("validation_person", validation_person), ("test_person", test_person)):
        masked_series.check_choice(NAME, option, person, known)
    if validation_person == test_person:
        raise ValueError(f"validation_person and test_person must differ, got {test_person!r} twice")
    held_out = np.isin(persons, (validation_person, test_person))
    return (
        np.flatnonzero(~held_out),
        np.flatnonzero(persons == validation_person),
        np.flatnonzero(persons == test_person),
    )
