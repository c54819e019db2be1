"""The plane vibration record: its file, the retained samples, and the segments."""

import math
from pathlib import Path

import numpy as np
import pytest

from ctfno_jax.data import problems
from ctfno_jax.data.readers import plane_vibration
from ctfno_jax.data.series import Series

HEADER = '"Force","Voltage","Acceleration1","Acceleration2","Acceleration3","Fs",""'
# Leaves 990 instants in parts of 495, 247 and 248: seven, three and three runs.
NUM_SAMPLES = 1200
PARTS = ("train", "validation", "test")


def _record(num_samples: int = NUM_SAMPLES) -> np.ndarray:
    """Of which every row tells its number."""
    n = np.arange(num_samples, dtype=np.float64)
    return np.stack([n, 3 - 2 * n, n**2 / 1000, np.sqrt(n), 0.25 * n - 7], axis=1)


def _lines(record: np.ndarray) -> list[str]:
    """Without the header; the first row tells the rate."""
    rows = [",".join(repr(float(value)) for value in row) for row in record]
    return [f"{row},{400 if i == 0 else ''}," for i, row in enumerate(rows)]


def _write(folder: Path, lines: list[str], header: str = HEADER, end: str = "\n") -> Path:
    path = folder / "pv.csv"
    path.write_text("\n".join([header, *lines]) + end)
    return path


@pytest.fixture
def path(tmp_path) -> Path:
    return _write(tmp_path, _lines(_record()))


def _raw(values: np.ndarray) -> np.ndarray:
    """Normalised values in the units of the file."""
    return values * _record().std(axis=0) + _record().mean(axis=0)


def _instants(values: np.ndarray) -> np.ndarray:
    """Numbers of the samples that normalised values are of."""
    return np.round(_raw(values)[..., 0]).astype(int)


