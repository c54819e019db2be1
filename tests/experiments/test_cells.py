"""Cells: commands and names that identify them, and whole tiny runs of a training program in this process."""

import dataclasses
import functools
import json
import re
import shlex

import jax
import numpy as np
import pytest
from helpers import compiled, prediction, program_flags

from ctfno_jax import files, load_predictor, metrics, results
from ctfno_jax.config import ConfigError
from ctfno_jax.data import problems
from ctfno_jax.tasks.fields import FieldTask
from experiments import catalog, cells, choose_bound, configs, rows
from experiments.cells import Cell

# --- commands and names -------------------------------------------------------------------------------------------

OVERRIDES = [
    {},
    {"steps": 300},
    {"learning_rate": 1e-05, "time_scale": 0.1, "padding": 1 / 3},
    {"stability_bound": None, "time_chunk": None},
    {"stability_bound": 2.5, "stability_rule": "rows_and_columns"},
    {"modes": [12], "padding": [0.125, 0.5]},
    {"coordinates": True, "sign_flips": False},
    {"data_options": {"num_points": 32, "viscosity": 0.001, "label": "a b/c'd", "on": True, "off": None}},
    {"num_train": 20, "data_seed": 0, "loss": "rmse", "schedule": "cosine", "final_fraction": 0.0},
]


@pytest.mark.parametrize("preset", configs.PRESETS)
@pytest.mark.parametrize("overrides", OVERRIDES)
def test_a_command_and_its_cell_are_the_same(preset, overrides):
    cell = Cell("pde", "heat", "ctfno", preset, 7, overrides)
    again = Cell.from_command(cell.command)
    assert again == cell
    assert hash(again) == hash(cell)
    assert again.config() == cell.config()


@pytest.mark.parametrize("overrides", OVERRIDES)
def test_a_program_makes_the_cell_of_its_command(monkeypatch, overrides):
    """Through the flags of the program, as a user types it."""
    cell = Cell("pde", "heat", "ctfno", "quick", 7, overrides)
    seen = []
    _, _, module, *arguments = shlex.split(cell.command)
    assert module == "experiments.pde"
    program_flags.parse(monkeypatch, *arguments)
    monkeypatch.setattr(cells, "run_cells", lambda todo, *_, **__: seen.extend(todo) or [{}])
    monkeypatch.setattr(results, "summary", lambda *_: "")
    cells.run_from_flags("pde")
    assert seen == [cell]


@pytest.mark.parametrize("table", catalog.TABLES)
def test_every_cell_of_the_tables_is_made_by_its_command_and_has_a_row_of_its_own(table):
    every = catalog.cells(table)
    assert [Cell.from_command(cell.command) for cell in every] == every
    assert len({cell.row_path("results") for cell in every}) == len(every)
    for cell in every:
        cell.config()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("make", "a row is made by python -m experiments.<program>, got 'make'"),
        ("python -m experiments.pde --dataset=heat", "the command of a row names --model, --seed"),
        ("python -m experiments.pde --dataset=heat --model=ctfno --seed=0 --wdith=3", "--wdith is no setting of ctfno"),
        (
            "python -m experiments.pde --dataset=heat --model=deeponet --seed=0 --heads=3",
            "--heads is no setting of deep",
        ),
        ("python -m experiments.pde --dataset=heet --model=ctfno --seed=0", "unknown dataset 'heet'"),
    ],
)
def test_what_is_no_command_of_a_cell_is_refused(command, message):
    with pytest.raises(ConfigError, match=message):
        Cell.from_command(command)


def test_paths_name_what_a_run_is():
    cell = Cell("pde", "heat", "ctfno", "quick", 3, {"steps": 300, "modes": [9, 4], "stability_bound": None})
    assert cell.workdir.parts == ("runs", "pde", "heat", "ctfno", "seed3")
    path = cell.row_path("rows")
    assert path.parts == ("rows", "pde", "heat-ctfno-quick-modes=9,4,stability_bound=none,steps=300-seed3.json")
    assert Cell("pde", "heat", "ctfno").row_path("rows").name == "heat-ctfno-default-seed0.json"


