"""References without training for partly observed series: ``python -m experiments.latent_references``.

``linear_interpolation`` of the observed points, ``last_value`` observed before each time, and ``training_mean``, the
mean of every feature over the training set. A model that is not ahead of them has learned nothing that a user needs.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from ctfno_jax import files, results
from ctfno_jax.data.masked_series import MaskedDataset, Part
from ctfno_jax.ops.interpolation import interpolate
from ctfno_jax.tasks.latent import LatentTask, scores
from ctfno_jax.training.workdir import versions
from experiments import catalog, program
from experiments.cells import Cell

FLAGS = flags.FLAGS

# Series that are answered in one call.
_PIECE = 200


def _linear_interpolation(data: MaskedDataset, part: Part) -> np.ndarray:
    """Constant before the first and after the last observation of a feature; its training mean if it has none."""
    observed = part.observed
    answer = np.concatenate([
        np.asarray(interpolate(*map(jnp.asarray, (o.times, o.values, o.mask, t))))
        for i in range(0, len(part), _PIECE)
        for o, t in [(observed.select(slice(i, i + _PIECE)), part.target.times[i : i + _PIECE])]
    ])  # fmt: skip
    seen = np.any(observed.mask, axis=1)[:, None]
    return np.where(seen, answer, _means(data))


def _last_value(data: MaskedDataset, part: Part) -> np.ndarray:
    """The last observation of each feature at or before a time; its training mean if there is none."""
    answer = np.broadcast_to(_means(data), part.target.values.shape).copy()
    for i in range(len(part)):
        index = np.searchsorted(part.observed.times[i][part.observed.valid[i]], part.target.times[i], side="right")
        for f in range(answer.shape[-1]):
            at = np.flatnonzero(part.observed.mask[i, :, f])
            place = np.searchsorted(at, index) - 1
            there = place >= 0
            answer[i, there, f] = part.observed.values[i, at[place[there]], f]
    return answer


def _training_mean(data: MaskedDataset, part: Part) -> np.ndarray:
    return np.broadcast_to(_means(data), part.target.values.shape)


def _means(data: MaskedDataset) -> np.ndarray:
    target = data.train.target
    return (target.values.sum((0, 1), dtype=np.float64) / np.maximum(target.mask.sum((0, 1)), 1)).astype(np.float32)


MODELS: dict[str, Callable[[MaskedDataset, Part], np.ndarray]] = {
    "linear_interpolation": _linear_interpolation,
    "last_value": _last_value,
    "training_mean": _training_mean,
}


def row(cell: Cell, data: MaskedDataset) -> dict[str, Any]:
    """The row of one reference."""
    assert data.test is not None
    start, cpu_start = time.perf_counter(), time.process_time()
    found = {name: scores(MODELS[cell.model](data, part)[None], part) for name, part in
             (("test", data.test), ("validation", data.validation))}  # fmt: skip
    validation = {f"validation_{name}": value for name, value in found["validation"].items()}
    return {
        "experiment": cell.experiment, "dataset": cell.dataset, "model": cell.model, "preset": cell.preset, "seed": 0,
        "overrides": dict(cell.overrides), "command": command(cell.dataset), "paper": None, "evaluated_on": "test",
        "num_params": 0, "steps": 0, "train_seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(time.process_time() - cpu_start, 1), "metrics": {**found["test"], **validation},
        "source": data.source, "data": dict(data.info), "config": {"settings": dict(cell.overrides)},
        "commit": results.commit(), "versions": versions(),
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.local_devices()],
    }  # fmt: skip


def command(dataset: str) -> str:
    """The command that makes the rows of a data set."""
    return f"python -m experiments.latent_references --dataset={dataset}"


def main() -> None:
    for cell in {str(cell.overrides): cell for cell in catalog.cells(FLAGS.dataset, 1)}.values():
        data = LatentTask.load(cell.config(), data_dir=FLAGS.data_dir)
        for model in MODELS:
            if model == "linear_interpolation" and data.task != "interpolation":
                continue
            made = row(Cell(cell.experiment, cell.dataset, model, overrides=cell.overrides), data)
            print(f"{cell.variant} {model}: test MSE {made['metrics']['mse']:.3e}", flush=True)
            if FLAGS.results_dir:
                place = Cell(cell.experiment, cell.dataset, model, overrides=cell.overrides)
                files.write_json(place.row_path(FLAGS.results_dir), made)


if __name__ == "__main__":
    flags.DEFINE_enum("dataset", "mujoco", ("mujoco", "physionet"), "data set")
    flags.DEFINE_string("data_dir", None, "folder with raw data, for the data sets that need it")
    flags.DEFINE_string("results_dir", None, "leave the rows there")
    program.run(main, __doc__ or "")
