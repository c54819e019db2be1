"""The figures of the suite are drawn from the runs and rows that are there, and name those that are not."""

import dataclasses
import json

import numpy as np
import pytest
from absl import flags

from ctfno_jax.config import DatasetConfig, ExperimentConfig
from ctfno_jax.data import fields
from ctfno_jax.training.checkpoint import CheckpointError
from experiments import field_run, figures
from experiments.configs import pde as presets

TIMES = np.asarray([0.25, 0.5, 0.75], np.float32)
CHANNELS = {"heat": 1, "navier_stokes": 3}


def _data(dataset):
    rng = np.random.default_rng(len(dataset))
    u = rng.standard_normal((4, 3, 8, CHANNELS[dataset])).astype(np.float32)
    some = fields.Trajectories(u[:, 0], TIMES, u)
    return fields.FieldDataset(dataset, some, some, some, {})


@dataclasses.dataclass
class _Trained:
    """Stands for a run whose answer is the initial state and half of it, and so on."""

    dataset: str

    @property
    def config(self):
        return ExperimentConfig(dataset=DatasetConfig(self.dataset))

    def __call__(self, u0, times):
        return u0[:, None] / np.arange(1, len(times) + 1)[:, None, None]


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """Puts runs of these data sets into a folder."""

    def make(*datasets):
        def load(workdir):
            dataset = workdir.parent.parent.name
            assert workdir == tmp_path / "runs" / "pde" / dataset / "ctfno" / "seed0"
            if dataset not in datasets:
                raise CheckpointError(f"{workdir} holds no trained run")
            return _Trained(dataset)

        monkeypatch.setattr(figures, "load_predictor", load)
        monkeypatch.setattr(field_run, "load", lambda config, *_: _data(config.dataset.dataset))
        return tmp_path / "runs"

    return make


def _panels(figure):
    return np.asarray([axis for axis in figure.axes if axis.images]).reshape(-1, 3)


def test_every_field_of_every_run_is_a_row(trained, capsys):
    rows = _panels(figures.heatmaps(trained("heat", "navier_stokes"), sample=2))
    labels = ["heat", *(f"navier_stokes, {name}" for name in ("density", "pressure", "velocity"))]
    assert [row[0].get_ylabel() for row in rows] == [f"{label}\nt" for label in labels]
    for row, (dataset, channel) in zip(rows, [("heat", 0), *[("navier_stokes", c) for c in range(3)]], strict=True):
        test = _data(dataset).test
        truth = test.u[2, ..., channel]
        prediction = test.u0[2, :, channel] / np.asarray([[1], [2], [3]])
        for axis, array in zip(row, (truth, prediction, prediction - truth), strict=True):
            np.testing.assert_allclose(axis.images[0].get_array(), array, atol=1e-6)
        left = -1.0 if dataset == "navier_stokes" else 0.0
        assert row[0].images[0].get_extent() == [left, 1.0, 0.25, 0.75]
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if line.startswith("left out")] == [
        line for line in text.splitlines() if "burgers" in line or "diffusion_sorption" in line
    ]
    assert text.count("left out") == 2


@pytest.mark.parametrize("sample", [-1, 4])
def test_a_sample_that_is_not_there_is_refused(trained, sample):
    with pytest.raises(ValueError, match=f"--sample must be between 0 and 3 for heat, got {sample}"):
        figures.heatmaps(trained("heat"), sample)


def _write_row(folder, dataset, model, seed, errors, preset="default"):
    path = folder / "pde" / f"{dataset}-{model}-{preset}-seed{seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    scores = {} if errors is None else {"rmse_in_deviations_over_time": errors, "times": TIMES.tolist()}
    path.write_text(json.dumps({"dataset": dataset, "model": model, "preset": preset, "metrics": scores}))


def test_curves_are_means_over_seeds_and_missing_rows_are_named(tmp_path, capsys):
    _write_row(tmp_path, "heat", "ctfno", 0, [1.0, 2.0, 3.0])
    _write_row(tmp_path, "heat", "ctfno", 1, [3.0, 4.0, 9.0])
    _write_row(tmp_path, "heat", "fno_2d", 0, [5.0, 5.0, 5.0])
    _write_row(tmp_path, "heat", "deeponet", 0, None)  # a row from before errors over time were kept
    _write_row(tmp_path, "burgers", "ctfno", 0, [7.0, 8.0, 9.0])
    _write_row(tmp_path, "burgers", "fno_rnn", 0, [7.0, 8.0, 9.0], preset="quick")
    figure = figures.error_over_time(tmp_path, "default")
    heat, burgers = figure.axes
    assert (heat.get_title(), burgers.get_title()) == ("heat", "burgers")
    assert [line.get_label() for line in heat.lines] == ["ctfno", "fno_2d"]
    np.testing.assert_allclose(heat.lines[0].get_ydata(), [2.0, 3.0, 6.0])
    np.testing.assert_allclose(heat.lines[0].get_xdata(), TIMES)
    assert [line.get_label() for line in burgers.lines] == ["ctfno"]
    text = capsys.readouterr().out
    cells = [m for dataset in presets.PROBLEMS for m in presets.cells(dataset)]
    drawn = [m for m in cells if m in (*presets.SURROGATES, presets.AT_ONCE)]
    assert text.count("left out") == len(drawn) - 3
    assert f"left out: no row of heat with deeponet in {tmp_path / 'pde'}" in text


@pytest.fixture
def draw(monkeypatch, tmp_path):
    """Runs the program with these flags; gives the folder it writes into."""

    def run(figure, runs):
        values = flags.FlagValues()
        given = {"figure": figure, "runs": runs, "results_dir": tmp_path, "output_dir": tmp_path / "out"}
        for name, value in {**given, "preset": "default"}.items():
            flags.DEFINE_string(name, str(value), "", flag_values=values)
        flags.DEFINE_integer("sample", 0, "", flag_values=values)
        flags.DEFINE_float("noise", 0.1, "", flag_values=values)
        values.mark_as_parsed()
        monkeypatch.setattr(figures, "FLAGS", values)
        figures.main()
        return tmp_path / "out"

    return run


def test_all_figures_are_written_for_which_there_are_runs(draw, trained, tmp_path, capsys):
    _write_row(tmp_path, "heat", "ctfno", 0, [1.0, 2.0, 3.0])
    output = draw("all", trained("heat"))
    assert "left out: there is nothing to draw in noise.png" in capsys.readouterr().out
    assert sorted(path.name for path in output.iterdir()) == ["error_over_time.png", "heatmaps.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in output.iterdir())


@pytest.mark.parametrize("name", ["heatmaps", "error_over_time", "trajectories", "spiral_extrapolation", "noise"])
def test_nothing_to_draw_is_an_error(draw, trained, tmp_path, name):
    with pytest.raises(ValueError, match=rf"nothing to draw in {name}\.png: train first"):
        draw(name, trained())
    assert not list((tmp_path / "out").iterdir())
