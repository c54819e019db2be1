"""The progress line: rewritten in place on a terminal, one line per evaluation elsewhere."""

import sys
import time

from ctfno_jax.training.loop import Report
from ctfno_jax.training.step import TrainState


def duration(seconds: float) -> str:
    """``8s``, ``3m05s`` or ``2h10m``."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"


class ProgressLine:
    """A training hook that prints step, loss, validation error, speed and time left."""

    def __init__(self, stream=None) -> None:
        self._stream = stream or sys.stdout
        self._live = self._stream.isatty()
        self._validation: float | None = None

    def __call__(self, state: TrainState, report: Report) -> None:
        del state
        if report.metrics is not None:
            self._validation = report.metrics["validation_rmse"]
        if not self._live and report.metrics is None:
            return
        line = self.line(report)
        end = "\n" if not self._live or report.step >= report.num_steps else ""
        self._stream.write(("\r\033[K" if self._live else "") + line + end)
        self._stream.flush()

    def line(self, report: Report) -> str:
        validation = "-" if self._validation is None else f"{self._validation:.3e}"
        return (
            f"step {report.step:>6}/{report.num_steps}   loss {report.loss:.3e}   validation {validation}   "
            f"{report.steps_per_second:.1f} steps/s   {duration(report.seconds_left)} left"
        )


class GenerationLine:
    """Tells how far a data set is generated and how long it will take; silent while nothing has to be made."""

    def __init__(self, name: str, stream=None) -> None:
        self._name = name
        self._stream = stream or sys.stdout
        self._last: tuple[float, int] | None = None
        self._seconds_per_sample = 0.0

    def __call__(self, ready: int, wanted: int) -> None:
        now = time.perf_counter()
        if self._last is not None and ready > self._last[1]:
            self._seconds_per_sample = (now - self._last[0]) / (ready - self._last[1])
        self._last = (now, ready)
        left = duration(self._seconds_per_sample * (wanted - ready)) + " left" if self._seconds_per_sample else ""
        line = f"{self._name}: generated {ready}/{wanted} trajectories   {left}".rstrip()
        live = self._stream.isatty()
        end = "\n" if not live or ready >= wanted else ""
        self._stream.write(("\r\033[K" if live else "") + line + end)
        self._stream.flush()
