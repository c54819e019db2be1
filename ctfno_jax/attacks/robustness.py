"""Accuracy under attack."""

import operator
from typing import Protocol

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from ctfno_jax.attacks import arguments, problems
from ctfno_jax.types import Key


class Attack(Protocol):
    """Attacked images, from a classifier, images, labels and a key that a deterministic attack ignores."""

    def __call__(
        self,
        logits: problems.Logits,
        images: Float[Array, "batch *shape"],
        labels: Int[Array, " batch"],
        /,
        *,
        key: Key | None,
    ) -> Float[Array, "batch *shape"]: ...


def robust_accuracy(
    logits: problems.Logits,
    images: Float[Array, "count *shape"],
    labels: Int[Array, " count"],
    attack: Attack,
    *,
    batch_size: int = 256,
    key: Key | None = None,
) -> float:
    """Share of images that are classified right both as they are and after the attack.

    The worse of the two answers counts for each image, so no attack gives more than the clean accuracy. Logits that are
    no numbers are a wrong answer.

    Args:
      logits: the classifier.
      images: ``(count, *shape)``, any number, pixels in [0, 1].
      labels: ``(count,)``, the true classes.
      attack: called as ``attack(logits, images, labels, key=key)``, such as ``functools.partial(pgd, epsilon=0.03)``.
      batch_size: images per call, compiled once; the last batch is filled up with copies that do not count.
      key: for random attacks, folded with the index of the first image of each batch; None gives None to the attack.
    """
    if operator.index(batch_size) < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    images, labels = arguments.checked_images(images), arguments.checked_labels(labels, len(images))
    count = len(images)
    size = min(batch_size, count)
    arguments.check_range(labels, arguments.num_classes(logits, images[:size]))

    @jax.jit
    def survives(images: Array, labels: Array, key: Key | None) -> Array:
        attacked = attack(logits, images, labels, key=key)
        if attacked.shape != images.shape:
            raise ValueError(f"attack must return images of shape {images.shape}, got {attacked.shape}")
        return ~(problems.misclassified(logits(images), labels) | problems.misclassified(logits(attacked), labels))

    survivors = 0
    for first in range(0, count, size):
        rows = np.minimum(np.arange(first, first + size), count - 1)
        batch_key = None if key is None else jax.random.fold_in(key, first)
        survivors += int(np.sum(survives(images[rows], labels[rows], batch_key)[: count - first]))
    return survivors / count
