"""MNIST: 60,000 training and 10,000 test images of handwritten digits, 28 x 28 pixels, one channel.

The four official files are in IDX format, compressed by gzip or not: a magic number of the bytes 0, 0, 8 (for unsigned
bytes) and the number of axes; the size of each axis as four bytes, most significant first; the values in C order.
"""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from ctfno_jax.data import cache, images, masked_series
from ctfno_jax.data.images import Bytes, ImageDataset
from ctfno_jax.data.readers import image_files, tfds_images

NAME = "mnist"
PUBLISHED = images.Published(
    NAME, (28, 28, 1),
    train_counts=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    test_counts=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
)  # fmt: skip
# Of the uncompressed files. Published are the MD5 sums of the compressed ones, in this order:
# f68b3c2dcbeaaa9fbdd348bbdeb94873, d53e105ee54ea40749a09fcbcd1e9432, 9fb629c4189551a2d022fa330f9573f3,
# ec29112dd5afa0611ce80d1b7f02629c.
SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_FILES = f"{', '.join(SHA256)}, with or without .gz"
_WHERE = (
    "the official files are on http://yann.lecun.com/exdb/mnist/, a copy on "
    f"https://storage.googleapis.com/cvdf-datasets/mnist/. {image_files.OTHER_SOURCE}"
)
_GZIP = b"\x1f\x8b"


def find_file(data_dir: str | Path | None = None) -> Path:
    """The folder with the files: ``data_dir`` or ``CTFNO_DATA_DIR``, or its subfolder mnist or MNIST/raw."""
    folder = image_files.start_folder(NAME, data_dir, _FILES, _WHERE)
    for place in (folder, folder / NAME, folder / "MNIST" / "raw"):
        if any(_path(place, name) for name in SHA256):
            return place
    raise ValueError(f"{folder} holds none of {_FILES}; get them: {_WHERE}")


def load(
    data_dir: str | Path | None = None,
    *,
    seed: int = 1,
    with_test: bool = True,
    progress: cache.Progress | None = None,
    num_train: int | None = None,
    num_validation: int = 5000,
    num_test: int | None = None,
    source: str = "files",
) -> ImageDataset:
    """The official test images, and the official training images with a seeded draw of them for validation.

    Args:
      data_dir: folder of the files, see :func:`find_file`; of ``source="tfds"``, that of the prepared data.
      seed: seed of the draw, see :func:`ctfno_jax.data.images.split`.
      with_test: return the test images; else their files are not read.
      progress: called with the numbers of read and of all images.
      num_train: number of training images; None for all that are not in the validation part.
      num_validation: number of validation images.
      num_test: number of test images, the first ones; None for all.
      source: ``"files"``, or ``"tfds"`` for tensorflow-datasets, whose order of the images and so the draw differ.
    """
    masked_series.check_choice(NAME, "source", source, image_files.SOURCES)
    if source == "tfds":
        train, test, name = tfds_images.read(PUBLISHED, data_dir, with_test=with_test, progress=progress)
    else:
        train, test = _read_files(find_file(data_dir), with_test, progress)
        name = "IDX files"
    sizes = {"num_train": num_train, "num_validation": num_validation, "num_test": num_test}
    return images.split(PUBLISHED, train, test, name, seed=seed, **sizes)


def read_idx(path: str | Path, shape: tuple[int, ...], sha256: str | None = None) -> UInt8[np.ndarray, "..."]:
    """The bytes of an IDX file, compressed or not.

    Args:
      path: the file.
      shape: shape that the header must have.
      sha256: sum that the uncompressed file must have; None for any.
    """
    path, start, size = Path(path), 4 + 4 * len(shape), math.prod(shape)
    content = _content(path, start + size + 1)
    magic = bytes((0, 0, 8, len(shape)))
    if content[:4] != magic:
        raise ValueError(
            f"{path} must begin with the magic number {magic.hex()} of an IDX file with {len(shape)} axes, got "
            f"{content[:4].hex() or 'nothing'}; get it: {_WHERE}"
        )
    found = tuple(np.frombuffer(content[4:start].ljust(start - 4, b"\0"), ">u4").tolist())
    if len(content) >= start and found != shape:
        raise ValueError(f"{path} must hold an array of shape {shape}, its header says {found}; get it: {_WHERE}")
    if len(content) != start + size:
        held = f"{len(content)} bytes" if len(content) < start + size else "more"
        raise ValueError(f"{path} must hold {start + size} bytes uncompressed, got {held}; get it: {_WHERE}")
    if sha256 is not None:
        image_files.check_sum(str(path), content, sha256, _WHERE)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _content(path: Path, most: int) -> bytes:
    """At most ``most`` bytes of the uncompressed file."""
    try:
        with path.open("rb") as file:
            compressed = file.read(len(_GZIP)) == _GZIP
        with gzip.open(path) if compressed else path.open("rb") as file:
            return file.read(most)
    except (OSError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is damaged or cut short ({reason}); get it: {_WHERE}") from error


def _path(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _read_files(folder: Path, with_test: bool, progress: cache.Progress | None) -> tuple[Bytes, Bytes | None]:
    height, width, channels = PUBLISHED.shape
    counts = {"train": PUBLISHED.num_train} | ({"t10k": PUBLISHED.num_test} if with_test else {})
    found = {}
    for part, count in counts.items():
        pixels = _read(folder, f"{part}-images-idx3-ubyte", (count, height, width))
        found[part] = (
            pixels.reshape(count, height, width, channels),
            _read(folder, f"{part}-labels-idx1-ubyte", (count,)),
        )
        if progress is not None:
            progress(sum(len(labels) for _, labels in found.values()), sum(counts.values()))
    return found["train"], found.get("t10k")


def _read(folder: Path, name: str, shape: tuple[int, ...]) -> np.ndarray:
    path = _path(folder, name)
    if path is None:
        raise ValueError(f"{folder} holds neither {name} nor {name}.gz; get it: {_WHERE}")
    return read_idx(path, shape, SHA256[name])