def test_names_are_safe_on_every_file_system_and_tell_cells_apart():
    names = ["a/b", "a:b", "a b", "a_b", "A" * 300, "A" * 299, 'a"b', "ä", "../x", "a\nb"]
    variants = [Cell("pde", "heat", "ctfno", overrides={"data_options": {"name": name}}).variant for name in names]
    assert len(set(variants)) == len(names)
    for variant in variants:
        assert re.fullmatch(r"[A-Za-z0-9_.,=+-]+", variant)
        assert len(variant) < 150
    many = {name: 1000 + i for i, name in enumerate(configs.setting_types("ctfno", "fields"))}
    assert len(Cell("pde", "heat", "ctfno", overrides=many).row_path(".").name) < 255


# --- tiny runs ----------------------------------------------------------------------------------------------------

TINY = (
    "--preset=quick", "--width=8", "--modes=6", "--heads=2", "--time_width=8", "--time_features=4", "--num_train=24",
    "--num_validation=4", "--num_test=4", "--data_option=num_points=32", "--data_option=num_times=5",
    "--train_grid=16", "--steps=4", "--steps_per_call=2", "--eval_every=2", "--batch_size=8",
    "--optimizer=sgd", "--clip_norm=0", "--average_decay=0",  # the quickest to compile
)  # fmt: skip
# All runs have one bound, so that they share their compiled programs.
BOUND = ("--stability_bound=0.5",)


@pytest.fixture(scope="module", autouse=True)
def cheap(tmp_path_factory):
    """One device, compiled programs kept, and no pictures, which are looked at elsewhere."""
    with (
        prediction.one_device(),
        compiled.kept_in(tmp_path_factory.mktemp("compiled")),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(files, "write_figure", lambda path, figure: None)
        yield


@pytest.fixture
def run(monkeypatch):
    """Runs the program without the certificate, which costs as much as all the rest."""
    monkeypatch.setattr(FieldTask, "_stability", lambda *_: {})

    def call(*arguments):
        program_flags.parse(monkeypatch, *TINY, *BOUND, *arguments)
        cells.run_from_flags("pde")

    return call


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run with its row, and what the program printed."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        program_flags.parse(
            patch, *TINY, *BOUND, f"--workdir={folder / 'run'}", f"--results_dir={folder / 'rows'}", "--seed=5"
        )
        cells.run_from_flags("pde")
    return folder


def _row(folder):
    return json.loads((folder / "result.json").read_text())


def test_a_run_leaves_its_files_and_a_row_that_its_command_makes_again(trained):
    workdir, row = trained / "run", _row(trained / "run")
    assert {path.name for path in workdir.iterdir()} == {"config.json", "metrics.jsonl", "checkpoints", "result.json"}
    assert json.loads((workdir / "config.json").read_text()) == row["config"]
    assert set(row) == {*rows.KEYS, "validation_curve"}
    cell = Cell.from_command(row["command"])
    assert row["config"] == {**cell.config().to_dict(), "evaluate": "test"}
    assert (row["overrides"], row["seed"], row["preset"]) == (cell.overrides, 5, "quick")
    assert rows.read(cell.row_path(trained / "rows")) == row
    assert (row["evaluated_on"], row["steps"], row["source"]) == ("test", 4, "generated")
    assert row["paper"]["rmse"] > 0
    assert row["metrics"]["certified_lipschitz"] >= row["metrics"]["measured_gain"] > 0
    assert row["devices"]
    best = min(
        line["validation_rmse"] for line in map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    )
    assert row["metrics"]["validation_rmse"] == best


def test_the_row_has_the_errors_and_the_size_of_the_saved_network(trained):
    row, predictor = _row(trained / "run"), load_predictor(trained / "run")
    data = problems.load_dataset("heat", num_train=24, num_validation=4, num_test=4, num_points=32, num_times=5)
    u = predictor(data.test.u0, data.test.times)
    assert metrics.rmse(u, data.test.u) == pytest.approx(row["metrics"]["rmse"], rel=1e-6)
    assert row["num_params"] == sum(np.size(leaf) for leaf in jax.tree.leaves(predictor.params["params"]))


