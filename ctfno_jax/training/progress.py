"""Progress lines: rewritten in place on a terminal, one line per evaluation elsewhere."""

import shutil
import sys
import time
from typing import TextIO

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


def write_line(stream: TextIO, text: str, *, last: bool) -> None:
    """A line that replaces the one before it on a terminal, cut to the terminal's width; a plain line elsewhere."""
    if not stream.isatty():
        stream.write(text + "\n")
    else:
        # The last column stays free: some terminals wrap when it is filled.
        width = shutil.get_terminal_size((80, 24)).columns - 1
        stream.write("\r\033[K" + text[:width] + ("\n" if last else ""))
    stream.flush()


class ProgressLine:
    """A training hook that prints step, loss, validation error, speed and time left."""

    def __init__(self, metric: str, stream: TextIO | None = None) -> None:
        self._metric = metric
        self._stream = stream or sys.stdout
        self._validation: float | None = None

    def __call__(self, state: TrainState, report: Report) -> None:
        del state
        if report.metrics is not None:
            self._validation = report.metrics[self._metric]
        last = report.step >= report.num_steps or report.stopping
        if self._stream.isatty() or report.metrics is not None:
            write_line(self._stream, self.line(report), last=last)

    def line(self, report: Report) -> str:
        """The text, at most 79 characters for runs of up to 99,999 steps and ten hours."""
        validation = "-" if self._validation is None else f"{self._validation:.2e}"
        return (
            f"step {report.step:>6}/{report.num_steps}  loss {report.loss:.2e}  validation {validation}  "
            f"{report.steps_per_second:.3g} steps/s  {duration(report.seconds_left)} left"
        )


class GenerationLine:
    """Tells how many samples are generated or read and how long the rest takes; silent if all are in the cache."""

    def __init__(self, name: str, stream: TextIO | None = None) -> None:
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
        line = f"{self._name}: {ready}/{wanted} samples ready   {left}".rstrip()
        write_line(self._stream, line, last=ready >= wanted)
