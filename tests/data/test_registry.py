"""Data sets by name: fields, generated and kept on disk or read from PDEBench's files, and series."""

import dataclasses
from pathlib import Path

import h5py
import numpy as np
import pytest

from ctfno_jax.data import cache, equations, fields, pdebench, registry, series, synthetic

OPTIONS = {"num_points": 16, "num_times": 3}
SIZES = {"num_train": 4, "num_validation": 1, "num_test": 2}
CACHED = {
    "burgers": {"num_points": 15, "num_times": 2, "final_time": 0.02},
    "diffusion_sorption": {"num_points": 16, "num_times": 2, "final_time": 50.0},
    "navier_stokes": {"num_points": 16, "num_times": 2, "final_time": 0.01},
}
EACH_CACHED = pytest.mark.parametrize("name", list(CACHED))


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch) -> Path:
    """Its own cache and no data folder for every test."""
    monkeypatch.setenv("CTFNO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CTFNO_DATA_DIR", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def calls(monkeypatch) -> list[tuple[int, int]]:
    """Pieces of two samples, and what their generators are asked for; asking for refinement is not counted."""
    asked: list[tuple[int, int]] = []

    def counting(generate):
        def wrapped(num_samples, seed, first=0, **options):
            if "refinement" not in options:
                asked.append((num_samples, first))
            return generate(num_samples, seed, first, **options)

        wrapped.__wrapped__ = generate  # keeps its signature
        return wrapped

    for name, equation in equations.EQUATIONS.items():
        small = dataclasses.replace(equation, generate=counting(equation.generate), chunk=2 if equation.chunk else 0)
        monkeypatch.setitem(equations.EQUATIONS, name, small)
    return asked


def test_sizes_are_the_asked_ones_and_validation_is_taken_out_of_training():
    data = registry.load_dataset("heat", num_train=9, num_validation=2, num_test=4, **OPTIONS)
    assert (len(data.train), len(data.validation), len(data.test)) == (7, 2, 4)
    assert data.name == "heat"


def test_no_trajectory_is_in_two_sets():
    data = registry.load_dataset("heat", num_train=9, num_validation=2, num_test=4, **OPTIONS)
    u0 = np.concatenate([data.train.u0, data.validation.u0, data.test.u0])
    assert len(np.unique(u0.reshape(13, -1), axis=0)) == 13


def test_the_seed_decides_the_data():
    first, again, other = (
        registry.load_dataset("heat", num_train=5, num_validation=1, num_test=2, seed=seed, **OPTIONS)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.test.u, again.test.u)
    assert np.abs(first.test.u - other.test.u).max() > 1e-3


def test_options_reach_the_generator():
    data = registry.load_dataset("heat", num_train=5, num_validation=1, num_test=2, final_time=0.6, **OPTIONS)
    np.testing.assert_allclose(data.train.times, [0.2, 0.4, 0.6], rtol=1e-6)
    expected = equations.heat_trajectories(7, 0, final_time=0.6, **OPTIONS)
    np.testing.assert_array_equal(data.test.u, expected.u[:2])


def test_facts_describe_the_training_data():
    data = registry.load_dataset("heat", num_train=5, num_validation=1, num_test=2, **OPTIONS)
    assert data.info["initial_std"] == pytest.approx(float(data.train.u0.std()), rel=1e-6)
    assert data.info["final_std"] == pytest.approx(float(data.train.u[:, -1].std()), rel=1e-6)
    assert (data.info["num_points"], data.info["num_times"]) == (16, 3)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown dataset 'heet'; known are .*heat"):
        registry.load_dataset("heet")
    assert "heat" in registry.dataset_names()


def test_names_are_those_of_equations_and_of_series():
    waves = {"sawtooth", "sine", "spiral", "square", "stiff"}
    solved = {"burgers", "diffusion_sorption", "heat", "navier_stokes", "reaction"}
    assert registry.dataset_names() == tuple(sorted(waves | solved | {"plane_vibration"}))
    with pytest.raises(ValueError, match=f"known are {', '.join(registry.dataset_names())}$"):
        registry.load_dataset("waves")


def test_a_series_is_found_by_its_name():
    settings = {**SIZES, "seed": 2, "num_points": 9, "num_observed": 5, "decay": 0.3}
    data, direct = registry.load_dataset("sine", **settings), synthetic.load_series("sine", **settings)
    assert isinstance(data, series.SeriesDataset)
    np.testing.assert_array_equal(data.train.values, direct.train.values)
    np.testing.assert_array_equal(data.test.observed, direct.test.observed)


def test_a_field_is_found_by_its_name():
    data, direct = (load("heat", **SIZES, **OPTIONS) for load in (registry.load_dataset, registry.load_fields))
    assert isinstance(data, fields.FieldDataset)
    np.testing.assert_array_equal(data.test.u, direct.test.u)


def test_fields_know_the_equations_only():
    for load in (registry.load_fields, registry.load_between_times):
        with pytest.raises(ValueError, match=r"unknown dataset 'sine'; known are heat, .*reaction$"):
            load("sine")


def test_a_series_is_never_read_from_a_file():
    assert registry.find_data_file("sine", None) is None
    with pytest.raises(ValueError, match="dataset sine has no option data_file; it has num_points"):
        registry.load_dataset("sine", **SIZES, data_file="sine.hdf5")


def test_reactions_tell_how_many_draws_were_rejected(cache_folder):
    options = {**OPTIONS, "margin": 1.5, "max_wave": 2}
    data = registry.load_dataset("reaction", **SIZES, seed=3, rate=2.0, **options)
    expected = equations.rejected_reactions(6, 3, num_points=16, margin=1.5, max_wave=2)
    assert data.info["rejected_draws"] == expected > 0
    assert data.info["discretisation_error"] == 0
    assert not cache_folder.exists()
    assert "rejected_draws" not in registry.load_dataset("heat", **SIZES, **OPTIONS).info


def test_an_unknown_option_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"dataset heat has no option viscocity; it has num_points, viscosity"):
        registry.load_dataset("heat", viscocity=1.0)


