"""Whole trainings of a linear regression: devices, seeds, folders, interruptions and damage."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers import compiled
from helpers.linear_task import OPTIMIZER, TRAIN, LinearTask

from ctfno_jax.config import ConfigError, OptimizerConfig, TrainConfig
from ctfno_jax.training import checkpoint, loop, progress, run
from ctfno_jax.training.workdir import Workdir

ROOT = Path(__file__).parents[2]
CONFIG = {"task": "linear"}

# After a failed read, what is left of it reports to an event loop that is closed by then; nobody waits for it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    """The runs of this file compile the same programs again and again."""
    with compiled.kept_in(tmp_path_factory.mktemp("compiled")):
        yield


def _train(task=None, path=None, *, resume=False, **options):
    options = {"optimizer": OPTIMIZER, "config": TRAIN, "show_progress": False, **options}
    task = LinearTask() if task is None else task
    if path is None:
        (trained,) = run.train(task, **options)
        return trained
    with Workdir(path, CONFIG, resume=resume) as folder:
        (trained,) = run.train(task, workdirs=[folder], **options)
    return trained


@pytest.fixture
def on_devices(monkeypatch):
    """Restricts a run to the first few devices."""
    every = jax.devices()
    return lambda count: monkeypatch.setattr(jax, "devices", lambda: every[:count])


@pytest.fixture(scope="module")
def alone():
    """The run on one device."""
    with pytest.MonkeyPatch.context() as patch:
        every = jax.devices()
        patch.setattr(jax, "devices", lambda: every[:1])
        return _train()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The run on all devices in a folder, with the states that it evaluated."""
    path, task = tmp_path_factory.mktemp("runs") / "run", LinearTask()
    return path, _train(task, path), task.evaluations


def _last(path):
    with checkpoint.CheckpointStore(path / "checkpoints", read_only=True) as store:
        return store.restore_last()


def _log(path):
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def _assert_bitwise_equal(ours, theirs):
    assert set(ours) == set(theirs)
    for name, array in theirs.items():
        assert np.asarray(ours[name]).tobytes() == np.asarray(array).tobytes(), name


def _assert_same_end(path, finished):
    """States, log and best state of a run are those of the uninterrupted one."""
    ours, theirs = _last(path), _last(finished[0])
    assert ours.step == theirs.step == 12
    _assert_bitwise_equal(ours.arrays, theirs.arrays)
    assert _log(path) == _log(finished[0])


def _assert_same_trained(ours, theirs):
    _assert_bitwise_equal(ours.params["params"], theirs.params["params"])
    assert (ours.metrics, ours.best_step, ours.step) == (theirs.metrics, theirs.best_step, theirs.step)


# --- one run ------------------------------------------------------------------------------------------------------


def test_the_best_state_is_that_with_the_least_validation_error(finished):
    path, trained, evaluations = finished
    _, *later = evaluations  # one before the first step
    assert len(later) == 3
    task = LinearTask()
    errors = [task.evaluate({"params": p}, "validation")[task.metric] for p in later]
    best = int(np.argmin(errors))
    assert (trained.best_step, trained.step) == (4 * (best + 1), 12)
    assert trained.metrics == {task.metric: errors[best]}
    _assert_bitwise_equal(trained.params["params"], later[best])
    # Averaged parameters are evaluated, others are trained.
    state = _last(path)
    assert not np.array_equal(state.arrays["params/params/w"], state.arrays["average/params/w"])
    np.testing.assert_array_equal(state.arrays["average/params/w"], later[-1]["w"])


def test_a_training_learns_the_regression():
    task = LinearTask()
    optimizer = OptimizerConfig(optimizer="sgd", learning_rate=0.3, schedule="constant", clip_norm=0.0)
    trained = _train(task, optimizer=optimizer, config=TrainConfig(60, 20, 20))
    np.testing.assert_allclose(trained.params["params"]["w"], [1, 2, 3], atol=1e-3)
    assert trained.params["params"]["b"] == pytest.approx(0.5, abs=1e-3)


