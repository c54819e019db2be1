"""CIFAR-10: 50,000 training and 10,000 test photographs of ten classes, 32 x 32 pixels, three channels.

The official binary version is six files of records: a byte with the label, then the red, the green and the blue plane,
each row by row. The files are read from a folder or, as a stream, from the official archive. The Python version is
refused: it is pickled, and unpickling runs code of the file.
"""

import lzma
import math
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from ctfno_jax.data import cache, images, masked_series
from ctfno_jax.data.images import Bytes, ImageDataset
from ctfno_jax.data.readers import image_files, tfds_images

NAME = "cifar10"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ARCHIVE = "cifar-10-binary.tar.gz"
PUBLISHED = images.Published(NAME, (32, 32, 3), train_counts=(5000,) * 10, test_counts=(1000,) * 10)
# Of files with the SHA-1 sums that MXNet's Gluon has published for the binary version.
SHA256 = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
_TEST = "test_batch.bin"
_FOLDER = "cifar-10-batches-bin"
_FILES = f"{ARCHIVE} or its files data_batch_1.bin to data_batch_5.bin and {_TEST}"
_PYTHON_VERSION = ("cifar-10-batches-py", "cifar-10-python.tar.gz", "data_batch_1")
_WHERE = (
    f"it is the binary version, https://www.cs.toronto.edu/~kriz/{ARCHIVE} with the MD5 sum "
    f"c32a1d4ab5d03f1284b67883e8d87530. {image_files.OTHER_SOURCE}"
)


def find_file(data_dir: str | Path | None = None) -> Path:
    """The folder with the files, or the archive.

    ``data_dir`` or ``CTFNO_DATA_DIR`` is the archive, or a folder that holds the archive or the files, itself or in its
    subfolder cifar10, cifar-10-batches-bin or cifar10/cifar-10-batches-bin.
    """
    start = image_files.start_folder(NAME, data_dir, _FILES, _WHERE)
    if start.is_file():
        return start
    places = [place / inner for place in (start, start / NAME) for inner in ("", _FOLDER)]
    for place in places:
        if any((place / name).is_file() for name in SHA256):
            return place
        if (place / ARCHIVE).is_file():
            return place / ARCHIVE
    for place in places:
        for name in _PYTHON_VERSION:
            if (place / name).exists():
                _refuse_python_version(place / name)
    raise ValueError(f"{start} does not hold {_FILES}; get it: {_WHERE}")


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
      data_dir: folder or archive, see :func:`find_file`; of ``source="tfds"``, the folder of the prepared data.
      seed: seed of the draw, see :func:`ctfno_jax.data.images.split`.
      with_test: return the test images; else their file is not read.
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
        path = find_file(data_dir)
        train, test = _read_files(path, with_test, progress)
        name = path.name if path.is_file() else "binary files"
    sizes = {"num_train": num_train, "num_validation": num_validation, "num_test": num_test}
    return images.split(PUBLISHED, train, test, name, seed=seed, **sizes)


def records(name: str, content: bytes, count: int, shape: tuple[int, int, int]) -> Bytes:
    """Images with the channels last, and labels, of one file of the binary version; ``name`` is for errors."""
    height, width, channels = shape
    size = 1 + math.prod(shape)
    if len(content) != count * size:
        raise ValueError(
            f"{name} must hold {count} records of {size} bytes, {count * size} in all, got {len(content)} bytes; "
            f"get it: {_WHERE}"
        )
    rows = np.frombuffer(content, np.uint8).reshape(count, size)
    planes = rows[:, 1:].reshape(count, channels, height, width)
    return np.ascontiguousarray(np.moveaxis(planes, 1, -1)), rows[:, 0]


def _read_files(path: Path, with_test: bool, progress: cache.Progress | None) -> tuple[Bytes, Bytes | None]:
    names = [name for name in SHA256 if with_test or name != _TEST]
    num_batches = len(SHA256) - 1
    counts = {name: PUBLISHED.num_test if name == _TEST else PUBLISHED.num_train // num_batches for name in names}
    contents = _archive_contents(path, names) if path.is_file() else _folder_contents(path, names)
    found: dict[str, Bytes] = {}
    for name, content in contents:
        found[name] = records(f"{path}: {name}", content, counts[name], PUBLISHED.shape)
        image_files.check_sum(f"{path}: {name}", content, SHA256[name], _WHERE)
        if progress is not None:
            progress(sum(counts[n] for n in found), sum(counts.values()))
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"{path} holds no {', '.join(missing)}; get it: {_WHERE}")
    batches = [found[name] for name in names if name != _TEST]
    train = tuple(np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    return (train[0], train[1]), found.get(_TEST)


def _folder_contents(folder: Path, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        if (folder / name).is_file():
            yield name, (folder / name).read_bytes()


def _archive_contents(archive: Path, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the wanted members, in the order of the archive, up to the last of them."""
    left = set(names)
    try:
        with tarfile.open(archive, "r|*") as members:
            for member in members:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts:
                    raise ValueError(
                        f"{archive}: the member {member.name!r} lies outside of the archive; get it: {_WHERE}"
                    )
                if path.name in _PYTHON_VERSION:
                    _refuse_python_version(archive)
                if path.name not in left or not member.isfile():
                    continue
                file = members.extractfile(member)
                assert file is not None  # a regular file
                yield path.name, file.read()
                left.remove(path.name)
                if not left:
                    return
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{archive} is damaged or cut short ({reason}); get it: {_WHERE}") from error


def _refuse_python_version(path: Path) -> None:
    raise ValueError(
        f"{path} is the Python version of CIFAR-10, which is pickled and could run code; get {_FILES}: {_WHERE}"
    )
