"""Images that tensorflow-datasets has downloaded and prepared, as arrays.

Its preparation of images needs TensorFlow, once; reading them afterwards does not.
"""

from pathlib import Path
from typing import Any

import numpy as np

from ctfno_jax.data import cache
from ctfno_jax.data.images import Bytes, Published


def read(
    published: Published,
    data_dir: str | Path | None = None,
    *,
    with_test: bool = True,
    progress: cache.Progress | None = None,
) -> tuple[Bytes, Bytes | None, str]:
    """Training images, test images or None, and the name of the data set with its version.

    Args:
      published: facts about the data set; its name is the same in tensorflow-datasets.
      data_dir: folder of the prepared data; None for that of tensorflow-datasets, ``TFDS_DATA_DIR``.
      with_test: read the test images.
      progress: called with the numbers of read and of all images.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ValueError("source=tfds needs the data extra: pip install -e '.[data]'") from error
    builder = tfds.builder(published.name, data_dir=data_dir, file_format="array_record")
    return read_builder(builder, published, with_test=with_test, progress=progress)


def read_builder(
    builder: Any, published: Published, *, with_test: bool = True, progress: cache.Progress | None = None
) -> tuple[Bytes, Bytes | None, str]:
    """As :func:`read`, from a builder of tensorflow-datasets."""
    name = published.name
    try:
        builder.download_and_prepare()
    except ImportError as error:
        raise ValueError(
            f"source=tfds cannot prepare {name}: {error}; install it for the preparation, or read the official files"
        ) from error
    except OSError as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"source=tfds cannot download {name} ({reason}); check the network, or read the official files"
        ) from error
    counts = {"train": published.num_train} | ({"test": published.num_test} if with_test else {})
    found: dict[str, Bytes] = {}
    for part in counts:
        found[part] = _arrays(builder.as_data_source(split=part), published)
        if progress is not None:
            progress(sum(len(labels) for _, labels in found.values()), sum(counts.values()))
    return found["train"], found.get("test"), f"tensorflow-datasets {builder.info.full_name}"


def _arrays(source: Any, published: Published) -> Bytes:
    count = len(source)
    images, labels = np.zeros((count, *published.shape), np.uint8), np.zeros(count, np.uint8)
    for i in range(count):
        example = source[i]
        image = np.asarray(example["image"])
        if image.shape != published.shape or image.dtype != np.uint8:
            raise ValueError(
                f"images of {published.name} by source=tfds must be uint8 of shape {published.shape}, got "
                f"{image.dtype} of shape {image.shape}; prepare them again"
            )
        images[i], labels[i] = image, example["label"]
    return images, labels
