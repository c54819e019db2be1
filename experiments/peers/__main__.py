"""Trains a network of another library on our data and scores it: ``python -m experiments.peers --dataset=heat``.

The peer runs in a Python environment of its own that has torch and neuraloperator 2.0; ``--python`` names its
interpreter. It gets training trajectories on the training grid, and the initial states and query times of the other
sets; what it answers is scored here. ``--evaluate=validation`` is a trial, on data of its own and without a test set.
"""

import dataclasses
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from ctfno_jax import files, metrics, results
from ctfno_jax.config import ConfigError
from ctfno_jax.data import problems
from ctfno_jax.data.trajectories import FieldDataset, Trajectories
from ctfno_jax.tasks import fields
from ctfno_jax.training.progress import GenerationLine
from ctfno_jax.transforms import normalization
from experiments import catalog, host, program, table_lines
from experiments.cells import Cell

FLAGS = flags.FLAGS

SCRIPTS = {model: Path(__file__).parent / f"{model}.py" for model in catalog.PEERS}
TRAIN_GRID = 256
# The rate with the least validation error of docs/trials.md, and steps for the budget of the data set.
SETTINGS = {
    "heat": {"learning_rate": 1e-3, "steps": 600},
    "burgers": {"learning_rate": 1e-3, "steps": 900},
    "diffusion_sorption": {"learning_rate": 1e-3, "steps": 500},
    "navier_stokes": {"learning_rate": 1e-3, "steps": 1700},
}


@dataclasses.dataclass(frozen=True)
class Training:
    """How a peer is trained: what its program gets besides the data."""

    learning_rate: float
    steps: int
    seed: int


def coarse(some: Trajectories) -> Trajectories:
    """Trajectories on the training grid: every so many points."""
    stride = max(1, some.grid[0] // TRAIN_GRID)
    return Trajectories(some.u0[:, ::stride], some.times, some.u[:, :, ::stride])


def exported(data: FieldDataset, between: Trajectories | None) -> dict[str, np.ndarray]:
    """What a peer sees: no solution of the test set is among it."""
    problem, train, validation = data.problem, coarse(data.train), coarse(data.validation)
    arrays = {
        "train_u0": train.u0, "train_u": train.u, "times": train.times,
        "validation_u0": validation.u0, "validation_times": validation.times,
        "reflection": np.asarray(problem.reflection or (), np.float32), "odd": np.asarray(problem.odd),
        "periodic": np.asarray(problem.periodic),
    }  # fmt: skip
    for name, part in (("test", data.test), ("between", between)):
        if part is not None:
            arrays |= {f"{name}_u0": part.u0, f"{name}_times": part.times}
    return {name: np.ascontiguousarray(values) for name, values in arrays.items()}


def run(
    python: str, script: Path, arrays: dict[str, np.ndarray], training: Training
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Answers of a peer by part, and its size, seconds and versions."""
    with tempfile.TemporaryDirectory() as folder:
        data, output = Path(folder) / "data.npz", Path(folder) / "answers.npz"
        np.savez(data, **arrays)  # pyright: ignore[reportArgumentType]
        options = {**dataclasses.asdict(training), "data": data, "output": output, "threads": len(host.cores())}
        try:
            done = subprocess.run([python, str(script), *(f"--{name}={value}" for name, value in options.items())])
        except OSError as error:
            raise ConfigError(
                f"--python={python} cannot be run ({error.strerror}); name a Python interpreter"
            ) from error
        if done.returncode:
            raise ConfigError(f"{script.name} ended with exit code {done.returncode}; its last lines are above")
        summary = json.loads(Path(f"{output}.json").read_text())
        with np.load(output, allow_pickle=False) as archive:
            return dict(archive), summary


def scores(data: FieldDataset, between: Trajectories | None, answers: dict[str, np.ndarray]) -> dict[str, float]:
    """Errors of the answers, as for our own models."""
    deviation = np.asarray(normalization.channel_statistics(data.train.u).std, np.float32)
    units = deviation if len(deviation) > 1 else np.float32(1)
    truth = {"validation": coarse(data.validation), "test": data.test, "between": between}
    for name, answer in answers.items():
        some = truth[name]
        if some is None or answer.shape != some.u.shape or not np.isfinite(answer).all():
            raise ConfigError(
                f"the peer's answer for the {name} set has a wrong shape or is not finite; nothing is kept"
            )
    found = {"validation_rmse": metrics.rmse(answers["validation"] / units, truth["validation"].u / units)}
    if data.test is not None:
        found |= fields.field_errors(
            answers["test"], data.test.u, deviation=deviation, channels=data.problem.channels
        )  # fmt: skip
    if between is not None:
        found["rmse_between_times"] = metrics.rmse(answers["between"], between.u)
        found["rmse_in_deviations_between_times"] = metrics.rmse(answers["between"] / deviation, between.u / deviation)
    return found


def row(data: FieldDataset, cell: Cell, training: Training, summary: dict[str, Any], errors: dict[str, float]) -> dict:
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
                "train_grid": TRAIN_GRID, "sign_flips": data.problem.odd,
                "reflections": data.problem.reflection is not None,
            },
        },
        "commit": results.commit(), "versions": summary["versions"], "devices": ["cpu"],
    }  # fmt: skip


def trial(training: Training, summary: dict[str, Any], errors: dict[str, float]) -> dict[str, Any]:
    """Record of a trial, with the keys of experiments.tune."""
    return {
        "settings": f"learning_rate={training.learning_rate:g}", "seed": training.seed, "steps": training.steps,
        "config": json.dumps(dataclasses.asdict(training), sort_keys=True), "validation": errors["validation_rmse"],
        "num_params": summary["num_params"], "cpu_seconds": summary["cpu_seconds"], "commit": results.commit(),
    }  # fmt: skip


def main() -> None:
    cell = Cell("peers", FLAGS.dataset, FLAGS.model, seed=FLAGS.seed)
    given = {name: value for name in ("learning_rate", "steps") if (value := FLAGS[name].value) is not None}
    training = Training(**{**SETTINGS[cell.dataset], **given}, seed=cell.seed)
    is_trial = FLAGS.evaluate == "validation"
    if given and not is_trial and FLAGS.results_dir:
        raise ConfigError("a row has the settings of SETTINGS; try others with --evaluate=validation")
    options: dict[str, Any] = {"seed": 0 if is_trial else 1, "progress": GenerationLine(cell.dataset)}
    data = problems.load_dataset(cell.dataset, parts=problems.PARTS[:2] if is_trial else problems.PARTS, **options)
    between = None if is_trial else problems.between_times(cell.dataset, **options)
    assert isinstance(data, FieldDataset)
    answers, summary = run(FLAGS.python, SCRIPTS[cell.model], exported(data, between), training)
    errors = scores(data, between, answers)
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
    flags.DEFINE_enum("evaluate", "test", ("test", "validation"), "validation: a trial, test data are never made")
    flags.DEFINE_string("results_dir", None, "leave the row or the trial there")
    program.run(main, __doc__ or "")
