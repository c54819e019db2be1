"""Partly observed series: rules of padding, draws of observed steps, and the packed form."""

import dataclasses

import numpy as np
import pytest

from ctfno_jax.data import masked_series, splits
from ctfno_jax.data.masked_series import MaskedDataset, Observations, Part, Rows, subsample

FEATURES = 3
LENGTHS = (4, 0, 6, 1)


def _observations(lengths=LENGTHS, features=FEATURES, seed=0) -> Observations:
    """Series of the given lengths with random gaps; at least one feature is observed at each step."""
    rng = np.random.default_rng(seed)
    rows = sum(lengths)
    mask = rng.random((rows, features)) < 0.4
    mask[np.arange(rows), rng.integers(features, size=rows)] = True
    times = np.concatenate([np.cumsum(rng.uniform(0.1, 1, n)) for n in lengths])
    return Rows(np.asarray(lengths), times, rng.standard_normal((rows, features)) + 5, mask).padded()


def _replaced(**changes) -> dict[str, np.ndarray]:
    good = _observations()
    return {"times": good.times.copy(), "values": good.values.copy(), "mask": good.mask.copy(), **changes}


def _points(observations: Observations, series: int) -> list[tuple]:
    """Valid steps of one series as time, values and mask."""
    keep = observations.valid[series]
    arrays = (observations.times, observations.values, observations.mask)
    return [(float(t), tuple(x), tuple(m)) for t, x, m in zip(*(a[series][keep] for a in arrays), strict=True)]


# --- padding --------------------------------------------------------------------------------------------------------


def test_rows_are_padded_to_the_longest_series():
    mask = np.asarray([[1, 0], [0, 1], [1, 1]], bool)
    values = np.asarray([[1.0, 99.0], [99.0, 2.0], [3.0, 4.0]])
    made = Rows(np.asarray([2, 0, 1]), np.asarray([0.5, 0.75, 0.25]), values, mask).padded()
    np.testing.assert_array_equal(made.times, [[0.5, 0.75], [0, 0], [0.25, 0.25]])
    np.testing.assert_array_equal(made.values, [[[1, 0], [0, 2]], [[0, 0], [0, 0]], [[3, 4], [0, 0]]])
    np.testing.assert_array_equal(made.mask, [[[1, 0], [0, 1]], [[0, 0], [0, 0]], [[1, 1], [0, 0]]])
    np.testing.assert_array_equal(made.valid, [[True, True], [False, False], [True, False]])
    assert (len(made), made.features, made.steps) == (3, 2, 2)
    assert made.times.dtype == made.values.dtype == made.mask.dtype == np.float32


def test_rows_of_chosen_series_and_chosen_rows():
    values = np.arange(6.0)[:, None]
    rows = Rows(np.asarray([2, 1, 3]), np.asarray([0.0, 1, 5, 2, 3, 4]), values, np.ones((6, 1), bool))
    assert rows.series.tolist() == [0, 0, 1, 2, 2, 2]
    assert rows.starts.tolist() == [0, 2, 3]
    chosen = rows.select(np.asarray([2, 0]))
    assert (chosen.lengths.tolist(), chosen.times.tolist()) == ([3, 2], [2, 3, 4, 0, 1])
    late = rows.keep(rows.times >= 3)
    assert (late.lengths.tolist(), late.values[:, 0].tolist()) == ([0, 1, 2], [2, 4, 5])


def test_padding_and_trimming_are_inverse_and_keep_all_points():
    some = _observations()
    wide = some.padded(9)
    assert (wide.steps, some.steps) == (9, 6)
    assert wide.trimmed().steps == 6
    for name in ("times", "values", "mask"):
        np.testing.assert_array_equal(getattr(wide.trimmed(), name), getattr(some, name))
    np.testing.assert_array_equal(wide.times[:, 6:], np.repeat(wide.times[:, 5:6], 3, axis=1))
    assert not wide.valid[:, 6:].any()
    assert wide.padded(9) is wide
    assert some.trimmed() is some
    with pytest.raises(ValueError, match="steps must be at least 6, the steps there are, got 5"):
        some.padded(5)


