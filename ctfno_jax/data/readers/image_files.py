"""Folder and checksums of the files of an image data set."""

import hashlib
import os
from pathlib import Path

SOURCES = ("files", "tfds")
OTHER_SOURCE = (
    "Or download them by --data_option=source=tfds, which needs the extra data and, the first time, tensorflow"
)


def start_folder(name: str, data_dir: str | Path | None, files: str, where: str) -> Path:
    """``data_dir`` or ``CTFNO_DATA_DIR``; ValueError that names the files and where to get them if neither is given."""
    folder = data_dir if data_dir is not None else os.environ.get("CTFNO_DATA_DIR")
    if folder is None:
        raise ValueError(f"{name} is read from {files}; name their folder by --data_dir or CTFNO_DATA_DIR: {where}")
    return Path(folder)


def check_sum(name: str, content: bytes, sha256: str, where: str) -> None:
    """Raises ValueError unless the content is the official one."""
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ValueError(f"{name} differs from the official file: SHA-256 {found}, expected {sha256}; get it: {where}")
