"""Generated trajectories on disk, in pieces that are verified when read and generated again when damaged.

A piece is one ``.npz`` file of plain numbers with a SHA-256 digest of its arrays. An interrupted generation resumes at
the first missing piece. Two processes may generate the same data at the same time: each file is complete or absent.
"""

import contextlib
import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from ctfno_jax import files
from ctfno_jax.data.trajectories import Trajectories

# Raised when a solver or the layout of a file changes, so that older pieces are not found.
_VERSION = 1

Progress = Callable[[int, int], None]


def directory() -> Path:
    """``CTFNO_CACHE_DIR``, or ``ctfno_jax/data`` in the user's cache folder."""
    if "CTFNO_CACHE_DIR" in os.environ:
        return Path(os.environ["CTFNO_CACHE_DIR"])
    return platformdirs.user_cache_path("ctfno_jax") / "data"


def folder_of(name: str, seed: int, options: Mapping[str, Any]) -> Path:
    """Folder of one data set: the name with a digest of the seed and of all options."""
    key = json.dumps([_VERSION, name, seed, dict(options)], sort_keys=True)
    return directory() / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def load_or_generate(
    generate: Callable[[int, int], Trajectories],
    folder: Path,
    num_samples: int,
    chunk: int,
    progress: Progress | None = None,
    *,
    first: int = 0,
) -> Trajectories:
    """The samples ``first`` to ``first + num_samples - 1``, from pieces of ``chunk`` samples.

    Args:
      generate: ``(count, first) -> Trajectories``, called for the pieces that are missing or damaged.
      folder: folder of the pieces.
      num_samples: number of samples.
      chunk: samples per piece. Pieces begin at multiples of it.
      progress: called with the number of samples that are ready and ``num_samples`` after each generated piece.
      first: index of the first sample. Pieces that hold only earlier samples are neither read nor generated.
    """
    pieces, end = [], first + num_samples
    for start in range(first // chunk * chunk, end, chunk):
        path = folder / f"{start:06d}-{chunk:04d}.npz"
        piece = read(path)
        if piece is None:
            piece = generate(chunk, start)
            write(path, piece)
            if progress is not None:
                progress(min(start + chunk, end) - first, num_samples)
        pieces.append(piece.select(slice(max(first - start, 0), end - start)))
    u0, u = (np.concatenate([getattr(piece, field) for piece in pieces]) for field in ("u0", "u"))
    times = pieces[0].times
    if times.ndim == 2:
        times = np.concatenate([piece.times for piece in pieces])
    return Trajectories(u0, times, u)


def write(path: Path, piece: Trajectories) -> None:
    """Writes one piece."""
    with _replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, u0=piece.u0, times=piece.times, u=piece.u, digest=_digest(piece))


def write_text(path: Path, text: str) -> None:
    """Writes a small file beside the pieces."""
    with _replacing(path) as temporary:
        temporary.write_text(text)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """:func:`ctfno_jax.files.replacing`, with an error that names the cache."""
    try:
        with files.replacing(path) as temporary:
            yield temporary
    except OSError as error:
        raise OSError(
            f"cannot keep generated data in {path.parent}: {error.strerror or error}; "
            "free space there or set CTFNO_CACHE_DIR"
        ) from error


def read(path: Path) -> Trajectories | None:
    """The piece, or None if the file is missing or its digest does not match."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            piece = Trajectories(file["u0"], file["times"], file["u"])
            intact = np.array_equal(file["digest"], _digest(piece))
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile, RuntimeError):
        return None
    return piece if intact else None


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes named arrays, such as the contents of text files that take long to parse."""
    with _replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays, digest=_digest_of_named(arrays))  # pyright: ignore[reportArgumentType]


def read_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """The named arrays, or None if the file is missing or its digest does not match."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        intact = np.array_equal(arrays.pop("digest"), _digest_of_named(arrays))
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile, RuntimeError):
        return None
    return arrays if intact else None


def _digest_of_named(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    names = sorted(arrays)
    return _as_bytes(digest_of(np.asarray(names), *(arrays[name] for name in names)))


def digest_of(*arrays: np.ndarray) -> str:
    """SHA-256 of shapes, dtypes and values."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(str((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _digest(piece: Trajectories) -> np.ndarray:
    return _as_bytes(digest_of(piece.u0, piece.times, piece.u))


def _as_bytes(digest: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(digest), np.uint8)
