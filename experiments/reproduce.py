"""Runs the missing cells of a table, several at once: ``python -m experiments.reproduce --table=pde --jobs=2``.

Each job has its share of the cores. Finished cells leave a row in ``--results_dir`` and are skipped; unfinished ones
continue from their last checkpoint, so the command can be stopped and started at any time. The table is printed at the
end.

``--seeds_at_once`` trains the second and further seeds of a cell together. Small networks leave most of a core unused:
five seeds of CTFNO on plane vibration take little longer than one. Large networks only take more memory.
"""

import math
import os
import shlex
import sys
from pathlib import Path

from absl import flags

from ctfno_jax.config import ConfigError
from ctfno_jax.data import problems
from experiments import catalog, configs, jobs, program, tables
from experiments.cells import Cell

FLAGS = flags.FLAGS


def missing(table: str, results_dir: str | Path, num_seeds: int) -> list[Cell]:
    """The cells of a table that have no row yet: first one seed of every cell, then the others."""
    return [cell for cell in catalog.cells(table, num_seeds) if not cell.row_path(results_dir).exists()]


def workdir(cell: Cell, runs: str | Path) -> Path:
    """The folder of a cell's run; cells with overrides have one of their own."""
    variant = "-".join(filter(None, ["" if cell.preset == "default" else cell.preset, cell.variant]))
    return Path(runs) / cell.experiment / cell.dataset / cell.model / variant / f"seed{cell.seed}"


def trained(cell: Cell, runs: str | Path) -> Path:
    """Folder of a cell's run; where that is missing, of its run with the least other seed."""
    folder = workdir(cell, runs)
    seeds = [int(path.name.removeprefix("seed")) for path in folder.parent.glob("seed[0-9]*")]
    return folder if folder.is_dir() or not seeds else folder.with_name(f"seed{min(seeds)}")


def grouped(todo: list[Cell]) -> list[list[Cell]]:
    """Cells that one job can train: they differ in their seeds only, and these follow each other.

    The first seed is trained alone, so that its CPU seconds are those of a single run.
    """
    groups: list[list[Cell]] = []
    latest: dict[Path, list[Cell]] = {}
    for cell in todo:
        key = workdir(cell, "").parent
        if key in latest and 0 < latest[key][-1].seed == cell.seed - 1:
            latest[key].append(cell)
        else:
            latest[key] = [cell]
            groups.append(latest[key])
    return groups


def arguments(cell: Cell, folder: Path) -> list[str]:
    """The command line of a job: that of the cell, with its folder, resumed if it has begun."""
    made = shlex.split(cell.command)[1:]
    made += [f"--workdir={folder}", f"--results_dir={FLAGS.results_dir}", "--resume"]
    if FLAGS.data_dir and is_record(cell.dataset):
        made.append(f"--data_dir={FLAGS.data_dir}")
    return [sys.executable, *made]


def is_record(dataset: str) -> bool:
    """The data set is read from a file that cannot be generated."""
    problem = problems.problem(dataset)
    return not isinstance(problem, problems.FieldProblem) and not problem.generated


def environment(dataset: str) -> dict[str, str]:
    """Environment of a job: a folder with data reaches only records, as rows of equations are of generated data."""
    kept = dict(os.environ)
    if not is_record(dataset):
        kept.pop("CTFNO_DATA_DIR", None)
    return kept


def work(cells: list[Cell]) -> jobs.Work:
    """The job that makes the rows of cells that differ in their seeds only."""
    first, folder = cells[0], workdir(cells[0], FLAGS.runs)
    seeds, several = f"seed {first.seed}", []
    if len(cells) > 1:
        seeds, several, folder = f"seeds {first.seed}-{cells[-1].seed}", [f"--num_seeds={len(cells)}"], folder.parent
    return jobs.Work(
        name=" ".join(filter(None, [first.dataset, first.model, first.variant, seeds])),
        arguments=[*arguments(first, folder), *several],
        log=Path(FLAGS.runs) / "logs" / f"{first.row_path('.').stem}.log",
        minutes=sum(map(catalog.minutes, cells)),
        environment=environment(first.dataset),
    )


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
    for dataset in {cell.dataset for cell in todo if is_record(cell.dataset)}:
        problems.data_file(dataset, FLAGS.data_dir)  # a missing file is an error before anything is trained
    groups = grouped(todo) if FLAGS.seeds_at_once else [[cell] for cell in todo]
    failed = jobs.run([work(group) for group in groups], FLAGS.jobs) if groups else []
    for table in tables_wanted:
        print("\n" + tables.render(table, FLAGS.results_dir, "text"))
    if failed:
        text = "; ".join(f"{failure.work.name} ({failure.line})" for failure in failed)
        raise ConfigError(f"{len(failed)} of {len(groups)} jobs failed: {text}")


def define_flags() -> None:
    """Flags of this program."""
    flags.DEFINE_enum("table", "pde", (*catalog.TABLES, "all"), "which table")
    flags.DEFINE_integer("jobs", 1, "cells that are trained at once, each on its share of the cores", lower_bound=1)
    flags.DEFINE_integer("num_seeds", 3, "seeds of the cells that have several", lower_bound=1)
    flags.DEFINE_boolean("seeds_at_once", False, "train the second and further seeds of a cell in one job")
    flags.DEFINE_list("dataset", [], "only cells of these data sets")
    flags.DEFINE_boolean("dry_run", False, "list the missing cells and their minutes")
    flags.DEFINE_string("results_dir", "results", "where rows are kept and looked for")
    flags.DEFINE_string("runs", "runs", "where the runs and their logs are kept")
    flags.DEFINE_string("data_dir", None, "folder with raw data, for the data sets that need it")


if __name__ == "__main__":
    define_flags()
    program.run(main, __doc__ or "")