@pytest.mark.parametrize("reserved", ["num_samples"])
def test_arguments_of_the_generator_that_are_not_options_are_refused(reserved):
    with pytest.raises(ValueError, match=f"dataset heat has no option {reserved}"):
        registry.load_dataset("heat", **{reserved: 3})


@pytest.mark.parametrize("option", [{"num_points": "many"}, {"num_times": 0}, {"num_points": 0}, {"viscosity": "x"}])
def test_options_of_a_wrong_type_or_size_are_a_value_error(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        registry.load_dataset("heat", num_train=5, num_validation=1, num_test=2, **{**OPTIONS, **option})


def test_trajectories_between_times_start_from_the_same_states_and_agree_with_the_solver():
    sizes = {"num_test": 2, "seed": 3}
    data = registry.load_dataset("heat", num_train=5, num_validation=1, num_points=16, num_times=4, **sizes)
    between = registry.load_between_times("heat", num_points=16, num_times=4, **sizes)
    np.testing.assert_array_equal(between.u0, data.test.u0)
    middle = (data.test.times[1:] + data.test.times[:-1]) / 2
    np.testing.assert_allclose(between.times, middle, rtol=1e-6)
    # Every frequency decays between its values at the two neighbouring times.
    spectra = [np.abs(np.fft.rfft(u[..., 0], axis=-1))[..., 1] for u in (data.test.u, between.u)]
    np.testing.assert_allclose(spectra[1], np.sqrt(spectra[0][:, 1:] * spectra[0][:, :-1]), rtol=1e-5)


# --- the cache ----------------------------------------------------------------------------------------------------


@EACH_CACHED
def test_generated_sets_are_kept_and_found_again(name, calls, cache_folder):
    data = registry.load_dataset(name, **SIZES, **CACHED[name])
    assert calls == [(2, 0), (2, 2), (2, 4)]
    calls.clear()
    again = registry.load_dataset(name, **SIZES, **CACHED[name])
    assert calls == []
    for part in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(again, part).u, getattr(data, part).u)
        np.testing.assert_array_equal(getattr(again, part).u0, getattr(data, part).u0)
    assert again.info == data.info
    (folder,) = cache_folder.iterdir()
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["000000-0002.npz", "000002-0002.npz", "000004-0002.npz", "discretisation_error.json"]
    assert data.source == "generated"


@EACH_CACHED
def test_cached_samples_are_those_of_the_generator(name, calls):
    data = registry.load_dataset(name, **SIZES, seed=3, **CACHED[name])
    expected = equations.EQUATIONS[name].generate(6, 3, **CACHED[name])
    parts = [data.test, data.validation, data.train]
    np.testing.assert_array_equal(np.concatenate([part.u0 for part in parts]), expected.u0)
    np.testing.assert_allclose(np.concatenate([part.u for part in parts]), expected.u, rtol=1e-5, atol=1e-6)


def test_heat_is_not_kept_on_disk(cache_folder):
    registry.load_dataset("heat", **SIZES, **OPTIONS)
    assert not cache_folder.exists()


