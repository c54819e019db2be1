"""The function that an attack maximises, and the set it searches."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ctfno_jax.attacks import arguments, balls
from ctfno_jax.types import Key

# Images to logits. The result is Any because Flax types it as such.
Logits = Callable[[Float[Array, "batch *shape"]], Any]


class Evaluation(NamedTuple):
    """Points, the loss there with its gradient, and whether they are misclassified.

    The loss is ``log sum_{j != y} exp(logit_j) - logit_y``, of which the cross-entropy is the softplus.
    """

    points: Float[Array, "batch *shape"]
    loss: Float[Array, " batch"]
    gradient: Float[Array, "batch *shape"]
    wrong: Bool[Array, " batch"]


class Problem(NamedTuple):
    """A classifier, images with labels, and the ball around each."""

    logits: Logits
    images: Float[Array, "batch *shape"]
    labels: Int[Array, " batch"]
    epsilon: Float[Array, " batch"]
    ball: balls.Ball

    def climb(self, points: Float[Array, "batch *shape"]) -> Evaluation:
        """Loss and gradient at some points; entries of a gradient that are no numbers count as zero."""

        def total(points: Array) -> tuple[Array, tuple[Array, Array]]:
            values = self.logits(points)
            values = values.astype(jnp.promote_types(values.dtype, jnp.float32))
            is_label = self.labels[:, None] == jnp.arange(values.shape[1])
            others = jax.nn.logsumexp(jnp.where(is_label, -jnp.inf, values), axis=-1)
            loss = others - jnp.sum(jnp.where(is_label, values, 0), axis=-1)
            return jnp.sum(loss), (loss, misclassified(values, self.labels))

        gradient, (loss, wrong) = jax.grad(total, has_aux=True)(points)
        # Comparisons with NaN are false: it must not stand as the best loss.
        loss = jnp.where(jnp.isnan(loss), -jnp.inf, loss)
        return Evaluation(points, loss, jnp.where(jnp.isfinite(gradient), gradient, 0), wrong)

    def step(
        self, points: Float[Array, "batch *shape"], gradient: Float[Array, "batch *shape"], size: Float[Array, " batch"]
    ) -> Float[Array, "batch *shape"]:
        """Points of ball and box after a step of some length along the gradient."""
        return self.project(points + per_image(size, points) * jax.vmap(self.ball.steepest)(gradient))

    def project(self, points: Float[Array, "batch *shape"]) -> Float[Array, "batch *shape"]:
        """The nearest points in ball and box."""
        return jax.vmap(self.ball.project)(points, self.images, self.epsilon)

    def start(self, key: Key | None) -> Float[Array, "batch *shape"]:
        """The images, or with a key, random points around them."""
        if key is None:
            return self.images
        keys = jax.random.split(key, len(self.images))
        return self.project(self.images + jax.vmap(self.ball.sample)(keys, self.images, self.epsilon))


def build(logits: Logits, images: Any, labels: Any, epsilon: Any, norm: str) -> Problem:
    """The checked arguments that all attacks have."""
    if norm not in balls.BALLS:
        raise ValueError(f"norm must be one of {', '.join(balls.BALLS)}, got {norm!r}")
    images = arguments.checked_images(images)
    labels = arguments.checked_labels(labels, len(images))
    arguments.check_range(labels, arguments.num_classes(logits, images))
    arguments.check_not_negative(
        "epsilon", epsilon, "give the radius of the ball in units of pixels in [0, 1], such as 8 / 255"
    )
    if jnp.shape(epsilon) not in ((), (len(images),)):
        raise ValueError(
            f"epsilon must be one number or have shape ({len(images)},), one for each image, got {jnp.shape(epsilon)}"
        )
    radii = jnp.broadcast_to(jnp.asarray(epsilon, images.dtype), (len(images),))
    return Problem(logits, images, labels, radii, balls.BALLS[norm])


def per_image(values: Array, images: Array) -> Array:
    """``(batch,)`` values with as many axes as the images."""
    return values.reshape(-1, *[1] * (images.ndim - 1))


def misclassified(values: Float[Array, "batch classes"], labels: Int[Array, " batch"]) -> Bool[Array, " batch"]:
    """True where the largest logit is not that of the label, or a logit is no number."""
    return (jnp.argmax(values, axis=-1) != labels) | jnp.any(jnp.isnan(values), axis=-1)
