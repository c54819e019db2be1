"""The folder of a run: who may write in it, what it keeps, and what damage does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ctfno_jax.config import ConfigError
from ctfno_jax.training import loop
from ctfno_jax.training.workdir import TensorBoardHook, Workdir, read_json, versions

CONFIG = {"seed": 3, "train": {"steps": 12, "sizes": [4, 2]}, "note": None}


def _folder(path, *, config=True, checkpoints=(), result=None):
    """A folder as a run leaves it."""
    path.mkdir()
    if config:
        (path / "config.json").write_text(json.dumps(CONFIG))
    for step in checkpoints:
        (path / "checkpoints" / str(step)).mkdir(parents=True)
    if result is not None:
        (path / "result.json").write_text(json.dumps(result))
    return path


def _open(path, config=CONFIG, **options):
    with Workdir(path, config, **options) as folder:
        return folder.result


# --- who may write ------------------------------------------------------------------------------------------------


def test_a_new_folder_is_made_with_its_parents_and_removed_if_nothing_was_written(tmp_path):
    with Workdir(tmp_path / "a" / "b", CONFIG) as folder:
        assert folder.path.is_dir()
        assert folder.result is None
        folder.checkpoints.mkdir()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_stays(tmp_path):
    (tmp_path / "mine").mkdir()
    _open(tmp_path / "mine")
    assert list((tmp_path / "mine").iterdir()) == []


def test_what_was_written_stays_without_the_lock(tmp_path):
    with Workdir(tmp_path / "run", CONFIG) as folder:
        folder.begin(0)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.json"]
    assert json.loads((tmp_path / "run" / "config.json").read_text()) == CONFIG


def test_a_second_run_in_the_same_folder_is_refused_while_the_first_is_open(tmp_path):
    with Workdir(tmp_path / "run", CONFIG):
        with pytest.raises(
            ConfigError, match=r"another run is writing in .*run; wait for it, or choose another workdir"
        ):
            _open(tmp_path / "run")
        code = (
            "from ctfno_jax.training.workdir import Workdir\n"
            f"with Workdir({str(tmp_path / 'run')!r}, {CONFIG!r}): print('open')"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True
        )
        assert done.returncode == 1
        assert "another run is writing in" in done.stderr
        assert (tmp_path / "run").is_dir()
    assert _open(tmp_path / "run") is None


def test_a_process_that_was_killed_does_not_block_its_folder(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").write_text("")  # the system has released the lock, the file is left
    assert _open(tmp_path / "run") is None


# --- whose folder it is -------------------------------------------------------------------------------------------


def test_an_unfinished_run_is_resumed_only_on_request(tmp_path):
    path = _folder(tmp_path / "run", checkpoints=[4])
    with pytest.raises(ConfigError, match="holds an unfinished run; resume it, or choose another workdir"):
        _open(path)
    assert _open(path, resume=True) is None


def test_a_finished_run_brings_its_result(tmp_path):
    path = _folder(tmp_path / "run", checkpoints=[12], result={"metrics": {"rmse": 0.5}})
    assert _open(path) == _open(path, resume=True) == {"metrics": {"rmse": 0.5}}


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("kept", [{"checkpoints": [4]}, {"result": {"a": 1}}])
def test_a_folder_of_another_config_is_refused_with_the_differences(tmp_path, kept, resume):
    path = _folder(tmp_path / "run", **kept)
    other = {"seed": 4, "train": {"steps": 12, "sizes": [4], "more": True}, "note": None, "evaluate": "test"}
    with pytest.raises(ConfigError) as caught:
        _open(path, other, resume=resume)
    assert str(caught.value) == (
        f"{path} belongs to another config (seed is 3 there and 4 here, train.sizes is [4, 2] there and [4] here, "
        "train.more is None there and True here, and 1 more); choose another workdir"
    )


def test_tuples_and_lists_in_a_config_are_the_same_run(tmp_path):
    path = _folder(tmp_path / "run", result={"a": 1})
    assert _open(path, {**CONFIG, "train": {"steps": 12, "sizes": (4, 2)}}) == {"a": 1}


def test_a_run_that_ended_before_its_first_checkpoint_does_not_block_its_folder(tmp_path):
    path = _folder(tmp_path / "run", checkpoints=())
    (path / "checkpoints").mkdir()
    (path / "checkpoints" / "4.orbax-checkpoint-tmp").mkdir()
    with Workdir(path, {"seed": 5}) as folder:
        folder.begin(0)
    assert json.loads((path / "config.json").read_text()) == {"seed": 5}


@pytest.mark.parametrize("kept", [{"checkpoints": [4]}, {"result": {"a": 1}}])
def test_a_run_without_its_config_is_not_touched(tmp_path, kept):
    path = _folder(tmp_path / "run", config=False, **kept)
    with pytest.raises(ConfigError, match=r"holds a run without a config\.json; choose another workdir"):
        _open(path, resume=True)


# --- damage -------------------------------------------------------------------------------------------------------

DAMAGED = [b"", b"{", b"[1]", b"7", b"\xff\xfe\x00"]


@pytest.mark.parametrize("content", DAMAGED)
@pytest.mark.parametrize(
    ("name", "remedy"),
    [("config.json", "choose another workdir"), ("result.json", "delete it and resume the run to write it again")],
)
def test_a_damaged_file_is_named_with_the_remedy(tmp_path, name, remedy, content):
    path = _folder(tmp_path / "run", checkpoints=[4], result={"a": 1})
    (path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"{name} is damaged \(.*\); {remedy}") as caught:
        _open(path)
    assert "\n" not in str(caught.value)
    assert (path / name).read_bytes() == content


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"a\.json is damaged .*No such file.*; do this"):
        read_json(tmp_path / "a.json", "do this")


def test_damaged_lines_of_metrics_are_dropped_with_a_warning(tmp_path, capsys):
    path = tmp_path / "run" / "metrics.jsonl"
    with Workdir(tmp_path / "run", CONFIG) as folder:
        path.write_bytes(
            b'{"step": 2, "loss": 1.0}\n[1, 2]\n7\nnull\n"text"\n{"loss": 1}\n{"step": "x"}\n\xff\xfe\n{"step": 4}\n'
            b'{"step": 6}\n{"step": 8, "lo'
        )
        folder.begin(4)
    assert path.read_text() == '{"step": 2, "loss": 1.0}\n{"step": 4}\n'
    warning = f"warning: {path} has 7 damaged line(s), which are dropped; the run is not affected\n"
    assert capsys.readouterr().out == warning


def test_what_an_interruption_leaves_is_no_damage(tmp_path, capsys):
    path = tmp_path / "run" / "metrics.jsonl"
    with Workdir(tmp_path / "run", CONFIG) as folder:
        path.write_text('{"step": 2}\n{"step": 4}\n{"step": 6, "lo')
        folder.begin(2)
    assert path.read_text() == '{"step": 2}\n'
    assert capsys.readouterr().out == ""


# --- hooks --------------------------------------------------------------------------------------------------------


class _Store:
    def __init__(self):
        self.saved = []

    def save(self, step, state, description, *, selection):
        self.saved.append((step, state, description, selection))


def _report(step, metrics=None, stopping=False):
    return loop.Report(step, 12, 0.5, 10.0, 1.23456, 2.0, metrics, stopping)


def test_every_call_is_logged_and_evaluated_or_last_states_are_saved(tmp_path):
    store = _Store()
    with Workdir(tmp_path / "run", CONFIG) as folder:
        folder.begin(0)
        hooks = folder.hooks(store, {"note": "x"}, "error")
        for report in (_report(2), _report(4, {"error": 0.25, "other": 9.0}), _report(6, stopping=True)):
            for hook in hooks:
                hook(f"state {report.step}", report)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines == [
        {"step": 2, "loss": 0.5, "seconds": 1.235},
        {"step": 4, "loss": 0.5, "seconds": 1.235, "error": 0.25, "other": 9.0},
        {"step": 6, "loss": 0.5, "seconds": 1.235},
    ]
    assert folder.validation_curve("error") == {"step": [4], "error": [0.25]}
    spent = {"train_seconds": 1.23456, "cpu_seconds": 2.0, "note": "x"}
    assert store.saved == [
        (4, "state 4", {**spent, "metrics": {"error": 0.25, "other": 9.0}}, 0.25),
        (6, "state 6", {**spent, "metrics": {}}, float("inf")),
    ]


def test_tensorboard_events_are_written(tmp_path):
    with TensorBoardHook(tmp_path) as hook:
        hook(None, _report(4, {"error": 0.25}))
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"error" in events.read_bytes()


def test_tensorboard_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[tensorboard\]'"):
        TensorBoardHook(tmp_path)


def test_versions_name_what_numbers_depend_on():
    assert {"ctfno-jax", "jax", "flax", "optax", "numpy", "python"} <= set(versions())
