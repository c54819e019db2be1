"""Files of a run: written under a temporary name, then renamed, so that none is ever half there."""

import contextlib
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Figure(Protocol):
    """What can draw itself into a file."""

    def savefig(self, fname: Any, *, dpi: float) -> None: ...


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path that becomes ``path`` when the block ends well, and disappears when it does not."""
    path = Path(path)
    make_directory(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def make_directory(path: str | Path) -> Path:
    """The directory, made if it is not there; OSError with a plain text if it cannot be."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the directory {path}: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise OSError(f"cannot write in the directory {path}: permission denied")
    return path


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text)


def write_json(path: str | Path, values: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(values, indent=2, sort_keys=False) + "\n")


def write_npz(path: str | Path, **arrays: np.ndarray) -> None:
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]


def write_figure(path: str | Path, figure: Figure) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)


def append_json_line(path: str | Path, values: Mapping[str, Any]) -> None:
    with open(path, "a") as file:
        file.write(json.dumps(values) + "\n")


def truncate_json_lines(path: str | Path, last_step: int) -> None:
    """Drops lines of later steps, and a half-written last line: they will be written again."""
    path = Path(path)
    if not path.exists():
        return
    kept = []
    for line in path.read_text().splitlines():
        try:
            values = json.loads(line)
        except json.JSONDecodeError:
            continue
        if values.get("step", 0) <= last_step:
            kept.append(line)
    write_text(path, "".join(line + "\n" for line in kept))


def read_array(path: str | Path) -> np.ndarray:
    """A ``.npy`` array, never unpickled; ValueError with a plain text if it cannot be read."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a .npy file of plain numbers: {error}") from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} is an archive of several arrays; save one array with numpy.save")
    return array
