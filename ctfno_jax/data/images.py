"""Labelled images: pixels in [0, 1], a seeded split, and resampling to a finer grid."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

CHANNELS = (1, 3)
METHODS = ("bilinear", "fourier")

# Images as bytes with their labels, as the files of a data set hold them.
Bytes = tuple[UInt8[np.ndarray, "count height width channels"], UInt8[np.ndarray, " count"]]


@dataclasses.dataclass(frozen=True)
class Images:
    """Images with one label each.

    Attributes:
      images: pixels in [0, 1], ``(count, height, width, channels)`` with 1 or 3 channels, float32.
      labels: class of each image, counted from 0, ``(count,)``, int32.
    """

    images: Float[np.ndarray, "count height width channels"]
    labels: Int[np.ndarray, " count"]

    def __post_init__(self) -> None:
        shape = self.images.shape
        if len(shape) != 4 or shape[-1] not in CHANNELS:
            raise ValueError(
                f"images must have shape (count, height, width, channels) with 1 or 3 channels, got {shape}; "
                "move or add the axis of channels"
            )
        if 0 in shape:
            raise ValueError(f"images must hold at least one image with at least one pixel, got shape {shape}")
        if self.labels.shape != shape[:1]:
            raise ValueError(
                f"labels must have shape ({shape[0]},) to agree with images {shape}, got {self.labels.shape}"
            )
        if self.images.dtype != np.float32:
            raise ValueError(f"images must be of dtype float32, got {self.images.dtype}; divide bytes by 255")
        if self.labels.dtype != np.int32:
            raise ValueError(f"labels must be of dtype int32, got {self.labels.dtype}; convert them")
        lowest, highest = float(self.images.min()), float(self.images.max())
        if not (lowest >= 0 and highest <= 1):  # also if one of them is NaN
            raise ValueError(f"images must lie in [0, 1], got values from {lowest:g} to {highest:g}; scale them")
        if self.labels.min() < 0:
            raise ValueError(f"labels must count classes from 0 on, got {int(self.labels.min())}")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        return self.images.shape[1:]

    def select(self, index: np.ndarray | slice) -> "Images":
        """The images at ``index``."""
        return Images(self.images[index], self.labels[index])

    @staticmethod
    def from_bytes(
        images: UInt8[np.ndarray, "count height width channels"], labels: UInt8[np.ndarray, " count"]
    ) -> "Images":
        """Bytes divided by 255."""
        if images.dtype != np.uint8:
            raise ValueError(f"images must be bytes of dtype uint8, got {images.dtype}")
        return Images(images / np.float32(255), labels.astype(np.int32))


@dataclasses.dataclass(frozen=True)
class ImageDataset:
    """Three disjoint sets of labelled images.

    Attributes:
      name: name of the problem.
      train: training images.
      validation: images that select the best state of a run.
      test: images for the final evaluation; None if they were not loaded.
      num_classes: number of classes.
      info: numbers of images, and mean and standard deviation of every channel of the training images.
      source: files that were read, or the name of the data set in another library.
    """

    name: str
    train: Images
    validation: Images
    test: Images | None
    num_classes: int
    info: dict[str, float]
    source: str

    def __post_init__(self) -> None:
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        found = {name: part for name, part in parts.items() if part is not None}
        if len({part.shape for part in found.values()}) > 1:
            shapes = ", ".join(f"{name} {part.shape}" for name, part in found.items())
            raise ValueError(f"images must have the same height, width and channels in all parts, got {shapes}")
        for name, part in found.items():
            if part.labels.max() >= self.num_classes:
                highest = int(part.labels.max())
                raise ValueError(f"labels of {name} must be below num_classes={self.num_classes}, got {highest}")


@dataclasses.dataclass(frozen=True)
class Published:
    """Published facts about a set of images.

    Attributes:
      name: name of the data set.
      shape: height, width and channels.
      train_counts: training images of each class.
      test_counts: test images of each class.
    """

    name: str
    shape: tuple[int, int, int]
    train_counts: tuple[int, ...]
    test_counts: tuple[int, ...]

    @property
    def num_classes(self) -> int:
        return len(self.train_counts)

    @property
    def num_train(self) -> int:
        return sum(self.train_counts)

    @property
    def num_test(self) -> int:
        return sum(self.test_counts)

    def check(self, part: str, images: np.ndarray, labels: np.ndarray) -> None:
        """Raises ValueError unless shape and numbers of images per class of ``"train"`` or ``"test"`` are these."""
        expected = self.train_counts if part == "train" else self.test_counts
        if images.shape != (sum(expected), *self.shape) or labels.shape != images.shape[:1]:
            raise ValueError(
                f"{part} images of {self.name} must have shape {(sum(expected), *self.shape)} and a label each, got "
                f"{images.shape} and labels {labels.shape}; get the data again"
            )
        counts = tuple(np.bincount(labels, minlength=len(expected)).tolist())
        if counts != expected:
            raise ValueError(
                f"{part} labels of {self.name} must occur {expected} times, got {counts}; get the data again"
            )


def split(
    published: Published,
    train: Bytes,
    test: Bytes | None,
    source: str,
    *,
    seed: int,
    num_train: int | None = None,
    num_validation: int = 5000,
    num_test: int | None = None,
) -> ImageDataset:
    """The data set whose validation part is drawn from the training images.

    A permutation of all training images, which depends on the seed only, begins with the validation images. The others
    are the training images in that order, so the first ones are a random choice. Test images keep their order.

    Args:
      published: facts that the images are checked against.
      train: training images.
      test: test images, or None.
      source: source of the data set.
      seed: seed of the permutation.
      num_train: number of training images to keep; None for all that are not in the validation part.
      num_validation: number of validation images.
      num_test: number of test images to keep, the first ones; None for all.
    """
    _check_sizes(published, num_train, num_validation, num_test)
    published.check("train", *train)
    order = np.random.default_rng(seed).permutation(published.num_train)
    chosen = order[num_validation:] if num_train is None else order[num_validation : num_validation + num_train]
    pixels = train[0][chosen]
    parts = {
        "train": Images.from_bytes(pixels, train[1][chosen]),
        "validation": Images.from_bytes(train[0][order[:num_validation]], train[1][order[:num_validation]]),
        "test": None,
    }
    if test is not None:
        published.check("test", *test)
        parts["test"] = Images.from_bytes(test[0][:num_test], test[1][:num_test])
    info = {name: float(len(part)) for name, part in parts.items() if part is not None}
    info |= _statistics(pixels)
    return ImageDataset(published.name, **parts, num_classes=published.num_classes, info=info, source=source)


def _check_sizes(published: Published, num_train: int | None, num_validation: int, num_test: int | None) -> None:
    for name, value in (("num_train", num_train), ("num_validation", num_validation), ("num_test", num_test)):
        if value is None and name != "num_validation":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} of {published.name} must be a whole number of at least 1, got {value!r}")
    least = 1 if num_train is None else num_train
    if least + num_validation > published.num_train:
        raise ValueError(
            f"{published.name} has {published.num_train} training images, but num_train={least} and "
            f"num_validation={num_validation} were asked for; lower one of them"
        )
    if num_test is not None and num_test > published.num_test:
        raise ValueError(f"{published.name} has {published.num_test} test images, num_test={num_test}; lower it")


def _statistics(images: UInt8[np.ndarray, "count height width channels"]) -> dict[str, float]:
    """Mean and standard deviation of each channel in units of 255, from exact counts of the byte values."""
    facts, values = {}, np.arange(256) / 255
    for channel in range(images.shape[-1]):
        counts = np.zeros(256, np.int64)
        for first in range(0, len(images), 500):  # bincount makes a copy in int64
            counts += np.bincount(images[first : first + 500, ..., channel].ravel(), minlength=256)
        mean = float(counts @ values / counts.sum())
        variance = float(counts @ (values - mean) ** 2 / counts.sum())
        suffix = f"_{channel}" if images.shape[-1] > 1 else ""
        facts |= {f"mean{suffix}": mean, f"std{suffix}": math.sqrt(variance)}
    return facts


# --- resampling -------------------------------------------------------------------------------------------------------


def upsampled(
    images: Float[Array, "batch height width channels"] | Float[np.ndarray, "batch height width channels"],
    factor: int,
    method: str = "bilinear",
) -> Float[Array, "batch fine_height fine_width channels"]:
    """Images on a grid that is ``factor`` times as fine along both axes.

    A value belongs to the centre of its pixel, on both grids. Pixel ``j`` of the fine grid therefore lies at
    ``(j + 1/2) / factor - 1/2`` in units of coarse pixels; the outermost ones lie beyond the outermost coarse centres.

    Args:
      images: images of a floating dtype.
      factor: whole number of fine pixels per coarse pixel and axis; 1 returns the images.
      method: ``"bilinear"``, constant beyond the outermost centres, with results within the range of the images; or
        ``"fourier"``, the trigonometric interpolant of the image continued periodically. The latter overshoots at edges
        and is not clipped: results can leave [0, 1].
    """
    if images.ndim != 4 or not jnp.issubdtype(images.dtype, jnp.floating):
        raise ValueError(
            "images must have shape (batch, height, width, channels) and a floating dtype, got "
            f"{images.dtype} of shape {images.shape}"
        )
    _, height, width, _ = images.shape
    rows, columns = (interpolation_matrix(size, factor, method).astype(images.dtype) for size in (height, width))
    if factor == 1:
        return jnp.asarray(images)
    fine = jnp.einsum("ij,bjwc->biwc", rows, images, precision="highest")
    return jnp.einsum("ij,bhjc->bhic", columns, fine, precision="highest")


def interpolation_matrix(size: int, factor: int, method: str) -> Float[np.ndarray, "fine size"]:
    """Matrix from values at ``size`` pixel centres to values at ``factor * size``, float64; see :func:`upsampled`."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if isinstance(factor, bool) or not isinstance(factor, int) or factor < 1:
        raise ValueError(f"factor must be a whole number of at least 1, got {factor!r}")
    if factor == 1:
        return np.eye(size)
    return _bilinear(size, factor) if method == "bilinear" else _trigonometric(size, factor)


def _bilinear(size: int, factor: int) -> np.ndarray:
    position = np.clip((np.arange(factor * size) + 0.5) / factor - 0.5, 0, size - 1)
    return np.maximum(1 - np.abs(position[:, None] - np.arange(size)), 0)


def _trigonometric(size: int, factor: int) -> np.ndarray:
    """Spectra of the unit vectors, padded with zeros."""
    spectra = np.fft.rfft(np.eye(size), axis=0)
    # The first fine centre lies (1 / factor - 1) / 2 coarse pixels from the first coarse one.
    spectra *= np.exp(1j * np.pi * np.arange(len(spectra)) * (1 / factor - 1) / size)[:, None]
    if size % 2 == 0:
        spectra[-1] /= 2  # shared by the frequencies size / 2 and -size / 2, so that the interpolant is real
    return factor * np.fft.irfft(spectra, factor * size, axis=0)
