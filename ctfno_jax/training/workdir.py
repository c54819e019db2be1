"""The folder of a run: claimed by one process at a time, written so that an interrupted run can continue."""

import json
import math
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from filelock import BaseFileLock, FileLock, Timeout

from ctfno_jax import files
from ctfno_jax.config import ConfigError
from ctfno_jax.training import checkpoint, loop
from ctfno_jax.training import step as step_lib


class Workdir:
    """A folder with ``config.json``, ``metrics.jsonl``, ``checkpoints/``, ``figures/`` and ``result.json``.

    Use as a context manager: it holds a lock while it is open. A run that ends before it has written anything leaves
    no folder behind.

    Attributes:
      path: the folder.
      config: JSON values that describe the run; a folder belongs to one config.
      result: ``result.json`` if the run has finished, else None.
    """

    def __init__(self, path: str | Path, config: Mapping[str, Any], *, resume: bool = False) -> None:
        self.path = Path(path)
        self.config = json.loads(json.dumps(config))
        self.result: dict[str, Any] | None = None
        self._resume = resume
        # Folders to remove again if they stay empty, the innermost first.
        self._made = [p for p in (self.path, *self.path.parents) if not p.exists()]
        self._lock: BaseFileLock | None = None

    def __enter__(self) -> "Workdir":
        files.make_directory(self.path)
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise ConfigError(
                f"another run is writing in {self.path}; wait for it, or choose another workdir"
            ) from error
        self._lock = lock
        try:
            self._claim()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            # Removed while it is held: a process that has opened it in the meantime notices that it is gone.
            (self.path / ".lock").unlink(missing_ok=True)
            self._lock.release()
            self._lock = None
        for folder in (self.checkpoints, *self._made):
            try:
                folder.rmdir()
            except OSError:  # not empty, or not there
                continue

    def _claim(self) -> None:
        """Raises if the folder is not this run's to write in."""
        path, result, started = self.path / "config.json", self.path / "result.json", self.started
        if not (started or result.exists()):
            return
        if not path.exists():
            raise ConfigError(f"{self.path} holds a run without a config.json; choose another workdir")
        existing = read_json(path, "choose another workdir")
        if existing != self.config:
            raise ConfigError(
                f"{self.path} belongs to another config ({_difference(existing, self.config)}); choose another workdir"
            )
        if result.exists():
            self.result = read_json(result, "delete it and resume the run to write it again")
        elif not self._resume:
            raise ConfigError(f"{self.path} holds an unfinished run; resume it, or choose another workdir")

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def started(self) -> bool:
        """The folder holds a checkpoint; a run that diverged before its first one left none, and does not count."""
        return self.checkpoints.is_dir() and any(entry.name.isdigit() for entry in self.checkpoints.iterdir())

    def restore(self, store: checkpoint.CheckpointStore, state: step_lib.TrainState) -> tuple[Any, loop.Spent]:
        """The last intact state and the seconds spent on it; the given state if there is no checkpoint yet."""
        last = store.restore_last() if self._resume else None
        if last is None:
            return state, loop.Spent()
        spent = loop.Spent(last.description["train_seconds"], last.description["cpu_seconds"])
        return jax.tree.map(jnp.asarray, checkpoint.unflatten(last.arrays, state)), spent

    def begin(self, step: int) -> None:
        """Writes ``config.json``, and drops what ``metrics.jsonl`` says of later steps."""
        files.write_json(self.path / "config.json", self.config)
        path = self.path / "metrics.jsonl"
        damaged = files.truncate_json_lines(path, step)
        if damaged:
            print(
                f"warning: {path} has {damaged} damaged line(s), which are dropped; the run is not affected", flush=True
            )

    def validation_curve(self, metric: str) -> dict[str, list[float]]:
        """Steps of all evaluations so far, and the metric at each."""
        lines = [line for line in files.read_json_lines(self.path / "metrics.jsonl") if metric in line]
        return {name: [line[name] for line in lines] for name in ("step", metric)}

    def hooks(self, store: checkpoint.CheckpointStore, description: Mapping[str, Any], metric: str) -> list[loop.Hook]:
        """Hooks that write a line of metrics after every call and a checkpoint after every evaluation."""

        def write_metrics(state: step_lib.TrainState, report: loop.Report) -> None:
            del state
            values = {"step": report.step, "loss": report.loss, "seconds": round(report.train_seconds, 3)}
            files.append_json_line(self.path / "metrics.jsonl", {**values, **(report.metrics or {})})

        def save(state: step_lib.TrainState, report: loop.Report) -> None:
            if report.metrics is None and not report.stopping:
                return
            # A state that was not evaluated must not become the best: an uninterrupted run would not have saved it.
            selection = math.inf if report.metrics is None else report.metrics[metric]
            progress = {
                "metrics": report.metrics or {}, "train_seconds": report.train_seconds,
                "cpu_seconds": report.cpu_seconds,
            }  # fmt: skip
            store.save(report.step, state, {**description, **progress}, selection=selection)

        return [write_metrics, save]


class TensorBoardHook:
    """A hook that writes loss and validation errors as TensorBoard events; use as a context manager."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "TensorBoard events need the tensorboard extra: pip install -e '.[tensorboard]'"
            ) from error
        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def __enter__(self) -> "TensorBoardHook":
        return self

    def __exit__(self, *_: Any) -> None:
        self._writer.close()

    def __call__(self, state: step_lib.TrainState, report: loop.Report) -> None:
        del state
        for name, value in {"loss": report.loss, **(report.metrics or {})}.items():
            self._writer.add_scalar(name, value, report.step)
        self._writer.flush()


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """The JSON object in a file of a run; ConfigError that names the file and the remedy if it is damaged."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is damaged ({error}); {remedy}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is damaged (it holds no JSON object); {remedy}")
    return values


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that numbers depend on."""
    names = ("ctfno-jax", "jax", "flax", "optax", "orbax-checkpoint", "diffrax", "numpy")
    return {name: metadata.version(name) for name in names} | {"python": platform.python_version()}


def _difference(existing: dict[str, Any], config: dict[str, Any]) -> str:
    there, here = _leaves(existing), _leaves(config)
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    text = ", ".join(f"{name} is {there.get(name)!r} there and {here.get(name)!r} here" for name in names[:3])
    return text + (f", and {len(names) - 3} more" if len(names) > 3 else "")


def _leaves(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves = {}
    for name, value in values.items():
        if isinstance(value, dict):
            leaves.update(_leaves(value, f"{prefix}{name}."))
        else:
            leaves[prefix + name] = value
    return leaves