def test_without_a_folder_nothing_is_written_and_the_best_is_the_same(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained = _train()
    assert list(tmp_path.iterdir()) == []
    _assert_same_trained(trained, finished[1])


@pytest.mark.parametrize("errors", [[2.0, 1.0, 1.0], [5.0, 5.0, 5.0]])
def test_memory_and_folder_agree_on_the_best_also_among_equals(tmp_path, errors):
    class Scripted(LinearTask):
        def evaluate(self, params, split):
            super().evaluate(params, split)
            return {self.metric: [9.0, *errors][len(self.evaluations) - 1]}

    in_memory, in_folder = _train(Scripted()), _train(Scripted(), tmp_path / "run")
    _assert_same_trained(in_memory, in_folder)
    assert in_memory.best_step == 4 * (max(i for i, e in enumerate(errors) if e == min(errors)) + 1)


# --- devices and seeds --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "parallel"), [(2, "shard_map"), (8, "shard_map"), (1, "pmap"), (8, "pmap")])
def test_a_run_over_several_devices_is_the_run_on_one(alone, on_devices, count, parallel):
    on_devices(count)
    trained = _train(parallel=parallel)
    assert trained.best_step == alone.best_step
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), trained.params, alone.params)


@pytest.mark.slow
def test_seeds_at_once_are_the_seeds_alone(tmp_path, on_devices):
    """In folders of their own, with a loss that draws random numbers."""
    on_devices(1)
    seeds, paths = (3, 4, 5), [tmp_path / name for name in "abc"]
    folders = [Workdir(path, {**CONFIG, "seed": seed}) for path, seed in zip(paths, seeds, strict=True)]
    with folders[0], folders[1], folders[2]:
        together = run.train(
            LinearTask(noise=0.5), optimizer=OPTIMIZER, config=TRAIN, seeds=seeds, workdirs=folders, show_progress=False
        )
    for seed, path, found in zip(seeds, paths, together, strict=True):
        single = _train(LinearTask(noise=0.5), seeds=[seed])
        assert found.best_step == single.best_step
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found.params, single.params)
        assert [line["step"] for line in _log(path)] == [2, 4, 6, 8, 10, 12]
    assert not np.allclose(together[0].params["params"]["w"], together[1].params["params"]["w"], rtol=1e-2)


def test_what_cannot_be_run_is_refused_and_leaves_no_folder(tmp_path, on_devices):
    class Mistaken(LinearTask):
        def evaluate(self, params, split):
            raise ValueError("no validation set")

    on_devices(3)
    with pytest.raises(ConfigError, match="batch_size=8 cannot be divided among 3 devices"):
        _train(path=tmp_path / "a" / "b")
    on_devices(1)
    with pytest.raises(ValueError, match="no validation set"):
        _train(Mistaken(), tmp_path / "a" / "b")
    with pytest.raises(ValueError, match="unknown optimizer 'lion'"):
        _train(path=tmp_path / "a" / "b", optimizer=OptimizerConfig(optimizer="lion"))
    with pytest.raises(ConfigError, match="parallel=pmap needs one seed at a time"):
        run.train(LinearTask(), optimizer=OPTIMIZER, config=TRAIN, seeds=(0, 1), parallel="pmap")
    with pytest.raises(ConfigError, match=r"1 seed\(s\) need a workdir each, or none and no TensorBoard; got 0"):
        _train(tensorboard=True)
    assert list(tmp_path.iterdir()) == []


# --- several shapes -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_data_of_two_shapes_are_trained_on_and_resumed_bitwise(tmp_path, monkeypatch):
    whole = _train(LinearTask(lengths=(5, 9)), tmp_path / "whole")
    assert not np.array_equal(whole.params["params"]["w"], _train().params["params"]["w"])
    with monkeypatch.context() as patch:
        _stop_after(patch, 4)
        with pytest.raises(loop.Interrupted):
            _train(LinearTask(lengths=(5, 9)), tmp_path / "cut", show_progress=True)
    _assert_same_trained(_train(LinearTask(lengths=(5, 9)), tmp_path / "cut", resume=True), whole)
    _assert_bitwise_equal(_last(tmp_path / "cut").arrays, _last(tmp_path / "whole").arrays)


