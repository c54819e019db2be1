"""Balls in which attacks search, each cut off at the box [0, 1] of the pixels."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ctfno_jax.types import Key

# Of the projection in L2, which seldom needs more than three.
NUM_ITERATIONS = 8


class Ball(NamedTuple):
    """Projection, steepest step and random start in one norm, for one image.

    Attributes:
      steepest: the direction of unit norm along which a function with this gradient rises most; zero for zero.
      project: the nearest point in both the ball of radius epsilon around the image and the box, up to rounding.
      sample: a change that is uniform in the ball.
    """

    steepest: Callable[[Array], Array]
    project: Callable[[Array, Array, Array], Array]
    sample: Callable[[Key, Array, Array], Array]


def _normalized(direction: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    largest = jnp.max(jnp.abs(direction))
    # Squares of what is divided by its largest entry neither overflow nor vanish.
    scaled = direction / jnp.where(largest > 0, largest, 1)
    return scaled / jnp.maximum(jnp.sqrt(jnp.sum(scaled**2)), 1)


def _project_linf(
    point: Float[Array, "*shape"], image: Float[Array, "*shape"], epsilon: Float[Array, ""]
) -> Float[Array, "*shape"]:
    # Clipping to the box does not leave the ball: it moves no pixel away from the image, which is in the box.
    return jnp.clip(image + jnp.clip(point - image, -epsilon, epsilon), 0, 1)


def _project_l2(
    point: Float[Array, "*shape"], image: Float[Array, "*shape"], epsilon: Float[Array, ""]
) -> Float[Array, "*shape"]:
    """``clip(image + t change)`` with the largest t up to one for which it is in the ball.

    The nearest point has this form, with the Lagrange multiplier ``1 / t - 1`` of the ball. Scaling to the ball and
    clipping after that stays in the ball too, but where pixels are at their limits it wastes part of the radius, the
    more the longer the step, and attacks get weaker.

    The norm grows with t, more slowly after each pixel that has met its limit. For t below the solution, the pixels
    that have met theirs also do so at the solution. With these fixed and the others free, the ball allows a t that is
    not smaller, and not above the solution. So t rises towards it, and wherever it stops, the point is in the ball.
    """
    change = point - image
    room = jnp.clip(point, 0, 1) - image

    def grow(_: Array, t: Array) -> Array:
        clipped = t * jnp.abs(change) >= jnp.abs(room)
        left = jnp.maximum(epsilon**2 - jnp.sum(jnp.where(clipped, room, 0) ** 2), 0)
        free = jnp.sum(jnp.where(clipped, 0, change) ** 2)
        return jnp.where(free > left, jnp.sqrt(left / jnp.where(free > 0, free, 1)), 1)

    t = jax.lax.fori_loop(0, NUM_ITERATIONS, grow, jnp.zeros((), change.dtype))
    return jnp.clip(image + t * change, 0, 1)


def _sample_linf(key: Key, like: Float[Array, "*shape"], epsilon: Float[Array, ""]) -> Float[Array, "*shape"]:
    return epsilon * jax.random.uniform(key, like.shape, like.dtype, -1, 1)


def _sample_l2(key: Key, like: Float[Array, "*shape"], epsilon: Float[Array, ""]) -> Float[Array, "*shape"]:
    direction_key, radius_key = jax.random.split(key)
    # The share of the volume within r of the centre is r^n.
    radius = jax.random.uniform(radius_key, (), like.dtype) ** (1 / like.size)
    return epsilon * radius * _normalized(jax.random.normal(direction_key, like.shape, like.dtype))


BALLS = {
    "linf": Ball(steepest=jnp.sign, project=_project_linf, sample=_sample_linf),
    "l2": Ball(steepest=_normalized, project=_project_l2, sample=_sample_l2),
}
