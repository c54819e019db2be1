"""The hopper: generated in order, cut into windows or into past and future, normalised as published."""

import hashlib
import importlib.util
import sys

import numpy as np
import pytest

from ctfno_jax.data import hopper, problems
from ctfno_jax.data.masked_series import MaskedDataset

COUNT = 50
STEPS = 200
WITHOUT_TEST = ("train", "validation")
needs_mujoco = pytest.mark.skipif(
    importlib.util.find_spec("dm_control") is None, reason="mujoco and dm_control are not installed: the mujoco extra"
)


def _states(num_sequences: int, first: int = 0) -> np.ndarray:
    """States that tell sequence, step and feature: 1000 i + j + 0.01 k, and a first feature that is always zero."""
    i, j, k = np.meshgrid(np.arange(first, first + num_sequences), np.arange(STEPS), np.arange(14), indexing="ij")
    return np.where(k == 0, 0.0, 1000.0 * i + j + 0.01 * k)


@pytest.fixture
def asked(monkeypatch, tmp_path) -> list[tuple[int, int]]:
    """Known states in place of the simulator, in pieces of ten; what it was asked for."""
    calls: list[tuple[int, int]] = []

    def simulate(num_sequences: int, generator_seed: int, first: int = 0) -> np.ndarray:
        calls.append((num_sequences, first))
        return _states(num_sequences, first)

    monkeypatch.setattr(hopper, "simulate", simulate)
    monkeypatch.setattr(hopper, "_CHUNK", 10)
    monkeypatch.setenv("CTFNO_CACHE_DIR", str(tmp_path))
    return calls


def _load(**options) -> MaskedDataset:
    data = problems.load_dataset("mujoco", **{"num_sequences": COUNT, **options})
    assert isinstance(data, MaskedDataset)
    return data


def _raw(data: MaskedDataset, observations) -> np.ndarray:
    """States in their own units."""
    return observations.values.astype(np.float64) * data.scale + data.offset


def _positions(data: MaskedDataset, observations) -> tuple[np.ndarray, np.ndarray]:
    """Sequence and step of each point, from its second feature."""
    number = np.rint(_raw(data, observations)[..., 1] - 0.01).astype(int)
    return number // 1000, number % 1000


# --- split, windows and times -----------------------------------------------------------------------------------------


def test_parts_are_in_order_and_disjoint(asked):
    data = _load(observed=1.0)
    assert data.test is not None
    for part, first, last in ((data.train, 0, 36), (data.validation, 36, 40), (data.test, 40, 50)):
        sequence, _ = _positions(data, part.target)
        np.testing.assert_array_equal(sequence, np.repeat(np.arange(first, last)[:, None], 100, axis=1))
    assert data.info == {"num_sequences": 50, "num_steps": 100, "train": 36, "validation": 4, "test": 10,
                         "observed_steps": 100}  # fmt: skip
    assert (data.subsample, data.features, data.num_classes) == (0, hopper.FEATURES, 0)


def test_windows_are_consecutive_steps_from_a_drawn_start_with_times_from_zero(asked):
    data = _load(observed=1.0)
    target = data.train.target
    _, step = _positions(data, target)
    np.testing.assert_array_equal(step - step[:, :1], np.broadcast_to(np.arange(100), step.shape))
    assert step.min() >= 0
    assert step.max() <= 199
    assert len(np.unique(step[:, 0])) > 20
    np.testing.assert_array_equal(target.times, np.broadcast_to(np.arange(100, dtype=np.float32) / 200, step.shape))
    assert data.time_unit * target.times[0, 1] == pytest.approx(0.005)
    assert data.time_name == "s"
    _, first = _positions(data, _load(observed=1.0, windows="first").train.target)
    np.testing.assert_array_equal(first[:, 0], 0)


