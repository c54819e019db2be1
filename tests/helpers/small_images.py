"""Images of a size for tests, and tasks on them."""

from typing import Any

import numpy as np

from ctfno_jax.data.images import ImageDataset, Images
from ctfno_jax.models import registry
from ctfno_jax.tasks.images import ImageSettings, ImageTask

SHAPE = (9, 8, 1)
NETWORKS: dict[str, dict[str, Any]] = {
    "fno_classifier": {"width": 4, "modes": [2, 2], "depth": 1, "num_blocks": 2},
    "cnn": {"width": 3, "kernels": [3]},
    "image_anode": {"width": 3, "augmented": 1, "solver": "euler", "stepping": "constant", "step_size": 0.5},
}


def some(count: int, seed: int = 0) -> Images:
    """Noise around a grey level that tells the class: dark, middle or bright."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count).astype(np.int32)
    pixels = 0.2 + 0.3 * labels[:, None, None, None] + rng.uniform(-0.1, 0.1, (count, *SHAPE))
    return Images(pixels.astype(np.float32), labels)


def dataset(**changes: Any) -> ImageDataset:
    """Forty training images of three classes."""
    fields: dict[str, Any] = {
        "name": "grey", "train": some(40), "validation": some(12, seed=1), "test": some(11, seed=2), "num_classes": 3,
        "info": {"train": 40.0}, "source": "made by hand",
    }  # fmt: skip
    return ImageDataset(**{**fields, **changes})


def task(name: str = "fno_classifier", *, data: ImageDataset | None = None, **settings: Any) -> ImageTask:
    """The task of the small network of that name."""
    model = registry.build_model(name, num_classes=3, **NETWORKS[name])
    return ImageTask(data or dataset(), model, ImageSettings(**{"batch_size": 8, **settings}))
