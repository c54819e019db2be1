"""PhysioNet Challenge 2012: 41 parameters of intensive-care patients over 48 hours.

A record is a text file with lines ``HH:MM,parameter,value``. The protocol is that of Latent ODEs: times are rounded to
multiples of 0.016 hours, values of one parameter at one such time are averaged, and the 8,000 records of sets a and b
are shuffled and divided 80 to 20. The last tenth of the training records is the validation part.

The published loader begins every record with a row at time zero. All records have their descriptors there, so that row
is never empty; a record without a value at time zero is counted in ``info`` and begins with its first observation.
"""

import hashlib
import lzma
import math
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from ctfno_jax.data import cache, masked_series, splits
from ctfno_jax.data.masked_series import MaskedDataset, Part, Rows

NAME = "physionet"
PARAMETERS = (
    "Age", "Gender", "Height", "ICUType", "Weight", "Albumin", "ALP", "ALT", "AST", "Bilirubin", "BUN", "Cholesterol",
    "Creatinine", "DiasABP", "FiO2", "GCS", "Glucose", "HCO3", "HCT", "HR", "K", "Lactate", "Mg", "MAP", "MechVent",
    "Na", "NIDiasABP", "NIMAP", "NISysABP", "PaCO2", "PaO2", "pH", "Platelets", "RespRate", "SaO2", "SysABP", "Temp",
    "TroponinI", "TroponinT", "Urine", "WBC",
)  # fmt: skip
TASKS = ("interpolation", "prediction")
SPLITS = ("hours", "union")
NORMALIZATIONS = ("max", "range")
STATISTICS = ("all", "train")
SETS = ("ab", "a", "b")
HOURS = 48.0

_INDEX = {name: i for i, name in enumerate(PARAMETERS)}
_HEADER = "Time,Parameter,Value"
_RECORDS_PER_SET = 4000
_WHERE = (
    "they are part of the PhysioNet/Computing in Cardiology Challenge 2012, version 1.0.0: "
    "https://physionet.org/files/challenge-2012/1.0.0/set-a.tar.gz and set-b.tar.gz"
)
# Raised when the layout or meaning of the cached arrays changes.
_CACHE_VERSION = 1

# Arrays of all records one after another: ids and rows of the records, time of the rows, entries of the rows.
Pool = dict[str, np.ndarray]


def find_file(data_dir: str | Path | None = None) -> Path:
    """The folder with the sets: ``data_dir`` or ``CTFNO_DATA_DIR``, or its subfolder physionet2012 or physionet."""
    folder = data_dir if data_dir is not None else os.environ.get("CTFNO_DATA_DIR")
    if folder is None:
        raise ValueError(
            f"{NAME} is read from set-a.tar.gz and set-b.tar.gz; name their folder by --data_dir: {_WHERE}"
        )
    for place in (Path(folder), Path(folder) / "physionet2012", Path(folder) / NAME):
        if any(_source(place, letter) for letter in "ab"):
            return place
    raise ValueError(f"{folder} holds neither set-a.tar.gz nor a folder set-a; get the sets first: {_WHERE}")


