"""Rows of finished cells: each is what its own command makes again."""

import json
from pathlib import Path

import pytest
from helpers.result_rows import write_row

from ctfno_jax import results
from ctfno_jax.config import ConfigError
from ctfno_jax.models import registry
from experiments import catalog, latent_references, linear_forecast, rows
from experiments.cells import Cell

RESULTS = Path(__file__).parents[2] / "results"
COMMITTED = sorted(
    path for name in ("pde", "synthetic", "vibration", "timeseries") for path in (RESULTS / name).rglob("*.*")
)


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_committed_row_is_what_its_command_makes(path):
    row = rows.read(path)
    if row["model"] in linear_forecast.MODELS:  # regressions have a program of their own
        assert row["command"] == "python -m experiments.linear_forecast"
        assert path == Cell(row["experiment"], row["dataset"], row["model"]).row_path(RESULTS)
        assert row["config"]["data"]["data_options"] == linear_forecast.data_options(row["model"])
        return
    if row["model"] in latent_references.MODELS:
        cell = Cell(row["experiment"], row["dataset"], row["model"], overrides=row["overrides"])
        assert row["command"] == latent_references.command(row["dataset"])
        assert path == cell.row_path(RESULTS)
        places = [catalog.reference(c, row["model"]) for c in catalog.cells(row["dataset"], num_seeds=1)]
        assert row["overrides"] in [dict(place.overrides) for place in places]
        return
    cell = Cell.from_command(row["command"])
    made = {**cell.config().to_dict(), "evaluate": "test"}
    # A field that networks have got since then has its default value.
    assert _network(row["config"]) == _network(made)
    assert {**row["config"], "network": None} == {**made, "network": None}
    named = [row[name] for name in ("experiment", "dataset", "model", "preset", "seed", "overrides")]
    assert named == [cell.experiment, cell.dataset, cell.model, cell.preset, cell.seed, cell.overrides]
    assert path == cell.row_path(RESULTS)
    assert row["steps"] == row["config"]["train"]["steps"]
    assert row["metrics"]["best_step"] <= row["steps"]
    assert row["commit"]


def _network(config):
    return registry.build_model(config["network"]["network"], **config["network"]["network_fields"])


def test_rows_are_read_in_the_order_of_their_names(tmp_path):
    for seed in (2, 0, 1):
        write_row(tmp_path, Cell("pde", "heat", "ctfno", seed=seed))
    assert [row["seed"] for row in rows.read_all(tmp_path, "pde")] == [0, 1, 2]
    assert rows.read_all(tmp_path, "synthetic") == []


def test_rows_are_selected_by_all_their_overrides(tmp_path):
    for overrides in ({}, {"steps": 100}, {"steps": 100, "stability_bound": None}):
        write_row(tmp_path, Cell("pde", "heat", "ctfno", overrides=overrides))
    write_row(tmp_path, Cell("pde", "heat", "ctfno", "quick"))
    found = rows.read_all(tmp_path, "pde")
    assert len(found) == 4
    assert [row["overrides"] for row in rows.select(found, model="ctfno")] == [{}]
    assert [row["preset"] for row in rows.select(found, preset="quick")] == ["quick"]
    (row,) = rows.select(found, overrides={"steps": 100})
    assert row["overrides"] == {"steps": 100}
    assert rows.select(found, model="deeponet") == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("[1]", r"is no result row \(it lacks experiment, dataset, model, preset\)"),
        ('{"experiment": "pde", "dataset": "heat"}', r"is no result row \(it lacks model, preset, seed, overrides\)"),
    ],
)
def test_a_file_that_is_no_row_is_named_with_the_remedy(tmp_path, content, message):
    path = tmp_path / "row.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=rf"row\.json {message}.*; remove it and run its cell again") as caught:
        rows.read(path)
    assert "\n" not in str(caught.value)


def test_a_trial_is_no_row(tmp_path):
    cell = Cell("pde", "heat", "ctfno")
    write_row(tmp_path, cell)
    path = cell.row_path(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "evaluated_on": "validation"}))
    with pytest.raises(ConfigError, match="holds errors on validation data; remove it and run its cell again"):
        rows.read(path)


ROW = {
    "metrics": {"rmse": 2e-3, "validation_rmse": 3e-3, "nrmse": 0.5, "certified_lipschitz": 7.0, "measured_gain": 2.0},
    "paper": {"rmse": 1e-3, "num_params": 2000}, "evaluated_on": "test", "num_params": 1500, "train_seconds": 61.4,
    "cpu_seconds": 99.6,
}  # fmt: skip
LABELS = (("RMSE", "rmse"), ("relative L2 error", "nrmse"), ("MSE", "mse"))


def test_the_summary_of_a_run_stands_beside_the_paper():
    lines = results.summary(ROW, LABELS).splitlines()
    assert [line.split() for line in lines] == [
        ["on", "test", "data", "ours", "paper", "ratio"],
        ["RMSE", "2.000e-03", "1.000e-03", "2.00"],
        ["relative", "L2", "error", "5.000e-01"],
        ["validation", "RMSE", "3.000e-03"],
        ["parameters", "1,500", "2,000"],
        ["training", "seconds", "(CPU)", "61", "(100)"],
        ["certified", "growth", "7", "(measured", "2)"],
    ]
    assert max(map(len, lines)) < 80


def test_a_run_that_the_paper_does_not_have_stands_alone():
    text = results.summary({**ROW, "paper": None}, LABELS)
    assert text.splitlines()[0].split() == ["on", "test", "data", "ours"]


def test_a_certificate_may_stand_without_a_measured_growth():
    """As that of a classifier does."""
    metrics = {name: value for name, value in ROW["metrics"].items() if name != "measured_gain"}
    assert results.summary({**ROW, "metrics": metrics}, LABELS).splitlines()[-1].split() == ["certified", "growth", "7"]


def test_validation_errors_are_not_compared_with_the_test_errors_of_the_paper():
    text = results.summary({**ROW, "evaluated_on": "validation"}, LABELS)
    assert "1.000e-03" not in text
    assert text.startswith("on validation data")
