"""Checkpoints through Orbax, with a checksum of every array.

Orbax notices a truncated file but not a flipped byte, so a CRC of each leaf is kept beside the arrays and compared
when they are read; a checkpoint that fails is passed over for the next one. Arrays are stored flat, by name, as plain
NumPy: they can be read back on any number of devices, and by tools that know nothing of the training state.
"""

import dataclasses
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

METRIC = "validation_rmse"


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


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """Leaves by slash-separated path, as NumPy arrays."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def unflatten(arrays: Mapping[str, np.ndarray], like: Any) -> Any:
    """A tree like ``like`` with leaves from ``arrays``; CheckpointError if a name, shape or type differs."""
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
        if found.shape != leaf.shape or found.dtype != leaf.dtype:
            raise CheckpointError(
                f"the checkpoint does not fit the model: {name} should be {leaf.dtype}{list(leaf.shape)}, "
                f"got {found.dtype}{list(found.shape)}"
            )
    return jax.tree_util.tree_unflatten(treedef, [arrays[name] for name in expected])


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__


def _checksums(arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    return {name: zlib.crc32(np.ascontiguousarray(value).tobytes()) for name, value in arrays.items()}


class CheckpointStore:
    """The checkpoints of one run: the latest few, and the best by validation error.

    Use as a context manager; every save is complete, or absent, whatever happens to the process. A store that is only
    read leaves alone what another process may be writing there.
    """

    def __init__(self, directory: str | Path, *, keep_latest: int = 2, read_only: bool = False) -> None:
        ocp = _import_orbax()
        policies = ocp.training.preservation_policies
        self._directory = Path(directory).resolve()
        best = policies.BestN(get_metric_fn=lambda metrics: metrics[METRIC], reverse=True, n=1)
        # Orbax declares its own policies with another element type than its checkpointer accepts.
        keep: Any = policies.AnyPreservationPolicy([policies.LatestN(keep_latest), best])
        self._checkpointer = ocp.training.Checkpointer(
            str(self._directory),
            preservation_policy=keep,
            cleanup_tmp_directories=not read_only,
        )

    def __enter__(self) -> "CheckpointStore":
        return self

    def __exit__(self, *_: Any) -> None:
        self._checkpointer.close()

    def save(self, step: int, state: Any, description: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """Saves a state with its description; ``metrics`` must contain ``METRIC``."""
        arrays = flatten(state)
        text = json.dumps({**description, "metrics": dict(metrics), "checksums": _checksums(arrays)}).encode()
        packed = {"bytes": np.frombuffer(text, np.uint8), "checksum": np.asarray(zlib.crc32(text), np.uint32)}
        items = {"state": arrays, "description": packed}
        try:
            # Without force, Orbax skips steps that are not later than all others, as after a fall-back.
            saved = self._checkpointer.save_checkpointables(
                step, items, metrics=dict(metrics), overwrite=True, force=True
            )
        except Exception as error:  # a full disk arrives as one of many types, with pages of text
            raise CheckpointError(
                f"cannot save step {step} in {self._directory} ({_first_line(error)}); earlier checkpoints are kept"
            ) from error
        if not saved:
            raise CheckpointError(f"step {step} was not saved in {self._directory}; earlier checkpoints are kept")

    def steps(self) -> list[int]:
        """Steps on disk, oldest first."""
        return sorted(checkpoint.step for checkpoint in self._checkpointer.checkpoints)

    def restore_last(self) -> Checkpoint | None:
        """The latest checkpoint that is intact, or None if there is none at all."""
        return self._first_intact(self.steps()[::-1])

    def restore_best(self) -> Checkpoint | None:
        """The intact checkpoint with the least validation error, or None if there is none at all."""
        error: dict[int, float] = {}
        for saved in self._checkpointer.checkpoints:
            metrics: Any = saved.metrics or {}
            error[saved.step] = metrics.get(METRIC, np.inf)
        return self._first_intact(sorted(error, key=lambda step: error[step]))

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
            raise CheckpointError(f"no intact checkpoint in {self._directory}: {'; '.join(problems)}")
        return None

    def _read(self, step: int) -> Checkpoint:
        try:
            items = self._checkpointer.load_checkpointables(step, {"state": None, "description": None})
            arrays = {name: np.asarray(value) for name, value in items["state"].items()}
            text = np.asarray(items["description"]["bytes"]).tobytes()
            text_checksum = int(items["description"]["checksum"])
        except Exception as error:  # Orbax and TensorStore raise many types, with pages of text
            raise CheckpointError(f"checkpoint {step} cannot be read ({_first_line(error)})") from error
        if zlib.crc32(text) != text_checksum:
            raise CheckpointError(f"checkpoint {step} is damaged (checksum of its description differs)")
        description = json.loads(text)
        checksums = description["checksums"]
        damaged = [name for name, crc in _checksums(arrays).items() if checksums.get(name) != crc]
        if damaged or set(arrays) != set(checksums):
            raise CheckpointError(
                f"checkpoint {step} is damaged (checksum of {(damaged or ['its arrays'])[0]} differs)"
            )
        return Checkpoint(step, arrays, description)