def test_a_finished_run_is_not_made_again(run, trained, monkeypatch, capsys):
    monkeypatch.setattr(problems, "load_dataset", lambda *_, **__: pytest.fail("data were made"))
    run(f"--workdir={trained / 'run'}", "--seed=5")
    text = capsys.readouterr().out
    assert "has finished already; nothing to do" in text
    assert re.search(r"on test data +ours +paper +ratio\nRMSE ", text)
    run(f"--results_dir={trained / 'rows'}", "--seed=5", f"--workdir={trained / 'other'}")
    assert "seed5.json is there already; nothing to do" in capsys.readouterr().out
    assert not (trained / "other").exists()


def test_a_folder_of_another_run_is_refused_with_the_difference(run, trained):
    before = (trained / "run" / "result.json").read_bytes()
    with pytest.raises(ConfigError, match=r"belongs to another config \(seed is 5 there and 6 here\)"):
        run(f"--workdir={trained / 'run'}", "--seed=6")
    # A trial never becomes a row.
    with pytest.raises(ConfigError, match=r"\(evaluate is 'test' there and 'validation' here\)"):
        run(f"--workdir={trained / 'run'}", "--seed=5", "--evaluate=validation")
    assert (trained / "run" / "result.json").read_bytes() == before


def test_what_a_run_refuses_leaves_no_folder(run, tmp_path):
    for arguments, message in (
        (["--modes=40"], r"modes \(40,\) do not fit a grid of \(16,\) points"),
        (["--data_option=colour=1"], "dataset heat has no option colour; it has num_points"),
        (["--batch_size=30"], "batch_size=30 exceeds the 24 training trajectories"),
    ):
        with pytest.raises(ValueError, match=message):
            run(*arguments, f"--workdir={tmp_path / 'a' / 'run'}")
        assert list(tmp_path.iterdir()) == []


def test_a_trial_is_the_run_without_test_data_and_says_that_it_is_one(run, trained, tmp_path, monkeypatch, capsys):
    entry, asked = problems.PROBLEMS["heat"], []

    @functools.wraps(entry.generate)
    def generate(num_samples, seed, first=0, **options):
        asked.append((first, first + num_samples))
        return entry.generate(num_samples, seed, first, **options)

    monkeypatch.setitem(problems.PROBLEMS, "heat", dataclasses.replace(entry, generate=generate))
    run("--evaluate=validation", f"--workdir={tmp_path / 'run'}", "--seed=5")
    assert asked
    assert min(first for first, _ in asked) == 4  # samples 0 to 3 are the test set
    assert max(last for _, last in asked) == 4 + 4 + 24
    row = _row(tmp_path / "run")
    assert row["evaluated_on"] == row["config"]["evaluate"] == "validation"
    assert row["command"].endswith(" --evaluate=validation")
    assert "rmse" not in row["metrics"]
    assert row["metrics"]["validation_rmse"] == _row(trained / "run")["metrics"]["validation_rmse"]
    assert "on validation data" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="holds errors on validation data"):
        rows.read(tmp_path / "run" / "result.json")


@pytest.mark.slow
@pytest.mark.parametrize(("workdir", "parent"), [([], "runs/pde/heat/ctfno"), (["--workdir=both"], "both")])
def test_seeds_at_once_leave_a_folder_and_a_row_each(run, trained, tmp_path, monkeypatch, workdir, parent):
    monkeypatch.chdir(tmp_path)
    run("--num_seeds=2", "--seed=5", "--results_dir=rows", *workdir)
    folders = [tmp_path / parent / f"seed{seed}" for seed in (5, 6)]
    found = [_row(folder) for folder in folders]
    assert [row["seed"] for row in found] == [5, 6]
    assert sorted(path.name[-10:] for path in (tmp_path / "rows" / "pde").iterdir()) == ["seed5.json", "seed6.json"]
    assert all(f"--seed={row['seed']}" in row["command"] for row in found)
    # The first is the run that was trained alone; under its tight bound, seeds hardly differ.
    assert found[0]["metrics"]["rmse"] == pytest.approx(_row(trained / "run")["metrics"]["rmse"], rel=1e-4)
    assert found[1]["metrics"]["rmse"] != found[0]["metrics"]["rmse"]


