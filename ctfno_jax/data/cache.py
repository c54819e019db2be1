"""Generated trajectories on disk: made piece by piece, checked when read, made again when damaged.

A piece is one ``.npz`` file of plain numbers with a SHA-256 digest of its arrays, written under a temporary name and
renamed. So an interrupted generation goes on with the first missing piece, and two programs that generate the same data
at once only do some work twice.
"""

import contextlib
import hashlib
import json
import os
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ctfno_jax.data.fields import Trajectories

# Raised whenever a solver or the layout of a file changes: older pieces are then not found any more.
_VERSION = 1

Progress = Callable[[int, int], None]


def directory() -> Path:
    """``CTFNO_CACHE_DIR``, or ``ctfno_jax/data`` in the user's cache folder."""
    if "CTFNO_CACHE_DIR" in os.environ:
        return Path(os.environ["CTFNO_CACHE_DIR"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ctfno_jax" / "data"


def folder_of(name: str, seed: int, options: Mapping[str, Any]) -> Path:
    """Folder of one data set; another for every seed and every value of an option."""
    key = json.dumps([_VERSION, name, seed, dict(options)], sort_keys=True)
    return directory() / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def load_or_generate(
    generate: Callable[[int, int], Trajectories],
    folder: Path,
    num_samples: int,
    chunk: int,
    progress: Progress | None = None,
) -> Trajectories:
    """The first ``num_samples`` samples, from pieces of ``chunk`` samples.

    Args:
      generate: ``(count, first) -> Trajectories``, called for the pieces that are missing or damaged.
      folder: where the pieces of this data set are.
      num_samples: samples wanted.
      chunk: samples of a piece.
      progress: told the number of samples ready, and of all, after every piece that had to be made.
    """
    pieces = []
    for first in range(0, num_samples, chunk):
        path = folder / f"{first:06d}-{chunk:04d}.npz"
        piece = read(path)
        if piece is None:
            piece = generate(chunk, first)
            write(path, piece)
            if progress is not None:
                progress(min(first + chunk, num_samples), num_samples)
        pieces.append(piece.select(slice(num_samples - first)))
    u0, u = (np.concatenate([getattr(piece, field) for piece in pieces]) for field in ("u0", "u"))
    times = pieces[0].times
    if times.ndim == 2:
        times = np.concatenate([piece.times for piece in pieces])
    return Trajectories(u0, times, u)


def write(path: Path, piece: Trajectories) -> None:
    """Writes one piece; a crash or a full disk leaves the old state behind."""
    with _replacing(path) as file:
        np.savez(file, u0=piece.u0, times=piece.times, u=piece.u, digest=_digest(piece))


def write_text(path: Path, text: str) -> None:
    """Writes a small file beside the pieces, in the same way."""
    with _replacing(path) as file:
        file.write(text.encode())


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Any]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            with open(temporary, "wb") as file:
                yield file
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(
            f"cannot keep generated data in {path.parent}: {error.strerror or error}; "
            "free space there or set CTFNO_CACHE_DIR"
        ) from error


def read(path: Path) -> Trajectories | None:
    """The piece, or None if it is not there or not what was written."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            piece = Trajectories(file["u0"], file["times"], file["u"])
            intact = np.array_equal(file["digest"], _digest(piece))
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile, RuntimeError):
        return None
    return piece if intact else None


def _digest(piece: Trajectories) -> np.ndarray:
    digest = hashlib.sha256()
    for array in (piece.u0, piece.times, piece.u):
        digest.update(str((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)
