"""MNIST: IDX files to images and labels, plain or compressed, with every way in which a file can be wrong."""

import gzip
import hashlib
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ctfno_jax.data import images, problems
from ctfno_jax.data.images import ImageDataset
from ctfno_jax.data.readers import mnist, tfds_images

FACTS = images.Published("mnist", (4, 3, 1), train_counts=(5, 6, 4), test_counts=(2, 3, 2))
SIZES = {"num_validation": 4}
# The sums of the compressed files that are published with the data set.
PUBLISHED_MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = mnist.SHA256


def _idx(array: np.ndarray) -> bytes:
    """The array in IDX format, byte by byte as the format is published."""
    header = bytes([0, 0, 8, array.ndim])
    return header + b"".join(size.to_bytes(4, "big") for size in array.shape) + array.tobytes()


def _arrays(counts: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(counts), dtype=np.uint8), counts))
    return rng.integers(0, 256, (len(labels), 4, 3), dtype=np.uint8), labels


TRAIN, TEST = _arrays(FACTS.train_counts, 0), _arrays(FACTS.test_counts, 1)
CONTENTS = dict(zip(mnist.SHA256, map(_idx, (*TRAIN, *TEST)), strict=True))


@pytest.fixture(autouse=True)
def small_set(monkeypatch) -> None:
    """The data set is a small one, with its own sums and counts, which are checked as the official ones are."""
    monkeypatch.setattr(mnist, "PUBLISHED", FACTS)
    monkeypatch.setattr(mnist, "SHA256", {name: hashlib.sha256(text).hexdigest() for name, text in CONTENTS.items()})


@pytest.fixture
def folder(tmp_path) -> Path:
    place = tmp_path / "raw"
    place.mkdir()
    for name, content in CONTENTS.items():
        (place / f"{name}.gz").write_bytes(gzip.compress(content))
    return place


def _load(folder: Path | None, **settings) -> ImageDataset:
    data = problems.load_dataset("mnist", data_dir=folder, **{**SIZES, **settings})
    assert isinstance(data, ImageDataset)
    return data


# --- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (2, 5), (3, 4, 2)])
@pytest.mark.parametrize("compressed", [False, True])
def test_an_array_survives_the_round_trip(tmp_path, shape, compressed):
    array = np.arange(math.prod(shape), dtype=np.uint8).reshape(shape)
    path = tmp_path / "some"
    path.write_bytes(gzip.compress(_idx(array)) if compressed else _idx(array))
    read = mnist.read_idx(path, shape)
    np.testing.assert_array_equal(read, array)
    assert read.dtype == np.uint8


def test_test_images_are_the_official_ones_in_order_and_pixels_are_divided_by_255(folder):
    data = _load(folder)
    assert data.test is not None
    np.testing.assert_array_equal(np.rint(data.test.images[..., 0] * 255), TEST[0])
    np.testing.assert_array_equal(data.test.labels, TEST[1])
    assert (data.name, data.num_classes, data.source, data.train.shape) == ("mnist", 3, "IDX files", (4, 3, 1))


def test_training_and_validation_images_keep_their_labels(folder):
    data = _load(folder)
    assert (len(data.train), len(data.validation)) == (11, 4)
    known = {image.tobytes(): label for image, label in zip(*TRAIN, strict=True)}
    assert len(known) == 15
    found = {}
    for part in (data.train, data.validation):
        found |= {np.rint(image * 255).astype(np.uint8).tobytes(): label
                  for image, label in zip(part.images, part.labels, strict=True)}  # fmt: skip
    assert found == known


def test_plain_and_compressed_files_are_the_same_data(folder, tmp_path):
    compressed = _load(folder)
    for name in (TRAIN_IMAGES, TEST_LABELS):
        (folder / name).write_bytes(CONTENTS[name])
        (folder / f"{name}.gz").unlink()
    plain = _load(folder)
    for part in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(plain, part).images, getattr(compressed, part).images)
        np.testing.assert_array_equal(getattr(plain, part).labels, getattr(compressed, part).labels)


def test_sizes_take_the_first_images(folder):
    data, few = _load(folder), _load(folder, num_train=3, num_test=2)
    np.testing.assert_array_equal(few.train.images, data.train.images[:3])
    np.testing.assert_array_equal(few.validation.images, data.validation.images)
    assert few.test is not None
    np.testing.assert_array_equal(np.rint(few.test.images[..., 0] * 255), TEST[0][:2])


