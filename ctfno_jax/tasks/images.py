"""Learning to classify images, and how far noise and attacks change the answers."""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jaxtyping import Array, Float, Int

from ctfno_jax import attacks
from ctfno_jax.certify_classifier import classifier_lipschitz, estimated_classifier_lipschitz
from ctfno_jax.config import ConfigError, ExperimentConfig, at_least, from_dict
from ctfno_jax.data import batching, images, problems
from ctfno_jax.data.images import ImageDataset, Images
from ctfno_jax.models import registry
from ctfno_jax.models.classifiers import FNOClassifier
from ctfno_jax.tasks import prediction
from ctfno_jax.training.in_parts import in_parts
from ctfno_jax.types import Key, Params

# Images that are evaluated in one call.
IMAGES_PER_CALL = 500
_LEVEL = 255.0
# Steps of the attacks, and of PGD also the step that reproduces the paper's columns, in grey levels.
_PGD_STEPS, _PGD_STEP, _APGD_STEPS = 10, 2.0, 50
_FACTORS = (2, 4, 8)


@dataclasses.dataclass(frozen=True)
class ImageSettings:
    """Settings of one training step, and of what a trained classifier is tested with."""

    batch_size: int = 256  # images per step, over all devices
    images_per_pass: int = 0  # images that a gradient is taken of at once: few fit the cache of a CPU; 0 for all
    noises: tuple[float, ...] = ()  # standard deviations of the noise on test images, in grey levels of 255
    epsilons: tuple[float, ...] = ()  # largest change of a pixel by an attack, in grey levels
    certified_radius: float = 0.0  # L2 radius within which labels are to be proven, pixels in [0, 1]
    margin_radius: float = 0.0  # L2 radius that training asks the certified margin to cover; 0 for plain training
    resolutions: bool = False  # test also on images with 2, 4 and 8 times the pixels per side
    attacked_images: int = 0  # first so many test images that are attacked, and resampled; 0 for all

    def __post_init__(self) -> None:
        at_least(self, batch_size=1, images_per_pass=0, attacked_images=0)
        if self.images_per_pass and self.batch_size % self.images_per_pass:
            raise ConfigError(f"images_per_pass={self.images_per_pass} must divide batch_size={self.batch_size}")
        for name in ("noises", "epsilons"):
            if any(not value > 0 for value in getattr(self, name)):
                raise ConfigError(f"{name} must be positive grey levels, got {getattr(self, name)}")
        for name in ("certified_radius", "margin_radius"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)}")


class ImageArrays(NamedTuple):
    """Images on the device."""

    images: Float[Array, "samples height width channels"]
    labels: Int[Array, " samples"]


