"""Files that are complete or absent: each is written under a temporary name and then renamed."""

import contextlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Figure(Protocol):
    """A figure that can write itself to a file, such as one of matplotlib."""

    def savefig(self, fname: Any, *, dpi: float) -> None: ...


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside ``path``, renamed to it when the block ends and removed when the block raises."""
    path = Path(path)
    make_directory(path.parent)
    # Two processes, or two threads of one, may write the same file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def make_directory(path: str | Path) -> Path:
    """The directory, created with its parents if missing; OSError if it cannot be created or written to."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the directory {path}: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise OSError(f"cannot write in the directory {path}: permission denied")
    return path


@contextlib.contextmanager
def _named(path: str | Path) -> Iterator[None]:
    """Adds the path to an error of the system: that of a full disk does not say which file."""
    try:
        yield
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file."""
    with replacing(path) as temporary, _named(path):
        temporary.write_text(text)


def write_json(path: str | Path, values: Mapping[str, Any]) -> None:
    """Writes an indented JSON object, keys in the given order."""
    write_text(path, json.dumps(values, indent=2, sort_keys=False) + "\n")


def write_npz(path: str | Path, **arrays: np.ndarray) -> None:
    """Writes a compressed ``.npz`` file."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]


def write_figure(path: str | Path, figure: Figure) -> None:
    """Writes a figure; the suffix of ``path`` selects the format."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)


def append_json_line(path: str | Path, values: Mapping[str, Any]) -> None:
    """Appends one line of JSON."""
    with _named(path), open(path, "a") as file:
        file.write(json.dumps(values) + "\n")


def read_json_lines(path: str | Path) -> list[dict[str, Any]]:
    """The intact objects of a file that :func:`append_json_line` writes; an incomplete last line is left out."""
    path, found = Path(path), []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        try:
            values = json.loads(line)
        except ValueError:
            continue
        found += [values] if isinstance(values, dict) else []
    return found


def truncate_json_lines(path: str | Path, last_step: int) -> int:
    """Drops lines of steps after ``last_step``, which a resumed run writes again, and lines that are no JSON objects.

    Returns:
      The number of damaged lines; an incomplete last line, as an interrupted write leaves it, does not count.
    """
    path = Path(path)
    if not path.exists():
        return 0
    kept, damaged = [], 0
    text = path.read_text(errors="replace")
    for line in text.splitlines(keepends=True):
        try:
            step = json.loads(line)["step"]
            later = step > last_step
        except (ValueError, TypeError, KeyError):
            damaged += line.endswith("\n") and bool(line.strip())
            continue
        if not later:
            kept.append(line.rstrip("\n") + "\n")
    if text != "".join(kept):
        write_text(path, "".join(kept))
    return damaged