# --- interruptions ------------------------------------------------------------------------------------------------


def _stop_after(patch, step, number=signal.SIGTERM):
    """A signal arrives while the hooks of that step run; the call after it is the last."""

    class Line(progress.ProgressLine):
        def __call__(self, state, report):
            if report.step == step:
                os.kill(os.getpid(), number) if number else (_ for _ in ()).throw(KeyboardInterrupt)

    patch.setattr(progress, "ProgressLine", Line)


@pytest.mark.parametrize(("step", "saved"), [(2, 4), (4, 6)])
def test_a_run_that_was_stopped_ends_bitwise_as_if_it_had_not_been(
    finished, tmp_path, monkeypatch, capsys, step, saved
):
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        _stop_after(patch, step)
        message = rf"stopped at step {saved} of 12; saved in {re.escape(str(path))}; continue with resume \(--resume\)"
        with pytest.raises(loop.Interrupted, match=message):
            _train(path=path, show_progress=True)
    with checkpoint.CheckpointStore(path / "checkpoints", read_only=True) as store:
        # Step 6 was not evaluated, so it is saved but not the best.
        assert (store.restore_last().step, store.restore_best().step) == (saved, 4)
    with pytest.raises(ConfigError, match="holds an unfinished run; resume it"):
        _train(path=path)
    trained = _train(path=path, resume=True, show_progress=True)
    assert f"resumed at step {saved}\n" in capsys.readouterr().out
    _assert_same_trained(trained, finished[1])
    _assert_same_end(path, finished)


def test_a_run_that_broke_off_goes_on_from_its_last_checkpoint(finished, tmp_path, monkeypatch):
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        _stop_after(patch, 6, number=None)
        with pytest.raises(KeyboardInterrupt):
            _train(path=path, show_progress=True)
    assert _last(path).step == 4
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"step": 8, "lo')  # as an interrupted write leaves it
    _assert_same_trained(_train(path=path, resume=True), finished[1])
    _assert_same_end(path, finished)


def test_a_training_that_is_complete_but_for_its_result_is_not_repeated(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path / "run")
    task = LinearTask()
    _assert_same_trained(_train(task, tmp_path / "run", resume=True), finished[1])
    assert task.evaluations == []


def test_a_run_that_stops_before_any_evaluation_has_no_best_yet(tmp_path, monkeypatch):
    _stop_after(monkeypatch, 2)
    with pytest.raises(loop.Interrupted, match="stopped at step 4 of 12"):
        _train(path=tmp_path / "run", config=dataclasses.replace(TRAIN, eval_every=12), show_progress=True)
    with checkpoint.CheckpointStore(tmp_path / "run" / "checkpoints", read_only=True) as store:
        assert store.restore_last().step == 4
        assert store.restore_best() is None


def test_a_run_without_a_folder_says_that_nothing_was_saved(monkeypatch):
    _stop_after(monkeypatch, 2)
    with pytest.raises(loop.Interrupted, match="stopped at step 4 of 12; nothing was saved"):
        _train(show_progress=True)


def test_runs_at_different_steps_are_not_resumed_together(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path / "a")
    with (
        Workdir(tmp_path / "a", CONFIG, resume=True) as a,
        Workdir(tmp_path / "b", CONFIG, resume=True) as b,
        pytest.raises(ConfigError, match="the runs stand at different steps; resume each of them alone, with one seed"),
    ):
        run.train(LinearTask(), optimizer=OPTIMIZER, config=TRAIN, seeds=(0, 1), workdirs=[a, b])
    assert not (tmp_path / "b").exists()


