"""CIFAR-10: records of the binary version in folders and archives, and the refusal of everything else."""

import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from ctfno_jax.data import images, problems
from ctfno_jax.data.images import ImageDataset
from ctfno_jax.data.readers import cifar10

FACTS = images.Published("cifar10", (4, 2, 3), train_counts=(7, 8), test_counts=(2, 3))
SIZES = {"num_validation": 4}
FOLDER = "cifar-10-batches-bin"
# Sums of the six files that MXNet's Gluon has published.
PUBLISHED_SHA1 = {
    "data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    "test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c",
}


def _arrays(counts: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(counts), dtype=np.uint8), counts))
    return rng.integers(0, 256, (len(labels), *FACTS.shape), dtype=np.uint8), labels


def _binary(pixels: np.ndarray, labels: np.ndarray) -> bytes:
    """The records, written plane by plane and row by row as the format is published."""
    content = bytearray()
    for image, label in zip(pixels, labels, strict=True):
        content.append(int(label))
        for channel in range(3):
            for row in image[..., channel]:
                content += row.tobytes()
    return bytes(content)


TRAIN, TEST = _arrays(FACTS.train_counts, 0), _arrays(FACTS.test_counts, 1)
CONTENTS = {f"data_batch_{i + 1}.bin": _binary(*(array[3 * i : 3 * i + 3] for array in TRAIN)) for i in range(5)}
CONTENTS["test_batch.bin"] = _binary(*TEST)


@pytest.fixture(autouse=True)
def small_set(monkeypatch) -> None:
    """The data set is a small one, with its own sums and counts, which are checked as the official ones are."""
    monkeypatch.setattr(cifar10, "PUBLISHED", FACTS)
    monkeypatch.setattr(cifar10, "SHA256", {name: hashlib.sha256(text).hexdigest() for name, text in CONTENTS.items()})


@pytest.fixture
def folder(tmp_path) -> Path:
    place = tmp_path / FOLDER
    place.mkdir()
    for name, content in CONTENTS.items():
        (place / name).write_bytes(content)
    return place


def _archive(path: Path, members: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, target in (links or {}).items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def _official(contents: dict[str, bytes] = CONTENTS) -> dict[str, bytes]:
    """Members as in the official archive, whose batches are not in order."""
    names = sorted(contents, key=lambda name: name[::-1])
    return {f"{FOLDER}/{name}": contents[name] for name in names} | {f"{FOLDER}/readme.html": b"<html>"}


def _load(data_dir: Path | None, **settings) -> ImageDataset:
    data = problems.load_dataset("cifar10", data_dir=data_dir, **{**SIZES, **settings})
    assert isinstance(data, ImageDataset)
    return data


def _same(one: ImageDataset, two: ImageDataset) -> None:
    for part in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(one, part).images, getattr(two, part).images)
        np.testing.assert_array_equal(getattr(one, part).labels, getattr(two, part).labels)


# --- round trips ------------------------------------------------------------------------------------------------------


def test_records_become_images_with_the_channels_last():
    pixels, labels = cifar10.records("some", CONTENTS["test_batch.bin"], 5, FACTS.shape)
    np.testing.assert_array_equal(pixels, TEST[0])
    np.testing.assert_array_equal(labels, TEST[1])
    assert pixels.flags.c_contiguous


def test_planes_are_red_green_and_blue_row_by_row():
    """A record by hand: red counts along the rows, green is 100 and blue is 200."""
    content = bytes([1, *range(8), *[100] * 8, *[200] * 8])
    pixels, labels = cifar10.records("some", content, 1, (4, 2, 3))
    assert labels.tolist() == [1]
    assert pixels[0, :, :, 0].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert set(pixels[..., 1].flat) == {100}
    assert set(pixels[..., 2].flat) == {200}


def test_test_images_are_the_official_ones_in_order_and_pixels_are_divided_by_255(folder):
    data = _load(folder)
    assert data.test is not None
    np.testing.assert_array_equal(np.rint(data.test.images * 255), TEST[0])
    np.testing.assert_array_equal(data.test.labels, TEST[1])
    assert (data.name, data.num_classes, data.source) == ("cifar10", 2, "binary files")


