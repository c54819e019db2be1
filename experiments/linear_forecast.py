"""What no model of plane vibration should lose to: ``python -m experiments.linear_forecast --data_dir=...``.

Linear regression from the observed values to the eight that are asked for, with a ridge chosen on the validation part,
on the same training runs as the other models: of the values as they come (``linear``), and of the values interpolated
linearly to the 64 samples before the forecast (``linear_interpolated``).
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags
from jaxtyping import Float

from ctfno_jax import metrics
from ctfno_jax.data import plane_vibration, series
from experiments import common, files, host
from experiments.configs import vibration as presets

FLAGS = flags.FLAGS

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
MODELS = ("linear", "linear_interpolated")


def features(some: series.Series) -> Float[np.ndarray, "batch features"]:
    """All observed values of a series in one row, and a one for the constant."""
    return np.concatenate([some.observed.reshape(len(some), -1).astype(np.float64), np.ones((len(some), 1))], axis=1)


def fit(data: series.SeriesDataset) -> tuple[Float[np.ndarray, "features outputs"], float]:
    """Weights of the regression, and the ridge with the least error on the validation part."""
    inputs, targets = features(data.train), data.train.values.reshape(len(data.train), -1)
    moments, moment = inputs.T @ inputs, inputs.T @ targets
    held_out = features(data.validation)
    best: tuple[float, float, np.ndarray] | None = None
    for ridge in RIDGES:
        weights = np.linalg.solve(moments + ridge * np.eye(len(moments)), moment)
        error = metrics.rmse(held_out @ weights, data.validation.values.reshape(len(held_out), -1))
        if best is None or error < best[0]:
            best = (error, ridge, weights)
    assert best is not None
    return best[2], best[1]


def result(data: series.SeriesDataset, model: str) -> dict[str, Any]:
    """The row of one regression."""
    start = time.perf_counter()
    weights, ridge = fit(data)
    seconds = time.perf_counter() - start
    scores = {}
    for name, part in (("mse", data.test), ("train_mse", data.train), ("validation_mse", data.validation)):
        values = features(part) @ weights
        scores[name] = metrics.rmse(values, part.values.reshape(len(part), -1)) ** 2
    return {
        "experiment": "vibration", "dataset": data.name, "source": plane_vibration.FILE, "data": data.info,
        "model": model, "preset": "default", "seed": 0, "num_params": weights.size, "steps": 0,
        "train_seconds": round(seconds, 1), "ridge": ridge, "metrics": {**scores, "rmse": scores["mse"] ** 0.5},
        "paper": None, "cpu_cores": host.usable_cores(), "stability_bound": None, "stability_rule": None,
    }  # fmt: skip


def main() -> None:
    config = presets.vibration_config(plane_vibration.NAME, "ctfno", "default", 0)
    options: dict[str, Any] = dict(config.dataset.data_options)
    for model in MODELS:
        options["interpolated"] = model == "linear_interpolated"
        data = plane_vibration.load(plane_vibration.find_file(FLAGS.data_dir), **options)
        row = result(data, model)
        print(f"{model}: test MSE {row['metrics']['mse']:.3e}, training MSE {row['metrics']['train_mse']:.3e}")
        if FLAGS.results_dir:
            path = Path(FLAGS.results_dir) / "vibration" / f"{data.name}-{model}-default-seed0.json"
            files.make_directory(path.parent)
            files.write_json(path, row)


if __name__ == "__main__":
    flags.DEFINE_string("data_dir", None, "folder with the record")
    flags.DEFINE_string("results_dir", None, "leave the rows there")
    common.run_program(main)