def load(
    path: str | Path,
    *,
    seed: int = 1,
    with_test: bool = True,
    progress: cache.Progress | None = None,
    task: str = "interpolation",
    split: str = "hours",
    sets: str = "ab",
    quantization: float = 0.016,
    normalization: str = "max",
    statistics: str = "all",
) -> MaskedDataset:
    """Records with the published split; times are in units of 48 hours.

    Args:
      path: folder with the sets, as folders or archives.
      seed: not used; the split is the published one and nothing is drawn.
      with_test: return the test part.
      progress: called with the numbers of parsed and of all records the first time.
      task: ``"interpolation"``, where all points are observed and are targets, or ``"prediction"`` of later points.
      split: end of the observed points in prediction: at 24 ``"hours"``, or the middle of the sorted list of all times
        that occur in the part (``"union"``; the published code has that of a batch).
      sets: sets that are pooled, ``"ab"``, ``"a"`` or ``"b"``.
      quantization: hours between the times that observations are rounded to.
      normalization: ``"max"`` for the published ``(x - min) / max``, ``"range"`` for ``(x - min) / (max - min)``.
      statistics: minimum and maximum over ``"all"`` records, as published, or over the ``"train"`` part.
    """
    del seed
    _check_options(task, split, sets, quantization, normalization, statistics)
    sources = [_source(Path(path), letter) for letter in sets]
    for letter, source in zip(sets, sources, strict=True):
        if source is None:
            raise ValueError(f"{path} holds neither set-{letter}.tar.gz nor a folder set-{letter}; get it: {_WHERE}")
    pool = _cached_pool([source for source in sources if source is not None], quantization, progress)
    num_records = len(pool["lengths"])
    if num_records < 10:
        raise ValueError(f"{path} holds {num_records} records; at least 10 are needed")
    train, test = splits.shuffled(num_records)
    train, validation = splits.last_tenth(train)
    offset, scale = _scaling(pool, None if statistics == "all" else train, normalization)
    rows = _rows(pool, offset, scale, quantization)

    def part(index: np.ndarray) -> Part:
        some = rows.select(index)
        if task == "interpolation":
            every = some.padded()
            return Part(every, every)
        early = some.times < _cut(some.times, split)
        return Part(some.keep(early).padded(), some.keep(~early).padded())

    parts = (part(train), part(validation), part(test) if with_test else None)
    return MaskedDataset(
        NAME, task, *parts, PARAMETERS, tuple(map(float, offset)), tuple(map(float, scale)), time_unit=HOURS,
        time_name="h", subsample=0, num_classes=0, info=_facts(pool, parts),
        source=", ".join(source.name for source in sources if source is not None),
    )  # fmt: skip


# --- files ------------------------------------------------------------------------------------------------------------


def _source(folder: Path, letter: str) -> Path | None:
    """The folder or archive of a set."""
    name = f"set-{letter}"
    if (folder / name).is_dir():
        return folder / name
    archives = [f"{start}{name}.tar.{end}" for start in ("", "physionet2012-") for end in ("gz", "xz")]
    return next((folder / archive for archive in archives if (folder / archive).is_file()), None)


def read_records(source: Path) -> Iterator[tuple[str, str, str]]:
    """Id, name and text of each record of a folder or archive, in the order that they have there.

    Archives are read as a stream and never unpacked; ValueError if a member would lie outside of the archive's folder.
    """
    if source.is_dir():
        for path in sorted(source.glob("*.txt")):
            if re.fullmatch(r"\d+", path.stem):
                yield path.stem, str(path), path.read_text(errors="replace")
        return
    try:
        with tarfile.open(source, "r|*") as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts:
                    raise ValueError(f"{source}: the member {member.name!r} lies outside of the archive; get it again")
                if not member.isfile() or name.suffix != ".txt" or not re.fullmatch(r"\d+", name.stem):
                    continue
                file = archive.extractfile(member)
                assert file is not None  # a regular file
                yield name.stem, f"{source}: {member.name}", file.read().decode(errors="replace")
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{source} is damaged or cut short ({reason}); get it again: {_WHERE}") from error


def _digest(source: Path) -> str:
    """SHA-256 of an archive, or of names and contents of the records in a folder."""
    digest = hashlib.sha256()
    if source.is_dir():
        for path in sorted(source.glob("*.txt")):
            content = path.read_bytes()
            digest.update(f"{path.name} {len(content)}\n".encode())
            digest.update(content)
    else:
        with source.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


# --- parsing ----------------------------------------------------------------------------------------------------------


