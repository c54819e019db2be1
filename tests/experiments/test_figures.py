"""Figures are drawn from the rows and runs that are there, and name those that are not."""

import dataclasses
import json

import numpy as np
import pytest
from helpers.result_rows import write_row

from ctfno_jax.data import problems
from ctfno_jax.training.checkpoint import CheckpointError
from experiments import catalog, figures, reproduce, run_figures
from experiments.cells import Cell

TIMES = [0.25, 0.5, 0.75]
LOAD = problems.load_dataset


def left_out(capsys):
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("left out")]


# --- from rows --------------------------------------------------------------------------------------------------------


def test_errors_over_time_are_means_over_seeds_of_one_preset(tmp_path, capsys):
    for seed, errors in enumerate(([1.0, 2.0, 3.0], [3.0, 4.0, 5.0])):
        cell = Cell("pde", "heat", "ctfno", seed=seed)
        write_row(tmp_path, cell, rmse_in_deviations_over_time=errors, times=TIMES)
    write_row(tmp_path, Cell("pde", "heat", "ctfno", "quick"), rmse_in_deviations_over_time=[9.0] * 3, times=TIMES)
    write_row(tmp_path, Cell("pde", "burgers", "fno_2d"), rmse_in_deviations_over_time=[7.0] * 3, times=TIMES)
    heat, burgers = figures.error_over_time(tmp_path, "default").axes
    assert (heat.get_title(), burgers.get_title()) == ("heat", "burgers")
    (line,) = heat.lines
    np.testing.assert_allclose(line.get_xdata(), TIMES)
    np.testing.assert_allclose(line.get_ydata(), [2.0, 3.0, 4.0])
    missing = left_out(capsys)
    assert len(missing) == len(catalog.cells("pde", 1)) - 2
    assert any("python -m experiments.pde --dataset=heat --model=fno_rnn --seed=0" in text for text in missing)
    assert figures.error_over_time(tmp_path / "nowhere", "default") is None


def _bound_row(folder, bound, rule, *, seed=0, preset="paper", mse=0.02, top=1.0):
    overrides = {"stability_bound": bound} | ({} if rule is None else {"stability_rule": rule})
    cell = Cell("vibration", "plane_vibration", "ctfno", preset, seed, overrides)
    singular_values = {"kernels": [top, 0.5], "pointwise": [2 * top, 0.1, 0.0]}
    write_row(folder, cell, mse=mse, train_mse=mse / 2, certified_lipschitz=50.0, measured_gain=2.0,
              singular_values=singular_values)  # fmt: skip


def test_the_cell_without_a_bound_belongs_to_both_rules(tmp_path, capsys):
    _bound_row(tmp_path, 1.2, "rows", mse=0.01)
    _bound_row(tmp_path, 1.2, "rows", seed=1, mse=0.03)
    _bound_row(tmp_path, 0.3, "rows_and_columns", mse=0.5)
    _bound_row(tmp_path, None, None, mse=0.07)
    _bound_row(tmp_path, 1.2, "rows", preset="default", mse=9.0)
    errors, _ = figures.effect_of_bound(tmp_path).axes
    by_label = {line.get_label(): line.get_ydata() for line in errors.lines}
    np.testing.assert_allclose(by_label["test error, rows"], [0.02, 0.07])
    np.testing.assert_allclose(by_label["training error, rows and columns"], [0.25, 0.035])
    assert len(left_out(capsys)) == len(catalog.bound_overrides()) - 3
    assert figures.effect_of_bound(tmp_path / "nowhere") is None


