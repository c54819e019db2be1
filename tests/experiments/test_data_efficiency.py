"""Heat with a part of its training set: the cells, the sets they see, and the box plots of their rows."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from absl import flags
from matplotlib.patches import PathPatch

from ctfno_jax.data import registry
from ctfno_jax.plotting import efficiency as plots
from experiments import data_efficiency as program
from experiments import field_run, files, run_folder
from experiments.configs import data_efficiency as presets
from experiments.configs import pde

WHOLE = 380  # of 400 trajectories, 20 are for validation


def _config(percent, bound=None, preset="default", seed=0):
    return presets.efficiency_config(percent, bound, preset, seed)


# --- cells --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("percent", "part", "batch"), [(1, 4, 4), (5, 19, 19), (10, 38, 20), (50, 190, 20), (100, WHOLE, 20)]
)
def test_a_part_is_of_the_training_trajectories_and_bounds_the_batch(percent, part, batch):
    config = _config(percent)
    assert config.dataset.num_train - config.dataset.num_validation == part
    assert config.train.batch_size == batch
    assert (config.dataset.num_validation, config.dataset.num_test) == (20, 100)


@pytest.mark.parametrize("preset", ["quick", "default", "paper"])
def test_every_percent_is_read_back_from_its_cell(preset):
    for percent in range(1, 101):
        assert presets.percent_of(_config(percent, 1.2, preset)) == percent


def test_cells_are_ctfno_on_heat_and_differ_in_what_they_are_about():
    base = pde.pde_config("heat", "ctfno", "quick", 3)
    whole = _config(100, None, "default", 3)
    assert (whole.experiment, whole.preset, whole.seed) == ("data_efficiency", "default", 3)
    assert (whole.dataset, whole.optimizer) == (base.dataset, base.optimizer)
    assert dataclasses.replace(whole.train, steps=base.train.steps) == base.train
    assert whole.model.model_fields == {**base.model.model_fields, "stability_bound": None}
    part = _config(20, 10.0, "default", 3)
    assert part.model.model_fields == {**whole.model.model_fields, "stability_bound": 10.0}
    assert (part.train, part.optimizer) == (whole.train, whole.optimizer)


def test_quick_cells_are_short_and_paper_cells_are_those_of_the_paper():
    assert _config(100, preset="quick").train.steps < _config(100, preset="default").train.steps
    paper, base = _config(100, 10.0, "paper"), pde.pde_config("heat", "ctfno", "paper", 0)
    assert (paper.preset, paper.train, paper.model) == ("paper", base.train, base.model)


def test_variants_tell_all_cells_apart():
    assert presets.variant(_config(5)) == "5percent-M_none"
    assert presets.variant(_config(50, 1.2)) == "50percent-M_1.2"
    cells = [_config(percent, bound) for percent in presets.PERCENTS for bound in presets.BOUNDS]
    names = {run_folder.row_path("results", config, presets.variant(config)) for config in cells}
    folders = {run_folder.default_workdir(config, presets.variant(config)) for config in cells}
    assert len(names) == len(folders) == len(presets.PERCENTS) * len(presets.BOUNDS)


@pytest.mark.parametrize("percent", [0, -5, 101])
def test_a_part_that_is_none_is_refused(percent):
    with pytest.raises(ValueError, match=f"between 1 and 100 percent, got {percent}"):
        _config(percent)


# --- data ---------------------------------------------------------------------------------------------------------


def test_smaller_parts_are_contained_in_larger_ones_and_all_are_tested_alike():
    parts = []
    for percent in (5, 10, 50, 100):
        d = _config(percent).dataset
        sizes = {name: getattr(d, name) for name in ("num_train", "num_validation", "num_test")}
        small = {**d.data_options, "num_points": 32, "num_times": 2}
        parts.append(registry.load_fields(d.dataset, **sizes, seed=d.data_seed, **small))
    whole = parts[-1]
    assert [len(data.train) for data in parts] == [19, 38, 190, WHOLE]
    for data in parts:
        np.testing.assert_array_equal(data.train.u, whole.train.u[: len(data.train)])
        for name in ("u0", "u"):
            np.testing.assert_array_equal(getattr(data.test, name), getattr(whole.test, name))
            np.testing.assert_array_equal(getattr(data.validation, name), getattr(whole.validation, name))
    together = np.concatenate([whole.train.u0, whole.validation.u0, whole.test.u0])
    assert len(np.unique(together.reshape(len(together), -1), axis=0)) == len(together)


# --- rows ---------------------------------------------------------------------------------------------------------


def _row(percent, bound, rmse, seed=0, preset="default"):
    metrics = {"rmse": rmse}
    return {"percent": percent, "stability_bound": bound, "seed": seed, "preset": preset, "metrics": metrics}


ROWS = [
    _row(5, None, 0.3, 0), _row(5, None, 0.1, 1), _row(5, None, 0.2, 2), _row(100, None, 0.05),
    _row(5, 10.0, 0.4), _row(100, 1.2, 0.01, 0), _row(100, 1.2, 0.03, 1),
]  # fmt: skip


def test_errors_are_gathered_by_bound_and_part():
    assert program.errors_by_cell(ROWS) == {
        None: {5: [0.3, 0.1, 0.2], 100: [0.05]},
        10.0: {5: [0.4]},
        1.2: {100: [0.01, 0.03]},
    }


def test_the_summary_has_medians_and_gaps():
    lines = program.summary(ROWS).splitlines()[1:]
    assert lines[0] == "median test RMSE"
    assert lines[1].split("  ")[-1].strip() == "none"
    assert lines[1].split() == ["training", "set", "M", "=", "1.2", "M", "=", "10", "none"]
    assert lines[2].split() == ["5", "%", "-", "4.000e-01", "2.000e-01"]
    assert lines[3].split() == ["100", "%", "2.000e-02", "-", "5.000e-02"]
    assert len({len(line) for line in lines[1:]}) == 1


def test_the_median_of_nothing_is_none():
    assert plots.median([]) is None
    assert plots.median([3.0, 1.0, 2.0, 10.0]) == 2.5


def test_rows_of_other_presets_are_left_out(tmp_path):
    folder = tmp_path / "data_efficiency"
    folder.mkdir()
    for i, row in enumerate([*ROWS, _row(5, None, 9.0, preset="quick")]):
        (folder / f"{i}.json").write_text(json.dumps(row))
    assert program.read_rows(tmp_path, "default") == ROWS
    assert program.errors_by_cell(program.read_rows(tmp_path, "quick")) == {None: {5: [9.0]}}
    assert program.read_rows(tmp_path / "nowhere", "default") == []


# --- the figure ---------------------------------------------------------------------------------------------------


def _boxes(axis):
    """Left end, right end and face of every box."""
    found = [patch for patch in axis.patches if isinstance(patch, PathPatch)]
    spans = [patch.get_path().vertices[:, 0] for patch in found]
    return [(span.min(), span.max(), patch.get_facecolor()) for span, patch in zip(spans, found, strict=True)]


def test_there_is_a_box_for_every_cell_beside_those_of_its_part():
    (axis,) = plots.box_plots(program.errors_by_cell(ROWS)).axes
    boxes = _boxes(axis)
    assert len(boxes) == 4  # without those that have no row
    assert [label.get_text() for label in axis.get_xticklabels()] == ["5%", "100%"]
    assert axis.get_yscale() == "log"
    ordered = sorted(boxes)
    for (_, right, _), (left, _, _) in itertools.pairwise(ordered):
        assert right < left
    for left, right, _ in boxes:
        nearest = round((left + right) / 2)
        assert nearest in (0, 1)
        assert nearest - 0.5 < left < right < nearest + 0.5


def test_bounds_have_one_colour_each_and_a_name():
    (axis,) = plots.box_plots(program.errors_by_cell(ROWS)).axes
    assert len({face for _, _, face in _boxes(axis)}) == 3
    names = [text.get_text() for text in axis.get_legend().get_texts()]
    assert names == ["no stabilisation", "M = 10", "M = 1.2"]
    # The seeds themselves are points on the boxes.
    drawn = sorted(value for line in axis.lines if line.get_marker() == "." for value in line.get_ydata())
    assert drawn == sorted(row["metrics"]["rmse"] for row in ROWS)


# --- the program --------------------------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Calls its main with these flags; training is a note of what was asked, and of half the percent as error."""
    trained = []

    def train(config, workdir, *, resume):
        assert resume
        trained.append((presets.variant(config), config.seed, workdir))
        return {"preset": config.preset, "seed": config.seed, "metrics": {"rmse": presets.percent_of(config) / 200}}

    monkeypatch.setattr(field_run, "run", train)

    def call(percents, bounds, num_seeds=1, preset="quick"):
        values = flags.FlagValues()
        flags.DEFINE_list("percents", percents, "", flag_values=values)
        flags.DEFINE_list("bounds", bounds, "", flag_values=values)
        flags.DEFINE_string("preset", preset, "", flag_values=values)
        flags.DEFINE_string("results_dir", str(tmp_path), "", flag_values=values)
        flags.DEFINE_integer("seed", 0, "", flag_values=values)
        flags.DEFINE_integer("num_seeds", num_seeds, "", flag_values=values)
        values.mark_as_parsed()
        monkeypatch.setattr(program, "FLAGS", values)
        del trained[:]
        program.main()
        return trained

    return call