def _cached_pool(sources: list[Path], quantization: float, progress: cache.Progress | None) -> Pool:
    """The pool of the sources, from the cache where they were parsed before."""
    key = {
        "version": _CACHE_VERSION,
        "quantization": float(quantization),
        "sources": [_digest(source) for source in sources],
    }
    path = cache.folder_of(NAME, 0, key) / "pool.npz"
    pool = cache.read_arrays(path)
    if pool is None:
        pool = read_pool(sources, quantization, progress)
        cache.write_arrays(path, pool)
    return pool


def read_pool(sources: list[Path], quantization: float, progress: cache.Progress | None = None) -> Pool:
    """All records of the sources, those of each source in the order of their ids.

    Returns:
      ``ids`` and ``lengths`` (number of rows) of the records, ``bins`` of the rows, which are multiples of
      ``quantization``, and the observed entries: their ``row``, ``feature`` and ``value``. ``malformed`` counts
      malformed lines.
    """
    ids: list[int] = []
    malformed, columns = 0, []
    total = _RECORDS_PER_SET * len(sources)
    for source in sources:
        parsed = []
        for identity, name, text in read_records(source):
            *entries, wrong = _parse(name, text, quantization)
            malformed += wrong
            parsed.append((int(identity), entries))
            done = len(ids) + len(parsed)
            if progress is not None and done % 500 == 0:
                progress(done, max(done, total))
        if not parsed:
            raise ValueError(
                f"{source} holds no records, which are text files named by numbers; get it again: {_WHERE}"
            )
        for identity, entries in sorted(parsed, key=lambda record: record[0]):
            columns.append((len(ids), *entries))
            ids.append(identity)
    sizes = [len(entry[1]) for entry in columns]
    record = np.repeat(np.asarray([entry[0] for entry in columns], np.int64), sizes)
    bins, features, values = (np.concatenate([entry[i] for entry in columns]) for i in (1, 2, 3))
    return {"ids": np.asarray(ids, np.int64), **_averaged(record, bins, features, values, len(ids)),
            "malformed": np.asarray(malformed)}  # fmt: skip