def test_singular_values_of_all_seeds_are_drawn_together(tmp_path, capsys):
    _bound_row(tmp_path, 10.0, "rows", top=4.0)
    _bound_row(tmp_path, 10.0, "rows", seed=1, top=5.0)
    _bound_row(tmp_path, 10.0, "rows_and_columns", top=90.0)
    kernels, maps = figures.singular_values(tmp_path).axes
    np.testing.assert_array_equal(kernels.lines[0].get_ydata(), [5.0, 4.0, 0.5, 0.5])
    np.testing.assert_array_equal(maps.lines[0].get_ydata(), [10.0, 8.0, 0.1, 0.1, 0.0, 0.0])
    assert ["--stability_bound=1.2" in text for text in left_out(capsys)] == [True]
    assert figures.singular_values(tmp_path / "nowhere") is None


def test_data_efficiency_shows_every_seed_at_its_number_of_trajectories(tmp_path, capsys):
    cells = {(*catalog.efficiency(cell), cell.seed): cell for cell in catalog.cells("data_efficiency", num_seeds=3)}
    for seed, rmse in enumerate((0.1, 0.3, 0.2)):
        write_row(tmp_path, cells[80, None, seed], rmse=rmse)
    write_row(tmp_path, cells[80, 1.2, 0], rmse=0.05)
    (axis,) = figures.data_efficiency(tmp_path).axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["80"]
    points = sorted(tuple(line.get_ydata()) for line in axis.lines if line.get_marker() == ".")
    assert points == [(0.05,), (0.1, 0.3, 0.2)]
    assert len(left_out(capsys)) == len(catalog.efficiency_overrides()) - 2


def test_accuracies_stand_at_their_bound_and_none_comes_last(tmp_path, capsys):
    for overrides, seed, clean in (({}, 0, 0.6), ({}, 1, 0.8), ({"stability_bound": None}, 0, 0.5)):
        cell = Cell("images", "cifar10", "fno_stabilized", seed=seed, overrides=overrides)
        write_row(tmp_path, cell, accuracy=clean, pgd_5=clean / 2, apgd_5=clean / 4, certified_accuracy=0.0)
    (axis,) = figures.image_bounds(tmp_path).axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["1.2", "none"]
    by_label = {line.get_label(): line.get_ydata() for line in axis.lines}
    np.testing.assert_allclose(by_label["clean"], [70, 50])
    np.testing.assert_allclose(by_label["APGD 5/255"], [17.5, 12.5])
    assert len(left_out(capsys)) == len(catalog.IMAGE_BOUNDS) - 2
    assert figures.image_bounds(tmp_path / "nowhere") is None


def test_a_learning_curve_counts_epochs(tmp_path, capsys):
    cell = Cell("images", "mnist", "fno")
    write_row(tmp_path, cell, accuracy=0.9)
    path = cell.row_path(tmp_path)
    row = json.loads(path.read_text())
    row["validation_curve"] = {"step": [550, 1100], "validation_error": [0.25, 0.125]}
    row["config"] = cell.config().to_dict()
    path.write_text(json.dumps(row))
    (axis,) = figures.learning_curves(tmp_path, "default").axes
    (line,) = axis.lines
    # Batches of 256 from 55,000 images.
    np.testing.assert_allclose(line.get_xdata(), [2.56, 5.12])
    np.testing.assert_allclose(line.get_ydata(), [75.0, 87.5])
    assert (axis.get_title(), line.get_label()) == ("mnist", "fno")
    assert len(left_out(capsys)) == 3


# --- from runs --------------------------------------------------------------------------------------------------------

