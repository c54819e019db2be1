"""Auto-PGD: an attack whose steps adapt to its progress."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ctfno_jax.attacks import arguments, problems
from ctfno_jax.types import Key

MOMENTUM = 0.75  # alpha: weight of the new step against the one before
PROGRESS = 0.75  # rho: share of steps that must raise the loss


class _Ascent(NamedTuple):
    """State of Auto-PGD, for each image.

    Attributes:
      current: the point that is moved.
      previous: the one before.
      best: of the largest loss so far, where the ascent goes on after a step size was halved.
      strongest: the result, for which misclassified points come first.
      step_size: of the next step.
      rises: number of steps since the last checkpoint that raised the loss.
      halved: whether the step size was halved at the last checkpoint.
      checked_loss: best loss at the last checkpoint.
    """

    current: problems.Evaluation
    previous: Float[Array, "batch *shape"]
    best: problems.Evaluation
    strongest: problems.Evaluation
    step_size: Float[Array, " batch"]
    rises: Int[Array, " batch"]
    halved: Bool[Array, " batch"]
    checked_loss: Float[Array, " batch"]


def _first(problem: problems.Problem, start: problems.Evaluation) -> _Ascent:
    return _Ascent(
        current=start,
        previous=start.points,
        best=start,
        strongest=start,
        step_size=2 * problem.epsilon,
        rises=jnp.zeros(len(start.loss), jnp.int32),
        halved=jnp.zeros(len(start.loss), bool),
        checked_loss=start.loss,
    )


def _advanced(problem: problems.Problem, state: _Ascent, keep: Float[Array, ""]) -> _Ascent:
    """After one step; ``keep`` is the weight of the step before."""
    x = state.current.points
    z = problem.step(x, state.current.gradient, state.step_size)
    new = problem.climb(problem.project(x + (1 - keep) * (z - x) + keep * (x - state.previous)))
    old = state.strongest
    stronger = jnp.where(new.wrong == old.wrong, new.loss > old.loss, new.wrong)
    return state._replace(
        current=new,
        previous=x,
        best=_choose(new.loss > state.best.loss, new, state.best),
        strongest=_choose(stronger, new, old),
        rises=state.rises + (new.loss > state.current.loss),
    )


def _adapted(state: _Ascent, window: Int[Array, ""]) -> _Ascent:
    """After a checkpoint, ``window`` steps after the last one."""
    stuck = ~state.halved & (state.best.loss == state.checked_loss)
    halve = (state.rises < PROGRESS * window) | stuck
    return state._replace(
        current=_choose(halve, state.best, state.current),
        step_size=jnp.where(halve, state.step_size / 2, state.step_size),
        rises=jnp.zeros_like(state.rises),
        halved=halve,
        checked_loss=state.best.loss,
    )


def _choose(first: Bool[Array, " batch"], a: problems.Evaluation, b: problems.Evaluation) -> problems.Evaluation:
    """``a`` for the images where ``first`` is true, otherwise ``b``."""
    return jax.tree.map(lambda p, q: jnp.where(problems.per_image(first, p), p, q), a, b)


def _windows(steps: int) -> Int[np.ndarray, " steps"]:
    """After each step, the number of steps since the last checkpoint if there is one here, otherwise zero.

    Checkpoints follow the 22nd of a hundred steps, and then at distances that are shorter by three each time, down to
    six.
    """
    percent, distance, checkpoints = 0, 22, [0]
    while percent + distance <= 100:
        percent += distance
        distance = max(distance - 3, 6)
        checkpoints.append(-(-percent * steps // 100))
    windows = np.zeros(steps, np.int32)
    for last, here in itertools.pairwise(checkpoints):
        if here > last:
            windows[here - 1] = here - last
    return windows


def apgd(
    logits: problems.Logits,
    images: Float[Array, "batch *shape"],
    labels: Int[Array, " batch"],
    epsilon: float | Float[Array, "*batch"],
    *,
    steps: int = 50,
    norm: str = "linf",
    key: Key | None = None,
) -> Float[Array, "batch *shape"]:
    """Strongest point that Auto-PGD on the cross-entropy finds: gradient ascent with momentum and adapted steps.

    Each image has a step size of its own, at first ``2 epsilon``. At checkpoints it is halved, and the ascent goes on
    from the best point, if fewer than three quarters of the steps since the last checkpoint have raised the loss, or if
    neither step size nor best loss have changed since then. A misclassified point is stronger than any that is
    classified right; among equals, that of the larger loss.

    Args:
      logits: the classifier.
      images: ``(batch, *shape)``, pixels in [0, 1].
      labels: ``(batch,)``, the true classes.
      epsilon: radius of the ball, one number or one for each image.
      steps: number of steps, which is one less than the number of gradients.
      norm: of the ball and of the steps, ``"linf"`` or ``"l2"``.
      key: of a random start, uniform in the ball; None to start at the image.

    Reference:
      Croce, Hein: Reliable evaluation of adversarial robustness with an ensemble of diverse parameter-free attacks
      (2020), algorithm 1.
    """
    problem = problems.build(logits, images, labels, epsilon, norm)
    steps = arguments.checked_steps(steps)
    # The first step has no direction to keep.
    keep = np.where(np.arange(steps) == 0, 0.0, 1 - MOMENTUM).astype(problem.images.dtype)

    def advance(state: _Ascent, step: tuple[Array, Array]) -> tuple[_Ascent, None]:
        keep, window = step
        state = _advanced(problem, state, keep)
        return jax.lax.cond(window > 0, lambda s: _adapted(s, window), lambda s: s, state), None

    first = problem.climb(problem.start(key))
    return jax.lax.scan(advance, _first(problem, first), (jnp.asarray(keep), jnp.asarray(_windows(steps))))[
        0
    ].strongest.points
