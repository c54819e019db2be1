"""Runs the missing cells of a table, several at once: ``python -m experiments.reproduce --table=pde --jobs=2``.

Each job has its share of the cores. Finished cells leave a row in ``--results_dir`` and are skipped; unfinished ones
continue from their last checkpoint, so the command can be stopped and started at any time. The table is printed at the
end.
"""

import contextlib
import dataclasses
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import flags

from ctfno_jax import files
from ctfno_jax.config import ConfigError
from ctfno_jax.data import problems
from ctfno_jax.training import loop
from ctfno_jax.training.progress import duration, write_line
from experiments import catalog, configs, host, program, tables
from experiments.cells import Cell

FLAGS = flags.FLAGS

_STEP = re.compile(r"step +(\d+)/(\d+)")
# Seconds between two looks at the jobs.
_PAUSE = 1.0


@dataclasses.dataclass
class Job:
    """A cell that is being trained, in a process of its own."""

    cell: Cell
    process: subprocess.Popen
    log: Path
    cores: set[int]
    started: float

    def progress(self) -> str:
        """What its log says last."""
        steps = _STEP.findall(self.log.read_text(errors="replace")[-4000:]) if self.log.exists() else []
        where = f"step {steps[-1][0]}/{steps[-1][1]}" if steps else "starting"
        return f"{name(self.cell)}: {where}, {duration(time.monotonic() - self.started)}"


def name(cell: Cell) -> str:
    """A short name of a cell for progress lines."""
    return " ".join(filter(None, [cell.dataset, cell.model, cell.variant, f"seed {cell.seed}"]))


def missing(table: str, results_dir: str | Path, num_seeds: int) -> list[Cell]:
    """The cells of a table that have no row yet: first one seed of every cell, then the others."""
    return [cell for cell in catalog.cells(table, num_seeds) if not cell.row_path(results_dir).exists()]


def workdir(cell: Cell, runs: str | Path) -> Path:
    """The folder of a cell's run; cells with overrides have one of their own."""
    variant = "-".join(filter(None, ["" if cell.preset == "default" else cell.preset, cell.variant]))
    return Path(runs) / cell.experiment / cell.dataset / cell.model / variant / f"seed{cell.seed}"


def arguments(cell: Cell, folder: Path) -> list[str]:
    """The command line of a job: that of the cell, with its folder, resumed if it has begun."""
    made = shlex.split(cell.command)[1:]
    made += [f"--workdir={folder}", f"--results_dir={FLAGS.results_dir}", "--resume"]
    if FLAGS.data_dir and _is_record(cell.dataset):
        made.append(f"--data_dir={FLAGS.data_dir}")
    return [sys.executable, *made]


def _is_record(dataset: str) -> bool:
    """The data set is read from a file that cannot be generated."""
    problem = problems.problem(dataset)
    return isinstance(problem, problems.SeriesProblem) and not problem.generated


