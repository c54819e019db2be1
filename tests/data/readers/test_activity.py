"""Human Activity: lines to rows of 12 features, windows, classes, and splits by window or by person."""

import lzma
from pathlib import Path

import numpy as np
import pytest

from ctfno_jax.data import problems, splits
from ctfno_jax.data.masked_series import MaskedDataset
from ctfno_jax.data.readers import activity

TAGS = tuple(activity.TAGS)
WITHOUT_TEST = ("train", "validation")
PARTS = (*WITHOUT_TEST, "test")
ROWS = 101  # three windows: 0-49, 25-74 and 50-99


def _line(sequence: str, ticks: int, tag: int, position: tuple, label: str) -> str:
    x, y, z = position
    return f"{sequence},{TAGS[tag]},{633790226051280329 + ticks},27.05.2009 14:03:25:127,{x},{y},{z},{label}"


def _sequences() -> list[str]:
    return [f"{person}0{run}" for person in "ABCDE" for run in (1, 2)]


def _lines() -> list[str]:
    """One record every 30 milliseconds; x tells the sequence, y the row."""
    return [
        _line(sequence, 300_000 * row, row % 4, (number, row, 0.5), "walking" if row < 60 else "lying down")
        for number, sequence in enumerate(_sequences())
        for row in range(ROWS)
    ]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.delenv("CTFNO_DATA_DIR", raising=False)
    (tmp_path / activity.FILE).write_text("\n".join(_lines()) + "\n")
    return tmp_path


def _load(folder: Path, **options) -> MaskedDataset:
    data = problems.load_dataset("activity", data_dir=folder, **options)
    assert isinstance(data, MaskedDataset)
    return data


def _windows(part) -> list[tuple[int, int]]:
    """Sequence and first row of each window."""
    values = part.target.values[:, 0].reshape(len(part), 4, 3)
    mask = part.target.mask[:, 0].reshape(len(part), 4, 3)[..., 0] == 1
    return [(int(x), int(y)) for x, y, _ in values[mask]]


# --- lines to rows ----------------------------------------------------------------------------------------------------


def test_positions_of_one_tag_in_one_bin_are_averaged_and_the_lower_class_counts(tmp_path):
    # Bins of 10 ms are 100,000 ticks: 40,000 and 49,999 round to 0, 60,000 to 1.
    lines = [
        _line("A01", 0, 0, (1, 2, 3), "sitting"), _line("A01", 40_000, 0, (3, 4, 5), "falling"),
        _line("A01", 49_000, 2, (7, 8, 9), "sitting"), _line("A01", 60_000, 0, (0, 0, 0), "on all fours"),
    ]  # fmt: skip
    lines += [_line("A01", 1_000_000 * row, 1, (row, 0, 0), "lying") for row in range(1, 60)]
    path = tmp_path / activity.FILE
    path.write_text("\n".join(lines))
    windows, num_records, malformed = activity.read_windows(path)
    assert (num_records, malformed, windows.sequences) == (63, 0, ["A01"])
    assert windows.bins[0, :4].tolist() == [0, 1, 10, 20]
    assert windows.values[0, 0].tolist() == [2, 3, 4, 0, 0, 0, 7, 8, 9, 0, 0, 0]
    assert windows.mask[0, 0].tolist() == [True] * 3 + [False] * 3 + [True] * 3 + [False] * 3
    # A position at the origin is observed; the mask tells it from a missing one.
    assert windows.mask[0, 1].tolist() == [True] * 3 + [False] * 9
    assert windows.labels[0, :4].tolist() == [1, 5, 2, 2]


def test_eleven_activities_are_seven_classes():
    assert len(activity.CLASSES) == activity.NUM_CLASSES == 11
    assert sorted(set(activity.CLASSES.values())) == list(range(7))
    standing = {name for name, label in activity.CLASSES.items() if label == 4}
    assert standing == {f"standing up from {what}" for what in ("lying", "sitting", "sitting on the ground")}


def test_the_published_labels_leave_one_activity_out(folder):
    text = "\n".join(_lines()).replace("lying down", "standing up from sitting on the ground")
    (folder / activity.FILE).write_text(text)
    merged, published = _load(folder), _load(folder, labels="published")
    np.testing.assert_array_equal(published.train.labels, np.where(merged.train.labels == 4, -1, merged.train.labels))
    assert np.any(merged.train.labels == 4)


