"""Families of series: their definitions, the split, and the random draws."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from ctfno_jax.data import problems, series, synthetic
from ctfno_jax.solvers import van_der_pol

SIZES = {"num_train": 11, "num_validation": 3, "num_test": 4, "seed": 0}
POINTS = {"num_points": 15, "num_observed": 9}
STIFF = {
    "num_train": 4, "num_validation": 1, "num_test": 2, "seed": 0,
    "num_points": 8, "num_observed": 3, "final_time": 0.2,
}  # fmt: skip
WAVES = ("square", "sawtooth", "sine")


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch) -> Path:
    """Its own cache for every test."""
    monkeypatch.setenv("CTFNO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def calls(monkeypatch) -> list[int]:
    """Pieces of four stiff trajectories, and how many are asked for at once."""
    asked: list[int] = []

    def counting(positions, times):
        asked.append(len(positions))
        return synthetic.stiff(positions, times)

    monkeypatch.setitem(synthetic.FAMILIES, "stiff", synthetic.Family(counting, chunk=4))
    return asked


@pytest.fixture
def pair(monkeypatch) -> None:
    """A family with two features of very different size."""

    def values(phases, times):
        return np.concatenate([synthetic.sine(phases, times), 7 * synthetic.sawtooth(phases, times) + 20], axis=-1)

    monkeypatch.setitem(synthetic.FAMILIES, "pair", synthetic.Family(values))


def _load(name: str = "sine", **options) -> series.SeriesDataset:
    return synthetic.load_series(name, **{**SIZES, **POINTS, **options})


def _all(data: series.SeriesDataset) -> np.ndarray:
    """Trajectories of the three sets, test set first."""
    assert data.test is not None
    parts = [np.concatenate([part.observed, part.values], axis=1) for part in (data.test, data.validation, data.train)]
    return np.concatenate(parts)


def _all_times(part: series.Series) -> np.ndarray:
    return np.concatenate([part.observed_times, part.times], axis=-1)


# --- definitions --------------------------------------------------------------------------------------------------


def test_sawtooth_at_points_by_hand():
    phases, times = np.asarray([[0.0], [0.25]]), np.pi * np.asarray([0.5, 1.0, 3.0])
    np.testing.assert_allclose(
        synthetic.sawtooth(phases, times)[..., 0], [[0.25, 0.5, 0.5], [0.5, 0.75, 0.75]], rtol=1e-12
    )


def test_square_at_points_by_hand():
    phases, times = np.asarray([[0.0], [0.5]]), np.asarray([1.0, 3.0, 4.0, 7.0])
    np.testing.assert_array_equal(synthetic.square(phases, times)[..., 0], [[2, 2, 0, 2], [0, 0, 2, 0]])


def test_sine_at_points_by_hand():
    phases, times = np.asarray([[0.0], [0.25]]), np.pi * np.asarray([0.5, 1.0, 2.0])
    decay = np.exp(-0.05 * times)
    np.testing.assert_allclose(
        synthetic.sine(phases, times)[..., 0], decay * [[1, 0, 0], [0, -1, 1]], rtol=0, atol=1e-12
    )
    plain = synthetic.sine(phases, times, decay=0.0)[..., 0]
    np.testing.assert_allclose(plain, [[1, 0, 0], [0, -1, 1]], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", WAVES)
def test_times_of_their_own_are_those_of_each_wave(name):
    values = synthetic.FAMILIES[name].values
    phases, own = np.asarray([[0.1], [0.7]]), np.asarray([[0.3, 2.0, 5.0], [1.0, 4.0, 4.5]])
    u = values(phases, own)
    assert u.shape == (2, 3, 1)
    for i in range(2):
        np.testing.assert_array_equal(u[i], values(phases[i : i + 1], own[i])[0])


def test_the_stiff_family_starts_from_rest_and_runs_two_hundred_times_as_fast():
    positions, times = np.asarray([[0.0], [0.4], [1.0]]), np.asarray([0.0, 0.05])
    u = synthetic.stiff(positions, times)
    np.testing.assert_allclose(u[:, 0], [[0.1, 0], [0.86, 0], [2.0, 0]], rtol=1e-12)
    expected = van_der_pol.solve(np.asarray([[0.86, 0.0]]), np.asarray([10.0]), stiffness=1000.0)
    np.testing.assert_allclose(u[1, 1], expected[0, 0], rtol=1e-6)


@pytest.mark.slow
def test_spirals_start_on_a_square_grid():
    # Thirteen of the sixteen states of the smallest grid that holds as many.
    sizes = {"num_train": 8, "num_validation": 2, "num_test": 3}
    data = _load("spiral", **sizes, num_points=5, num_observed=1, final_time=1e-4)
    starts = _all(data)[:, 0]
    places = (starts + 2) * 3 / 4
    np.testing.assert_allclose(places, np.round(places), rtol=0, atol=1e-3)
    assert places.min() > -0.1
    assert places.max() < 3.1
    assert len({tuple(place) for place in np.round(places).astype(int)}) == 13
    assert data.train.features == len(problems.problem("spiral").components) == 2


def test_phases_are_even_or_drawn():
    # Of a sawtooth without much time to rise, the value is the phase.
    grid, drawn = (_load("sawtooth", phases=phases, final_time=1e-6) for phases in ("grid", "random"))
    gaps = np.diff(np.unique(np.round(_all(grid)[:, 0, 0] % 1, 5)))
    np.testing.assert_allclose(gaps, gaps[0], rtol=0, atol=1e-4)
    assert gaps[0] < 0.06
    phases = np.unique(_all(drawn)[:, 0, 0])
    assert len(phases) == 18
    assert np.diff(phases).max() > 0.1


@pytest.mark.parametrize("name", ["sawtooth", "sine"])
def test_no_two_trajectories_of_a_family_are_the_same(name):
    u = _all(_load(name))
    distance = np.abs(u[:, None] - u[None]).max((2, 3))
    assert np.all(distance[~np.eye(18, dtype=bool)] > 1e-3)


# --- the split ----------------------------------------------------------------------------------------------------


def test_sizes_are_the_asked_ones():
    data = _load()
    assert (data.name, len(data.train), len(data.validation), len(data.test)) == ("sine", 11, 3, 4)
    assert (data.train.observed.shape, data.train.values.shape) == ((11, 9, 1), (11, 6, 1))
    assert data.train.values.dtype == data.train.times.dtype == np.float32


def test_times_end_at_the_last_and_zero_is_none_of_them():
    data = _load(final_time=3.0, clock="zero")
    np.testing.assert_allclose(_all_times(data.train), 0.2 * np.arange(1, 16), rtol=1e-6)
    last = _load(final_time=3.0)
    np.testing.assert_allclose(last.train.observed_times, 0.2 * np.arange(-8, 1), rtol=0, atol=1e-6)
    np.testing.assert_allclose(last.train.times, 0.2 * np.arange(1, 7), rtol=1e-5)
    np.testing.assert_array_equal(_all(last), _all(data))


def test_no_trajectory_is_in_two_sets():
    assert len(np.unique(_all(_load(phases="random"))[:, :, 0], axis=0)) == 18


def test_the_test_set_stays_the_same_whatever_is_held_out_for_validation():
    few, many = (_load(num_validation=n, num_train=14 - n, noise=0.1) for n in (1, 6))
    np.testing.assert_array_equal(few.test.observed, many.test.observed)
    np.testing.assert_array_equal(few.test.values, many.test.values)
    np.testing.assert_array_equal(few.validation.values[0], many.validation.values[0])


@pytest.mark.parametrize("options", [{}, {"phases": "random", "irregular": True, "noise": 0.2}])
def test_the_seed_decides_everything_that_is_drawn(options):
    first, again, other = (_load(seed=seed, **options) for seed in (0, 0, 1))
    for name in ("observed_times", "observed", "times", "values"):
        np.testing.assert_array_equal(getattr(first.train, name), getattr(again.train, name))
    assert np.abs(first.test.values - other.test.values).max() > 1e-2


def test_another_seed_shares_out_the_same_trajectories():
    one, other = (np.sort(_all(_load("sawtooth", seed=seed))[:, 0, 0]) for seed in (0, 1))
    np.testing.assert_array_equal(one, other)


def test_facts_describe_the_queries_of_the_training_set_before_normalisation(monkeypatch):
    """A family whose amplitude grows along the trajectory and from one trajectory to the next."""
    growing = synthetic.Family(lambda positions, times: ((1 + positions) * times)[..., None])
    monkeypatch.setitem(synthetic.FAMILIES, "growing", growing)
    for normalization in ("none", "training"):
        info = _load("growing", normalization=normalization).info
        plain = _load("growing")
        assert info == {"std": pytest.approx(float(plain.train.values.std()), rel=1e-6), "num_points": 15}
        for other in (plain.train.observed, _all(plain)[:, 9:], plain.validation.values):
            assert abs(float(other.std()) / info["std"] - 1) > 0.01


# --- without the test set -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("square", {}),
        ("sine", {"irregular": True, "noise": 0.2, "normalization": "training"}),
        ("stiff", {"num_points": 8, "num_observed": 3, "final_time": 0.2, "num_train": 4, "num_test": 3}),
    ],
)
def test_without_the_test_set_the_others_stay_the_same(name, options):
    whole, data = (_load(name, with_test=flag, **options) for flag in (True, False))
    assert data.test is None
    for part in ("train", "validation"):
        for field in ("observed_times", "observed", "times", "values"):
            np.testing.assert_array_equal(getattr(getattr(data, part), field), getattr(getattr(whole, part), field))
    assert data.info == {fact: value for fact, value in whole.info.items() if fact != "spikes_in_test"}


@pytest.mark.parametrize("chunk", [0, 4])
@pytest.mark.parametrize("phases", synthetic.PHASES)
def test_no_value_of_a_test_trajectory_is_computed_without_the_test_set(monkeypatch, chunk, phases):
    asked: list[float] = []

    def values(positions, times):
        asked.extend(positions[:, 0])
        return (positions + 0 * times)[..., None]

    monkeypatch.setitem(synthetic.FAMILIES, "constant", synthetic.Family(values, chunk=chunk))
    _load("constant", phases=phases, with_test=False)
    computed = np.float32(asked)
    whole = _load("constant", phases=phases)
    assert whole.test is not None
    assert len(computed) == 14
    assert not np.any(np.isin(computed, whole.test.values))
    # With a cache, the whole data need the test set only.
    assert len(asked) == 14 + (4 if chunk else 18)


def test_statistics_of_the_whole_need_the_test_set():
    with pytest.raises(ValueError, match="normalization=whole uses the test set; load it too, or use normalization=tr"):
        _load(normalization="whole", with_test=False)


# --- what can be asked for ----------------------------------------------------------------------------------------


def test_irregular_times_are_sorted_and_of_each_trajectory():
    data = _load(irregular=True, clock="zero", final_time=5.0)
    assert not data.train.regular
    times = np.concatenate([_all_times(part) for part in (data.test, data.validation, data.train)])
    assert times.shape == (18, 15)
    assert np.all(np.diff(times, axis=1) > 0)
    assert 0 < times.min() < 1
    assert 4 < times.max() < 5
    assert len(np.unique(times)) == 18 * 15


def test_values_at_irregular_times_are_those_of_one_wave():
    # Value less time of a sawtooth, in turns, is its phase: all along a trajectory.
    data = _load("sawtooth", irregular=True, clock="zero")
    for part in (data.train, data.validation, data.test):
        values = np.concatenate([part.observed, part.values], axis=1)[..., 0]
        phases = np.exp(2j * np.pi * values - 1j * _all_times(part))
        np.testing.assert_allclose(phases, np.broadcast_to(phases[:, :1], phases.shape), rtol=0, atol=1e-4)


def test_irregular_trajectories_count_from_their_own_last_observation():
    zero, last = (_load(irregular=True, clock=clock).train for clock in ("zero", "last"))
    np.testing.assert_array_equal(last.observed_times[:, -1], 0)
    np.testing.assert_allclose(last.times, zero.times - zero.observed_times[:, -1:], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(last.values, zero.values)


def test_irregular_times_are_never_refused():
    sizes = {"num_train": 40, "num_validation": 20, "num_test": 30, "num_points": 200, "num_observed": 100}
    data = _load(irregular=True, **sizes, seed=107)
    assert np.all(np.diff(data.train.observed_times, axis=1) > 0)


def test_noise_is_added_to_observed_values_only(pair):
    clean, noisy = (_load("pair", num_train=57, noise=noise) for noise in (0.0, 0.3))
    for part in ("train", "validation", "test"):
        a, b = getattr(clean, part), getattr(noisy, part)
        np.testing.assert_array_equal(a.values, b.values)
        np.testing.assert_array_equal(a.times, b.times)
        assert np.all(a.observed != b.observed)
    added = noisy.train.observed - clean.train.observed
    assert added.std() == pytest.approx(0.3, rel=0.1)
    assert abs(added.mean()) < 0.05


def _moments(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return u.mean((0, 1), dtype=np.float64), u.std((0, 1), dtype=np.float64)


def test_nothing_is_normalised_unless_asked_for():
    np.testing.assert_array_equal(_all(_load("square"))[..., 0] % 2, 0)


def test_statistics_of_the_training_set_see_nothing_else(pair):
    plain, normal = (_load("pair", normalization=how) for how in ("none", "training"))
    mean, std = _moments(_all(plain)[7:])
    np.testing.assert_allclose(_all(normal), (_all(plain) - mean) / std, rtol=0, atol=1e-5)
    whole_mean, _ = _moments(_all(normal))
    assert np.abs(whole_mean).max() > 1e-3


def test_statistics_of_the_whole_see_the_test_set_too(pair):
    plain, normal = (_load("pair", normalization=how) for how in ("none", "whole"))
    mean, std = _moments(_all(plain))
    np.testing.assert_allclose(_all(normal), (_all(plain) - mean) / std, rtol=0, atol=1e-5)
    np.testing.assert_allclose(_moments(_all(normal)), [[0, 0], [1, 1]], rtol=0, atol=1e-5)


def test_options_of_a_family_reach_it():
    growing = _load(decay=-0.1)
    assert np.abs(growing.train.values).max() > 3 * np.abs(_load(decay=0.1).train.values).max()


# --- what is refused ----------------------------------------------------------------------------------------------


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown family 'cosine'; known are square, sawtooth, sine, stiff, spiral"):
        _load("cosine")


@pytest.mark.parametrize(("name", "option", "last"), [("sine", "dekay", "decay"), ("square", "decay", "normalization")])
def test_an_unknown_option_lists_the_known_ones(name, option, last):
    message = f"dataset {name} has no option {option}; it has num_points, num_observed, .*{last}$"
    with pytest.raises(ValueError, match=message):
        _load(name, **{option: 1.0})


def test_options_of_a_family_are_its_own_and_the_common_ones():
    common = "num_points num_observed final_time phases irregular noise clock normalization"
    assert synthetic.known_options("sine") == (*common.split(), "decay")
    assert synthetic.known_options("spiral") == tuple(common.split())


@pytest.mark.parametrize(
    ("option", "known"),
    [("phases", "grid, random"), ("clock", "last, zero"), ("normalization", "none, training, whole")],
)
def test_a_choice_that_there_is_not_lists_those_that_there_are(option, known):
    with pytest.raises(ValueError, match=f"option {option} of dataset sine must be one of {known}, got 'other'"):
        _load(**{option: "other"})


@pytest.mark.parametrize(
    "option", [{"num_points": 1}, {"final_time": 0.0}, {"final_time": float("nan")}, {"noise": -0.1}]
)
def test_sizes_out_of_range_are_refused(option):
    with pytest.raises(ValueError, match="dataset sine needs num_points >= 2, final_time > 0 and noise >= 0, got"):
        _load(**option)


@pytest.mark.parametrize("num_observed", [0, 15])
def test_there_must_be_something_observed_and_something_asked_for(num_observed):
    with pytest.raises(ValueError, match=f"num_observed must be between 1 and 14 of 15 points, got {num_observed}"):
        _load(num_observed=num_observed)


# --- the square wave ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delay", "error"), [(0.0, 0.0), (0.25, np.sqrt(0.75)), (0.5, 1.0), (0.75, np.sqrt(0.75)), (1.0, 0.0), (1.5, 1.0)]
)
def test_the_least_error_after_one_point_depends_on_when_the_wave_may_have_jumped(delay, error):
    # After that part of half a period, the wave jumped with that probability: zero or two around the mean.
    times = np.pi * np.asarray([0.3, 0.3 + delay])
    assert synthetic.least_square_error(times, 1) == pytest.approx(error, abs=0.02)


def test_the_least_error_is_less_the_more_was_observed():
    times = 0.4 * np.arange(1, 41)
    errors = [synthetic.least_square_error(np.concatenate([times[:n], times[20:]]), n) for n in (1, 5, 20)]
    assert errors[0] > errors[1] > errors[2] > 0


def test_no_forecast_of_a_fine_family_is_better_than_the_least_error():
    # The mean of what looks the same so far is the best one.
    data = _load("square", num_train=1999, num_validation=1, num_test=1, num_points=12, num_observed=5)
    groups: dict[bytes, list[np.ndarray]] = {}
    for observed, values in zip(data.train.observed, data.train.values, strict=True):
        groups.setdefault(observed.tobytes(), []).append(values)
    squares = np.concatenate([np.square(np.stack(g) - np.mean(g, axis=0)).reshape(-1) for g in groups.values()])
    assert data.info["least_rmse"] == pytest.approx(np.sqrt(squares.mean()), rel=0.02)


@pytest.mark.parametrize("options", [{"irregular": True}, {"noise": 0.1}, {"normalization": "training"}])
def test_the_least_error_is_told_only_where_it_is_known(options):
    assert "least_rmse" in _load("square").info
    assert "least_rmse" not in _load("square", **options).info
    assert "least_rmse" not in _load("sine").info


# --- the stiff family ---------------------------------------------------------------------------------------------


def test_stiff_trajectories_are_kept_and_found_again(calls, cache_folder):
    told: list[tuple[int, int]] = []
    data = synthetic.load_series("stiff", **STIFF, progress=lambda *p: told.append(p))
    # Two of the test set, and five others in pieces of four.
    assert calls == [2, 4, 1]
    assert told == [(2, 2), (4, 5), (5, 5)]
    again = synthetic.load_series("stiff", **STIFF)
    assert calls == [2, 4, 1]
    np.testing.assert_array_equal(_all(again), _all(data))
    names = sorted(sorted(path.name for path in folder.iterdir()) for folder in cache_folder.iterdir())
    assert names == [["000000-0004.npz"], ["000000-0004.npz", "000004-0004.npz"]]


def test_another_noise_or_normalisation_needs_no_new_trajectories(calls):
    synthetic.load_series("stiff", **STIFF)
    calls.clear()
    changes = {"num_observed": 5, "noise": 0.1, "normalization": "training", "clock": "zero"}
    synthetic.load_series("stiff", **{**STIFF, **changes})
    assert calls == []


@pytest.mark.parametrize(
    "change", [{"final_time": 0.3}, {"num_train": 5}, {"phases": "random"}, {"irregular": True}, {"seed": 3}]
)
def test_other_trajectories_are_not_mistaken_for_those_on_disk(calls, change):
    synthetic.load_series("stiff", **STIFF)
    calls.clear()
    synthetic.load_series("stiff", **{**STIFF, **change})
    assert calls[:2] == [2, 4]


def test_drawn_trajectories_of_another_seed_are_not_mistaken_for_those_on_disk(calls):
    one, other = (synthetic.load_series("stiff", **{**STIFF, "seed": seed}, phases="random") for seed in (0, 1))
    assert calls == [2, 4, 1, 2, 4, 1]
    assert np.abs(np.sort(_all(one)[:, 0, 0]) - np.sort(_all(other)[:, 0, 0])).max() > 1e-2


@pytest.mark.parametrize("irregular", [False, True])
def test_trajectories_from_pieces_are_those_solved_together(calls, monkeypatch, irregular):
    pieces = synthetic.load_series("stiff", **STIFF, irregular=irregular)
    monkeypatch.setitem(synthetic.FAMILIES, "stiff", synthetic.Family(synthetic.stiff))
    together = synthetic.load_series("stiff", **STIFF, irregular=irregular)
    np.testing.assert_array_equal(_all(pieces), _all(together))
    np.testing.assert_array_equal(_all_times(pieces.train), _all_times(together.train))


def test_waves_are_not_kept_on_disk(cache_folder):
    for name in WAVES:
        _load(name)
    assert not cache_folder.exists()


def test_spikes_are_velocities_that_exceed_one():
    values = np.zeros((2, 3, 2), np.float32)
    values[0, 1, 1], values[1, 2, 1], values[1, 0, 1], values[0, 0, 0] = 5.0, -1.5, 0.9, 7.0
    assert synthetic.spikes(values) == 2


def _jumping(positions: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Velocities below one, a few of them much larger than the others."""
    x = positions + 0 * times
    y = np.where(np.arange(len(times)) % 7 == 6, 0.5 + 0.4 * positions, 1e-3)
    return np.stack([x, y], axis=-1)


def test_facts_of_the_stiff_family(monkeypatch):
    steeper = lambda positions, times: 3 * _jumping(positions, times)  # noqa: E731
    monkeypatch.setitem(synthetic.FAMILIES, "stiff", synthetic.Family(steeper))
    data = _load("stiff")
    assert data.info["std_x"] == pytest.approx(float(data.train.values[..., 0].std()), rel=1e-6)
    # Of the points 7 and 14, the second one is to be predicted.
    assert (data.info["spikes_in_training"], data.info["spikes_in_test"]) == (11, 4)


def test_spikes_are_the_same_in_other_units(monkeypatch):
    monkeypatch.setitem(synthetic.FAMILIES, "stiff", synthetic.Family(_jumping))
    plain, normal = (_load("stiff", normalization=how).info for how in ("none", "training"))
    assert plain["spikes_in_training"] == normal["spikes_in_training"] == 0


def test_a_family_whose_values_are_not_finite_is_refused(monkeypatch):
    broken = dataclasses.replace(synthetic.FAMILIES["sine"], values=lambda p, t: (np.nan * p * t)[..., None])
    monkeypatch.setitem(synthetic.FAMILIES, "sine", broken)
    with pytest.raises(ValueError, match="observed contains values that are not finite"):
        _load()
