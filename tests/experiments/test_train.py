"""Training on a user's file: the settings that its shape chooses, the split, the run that is left, and mistakes."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import compiled, prediction

from ctfno_jax import load_predictor
from ctfno_jax.data.trajectories import Trajectories
from experiments import audit, own_data, program, rows, train

ROOT = Path(__file__).parents[2]
TIMES = np.arange(1, 11, dtype=np.float32) / 4
SMALL = ("--width=4", "--depth=1", "--heads=2", "--time_width=4", "--time_features=4", "--steps=2")


@pytest.fixture(scope="module", autouse=True)
def cheap(tmp_path_factory):
    with prediction.one_device(), compiled.kept_in(tmp_path_factory.mktemp("compiled")):
        yield


def trajectories(num: int, *grid: int, channels: int = 1, times: np.ndarray = TIMES) -> Trajectories:
    u0 = prediction.waves(num, *grid, channels=channels)
    return Trajectories(u0, times, prediction.decay(u0, times))


def save(path: Path, **changes) -> Path:
    some = trajectories(20, 16)
    arrays = {"u0": some.u0, "times": some.times, "u": some.u} | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


# --- the run --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """File, folder and printed text of a run."""
    folder = tmp_path_factory.mktemp("train")
    data, workdir = save(folder / "mine.npz"), folder / "run"
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", lambda *parts, **_: printed.append(" ".join(map(str, parts))))
        prediction.call(patch, train, f"--data={data}", "--periodic", *SMALL, f"--workdir={workdir}")
    return data, workdir, "\n".join(printed)


def test_the_program_says_what_it_read_and_ends_with_a_table(finished):
    text = finished[2]
    some = trajectories(20, 16)
    assert "mine.npz: 20 trajectories on 16 points, 1 -> 1 channels, 10 times from 0.25 to 2.5" in text
    assert f"u0 from {some.u0.min():g} to {some.u0.max():g}" in text
    assert "16 training and 2 validation samples" in text
    assert "on test data" in text
    assert f"files in {finished[1]}" in text


def test_the_folder_holds_a_row_and_a_run(finished):
    data, workdir, _ = finished
    there = {path.name for path in workdir.iterdir()}
    assert there == {"config.json", "metrics.jsonl", "checkpoints", "figures", "result.json"}
    row = rows.read(workdir / "result.json")
    identity = [row[name] for name in ("experiment", "dataset", "model", "preset", "seed", "evaluated_on")]
    assert identity == ["train", "mine", "ctfno", "default", 0, "test"]
    assert row["config"]["data"]["data_file"] == str(data)
    fields = row["config"]["network"]["network_fields"]
    assert (fields["width"], fields["modes"], fields["coordinates"], fields["padding"]) == (4, [4], False, 0.0)
    predictor = load_predictor(workdir)
    test = own_data.dataset(
        own_data.config(data, trajectories(20, 16), "ctfno", periodic=True), trajectories(20, 16)
    ).test
    error = predictor(test.u0, TIMES) - test.u
    assert np.sqrt(np.mean(error**2)) == pytest.approx(row["metrics"]["rmse"], rel=1e-4)
    assert row["metrics"]["certified_lipschitz"] == pytest.approx(predictor.lipschitz(TIMES).max(), rel=1e-4)


def test_the_command_of_the_row_makes_the_same_run(finished, monkeypatch, capsys):
    row = json.loads((finished[1] / "result.json").read_text())
    python, option, module, *arguments = shlex.split(row["command"])
    assert (python, option, module) == ("python", "-m", "experiments.train")
    prediction.call(monkeypatch, train, *arguments, f"--workdir={finished[1]}")
    assert "has finished already; nothing to do" in capsys.readouterr().out


def test_the_audit_finds_the_test_states_of_the_file(finished, tmp_path):
    data, workdir, _ = finished
    config, states = audit.evaluation_states(workdir, None)
    expected = own_data.dataset(config, trajectories(20, 16)).test
    np.testing.assert_array_equal(states.u0, expected.u0)
    np.testing.assert_array_equal(states.u, expected.u)
    before = data.read_bytes()
    try:
        save(data, u0=2 * trajectories(20, 16).u0)
        with pytest.raises(ValueError, match=r"mine\.npz has changed since the run was trained on it; train it again"):
            audit.evaluation_states(workdir, None)
    finally:
        data.write_bytes(before)


def test_a_folder_by_default_is_named_by_file_model_and_seed(tmp_path, monkeypatch):
    asked = []

    def stop(path, config, *, resume):
        asked.append((Path(path), config["evaluate"], resume))
        raise ValueError("stop here")

    monkeypatch.setattr(train, "Workdir", stop)
    with pytest.raises(ValueError, match="stop here"):
        prediction.call(monkeypatch, train, f"--data={save(tmp_path / 'my fields.npz')}", "--model=ctfno_semigroup",
                        "--seed=3", "--resume", "--evaluate=validation")  # fmt: skip
    assert asked == [(Path("runs/train/my fields/ctfno_semigroup/seed3"), "validation", True)]


# --- settings by shape ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "modes", "width"),
    [((20,), [5], 64), ((256,), [32], 64), ((16, 100), [4, 16], 32), ((8, 12, 64), [2, 3, 8], 16)],
)
def test_modes_and_width_follow_the_grid(grid, modes, width):
    some = trajectories(10, *grid, channels=2)
    chosen = own_data.settings(some, "ctfno", periodic=False)
    assert (chosen["modes"], chosen["width"], chosen["out_channels"]) == (modes, width, 2)
    assert chosen["time_scale"] == pytest.approx(50 / 2.5)


def test_fields_that_are_not_periodic_get_coordinates_and_padding():
    some = trajectories(10, 16)
    for periodic, expected in ((True, (False, 0.0)), (False, (True, 0.125))):
        chosen = own_data.settings(some, "ctfno", periodic=periodic)
        assert (chosen["coordinates"], chosen["padding"]) == expected


def test_composed_steps_are_trained_on_windows_where_times_are_even():
    even = own_data.settings(trajectories(10, 16), "ctfno_semigroup", periodic=True)
    assert (even["step_size"], even["num_steps"], even["window"]) == (0.5, 5, 4)
    assert even["shared_normalization"]
    uneven = own_data.settings(trajectories(10, 16, times=TIMES**2), "ctfno_semigroup", periodic=True)
    assert "window" not in uneven
    own = own_data.settings(trajectories(10, 16, times=np.tile(TIMES, (10, 1))), "ctfno_semigroup", periodic=True)
    assert "window" not in own


@pytest.mark.parametrize(
    ("model", "grid", "times"),
    [
        ("ctfno", (12, 9), TIMES),
        ("ctfno", (4, 5, 6), TIMES[:1]),
        pytest.param("ctfno_semigroup", (10,), TIMES, marks=pytest.mark.slow),
        ("ctfno_semigroup", (10,), np.tile(TIMES**2, (10, 1))),
    ],
)
def test_what_the_rule_chooses_can_be_trained(model, grid, times):
    """The task checks network, data and settings against each other when it is made."""
    some = trajectories(10, *grid, times=times)
    config = own_data.config("some.npz", some, model, periodic=False, overrides={"width": 4, "time_width": 4})
    task = own_data.task(config, some)
    assert len(task.data.train) == 8
    assert config.train.steps == 2000


def test_settings_given_win_and_lengths_follow():
    some = trajectories(30, 16)
    given = {"steps": 30, "modes": [2], "num_train": 5}
    config = own_data.config("some.npz", some, "ctfno", periodic=True, preset="quick", overrides=given)
    assert (config.train.steps, config.train.steps_per_call, config.train.eval_every) == (30, 1, 1)
    assert config.network.network_fields["modes"] == [2]
    assert (config.data.num_train, config.settings["batch_size"]) == (5, 5)
    assert own_data.config("some.npz", some, "ctfno", periodic=True, preset="quick").train.steps == 200


# --- the split ------------------------------------------------------------------------------------------------------


def split_of(num: int, **overrides):
    """Indices of the trajectories in training, validation and test set."""
    u0 = np.broadcast_to(np.arange(num, dtype=np.float32)[:, None, None], (num, 16, 1))
    some = Trajectories(u0, TIMES, np.repeat(u0[:, None], len(TIMES), axis=1))
    data = own_data.dataset(own_data.config("some.npz", some, "ctfno", periodic=True, overrides=overrides), some)
    return [set(part.u0[:, 0, 0].astype(int)) for part in (data.train, data.validation, data.test)]


def test_a_tenth_is_for_validation_and_another_for_the_test():
    train_set, validation, test = split_of(43)
    assert (len(train_set), len(validation), len(test)) == (35, 4, 4)
    assert train_set | validation | test == set(range(43))
    assert [len(part) for part in split_of(10)] == [8, 1, 1]


def test_the_split_is_drawn_by_the_seed_of_the_data():
    assert split_of(43) == split_of(43)
    assert split_of(43, data_seed=0)[2] != split_of(43)[2]
    fewer = split_of(43, num_train=7)
    assert len(fewer[0]) == 7
    assert fewer[1:] == split_of(43)[1:]


# --- mistakes -------------------------------------------------------------------------------------------------------

SOME = trajectories(20, 16)


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({"u": None}, [], r"mine\.npz has no array u; it has u0, times"),
        ({"u": SOME.u[:, :3]}, [], r"u must have shape \(20, 10, 16, channels\) .* u \(20, 3, 16, 1\)"),
        ({"u0": np.where(np.arange(16)[:, None] == 3, np.nan, SOME.u0)}, [], "u0 holds 20 values that are NaN"),
        ({"times": TIMES - 1}, [], r"times must not be negative, got -0\.75 at \(0,\)"),
        ({"u0": SOME.u0.astype(object)}, [], "u0 cannot be read: it holds Python objects"),
        ({"times": np.zeros(10)}, [], "all times are zero; add query times after the initial states"),
        ({"u0": SOME.u0[:, :3], "u": SOME.u[:, :, :3]}, [], r"the grid \(3,\) is too coarse: 4 points per axis"),
        ({}, ["--modes=40"], r"modes \(40,\) do not fit a grid of \(18,\) points"),
        ({}, ["--num_sensors=8"], "--num_sensors is no setting of network ctfno on fields; remove it"),
        (
            {},
            ["--num_test=9", "--num_train=12"],
            r"add up to more than the 20 trajectories of mine\.npz, got \(12, 2, 9\)",
        ),
        ({}, ["--decay_steps=10"], "schedule one_cycle does not read decay_steps; remove --decay_steps"),
        ({}, ["--translations"], "mine does not have the symmetry of translations; remove it"),
        ({}, ["--steps=0"], "steps must be a whole number of at least 1, got 0"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_folder(tmp_path, monkeypatch, changes, arguments, message):
    data = save(tmp_path / "mine.npz", **changes)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(program.USER_ERRORS, match=message) as caught:
        prediction.call(monkeypatch, train, f"--data={data}", *arguments)
    assert "\n" not in program.one_line(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npz"]


def test_another_file_in_the_same_folder_is_refused(finished, tmp_path, monkeypatch):
    """Also if it has the name that the first one had."""
    data, workdir, _ = finished
    arguments = ["--periodic", *SMALL, f"--workdir={workdir}"]
    with pytest.raises(ValueError, match=r"belongs to another config \(dataset is 'mine' there and 'other' here"):
        prediction.call(monkeypatch, train, f"--data={save(tmp_path / 'other.npz')}", *arguments)
    before = data.read_bytes()
    try:
        save(data, u=2 * SOME.u)
        with pytest.raises(ValueError, match=r"belongs to another config \(arrays\.u\.hash is"):
            prediction.call(monkeypatch, train, f"--data={data}", *arguments)
    finally:
        data.write_bytes(before)


def run_program(*arguments: str, folder: Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "experiments.train", *arguments]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300)


def test_a_mistake_ends_the_program_with_one_line(tmp_path):
    done = run_program("--data=nowhere.npz", folder=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: nowhere.npz: there is no such file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_help_lists_the_flags_and_the_settings(tmp_path):
    done = run_program("--help", "--model=ctfno_semigroup", folder=tmp_path)
    assert done.returncode == 0
    for name in ("--data", "--periodic", "--model", "--workdir", "--resume", "data_seed", "modes", "step_size"):
        assert name in done.stdout
    assert "num_sensors" not in done.stdout