def test_batches_are_joined_in_order_before_the_draw(folder):
    data = _load(folder)
    order = np.random.default_rng(1).permutation(15)
    np.testing.assert_array_equal(np.rint(data.validation.images * 255), TRAIN[0][order[:4]])
    np.testing.assert_array_equal(np.rint(data.train.images * 255), TRAIN[0][order[4:]])
    np.testing.assert_array_equal(data.train.labels, TRAIN[1][order[4:]])


def test_the_archive_holds_the_same_data_as_the_folder_and_nothing_is_unpacked(folder, tmp_path):
    place = tmp_path / "other"
    place.mkdir()
    archive = _archive(place / cifar10.ARCHIVE, _official())
    data = _load(place)
    _same(data, _load(folder))
    _same(data, _load(archive))
    assert data.source == cifar10.ARCHIVE
    assert [path.name for path in place.iterdir()] == [cifar10.ARCHIVE]


def test_without_the_test_set_its_file_is_not_read(folder, tmp_path):
    (folder / "test_batch.bin").unlink()
    assert _load(folder, parts=("train", "validation")).test is None
    with pytest.raises(ValueError, match=rf"{FOLDER} holds no test_batch\.bin; get it: .*https"):
        _load(folder)
    train_only = {name: content for name, content in CONTENTS.items() if name != "test_batch.bin"}
    archive = _archive(tmp_path / "train.tar.gz", _official(train_only))
    assert _load(archive, parts=("train", "validation")).test is None
    with pytest.raises(ValueError, match=r"train\.tar\.gz holds no test_batch\.bin"):
        _load(archive)


def test_progress_counts_images(folder):
    calls: list[tuple[int, int]] = []
    _load(folder, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(3, 20), (6, 20), (9, 20), (12, 20), (15, 20), (20, 20)]


# --- where the files are ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", ["", "cifar10", FOLDER, f"cifar10/{FOLDER}"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_files_are_found_and_found_again(folder, tmp_path, monkeypatch, inner, packed):
    place = tmp_path / "data" / inner
    place.parent.mkdir(parents=True, exist_ok=True)
    if packed:
        place.mkdir(exist_ok=True)
        expected = _archive(place / cifar10.ARCHIVE, _official())
    else:
        expected = folder.rename(place)
    assert cifar10.find_file(tmp_path / "data") == expected == cifar10.find_file(expected)
    monkeypatch.setenv("CTFNO_DATA_DIR", str(tmp_path / "data"))
    assert problems.data_file("cifar10", None) == expected
    assert len(_load(None).train) == 11


def test_without_files_the_message_tells_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.delenv("CTFNO_DATA_DIR", raising=False)
    known = (r"cifar-10-binary\.tar\.gz .*data_batch_1\.bin.*https://www\.cs\.toronto\.edu/~kriz/cifar-10-binary\.tar\.gz"
             ".*source=tfds")  # fmt: skip
    with pytest.raises(ValueError, match=rf"cifar10 is read from {known}") as caught:
        cifar10.find_file()
    assert "--data_dir or CTFNO_DATA_DIR" in str(caught.value)
    with pytest.raises(ValueError, match=rf"does not hold {known}"):
        cifar10.find_file(tmp_path)


# --- files that are wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cifar-10-batches-py/data_batch_1", "cifar-10-python.tar.gz", "data_batch_1"])
def test_the_pickled_version_is_refused(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x80\x02}q\x01.")
    with pytest.raises(ValueError, match=r"is the Python version of CIFAR-10, which is pickled.*binary version, https"):
        _load(tmp_path)


def test_an_archive_of_the_pickled_version_is_refused(tmp_path):
    archive = _archive(tmp_path / cifar10.ARCHIVE, {"cifar-10-batches-py/data_batch_1": b"\x80\x02}q\x01."})
    with pytest.raises(ValueError, match=r"tar\.gz is the Python version of CIFAR-10, which is pickled"):
        _load(archive)


