"""One cell of a table: its name, its config, the command that makes it, and the run itself."""

import dataclasses
import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
from absl import flags

from ctfno_jax import files, results
from ctfno_jax.config import ConfigError, ExperimentConfig, parse
from ctfno_jax.data import problems
from ctfno_jax.models.ctfno import num_parameters
from ctfno_jax.training import run as training
from ctfno_jax.training.progress import GenerationLine
from ctfno_jax.training.workdir import Workdir
from experiments import choose_bound, configs, paper_results, program

FLAGS = flags.FLAGS

# Characters of the overrides in a file name.
_LONGEST = 120


@dataclasses.dataclass(frozen=True)
class Cell:
    """Identity of a row.

    Attributes:
      experiment: the program that makes it: pde, synthetic or vibration.
      dataset: the data set.
      model: its name in the table.
      preset: settings to start from.
      seed: of the run.
      overrides: single settings that differ from the preset.
    """

    experiment: str
    dataset: str
    model: str
    preset: str = "default"
    seed: int = 0
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.command)

    def config(self, data_file: str = "") -> ExperimentConfig:
        """The whole resolved config."""
        return configs.cell(
            self.experiment, self.dataset, self.model, self.preset, self.seed, overrides=self.overrides,
            data_file=data_file,
        )  # fmt: skip

    @property
    def variant(self) -> str:
        """The overrides as a part of a file name; empty for a preset as it is."""
        text = ",".join(f"{name}={_text(value)}" for name, value in sorted(self.overrides.items()))
        safe = re.sub(r"[^A-Za-z0-9_.,=+-]", "_", text)
        if safe == text and len(text) <= _LONGEST:
            return text
        # What had to be cut or replaced is told apart by a digest.
        return f"{safe[:_LONGEST]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    @property
    def command(self) -> str:
        """The command that makes the row."""
        parts = [f"--dataset={self.dataset}", f"--model={self.model}", f"--seed={self.seed}"]
        if self.preset != "default":
            parts.append(f"--preset={self.preset}")
        for name, value in sorted(self.overrides.items()):
            if name == "data_options":
                parts += [f"--data_option={option}={json.dumps(v)}" for option, v in sorted(value.items())]
            else:
                parts.append(f"--{name}={_text(value)}")
        return f"python -m experiments.{self.experiment} " + " ".join(shlex.quote(part) for part in parts)

    @classmethod
    def from_command(cls, text: str) -> "Cell":
        """The cell that a command makes; ConfigError for what is no command of a training program."""
        words = shlex.split(text)
        if words[:2] != ["python", "-m"] or not words[2:] or not words[2].startswith("experiments."):
            raise ConfigError(f"a row is made by python -m experiments.<program>, got {text!r}")
        given: dict[str, str] = {}
        options: dict[str, Any] = {}
        for argument in words[3:]:
            name, _, value = argument.removeprefix("--").partition("=")
            if name == "data_option":
                option, _, v = value.partition("=")
                options[option] = json.loads(v)
            else:
                given[name] = value
        missing = [f"--{name}" for name in ("dataset", "model", "seed") if name not in given]
        if missing:
            raise ConfigError(f"the command of a row names {', '.join(missing)}, got {text!r}")
        dataset, model, preset = given.pop("dataset"), given.pop("model"), given.pop("preset", "default")
        seed = int(given.pop("seed"))
        types = configs.setting_types(
            configs.flat_settings(dataset, model, preset)["network"], problems.problem(dataset).kind
        )
        unknown = [f"--{name}" for name in given if name not in types]
        if unknown:
            raise ConfigError(f"{', '.join(unknown)} is no setting of {model} on {dataset}")
        overrides: dict[str, Any] = {name: parse(name, value, types[name]) for name, value in given.items()}
        if options:
            overrides["data_options"] = options
        return cls(words[2].removeprefix("experiments."), dataset, model, preset, seed, overrides)

    def row_path(self, results_dir: str | Path) -> Path:
        """File of the cell's row."""
        parts = [self.dataset, self.model, self.preset, self.variant, f"seed{self.seed}"]
        return Path(results_dir) / self.experiment / f"{'-'.join(filter(None, parts))}.json"

    @property
    def workdir(self) -> Path:
        """The folder of the run unless another is named."""
        return Path("runs") / self.experiment / self.dataset / self.model / f"seed{self.seed}"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "+".join(f"{k}:{_text(v)}" for k, v in sorted(value.items()))
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def main(experiment: str, summary: str) -> None:
    """A training program.

    Args:
      experiment: its name, one of :data:`experiments.configs.EXPERIMENTS`.
      summary: what it does, for its help.
    """
    program.define_training_flags(configs.EXPERIMENTS[experiment])
    program.run(lambda: run_from_flags(experiment), summary, program.training_help)