def test_windows_have_fifty_rows_overlap_by_half_and_begin_at_time_zero(folder):
    data = _load(folder)
    assert data.info["num_windows"] == 30
    for name in PARTS:
        part = getattr(data, name)
        assert part.observed is part.target
        assert part.target.values.shape == (len(part), 50, 12)
        np.testing.assert_allclose(
            part.target.times, np.broadcast_to(3 * np.arange(50) / 227, (len(part), 50)), rtol=1e-6
        )
        assert np.all(part.target.values[part.target.mask == 0] == 0)
        np.testing.assert_array_equal(part.target.mask.sum(-1), 3)
        for (_, first), labels in zip(_windows(part), part.labels, strict=True):
            assert first in (0, 25, 50)
            np.testing.assert_array_equal(labels, np.where(first + np.arange(50) < 60, 0, 2))
    assert data.time_unit * data.train.target.times[0, 1] == pytest.approx(0.03)
    assert (data.time_name, data.num_classes, data.features) == ("s", 11, activity.FEATURES)
    assert data.features[:4] == ("ankle_left_x", "ankle_left_y", "ankle_left_z", "ankle_right_x")
    assert (set(data.offset), set(data.scale)) == ({0.0}, {1.0})


def test_a_window_that_would_end_with_the_sequence_is_left_out(folder):
    for rows, windows in ((100, 2), (101, 3), (50, 0), (51, 1)):
        lines = [_line("A01", 300_000 * row, 0, (0, row, 0), "lying") for row in range(rows)]
        (folder / activity.FILE).write_text("\n".join(lines))
        if windows:
            assert len(activity.read_windows(folder / activity.FILE)[0].sequences) == windows
        else:
            with pytest.raises(ValueError, match="holds no sequence of more than 50 rows; get the whole file"):
                activity.read_windows(folder / activity.FILE)


def test_malformed_lines_are_counted_and_nothing_is_guessed(folder):
    before = _load(folder)
    wrong = ["A01,no-tag,633790226051280329,date,1,2,3,lying", "A01,010-000-024-033,noon,date,1,2,3,lying",
             "A01,010-000-024-033,633790226051280329,date,1,x,3,lying", "A01,too,short",
             "A01,010-000-024-033,633790226051280329,date,1,nan,3,lying",
             "A01,010-000-024-033,633790226051280329,date,1,2,3,dancing"]  # fmt: skip
    (folder / activity.FILE).write_text("\n".join([*_lines(), *wrong, "", ""]))
    after = _load(folder)
    assert (before.info["malformed_lines"], after.info["malformed_lines"]) == (0, len(wrong))
    np.testing.assert_array_equal(after.train.target.packed(), before.train.target.packed())


# --- splits -----------------------------------------------------------------------------------------------------------


def test_the_published_split_shuffles_windows(folder):
    data = _load(folder)
    every = [(number, first) for number in range(10) for first in (0, 25, 50)]
    train, test = splits.shuffled(30)
    assert data.test is not None
    assert _windows(data.train) + _windows(data.validation) == [every[i] for i in train]
    assert _windows(data.test) == [every[i] for i in test]
    assert (len(data.train), len(data.validation), len(data.test)) == (22, 2, 6)


def test_redrawn_parts_come_from_their_own_windows_and_leave_validation(folder):
    plain, data, again, other = (
        _load(folder), *(_load(folder, redrawn=True, seed=seed) for seed in (1, 1, 2))
    )  # fmt: skip
    for name in ("train", "test"):
        drawn = _windows(getattr(data, name))
        assert len(drawn) == len(getattr(plain, name))
        assert set(drawn) < set(_windows(getattr(plain, name)))
        assert drawn == _windows(getattr(again, name))
        assert drawn != _windows(getattr(other, name))
    assert _windows(data.validation) == _windows(plain.validation)


