"""The loop: compiled calls of many steps, with evaluation, checkpoints and logging as hooks between them."""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ctfno_jax.training.sharding import MultiStep
from ctfno_jax.training.step import TrainState
from ctfno_jax.types import Params


class TrainingDiverged(RuntimeError):
    """The loss stopped being finite."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What the loop knows after one compiled call.

    Attributes:
      step: updates made so far.
      num_steps: updates in the whole run.
      loss: mean training loss of the call.
      steps_per_second: of this call alone, evaluation and compilation of earlier ones excluded.
      train_seconds: spent in steps so far, including what an interrupted part of the run spent.
      metrics: of the validation set if this call ended with an evaluation, else None.
    """

    step: int
    num_steps: int
    loss: float
    steps_per_second: float
    train_seconds: float
    metrics: dict[str, float] | None

    @property
    def seconds_left(self) -> float:
        return (self.num_steps - self.step) / max(self.steps_per_second, 1e-9)


Hook = Callable[[TrainState, Report], None]
Evaluate = Callable[[Params], dict[str, float]]


def fit(
    state: TrainState,
    multi_step: MultiStep,
    data: Any,
    *,
    num_steps: int,
    steps_per_call: int,
    eval_every: int,
    evaluate_fn: Evaluate,
    hooks: Sequence[Hook] = (),
    train_seconds: float = 0.0,
) -> TrainState:
    """Trains until ``num_steps`` updates are made, from wherever ``state`` stands.

    Args:
      state: to start from; consumed.
      multi_step: makes ``steps_per_call`` steps.
      data: handed to ``multi_step``.
      num_steps: updates in the whole run.
      steps_per_call: updates per call.
      eval_every: updates between evaluations, a multiple of ``steps_per_call``; the last step is always evaluated.
      evaluate_fn: parameters to metrics.
      hooks: called after every call, in order.
      train_seconds: already spent.

    Returns:
      The state after the last update.

    Raises:
      TrainingDiverged: if a loss is not finite. Hooks do not see that state, so no checkpoint of it is made.
    """
    return fit_together(
        [state], lambda states, d: _in_list(multi_step(states[0], d)), data, num_steps=num_steps,
        steps_per_call=steps_per_call, eval_every=eval_every, evaluate_fn=evaluate_fn, hooks=[hooks],
        train_seconds=train_seconds,
    )[0]  # fmt: skip


def _in_list(result: tuple[TrainState, Any]) -> tuple[list[TrainState], list[Any]]:
    state, losses = result
    return [state], [losses]


def fit_together(
    states: list[TrainState],
    multi_step: Callable[[list[TrainState], Any], tuple[list[TrainState], list[Any]]],
    data: Any,
    *,
    num_steps: int,
    steps_per_call: int,
    eval_every: int,
    evaluate_fn: Evaluate,
    hooks: Sequence[Sequence[Hook]],
    train_seconds: float = 0.0,
) -> list[TrainState]:
    """The same for several runs on one data set, each with hooks of its own; all stand at the same step.

    ``multi_step`` makes the steps of all of them. Seconds are those of all runs divided by their number.
    """
    steps = {int(state.step) for state in states}
    if len(steps) != 1:
        raise ValueError(f"all runs must stand at the same step, got {sorted(steps)}")
    (done,) = steps
    while done < num_steps:
        start = time.perf_counter()
        states, losses = multi_step(states, data)
        losses = [np.asarray(some).reshape(-1) for some in jax.block_until_ready(losses)]
        seconds = (time.perf_counter() - start) / len(states)
        for some in losses:
            _check_losses(some, done)
        done += steps_per_call
        train_seconds += seconds
        due = done % eval_every == 0 or done >= num_steps
        for state, some, followers in zip(states, losses, hooks, strict=True):
            metrics = evaluate_fn(state.evaluation_params) if due else None
            _check_metrics(metrics, done)
            report = Report(done, num_steps, float(some.mean()), steps_per_call / seconds, train_seconds, metrics)
            for hook in followers:
                hook(state, report)
    return states


def _check_losses(losses: np.ndarray, done: int) -> None:
    bad = np.flatnonzero(~np.isfinite(losses))
    if bad.size:
        raise TrainingDiverged(
            f"the loss became {losses[bad[0]]} at step {done + int(bad[0]) + 1}; the last good checkpoint is kept. "
            "Try a smaller learning_rate or clip_norm"
        )


def _check_metrics(metrics: dict[str, float] | None, done: int) -> None:
    if metrics is not None and not all(math.isfinite(value) for value in metrics.values()):
        raise TrainingDiverged(f"the validation error is {metrics} after step {done}; the last good checkpoint is kept")