def _shifted(part: Series, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return part.observed_times + shift, part.times + shift


# --- the file -----------------------------------------------------------------------------------------------------


def test_the_five_signals_are_read_as_they_are(path):
    np.testing.assert_array_equal(plane_vibration.read_record(path), _record())


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_a_blank_line_at_the_end_is_no_row(tmp_path, end):
    path = _write(tmp_path, _lines(_record(5)), end=end)
    np.testing.assert_array_equal(plane_vibration.read_record(path), _record(5))


@pytest.mark.parametrize("header", ["Force,Volts,Acceleration1", "0.5,0.25,1,2,3,400,", ""])
def test_another_header_is_refused(tmp_path, header):
    path = _write(tmp_path, _lines(_record(5)), header=header)
    message = "pv.csv must begin with the columns Force, Voltage, Acceleration1, Acceleration2, Acceleration3, got"
    with pytest.raises(ValueError, match=message):
        plane_vibration.read_record(path)


@pytest.mark.parametrize("row", ["1,2,3,4", "1,2,word,4,5,,", "1,2,,4,5,,"])
def test_a_row_that_is_not_five_numbers_is_named(tmp_path, row):
    lines = _lines(_record(9))
    lines[4] = row
    path = _write(tmp_path, lines)
    with pytest.raises(ValueError, match=rf"pv.csv, line 6: expected 5 numbers, got '{row}'"):
        plane_vibration.read_record(path)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_value_that_is_not_finite_is_found(tmp_path, value):
    lines = _lines(_record(9))
    lines[6] = f"1,2,3,4,{value},,"
    path = _write(tmp_path, lines)
    with pytest.raises(ValueError, match=r"pv.csv, line 8: a value is not finite; get the file again"):
        plane_vibration.read_record(path)


@pytest.mark.parametrize("num_samples", [0, 100, 388])
def test_a_file_that_is_too_short_for_a_run_in_every_part_is_refused(tmp_path, num_samples):
    path = _write(tmp_path, _lines(_record(num_samples)))
    message = f"holds {num_samples} samples, too few for segments of 65 retained ones per part"
    with pytest.raises(ValueError, match=message):
        plane_vibration.load(path)


def test_the_shortest_file_has_a_run_in_every_part(tmp_path):
    data = plane_vibration.load(_write(tmp_path, _lines(_record(389))))
    assert (len(data.train), len(data.validation), len(data.test)) == (2, 1, 1)


# The mean of many tenths is not exactly a tenth.
@pytest.mark.parametrize("value", [2.0, 0.1])
def test_a_signal_that_never_changes_is_named(tmp_path, value):
    record = _record()
    record[:, 3] = value
    with pytest.raises(ValueError, match=r"pv.csv: Acceleration2 never changes; get the file again"):
        plane_vibration.load(_write(tmp_path, _lines(record)))


# --- where it is --------------------------------------------------------------------------------------------------


def test_the_file_is_found_in_the_folder_or_in_one_of_its_name_there(tmp_path):
    inside = tmp_path / "plane_vibration"
    inside.mkdir()
    path = _write(inside, [])
    assert plane_vibration.find_file(tmp_path) == plane_vibration.find_file(inside) == path


def test_a_folder_given_by_hand_comes_before_that_of_the_environment(tmp_path, monkeypatch):
    folders = [tmp_path / name for name in ("given", "named")]
    for folder in folders:
        folder.mkdir()
        _write(folder, [])
    monkeypatch.setenv("CTFNO_DATA_DIR", str(folders[1]))
    assert plane_vibration.find_file(folders[0]) == folders[0] / "pv.csv"
    assert plane_vibration.find_file() == folders[1] / "pv.csv"


def test_without_a_folder_the_flag_and_the_source_are_named(monkeypatch):
    monkeypatch.delenv("CTFNO_DATA_DIR", raising=False)
    with pytest.raises(ValueError, match=r"read from pv.csv; name its folder by --data_dir: .*hedixia/HeavyBallNODE"):
        plane_vibration.find_file()


@pytest.mark.parametrize("name", ["empty", "missing"])
@pytest.mark.parametrize("by_hand", [True, False])
def test_a_folder_without_the_file_is_named_with_the_source(tmp_path, monkeypatch, name, by_hand):
    folder = tmp_path / name
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("CTFNO_DATA_DIR", str(tmp_path if by_hand else folder))
    with pytest.raises(ValueError, match=rf"{name} holds no pv.csv; get it first: .*nonlinearbenchmark.org"):
        plane_vibration.find_file(folder if by_hand else None)


def test_the_record_is_a_data_set_by_name(path, monkeypatch):
    assert problems.problem("plane_vibration").kind == "series"
    options = {"seed": 3, "clock": "last", "train_stride": 9}
    expected = plane_vibration.load(path, **options)
    monkeypatch.delenv("CTFNO_DATA_DIR", raising=False)
    given = problems.load_dataset("plane_vibration", data_dir=path.parent, **options)
    monkeypatch.setenv("CTFNO_DATA_DIR", str(path.parent))
    named = problems.load_dataset("plane_vibration", **options)
    for data in (given, named):
        assert (data.name, data.source, data.scaled) == ("plane_vibration", "pv.csv", False)
        for part in PARTS:
            for field in ("observed_times", "observed", "times", "values"):
                np.testing.assert_array_equal(
                    getattr(getattr(data, part), field), getattr(getattr(expected, part), field)
                )


def test_without_the_test_part_the_others_stay_the_same(path):
    whole = plane_vibration.load(path)
    data = problems.load_dataset("plane_vibration", data_dir=path.parent, parts=("train", "validation"))
    assert data.test is None
    assert data.info == {"num_samples": NUM_SAMPLES, "train": 7, "validation": 3}
    for part in ("train", "validation"):
        np.testing.assert_array_equal(getattr(data, part).values, getattr(whole, part).values)
        np.testing.assert_array_equal(getattr(data, part).observed, getattr(whole, part).observed)


def test_settings_of_generated_data_are_refused(path):
    with pytest.raises(ValueError, match="plane_vibration is a record that its options divide; remove num_train"):
        problems.load_dataset("plane_vibration", data_dir=path.parent, num_train=5)
    message = "dataset plane_vibration has no option noise; it has dropped, clock, train_stride, interpolated"
    with pytest.raises(ValueError, match=message):
        problems.load_dataset("plane_vibration", data_dir=path.parent, noise=0.1)


# --- what is retained ---------------------------------------------------------------------------------------------


def test_numbers_of_the_published_protocol():
    record = np.arange(73_728, dtype=np.float32)[:, None]
    parts = plane_vibration.split_in_order(plane_vibration.retained_indices(len(record), 0.1, 1))
    assert sum(map(len, parts)) == 66_265
    assert [len(part) for part in parts] == [33_132, 16_566, 16_567]
    cut = [plane_vibration.segments(record, part, "forecast", 65) for part in parts]
    assert [len(some) for some in cut] == [509, 254, 254]
    # Nothing that a part asks for is seen in the next.
    assert cut[0].values.max() < cut[1].observed.min()
    assert cut[1].values.max() < cut[2].observed.min()
    assert cut[2].values.max() < 73_728


def test_retained_instants_are_those_of_the_published_code():
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    np.random.randn(73_728, 5)  # noise, of which no part is added  # noqa: NPY002
    expected = np.random.choice(range(73_628), 66_265, replace=False)  # noqa: NPY002
    np.random.set_state(before)  # noqa: NPY002
    np.testing.assert_array_equal(plane_vibration.retained_indices(73_728, 0.1, 1), np.sort(expected))


def test_what_is_drawn_elsewhere_does_not_depend_on_what_is_retained():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    plane_vibration.retained_indices(NUM_SAMPLES, 0.1, 1)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_retained_instants_increase_and_leave_the_end_to_forecasts():
    for dropped, seed in ((0.1, 1), (0.5, 2), (0.0, 3)):
        indices = plane_vibration.retained_indices(NUM_SAMPLES, dropped, seed)
        assert np.all(np.diff(indices) > 0)
        assert (indices.min() >= 0, indices.max() < NUM_SAMPLES - 100) == (True, True)
        assert len(indices) == pytest.approx((1 - dropped) * 1100, abs=1)


def test_the_seed_decides_what_is_dropped(path):
    first, again, other = (plane_vibration.load(path, seed=seed).train.observed for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)


def test_without_dropping_every_instant_follows_the_one_before(path):
    data = plane_vibration.load(path, dropped=0.0)
    for part in PARTS:
        np.testing.assert_array_equal(np.diff(getattr(data, part).observed_times, axis=1), 1)


@pytest.mark.parametrize("dropped", [-0.1, 1.0, math.nan])
def test_a_fraction_that_cannot_be_dropped_is_refused(path, dropped):
    with pytest.raises(ValueError, match=f"dropped must be at least 0 and below 1, got {dropped}"):
        plane_vibration.load(path, dropped=dropped)


# --- how it is cut ------------------------------------------------------------------------------------------------


def test_shapes_and_facts(path):
    data = plane_vibration.load(path)
    for part, runs in zip(PARTS, (7, 3, 3), strict=True):
        some = getattr(data, part)
        assert (some.observed_times.shape, some.observed.shape) == ((runs, 64), (runs, 64, 5))
        assert (some.times.shape, some.values.shape) == ((8,), (runs, 8, 5))
        assert some.observed.dtype == some.values.dtype == some.times.dtype == some.observed_times.dtype == np.float32
    assert data.info == {"num_samples": NUM_SAMPLES, "train": 7, "validation": 3, "test": 3}


def test_values_are_in_units_of_mean_and_deviation_of_the_whole_record(path):
    data = plane_vibration.load(path)
    for part in PARTS:
        for values in (getattr(data, part).observed, getattr(data, part).values):
            np.testing.assert_allclose(_raw(values), _record()[_instants(values)], rtol=1e-5, atol=1e-3)


def test_runs_are_retained_instants_in_order_and_in_two_one_and_one_quarter(path):
    data = plane_vibration.load(path)
    retained = plane_vibration.retained_indices(NUM_SAMPLES, 0.1, 1)
    for part, first, runs in zip(PARTS, (0, 495, 495 + 247), (7, 3, 3), strict=True):
        expected = retained[first : first + 65 * runs].reshape(runs, 65)
        some = getattr(data, part)
        np.testing.assert_array_equal(_instants(some.observed), expected[:, :64])
        np.testing.assert_array_equal(_instants(some.values)[:, 0], expected[:, 64])


def test_eight_samples_follow_each_other_from_the_65th_instant_on_dropped_or_not(path):
    data = plane_vibration.load(path, dropped=0.3)
    retained = plane_vibration.retained_indices(NUM_SAMPLES, 0.3, 1)
    asked = np.concatenate([_instants(getattr(data, part).values) for part in PARTS])
    np.testing.assert_array_equal(asked - asked[:, :1], np.broadcast_to(np.arange(8), asked.shape))
    assert np.all(np.isin(asked[:, 0], retained))
    assert not np.all(np.isin(asked, retained))


def test_parts_do_not_overlap_in_time(path):
    for stride in (65, 1):
        data = plane_vibration.load(path, train_stride=stride)
        seen = [_instants(getattr(data, part).observed) for part in PARTS]
        assert seen[0].max() < seen[1].min()
        assert seen[1].max() < seen[2].min()


def test_runs_of_a_part_share_no_instant(path):
    data = plane_vibration.load(path)
    seen = np.concatenate([_instants(getattr(data, part).observed).reshape(-1) for part in PARTS])
    assert len(np.unique(seen)) == len(seen) == 13 * 64


def test_overlapping_training_runs_contain_the_others_and_leave_validation_and_test(path):
    apart, close = (plane_vibration.load(path, train_stride=stride) for stride in (65, 1))
    first_of_validation = _instants(close.validation.observed).min()
    assert _instants(close.train.values).max() == first_of_validation - 1
    assert 495 - 64 - 8 <= len(close.train) < 495 - 64
    np.testing.assert_array_equal(close.train.observed[:-1, 1:], close.train.observed[1:, :-1])
    for field in ("observed_times", "observed", "values"):
        np.testing.assert_array_equal(getattr(close.train, field)[::65], getattr(apart.train, field))
        for part in ("validation", "test"):
            np.testing.assert_array_equal(getattr(getattr(close, part), field), getattr(getattr(apart, part), field))


def test_times_count_samples_from_the_first_that_is_asked_for(path):
    data = plane_vibration.load(path)
    for part in PARTS:
        some = getattr(data, part)
        first = _instants(some.values)[:, :1]
        np.testing.assert_array_equal(some.observed_times, _instants(some.observed) - first)
        np.testing.assert_array_equal(some.times, np.arange(8))


def test_clocks_differ_by_where_they_start(path):
    forecast, last, segment = (
        plane_vibration.load(path, dropped=0.3, clock=clock) for clock in ("forecast", "last", "segment")
    )
    gaps = set()
    for part in PARTS:
        some, from_last, from_first = (getattr(data, part) for data in (forecast, last, segment))
        gap = -some.observed_times[:, -1:]
        gaps.update(gap.ravel().tolist())
        for times, expected in zip((from_last.observed_times, from_last.times), _shifted(some, gap), strict=True):
            np.testing.assert_array_equal(times, expected)
        np.testing.assert_array_equal(from_last.observed_times[:, -1], 0)
        # Two clocks in one, as published: queries are not on that of the observations.
        np.testing.assert_array_equal(from_first.observed_times, _shifted(some, -some.observed_times[:, :1])[0])
        np.testing.assert_array_equal(from_first.observed_times[:, 0], 0)
        np.testing.assert_array_equal(from_first.times, np.arange(8))
        for other in (from_last, from_first):
            np.testing.assert_array_equal(other.observed, some.observed)
            np.testing.assert_array_equal(other.values, some.values)
    assert len(gaps) > 1


def test_an_unknown_clock_lists_the_known_ones(path):
    with pytest.raises(ValueError, match="clock must be one of forecast, last, segment, got 'zero'"):
        plane_vibration.load(path, clock="zero")


@pytest.mark.parametrize("stride", [0, -3, 2.5])
def test_a_stride_must_go_forward(path, stride):
    with pytest.raises(ValueError, match=f"train_stride must be a whole number of at least 1, got {stride}"):
        plane_vibration.load(path, train_stride=stride)


def test_interpolated_values_are_on_lines_between_observations_before_the_forecast(path):
    raw, even = (plane_vibration.load(path, dropped=0.3, interpolated=flag) for flag in (False, True))
    for part in PARTS:
        seen, some = getattr(raw, part), getattr(even, part)
        np.testing.assert_array_equal(some.observed_times, np.broadcast_to(np.arange(-64, 0), some.observed.shape[:2]))
        np.testing.assert_array_equal(some.values, seen.values)
        for i in range(len(seen)):
            # Where a sample was observed its own value stands, and the clock of a straight line is itself.
            there = np.isin(some.observed_times[i], seen.observed_times[i])
            known = np.isin(seen.observed_times[i], some.observed_times[i])
            np.testing.assert_allclose(some.observed[i][there], seen.observed[i][known], atol=1e-6)
            assert np.any(~there[: np.flatnonzero(there)[-1]])
            for signal, of in zip(some.observed[i].T, seen.observed[i].T, strict=True):
                inside = signal[: np.flatnonzero(there)[-1] + 1]
                assert of.min() - 1e-6 <= inside.min() <= inside.max() <= of.max() + 1e-6


def test_interpolated_values_have_one_clock(path):
    with pytest.raises(ValueError, match="interpolated observations are on clock=forecast, got clock=last"):
        plane_vibration.load(path, interpolated=True, clock="last")