@pytest.mark.parametrize("name", ["../data_batch_1.bin", "/etc/data_batch_1.bin", f"{FOLDER}/../../readme.html"])
def test_a_member_that_leaves_the_archive_is_refused(tmp_path, name):
    archive = _archive(tmp_path / "some.tar.gz", {name: b"", **_official()})
    with pytest.raises(ValueError, match=r"some\.tar\.gz: the member '.*' lies outside of the archive; get it: "):
        _load(archive)


def test_links_in_an_archive_are_not_followed(tmp_path, folder):
    batches = {name: content for name, content in CONTENTS.items() if name != "data_batch_2.bin"}
    links = {f"{FOLDER}/data_batch_2.bin": str(folder / "data_batch_2.bin")}
    archive = _archive(tmp_path / "some.tar.gz", _official(batches), links)
    with pytest.raises(ValueError, match=r"some\.tar\.gz holds no data_batch_2\.bin"):
        _load(archive)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.8])
def test_an_archive_that_is_cut_short_is_named(tmp_path, kept):
    archive = _archive(tmp_path / "some.tar.gz", _official())
    content = archive.read_bytes()
    archive.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(
        ValueError, match=r"some\.tar\.gz is damaged or cut short \(.*\); get it: .*MD5 sum c32a"
    ) as caught:
        _load(archive)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_of_another_size_is_named(folder, name):
    count = 5 if name == "test_batch.bin" else 3
    (folder / name).write_bytes(CONTENTS[name][:-1])
    message = f"{name} must hold {count} records of 25 bytes, {25 * count} in all, got {25 * count - 1} bytes; get it"
    with pytest.raises(ValueError, match=message):
        _load(folder)


@pytest.mark.parametrize("packed", [False, True])
def test_a_flipped_bit_is_noticed(folder, tmp_path, packed):
    content = bytearray(CONTENTS["data_batch_4.bin"])
    content[30] ^= 1
    changed = {**CONTENTS, "data_batch_4.bin": bytes(content)}
    (folder / "data_batch_4.bin").write_bytes(content)
    place = _archive(tmp_path / "some.tar.gz", _official(changed)) if packed else folder
    with pytest.raises(ValueError, match=r": data_batch_4\.bin differs from the official file: SHA-256 .*, expected"):
        _load(place)


def test_labels_must_occur_as_often_as_published(folder, monkeypatch):
    content = _binary(TEST[0], np.zeros_like(TEST[1]))
    (folder / "test_batch.bin").write_bytes(content)
    monkeypatch.setitem(cifar10.SHA256, "test_batch.bin", hashlib.sha256(content).hexdigest())
    with pytest.raises(ValueError, match=r"test labels of cifar10 must occur \(2, 3\) times, got \(5, 0\)"):
        _load(folder)


def test_an_unknown_source_is_refused(folder):
    with pytest.raises(ValueError, match="option source of dataset cifar10 must be one of files, tfds, got 'web'"):
        _load(folder, source="web")


# --- the official files -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_official_files(real_data_dir, monkeypatch):
    monkeypatch.undo()
    path = cifar10.find_file(real_data_dir)
    for name, sha1 in PUBLISHED_SHA1.items():
        if path.is_dir():
            assert hashlib.sha1((path / name).read_bytes()).hexdigest() == sha1
    data = cifar10.load(real_data_dir)
    assert data.test is not None
    assert [len(part) for part in (data.train, data.validation, data.test)] == [45000, 5000, 10000]
    assert data.train.shape == (32, 32, 3)
    # Statistics of all training images, as widely used for normalisation.
    for channel, mean, std in ((0, 0.4914, 0.2470), (1, 0.4822, 0.2435), (2, 0.4465, 0.2616)):
        assert data.info[f"mean_{channel}"] == pytest.approx(mean, abs=1e-3)
        assert data.info[f"std_{channel}"] == pytest.approx(std, abs=1e-3)
    names = [cifar10.CLASSES[label] for label in data.test.labels[:4]]
    assert names == ["cat", "ship", "ship", "airplane"]