FIELD_DATA = {"num_test": 4, "data_seed": 1, "data_file": "", "data_options": {"num_points": 16, "num_times": 3}}
SERIES_DATA = {
    "num_train": 6, "num_validation": 2, "num_test": 3, "data_seed": 1, "data_file": "",
    "data_options": {"num_points": 20, "num_observed": 12, "final_time": 2.0},
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Fake:
    """A predictor that answers one number everywhere."""

    value: float

    def __call__(self, u0, times):
        shape = u0.shape[1:] if u0.shape[1] == 16 else u0.shape[2:]
        return np.full((len(u0), len(times), *shape), self.value)


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """Puts runs of these cells into a folder; the others are missing."""

    def make(found):
        def load(cell, folder):
            assert folder == tmp_path
            key = (cell.dataset, cell.model, cell.variant)
            return run_figures.Run(*found[key]) if key in found else None

        monkeypatch.setattr(run_figures, "load", load)
        return tmp_path

    return make


def test_a_trajectory_is_that_of_the_test_set(tmp_path):
    whole = problems.load_dataset("heat", num_train=5, num_validation=2, num_test=4, seed=1, num_points=16, num_times=3)
    one = run_figures.trajectory("heat", FIELD_DATA, 2)
    np.testing.assert_allclose(one.u0, whole.test.u0[2:3], atol=1e-6)
    np.testing.assert_allclose(one.u, whole.test.u[2:3], atol=1e-6)
    with pytest.raises(ValueError, match="--sample must be below 4, the number of test samples of heat, got 4"):
        run_figures.trajectory("heat", FIELD_DATA, 4)


def test_heatmaps_have_a_row_for_every_run(runs):
    figure = run_figures.heatmaps(runs({("heat", "ctfno", ""): (_Fake(0.25), FIELD_DATA)}), "default", 2)
    truth, prediction, error = (axis for axis in figure.axes if axis.images)
    expected = run_figures.trajectory("heat", FIELD_DATA, 2).u[0, ..., 0]
    np.testing.assert_array_equal(truth.images[0].get_array(), expected)
    np.testing.assert_array_equal(prediction.images[0].get_array(), np.full((3, 16), 0.25))
    np.testing.assert_allclose(error.images[0].get_array(), 0.25 - expected)
    assert truth.get_ylabel() == "heat\nt"
    assert run_figures.heatmaps(runs({}), "default", 0) is None


def test_trajectories_have_a_row_for_every_data_set_and_a_column_for_every_model(runs):
    found = {("square", "ctfno", ""): (_Fake(1.0), SERIES_DATA), ("sawtooth", "node", ""): (_Fake(2.0), SERIES_DATA)}
    figure = run_figures.trajectories(runs(found), "default", 1)
    square, empty, also_empty, sawtooth = figure.axes
    assert [len(axis.lines) for axis in figure.axes] == [2, 1, 1, 2]
    assert [square.get_title(), empty.get_title()] == ["ctfno", "node"]
    assert [square.get_ylabel(), also_empty.get_ylabel()] == ["square", "sawtooth"]
    test = run_figures.load_test("sawtooth", SERIES_DATA)
    np.testing.assert_array_equal(sawtooth.lines[0].get_ydata(), test.values[1, :, 0])
    np.testing.assert_array_equal(sawtooth.lines[1].get_ydata(), np.full(8, 2.0))
    with pytest.raises(ValueError, match="--sample must be below 3"):
        run_figures.trajectories(runs(found), "default", 3)


def test_the_spiral_is_followed_beyond_the_training_times(runs, monkeypatch):
    """A decaying sine stands for the spiral, whose solver is slow to compile."""
    monkeypatch.setattr(run_figures, "_FURTHER_STEPS", 5)
    monkeypatch.setattr(
        run_figures.problems, "load_dataset", lambda name, **options: LOAD("sine", decay=1.0, **options)
    )
    found = {("spiral", "ctfno", ""): (_Fake(0.0), SERIES_DATA), ("spiral", "node", ""): (_Fake(np.nan), SERIES_DATA)}
    figure, numbers = run_figures.spiral_extrapolation(runs(found), "default", 1)
    near = run_figures.load_test("spiral", SERIES_DATA)
    # The forecast is zero, so its error is the size of the values; a solver without any answer has no error.
    assert numbers["ctfno"]["rmse_within"] == pytest.approx(np.sqrt(np.mean(near.values**2)), rel=1e-3)
    assert 0 < numbers["ctfno"]["rmse_beyond"] < numbers["ctfno"]["rmse_within"]
    assert numbers["node"] == {"rmse_within": None, "rmse_beyond": None}
    assert "NaN" not in json.dumps(numbers)
    truth = figure.axes[0].lines[0]
    np.testing.assert_allclose(truth.get_ydata()[:8], near.values[1, :, 0], atol=1e-3)
    np.testing.assert_allclose(truth.get_xdata(), 0.1 * np.arange(1, 14), atol=1e-5)
    end = next(line for line in figure.axes[0].lines if line.get_color() == "black")
    assert end.get_xdata()[0] == pytest.approx(0.8)


class _TwiceTheLast:
    """A predictor that answers twice the last observation."""

    model, params = None, None

    def __call__(self, observed, times):
        return np.repeat(2 * observed[:, -1:], len(times), axis=1)


def test_the_change_by_noise_is_measured_and_stands_beside_the_certified_one(runs, monkeypatch):
    monkeypatch.setattr(run_figures, "observed_lipschitz", lambda model, params, times: np.asarray([3.0, 5.0]))
    found = {("sine", "ctfno", "stability_bound=1.0"): (_TwiceTheLast(), SERIES_DATA)}
    figure, numbers = run_figures.noise(runs(found), "default", 1, 0.5)
    test = run_figures.load_test("sine", SERIES_DATA)
    drawn = {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}
    np.testing.assert_allclose(drawn["forecast without noise"], np.full(8, 2 * test.observed[1, -1, 0]), rtol=1e-6)
    noise = drawn["observed with noise"] - test.observed[1, :, 0]
    change = drawn["forecast with noise"] - drawn["forecast without noise"]
    np.testing.assert_allclose(change, np.full(8, 2 * noise[-1]), rtol=1e-4)
    (panel,) = numbers.items()
    assert panel[0] == "sine, M = 1"
    assert 2 * abs(noise[-1]) / np.linalg.norm(noise) <= panel[1]["largest_change"] * (1 + 1e-4) <= 2 * (1 + 1e-4)
    assert (panel[1]["certified_change"], panel[1]["noise"]) == (5.0, 0.5)
    assert panel[1]["rmse_with"] != panel[1]["rmse_without"]


def test_runs_are_looked_for_where_they_are_left_and_wrong_ones_are_named(tmp_path, monkeypatch, capsys):
    cell = Cell("synthetic", "sine", "ctfno", overrides={"stability_bound": 1.0})
    folder = reproduce.workdir(cell, tmp_path)
    assert folder == tmp_path / "synthetic" / "sine" / "ctfno" / "stability_bound=1.0" / "seed0"
    assert run_figures.load(cell, tmp_path) is None
    (text,) = left_out(capsys)
    assert text == f"left out: no run in {folder}; train it with {cell.command} --workdir={folder}"

    def damaged(path):
        raise CheckpointError(f"{path} is damaged")

    folder.mkdir(parents=True)
    monkeypatch.setattr(run_figures, "load_predictor", damaged)
    assert run_figures.load(cell, tmp_path) is None
    assert left_out(capsys) == [f"left out: {folder} is damaged"]
    monkeypatch.setattr(run_figures, "load_predictor", lambda path: _Fake(1.0))
    (folder / "config.json").write_text(json.dumps({"preset": "quick", "data": SERIES_DATA}))
    assert run_figures.load(cell, tmp_path) is None
    assert "is a run of preset quick on generated data, not of preset default" in left_out(capsys)[0]
    (folder / "config.json").write_text(json.dumps({"preset": "default", "data": SERIES_DATA}))
    assert run_figures.load(cell, tmp_path) == run_figures.Run(_Fake(1.0), SERIES_DATA)
    for seed in (12, 3):
        folder.with_name(f"seed{seed}").mkdir()
    assert reproduce.trained(cell, tmp_path) == folder
    (folder / "config.json").unlink()
    folder.rmdir()
    assert reproduce.trained(cell, tmp_path) == folder.with_name("seed3")


def test_every_figure_of_the_program_is_described_in_its_help():
    for name in figures.FIGURES:
        assert f"``{name}``," in figures.__doc__
