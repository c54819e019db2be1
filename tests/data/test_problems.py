"""The table of problems, and data sets by name: generated and kept on disk, or read from files."""

import dataclasses
from pathlib import Path

import h5py
import numpy as np
import pytest

from ctfno_jax.data import equations, generation, problems, series, synthetic
from ctfno_jax.data.problems import (
    FieldProblem,
    ImageProblem,
    LatentProblem,
    SeriesProblem,
    between_times,
    load_dataset,
)
from ctfno_jax.data.readers import pdebench
from ctfno_jax.data.trajectories import FieldDataset, Trajectories

OPTIONS = {"num_points": 16, "num_times": 3}
SIZES = {"num_train": 3, "num_validation": 1, "num_test": 2}
WITHOUT_TEST = ("train", "validation")


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch) -> Path:
    """Its own cache and no data folder for every test."""
    monkeypatch.setenv("CTFNO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CTFNO_DATA_DIR", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def toy(monkeypatch) -> list[tuple[int, int]]:
    """A problem that is cached in pieces of two samples; the (count, first) that its generator is asked for."""
    asked: list[tuple[int, int]] = []

    def generate(
        num_samples: int, seed: int, first: int = 0, *, num_points: int = 16, viscosity: float = 0.01,
        num_times: int = 3, refinement: int = 1,
    ) -> Trajectories:  # fmt: skip
        if refinement == 1:
            asked.append((num_samples, first))
        data = equations.heat_trajectories(
            num_samples, seed, first, num_points=num_points, num_times=num_times, viscosity=viscosity
        )
        return dataclasses.replace(data, u=data.u * np.float32(1 + 1e-3 / refinement))

    entry = FieldProblem("toy", generate, num_times=3, chunk=2, num_train=4, num_validation=2, num_test=1)
    monkeypatch.setitem(problems.PROBLEMS, "toy", entry)
    return asked


def _fields(name: str, **settings) -> FieldDataset:
    data = load_dataset(name, **settings)
    assert isinstance(data, FieldDataset)
    return data


def _u(data: FieldDataset) -> np.ndarray:
    """All solutions in the order of the samples."""
    parts = ([] if data.test is None else [data.test]) + [data.validation, data.train]
    return np.concatenate([part.u for part in parts])


# --- the table ------------------------------------------------------------------------------------------------------

FIELDS = ("burgers", "diffusion_sorption", "heat", "navier_stokes", "reaction")
FAMILIES = ("sawtooth", "sine", "spiral", "square", "stiff")
LATENT = ("activity", "csv", "mujoco", "physionet")
IMAGES = ("cifar10", "mnist")
KINDS = {"fields": FIELDS, "latent": LATENT, "images": IMAGES}


def test_names_and_kinds():
    assert problems.problem_names() == tuple(sorted((*FIELDS, *FAMILIES, *LATENT, *IMAGES, "plane_vibration")))
    for name in problems.problem_names():
        entry = problems.problem(name)
        kind = next((kind for kind, names in KINDS.items() if name in names), "series")
        assert (entry.name, entry.kind) == (name, kind)


def test_an_unknown_name_lists_the_known_ones():
    for call in (problems.problem, load_dataset, between_times):
        with pytest.raises(
            ValueError, match=f"unknown dataset 'heet'; known are {', '.join(problems.problem_names())}"
        ):
            call("heet")


@pytest.mark.parametrize(
    ("names", "sizes"),
    [
        (("heat", "burgers", "diffusion_sorption", "reaction"), (400, 100, 100)),
        (("navier_stokes",), (700, 100, 200)),
        (("square", "sawtooth", "sine", "stiff"), (800, 100, 100)),
        (("spiral",), (768, 96, 97)),
        (("plane_vibration", *LATENT), (0, 0, 0)),
        (("mnist",), (55000, 5000, 10000)),
        (("cifar10",), (45000, 5000, 10000)),
    ],
)
def test_sizes_of_the_splits(names, sizes):
    for entry in map(problems.problem, names):
        assert (entry.num_train, entry.num_validation, entry.num_test) == sizes


@pytest.mark.parametrize("name", FIELDS)
def test_times_are_those_of_the_generator(name):
    entry = problems.problem(name)
    assert isinstance(entry, FieldProblem)
    assert entry.generate is not None
    options = {"final_time": entry.final_time, "num_times": entry.num_times}
    assert options.items() <= entry.generate.__kwdefaults__.items()


@pytest.mark.parametrize("name", ["sawtooth", "sine", "square"])
def test_components_are_those_of_the_series(name):
    entry = problems.problem(name)
    assert isinstance(entry, SeriesProblem)
    data = load_dataset(name, **SIZES, num_points=4, num_observed=2, final_time=0.1)
    assert isinstance(data, series.SeriesDataset)
    assert data.train.features == entry.features == len(entry.components)


def test_features_of_latent_problems_have_names():
    for name, features, generated in (("mujoco", 14, True), ("physionet", 41, False), ("activity", 12, False),
                                      ("csv", 0, False)):  # fmt: skip
        entry = problems.problem(name)
        assert isinstance(entry, LatentProblem)
        assert (entry.features, len(entry.components), entry.generated) == (features, features, generated)


def test_images_have_a_size_channels_and_classes():
    for name, size, channels in (("mnist", (28, 28), 1), ("cifar10", (32, 32), 3)):
        entry = problems.problem(name)
        assert isinstance(entry, ImageProblem)
        assert (entry.image_size, entry.channels, entry.num_classes, entry.generated) == (size, channels, 10, False)
        assert problems.option_names(name) == ("source",)
        with pytest.raises(ValueError, match=f"dataset {name} has no option task; it has .*source"):
            load_dataset(name, task="prediction")


def test_the_rate_takes_the_constants_of_the_equation_out_of_the_options():
    """A short step of the heat equation with another viscosity."""
    entry = problems.problem("heat")
    assert isinstance(entry, FieldProblem)
    assert entry.rate is not None
    options = {"viscosity": 0.02, "num_points": 16, "num_times": 1, "final_time": 1e-2}
    data = equations.heat_trajectories(2, 0, **options)
    rate = entry.rate(data.u0, **entry.constants(options))
    change = (data.u[:, 0].astype(np.float64) - data.u0) / 1e-2
    np.testing.assert_allclose(change, rate, atol=0.1 * np.abs(rate).max())
    assert np.abs(change - entry.rate(data.u0)).max() > 0.5 * np.abs(rate).max()
    assert FieldProblem("mine").constants(options) == {}


def test_lengths_of_the_domains():
    for name, length in (("heat", 1.0), ("navier_stokes", 2.0)):
        entry = problems.problem(name)
        assert isinstance(entry, FieldProblem)
        assert entry.length == length


# --- fields ---------------------------------------------------------------------------------------------------------


def test_samples_are_those_of_the_generator_with_the_test_set_first():
    data = _fields("heat", num_train=5, num_validation=2, num_test=4, seed=3, final_time=0.6, **OPTIONS)
    assert data.test is not None
    assert (data.name, len(data.train), len(data.validation), len(data.test)) == ("heat", 5, 2, 4)
    assert (data.problem, data.source) == (problems.problem("heat"), "generated")
    expected = equations.heat_trajectories(11, 3, final_time=0.6, **OPTIONS)
    np.testing.assert_array_equal(_u(data), expected.u)
    np.testing.assert_array_equal(data.validation.u0, expected.u0[4:6])
    np.testing.assert_allclose(data.train.times, [0.2, 0.4, 0.6], rtol=1e-6)


def test_the_default_seed_is_one_and_seeds_differ():
    default, one, other = (_fields("heat", **SIZES, **OPTIONS, **seed) for seed in ({}, {"seed": 1}, {"seed": 2}))
    np.testing.assert_array_equal(_u(default), _u(one))
    assert np.abs(_u(one) - _u(other)).max() > 1e-3


def test_sizes_that_are_not_given_are_those_of_the_problem(toy):
    data = _fields("toy", num_test=3)
    assert data.test is not None
    assert (len(data.train), len(data.validation), len(data.test)) == (4, 2, 3)


@pytest.mark.parametrize("name", ["heat", "reaction", "toy"])
def test_without_the_test_part_the_others_stay_the_same(name, toy):
    whole, data = (_fields(name, **SIZES, **OPTIONS, parts=parts) for parts in (problems.PARTS, WITHOUT_TEST))
    assert data.test is None
    np.testing.assert_array_equal(_u(data), _u(whole)[2:])
    np.testing.assert_array_equal(data.train.u0, whole.train.u0)
    assert {k: v for k, v in data.info.items() if "std" in k} == {k: v for k, v in whole.info.items() if "std" in k}


def test_without_the_test_part_pieces_and_samples_of_it_are_left_out(toy, cache_folder):
    _fields("toy", num_train=3, num_validation=2, num_test=4, parts=WITHOUT_TEST)
    # Two samples measure the discretisation error, which are not those of the test set either.
    assert toy == [(2, 4), (2, 6), (2, 8), (2, 4)]
    (folder,) = cache_folder.iterdir()
    assert sorted(path.name for path in folder.iterdir()) == [
        "000004-0002.npz", "000006-0002.npz", "000008-0002.npz", "discretisation_error-000004.json",
    ]  # fmt: skip
    del toy[:]
    _fields("toy", num_train=3, num_validation=2, num_test=3, parts=["validation", "train"])
    # A piece with samples of both is generated.
    assert toy == [(2, 2), (2, 3)]


@pytest.mark.parametrize("parts", [("train",), ("train", "test"), "train", (), ("train", "validation", "all")])
def test_other_parts_are_refused(parts):
    with pytest.raises(ValueError, match="parts must hold train and validation, and may hold test, got"):
        load_dataset("heat", **SIZES, **OPTIONS, parts=parts)


@pytest.mark.parametrize("size", [{"num_train": 0}, {"num_validation": -1}, {"num_test": 2.0}, {"num_test": True}])
def test_sizes_that_are_no_counts_are_refused(size):
    least = 1 if "num_train" in size else 0
    with pytest.raises(ValueError, match=f"{next(iter(size))} must be a whole number of at least {least}, got"):
        load_dataset("heat", **{**SIZES, **size}, **OPTIONS)


def test_facts_describe_the_training_data(toy):
    data = _fields("toy", **SIZES)
    assert data.info["initial_std"] == pytest.approx(float(data.train.u0.std()), rel=1e-6)
    assert data.info["final_std"] == pytest.approx(float(data.train.u[:, -1].std()), rel=1e-6)
    assert (data.info["num_points"], data.info["num_times"]) == (16, 3)
    # Solutions of the toy problem are wrong by a thousandth over the refinement.
    assert data.info["discretisation_error"] == pytest.approx(5e-4, rel=1e-2)


def test_facts_of_several_channels_carry_their_names(monkeypatch):
    entry = FieldProblem("pair", lambda *args, num_times=1, refinement=1: _pair(*args), channels=("density", "speed"))
    monkeypatch.setitem(problems.PROBLEMS, "pair", entry)
    data = _fields("pair", **SIZES)
    for i, channel in enumerate(entry.channels):
        assert data.info[f"initial_std_{channel}"] == pytest.approx(float(data.train.u0[..., i].std()), rel=1e-5)
        assert data.info[f"final_std_{channel}"] == pytest.approx(float(data.train.u[..., i].std()), rel=1e-5)


def _pair(num_samples: int, seed: int, first: int = 0) -> Trajectories:
    rng = np.random.default_rng(seed + first)
    u0 = (rng.normal(size=(num_samples, 9, 2)) * [1.0, 5.0]).astype(np.float32)
    return Trajectories(u0, np.ones(1, np.float32), 2 * u0[:, None])


def test_reactions_tell_how_many_draws_were_rejected():
    options = {**OPTIONS, "margin": 1.5, "max_wave": 2}
    data = _fields("reaction", **SIZES, seed=3, rate=2.0, **options)
    drawn = {"num_points": 16, "margin": 1.5, "max_wave": 2}
    assert data.info["rejected_draws"] == equations.rejected_reactions(6, 3, **drawn) > 0
    assert "rejected_draws" not in _fields("heat", **SIZES, **OPTIONS).info


def test_options_that_do_not_exist_or_are_of_a_wrong_type_are_refused():
    for load in (load_dataset, between_times):
        with pytest.raises(ValueError, match="dataset heat has no option viscocity; it has num_points, viscosity"):
            load("heat", **SIZES, viscocity=1.0)
        with pytest.raises(ValueError, match="dataset heat has no option num_samples"):
            load("heat", **SIZES, num_samples=3)
        for option in ({"num_points": "many"}, {"num_times": True}, {"viscosity": "x"}):
            with pytest.raises(ValueError, match=f"option {next(iter(option))} of dataset heat must be of type"):
                load("heat", **SIZES, **option)


def test_a_problem_without_a_generator_is_refused(monkeypatch):
    monkeypatch.setitem(problems.PROBLEMS, "mine", FieldProblem("mine"))
    with pytest.raises(ValueError, match="mine has no generator"):
        load_dataset("mine", **SIZES)


# --- the cache ------------------------------------------------------------------------------------------------------


def test_generated_sets_are_kept_and_found_again(toy, cache_folder):
    told = []
    data = _fields("toy", **SIZES, progress=lambda *p: told.append(p))
    assert toy == [(2, 0), (2, 2), (2, 4), (2, 0)]
    assert told == [(2, 6), (4, 6), (6, 6)]
    del toy[:], told[:]
    again = _fields("toy", **SIZES, progress=lambda *p: told.append(p))
    assert toy == told == []
    np.testing.assert_array_equal(_u(again), _u(data))
    assert again.info == data.info
    (folder,) = cache_folder.iterdir()
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["000000-0002.npz", "000002-0002.npz", "000004-0002.npz", "discretisation_error-000000.json"]


def test_more_training_data_need_only_the_missing_pieces(toy):
    few = _fields("toy", **SIZES)
    del toy[:]
    many = _fields("toy", **{**SIZES, "num_train": 6})
    assert toy == [(2, 6), (2, 8)]
    np.testing.assert_array_equal(_u(many)[:6], _u(few))


def test_cheap_problems_are_not_kept_on_disk(cache_folder):
    for name in ("heat", "reaction"):
        _fields(name, **SIZES, **OPTIONS)
    assert not cache_folder.exists()


def test_naming_a_default_is_the_same_folder_and_another_value_is_not():
    def folder(seed: int = 0, **options) -> Path:
        return generation.Generation("burgers", equations.burgers_trajectories, 50, seed, options).folder

    assert folder(viscosity=1e-3, sigma=49) == folder() == folder(refinement=1)
    assert len({folder(), folder(viscosity=2e-3), folder(refinement=2), folder(num_times=100), folder(1)}) == 5


def test_the_discretisation_error_is_measured_again_if_its_file_is_damaged(toy, cache_folder, monkeypatch):
    error = _fields("toy", **SIZES).info["discretisation_error"]
    monkeypatch.setattr(equations, "discretisation_error", lambda *args, **options: 0.125)
    assert _fields("toy", **SIZES).info["discretisation_error"] == error
    (path,) = cache_folder.glob("*/discretisation_error-*.json")
    path.write_text("{")
    assert _fields("toy", **SIZES).info["discretisation_error"] == 0.125


CACHED = {
    "burgers": {"num_points": 15, "num_times": 3, "final_time": 0.02},
    "diffusion_sorption": {"num_points": 16, "num_times": 3, "final_time": 50.0},
    "navier_stokes": {"num_points": 16, "num_times": 3, "final_time": 0.01},
}


@pytest.mark.parametrize("name", list(CACHED))
def test_solved_problems_and_times_between_agree_with_their_generator(name, monkeypatch):
    entry, options = problems.problem(name), CACHED[name]
    assert isinstance(entry, FieldProblem)
    assert entry.generate is not None
    assert entry.chunk > 0
    monkeypatch.setitem(problems.PROBLEMS, name, dataclasses.replace(entry, chunk=2))
    monkeypatch.setattr(equations, "discretisation_error", lambda *args, **options: 0.0)
    sizes = {"num_train": 1, "num_validation": 1, "num_test": 2, "seed": 3}
    data, between = _fields(name, **sizes, **options), between_times(name, **sizes, **options)
    assert data.test is not None
    np.testing.assert_array_equal(_u(data)[2:], entry.generate(2, 3, 2, **options).u)
    np.testing.assert_array_equal(between.u0, data.test.u0)
    np.testing.assert_allclose(between.times, (data.test.times[1:] + data.test.times[:-1]) / 2, rtol=1e-6)
    # The solution changes monotonically enough over one short interval to lie near the mean of its ends.
    middle = (data.test.u[:, 1:] + data.test.u[:, :-1]) / 2
    change = np.abs(np.diff(data.test.u, axis=1)).max()
    np.testing.assert_allclose(between.u, middle, rtol=0, atol=0.3 * change)


def test_heat_between_the_query_times_decays_by_the_geometric_mean():
    sizes = {**SIZES, "seed": 3, "num_points": 16, "num_times": 4}
    data, between = _fields("heat", **sizes), between_times("heat", **sizes)
    assert data.test is not None
    spectra = [np.abs(np.fft.rfft(u[..., 0], axis=-1))[..., 1] for u in (data.test.u, between.u)]
    np.testing.assert_allclose(spectra[1], np.sqrt(spectra[0][:, 1:] * spectra[0][:, :-1]), rtol=1e-5)


def test_only_test_trajectories_of_fields_lie_between_times():
    with pytest.raises(ValueError, match="sine is a data set of series; only fields can be evaluated between"):
        between_times("sine")
    with pytest.raises(ValueError, match="num_test must be at least 1"):
        between_times("heat", num_test=0, **OPTIONS)


# --- series ---------------------------------------------------------------------------------------------------------


def test_a_family_is_found_by_its_name():
    settings = {**SIZES, "seed": 2, "num_points": 9, "num_observed": 5, "decay": 0.3}
    data, direct = load_dataset("sine", **settings), synthetic.load_series("sine", **settings)
    assert isinstance(data, series.SeriesDataset)
    assert data.test is not None
    assert direct.test is not None
    np.testing.assert_array_equal(data.train.values, direct.train.values)
    np.testing.assert_array_equal(data.test.observed, direct.test.observed)
    assert load_dataset("sine", **settings, parts=WITHOUT_TEST).test is None
    with pytest.raises(ValueError, match="dataset sine has no option with_train"):
        load_dataset("sine", **settings, with_train=True)


# --- files ----------------------------------------------------------------------------------------------------------

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


def _samples(part: Trajectories | None) -> list[int]:
    assert part is not None
    return [round(float(u)) // 100 for u in part.u0[:, 0, 0]]


@EACH_FILE
def test_samples_of_a_file_are_divided_without_overlap(name, data_dir, cache_folder):
    data = _fields(name, **SIZES, data_dir=data_dir)
    chosen = [_samples(part) for part in (data.train, data.validation, data.test)]
    assert [len(part) for part in chosen] == [3, 1, 2]
    assert len({sample for part in chosen for sample in part}) == 6
    np.testing.assert_array_equal(data.train.times, [10, 20, 30])
    assert data.test is not None
    for i, sample in enumerate(chosen[2]):
        np.testing.assert_array_equal(data.test.u[i, :, :, 0], _frames(sample)[[2, 4, 6]])
    assert data.source == pdebench.FILES[name]
    assert "discretisation_error" not in data.info
    assert not cache_folder.exists()
    without = _fields(name, **SIZES, data_dir=data_dir, parts=WITHOUT_TEST)
    assert without.test is None
    assert [_samples(part) for part in (without.train, without.validation)] == chosen[:2]


@EACH_FILE
def test_the_seed_chooses_and_more_training_data_leave_the_other_sets_alone(name, data_dir):
    few, many, other = (
        _fields(name, **{**SIZES, "num_train": n}, seed=seed, data_dir=data_dir) for n, seed in ((3, 0), (6, 0), (6, 1))
    )
    assert _samples(few.test) == _samples(many.test)
    assert _samples(few.validation) == _samples(many.validation)
    assert set(_samples(few.train)) < set(_samples(many.train))
    assert _samples(many.train) != _samples(other.train)


@EACH_FILE
def test_times_between_those_of_a_file(name, data_dir):
    settings = {**SIZES, "seed": 5, "data_dir": data_dir}
    data, between = _fields(name, **settings), between_times(name, **settings)
    np.testing.assert_array_equal(between.times, [15, 25])
    assert _samples(between) == _samples(data.test)
    for i, sample in enumerate(_samples(data.test)):
        np.testing.assert_array_equal(between.u[i, :, :, 0], _frames(sample)[[3, 5]])


def test_requests_that_a_file_cannot_serve_are_refused(data_dir):
    for load in (load_dataset, between_times):
        with pytest.raises(ValueError, match="holds 9 samples, 10 were asked for; lower num_train or num_test"):
            load("navier_stokes", num_train=7, num_validation=1, num_test=2, data_dir=data_dir)
        with pytest.raises(ValueError, match="is read from a file; remove num_points, which only the generator has"):
            load("navier_stokes", **SIZES, data_dir=data_dir, num_points=16)


@EACH_FILE
def test_a_folder_given_by_hand_must_hold_the_file(name, data_dir, tmp_path):
    assert problems.data_file(name, data_dir) == data_dir / pdebench.FILES[name]
    assert problems.data_file(name, str(data_dir)) == data_dir / pdebench.FILES[name]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"doi:10\.18419/darus-2986"):
        problems.data_file(name, tmp_path / "empty")
    with pytest.raises(ValueError, match="is not a folder"):
        problems.data_file(name, tmp_path / "nowhere")


def test_the_folder_of_the_environment_may_hold_some_of_the_files(data_dir, tmp_path, monkeypatch):
    assert problems.data_file("navier_stokes", None) is None
    monkeypatch.setenv("CTFNO_DATA_DIR", str(data_dir))
    (data_dir / pdebench.FILES["diffusion_sorption"]).unlink()
    assert problems.data_file("navier_stokes", None) == data_dir / pdebench.FILES["navier_stokes"]
    assert problems.data_file("diffusion_sorption", None) is None
    # A folder given by hand comes first.
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="is neither in"):
        problems.data_file("navier_stokes", tmp_path / "empty")
    monkeypatch.setenv("CTFNO_DATA_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"CTFNO_DATA_DIR names .*nowhere, which is not a folder; unset or correct it"):
        problems.data_file("navier_stokes", None)


def test_problems_without_a_file_are_always_generated(data_dir, monkeypatch):
    for name in ("heat", "burgers", "sine"):
        assert problems.data_file(name, data_dir) is None
        monkeypatch.setenv("CTFNO_DATA_DIR", str(data_dir))
        assert problems.data_file(name, None) is None


def test_a_record_must_be_there(tmp_path):
    for data_dir, message in ((tmp_path, r"holds no pv\.csv; get it first"), (None, "name its folder by --data_dir")):
        with pytest.raises(ValueError, match=message):
            problems.data_file("plane_vibration", data_dir)
    (tmp_path / "pv.csv").write_text("")
    assert problems.data_file("plane_vibration", tmp_path) == tmp_path / "pv.csv"