def _parse(name: str, text: str, quantization: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Bins, parameters and values of the lines of a record, and the number of malformed lines."""
    lines = text.splitlines()
    if not lines or lines[0].strip() != _HEADER:
        raise ValueError(f"{name}, line 1: expected {_HEADER}, got {lines[0] if lines else ''!r}; get the set again")
    bins, features, values, malformed = [], [], [], 0
    known: dict[str, int | None] = {}
    for line in lines[1:]:
        fields = line.split(",")
        if len(fields) != 3:
            malformed += bool(line.strip())
            continue
        time, parameter, number = fields
        if time not in known:
            known[time] = _bin(time, quantization)
        feature, bin_ = _INDEX.get(parameter), known[time]
        if parameter == "RecordID" and bin_ is not None:
            continue
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if feature is None or bin_ is None or not math.isfinite(value):
            malformed += 1
            continue
        bins.append(bin_)
        features.append(feature)
        values.append(value)
    return np.asarray(bins, np.int64), np.asarray(features, np.int64), np.asarray(values, np.float64), malformed


def _bin(time: str, quantization: float) -> int | None:
    """The nearest multiple of ``quantization`` to a time ``HH:MM``; None if it is no such time."""
    match = re.fullmatch(r"(\d\d):([0-5]\d)", time)
    return None if match is None else round((int(match[1]) + int(match[2]) / 60) / quantization)


def _averaged(
    record: np.ndarray, bins: np.ndarray, features: np.ndarray, values: np.ndarray, num_records: int
) -> dict[str, np.ndarray]:
    """Rows and entries, with the mean of the values that a feature of a record has in one bin."""
    num_bins, num_features = int(bins.max(initial=0)) + 1, len(PARAMETERS)
    row_key = record * num_bins + bins
    row_keys, row = np.unique(row_key, return_inverse=True)
    entry_keys, entry = np.unique(row * num_features + features, return_inverse=True)
    mean = np.bincount(entry, values, len(entry_keys)) / np.bincount(entry, minlength=len(entry_keys))
    return {
        "lengths": np.bincount(row_keys // num_bins, minlength=num_records),
        "bins": (row_keys % num_bins).astype(np.int32),
        "row": (entry_keys // num_features).astype(np.int32),
        "feature": (entry_keys % num_features).astype(np.uint8),
        "value": mean.astype(np.float32),
    }


# --- arrays -----------------------------------------------------------------------------------------------------------


def _rows(pool: Pool, offset: np.ndarray, scale: np.ndarray, quantization: float) -> Rows:
    """Scaled rows of all records."""
    shape = (len(pool["bins"]), len(PARAMETERS))
    values, mask = np.zeros(shape, np.float32), np.zeros(shape, bool)
    feature = pool["feature"]
    values[pool["row"], feature] = (pool["value"] - offset[feature]) / scale[feature]
    mask[pool["row"], feature] = True
    return Rows(pool["lengths"], pool["bins"] * quantization / HOURS, values, mask)


def _scaling(pool: Pool, records: np.ndarray | None, how: str) -> tuple[np.ndarray, np.ndarray]:
    """Offset and scale of the observed entries of some records, or of all; 0 and 1 for features without any."""
    feature, value = pool["feature"], pool["value"]
    if records is not None:
        kept = np.isin(np.repeat(np.arange(len(pool["lengths"])), pool["lengths"])[pool["row"]], records)
        feature, value = feature[kept], value[kept]
    # Slices of the entries in the order of their feature; a feature without entries has an empty one.
    by_feature = np.split(
        value[np.argsort(feature, kind="stable")], np.cumsum(np.bincount(feature, minlength=len(PARAMETERS)))[:-1]
    )
    lowest, highest = (np.asarray([f(some) if len(some) else 0.0 for some in by_feature]) for f in (np.min, np.max))
    return masked_series.min_max_scaling(lowest, highest, how)


def _cut(times: np.ndarray, split: str) -> float:
    """The first time that is to be predicted."""
    if split == "hours":
        return 0.5 - 1e-9  # of 48 hours, up to rounding
    grid = np.unique(times)
    return float(grid[len(grid) // 2])


def _facts(pool: Pool, parts: tuple[Part, Part, Part | None]) -> dict[str, float]:
    lengths = pool["lengths"]
    starts = np.cumsum(lengths) - lengths
    begins = np.concatenate([pool["bins"], [-1]])[starts] == 0
    facts = {
        "num_records": len(lengths), "times_mean": lengths.mean(), "times_p99": np.percentile(lengths, 99),
        "times_max": lengths.max(), "share_observed": len(pool["value"]) / (len(pool["bins"]) * len(PARAMETERS)),
        "malformed_lines": pool["malformed"], "records_without_time_zero": np.sum(~begins | (lengths == 0)),
        "train": len(parts[0]), "validation": len(parts[1]), "test": 0 if parts[2] is None else len(parts[2]),
    }  # fmt: skip
    return {name: float(value) for name, value in facts.items()}


def _check_options(task: str, split: str, sets: str, quantization: float, normalization: str, statistics: str) -> None:
    for option, value, known in (
        ("task", task, TASKS), ("split", split, SPLITS), ("sets", sets, SETS),
        ("normalization", normalization, NORMALIZATIONS), ("statistics", statistics, STATISTICS),
    ):  # fmt: skip
        masked_series.check_choice(NAME, option, value, known)
    if task == "interpolation" and split != "hours":
        raise ValueError(f"option split of dataset {NAME} belongs to task=prediction; remove it")
    number = isinstance(quantization, (int, float)) and not isinstance(quantization, bool)
    if not number or not 0 < quantization <= 1:
        raise ValueError(
            f"option quantization of dataset {NAME} must be hours above 0 and at most 1, got {quantization!r}"
        )