def test_prediction_is_of_the_last_134_of_200_steps(asked):
    data = _load(task="prediction", observed=1.0)
    for part in (data.train, data.validation):
        (_, seen), (_, asked_for) = (_positions(data, some) for some in (part.observed, part.target))
        np.testing.assert_array_equal(seen, np.broadcast_to(np.arange(66), seen.shape))
        np.testing.assert_array_equal(asked_for, np.broadcast_to(np.arange(66, 200), asked_for.shape))
        np.testing.assert_allclose(part.target.times, asked_for / 200, rtol=1e-6)


@pytest.mark.parametrize(("task", "observed", "count"), [("interpolation", 0.1, 10), ("interpolation", 0.3, 30),
                                                         ("prediction", 0.1, 6), ("prediction", 0.5, 33)])  # fmt: skip
def test_training_draws_anew_and_the_other_parts_hold_their_draw(asked, task, observed, count):
    data = _load(task=task, observed=observed)
    assert data.subsample == count
    assert data.train.observed.steps == (100 if task == "interpolation" else 66)
    assert (data.train.observed is data.train.target) == (task == "interpolation")
    for part in (data.validation, data.test):
        assert part is not None
        assert part.observed.values.shape == (len(part), count, 14)
        assert part.observed.valid.all()
        for i in range(len(part)):
            assert set(part.observed.times[i]) <= {np.float32(j / 200) for j in range(100)}


# --- normalisation ----------------------------------------------------------------------------------------------------


def test_scaling_is_by_minimum_and_maximum_of_all_states_or_of_training_states(asked):
    lowest, highest = (np.asarray([0.0, *(value + 0.01 * np.arange(1, 14))]) for value in (0.0, 49_199.0))
    by_max, by_range = _load(), _load(normalization="range")
    np.testing.assert_allclose(by_max.offset, lowest)
    np.testing.assert_allclose(by_max.scale, np.where(highest == 0, 1, highest))
    np.testing.assert_allclose(by_range.scale, np.where(highest == 0, 1, highest - lowest))
    # 36 training sequences: the last state is 35,199.
    np.testing.assert_allclose(_load(statistics="train").scale[1:], 35_199 + 0.01 * np.arange(1, 14))
    sequence, step = _positions(by_max, by_max.train.target)
    np.testing.assert_allclose(_raw(by_max, by_max.train.target)[..., 3], 1000 * sequence + step + 0.03, rtol=1e-5)


# --- generation -------------------------------------------------------------------------------------------------------


def test_pieces_are_made_in_order_once_and_told_about(asked):
    told = []
    first = _load(progress=lambda ready, of: told.append((ready, of)))
    assert asked == [(10, 0), (10, 10), (10, 20), (10, 30), (10, 40)]
    assert told == [(10, 50), (20, 50), (30, 50), (40, 50), (50, 50)]
    again = _load()
    assert len(asked) == 5
    np.testing.assert_array_equal(again.train.target.values, first.train.target.values)


def test_without_the_test_part_it_is_not_returned_and_the_others_stay_the_same(asked):
    whole, without = _load(), _load(parts=WITHOUT_TEST)
    assert without.test is None
    for name in WITHOUT_TEST:
        np.testing.assert_array_equal(getattr(without, name).observed.packed(), getattr(whole, name).observed.packed())


def test_statistics_of_training_sequences_need_no_test_sequence(asked):
    data = _load(parts=WITHOUT_TEST, statistics="train")
    assert asked == [(10, 0), (10, 10), (10, 20), (10, 30)]
    whole = _load(statistics="train")
    np.testing.assert_array_equal(data.train.target.packed(), whole.train.target.packed())
    np.testing.assert_array_equal(data.validation.observed.packed(), whole.validation.observed.packed())