def test_more_training_data_need_only_the_missing_pieces(calls):
    options = CACHED["diffusion_sorption"]
    few = registry.load_dataset("diffusion_sorption", **SIZES, **options)
    calls.clear()
    told = []
    many = registry.load_dataset(
        "diffusion_sorption", **{**SIZES, "num_train": 7}, **options, progress=lambda *p: told.append(p)
    )
    assert calls == [(2, 6), (2, 8)]
    assert told == [(8, 9), (9, 9)]
    np.testing.assert_array_equal(many.test.u, few.test.u)


def test_naming_a_default_is_the_same_folder_and_another_value_is_not():
    folder = lambda seed=0, **o: cache.folder_of("burgers", seed, registry._all_options("burgers", o))  # noqa: E731
    assert folder(viscosity=1e-3, sigma=49.0) == folder() == folder(refinement=1)
    assert len({folder(), folder(viscosity=2e-3), folder(refinement=2), folder(num_times=100), folder(1)}) == 5


def test_all_options_are_the_keyword_arguments_of_the_generator():
    assert registry._all_options("diffusion_sorption", {"num_times": 7}) == {
        "num_points": 1024, "num_times": 7, "final_time": 500.0, "refinement": 1,
    }  # fmt: skip


def test_the_discretisation_error_is_measured_once_and_again_if_its_file_is_damaged(calls, cache_folder, monkeypatch):
    load = lambda: registry.load_dataset("diffusion_sorption", **SIZES, **CACHED["diffusion_sorption"])  # noqa: E731
    error = load().info["discretisation_error"]
    assert 0 < error < 1e-3
    monkeypatch.setattr(equations, "discretisation_error", lambda *args, **options: 0.125)
    assert load().info["discretisation_error"] == error
    (path,) = cache_folder.glob("*/discretisation_error.json")
    path.write_text("{")
    assert load().info["discretisation_error"] == 0.125


def test_facts_of_several_channels_carry_their_names(calls):
    data = registry.load_dataset("navier_stokes", **SIZES, **CACHED["navier_stokes"])
    for i, channel in enumerate(("density", "pressure", "velocity")):
        assert data.info[f"initial_std_{channel}"] == pytest.approx(float(data.train.u0[..., i].std()), rel=1e-5)
        assert data.info[f"final_std_{channel}"] == pytest.approx(float(data.train.u[:, -1, :, i].std()), rel=1e-5)


@EACH_CACHED
def test_times_between_lie_half_way_and_agree_with_the_generator(name, calls):
    options = {**CACHED[name], "num_times": 3}
    data = registry.load_dataset(name, **SIZES, **options)
    between = registry.load_between_times(name, num_test=2, **options)
    np.testing.assert_array_equal(between.u0, data.test.u0)
    np.testing.assert_allclose(between.times, (data.test.times[1:] + data.test.times[:-1]) / 2, rtol=1e-6)
    direct = equations.EQUATIONS[name].generate(2, 0, **{**options, "num_times": 6})
    np.testing.assert_allclose(between.u, direct.u[:, [2, 4]], rtol=1e-5, atol=1e-6)
    # At the times of the data the finer set is the data, up to the steps of the solver.
    np.testing.assert_allclose(direct.u[:, 1::2], data.test.u, rtol=2e-2, atol=2e-2)


# --- files --------------------------------------------------------------------------------------------------------

INSTANTS, POINTS, IN_FILE = 7, 16, 9


def _frames(sample: int, channel: int = 0) -> np.ndarray:
    """Numbers that tell their own place."""
    place = channel * 1000.0 + sample * 100.0 + np.arange(INSTANTS)[:, None] * 10.0 + np.arange(POINTS) / 100
    return place.astype(np.float32)


@pytest.fixture
def data_dir(tmp_path) -> Path:
    """Both of PDEBench's files, with nine samples each."""
    folder = tmp_path / "files"
    folder.mkdir()
    with h5py.File(folder / pdebench.FILES["diffusion_sorption"], "w") as file:
        for i in range(IN_FILE):
            file[f"{i:04d}/data"] = _frames(i)[..., None]
            file[f"{i:04d}/grid/t"] = 5 * np.arange(INSTANTS, dtype=np.float32)
    with h5py.File(folder / pdebench.FILES["navier_stokes"], "w") as file:
        for channel, name in enumerate(("density", "pressure", "Vx")):
            file[name] = np.stack([_frames(i, channel) for i in range(IN_FILE)])
        file["t-coordinate"] = 5 * np.arange(INSTANTS + 1, dtype=np.float32)
    return folder