def shares(cores: list[int], jobs: int) -> list[set[int]]:
    """The cores of each job: as equal parts as possible, at least one core each."""
    if jobs > len(cores):
        raise ConfigError(f"--jobs={jobs} exceeds the {len(cores)} usable cores; give each job at least one")
    return [set(cores[i * len(cores) // jobs : (i + 1) * len(cores) // jobs]) for i in range(jobs)]


def start(cell: Cell, cores: set[int]) -> Job:
    """A job on its own cores, in a session of its own: an interruption of this program does not reach it."""
    folder = workdir(cell, FLAGS.runs)
    log = Path(FLAGS.runs) / "logs" / f"{cell.row_path('.').stem}.log"
    files.make_directory(log.parent)
    environment = {**os.environ, "CTFNO_CORES": ",".join(map(str, sorted(cores)))}
    if not _is_record(cell.dataset):
        environment.pop("CTFNO_DATA_DIR", None)  # rows of equations are of generated data
    with log.open("w") as stream:
        process = subprocess.Popen(
            arguments(cell, folder), stdout=stream, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    return Job(cell, process, log, cores, time.monotonic())


def run(todo: list[Cell], jobs: int) -> list[tuple[Cell, str]]:
    """Runs all cells; returns those that failed with the last line of their logs."""
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
                    if job.process.returncode:
                        failed.append((job.cell, _last_line(job.log)))
                    _say(f"{'failed' if job.process.returncode else 'done'}: {job.progress()}")
                _show(
                    f"{done}/{len(todo)} cells, about {duration(_seconds_left(waiting, running) / jobs)} left", running
                )
        except KeyboardInterrupt:
            _say(f"stopping {len(running)} job(s), which save their states; a second signal kills them")
            raise loop.Interrupted(f"stopped after {done} of {len(todo)} cells; the same command continues") from None
        finally:
            stop(running)
    return failed


def _seconds_left(waiting: list[Cell], running: list[Job]) -> float:
    """Seconds that all jobs would take one after the other, by the budgets of their cells."""
    left = [60 * catalog.minutes(job.cell) - (time.monotonic() - job.started) for job in running]
    return sum(60 * catalog.minutes(cell) for cell in waiting) + sum(max(0.0, seconds) for seconds in left)


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
    """One line for the table and one per job, rewritten in place on a terminal; nothing elsewhere."""
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


def plan(todo: list[Cell]) -> str:
    """The cells and their minutes."""
    lines = [f"{catalog.minutes(cell):>6.0f} min  {cell.command}" for cell in todo]
    total = sum(catalog.minutes(cell) for cell in todo)
    return "\n".join(
        [*lines, f"{len(todo)} cells, {total:.0f} minutes of one core; {math.ceil(total / FLAGS.jobs)} now"]
    )


def main() -> None:
    tables_wanted = catalog.TABLES if FLAGS.table == "all" else (FLAGS.table,)
    todo = [cell for table in tables_wanted for cell in missing(table, FLAGS.results_dir, FLAGS.num_seeds)]
    todo = list({cell.command: cell for cell in todo}.values())
    for dataset in FLAGS.dataset:
        configs.table(dataset)  # an unknown name is an error that lists the known ones
    if FLAGS.dataset:
        todo = [cell for cell in todo if cell.dataset in FLAGS.dataset]
    todo.sort(key=lambda cell: cell.seed)
    if FLAGS.dry_run:
        print(plan(todo))
        return
    for dataset in {cell.dataset for cell in todo if _is_record(cell.dataset)}:
        problems.data_file(dataset, FLAGS.data_dir)  # a missing file is an error before anything is trained
    failed = run(todo, FLAGS.jobs) if todo else []
    for table in tables_wanted:
        print("\n" + tables.render(table, FLAGS.results_dir, "text"))
    if failed:
        text = "; ".join(f"{name(cell)} ({line})" for cell, line in failed)
        raise ConfigError(f"{len(failed)} of {len(todo)} cells failed: {text}")


def define_flags() -> None:
    """Flags of this program."""
    flags.DEFINE_enum("table", "pde", (*catalog.TABLES, "all"), "which table")
    flags.DEFINE_integer("jobs", 1, "cells that are trained at once, each on its share of the cores", lower_bound=1)
    flags.DEFINE_integer("num_seeds", 3, "seeds of the cells that have several", lower_bound=1)
    flags.DEFINE_list("dataset", [], "only cells of these data sets")
    flags.DEFINE_boolean("dry_run", False, "list the missing cells and their minutes")
    flags.DEFINE_string("results_dir", "results", "where rows are kept and looked for")
    flags.DEFINE_string("runs", "runs", "where the runs and their logs are kept")
    flags.DEFINE_string("data_dir", None, "folder with raw data, for the data sets that need it")


if __name__ == "__main__":
    define_flags()
    program.run(main, __doc__ or "")