def run_from_flags(experiment: str) -> None:
    """Trains the cells that the flags of a training program describe, and prints their results."""
    problem = problems.problem(FLAGS.dataset)
    settings = configs.flat_settings(FLAGS.dataset, FLAGS.model, FLAGS.preset)
    auto = (FLAGS.stability_bound or "").lower() == "auto"
    overrides = program.overrides_from_flags(
        settings["network"], problem.kind, leave_out="stability_bound" if auto else ""
    )
    if "data_options" in overrides:
        # A preset's options stay unless they are named.
        overrides["data_options"] = {**settings.get("data_options", {}), **overrides["data_options"]}
    seeds = range(FLAGS.seed, FLAGS.seed + FLAGS.num_seeds)
    todo = [Cell(experiment, FLAGS.dataset, FLAGS.model, FLAGS.preset, seed, overrides) for seed in seeds]
    # A record is always read from its file; a generated data set may be read from one instead.
    data_file = problems.data_file(FLAGS.dataset, FLAGS.data_dir, overrides.get("data_options", {}))
    generated = problem.kind == "fields" or problem.generated
    if generated and FLAGS.data_dir and data_file is None:
        print(f"note: {FLAGS.dataset} is generated; nothing is read from --data_dir")
    options = {"data_file": data_file.name if data_file and generated else "", "resume": FLAGS.resume}
    if FLAGS.results_dir:
        _refuse_rows(data_file if generated else None, auto)
        there = [cell for cell in todo if cell.row_path(FLAGS.results_dir).exists()]
        for cell in there:
            print(f"{cell.row_path(FLAGS.results_dir)} is there already; nothing to do")
        todo = [cell for cell in todo if cell not in there]
    if not todo:
        return
    workdirs = [_workdir(cell) for cell in todo]
    if auto:
        bound = choose_bound.choose(todo[0], workdirs[0], lambda cell, folder: run_cells(
            [cell], [folder], data_file=options["data_file"], resume=True, evaluate="validation"
        )[0])  # fmt: skip
        todo = [choose_bound.with_bound(cell, bound) for cell in todo]
    found = run_cells(todo, workdirs, **options, evaluate=FLAGS.evaluate)
    for cell, folder, row in zip(todo, workdirs, found, strict=True):
        if FLAGS.results_dir:
            files.write_json(cell.row_path(FLAGS.results_dir), row)
        print("\n" + results.summary(row, configs.TASKS[problem.kind].labels) + f"\nfiles in {folder}")


def _workdir(cell: Cell) -> Path:
    """The folder of a run: ``--workdir``, or a folder in it for each of several seeds."""
    if not FLAGS.workdir:
        return cell.workdir
    return Path(FLAGS.workdir) / (f"seed{cell.seed}" if FLAGS.num_seeds > 1 else "")


def _refuse_rows(data_file: Path | None, auto: bool) -> None:
    if FLAGS.evaluate != "test":
        raise ConfigError("rows in --results_dir hold test errors; remove --evaluate=validation or --results_dir")
    if data_file is not None:
        raise ConfigError(
            f"rows in --results_dir are of generated data, but {data_file} would be read; leave out --results_dir, or "
            "--data_dir and CTFNO_DATA_DIR"
        )
    if auto:
        raise ConfigError("rows in --results_dir name their bound; give --stability_bound a number or none")


def run_cells(
    cells: Sequence[Cell], workdirs: Sequence[Path], *, data_file: str = "", resume: bool = False,
    evaluate: str = "test",
) -> list[dict[str, Any]]:  # fmt: skip
    """Trains cells that differ in their seeds only, all at once; returns their rows."""
    chosen = [cell.config(data_file) for cell in cells]
    with ExitStack() as stack:
        # The split that a run was evaluated on is a part of its identity: a trial never turns into a row.
        opened = [
            stack.enter_context(Workdir(path, {**config.to_dict(), "evaluate": evaluate}, resume=resume))
            for path, config in zip(workdirs, chosen, strict=True)
        ]
        for folder in opened:
            if folder.result is not None:
                print(f"{folder.path} has finished already; nothing to do")
        left = [i for i, folder in enumerate(opened) if folder.result is None]
        done = {i: folder.result for i, folder in enumerate(opened) if folder.result is not None}
        if left:
            made = _train([cells[i] for i in left], [chosen[i] for i in left], [opened[i] for i in left], evaluate)
            done |= dict(zip(left, made, strict=True))
        return [done[i] for i in range(len(cells))]


def _train(
    cells: list[Cell], chosen: list[ExperimentConfig], opened: list[Workdir], evaluate: str
) -> list[dict[str, Any]]:
    config = chosen[0]
    parts = problems.PARTS if evaluate == "test" else ("train", "validation")
    task = configs.TASKS[config.task].from_config(
        config, data_dir=FLAGS.data_dir, parts=parts, progress=GenerationLine(config.dataset)
    )
    announce(task, config.model)
    trained = training.train(
        task, optimizer=config.optimizer, config=config.train, seeds=[c.seed for c in chosen], workdirs=opened,
        parallel=FLAGS.parallel, tensorboard=FLAGS.tensorboard,
    )  # fmt: skip
    return [
        results.finish(task, best, folder, identity(cell, evaluate), split=evaluate)
        for cell, best, folder in zip(cells, trained, opened, strict=True)
    ]


def announce(task: Any, model: str) -> None:
    """Prints what a run reads and how large its network is."""
    facts = ", ".join(f"{name} {value:.4g}" for name, value in task.data.info.items())
    print(f"{task.data.name}, {task.data.source}: {facts}", flush=True)
    variables = jax.eval_shape(task.init, jax.random.key(0))
    devices = jax.devices()
    print(
        f"{model}: {num_parameters(variables['params']):,} parameters; {len(task.data.train)} training and "
        f"{len(task.data.validation)} validation samples; {len(devices)} {devices[0].platform} device(s)",
        flush=True,
    )


def identity(cell: Cell, evaluate: str = "test") -> dict[str, Any]:
    """Entries of a row that identify its cell."""
    return {
        "experiment": cell.experiment, "dataset": cell.dataset, "model": cell.model, "preset": cell.preset,
        "seed": cell.seed, "overrides": dict(cell.overrides),
        "command": cell.command + ("" if evaluate == "test" else f" --evaluate={evaluate}"),
        "paper": paper_results.paper_result(cell.experiment, cell.dataset, cell.model, cell.config()),
    }  # fmt: skip
