"""PhysioNet 2012: text files to rows with a mask, in folders and archives, with the published split."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from ctfno_jax.data import cache, problems, splits
from ctfno_jax.data.masked_series import MaskedDataset
from ctfno_jax.data.readers import physionet

WITHOUT_TEST = ("train", "validation")
AGE, HR, TEMP, PH = (physionet.PARAMETERS.index(name) for name in ("Age", "HR", "Temp", "pH"))
COUNT = 12  # records per set


def _text(number: int) -> str:
    """A record with one value at time zero, two in one bin, one at 23:59 and one at 24:00 and later."""
    lines = [
        "Time,Parameter,Value", f"00:00,RecordID,{number}", f"00:00,Age,{number}", "00:07,HR,70", "00:07,HR,80",
        f"01:00,Temp,{30 + number % 5}", "23:59,HR,60", "24:00,HR,50", f"47:{number % 60:02d},Temp,35",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _numbers(letter: str) -> range:
    return range(100, 100 + COUNT) if letter == "a" else range(200, 200 + COUNT)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("CTFNO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CTFNO_DATA_DIR", raising=False)
    for letter in "ab":
        (tmp_path / "data" / f"set-{letter}").mkdir(parents=True)
        for number in _numbers(letter):
            (tmp_path / "data" / f"set-{letter}" / f"{number}.txt").write_text(_text(number))
    return tmp_path / "data"


def _archive(path: Path, members: dict[str, str], mode: str = "w:gz") -> None:
    with tarfile.open(path, mode) as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))


def _load(folder: Path, **options) -> MaskedDataset:
    data = problems.load_dataset("physionet", data_dir=folder, **options)
    assert isinstance(data, MaskedDataset)
    return data


def _raw(data: MaskedDataset, observations) -> np.ndarray:
    values = observations.values.astype(np.float64) * data.scale + data.offset
    return np.where(observations.mask == 1, values, np.nan)


def _ids(data: MaskedDataset, part) -> list[int]:
    """Numbers of the records, which are their ages."""
    return np.rint(_raw(data, part.observed)[:, 0, AGE]).astype(int).tolist()


# --- lines to rows ----------------------------------------------------------------------------------------------------


def test_times_are_rounded_to_multiples_and_values_in_one_bin_are_averaged(tmp_path):
    text = ("Time,Parameter,Value\n00:00,RecordID,1\n00:00,Age,54\n00:07,HR,70\n00:07,HR,80\n00:07,HR,99\n"
            "00:08,HR,10\n00:07,pH,7\n")  # fmt: skip
    (tmp_path / "1.txt").write_text(text)
    pool = physionet.read_pool([tmp_path], 0.016)
    # 7 minutes are 7.29 bins of 0.016 hours and 8 minutes are 8.33.
    assert pool["bins"].tolist() == [0, 7, 8]
    assert pool["lengths"].tolist() == [3]
    entries = list(zip(pool["row"].tolist(), pool["feature"].tolist(), pool["value"].tolist(), strict=True))
    assert entries == [(0, AGE, 54.0), (1, HR, 83.0), (1, PH, 7.0), (2, HR, 10.0)]
    # One bin of 0.1 hours holds both minutes: (70 + 80 + 99 + 10) / 4.
    pool = physionet.read_pool([tmp_path], 0.1)
    assert pool["bins"].tolist() == [0, 1]
    assert pool["value"].tolist() == [54.0, 64.75, 7.0]


def test_rounding_is_to_the_nearest_bin():
    for time, expected in (("00:00", 0), ("00:01", 1), ("00:30", 31), ("01:00", 62), ("48:00", 3000)):
        hours = int(time[:2]) + int(time[3:]) / 60
        assert physionet._bin(time, 0.016) == expected
        assert abs(expected * 0.016 - hours) <= 0.008 + 1e-12


def test_malformed_lines_are_counted_and_nothing_is_guessed(folder):
    before = _load(folder)
    path = folder / "set-a" / "100.txt"
    wrong = ["0:07,HR,70", "00:61,HR,70", "02:00,HR", "02:00,HR,high", "02:00,HR,nan", "02:00,HR,inf", "02:00,Pulse,70",
             "02:00,HR,70,80", "02:00,,-1"]  # fmt: skip
    path.write_text(_text(100) + "\n".join(wrong) + "\n\n")
    after = _load(folder)
    assert (before.info["malformed_lines"], after.info["malformed_lines"]) == (0, len(wrong))
    for name in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(after, name).target.packed(), getattr(before, name).target.packed())


def test_a_file_that_is_no_record_is_named(folder):
    (folder / "set-a" / "105.txt").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"105\.txt, line 1: expected Time,Parameter,Value, got 'a,b'"):
        _load(folder)


def test_records_without_a_value_at_time_zero_are_counted(folder):
    (folder / "set-b" / "203.txt").write_text("Time,Parameter,Value\n00:00,RecordID,203\n05:00,Age,203\n")
    (folder / "set-b" / "204.txt").write_text("Time,Parameter,Value\n00:00,RecordID,204\n")
    data = _load(folder)
    assert data.info["records_without_time_zero"] == 2
    assert sum(int((part.target.num_valid == 0).sum()) for part in (data.train, data.validation, data.test)) == 1


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_interpolation_observes_all_points_and_times_are_in_units_of_two_days(folder):
    data = _load(folder)
    assert (data.task, data.time_unit, data.time_name, data.subsample) == ("interpolation", 48.0, "h", 0)
    assert data.features == physionet.PARAMETERS
    assert len(data.features) == 41
    for part in (data.train, data.validation, data.test):
        assert part is not None
        assert part.observed is part.target
        hours = part.target.times * 48
        np.testing.assert_allclose(
            hours[:, :3], np.broadcast_to([0, 7 * 0.016, 62 * 0.016], hours[:, :3].shape), rtol=1e-5
        )
        raw = _raw(data, part.target)
        np.testing.assert_allclose(raw[:, 1, HR], 75, rtol=1e-5)
        np.testing.assert_allclose(raw[:, 2, TEMP], [30 + number % 5 for number in _ids(data, part)], rtol=1e-5)
        assert np.isnan(raw[:, 1, TEMP]).all()
        assert np.all(part.target.values[part.target.mask == 0] == 0)


def test_prediction_in_hours_observes_the_first_day(folder):
    data = _load(folder, task="prediction")
    for part in (data.train, data.validation):
        # Zero, 00:07, 01:00 and 23:59; then 24:00 and later.
        np.testing.assert_array_equal(part.observed.num_valid, 4)
        np.testing.assert_array_equal(part.target.num_valid, 2)
        assert part.observed.times.max() < 0.5
        np.testing.assert_allclose(_raw(data, part.target)[:, 0, HR], 50, rtol=1e-5)
        np.testing.assert_array_equal(part.target.times[:, 0], 0.5)


def test_prediction_in_the_union_cuts_the_list_of_times_of_the_part(folder):
    data = _load(folder, task="prediction", split="union")
    for part in (data.train, data.validation):
        numbers = _ids(data, part)
        late = {physionet._bin(f"47:{number % 60:02d}", 0.016) for number in numbers}
        grid = sorted({0, 7, 62, physionet._bin("23:59", 0.016), 1500} | late)
        early, later = (
            {round(float(t) * 3000) for t in some.times[some.valid]} for some in (part.observed, part.target)
        )
        assert sorted(early) == grid[: len(grid) // 2]
        assert sorted(later) == grid[len(grid) // 2 :]


def test_a_record_without_later_points_has_an_empty_target(folder):
    for number in _numbers("a"):
        (folder / "set-a" / f"{number}.txt").write_text(f"Time,Parameter,Value\n00:00,Age,{number}\n")
    data = _load(folder, task="prediction")
    numbers = np.asarray(_ids(data, data.train))
    np.testing.assert_array_equal(data.train.target.num_valid, np.where(numbers < 200, 0, 2))
    np.testing.assert_array_equal(data.train.target.times[numbers < 200], 0)


# --- split and normalisation ------------------------------------------------------------------------------------------


def test_the_split_is_the_published_one_of_the_pool_in_the_order_of_ids(folder):
    data = _load(folder)
    ids = np.asarray([*_numbers("a"), *_numbers("b")])
    train, test = splits.shuffled(24)
    assert data.test is not None
    assert _ids(data, data.train) + _ids(data, data.validation) == ids[train].tolist()
    assert _ids(data, data.test) == ids[test].tolist()
    assert (len(data.train), len(data.validation), len(data.test)) == (18, 1, 5)
    assert _load(folder, sets="b").info["num_records"] == COUNT


def test_scaling_is_by_extremes_of_observed_entries(folder):
    data = _load(folder)
    assert (data.offset[AGE], data.scale[AGE]) == (100, 211)
    assert (data.offset[HR], data.scale[HR]) == (50, 75)
    # Never observed.
    assert (data.offset[PH], data.scale[PH]) == (0, 1)
    assert _load(folder, normalization="range").scale[AGE] == 111
    part = data.train
    np.testing.assert_allclose(part.target.values[:, 0, AGE], [(n - 100) / 211 for n in _ids(data, part)], rtol=1e-6)
    ages = _ids(data, part)
    own = _load(folder, statistics="train")
    assert (own.offset[AGE], own.scale[AGE]) == (min(ages), max(ages))


def test_without_the_test_part_the_others_stay_the_same(folder):
    whole, without = _load(folder), _load(folder, parts=WITHOUT_TEST)
    assert without.test is None
    assert without.info["test"] == 0
    for name in WITHOUT_TEST:
        np.testing.assert_array_equal(getattr(without, name).target.packed(), getattr(whole, name).target.packed())


# --- archives and cache -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "end"), [("", "gz"), ("physionet2012-", "xz")])
def test_archives_hold_the_same_as_folders_and_are_not_unpacked(folder, tmp_path, start, end):
    packed = tmp_path / "packed"
    packed.mkdir()
    for letter in "ab":
        # In another order, and with a file that is no record.
        members = {f"set-{letter}/{number}.txt": _text(number) for number in reversed(_numbers(letter))}
        _archive(packed / f"{start}set-{letter}.tar.{end}", {**members, "Outcomes-a.txt": "RecordID\n1\n"}, f"w:{end}")
    names = sorted(path.name for path in packed.iterdir())
    plain, data = _load(folder), _load(packed)
    assert sorted(path.name for path in packed.iterdir()) == names
    assert data.source == ", ".join(names)
    for name in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(data, name).target.packed(), getattr(plain, name).target.packed())


@pytest.mark.parametrize("name", ["../100.txt", "/set-a/100.txt", "set-a/../../100.txt"])
def test_a_member_outside_of_the_archive_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setenv("CTFNO_CACHE_DIR", str(tmp_path / "cache"))
    _archive(tmp_path / "set-a.tar.gz", {"set-a/99.txt": _text(99), name: _text(100)})
    with pytest.raises(ValueError, match=r"the member '.*100\.txt' lies outside of the archive") as caught:
        _load(tmp_path, sets="a")
    assert "\n" not in str(caught.value)


def test_an_archive_that_was_cut_is_refused(folder):
    path = folder / "set-a.tar.gz"
    _archive(path, {f"set-a/{number}.txt": _text(number) for number in _numbers("a")})
    content = path.read_bytes()
    (folder / "set-a").rename(folder / "other")
    for kept in (0.3, 0.8):
        path.write_bytes(content[: int(kept * len(content))])
        with pytest.raises(
            ValueError, match=r"set-a\.tar\.gz is damaged or cut short .*; get it again: .*physionet\.org"
        ):
            _load(folder)
    path.write_text("not an archive")
    with pytest.raises(ValueError, match="damaged or cut short"):
        _load(folder)


def test_the_second_start_parses_nothing_and_a_changed_file_is_parsed_again(folder, monkeypatch):
    parsed = []
    real = physionet._parse
    monkeypatch.setattr(physionet, "_parse", lambda *a: parsed.append(a[0]) or real(*a))
    first = _load(folder)
    assert len(parsed) == 2 * COUNT
    again = _load(folder)
    assert len(parsed) == 2 * COUNT
    np.testing.assert_array_equal(again.train.target.packed(), first.train.target.packed())
    assert _load(folder, quantization=0.1).train.target.steps <= first.train.target.steps
    assert len(parsed) == 4 * COUNT
    (folder / "set-a" / "100.txt").write_text(_text(100).replace("00:07,HR,70", "00:07,HR,71"))
    _load(folder)
    assert len(parsed) == 6 * COUNT
    for path in cache.directory().rglob("pool.npz"):
        path.write_text("damaged")
    _load(folder)
    assert len(parsed) == 8 * COUNT


# --- what is missing or wrong -----------------------------------------------------------------------------------------


def test_a_missing_set_says_where_to_get_it(folder, tmp_path, monkeypatch):
    with pytest.raises(
        ValueError, match=r"name their folder by --data_dir: .*physionet\.org/files/challenge-2012/1\.0\.0"
    ):
        problems.load_dataset("physionet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        ValueError, match=r"holds neither set-a\.tar\.gz nor a folder set-a; get the sets first: .*physionet"
    ):
        _load(tmp_path / "empty")
    (folder / "set-b").rename(folder / "other")
    with pytest.raises(ValueError, match=r"holds neither set-b\.tar\.gz nor a folder set-b; get it: .*physionet\.org"):
        _load(folder)
    (folder / "set-b").mkdir()
    with pytest.raises(ValueError, match="set-b holds no records"):
        _load(folder)
    monkeypatch.setenv("CTFNO_DATA_DIR", str(tmp_path / "data"))
    assert problems.data_file("physionet", None) == folder


def test_too_few_records_are_refused(folder):
    for number in _numbers("a")[5:]:
        (folder / "set-a" / f"{number}.txt").unlink()
    with pytest.raises(ValueError, match="holds 5 records; at least 10 are needed"):
        _load(folder, sets="a")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "classification"}, "option task of dataset physionet must be one of interpolation, prediction"),
        ({"split": "union"}, "option split of dataset physionet belongs to task=prediction; remove it"),
        ({"sets": "abc"}, "option sets of dataset physionet must be one of ab, a, b, got 'abc'"),
        ({"quantization": 0}, "option quantization of dataset physionet must be hours above 0 and at most 1, got 0"),
        ({"observed": 0.1}, "dataset physionet has no option observed; it has task, split, sets, quantization"),
        ({"num_test": 5}, "physionet is divided by its options; remove num_test"),
    ],
)
def test_wrong_options_are_one_line(folder, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        _load(folder, **options)
    assert "\n" not in str(caught.value)
