"""One array in a ``.npy`` file."""

import zipfile
from pathlib import Path

import numpy as np


def read(path: str | Path) -> np.ndarray:
    """The array, never unpickled; ValueError if the file holds anything else."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file; save an array with numpy.save")
    with open(path, "rb") as stream:
        try:
            array = np.load(stream, allow_pickle=False)
        except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is not a .npy file of plain numbers: {' '.join(str(error).split())}") from error
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{path} is an archive of several arrays; save one array with numpy.save")
    return array
