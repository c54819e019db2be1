"""Checkpoints through Orbax, with a checksum of every array.

Orbax notices a truncated file but not a flipped byte. A CRC of each array is kept in the description and compared when
the arrays are read; a damaged checkpoint is skipped for the next one. Arrays are stored flat, by name, as plain NumPy:
they can be read back on any number of devices, and by programs that know nothing of the training state.
"""

import contextlib
import dataclasses
import json
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import logging


class CheckpointError(RuntimeError):
    """No usable checkpoint, or one that does not fit."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One checkpoint as read from disk: arrays by name, and the JSON that was saved with them."""

    step: int
    arrays: dict[str, np.ndarray]
    description: dict[str, Any]


def _import_orbax():
    from orbax.checkpoint import v1 as ocp  # one second to import: only where it is used

    return ocp


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    """Errors arrive as exceptions; Orbax also logs each of them in several threads, with tracebacks."""
    before = logging.get_verbosity()
    logging.set_verbosity(logging.FATAL)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """Leaves by slash-separated path, as NumPy arrays."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def unflatten(arrays: Mapping[str, np.ndarray], like: Any, *, any_dtype: bool = False) -> Any:
    """A tree like ``like`` with leaves from ``arrays``; CheckpointError if a name, shape or type differs.

    With ``any_dtype`` the types of ``arrays`` are kept: under ``jax_enable_x64`` a fresh model has wider ones.
    """
    paths, treedef = jax.tree_util.tree_flatten_with_path(like)
    expected = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in paths}
    missing, unknown = sorted(set(expected) - set(arrays)), sorted(set(arrays) - set(expected))
    if missing or unknown:
        raise CheckpointError(
            f"the checkpoint does not fit the model: missing {missing[:3] or 'nothing'}, "
            f"unknown {unknown[:3] or 'nothing'}"
        )
    for name, leaf in expected.items():
        found = arrays[name]
        if found.shape != leaf.shape or (found.dtype != leaf.dtype and not any_dtype):
            raise CheckpointError(
                f"the checkpoint does not fit the model: {name} should be {leaf.dtype}{list(leaf.shape)}, "
                f"got {found.dtype}{list(found.shape)}"
            )
    return jax.tree_util.tree_unflatten(treedef, [arrays[name] for name in expected])


def _first_line(error: Exception) -> str:
    if "No space left on device" in str(error):
        return "No space left on device"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__


def _checksums(arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    return {name: zlib.crc32(np.ascontiguousarray(value).tobytes()) for name, value in arrays.items()}


class CheckpointStore:
    """The checkpoints of one run: the latest few, and the best one.

    Use as a context manager. A checkpoint is complete or absent, also if the process is killed. A store that is only
    read leaves alone what another process may be writing there.
    """

    def __init__(self, directory: str | Path, *, keep_latest: int = 2, read_only: bool = False) -> None:
        ocp = _import_orbax()
        self._directory = Path(directory).resolve()
        self._keep_latest = keep_latest
        self._selections: dict[int, float | None] = {}
        self._failed = False
        keep: Any = self  # a policy is any object with the method should_preserve
        self._checkpointer = ocp.training.Checkpointer(
            str(self._directory), preservation_policy=keep, cleanup_tmp_directories=not read_only
        )

    def __enter__(self) -> "CheckpointStore":
        return self

    def __exit__(self, *_: Any) -> None:
        try:
            with _without_logs():
                self._checkpointer.close()
        except Exception:
            if not self._failed:  # a failed save, which has been reported, is raised again here
                raise

    def save(self, step: int, state: Any, description: Mapping[str, Any], *, selection: float) -> None:
        """Saves a state with its description.

        Args:
          step: updates made.
          state: tree of arrays.
          description: JSON values.
          selection: the state with the least value is the best; infinite for a state that was not evaluated, which is
            never the best.
        """
        arrays = flatten(state)
        text = json.dumps({**description, "selection": selection, "checksums": _checksums(arrays)}).encode()
        packed = {"bytes": np.frombuffer(text, np.uint8), "checksum": np.asarray(zlib.crc32(text), np.uint32)}
        items = {"state": arrays, "description": packed}
        self._selections[step] = selection
        try:
            with _without_logs():
                # Without force, Orbax skips steps that are not later than all others, as after a fall-back.
                saved = self._checkpointer.save_checkpointables(step, items, overwrite=True, force=True)
        except Exception as error:  # a full disk arrives as one of many types, with pages of text
            self._failed = True
            for unfinished in self._directory.glob("*.orbax-checkpoint-tmp*"):
                shutil.rmtree(unfinished, ignore_errors=True)
            raise CheckpointError(
                f"cannot save step {step} in {self._directory} ({_first_line(error)}); earlier checkpoints are kept, "
                "from which the run can be resumed"
            ) from error
        if not saved:
            raise CheckpointError(
                f"step {step} was not saved in {self._directory}; resume from the earlier checkpoints"
            )

    def steps(self) -> list[int]:
        """Steps on disk, oldest first."""
        return sorted(checkpoint.step for checkpoint in self._checkpointer.checkpoints)

    def restore_last(self) -> Checkpoint | None:
        """The latest checkpoint that is intact, or None if there is none at all."""
        return self._first_intact(self.steps()[::-1])

    def restore_best(self) -> Checkpoint | None:
        """The intact checkpoint with the least selection value, the latest of equals; None without an evaluated one."""
        return self._first_intact(self._best_first(self.steps()))

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        """Checkpoints to keep after a save; called by Orbax."""
        del context
        steps = [checkpoint.step for checkpoint in checkpoints]
        kept = {*sorted(steps)[-self._keep_latest :], *self._best_first(steps)[:1]}
        return [step in kept for step in steps]

    def _best_first(self, steps: Sequence[int]) -> list[int]:
        """Evaluated steps, and at the end those that cannot be read, so that they are named if no other is left."""
        values = {step: self._selection(step) for step in steps}
        evaluated = [step for step, value in values.items() if value is None or np.isfinite(value)]
        return sorted(evaluated, key=lambda step: (values[step] is None, values[step] or 0.0, -step))

    def _selection(self, step: int) -> float | None:
        """The selection value that a checkpoint was saved with; None if it cannot be read."""
        if step not in self._selections:
            try:
                self._selections[step] = float(self._description(step)["selection"])
            except (CheckpointError, KeyError, TypeError, ValueError):
                self._selections[step] = None
        return self._selections[step]

    def _first_intact(self, steps: list[int]) -> Checkpoint | None:
        problems = []
        for step in steps:
            try:
                checkpoint = self._read(step)
            except CheckpointError as error:
                problems.append(str(error))
                continue
            for problem in problems:
                print(f"warning: {problem}; using step {step} instead", flush=True)
            return checkpoint
        if problems:
            raise CheckpointError(
                f"no intact checkpoint in {self._directory}: {'; '.join(problems)}; train again in another workdir"
            )
        return None

    def _read(self, step: int) -> Checkpoint:
        description = self._description(step)
        arrays = {name: np.asarray(value) for name, value in self._load(step, "state").items()}
        checksums = description["checksums"]
        damaged = [name for name, crc in _checksums(arrays).items() if checksums.get(name) != crc]
        if damaged or set(arrays) != set(checksums):
            raise CheckpointError(
                f"checkpoint {step} is damaged (checksum of {(damaged or ['its arrays'])[0]} differs)"
            )
        return Checkpoint(step, arrays, description)

    def _description(self, step: int) -> dict[str, Any]:
        """The JSON values that were saved with a state."""
        packed = self._load(step, "description")
        text = np.asarray(packed["bytes"]).tobytes()
        if zlib.crc32(text) != int(packed["checksum"]):
            raise CheckpointError(f"checkpoint {step} is damaged (checksum of its description differs)")
        return json.loads(text)

    def _load(self, step: int, item: str) -> dict[str, Any]:
        try:
            with _without_logs():
                return self._checkpointer.load_checkpointables(step, {item: None})[item]
        except Exception as error:  # Orbax and TensorStore raise many types, with pages of text
            raise CheckpointError(f"checkpoint {step} cannot be read ({_first_line(error)})") from error