def test_without_the_test_set_its_files_are_not_read(folder):
    for name in (TEST_IMAGES, TEST_LABELS):
        (folder / f"{name}.gz").unlink()
    assert _load(folder, parts=("train", "validation")).test is None
    with pytest.raises(ValueError, match=rf"raw holds neither {TEST_IMAGES} nor {TEST_IMAGES}\.gz; get it: .*http"):
        _load(folder)


def test_progress_counts_images(folder):
    calls: list[tuple[int, int]] = []
    _load(folder, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(15, 22), (22, 22)]


# --- where the files are ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", ["", "mnist", "MNIST/raw"])
def test_the_folder_is_found_and_found_again(folder, tmp_path, monkeypatch, inner):
    place = tmp_path / "data" / inner
    place.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(place)
    assert mnist.find_file(tmp_path / "data") == place == mnist.find_file(place)
    monkeypatch.setenv("CTFNO_DATA_DIR", str(tmp_path / "data"))
    assert mnist.find_file() == place == problems.data_file("mnist", None)
    assert len(_load(None).train) == 11


def test_without_files_the_message_tells_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.delenv("CTFNO_DATA_DIR", raising=False)
    known = r"train-images-idx3-ubyte, .*\.gz.*http://yann\.lecun\.com/exdb/mnist/.*source=tfds"
    with pytest.raises(ValueError, match=rf"mnist is read from {known}") as caught:
        mnist.find_file()
    assert "--data_dir or CTFNO_DATA_DIR" in str(caught.value)
    with pytest.raises(ValueError, match=rf"holds none of {known}"):
        mnist.find_file(tmp_path)


# --- files that are wrong ---------------------------------------------------------------------------------------------


def _damaged(path: Path, message: str) -> None:
    """The error is one line that names the file and where to get it."""
    with pytest.raises(ValueError, match=message) as caught:
        _load(path.parent)
    assert str(path) in str(caught.value)
    assert "get it: the official files are on http" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_compressed_file_that_is_cut_short_is_named(folder, name, kept):
    path = folder / f"{name}.gz"
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    _damaged(path, "damaged or cut short|got nothing")


def test_a_flipped_byte_in_a_compressed_file_is_noticed(folder):
    path = folder / f"{TRAIN_IMAGES}.gz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    _damaged(path, "damaged or cut short")


@pytest.mark.parametrize("change", [lambda c: c[:-1], lambda c: c[:6], lambda c: c + b"\0"])
def test_the_number_of_bytes_is_that_of_the_header(folder, change):
    path = folder / f"{TEST_LABELS}.gz"
    path.write_bytes(gzip.compress(change(CONTENTS[TEST_LABELS])))
    _damaged(path, r"must hold 15 bytes uncompressed, got (14 bytes|6 bytes|more)")


def test_a_wrong_magic_number_is_refused(folder):
    path = folder / f"{TRAIN_LABELS}.gz"
    for content in (CONTENTS[TRAIN_IMAGES], b"\0\0\x0d\1" + CONTENTS[TRAIN_LABELS][4:], b"<html>not found</html>"):
        path.write_bytes(gzip.compress(content))
        _damaged(path, f"must begin with the magic number 00000801 .*, got {content[:4].hex()}")


def test_the_files_of_the_other_part_are_refused(folder):
    path = folder / f"{TRAIN_IMAGES}.gz"
    path.write_bytes(gzip.compress(CONTENTS[TEST_IMAGES]))
    _damaged(path, r"must hold an array of shape \(15, 4, 3\), its header says \(7, 4, 3\)")


def test_another_data_set_of_the_same_shape_is_refused(folder):
    path = folder / f"{TRAIN_IMAGES}.gz"
    path.write_bytes(gzip.compress(_idx(TRAIN[0] ^ 1)))
    _damaged(path, "differs from the official file: SHA-256")


