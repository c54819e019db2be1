"""Attacks by steps of fixed length along the gradient."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ctfno_jax.attacks import arguments, problems
from ctfno_jax.types import Key


def fgsm(
    logits: problems.Logits,
    images: Float[Array, "batch *shape"],
    labels: Int[Array, " batch"],
    epsilon: float | Float[Array, "*batch"],
    *,
    norm: str = "linf",
    key: Key | None = None,
) -> Float[Array, "batch *shape"]:
    """Images after one step of length epsilon along the gradient, clipped to [0, 1].

    Args:
      logits: the classifier.
      images: ``(batch, *shape)``, pixels in [0, 1].
      labels: ``(batch,)``, the true classes.
      epsilon: radius of the ball, one number or one for each image.
      norm: ``"linf"``, a step along the signs of the gradient, or ``"l2"``, along the gradient itself.
      key: not used; for :func:`robust_accuracy`, which gives one to every attack.

    Reference:
      Goodfellow, Shlens, Szegedy: Explaining and harnessing adversarial examples (2015).
    """
    del key
    problem = problems.build(logits, images, labels, epsilon, norm)
    return problem.step(problem.images, problem.climb(problem.images).gradient, problem.epsilon)


def pgd(
    logits: problems.Logits,
    images: Float[Array, "batch *shape"],
    labels: Int[Array, " batch"],
    epsilon: float | Float[Array, "*batch"],
    *,
    steps: int = 10,
    step_size: float | None = None,
    norm: str = "linf",
    key: Key | None = None,
) -> Float[Array, "batch *shape"]:
    """Images after projected gradient ascent: the last point, as in the common protocol, not the best one.

    Args:
      logits: the classifier.
      images: ``(batch, *shape)``, pixels in [0, 1].
      labels: ``(batch,)``, the true classes.
      epsilon: radius of the ball, one number or one for each image.
      steps: number of steps.
      step_size: length of a step; None for a quarter of epsilon.
      norm: of the ball and of the steps, ``"linf"`` or ``"l2"``.
      key: of a random start, uniform in the ball; None to start at the image.

    Reference:
      Madry, Makelov, Schmidt, Tsipras, Vladu: Towards deep learning models resistant to adversarial attacks (2018).
    """
    problem = problems.build(logits, images, labels, epsilon, norm)
    steps = arguments.checked_steps(steps)
    if step_size is None:
        size = problem.epsilon / 4
    else:
        arguments.check_not_negative("step_size", step_size, "leave it out for a quarter of epsilon")
        size = jnp.full_like(problem.epsilon, step_size)

    def advance(_: Array, points: Array) -> Array:
        return problem.step(points, problem.climb(points).gradient, size)

    return jax.lax.fori_loop(0, steps, advance, problem.start(key))
