"""Running a table: which cells, on which cores, what failures and interruptions do; jobs are tiny scripts."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from helpers import program_flags
from helpers.result_rows import write_row

from ctfno_jax.config import ConfigError
from ctfno_jax.training import loop
from experiments import catalog, host, jobs, reproduce, tables
from experiments.cells import Cell

CELLS = [
    Cell("pde", "heat", "ctfno"), Cell("pde", "heat", "deeponet"), Cell("pde", "burgers", "ctfno"),
    Cell("pde", "heat", "ctfno", seed=1, overrides={"stability_bound": None}),
]  # fmt: skip

# A job: notes its cores and start, and then does what the test says.
JOB = """
import json, os, signal, sys, time
note, row, behaviour = sys.argv[1:4]
with open(note, "a") as file:
    file.write(json.dumps({"cores": os.environ["CTFNO_CORES"], "start": time.time()}) + "\\n")
print("step    100/200  loss", flush=True)
if behaviour == "fail":
    print("error: no space left", flush=True)
    print("", flush=True)
    sys.exit(3)
if behaviour == "wait" and not os.path.exists(note + ".saved"):
    def stop(*_):
        open(note + ".saved", "w").close()
        sys.exit(130)
    signal.signal(signal.SIGTERM, stop)
    open(note + ".ready", "w").close()
    time.sleep(60)
time.sleep(float(os.environ.get("SECONDS", 0)))
os.makedirs(os.path.dirname(row), exist_ok=True)
open(row, "w").write("{}")
"""


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Makes reproduce run these cells as scripts; their behaviour by index, and their notes."""
    monkeypatch.setattr(jobs, "_PAUSE", 0.02)
    monkeypatch.setattr(host, "cores", lambda: [0, 1, 4, 5])
    monkeypatch.setattr(catalog, "cells", lambda table, num_seeds=3: [c for c in CELLS if c.seed < num_seeds])
    monkeypatch.setattr(tables, "render", lambda table, *_: f"the table {table}")
    behaviours = {}

    def arguments(cell, folder):
        index = CELLS.index(cell)
        row = cell.row_path(tmp_path / "rows")
        return [sys.executable, "-S", "-c", JOB, str(tmp_path / str(index)), str(row), behaviours.get(index, "work")]

    monkeypatch.setattr(reproduce, "arguments", arguments)

    def run(*given, **how):
        behaviours.clear()
        behaviours.update({int(name.removeprefix("cell")): value for name, value in how.items()})
        program_flags.parse(
            monkeypatch, f"--results_dir={tmp_path / 'rows'}", f"--runs={tmp_path / 'runs'}", *given,
            experiment="reproduce",
        )  # fmt: skip
        reproduce.main()

    return run


def _notes(tmp_path):
    """What every job that ran has noted, by the index of its cell."""
    return {
        int(path.name): [json.loads(line) for line in path.read_text().splitlines()]
        for path in tmp_path.iterdir()
        if path.name.isdigit()
    }


def test_missing_cells_are_run_and_then_the_table_is_printed(small, tmp_path, capsys):
    write_row(tmp_path / "rows", CELLS[1])
    small("--jobs=2")
    assert sorted(_notes(tmp_path)) == [0, 2, 3]
    assert all(cell.row_path(tmp_path / "rows").exists() for cell in CELLS)
    text = capsys.readouterr().out
    assert [line.split(":")[1] for line in text.splitlines() if line.startswith("done")].count(
        " heat ctfno seed 0"
    ) == 1
    assert text.endswith("\nthe table pde\n")
    # The progress of a job is in its log and nowhere else.
    log = tmp_path / "runs" / "logs" / "heat-ctfno-default-seed0.log"
    assert log.read_text() == "step    100/200  loss\n"
    assert "step" not in "".join(line for line in text.splitlines() if not line.startswith("done"))