def test_the_seed_decides_windows_and_draws(asked):
    first, again, other = (_load(seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.validation.observed.packed(), again.validation.observed.packed())
    assert np.any(first.validation.observed.packed() != other.validation.observed.packed())
    assert np.any(first.train.target.packed() != other.train.target.packed())


def test_other_bits_than_the_reference_are_noted_and_do_not_stop(asked, monkeypatch):
    monkeypatch.setitem(hopper._DIGESTS, COUNT, hashlib.sha256(_states(COUNT)).hexdigest())
    data = _load()
    assert data.info["checksum_agrees"] == 1
    assert "differ" not in data.source
    monkeypatch.setitem(hopper._DIGESTS, COUNT, "0" * 64)
    data = _load()
    assert data.info["checksum_agrees"] == 0
    assert "trajectories differ from the reference ones" in data.source
    # The reference is of one seed.
    assert "checksum_agrees" not in _load(generator_seed=5).info


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "classification"}, "option task of dataset mujoco must be one of interpolation, prediction"),
        ({"windows": "all"}, "option windows of dataset mujoco must be one of drawn_once, first, got 'all'"),
        ({"normalization": "z"}, "option normalization of dataset mujoco must be one of max, range, got 'z'"),
        ({"observed": 0.0}, "option observed of dataset mujoco must be above 0 and at most 1, got 0.0"),
        ({"observed": "half"}, "option observed of dataset mujoco must be above 0 and at most 1, got 'half'"),
        ({"observed": 0.005}, "observed=0.005 keeps none of the 100 steps"),
        ({"num_sequences": 5}, "num_sequences of dataset mujoco must be a whole number of at least 10, got 5"),
        ({"generator_seed": -1}, "generator_seed of dataset mujoco must be a whole number of at least 0, got -1"),
        ({"task": "prediction", "windows": "first"}, "option windows of dataset mujoco belongs to task=interpolation"),
        ({"noise": 1}, "dataset mujoco has no option noise; it has task, observed, num_sequences, windows"),
        ({"num_train": 5}, "mujoco is divided by its options; remove num_train"),
    ],
)
def test_wrong_options_are_one_line(asked, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        _load(**options)
    assert "\n" not in str(caught.value)
    assert asked == []


def test_a_missing_package_is_one_line_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("CTFNO_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "dm_control", None)
    with pytest.raises(ValueError, match=r"generated by mujoco and dm_control: pip install -e '\.\[mujoco\]'"):
        _load()


def test_initial_states_are_those_of_the_legacy_stream_from_any_sequence_on():
    stream = np.random.RandomState(123)
    expected = [
        np.concatenate([stream.uniform(0, 0.5, 2), stream.uniform(-2, 2, 5), stream.uniform(-5, 5, 7)])
        for _ in range(6)
    ]
    for first in (0, 4):
        positions, velocities = hopper.initial_states(2, 123, first)
        np.testing.assert_array_equal(np.concatenate([positions, velocities], axis=1), expected[first : first + 2])


@needs_mujoco
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_states_are_those_of_a_plain_loop_of_the_simulator():
    states = hopper.simulate(3, 123)
    assert (states.shape, states.dtype) == ((3, STEPS, 14), np.float64)
    from dm_control import suite

    physics = suite.load("hopper", "stand").physics
    stream = np.random.RandomState(123)
    for sequence in range(3):
        with physics.reset_context():
            physics.data.qpos[:2] = stream.uniform(0, 0.5, size=2)
            physics.data.qpos[2:] = stream.uniform(-2, 2, size=5)
            physics.data.qvel[:] = stream.uniform(-5, 5, size=7)
        for step in range(20):
            np.testing.assert_array_equal(states[sequence, step, :7], physics.data.qpos)
            np.testing.assert_array_equal(states[sequence, step, 7:], physics.data.qvel)
            physics.step()
    assert physics.timestep() == hopper.STEP_SECONDS
    names = [physics.model.id2name(i, "joint") for i in range(7)]
    assert hopper.FEATURES[:7] == tuple(f"position_{name}" for name in names)
    np.testing.assert_array_equal(hopper.simulate(1, 123, first=2), states[2:])
