"""Trains a network of another library on our data and scores it: ``python -m experiments.peers --dataset=heat``.

The peer runs in a Python environment of its own that has torch and neuraloperator 2.0; ``--python`` names its
interpreter. It gets training trajectories on the training grid, and the initial states and query times of the other
sets; what it answers is scored here. ``--evaluate=validation`` is a trial, on data of its own and without a test set.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from absl import flags

from ctfno_jax import files, results
from ctfno_jax.config import ConfigError
from ctfno_jax.data import problems
from ctfno_jax.data.trajectories import FieldDataset
from ctfno_jax.training.progress import GenerationLine
from experiments import catalog, program, table_lines
from experiments.cells import Cell
from experiments.peers import peer

FLAGS = flags.FLAGS

# The rate with the least validation error of docs/trials.md, and steps for the budget of the data set.
SETTINGS = {
    "heat": {"learning_rate": 1.2e-2, "steps": 1000},
    "burgers": {"learning_rate": 1.2e-2, "steps": 2700},
    "diffusion_sorption": {"learning_rate": 1.2e-2, "steps": 880},
    "navier_stokes": {"learning_rate": 1.2e-2, "steps": 4000},
}


def row(
    data: FieldDataset, cell: Cell, training: peer.Training, summary: dict[str, Any], errors: dict[str, float]
) -> dict[str, Any]:
    """The row of a peer, with the keys of all rows."""
    return {
        "experiment": cell.experiment, "dataset": cell.dataset, "model": cell.model, "preset": "default",
        "seed": cell.seed, "overrides": {},
        "command": f"python -m experiments.peers --dataset={cell.dataset} --model={cell.model} --seed={cell.seed}",
        "paper": None, "evaluated_on": "test", "num_params": summary["num_params"], "steps": training.steps,
        "train_seconds": summary["train_seconds"], "cpu_seconds": summary["cpu_seconds"], "metrics": errors,
        "source": data.source, "data": {name: float(f"{value:.6g}") for name, value in data.info.items()},
        "config": {
            "data": {"data_seed": 1}, "training": dataclasses.asdict(training),
            "settings": {
                "train_grid": peer.TRAIN_GRID, "sign_flips": data.problem.odd,
                "reflections": data.problem.reflection is not None,
            },
        },
        "commit": results.commit(), "versions": summary["versions"], "devices": ["cpu"],
    }  # fmt: skip


def trial(training: peer.Training, summary: dict[str, Any], errors: dict[str, float]) -> dict[str, Any]:
    """Record of a trial, with the keys of experiments.tune."""
    return {
        "settings": f"learning_rate={training.learning_rate:g}", "seed": training.seed, "steps": training.steps,
        "config": json.dumps(dataclasses.asdict(training), sort_keys=True), "validation": errors["validation_rmse"],
        "num_params": summary["num_params"], "cpu_seconds": summary["cpu_seconds"], "commit": results.commit(),
    }  # fmt: skip


def main() -> None:
    cell = Cell("peers", FLAGS.dataset, FLAGS.model, seed=FLAGS.seed)
    given = {name: value for name in ("learning_rate", "steps") if (value := FLAGS[name].value) is not None}
    training = peer.Training(**{**SETTINGS[cell.dataset], **given}, seed=cell.seed)
    is_trial = FLAGS.evaluate == "validation"
    if FLAGS.data_seed is not None and not is_trial:
        raise ConfigError("rows are of the data of --data_seed=1; remove --data_seed, or add --evaluate=validation")
    if given and not is_trial and FLAGS.results_dir:
        raise ConfigError("a row has the settings of SETTINGS; try others with --evaluate=validation")
    data_seed = (FLAGS.data_seed or 0) if is_trial else 1
    options: dict[str, Any] = {"seed": data_seed, "progress": GenerationLine(cell.dataset)}
    data = problems.load_dataset(cell.dataset, parts=problems.PARTS[:2] if is_trial else problems.PARTS, **options)
    between = None if is_trial else problems.between_times(cell.dataset, **options)
    assert isinstance(data, FieldDataset)
    answers, summary = peer.run(FLAGS.python, peer.SCRIPTS[cell.model], peer.exported(data, between), training)
    errors = peer.scores(data, between, answers)
    print("\n".join(f"{name:<36}{value:>12.3e}" for name, value in errors.items()))
    print(f"{'parameters':<36}{summary['num_params']:>12,}\n{'CPU seconds':<36}{summary['cpu_seconds']:>12.0f}")
    if not FLAGS.results_dir:
        return
    if is_trial:
        file = Path(FLAGS.results_dir) / "trials" / f"{cell.dataset}-{cell.model}.json"
        files.write_json(file, {"trials": [*table_lines.read_trials(file), trial(training, summary, errors)]})
    else:
        files.write_json(cell.row_path(FLAGS.results_dir), row(data, cell, training, summary, errors))


if __name__ == "__main__":
    flags.DEFINE_enum("dataset", "heat", list(SETTINGS), "data set")
    flags.DEFINE_enum("model", catalog.PEERS[0], catalog.PEERS, "peer")
    flags.DEFINE_integer("seed", 0, "seed of the run", lower_bound=0)
    flags.DEFINE_string("python", "python3", "interpreter of the environment that has the peer's packages")
    flags.DEFINE_float("learning_rate", None, "for trials: largest learning rate", lower_bound=0.0)
    flags.DEFINE_integer("steps", None, "for trials: number of steps", lower_bound=1)
    flags.DEFINE_integer("data_seed", None, "for trials: seed of the data, 0 unless named", lower_bound=0)
    flags.DEFINE_enum("evaluate", "test", ("test", "validation"), "validation: a trial, test data are never made")
    flags.DEFINE_string("results_dir", None, "leave the row or the trial there")
    program.run(main, __doc__ or "")