def test_nothing_is_run_if_all_rows_are_there(small, tmp_path, capsys):
    for cell in CELLS:
        write_row(tmp_path / "rows", cell)
    small()
    assert _notes(tmp_path) == {}
    assert capsys.readouterr().out == "\nthe table pde\n"


def test_first_seeds_come_first_and_data_sets_can_be_chosen(small, tmp_path):
    small("--dataset=heat")
    notes = _notes(tmp_path)
    assert sorted(notes) == [0, 1, 3]
    assert max(notes[i][0]["start"] for i in (0, 1)) < notes[3][0]["start"]
    small("--num_seeds=1", "--dataset=burgers")
    assert sorted(_notes(tmp_path)) == [0, 1, 2, 3]


def test_an_unknown_data_set_is_refused(small, tmp_path):
    with pytest.raises(ConfigError, match="unknown dataset 'heet'; known are heat"):
        small("--dataset=heet")
    assert _notes(tmp_path) == {}


def test_jobs_at_once_share_the_cores(small, tmp_path, monkeypatch):
    at_once = []
    monkeypatch.setenv("SECONDS", "0.1")
    monkeypatch.setattr(jobs, "_show", lambda total, running: at_once.append([job.cores for job in running]))
    small("--jobs=2")
    assert {note[0]["cores"] for note in _notes(tmp_path).values()} == {"0,1", "4,5"}
    assert max(map(len, at_once)) == 2
    assert all(cores in ([], [{0, 1}], [{4, 5}], [{0, 1}, {4, 5}], [{4, 5}, {0, 1}]) for cores in at_once)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(1, [{0, 1, 4, 5}]), (2, [{0, 1}, {4, 5}]), (3, [{0}, {1}, {4, 5}]), (4, [{0}, {1}, {4}, {5}])],
)
def test_shares_are_as_equal_as_they_can_be(number, expected):
    assert jobs.shares([0, 1, 4, 5], number) == expected


def test_more_jobs_than_cores_are_refused():
    with pytest.raises(ConfigError, match="--jobs=5 exceeds the 4 usable cores; give each job at least one"):
        jobs.shares([0, 1, 4, 5], 5)


def test_a_failure_is_reported_with_its_last_line_after_all_others_have_run(small, tmp_path, capsys):
    message = r"1 of 4 jobs failed: heat deeponet seed 0 \(error: no space left\)"
    with pytest.raises(ConfigError, match=message):
        small("--jobs=2", cell1="fail")
    assert sorted(_notes(tmp_path)) == [0, 1, 2, 3]
    text = capsys.readouterr().out
    assert "failed: heat deeponet seed 0: step 100/200" in text
    assert "the table pde" in text
    # Only what failed is run again.
    small()
    assert {i: len(notes) for i, notes in _notes(tmp_path).items()} == {0: 1, 1: 2, 2: 1, 3: 1}