def test_the_bound_is_searched_by_short_trials_and_then_used(run, tmp_path, monkeypatch, capsys):
    asked, errors = [], {0.5: 0.2, 1.0: 0.1}

    def run_cells(todo, folders, *, evaluate, **_):
        ((cell,), (folder,)) = todo, folders
        bound = cell.overrides["stability_bound"]
        asked.append((bound, cell.config().train.steps, folder.relative_to(tmp_path).as_posix(), evaluate))
        return [{"metrics": {"validation_rmse": errors[bound]}}]

    monkeypatch.setattr(choose_bound, "CANDIDATES", tuple(errors))
    monkeypatch.setattr(cells, "run_cells", run_cells)
    monkeypatch.setattr(results, "summary", lambda *_: "")
    run("--stability_bound=auto", f"--workdir={tmp_path / 'run'}")
    trials = [(bound, 2, f"run/bound_search/M_{bound:g}", "validation") for bound in errors]
    assert asked == [*trials, (1.0, 4, "run", "test")]
    assert "stability_bound=auto: 2 candidates, 2 steps each" in capsys.readouterr().out
    asked.clear()
    run("--stability_bound=auto", f"--workdir={tmp_path / 'run'}")
    assert asked == [(1.0, 4, "run", "test")]
    assert "bound_search.json says\n" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="is a search for another cell"):
        run("--stability_bound=auto", f"--workdir={tmp_path / 'run'}", "--seed=9")


@pytest.mark.slow
def test_the_bound_is_searched_on_validation_data_and_then_used(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(choose_bound, "CANDIDATES", (0.5,))
    folder = tmp_path / "run"
    run("--stability_bound=auto", f"--workdir={folder}")
    text = capsys.readouterr().out
    search = json.loads((folder / "bound_search.json").read_text())
    assert [tried["stability_bound"] for tried in search["tried"]] == [search["chosen"]] == [0.5]
    assert "stability_bound=auto: 1 candidates, 2 steps each" in text
    trial = _row(folder / "bound_search" / "M_0.5")
    assert (trial["evaluated_on"], trial["steps"]) == ("validation", 2)
    assert trial["metrics"]["validation_rmse"] == search["tried"][0]["validation_rmse"]
    row = _row(folder)
    assert row["config"]["network"]["network_fields"]["stability_bound"] == search["chosen"]
    assert row["overrides"]["stability_bound"] == search["chosen"]
    assert (row["steps"], row["evaluated_on"]) == (4, "test")
    # A second start reads the choice.
    run("--stability_bound=auto", f"--workdir={folder}")
    assert "bound_search.json says\n" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="is a search for another cell"):
        run("--stability_bound=auto", f"--workdir={folder}", "--seed=9")


def test_a_folder_of_files_is_not_read_by_data_that_are_generated(run, trained, tmp_path, capsys):
    run(f"--workdir={trained / 'run'}", "--seed=5", f"--data_dir={tmp_path}")
    assert "note: heat is generated; nothing is read from --data_dir" in capsys.readouterr().out


def test_a_folder_without_the_file_of_a_data_set_says_where_it_comes_from(run, tmp_path):
    with pytest.raises(ValueError, match=r"doi:10\.18419/darus-2986"):
        run("--dataset=navier_stokes", f"--data_dir={tmp_path}", f"--workdir={tmp_path / 'run'}")
    assert list(tmp_path.iterdir()) == []


def test_rows_are_of_generated_data(run, tmp_path, monkeypatch):
    monkeypatch.setattr(problems, "data_file", lambda *_: tmp_path / "some.hdf5")
    with pytest.raises(
        ConfigError, match=r"rows in --results_dir are of generated data, but .*some\.hdf5 would be read"
    ):
        run("--dataset=burgers", f"--results_dir={tmp_path / 'rows'}")