EACH_FILE = pytest.mark.parametrize("name", list(pdebench.FILES))


def _samples(part: fields.Trajectories) -> list[int]:
    return [round(float(u)) // 100 for u in part.u0[:, 0, 0]]


@EACH_FILE
def test_samples_of_a_file_are_shared_out_without_overlap(name, data_dir, cache_folder):
    path = registry.find_data_file(name, data_dir)
    data = registry.load_dataset(name, **SIZES, data_file=path)
    chosen = [_samples(part) for part in (data.train, data.validation, data.test)]
    assert [len(part) for part in chosen] == [3, 1, 2]
    assert len({sample for part in chosen for sample in part}) == 6
    np.testing.assert_array_equal(data.train.times, [10, 20, 30])
    for i, sample in enumerate(chosen[2]):
        np.testing.assert_array_equal(data.test.u[i, :, :, 0], _frames(sample)[[2, 4, 6]])
    assert data.source == pdebench.FILES[name]
    assert "discretisation_error" not in data.info
    assert not cache_folder.exists()


@EACH_FILE
def test_the_seed_chooses_and_more_training_data_leave_the_test_set_alone(name, data_dir):
    path = registry.find_data_file(name, data_dir)
    few, many, other = (
        registry.load_dataset(name, **{**SIZES, "num_train": n}, seed=seed, data_file=path)
        for n, seed in ((4, 0), (7, 0), (7, 1))
    )
    assert _samples(few.test) == _samples(many.test)
    assert _samples(few.validation) == _samples(many.validation)
    assert set(_samples(few.train)) < set(_samples(many.train))
    assert _samples(many.train) != _samples(other.train)


@EACH_FILE
def test_times_between_those_of_a_file(name, data_dir):
    path = registry.find_data_file(name, data_dir)
    sizes = {"num_train": 4, "num_test": 2, "seed": 5}
    data = registry.load_dataset(name, num_validation=1, data_file=path, **sizes)
    between = registry.load_between_times(name, data_file=path, **sizes)
    np.testing.assert_array_equal(between.u0, data.test.u0)
    np.testing.assert_array_equal(between.times, [15, 25])
    for i, sample in enumerate(_samples(data.test)):
        np.testing.assert_array_equal(between.u[i, :, :, 0], _frames(sample)[[3, 5]])


@EACH_FILE
def test_too_few_samples_in_a_file(name, data_dir):
    path = registry.find_data_file(name, data_dir)
    with pytest.raises(ValueError, match=r"holds 9 samples, 10 were asked for; lower num_train and num_test"):
        registry.load_dataset(name, num_train=8, num_validation=1, num_test=2, data_file=path)


@EACH_FILE
def test_options_of_the_generator_are_refused_with_a_file(name, data_dir):
    path = registry.find_data_file(name, data_dir)
    with pytest.raises(ValueError, match=r"is read from a file; option num_points is of the generator only"):
        registry.load_dataset(name, **SIZES, data_file=path, num_points=16)


@EACH_FILE
def test_a_folder_given_by_hand_must_hold_the_file(name, data_dir, tmp_path):
    assert registry.find_data_file(name, data_dir) == data_dir / pdebench.FILES[name]
    assert registry.find_data_file(name, str(data_dir)) == data_dir / pdebench.FILES[name]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"doi:10\.18419/darus-2986"):
        registry.find_data_file(name, tmp_path / "empty")
    with pytest.raises(ValueError, match="is not a folder"):
        registry.find_data_file(name, tmp_path / "nowhere")


def test_the_folder_of_the_environment_may_hold_some_of_the_files(data_dir, tmp_path, monkeypatch):
    assert registry.find_data_file("navier_stokes", None) is None
    monkeypatch.setenv("CTFNO_DATA_DIR", str(data_dir))
    (data_dir / pdebench.FILES["diffusion_sorption"]).unlink()
    assert registry.find_data_file("navier_stokes", None) == data_dir / pdebench.FILES["navier_stokes"]
    assert registry.find_data_file("diffusion_sorption", None) is None
    # What is given by hand comes first.
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="is neither in"):
        registry.find_data_file("navier_stokes", tmp_path / "empty")


@pytest.mark.parametrize("name", ["heat", "burgers"])
def test_equations_without_a_file_are_always_generated(name, data_dir, monkeypatch):
    assert registry.find_data_file(name, data_dir) is None
    monkeypatch.setenv("CTFNO_DATA_DIR", str(data_dir))
    assert registry.find_data_file(name, None) is None