def test_labels_must_occur_as_often_as_published(folder, monkeypatch):
    labels = _idx(np.sort(TRAIN[1])[::-1] // 2)
    (folder / f"{TRAIN_LABELS}.gz").write_bytes(gzip.compress(labels))
    monkeypatch.setitem(mnist.SHA256, TRAIN_LABELS, hashlib.sha256(labels).hexdigest())
    with pytest.raises(ValueError, match=r"train labels of mnist must occur \(5, 6, 4\) times, got \(11, 4, 0\)"):
        _load(folder)


def test_an_unknown_source_is_refused(folder):
    with pytest.raises(ValueError, match="option source of dataset mnist must be one of files, tfds, got 'web'"):
        _load(folder, source="web")


# --- tensorflow-datasets ----------------------------------------------------------------------------------------------


class _Builder:
    """The part of a builder of tensorflow-datasets that is used."""

    info = SimpleNamespace(full_name="mnist/3.0.1")

    def __init__(self, error: Exception | None = None, image=lambda image: image[..., None]) -> None:
        self.error, self.image, self.prepared = error, image, False

    def download_and_prepare(self) -> None:
        if self.error is not None:
            raise self.error
        self.prepared = True

    def as_data_source(self, split: str) -> list[dict[str, np.ndarray]]:
        assert self.prepared
        pixels, labels = {"train": TRAIN, "test": TEST}[split]
        return [{"image": self.image(p), "label": np.int64(n)} for p, n in zip(pixels, labels, strict=True)]


def _with_builder(monkeypatch, builder: _Builder) -> list[tuple]:
    asked = []

    def make(name, **settings):
        asked.append((name, settings))
        return builder

    monkeypatch.setitem(sys.modules, "tensorflow_datasets", SimpleNamespace(builder=make))
    return asked


def test_images_of_tensorflow_datasets_are_the_same_data_set(folder, tmp_path, monkeypatch):
    asked = _with_builder(monkeypatch, _Builder())
    data, files = _load(tmp_path, source="tfds"), _load(folder)
    assert asked == [("mnist", {"data_dir": tmp_path, "file_format": "array_record"})]
    assert data.source == "tensorflow-datasets mnist/3.0.1"
    for part in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(data, part).images, getattr(files, part).images)
        np.testing.assert_array_equal(getattr(data, part).labels, getattr(files, part).labels)
    assert data.info == files.info
    assert _load(tmp_path, source="tfds", parts=("train", "validation")).test is None


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ModuleNotFoundError("No module named 'tensorflow'"),
            "prepare mnist: No module named 'tensorflow'; install it",
        ),
        (ConnectionError("no route\nto host"), r"download mnist \(no route to host\); check the network"),
    ],
)
def test_a_failed_preparation_points_to_the_files(monkeypatch, error, message):
    _with_builder(monkeypatch, _Builder(error))
    with pytest.raises(ValueError, match=f"source=tfds cannot .*{message}.*or read the official files"):
        _load(None, source="tfds")


def test_other_images_than_expected_are_refused(monkeypatch):
    for image in (lambda p: p, lambda p: p[..., None].astype(np.float32)):
        _with_builder(monkeypatch, _Builder(image=image))
        with pytest.raises(ValueError, match=r"mnist by source=tfds must be uint8 of shape \(4, 3, 1\), got"):
            _load(None, source="tfds")


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ValueError, match=r"source=tfds needs the data extra: pip install -e '\.\[data\]'"):
        tfds_images.read(FACTS)


# --- the official files -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_official_files(real_data_dir, monkeypatch):
    monkeypatch.undo()
    folder = mnist.find_file(real_data_dir)
    for name, md5 in PUBLISHED_MD5.items():
        if (folder / name).is_file():
            assert hashlib.md5((folder / name).read_bytes()).hexdigest() == md5
    data = mnist.load(real_data_dir)
    assert data.test is not None
    assert [len(part) for part in (data.train, data.validation, data.test)] == [55000, 5000, 10000]
    assert data.train.shape == (28, 28, 1)
    # Mean and standard deviation of all training images, as widely used for normalisation.
    assert data.info["mean"] == pytest.approx(0.1307, abs=3e-4)
    assert data.info["std"] == pytest.approx(0.3081, abs=3e-4)
    # The first test image is a seven: nothing at its border, ink at its centre.
    assert data.test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert data.test.images[0, :4].max() == 0
    assert data.test.images[0, 10:20].max() > 0.9