class ImageTask:
    """Training and evaluation of a classifier.

    Attributes:
      data: the three sets of images; the test set may be None.
      model: a module ``images -> logits``.
      settings: what a step reads, and what tests are made.
    """

    kind = "images"
    metric = "validation_error"
    labels = (
        ("accuracy", "accuracy"),
        *((f"accuracy with noise {level:g}/255", f"gaussian_{level:g}") for level in (15, 20, 50, 100)),
        *(
            (f"accuracy under {label} {level:g}/255", f"{name}_{level:g}")
            for level in (2, 5, 30, 50)
            for name, label in (("fgsm", "FGSM"), ("pgd", "PGD"), ("apgd", "APGD"))
        ),
        ("certified accuracy", "certified_accuracy"),
    )

    def __init__(self, data: ImageDataset, model: nn.Module, settings: ImageSettings) -> None:
        check_settings(model, settings)
        self.data, self.model, self.settings = data, model, settings
        train = data.train
        if len(train) < settings.batch_size:
            raise ConfigError(f"batch_size={settings.batch_size} exceeds the {len(train)} training images; lower it")
        self.arrays = ImageArrays(jnp.asarray(train.images), jnp.asarray(train.labels))
        out = jax.eval_shape(model.init_with_output, jax.random.key(0), self.arrays.images[:1])[0]
        if out.shape[-1] != data.num_classes:
            raise ConfigError(
                f"{data.name} has {data.num_classes} classes, but the network answers {out.shape[-1]}; set num_classes"
            )

    @classmethod
    def from_config(
        cls, config: ExperimentConfig, *, data_dir: str | Path | None = None, parts: Sequence[str] = problems.PARTS,
        progress: Any = None,
    ) -> "ImageTask":  # fmt: skip
        """The task of a cell; settings that contradict each other are refused before data are read."""
        settings = from_dict(ImageSettings, config.settings, "settings")
        model = registry.build_model(config.network.network, **config.network.network_fields)
        check_settings(model, settings)
        del progress  # images are read, not made
        options: dict[str, Any] = dict(config.data.data_options)
        data = problems.load_dataset(
            config.dataset, parts=parts, data_dir=data_dir, seed=config.data.data_seed, **options
        )
        assert isinstance(data, ImageDataset)
        return cls(data, model, settings)

    # --- what training needs --------------------------------------------------------------------------------------

    def init(self, key: Key) -> Params:
        return jax.jit(self.model.init)(key, self.arrays.images[:1])

    def sample(self, arrays: ImageArrays, key: Key, step: Any, shard: Any, num_shards: int) -> ImageArrays:
        size = self.settings.batch_size
        if size % num_shards:
            raise ConfigError(
                f"batch_size={size} cannot be divided among {num_shards} devices; use a multiple of {num_shards}"
            )
        local = size // num_shards
        if local % (self.settings.images_per_pass or 1):
            raise ConfigError(
                f"images_per_pass={self.settings.images_per_pass} must divide the {local} images of each of "
                f"{num_shards} devices"
            )
        index = batching.epoch_indices(key, step, len(arrays.labels), size)
        index = jax.lax.dynamic_slice_in_dim(index, shard * local, local)
        return ImageArrays(arrays.images[index], arrays.labels[index])

    def loss(self, params: Params, batch: ImageArrays, key: Key) -> Any:
        del key
        size = self.settings.images_per_pass
        return in_parts(self._mean_loss, size)(params, batch) if size else self._mean_loss(params, batch)

    def _mean_loss(self, params: Params, batch: ImageArrays) -> Any:
        logits: Any = self.model.apply(params, batch.images)
        if self.settings.margin_radius:
            assert isinstance(self.model, FNOClassifier)
            bounds = estimated_classifier_lipschitz(self.model, params, self.data.train.shape)
            # What the logits of other classes may gain within the radius is added to them: a label that is right in
            # spite of it is proven right there.
            logits = logits + self.settings.margin_radius * bounds[batch.labels]
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch.labels))

    def describe(self) -> dict[str, Any]:
        return {**self.facts(), "model": registry.to_dict(self.model)}

    def facts(self) -> dict[str, Any]:
        """Facts about the training data that a predictor keeps, as JSON values."""
        shape = [int(n) for n in self.arrays.images.shape[1:]]
        return {
            "task": self.kind, "input_shape": shape, "image_shape": shape, "num_classes": self.data.num_classes,
            "title": self.data.name,
        }  # fmt: skip

    # --- evaluation -----------------------------------------------------------------------------------------------

    def evaluate(self, params: Params, split: str) -> dict[str, Any]:
        if split == "validation":
            some = self.data.validation
            accuracy = float(np.mean(self.answers(params, some) == some.labels))
            return {self.metric: 1 - accuracy, "validation_accuracy": accuracy}
        if self.data.test is None:
            raise ValueError("the test set was not loaded; this task evaluates on validation data only")
        return self._on_test(params, self.data.test)

    def answers(self, params: Params, some: Images) -> Int[np.ndarray, " count"]:
        """The class with the largest logit of every image."""
        return np.argmax(self.predict(params, some.images), axis=-1)

    def predict(self, params: Params, pixels: np.ndarray) -> Float[np.ndarray, "count classes"]:
        """Logits of images."""
        return prediction.in_pieces(functools.partial(self._apply, params), pixels, self._per_call)

    @property
    def _per_call(self) -> int:
        return self.settings.images_per_pass or IMAGES_PER_CALL

    @functools.cached_property
    def _apply(self) -> Callable[..., Any]:
        return jax.jit(self.model.apply)

    def _on_test(self, params: Params, test: Images) -> dict[str, Any]:
        start = time.perf_counter()
        logits = self.predict(params, test.images)
        right = np.argmax(logits, axis=-1) == test.labels
        scores: dict[str, Any] = {"accuracy": float(right.mean())}
        scores["evaluation_seconds"] = round(time.perf_counter() - start, 2)
        for level in self.settings.noises:
            noisy = attacks.gaussian_noise(jnp.asarray(test.images), jax.random.key(0), level / _LEVEL)
            found = np.argmax(self.predict(params, np.asarray(noisy)), axis=-1)
            scores[f"gaussian_{level:g}"] = float(np.mean(found == test.labels))
        some = test.select(slice(self.settings.attacked_images or len(test)))
        for level in self.settings.epsilons:
            scores.update(self._under_attack(params, some, level))
        if isinstance(self.model, FNOClassifier) and self.settings.certified_radius:
            bounds = classifier_lipschitz(self.model, params, test.shape)
            scores["certified_lipschitz"] = float(bounds.max())
            radius = self.settings.certified_radius
            labels = jnp.asarray(test.labels)
            proven = attacks.certified_accuracy(jnp.asarray(logits), labels, jnp.asarray(bounds), radius)
            scores["certified_accuracy"] = float(proven)
        for factor in _FACTORS if self.settings.resolutions else ():
            for method in images.METHODS:
                scores[f"accuracy_x{factor}_{method}"] = self._finer(params, some, factor, method)
        return scores

    def _under_attack(self, params: Params, some: Images, level: float) -> dict[str, float]:
        """Accuracy under each attack that changes pixels by so many grey levels.

        PGD starts from the image, as published; APGD anywhere in the ball, and is tried on what no other attack of this
        size has changed: its column is the accuracy under all of them.
        """
        logits, size = functools.partial(self._apply, params), level / _LEVEL
        pixels, labels = jnp.asarray(some.images), jnp.asarray(some.labels)
        alive = functools.partial(
            attacks.survivors, logits, pixels, labels, key=jax.random.key(1), batch_size=min(self._per_call, len(some))
        )
        left = {
            "fgsm": alive(functools.partial(attacks.fgsm, epsilon=size)),
            "pgd": alive(functools.partial(_pgd_from_image, epsilon=size, step_size=_PGD_STEP / _LEVEL)),
            "pgd_quarter": alive(functools.partial(_pgd_from_image, epsilon=size, step_size=size / 4)),
        }
        among = np.logical_and.reduce(list(left.values()))
        left["apgd"] = alive(functools.partial(attacks.apgd, epsilon=size, steps=_APGD_STEPS), among=among)
        return {f"{name}_{level:g}": float(np.mean(mask)) for name, mask in left.items()}

    def _finer(self, params: Params, test: Images, factor: int, method: str) -> float:
        """Accuracy on images with more pixels; few at once, as they are large."""
        right, piece = 0, max(1, IMAGES_PER_CALL // factor**2)
        for i in range(0, len(test), piece):
            some = test.select(slice(i, i + piece))
            fine = np.asarray(images.upsampled(some.images, factor, method))
            right += int(np.sum(np.argmax(self.predict(params, fine), axis=-1) == some.labels))
        return right / len(test)

    def figures(self, params: Params, split: str) -> Iterator[tuple[str, Any]]:
        """Name and figure of the first images with their classes."""
        from ctfno_jax.plotting import images as plots

        some = (self.data.validation if split == "validation" else self.data.test) or self.data.validation
        first = some.select(slice(24))
        yield (
            "images",
            plots.answers(first, self.answers(params, first), title=f"{self.data.name}, first {split} images"),
        )


def _pgd_from_image(logits: Any, pixels: Array, labels: Array, *, key: Any, epsilon: float, step_size: float) -> Array:
    del key
    return attacks.pgd(logits, pixels, labels, epsilon, steps=_PGD_STEPS, step_size=step_size)


def check_settings(model: nn.Module, settings: ImageSettings) -> None:
    """Raises for what follows from model and settings alone."""
    if settings.margin_radius and not isinstance(model, FNOClassifier):
        raise ConfigError(f"margin_radius needs a certificate, which {type(model).__name__} has not; remove it")
