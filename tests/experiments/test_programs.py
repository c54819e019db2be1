"""Training programs as a user starts them, each in a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ctfno_jax import load_predictor

ROOT = Path(__file__).parents[2]

TINY = (
    "--preset=quick", "--width=8", "--modes=6", "--heads=2", "--time_width=8", "--time_features=4", "--num_train=24",
    "--num_validation=4", "--num_test=3", "--data_option=num_points=32", "--data_option=num_times=5",
    "--train_grid=16", "--steps=40", "--steps_per_call=2", "--eval_every=4", "--batch_size=8",
)  # fmt: skip


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Starts a program on one device, in a folder of its own."""
    home = tmp_path_factory.mktemp("home")

    def call(name, *arguments):
        hidden = ("CTFNO_DATA_DIR", "CTFNO_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR", "NPROC")
        environment = {k: v for k, v in os.environ.items() if k not in hidden}
        flags = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
        environment |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(home / "cache"), "XLA_FLAGS": " ".join(flags)}
        command = [sys.executable, "-m", f"experiments.{name}", *map(str, arguments)]
        return subprocess.Popen(
            command, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )  # fmt: skip

    call.home = home
    return call


@pytest.mark.slow
def test_a_training_is_stopped_and_resumed_and_leaves_what_it_promises(start):
    process = start("pde", *TINY)
    workdir = start.home / "runs" / "pde" / "heat" / "ctfno" / "seed0"
    while not (workdir / "metrics.jsonl").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    text, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    lines = [line for line in errors.splitlines() if line]
    assert lines[0] == "stopping after the current steps; a second signal stops without saving"
    folder = re.escape(str(workdir.relative_to(start.home)))
    assert re.fullmatch(rf"stopped at step \d+ of 40; saved in {folder}; continue with resume \(--resume\)", lines[1])
    assert len(lines) == 2
    assert text.startswith("heat, generated: initial_std ")
    assert not (workdir / "result.json").exists()

    process = start("pde", *TINY, "--resume")
    text, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, "")
    assert re.search(r"resumed at step \d+\n", text)
    assert re.search(r"on test data +ours +paper +ratio\nRMSE ", text)
    assert text.endswith(f"files in {workdir.relative_to(start.home)}\n")
    names = {"config.json", "metrics.jsonl", "checkpoints", "figures", "result.json"}
    assert {path.name for path in workdir.iterdir()} == names
    figures = list((workdir / "figures").iterdir())
    assert figures
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in figures)
    steps = [json.loads(line)["step"] for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(2, 41, 2))
    assert load_predictor(workdir)(np.ones((1, 16, 1)), [0.5]).shape == (1, 1, 16, 1)


def test_a_mistake_is_one_line_and_leaves_nothing(start):
    process = start("pde", *TINY, "--modes=40", "--workdir=mistake/run")
    text, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert errors.startswith("error: modes (40,) do not fit a grid of (16,) points")
    assert errors.count("\n") == 1
    assert "Traceback" not in text
    assert not (start.home / "mistake").exists()


def test_a_mistake_in_a_file_of_series_is_one_line_and_leaves_nothing(start):
    path = start.home / "mine.csv"
    path.write_text(
        "series,time,height\n" + "".join(f"s{i},{t},{t}\n" for i in range(12) for t in (0, 1, 2)) + "s0,3,tall\n"
    )
    process = start("timeseries", "--dataset=csv", f"--input={path}", "--workdir=mistake/run")
    text, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert errors == f"error: {path}, line 38: height must be a number, got 'tall'\n"
    assert "Traceback" not in text
    assert not (start.home / "mistake").exists()


def test_the_help_comes_from_the_program_itself(start):
    process = start("synthetic", "--help", "--dataset=spiral", "--model=node", "--steps=many")
    text, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, "")
    assert text.startswith("Trains a model of low-dimensional dynamics: ")
    assert "Settings of node on spiral, preset default:" in text
    assert max(map(len, text.splitlines())) < 80
