"""Accuracy under attack."""

import operator
from typing import Protocol

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

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


def survivors(
    logits: problems.Logits,
    images: Float[Array, "count *shape"],
    labels: Int[Array, " count"],
    attack: Attack,
    *,
    among: Bool[np.ndarray, " count"] | None = None,
    batch_size: int = 256,
    key: Key | None = None,
) -> Bool[np.ndarray, " count"]:
    """Mask of the images that are classified right before and after the attack.

    The worse of the two answers counts for each image. Logits that are no numbers are a wrong answer. Images that are
    wrong as they are need no attack, so a weak classifier takes less time.

    Args:
      logits: the classifier.
      images: ``(count, *shape)``, any number, pixels in [0, 1].
      labels: ``(count,)``, the true classes.
      attack: called as ``attack(logits, images, labels, key=key)``, such as ``functools.partial(pgd, epsilon=0.03)``.
      among: images that may survive, such as those that survived another attack; None for all.
      batch_size: images per call, compiled once; the last batch is filled up with copies that do not count.
      key: for random attacks, folded with the number of each batch; None gives None to the attack.
    """
    if operator.index(batch_size) < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    images, labels = arguments.checked_images(images), arguments.checked_labels(labels, len(images))
    count = len(images)
    if among is not None and np.shape(among) != (count,):
        raise ValueError(f"among must have shape ({count},), one truth value for each image, got {np.shape(among)}")
    size = min(batch_size, count)
    arguments.check_range(labels, arguments.num_classes(logits, images[:size]))

    @jax.jit
    def right(images: Array, labels: Array, key: Key | None) -> Array:
        del key
        return ~problems.misclassified(logits(images), labels)

    @jax.jit
    def right_after(images: Array, labels: Array, key: Key | None) -> Array:
        attacked = attack(logits, images, labels, key=key)
        if attacked.shape != images.shape:
            raise ValueError(f"attack must return images of shape {images.shape}, got {attacked.shape}")
        return right(attacked, labels, None)

    alive = np.ones(count, bool) if among is None else np.array(among, bool)
    for test in (right, right_after):
        candidates = np.flatnonzero(alive)
        for number, first in enumerate(range(0, len(candidates), size)):
            rows = candidates[np.minimum(np.arange(first, first + size), len(candidates) - 1)]
            batch_key = None if key is None else jax.random.fold_in(key, number)
            answers = np.asarray(test(images[rows], labels[rows], batch_key))[: len(candidates) - first]
            alive[rows[: len(answers)]] = answers
    return alive


def robust_accuracy(
    logits: problems.Logits,
    images: Float[Array, "count *shape"],
    labels: Int[Array, " count"],
    attack: Attack,
    *,
    batch_size: int = 256,
    key: Key | None = None,
) -> float:
    """Share of images that are classified right both as they are and after the attack; see :func:`survivors`.

    No attack gives more than the clean accuracy.
    """
    return float(np.mean(survivors(logits, images, labels, attack, batch_size=batch_size, key=key)))