@pytest.fixture
def heard():
    """A process that a shell started in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_jobs_which_save_and_a_second_start_goes_on(small, tmp_path, number, heard):
    def send():
        deadline = time.monotonic() + 30
        while not all((tmp_path / f"{i}.ready").exists() for i in (0, 1)) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=send)
    thread.start()
    with pytest.raises(loop.Interrupted, match="stopped after 0 of 4 cells; the same command continues"):
        small("--jobs=2", cell0="wait", cell1="wait")
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
    assert all((tmp_path / f"{i}.saved").exists() for i in (0, 1))  # they have ended, and had the time to save
    assert sorted(_notes(tmp_path)) == [0, 1]
    small("--jobs=2", cell0="wait", cell1="wait")
    assert {i: len(notes) for i, notes in _notes(tmp_path).items()} == {0: 2, 1: 2, 2: 1, 3: 1}


def test_a_dry_run_lists_cells_and_minutes(small, tmp_path, capsys):
    small("--dry_run", "--jobs=2")
    lines = capsys.readouterr().out.splitlines()
    ordered = [CELLS[0], CELLS[1], CELLS[2], CELLS[3]]
    assert [line.split(" min  ")[1] for line in lines[:-1]] == [cell.command for cell in ordered]
    minutes = [float(line.split(" min  ")[0]) for line in lines[:-1]]
    assert minutes == [catalog.minutes(cell) for cell in ordered]
    total = sum(minutes)
    assert lines[-1] == f"4 cells, {total:.0f} minutes of one core; {-(-total // 2):.0f} now"
    assert _notes(tmp_path) == {}
    assert not (tmp_path / "runs").exists()


# --- commands -----------------------------------------------------------------------------------------------------


def test_a_job_is_the_command_of_its_cell_in_a_folder_of_its_own(monkeypatch):
    program_flags.parse(monkeypatch, "--data_dir=/raw", "--results_dir=rows", experiment="reproduce")
    cell = Cell("pde", "heat", "ctfno", "quick", 1, {"stability_bound": None, "data_options": {"a": "b c"}})
    folder = reproduce.workdir(cell, "runs")
    assert folder.parts[:4] == ("runs", "pde", "heat", "ctfno")
    assert folder.parts[-1] == "seed1"
    assert folder != reproduce.workdir(Cell("pde", "heat", "ctfno", "quick", 1), "runs")
    made = reproduce.arguments(cell, folder)
    assert made == [
        sys.executable, "-m", "experiments.pde", "--dataset=heat", "--model=ctfno", "--seed=1", "--preset=quick",
        '--data_option=a="b c"', "--stability_bound=none", f"--workdir={folder}", "--results_dir=rows", "--resume",
    ]  # fmt: skip
    # Only a record is read from a folder: rows of equations are of generated data.
    record = Cell("vibration", "plane_vibration", "ctfno")
    assert "--data_dir=/raw" in reproduce.arguments(record, Path("x"))


def test_further_seeds_of_a_cell_are_one_job(monkeypatch):
    program_flags.parse(monkeypatch, "--runs=all", experiment="reproduce")
    plain = [Cell("pde", "heat", "ctfno", seed=seed) for seed in (0, 1, 2, 4)]
    bounded = [Cell("pde", "heat", "ctfno", seed=seed, overrides={"stability_bound": 1.2}) for seed in (1, 2)]
    todo = sorted([*plain, *bounded], key=lambda cell: cell.seed)
    groups = reproduce.grouped(todo)
    assert groups == [plain[:1], plain[1:3], bounded, plain[3:]]
    assert sorted(cell.command for group in groups for cell in group) == sorted(cell.command for cell in todo)
    alone, together = reproduce.work(groups[0]), reproduce.work(groups[1])
    assert (alone.name, together.name) == ("heat ctfno seed 0", "heat ctfno seeds 1-2")
    assert "--workdir=all/pde/heat/ctfno/seed0" in alone.arguments
    assert {"--seed=1", "--num_seeds=2", "--workdir=all/pde/heat/ctfno"} <= set(together.arguments)
    assert together.minutes == 2 * alone.minutes


def test_a_folder_with_data_in_the_environment_does_not_reach_jobs_on_generated_data(small, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setenv("CTFNO_DATA_DIR", "/raw")
    popen = jobs.subprocess.Popen
    monkeypatch.setattr(jobs.subprocess, "Popen", lambda *a, env, **k: seen.append(env) or popen(*a, env=env, **k))
    small("--dataset=burgers")
    assert "CTFNO_DATA_DIR" not in seen[0]


def test_a_missing_record_is_an_error_before_anything_is_run(small, tmp_path, monkeypatch):
    record = Cell("vibration", "plane_vibration", "ctfno")
    monkeypatch.setattr(catalog, "cells", lambda *_: [*CELLS, record])
    with pytest.raises(ValueError, match=r"holds no pv\.csv"):
        small(f"--data_dir={tmp_path}")
    assert _notes(tmp_path) == {}
