"""A user's own series: both forms of the file, the split, the scaling, and one clear line for every mistake."""

from pathlib import Path

import numpy as np
import pytest

from ctfno_jax.data import problems
from ctfno_jax.data.masked_series import MaskedDataset
from ctfno_jax.data.readers import csv_series

COUNT = 20
WITHOUT_TEST = ("train", "validation")
PARTS = (*WITHOUT_TEST, "test")


def _entries() -> list[tuple[str, float, str, float]]:
    """Series of four to six points at times of their own; feature b is observed at every second point."""
    entries = []
    for i in range(COUNT):
        for j in range(4 + i % 3):
            time = 10 + 0.5 * i + j * (1 + 0.1 * i)
            entries.append((f"s{i:02d}", time, "a", 100.0 * i + j))
            if j % 2:
                entries.append((f"s{i:02d}", time, "b", -float(j)))
    return entries


def _long(path: Path, entries=None) -> Path:
    lines = [f"{series},{time},{name},{value}" for series, time, name, value in entries or _entries()]
    path.write_text("series,time,feature,value\n" + "\n".join(lines) + "\n")
    return path


def _wide(path: Path) -> Path:
    cells: dict[tuple[str, float], dict[str, float]] = {}
    for series, time, name, value in _entries():
        cells.setdefault((series, time), {})[name] = value
    lines = [f"{s},{t},{row.get('a', '')},{row.get('b', '')}" for (s, t), row in cells.items()]
    path.write_text("series,time,a,b\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def path(tmp_path) -> Path:
    return _long(tmp_path / "mine.csv")


def _load(path: Path, **options) -> MaskedDataset:
    data = problems.load_dataset("csv", data_dir=path, **options)
    assert isinstance(data, MaskedDataset)
    return data


def _points(data: MaskedDataset, observations, series: int) -> list[tuple[float, tuple]]:
    """Real time and real values of a series, None where not observed."""
    times = observations.times[series].astype(np.float64) * data.time_unit + data.time_offset
    values = observations.values[series].astype(np.float64) * data.scale + data.offset
    found = zip(times, values, observations.mask[series], observations.valid[series], strict=True)
    return [
        (round(float(t), 3), tuple(round(float(v), 3) if m else None for v, m in zip(row, mask, strict=True)))
        for t, row, mask, valid in found
        if valid
    ]


def _expected(number: int) -> list[tuple[float, tuple]]:
    points: dict[float, dict[str, float]] = {}
    for series, time, name, value in _entries():
        if series == f"s{number:02d}":
            points.setdefault(round(time, 3), {})[name] = value
    return [(time, (row.get("a"), row.get("b"))) for time, row in sorted(points.items())]


def _numbers(data: MaskedDataset, part) -> list[int]:
    """Numbers of the series of a part, from feature a of any point."""
    values = part.target.values[:, 0, 0].astype(np.float64) * data.scale[0] + data.offset[0]
    return ((values + 0.5) // 100).astype(int).tolist()


def _same(first: MaskedDataset, second: MaskedDataset, parts=PARTS) -> None:
    for name in parts:
        for some in ("observed", "target"):
            a, b = (getattr(getattr(data, name), some).packed() for data in (first, second))
            np.testing.assert_allclose(a, b, rtol=1e-6)


# --- files ------------------------------------------------------------------------------------------------------------


def test_points_of_every_series_are_those_of_the_file(path):
    data = _load(path)
    for name in PARTS:
        part = getattr(data, name)
        for i, number in enumerate(_numbers(data, part)):
            assert _points(data, part.target, i) == _expected(number)
    assert (data.features, data.source, data.subsample, data.num_classes) == (("a", "b"), "mine.csv", 0, 0)


def test_wide_and_long_form_and_any_order_of_lines_are_the_same(path, tmp_path):
    wide = _wide(tmp_path / "wide.csv")
    shuffled = np.random.default_rng(0).permutation(len(_entries()))
    mixed = _long(tmp_path / "mixed.csv", [_entries()[i] for i in shuffled])
    first = _load(path)
    _same(first, _load(wide))
    _same(first, _load(mixed))
    # Windows line ends, a byte-order mark, spaces, blank lines and nan are what other programs write.
    text = wide.read_text().replace(",\n", ",nan\n").replace(",", ", ").replace("\n", "\r\n\r\n")
    wide.write_bytes(b"\xef\xbb\xbf" + text.encode())
    _same(first, _load(wide))


def test_a_folder_with_one_file_will_do(path, tmp_path):
    _same(_load(path), _load(tmp_path))
    _long(tmp_path / "other.csv")
    with pytest.raises(ValueError, match=r"must hold one CSV file, got mine\.csv, other\.csv; name the file itself"):
        _load(tmp_path)
    with pytest.raises(ValueError, match="there is no such file; name a CSV file"):
        _load(tmp_path / "missing.csv")
    with pytest.raises(ValueError, match=r"dataset csv is a file of your own; name it by --data_dir=mine\.csv"):
        problems.load_dataset("csv")


# --- split and scaling ------------------------------------------------------------------------------------------------


def test_series_are_divided_by_a_seeded_draw(path):
    data, again, other = (_load(path, seed=seed) for seed in (1, 1, 2))
    numbers = [_numbers(data, getattr(data, name)) for name in PARTS]
    assert [len(part) for part in numbers] == [16, 2, 2]
    assert sorted(number for part in numbers for number in part) == list(range(COUNT))
    _same(data, again)
    assert [_numbers(other, getattr(other, name)) for name in PARTS] != numbers


def test_without_the_test_part_the_others_stay_the_same(path):
    whole, without = _load(path), _load(path, parts=WITHOUT_TEST)
    assert without.test is None
    _same(whole, without, WITHOUT_TEST)


def test_values_are_scaled_by_training_entries_and_times_by_the_training_span(path):
    data = _load(path)
    train = [f"s{number:02d}" for number in _numbers(data, data.train)]
    entries = [entry for entry in _entries() if entry[0] in train]
    for i, name in enumerate(("a", "b")):
        values = [value for _, _, feature, value in entries if feature == name]
        assert (data.offset[i], data.scale[i]) == (pytest.approx(np.mean(values)), pytest.approx(np.std(values)))
    times = [time for _, time, _, _ in entries]
    assert data.time_offset == min(times)
    assert data.time_unit == pytest.approx(max(times) - min(times))
    assert data.train.target.times.min() == 0
    assert data.train.target.times.max() == 1
    own = _load(path, clock="series", time_name="h")
    assert (own.time_offset, own.time_name) == (0, "h")
    np.testing.assert_array_equal(own.test.target.times[:, 0], 0)


def test_a_constant_feature_has_scale_one(tmp_path):
    entries = [(f"s{i}", float(j), "a", 5.0) for i in range(10) for j in range(3)]
    data = _load(_long(tmp_path / "mine.csv", entries))
    assert (data.offset, data.scale) == ((5.0,), (1.0,))
    assert np.all(data.train.target.values == 0)


# --- tasks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("observed", [0.5, 0.3, 0.05, 1.0])
def test_interpolation_observes_a_share_of_each_series(path, observed):
    data = _load(path, observed=observed)
    for name in PARTS:
        part = getattr(data, name)
        lengths = part.target.num_valid
        np.testing.assert_array_equal(part.observed.num_valid, np.maximum((observed * lengths + 1e-9).astype(int), 1))
        for i in range(len(part)):
            assert set(_points(data, part.observed, i)) <= set(_points(data, part.target, i))
        assert (part.observed is part.target) == (observed == 1)


def test_prediction_divides_the_time_span_of_each_series(path):
    data = _load(path, task="prediction", horizon=0.4)
    for name in PARTS:
        part = getattr(data, name)
        for i, number in enumerate(_numbers(data, part)):
            every = _expected(number)
            end = every[0][0] + 0.4 * (every[-1][0] - every[0][0]) + 1e-6
            assert _points(data, part.observed, i) == [point for point in every if point[0] <= end]
            assert _points(data, part.target, i) == [point for point in every if point[0] > end]


# --- mistakes ---------------------------------------------------------------------------------------------------------

GOOD = "".join(f"s{i},{j},a,{j}\n" for i in range(10) for j in (1, 2))
LONG = "series,time,feature,value\n"
WIDE = "series,time,a,b\n"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, r"mine\.csv is empty; the first line must be series,time,feature,value, or series,time and the names"),
        (LONG, {}, r"mine\.csv has no line after the first"),
        ("time,series,a\n1,2,3\n", {}, r"mine\.csv, line 1: the first line must be .*, got 'time,series,a'"),
        ("series;time;a\n1;2;3\n", {}, r"line 1: the first line must be .*, got 'series;time;a'"),
        ("series,time\n1,2\n", {}, r"line 1: the first line must be .*, got 'series,time'"),
        ("series,time,a,a\n1,2,3,4\n", {}, r"line 1: the column 'a' is there twice"),
        (LONG + GOOD + "s0,5,a,high\n", {}, r"mine\.csv, line 22: a must be a number, got 'high'"),
        (LONG + GOOD + "s0,noon,a,1\n", {}, r"mine\.csv, line 22: time must be a number, got 'noon'"),
        (LONG + GOOD + "s0,,a,1\n", {}, r"mine\.csv, line 22: the time is missing"),
        (LONG + GOOD + "s0,5,a,inf\n", {}, r"mine\.csv, line 22: a is infinite or beyond float32, got 'inf'"),
        (LONG + GOOD + "s0,5,a,1e39\n", {}, r"line 22: a is infinite or beyond float32, got '1e39'"),
        (LONG + GOOD + "s0,inf,a,1\n", {}, r"line 22: time is infinite or beyond float32"),
        (LONG + GOOD + ",5,a,1\n", {}, r"mine\.csv, line 22: the name of the series is missing"),
        (LONG + GOOD + "s0,5,,1\n", {}, r"mine\.csv, line 22: the name of the feature is missing"),
        (LONG + GOOD + "s0,5,a\n", {}, r"mine\.csv, line 22: expected 4 columns, got 3"),
        (LONG + GOOD + "s3,1,a,7\n", {},
         r"mine\.csv, line 22: feature 'a' of series 's3' has a value at time 1 on line 8 already"),
        (LONG + GOOD + "late,1,a,\n", {}, r"mine\.csv, line 22: series 'late' has no observation; remove it"),
        (WIDE + "".join(f"s{i},1,2,\n" for i in range(10)), {}, r"mine\.csv: feature 'b' is never observed; remove it"),
        (LONG + GOOD + "late,1,a,1\n", {"task": "prediction"},
         r"mine\.csv, line 22: series 'late' has observations at one time only, prediction needs two"),
        (LONG + GOOD[: GOOD.index("s9")], {}, r"mine\.csv holds 9 series; at least 10 are needed"),
        (LONG + GOOD + "s0,1e9,a,1\ns0,1000000000.01,a,2\n", {},
         "times 1000000000 and 1000000000.01 of series 's0' are too close for float32"),
        (LONG + GOOD, {"task": "classification"}, "option task of dataset csv must be one of interpolation"),
        (LONG + GOOD, {"observed": 1.5}, "option observed of dataset csv must be above 0 and at most 1, got 1.5"),
        (LONG + GOOD, {"task": "prediction", "horizon": 1}, "option horizon of dataset csv must be above 0 and below"),
        (LONG + GOOD, {"horizon": 0.3}, "option horizon of dataset csv belongs to task=prediction; remove it"),
        (LONG + GOOD, {"colour": 1}, "dataset csv has no option colour; it has task, observed, horizon, clock"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_place(tmp_path, text, options, message):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        _load(path, **options)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(LONG.encode() + b"\xff\xfe,1,a,2\n")
    with pytest.raises(ValueError, match=r"mine\.csv is not a CSV file of UTF-8 text") as caught:
        _load(path)
    assert "\n" not in str(caught.value)


def test_a_feature_that_no_training_series_has_is_named(tmp_path):
    data = _load(_long(tmp_path / "mine.csv", [(f"s{i}", float(j), "a", 100.0 * i) for i in range(10) for j in (1, 2)]))
    held_out = _numbers(data, data.test)[0]
    _long(tmp_path / "mine.csv", [(f"s{i}", float(j), "a", 100.0 * i) for i in range(10) for j in (1, 2)]
          + [(f"s{held_out}", 3.0, "rare", 1.0)])  # fmt: skip
    with pytest.raises(ValueError, match="feature 'rare' is observed in no training series"):
        csv_series.load(tmp_path / "mine.csv")