def test_cells_without_a_row_are_trained_and_all_rows_are_drawn(run, tmp_path, monkeypatch, capsys):
    drawn = []
    monkeypatch.setattr(files, "write_figure", lambda path, figure: drawn.append((path, len(_boxes(figure.axes[0])))))
    first = run(["5", "100"], ["none"])
    assert [(variant, seed) for variant, seed, _ in first] == [("5percent-M_none", 0), ("100percent-M_none", 0)]
    again = run(["5", "100"], ["none", "1.2"], num_seeds=2)
    assert len(again) == 8 - 2
    assert "is there already" in capsys.readouterr().out
    assert [boxes for _, boxes in drawn] == [2, 4]
    assert drawn[0][0] == tmp_path / "figures" / "data_efficiency.png"
    row = json.loads((tmp_path / "data_efficiency" / "heat-ctfno-quick-5percent-M_1.2-seed1.json").read_text())
    assert (row["percent"], row["num_trajectories"], row["stability_bound"]) == (5, 19, 1.2)
    assert run(["5"], ["none"]) == []
    assert "  100 %" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("percents", "bounds", "message"),
    [
        (["5", "half"], ["none"], "--percents cannot hold 'half': expected numbers between commas"),
        (["5"], ["some"], "--bounds cannot hold 'some': expected numbers between commas"),
        (["5", "200"], ["none"], "between 1 and 100 percent, got 200"),
    ],
)
def test_flags_that_name_no_cell_are_refused_before_any_is_trained(run, tmp_path, percents, bounds, message):
    with pytest.raises(ValueError, match=message):
        run(percents, bounds)
    assert not list(tmp_path.iterdir())
