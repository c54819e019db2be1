"""Runs programs side by side, each on its share of the cores, with one progress line for all and one for each."""

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ctfno_jax import files
from ctfno_jax.config import ConfigError
from ctfno_jax.training import loop
from ctfno_jax.training.progress import duration, write_line
from experiments import host

_STEP = re.compile(r"step +(\d+)/(\d+)")
# Seconds between two looks at the jobs.
_PAUSE = 1.0


@dataclasses.dataclass(frozen=True)
class Work:
    """A program to run.

    Attributes:
      name: short, for progress lines.
      arguments: its command line.
      log: file that gets what it prints.
      minutes: that it may take.
      environment: its environment variables.
    """

    name: str
    arguments: Sequence[str]
    log: Path
    minutes: float
    environment: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Failure:
    """A program that ended with an error: its exit code, and the last line it printed."""

    work: Work
    code: int
    line: str


@dataclasses.dataclass
class Job:
    """A program that is running."""

    work: Work
    process: subprocess.Popen
    cores: set[int]
    started: float

    def progress(self) -> str:
        """Name, last step in the log, and elapsed time."""
        log = self.work.log
        steps = _STEP.findall(log.read_text(errors="replace")[-4000:]) if log.exists() else []
        where = f"step {steps[-1][0]}/{steps[-1][1]}" if steps else "starting"
        return f"{self.work.name}: {where}, {duration(time.monotonic() - self.started)}"


def shares(cores: list[int], jobs: int) -> list[set[int]]:
    """The cores of each job: as equal parts as possible, at least one core each."""
    if jobs > len(cores):
        raise ConfigError(f"--jobs={jobs} exceeds the {len(cores)} usable cores; give each job at least one")
    return [set(cores[i * len(cores) // jobs : (i + 1) * len(cores) // jobs]) for i in range(jobs)]


def start(work: Work, cores: set[int]) -> Job:
    """A job on its own cores, in a session of its own: an interruption of this program does not reach it."""
    files.make_directory(work.log.parent)
    environment = {**work.environment, "CTFNO_CORES": ",".join(map(str, sorted(cores)))}
    with work.log.open("w") as stream:
        process = subprocess.Popen(
            work.arguments, stdout=stream, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    return Job(work, process, cores, time.monotonic())


def run(
    todo: Sequence[Work], jobs: int, what: str = "cells", ended: Callable[[Work, Failure | None], None] | None = None
) -> list[Failure]:
    """Runs everything; returns what failed.

    Args:
      todo: what to run, in this order.
      jobs: how many at once.
      what: name of the items in progress lines.
      ended: called after each program, with its failure if it has one.
    """
    waiting, running, failed, done = list(todo), [], [], 0
    free = shares(host.cores(), jobs)
    with _sigterm_as_interrupt():
        try:
            while waiting or running:
                while waiting and free:
                    running.append(start(waiting.pop(0), free.pop(0)))
                time.sleep(_PAUSE)
                for job in [job for job in running if job.process.poll() is not None]:
                    running.remove(job)
                    free.append(job.cores)
                    done += 1
                    code = job.process.returncode
                    failure = Failure(job.work, code, _last_line(job.work.log)) if code else None
                    failed += [failure] if failure else []
                    if ended is not None:
                        ended(job.work, failure)
                    _say(f"{'failed' if failure else 'done'}: {job.progress()}")
                left = duration(_seconds_left(waiting, running) / jobs)
                _show(f"{done}/{len(todo)} {what}, about {left} left", running)
        except KeyboardInterrupt:
            _say(f"stopping {len(running)} job(s), which save their states; a second signal kills them")
            raise loop.Interrupted(f"stopped after {done} of {len(todo)} {what}; the same command continues") from None
        finally:
            stop(running)
    return failed


def _seconds_left(waiting: list[Work], running: list[Job]) -> float:
    """Seconds that all jobs would take one after the other, by their budgets."""
    left = [60 * job.work.minutes - (time.monotonic() - job.started) for job in running]
    return sum(60 * work.minutes for work in waiting) + sum(max(0.0, seconds) for seconds in left)


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, as SIGINT does, so that the jobs are stopped too."""

    def handler(number: int, frame: Any) -> None:
        del number, frame
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def stop(running: list[Job]) -> None:
    """Asks the jobs to save and end, and waits for them; an interruption while waiting kills them."""
    left = [job for job in running if job.process.poll() is None]
    for job in left:
        os.killpg(job.process.pid, signal.SIGTERM)
    try:
        for job in left:
            job.process.wait()
    except KeyboardInterrupt:
        for job in left:
            if job.process.poll() is None:
                os.killpg(job.process.pid, signal.SIGKILL)
        raise


_shown = 0


def _show(total: str, running: list[Job]) -> None:
    """One line for everything and one per job, rewritten in place on a terminal; nothing elsewhere."""
    global _shown
    if not sys.stdout.isatty():
        return
    if _shown:
        sys.stdout.write(f"\033[{_shown}A")
    for text in [total, *(f"  {job.progress()}" for job in running)]:
        write_line(sys.stdout, text, last=True)
    sys.stdout.write("\033[J")
    _shown = 1 + len(running)


def _say(text: str) -> None:
    """A line that stays."""
    global _shown
    if sys.stdout.isatty() and _shown:
        sys.stdout.write(f"\033[{_shown}A\033[J")
        _shown = 0
    print(text, flush=True)


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
