"""Radius within which no attack on a classifier can succeed, from a Lipschitz constant."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ctfno_jax.attacks import arguments


def certified_radius(
    values: Float[Array, "batch classes"], lipschitz: float | Float[Array, "..."]
) -> Float[Array, " batch"]:
    """For each image, a radius within which the predicted class provably does not change.

    If ``|| f(x) - f(z) ||_2 <= L || x - z ||`` for the logits f, the difference of two logits changes by at most
    ``sqrt(2) L || x - z ||``. So the class stays the same nearer than the margin over the second largest logit divided
    by ``sqrt(2) L``. With a constant ``L_ij`` for each difference ``f_i - f_j``, it does nearer than
    ``min_j (f_i - f_j) / L_ij`` for the predicted class i, which is never less.

    The radius is in the norm of images in which the constants hold. From L2, divide by the square root of the number of
    pixels for linf. The proof is for exact arithmetic, without rounding errors.

    Args:
      values: logits of the images, ``(batch, classes)``.
      lipschitz: one constant, or ``(classes, classes)``; its diagonal is not read.
    """
    values, constants = arguments.checked_values(values), arguments.checked_lipschitz(lipschitz, jnp.shape(values)[1])
    predicted = jnp.argmax(values, axis=-1)
    margins = jnp.take_along_axis(values, predicted[:, None], axis=-1) - values
    radii = jnp.where(margins > 0, margins / constants[predicted], 0)  # a tie has none, whatever the constant
    is_other = predicted[:, None] != jnp.arange(values.shape[1])
    return jnp.min(jnp.where(is_other, radii, jnp.inf), axis=-1)


def certified_accuracy(
    values: Float[Array, "batch classes"],
    labels: Int[Array, " batch"],
    lipschitz: float | Float[Array, "..."],
    radius: float,
) -> Float[Array, ""]:
    """Share of images that are classified right and provably stay so under every change of norm at most ``radius``."""
    arguments.check_not_negative("radius", radius, "give the norm of the changes to certify against")
    values = arguments.checked_values(values)
    labels = arguments.checked_labels(labels, len(values))
    arguments.check_range(labels, values.shape[1])
    right = jnp.argmax(values, axis=-1) == labels
    # At the certified radius itself, two logits may be equal.
    return jnp.mean(right & (certified_radius(values, lipschitz) > radius))
