"""Peers: what they get, and how their answers are scored. A small program stands for a library of other people."""

import dataclasses
import sys

import numpy as np
import pytest

from ctfno_jax.config import ConfigError
from ctfno_jax.data import problems
from experiments import rows, timing, timing_lines
from experiments.cells import Cell
from experiments.peers import __main__ as program
from experiments.peers import peer as peers

# Answers the initial state at every time.
PERSISTENCE = """
import argparse, json
import numpy as np
parser = argparse.ArgumentParser()
for name in ("data", "output", "learning_rate", "steps", "seed", "threads"):
    parser.add_argument("--" + name)
args = parser.parse_args()
data = np.load(args.data, allow_pickle=False)
parts = [name for name in ("validation", "test", "between") if name + "_u0" in data]
np.savez(args.output, **{
    part: np.repeat(data[part + "_u0"][:, None], len(data[part + "_times"]), axis=1) for part in parts
})
summary = {
    "num_params": 7, "train_seconds": 0.0, "cpu_seconds": 0.0, "step_seconds": 0.75, "versions": {"none": "0"},
}
json.dump(summary, open(args.output + ".json", "w"))
"""
TRAINING = peers.Training(learning_rate=1e-3, steps=1, seed=0)
SIZES = {"num_train": 5, "num_validation": 4, "num_test": 3, "seed": 1}


@pytest.fixture(scope="module")
def heat():
    """Few trajectories on 512 points, of which a peer is trained on 256."""
    options = {**SIZES, "num_points": 512, "num_times": 6}
    return problems.load_dataset("heat", **options), problems.between_times("heat", **options)


def script(tmp_path, text):
    path = tmp_path / "peer.py"
    path.write_text(text)
    return path


def test_a_peer_gets_no_solution_of_validation_and_test_sets(heat):
    data, between = heat
    arrays = peers.exported(data, between)
    assert arrays["train_u"].shape == (5, 6, 256, 1)
    assert arrays["test_u0"].shape == (3, 512, 1)
    assert {name for name in arrays if name.endswith("_u")} == {"train_u"}
    np.testing.assert_array_equal(arrays["train_u"], data.train.u[:, :, ::2])


def test_a_trial_gets_no_test_set():
    data = problems.load_dataset("heat", parts=("train", "validation"), **SIZES, num_points=512, num_times=6)
    assert not [name for name in peers.exported(data, None) if name.startswith(("test", "between"))]


def test_answers_are_scored_as_those_of_our_models(heat, tmp_path):
    data, between = heat
    answers, summary = peers.run(sys.executable, script(tmp_path, PERSISTENCE), peers.exported(data, between), TRAINING)
    errors = peers.scores(data, between, answers)
    change = data.test.u - data.test.u0[:, None]
    assert errors["rmse"] == pytest.approx(np.sqrt(np.mean(change.astype(np.float64) ** 2)), rel=1e-5)
    unseen = between.u - between.u0[:, None]
    assert errors["rmse_between_times"] == pytest.approx(np.sqrt(np.mean(unseen.astype(np.float64) ** 2)), rel=1e-5)
    seen = data.validation.u[:, :, ::2] - data.validation.u0[:, None, ::2]
    assert errors["validation_rmse"] == pytest.approx(np.sqrt(np.mean(seen.astype(np.float64) ** 2)), rel=1e-5)
    made = program.row(data, Cell("peers", "heat", "neuraloperator_fno"), TRAINING, summary, errors)
    assert set(rows.KEYS) <= set(made)


def test_between_walls_a_peer_keeps_its_grid_and_answers_are_interpolated(heat):
    walls = dataclasses.replace(heat[0].problem, periodic=False)
    data = dataclasses.replace(heat[0], problem=walls)
    arrays = peers.exported(data, None)
    assert {arrays[f"{name}_u0"].shape[1] for name in ("train", "validation", "test")} == {256}
    cubic = (np.arange(256) / 256)[:, None] ** 3
    answers = {name: np.broadcast_to(cubic, (n, 6, 256, 1)) for name, n in (("validation", 4), ("test", 3))}
    errors = peers.scores(data, None, answers)
    exact = (np.arange(512) / 512)[:, None] ** 3
    assert errors["rmse"] == pytest.approx(np.sqrt(np.mean((exact - data.test.u) ** 2)), rel=1e-5)
    assert errors["validation_rmse"] == pytest.approx(np.sqrt(np.mean((exact - data.validation.u) ** 2)), rel=1e-5)


@pytest.mark.parametrize(("text", "line"), [("raise SystemExit(3)", "exit code 3"), ("", "answers.npz.json")])
def test_a_peer_that_fails_is_an_error(heat, tmp_path, text, line):
    with pytest.raises((ConfigError, OSError), match=line):
        peers.run(sys.executable, script(tmp_path, text), peers.exported(*heat), TRAINING)


def test_an_interpreter_that_is_not_there_is_an_error(heat, tmp_path):
    with pytest.raises(ConfigError, match="cannot be run"):
        peers.run(str(tmp_path / "python"), script(tmp_path, ""), peers.exported(*heat), TRAINING)


@pytest.mark.parametrize("wrong", ["shape", "not finite"])
def test_answers_that_cannot_be_scored_are_refused(heat, wrong):
    data, between = heat
    answers = {"validation": data.validation.u[:, :, ::2].copy(), "test": data.test.u.copy(), "between": between.u}
    if wrong == "shape":
        answers["test"] = answers["test"][:, 1:]
    else:
        answers["test"][0, 0, 0] = np.nan
    with pytest.raises(ConfigError, match="test set has a wrong shape or is not finite"):
        peers.scores(data, between, answers)


@pytest.mark.slow
def test_a_step_of_a_peer_stands_beside_ours(monkeypatch, tmp_path):
    monkeypatch.setattr(timing, "best_seconds", lambda fn, *args, repeats: 0.5)
    monkeypatch.setitem(peers.SCRIPTS, "neuraloperator_fno", script(tmp_path, PERSISTENCE))
    made = timing.peer(sys.executable, 1)
    assert made["size"] == [20, 2, 256]
    assert made["models"]["neuraloperator_fno"] == {"training": 0.75, "num_params": 7, "versions": {"none": "0"}}
    _, lines = timing_lines.TIMINGS["peer"]({**made, "devices": ["cpu"]})
    assert lines[1][1:3] == ["500", "1.00"]
    assert lines[2][1:] == ["750", "1.50", "7"]