def test_one_step_remains_of_series_without_observations():
    empty = Rows(np.asarray([0, 0]), np.zeros(0), np.zeros((0, 3)), np.zeros((0, 3), bool)).padded()
    assert empty.padded(4).trimmed().values.shape == (2, 1, 3)
    assert not empty.valid.any()


def test_concatenation_pads_to_the_longest():
    first, second = _observations((2, 1)), _observations((5,), seed=1)
    both = Observations.concatenate([first, second])
    assert both.values.shape == (3, 5, FEATURES)
    assert [_points(both, i) for i in range(3)] == [_points(first, 0), _points(first, 1), _points(second, 0)]
    with pytest.raises(ValueError, match="the same number of features, got 3, 2"):
        Observations.concatenate([first, _observations((2,), features=2)])
    with pytest.raises(ValueError, match="at least one"):
        Observations.concatenate([])


def test_selected_series_are_those_at_the_index():
    some = _observations()
    chosen = some.select(np.asarray([2, 0]))
    assert [_points(chosen, i) for i in range(2)] == [_points(some, 2), _points(some, 0)]


def _disordered() -> np.ndarray:
    times = _observations().times.copy()
    times[2, 1] = times[2, 2]
    return times


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"times": np.zeros((4, 6))}, "times must be of dtype float32, got float64"),
        ({"times": np.zeros((4, 5), np.float32)}, r"got \(4, 5\), \(4, 6, 3\) and \(4, 6, 3\)"),
        ({"mask": np.zeros((4, 6, 2), np.float32)}, r"got \(4, 6\), \(4, 6, 3\) and \(4, 6, 2\)"),
        ({"values": np.full((4, 6, 3), np.nan, np.float32)}, "values contains numbers that are not finite"),
        ({"times": np.full((4, 6), np.inf, np.float32)}, "times contains numbers that are not finite"),
        ({"mask": np.full((4, 6, 3), 0.5, np.float32)}, "mask must contain only 0 and 1"),
        ({"mask": np.zeros((4, 6, 3), np.float32)}, "values must be zero where mask is zero"),
        ({"times": _disordered()}, "times must increase from each step to the next, series 2 does not"),
    ],
)  # fmt: skip
def test_arrays_against_the_rules_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Observations(**_replaced(**changes))


def test_gaps_and_wrong_times_of_padding_are_refused():
    arrays = _replaced()
    arrays["times"][0, 5] += 1
    with pytest.raises(ValueError, match="padding steps must repeat the last valid time"):
        Observations(**arrays)
    arrays = _replaced()
    arrays["times"][1] = 1
    with pytest.raises(ValueError, match="or be zero if there is none"):
        Observations(**arrays)
    arrays = _replaced()
    arrays["mask"][0, 1] = arrays["values"][0, 1] = 0
    with pytest.raises(ValueError, match="steps without any observation must follow all others"):
        Observations(**arrays)


# --- the packed form ------------------------------------------------------------------------------------------------


def test_packed_is_time_then_values_then_mask_and_can_be_unpacked():
    some = _observations()
    packed = some.packed()
    assert (packed.shape, packed.dtype) == ((4, 6, 7), np.float32)
    np.testing.assert_array_equal(packed[..., 0], some.times)
    np.testing.assert_array_equal(packed[..., 1:4], some.values)
    np.testing.assert_array_equal(packed[..., 4:], some.mask)
    again = Observations.from_packed(packed)
    for name in ("times", "values", "mask"):
        np.testing.assert_array_equal(getattr(again, name), getattr(some, name))


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 1), (2, 7)])
def test_other_shapes_are_not_packed_observations(shape):
    with pytest.raises(ValueError, match=r"shape \(batch, steps, 1 \+ 2 \* features\), got"):
        Observations.from_packed(np.zeros(shape, np.float32))


# --- draws ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 6, 8])
def test_draws_are_ordered_subsets_of_the_right_size(count):
    some = _observations()
    drawn = subsample(some, count, np.random.default_rng(3))
    assert drawn.steps == count
    np.testing.assert_array_equal(drawn.num_valid, np.minimum(LENGTHS, count))
    for i in range(len(some)):
        points, every = _points(drawn, i), _points(some, i)
        assert [point for point in every if point in points] == points
        assert len(set(points)) == len(points)