def test_a_split_by_person_shares_no_person(folder):
    data = _load(folder, split="person")
    numbers = [{number for number, _ in _windows(getattr(data, name))} for name in PARTS]
    assert numbers == [{0, 1, 2, 3, 4, 5}, {6, 7}, {8, 9}]
    other = _load(folder, split="person", validation_person="A", test_person="C")
    assert [{n for n, _ in _windows(getattr(other, name))} for name in PARTS] == [{2, 3, 6, 7, 8, 9}, {0, 1}, {4, 5}]


@pytest.mark.parametrize("split", activity.SPLITS)
def test_without_the_test_part_the_others_stay_the_same(folder, split):
    whole, without = (_load(folder, split=split, parts=parts) for parts in (PARTS, WITHOUT_TEST))
    assert without.test is None
    assert without.info["test"] == 0
    # Lines of a person that is held out are not even read.
    assert without.info["num_records"] == (10 * ROWS if split == "published" else 8 * ROWS)
    for name in WITHOUT_TEST:
        np.testing.assert_array_equal(getattr(without, name).target.packed(), getattr(whole, name).target.packed())


# --- files ------------------------------------------------------------------------------------------------------------


def _copy(path: Path) -> Path:
    lines = ["sequence,tag,x,y,z,activity,t_est_s"]
    for line in _lines():
        sequence, tag, stamp, _, x, y, z, label = line.split(",")
        seconds = (int(stamp) - 633790226051280329) / 1e7
        lines.append(f"{sequence},{tag},{x},{y},{z},{label},{seconds:.3f}")
    with lzma.open(path / activity.COPY, "wt") as file:
        file.write("\n".join(lines) + "\n")
    return path / activity.COPY


def test_the_copy_is_read_where_the_official_file_is_missing_and_says_so(folder, tmp_path):
    official = _load(folder)
    assert official.source == activity.FILE
    assert "reconstructed_times" not in official.info
    other = tmp_path / "other" / "human_activity"
    other.mkdir(parents=True)
    _copy(other)
    data = _load(other.parent)
    assert data.source == f"{activity.COPY} (coordinates cut to 0.1 m, reconstructed times)"
    assert (data.info["coordinates_cut_to_metres"], data.info["reconstructed_times"]) == (0.1, 1)
    for name in PARTS:
        np.testing.assert_array_equal(getattr(data, name).target.packed(), getattr(official, name).target.packed())
    _copy(folder)
    assert problems.data_file("activity", folder) == folder / activity.FILE


def test_a_damaged_copy_is_refused(tmp_path):
    path = _copy(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="is damaged or cut short"):
        _load(tmp_path)
    with lzma.open(path, "wt") as file:
        file.write("a,b\n")
    with pytest.raises(ValueError, match="line 1: expected sequence,tag,x,y,z,activity,t_est_s, got 'a,b'"):
        _load(tmp_path)


def test_a_missing_file_says_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.delenv("CTFNO_DATA_DIR", raising=False)
    where = r"ConfLongDemo_JSI\.txt .*UCI Machine Learning Repository, data set 196: https://archive\.ics\.uci\.edu"
    with pytest.raises(ValueError, match=rf"name its folder by --data_dir: {where}"):
        problems.load_dataset("activity")
    with pytest.raises(ValueError, match=rf"holds no ConfLongDemo_JSI\.txt; get it first: {where}"):
        _load(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "interpolation"}, "option task of dataset activity must be one of classification, got"),
        ({"split": "record"}, "option split of dataset activity must be one of published, person, got 'record'"),
        ({"labels": "all"}, "option labels of dataset activity must be one of merged, published, got 'all'"),
        ({"redrawn": "no"}, "option redrawn of dataset activity must be true or false, got 'no'"),
        ({"split": "person", "redrawn": True}, "option redrawn of dataset activity belongs to split=published"),
        ({"test_person": "A"}, "validation_person and test_person of dataset activity belong to split=person"),
        (
            {"split": "person", "test_person": "F"},
            "option test_person of dataset activity must be one of A, B, C, D, E",
        ),
        ({"split": "person", "test_person": "D"}, "validation_person and test_person must differ, got 'D' twice"),
        ({"observed": 0.5}, "dataset activity has no option observed; it has task, split, redrawn, labels"),
    ],
)
def test_wrong_options_are_one_line(folder, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        _load(folder, **options)
    assert "\n" not in str(caught.value)
