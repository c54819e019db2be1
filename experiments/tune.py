"""Tries settings of a cell on validation data, for a part of its steps; test data are never made.

python -m experiments.tune --dataset=heat --model=fno_2d --trial=learning_rate=3e-4 --trial="learning_rate=3e-3 depth=2"

Trials use data of their own (``--data_seed=0``), so that the rows of a table are of data on which nothing was chosen.
A trial that names no steps has a quarter of the cell's. Results are kept in ``results/trials``, one file per cell, and
printed best first; a trial that is there already is not run again.
"""

import dataclasses
import hashlib
import json
import math
import shlex
import sys
from pathlib import Path
from typing import Any

from absl import flags

from ctfno_jax import files
from ctfno_jax.config import ConfigError, parse
from ctfno_jax.training.workdir import read_json
from experiments import catalog, configs, jobs, program, reproduce, table_lines, tables
from experiments.cells import Cell

FLAGS = flags.FLAGS


def trial(dataset: str, model: str, text: str, seed: int, fraction: float) -> Cell:
    """The cell of a trial, with all settings it changes.

    Args:
      dataset: the data set.
      model: the model.
      text: settings as ``name=value``, with spaces between; empty for those of the preset.
      seed: of the run.
      fraction: of the cell's steps, for a trial that names none.
    """
    base = Cell(configs.experiment(dataset), dataset, model, seed=seed)
    config = base.config()
    types = configs.setting_types(config.network.network, config.task)
    given: dict[str, Any] = {"data_seed": 0}
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        if not equals or name not in types:
            raise ConfigError(f"a trial of {model} on {dataset} is name=value with its settings, got {word!r}")
        given[name] = parse(name, value, types[name])
    call = given.get("steps_per_call", config.train.steps_per_call)
    given.setdefault("steps", max(1, round(fraction * config.train.steps / call)) * call)
    made = dataclasses.replace(base, overrides=given)
    made.config()  # a setting that the cell cannot have is an error before anything is run
    return made


def digest(cell: Cell) -> str:
    """Tells trials apart by their whole config: the settings that a trial does not name may change."""
    text = json.dumps(cell.config().to_dict(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def path(cell: Cell, results_dir: str | Path) -> Path:
    """File of the trials of a cell."""
    return Path(results_dir) / "trials" / f"{cell.dataset}-{cell.model}.json"


def folder(cell: Cell) -> Path:
    """Folder of a trial's run."""
    return Path(FLAGS.runs) / "trials" / f"{cell.dataset}-{cell.model}-{digest(cell)}"


def work(cell: Cell) -> jobs.Work:
    """The job of a trial."""
    made = [*shlex.split(cell.command)[1:], f"--workdir={folder(cell)}", "--evaluate=validation", "--resume"]
    if FLAGS.data_dir and reproduce.is_record(cell.dataset):
        made.append(f"--data_dir={FLAGS.data_dir}")
    config = cell.config().train
    default = dataclasses.replace(cell, overrides={})
    return jobs.Work(
        name=f"{cell.model} {settings(cell)}",
        arguments=[sys.executable, *made],
        log=Path(FLAGS.runs) / "logs" / f"{folder(cell).name}.log",
        minutes=catalog.minutes(default) * config.steps / default.config().train.steps,
        environment=reproduce.environment(cell.dataset),
    )


def settings(cell: Cell) -> str:
    """The rate of a trial and the settings it changes, without its steps and data seed."""
    changed = {name: value for name, value in cell.overrides.items() if name not in ("steps", "data_seed")}
    # The rate is always named: that of the cell may change later.
    named = {"learning_rate": cell.config().optimizer.learning_rate, **changed}
    words = shlex.split(dataclasses.replace(cell, overrides=named).command)[5:]
    return " ".join(word.removeprefix("--") for word in words if not word.startswith("--seed="))


def entry(cell: Cell, failure: jobs.Failure | None) -> dict[str, Any]:
    """Record of a trial; one that diverged has no error."""
    known = {"settings": settings(cell), "seed": cell.seed, "steps": cell.overrides["steps"], "config": digest(cell)}
    if failure is not None:
        return {**known, "validation": None, "failure": failure.line}
    row = read_json(folder(cell) / "result.json", "remove the folder and run the trial again")
    metric = configs.TASKS[row["config"]["task"]].metric
    return {
        **known, "validation": row["metrics"][metric], "num_params": row["num_params"],
        "cpu_seconds": row["cpu_seconds"], "commit": row["commit"],
    }  # fmt: skip


def report(trials: list[dict[str, Any]]) -> str:
    """The trials as a table, best first."""
    lines = [["settings", "seed", "steps", "CPU s", "validation"]]
    for item in table_lines.by_error(trials):
        error = "diverged" if item["validation"] is None else f"{item['validation']:.4e}"
        lines.append([
            item["settings"], str(item["seed"]), str(item["steps"]), f"{item.get('cpu_seconds', math.nan):.0f}", error
        ])  # fmt: skip
    return tables.layout(lines, "text")


def main() -> None:
    wanted = [
        trial(FLAGS.dataset, FLAGS.model, text, seed, FLAGS.fraction) for seed in FLAGS.seeds for text in FLAGS.trial
    ]
    file = path(wanted[0], FLAGS.results_dir)
    there = {item["config"] for item in table_lines.read_trials(file)}
    todo = [cell for cell in wanted if digest(cell) not in there]
    by_log = {work(cell).log: cell for cell in todo}

    def keep(made: jobs.Work, failure: jobs.Failure | None) -> None:
        """Records a trial as soon as it ends: the others may be stopped."""
        if failure is None or failure.code == program.DIVERGED:
            record = entry(by_log[made.log], failure)
            files.write_json(file, {"trials": [*table_lines.read_trials(file), record]})

    failed = jobs.run([work(cell) for cell in todo], FLAGS.jobs, "trials", keep)
    lost = [f"{failure.work.name} ({failure.line})" for failure in failed if failure.code != program.DIVERGED]
    chosen = {digest(cell) for cell in wanted}
    print(report([item for item in table_lines.read_trials(file) if item["config"] in chosen]))
    if lost:
        raise ConfigError(f"{len(lost)} of {len(todo)} trials failed: {'; '.join(lost)}")


def define_flags() -> None:
    """Flags of this program."""
    flags.DEFINE_enum("dataset", "heat", configs.DATASETS, "data set")
    flags.DEFINE_string("model", "ctfno", "model")
    flags.DEFINE_multi_string("trial", [""], "settings to try, as 'name=value name=value'; may be repeated")
    flags.DEFINE_multi_integer("seeds", [0], "seeds of every trial")
    flags.DEFINE_float("fraction", 0.25, "part of the cell's steps", lower_bound=0.0, upper_bound=1.0)
    flags.DEFINE_integer("jobs", 1, "trials that are run at once, each on its share of the cores", lower_bound=1)
    flags.DEFINE_string("results_dir", "results", "where trials are kept")
    flags.DEFINE_string("runs", "runs", "where the runs and their logs are kept")
    flags.DEFINE_string("data_dir", None, "folder with raw data, for the data sets that need it")


if __name__ == "__main__":
    define_flags()
    program.run(main, __doc__ or "")