def test_each_series_may_have_its_own_count():
    drawn = subsample(_observations(), np.asarray([2, 1, 5, 3]), np.random.default_rng(3))
    assert drawn.steps == 5
    np.testing.assert_array_equal(drawn.num_valid, [2, 0, 5, 1])


def test_draws_depend_on_the_generator_only_and_reach_every_step():
    some = _observations()
    first, again = (subsample(some, 2, np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(first.packed(), again.packed())
    rng = np.random.default_rng(0)
    seen = {float(t) for _ in range(60) for t in subsample(some, 1, rng).times[2]}
    assert seen == {float(t) for t in some.times[2]}
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        subsample(some, 0, rng)


# --- parts and data sets --------------------------------------------------------------------------------------------


def _labels(target: Observations) -> np.ndarray:
    return np.where(target.valid, 1, -1).astype(np.int32)


def test_a_selected_part_keeps_labels_and_identity():
    some = _observations()
    part = Part(some, some, _labels(some))
    chosen = part.select(slice(1, 3))
    assert (len(part), len(chosen)) == (4, 2)
    assert chosen.observed is chosen.target
    assert chosen.labels is not None
    np.testing.assert_array_equal(chosen.labels, _labels(some)[1:3])
    other = Part(subsample(some, 2, np.random.default_rng(0)), some).select(slice(2))
    assert other.observed is not other.target
    assert other.labels is None


def test_parts_that_do_not_fit_together_are_refused():
    some = _observations()
    with pytest.raises(ValueError, match="the same series and features"):
        Part(some.select(slice(2)), some)
    with pytest.raises(ValueError, match=r"labels must be int32 of shape .* = \(4, 6\)"):
        Part(some, some, np.zeros((4, 5), np.int32))
    with pytest.raises(ValueError, match="-1 at padding steps"):
        Part(some, some, np.zeros((4, 6), np.int32))


def test_a_data_set_that_contradicts_itself_is_refused():
    some = _observations()
    part, labelled = Part(some, some), Part(some, some, _labels(some))
    good = MaskedDataset("mine", "interpolation", part, part, None, ("a", "b", "c"), (0.0,) * 3, (1.0,) * 3, 2.0, "s",
                         0, 0, {}, "generated")  # fmt: skip
    for changes, message in (
        ({"task": "guessing"}, "task must be one of interpolation, prediction, classification, got 'guessing'"),
        ({"features": ("a", "b")}, "number of features must be the same everywhere"),
        ({"scale": (1.0,)}, "number of features must be the same everywhere"),
        ({"test": labelled}, "labels and num_classes belong together"),
        ({"num_classes": 2}, "labels and num_classes belong together"),
        ({"time_unit": 0.0}, "time_unit must be above zero"),
        ({"train": labelled, "validation": labelled, "num_classes": 1}, "labels of train must be below num_classes=1"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(good, **changes)


def test_scaling_by_maximum_and_by_range():
    lowest, highest = np.asarray([-1.0, 0.0, 2.0]), np.asarray([3.0, 0.0, 2.0])
    for how, expected in (("max", [3.0, 1.0, 2.0]), ("range", [4.0, 1.0, 1.0])):
        offset, scale = masked_series.min_max_scaling(lowest, highest, how)
        np.testing.assert_array_equal(offset, lowest)
        np.testing.assert_array_equal(scale, expected)


# --- splits ---------------------------------------------------------------------------------------------------------


def test_shuffled_split_is_that_of_scikit_learn():
    # train_test_split(range(10), train_size=0.8, random_state=42, shuffle=True) of scikit-learn.
    train, test = splits.shuffled(10)
    assert (train.tolist(), test.tolist()) == ([5, 0, 7, 2, 9, 4, 3, 6], [8, 1])
    train, test = splits.shuffled(8000)
    assert (len(train), len(test)) == (6400, 1600)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(8000))


def test_split_in_order_and_last_tenth():
    train, test = splits.in_order(25)
    assert (train.tolist(), test.tolist()) == (list(range(20)), list(range(20, 25)))
    for count, held_out in ((20, 2), (29, 2), (5, 1)):
        train, validation = splits.last_tenth(np.arange(count))
        np.testing.assert_array_equal(np.concatenate([train, validation]), np.arange(count))
        assert len(validation) == held_out
