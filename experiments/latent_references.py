"""References without training for partly observed series: ``python -m experiments.latent_references``.

``linear_interpolation`` of the observed points, ``last_value`` observed before each time, and ``training_mean``, the
mean of every feature over the training set. Of classes: ``majority_class``, the most frequent one of the training set,
and ``linear_discriminant`` of the interpolated features at each time. A model that is not ahead of them has learned
nothing that a user needs.
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
from ctfno_jax.tasks.latent import LatentTask
from ctfno_jax.tasks.masked_metrics import scores
from ctfno_jax.training.workdir import versions
from experiments import catalog, paper_results, program
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


def _majority_class(data: MaskedDataset, part: Part) -> np.ndarray:
    return np.broadcast_to(_priors(data), (*part.target.times.shape, data.num_classes))


def _linear_discriminant(data: MaskedDataset, part: Part) -> np.ndarray:
    """Logarithms of class probabilities, up to a constant, for normal distributions with one covariance."""
    labels = data.train.labels
    assert labels is not None
    features, known = _linear_interpolation(data, data.train)[labels >= 0].astype(np.float64), labels[labels >= 0]
    priors = _priors(data)
    classes = np.flatnonzero(priors)  # a class that does not occur is never the answer
    means = np.stack([features[known == c].mean(0) for c in classes])
    within = features - means[np.searchsorted(classes, known)]
    # The pseudo-inverse leaves out features that never vary.
    weights = means @ np.linalg.pinv(within.T @ within / len(within), hermitian=True)
    values = np.full((*part.target.times.shape, data.num_classes), -np.inf)
    at = _linear_interpolation(data, part).astype(np.float64)
    values[..., classes] = at @ weights.T - 0.5 * np.sum(weights * means, axis=1) + np.log(priors[classes])
    return values


def _priors(data: MaskedDataset) -> np.ndarray:
    """The share of each class in the training set."""
    labels = data.train.labels
    assert labels is not None
    return np.bincount(labels[labels >= 0], minlength=data.num_classes) / np.sum(labels >= 0)


MODELS: dict[str, Callable[[MaskedDataset, Part], np.ndarray]] = {
    "linear_interpolation": _linear_interpolation,
    "last_value": _last_value,
    "training_mean": _training_mean,
    "majority_class": _majority_class,
    "linear_discriminant": _linear_discriminant,
}
# Between observations a line makes sense, after the last of them it does not.
OF_TASK = {
    "interpolation": ("linear_interpolation", "last_value", "training_mean"),
    "prediction": ("last_value", "training_mean"),
    "classification": ("majority_class", "linear_discriminant"),
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
    places = [catalog.reference(cell, cell.model) for cell in catalog.cells(FLAGS.dataset, 1)]
    for cell in {str(place.overrides): place for place in places}.values():
        data = LatentTask.load(cell.config(), data_dir=FLAGS.data_dir)
        for model in OF_TASK[data.task]:
            place = catalog.reference(cell, model)
            made = row(place, data)
            metric = paper_results.metric(cell.dataset)
            print(f"{cell.variant} {model}: test {metric} {made['metrics'][metric]:.3e}", flush=True)
            if FLAGS.results_dir:
                files.write_json(place.row_path(FLAGS.results_dir), made)


if __name__ == "__main__":
    flags.DEFINE_enum("dataset", "mujoco", ("mujoco", "physionet", "activity"), "data set")
    flags.DEFINE_string("data_dir", None, "folder with raw data, for the data sets that need it")
    flags.DEFINE_string("results_dir", None, "leave the rows there")
    program.run(main, __doc__ or "")
