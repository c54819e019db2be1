"""The loop: compiled calls of many steps, with evaluation, checkpoints and logging as hooks between them."""

import dataclasses
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from ctfno_jax.config import TrainConfig
from ctfno_jax.training.step import MultiStep, TrainState
from ctfno_jax.training.task import Buckets
from ctfno_jax.types import Params


class TrainingDiverged(RuntimeError):
    """The loss stopped being finite."""


class Interrupted(RuntimeError):
    """A signal asked the run to stop; the hooks have seen its last state."""


@dataclasses.dataclass(frozen=True)
class Report:
    """State of the loop after one compiled call.

    Attributes:
      step: updates made so far.
      num_steps: updates in the whole run.
      loss: mean training loss of the call.
      steps_per_second: of this call alone.
      train_seconds: wall time spent in steps so far, including that of an interrupted part of the run.
      cpu_seconds: CPU time of the process since the loop began, including that of an interrupted part.
      metrics: validation metrics if this call ended with an evaluation, else None.
      stopping: the run was asked to stop; this is the last report.
    """

    step: int
    num_steps: int
    loss: float
    steps_per_second: float
    train_seconds: float
    cpu_seconds: float
    metrics: dict[str, float] | None
    stopping: bool = False

    @property
    def seconds_left(self) -> float:
        return (self.num_steps - self.step) / max(self.steps_per_second, 1e-9)


@dataclasses.dataclass(frozen=True)
class Spent:
    """Wall and CPU seconds that an interrupted part of a run took."""

    train_seconds: float = 0.0
    cpu_seconds: float = 0.0


Hook = Callable[[TrainState, Report], None]
Evaluate = Callable[[Params], dict[str, float]]


def fit(
    states: list[TrainState],
    multi_step: MultiStep,
    arrays: Any,
    *,
    config: TrainConfig,
    evaluate_fn: Evaluate,
    hooks: Sequence[Sequence[Hook]],
    spent: Spent = Spent(),
) -> list[TrainState]:
    """Trains runs that stand at the same step until ``config.steps`` updates are made.

    Args:
      states: to start from, one for each run; consumed.
      multi_step: makes ``config.steps_per_call`` steps of all runs.
      arrays: training data.
      config: lengths.
      evaluate_fn: parameters to metrics.
      hooks: for each run, called after every call, in order.
      spent: seconds already spent. Those of several runs are divided by their number.

    Returns:
      The states after the last update.

    Raises:
      TrainingDiverged: if a loss or a validation error is not finite. Hooks do not see the states of that call, so no
        checkpoint of it is made.
      Interrupted: if SIGINT or SIGTERM arrived; the hooks have seen the states of the last call.
    """
    steps = {int(state.step) for state in states}
    if len(steps) != 1:
        raise ValueError(f"all runs must stand at the same step, got {sorted(steps)}")
    (done,) = steps
    train_seconds, cpu_start = spent.train_seconds, time.process_time()
    with _stop_requests() as stop_requested:
        while done < config.steps:
            start = time.perf_counter()
            data = arrays.at_call(done // config.steps_per_call) if isinstance(arrays, Buckets) else arrays
            states, losses = multi_step(states, data)
            losses = [np.asarray(some).reshape(-1) for some in jax.block_until_ready(losses)]
            seconds = (time.perf_counter() - start) / len(states)
            for some in losses:
                _check_losses(some, done)
            done += config.steps_per_call
            train_seconds += seconds
            due = done % config.eval_every == 0 or done >= config.steps
            metrics = [evaluate_fn(state.evaluation_params) if due else None for state in states]
            for some in metrics:
                _check_metrics(some, done)
            # Read once: a state must be saved before the run may stop at it.
            stopping = stop_requested() and done < config.steps
            cpu_seconds = spent.cpu_seconds + (time.process_time() - cpu_start) / len(states)
            for state, loss, found, followers in zip(states, losses, metrics, hooks, strict=True):
                report = Report(
                    done, config.steps, float(loss.mean()), config.steps_per_call / seconds, train_seconds, cpu_seconds,
                    found, stopping,
                )  # fmt: skip
                for hook in followers:
                    hook(state, report)
            if stopping:
                raise Interrupted(f"stopped at step {done} of {config.steps}")
    return states


@contextmanager
def _stop_requests() -> Iterator[Callable[[], bool]]:
    """Turns the first SIGINT or SIGTERM into a request; the second raises KeyboardInterrupt. Main thread only."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def handler(number: int, frame: Any) -> None:
        del frame
        if received:
            raise KeyboardInterrupt
        received.append(number)
        # Not print: the signal may have interrupted one.
        os.write(2, b"\nstopping after the current steps; a second signal stops without saving\n")

    previous = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


def _check_losses(losses: np.ndarray, done: int) -> None:
    bad = np.flatnonzero(~np.isfinite(losses))
    if bad.size:
        raise TrainingDiverged(
            f"the loss became {losses[bad[0]]} at step {done + int(bad[0]) + 1}; earlier checkpoints are kept; "
            "try a smaller learning_rate or clip_norm"
        )


def _check_metrics(metrics: dict[str, float] | None, done: int) -> None:
    if metrics is not None and not all(math.isfinite(value) for value in metrics.values()):
        raise TrainingDiverged(
            f"the validation error is {metrics} after step {done}; earlier checkpoints are kept; try a smaller "
            "learning_rate or clip_norm"
        )
