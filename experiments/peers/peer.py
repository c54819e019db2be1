"""Training of a network of another library by a program of its own, and the score of its answers."""

import dataclasses
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ctfno_jax import metrics
from ctfno_jax.config import ConfigError
from ctfno_jax.data.trajectories import FieldDataset, Trajectories
from ctfno_jax.transforms import normalization
from ctfno_jax.transforms.resampling import Resampling
from experiments import catalog, host

SCRIPTS = {model: Path(__file__).parent / f"{model}.py" for model in catalog.PEERS}
TRAIN_GRID = 256


@dataclasses.dataclass(frozen=True)
class Training:
    """Settings that the program of a peer gets besides the data."""

    learning_rate: float
    steps: int
    seed: int


def coarse(some: Trajectories) -> Trajectories:
    """Trajectories on the training grid: every so many points."""
    stride = max(1, some.grid[0] // TRAIN_GRID)
    return Trajectories(some.u0[:, ::stride], some.times, some.u[:, :, ::stride])


def questions(data: FieldDataset, between: Trajectories | None) -> dict[str, Trajectories]:
    """The sets that a peer answers, by name, on the grid of their score."""
    validation = coarse(data.validation) if data.problem.periodic else data.validation
    sets = {"validation": validation, "test": data.test, "between": between}
    return {name: some for name, some in sets.items() if some is not None}


def exported(data: FieldDataset, between: Trajectories | None) -> dict[str, np.ndarray]:
    """The arrays that a peer gets; no solution of the validation and test sets is among them."""
    problem, train = data.problem, coarse(data.train)
    arrays = {
        "train_u0": train.u0, "train_u": train.u, "times": train.times,
        "reflection": np.asarray(problem.reflection or (), np.float32), "odd": np.asarray(problem.odd),
        "periodic": np.asarray(problem.periodic),
    }  # fmt: skip
    for name, some in questions(data, between).items():
        # Between walls all models keep the grid of their training, see the findings on grids in docs.
        states = some if problem.periodic else coarse(some)
        arrays |= {f"{name}_u0": states.u0, f"{name}_times": some.times}
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
    asked = questions(data, between)
    found = {name: _checked(name, answers[name], some, data.problem.periodic) for name, some in asked.items()}
    deviation = np.asarray(normalization.channel_statistics(data.train.u).std, np.float32)
    units = deviation if len(deviation) > 1 else np.float32(1)
    errors = {"validation_rmse": metrics.rmse(found["validation"] / units, asked["validation"].u / units)}
    if "test" in asked:
        errors |= metrics.field_errors(
            found["test"], asked["test"].u, deviation=deviation, channels=data.problem.channels
        )  # fmt: skip
    if between is not None:
        errors["rmse_between_times"] = metrics.rmse(found["between"], between.u)
        errors["rmse_in_deviations_between_times"] = metrics.rmse(found["between"] / deviation, between.u / deviation)
    return errors


def _checked(name: str, answer: np.ndarray, asked: Trajectories, periodic: bool) -> np.ndarray:
    """An answer on the grid of its score; between walls it is interpolated from the training grid."""
    expected = asked.u.shape if periodic else coarse(asked).u.shape
    if answer.shape != expected or not np.isfinite(answer).all():
        raise ConfigError(f"the peer's answer for the {name} set has a wrong shape or is not finite; nothing is kept")
    return answer if periodic else np.asarray(Resampling(expected[2]).decode(answer, asked.grid))
