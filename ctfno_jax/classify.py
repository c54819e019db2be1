"""A trained classifier as a function: images in, classes out, with a radius within which the answer is proven."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Float, Int

from ctfno_jax import attacks
from ctfno_jax.certify_classifier import classifier_lipschitz
from ctfno_jax.models import registry
from ctfno_jax.predict import load_run
from ctfno_jax.tasks import prediction
from ctfno_jax.tasks.images import IMAGES_PER_CALL
from ctfno_jax.training import checkpoint, run
from ctfno_jax.types import Params


class Classifier:
    """Callable ``images -> classes``, as :func:`load_classifier` returns it.

    Attributes:
      model: the module.
      params: its variables.
      description: JSON values about the run: size and classes of its images, its title.
    """

    def __init__(self, model: nn.Module, params: Params, description: dict[str, Any]) -> None:
        self.model, self.params, self.description = model, params, description
        self._apply = jax.jit(model.apply)

    def __repr__(self) -> str:
        d = self.description
        return f"Classifier({type(self.model).__name__}, {d['title']}, {d['num_classes']} classes)"

    def __call__(self, images: Any) -> Int[np.ndarray, " batch"]:
        """The class with the largest logit of each image ``(batch, height, width, channels)``, pixels in [0, 1]."""
        return np.argmax(self.logits(images), axis=-1)

    def logits(self, images: Any) -> Float[np.ndarray, "batch classes"]:
        """Logits of all classes."""
        apply = functools.partial(self._apply, self.params)
        return prediction.in_pieces(apply, self._checked(images), IMAGES_PER_CALL)

    def certified_radius(self, images: Any) -> Float[np.ndarray, " batch"]:
        """L2 radius around each image within which the answer provably does not change."""
        images = self._checked(images)
        bounds = self._lipschitz(images.shape[1:])
        return np.asarray(attacks.certified_radius(jnp.asarray(self.logits(images)), jnp.asarray(bounds)))

    @functools.lru_cache(maxsize=8)  # noqa: B019
    def _lipschitz(self, image_shape: tuple[int, int, int]) -> np.ndarray:
        return classifier_lipschitz(self.model, self.params, image_shape)  # type: ignore[arg-type]

    def _checked(self, images: Any) -> np.ndarray:
        images = np.asarray(images)
        channels = self.description["image_shape"][-1]
        if images.ndim != 4 or images.shape[-1] != channels or images.size == 0:
            raise ValueError(f"images must have shape (batch, height, width, {channels}), got {images.shape}")
        if images.dtype.kind != "f":
            raise ValueError(f"images must hold pixels in [0, 1] as floats, got dtype {images.dtype}; divide by 255")
        if not (np.all(np.isfinite(images)) and images.min() >= 0 and images.max() <= 1):
            raise ValueError(f"pixels must lie in [0, 1], got values from {images.min():g} to {images.max():g}")
        return images.astype(np.float32)


def load_classifier(workdir: str | Path) -> Classifier:
    """The best state of a run on images, from what the run saved and nothing else."""
    return load_run(workdir, _from_checkpoint)


def _from_checkpoint(best: checkpoint.Checkpoint) -> Classifier:
    description = best.description
    if description["task"] != "images":
        raise checkpoint.CheckpointError(f"the run is one on {description['title']}; read it by load_predictor")
    model = registry.from_dict(description["model"])
    like = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, *description["input_shape"])))
    return Classifier(model, jax.tree.map(jnp.asarray, run.best_params(best, like)), description)