# --- divergence ---------------------------------------------------------------------------------------------------


class Diverging(LinearTask):
    """A loss that overflows after some steps."""

    def __init__(self, steps):
        super().__init__()
        self._steps = steps

    def sample(self, arrays, key, step, shard, num_shards):
        batch = super().sample(arrays, key, step, shard, num_shards)
        return batch._replace(y=jax.numpy.where(step >= self._steps, np.inf, batch.y))


def test_a_run_that_diverges_before_its_first_checkpoint_does_not_block_its_folder(tmp_path, finished):
    path = tmp_path / "run"
    with pytest.raises(loop.TrainingDiverged, match=r"the loss became inf at step 3; .*try a smaller learning_rate"):
        _train(Diverging(2), path)
    assert sorted(entry.name for entry in path.iterdir()) == ["config.json", "metrics.jsonl"]
    _assert_same_trained(_train(path=path), finished[1])
    assert _log(path) == _log(finished[0])


def test_a_run_that_diverges_later_keeps_its_checkpoint(tmp_path):
    with pytest.raises(loop.TrainingDiverged, match="the loss became inf at step 6"):
        _train(Diverging(5), tmp_path / "run")
    assert _last(tmp_path / "run").step == 4
    assert [line["step"] for line in _log(tmp_path / "run")] == [2, 4]


# --- damage -------------------------------------------------------------------------------------------------------


def _flip_a_byte(folder):
    path = max((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(bytes(content))


def test_a_damaged_last_checkpoint_costs_only_the_steps_since_the_one_before(finished, tmp_path, capsys):
    shutil.copytree(finished[0], tmp_path / "run")
    _flip_a_byte(tmp_path / "run" / "checkpoints" / "12" / "state")
    trained = _train(path=tmp_path / "run", resume=True, show_progress=True)
    text = capsys.readouterr().out
    assert re.search(r"warning: checkpoint 12 .*; using step 8 instead\n", text)
    assert "resumed at step 8\n" in text
    _assert_same_trained(trained, finished[1])
    _assert_same_end(tmp_path / "run", finished)


def test_if_all_checkpoints_are_damaged_the_run_is_not_started_anew(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path / "run")
    for folder in (tmp_path / "run" / "checkpoints").iterdir():
        _flip_a_byte(folder / "state")
    with pytest.raises(
        checkpoint.CheckpointError, match=r"no intact checkpoint in .*checkpoints: .*another workdir"
    ) as e:
        _train(path=tmp_path / "run", resume=True)
    assert "\n" not in str(e.value)


# --- in a process of its own --------------------------------------------------------------------------------------


def _program(*arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    command = [sys.executable, "-m", "helpers.linear_task", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip


def test_sigterm_saves_the_run_and_a_second_start_ends_the_same(finished, tmp_path):
    path = tmp_path / "run"
    process = _program(f"workdir={path}", "pause=0.5")
    while not (path / "metrics.jsonl").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    lines = [line for line in errors.splitlines() if line]
    assert lines[0] == "stopping after the current steps; a second signal stops without saving"
    assert re.fullmatch(
        rf"stopped at step (2|4|6|8|10) of 12; saved in {path}; continue with resume \(--resume\)", lines[1]
    )
    assert len(lines) == 2
    process = _program(f"workdir={path}", "resume")
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    assert f"best {finished[1].best_step} {finished[1].metrics}" in output
    _assert_same_end(path, finished)


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = os.geteuid() == 0 and shutil.which("mount")
    if not mounted or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", folder]).returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_what_was_saved_can_be_read(small_disk):
    process = _program(f"workdir={small_disk / 'run'}", "size=5000")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    (line,) = errors.splitlines()
    assert re.match(rf"error: cannot save step \d+ in {small_disk}/run/checkpoints \(.*No space left on device", line)
    assert not list(small_disk.rglob("*tmp*"))
    last = _last(small_disk / "run")
    assert last is None or last.step in (4, 8)
