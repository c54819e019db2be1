"""Linear regression on plane vibration, a reference for all models: ``python -m experiments.linear_forecast``.

Ridge regression from the observed values to the eight that are asked for, on the training runs of the default preset:
of the values as they are recorded (``linear``), and of the values interpolated linearly to the 64 samples before the
forecast (``linear_interpolated``). The ridge parameter is chosen on the validation part.
"""

import time
from typing import Any

import jax
import numpy as np
from absl import flags
from jaxtyping import Float

from ctfno_jax import files, metrics, results
from ctfno_jax.data import problems
from ctfno_jax.data.series import Series, SeriesDataset
from ctfno_jax.training.workdir import versions
from experiments import configs, program
from experiments.cells import Cell

FLAGS = flags.FLAGS

DATASET = "plane_vibration"
MODELS = ("linear", "linear_interpolated")
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


def features(some: Series) -> Float[np.ndarray, "batch features"]:
    """All observed values of a series in one row, and a one for the constant."""
    return np.concatenate([some.observed.reshape(len(some), -1).astype(np.float64), np.ones((len(some), 1))], axis=1)


def fit(data: SeriesDataset) -> tuple[Float[np.ndarray, "features outputs"], float]:
    """Weights of the regression, and the ridge parameter with the least error on the validation part."""
    inputs, targets = features(data.train), data.train.values.reshape(len(data.train), -1)
    moments, moment = inputs.T @ inputs, inputs.T @ targets
    candidates = [(np.linalg.solve(moments + ridge * np.eye(len(moments)), moment), ridge) for ridge in RIDGES]
    return min(candidates, key=lambda candidate: _mse(data.validation, candidate[0]))


def _mse(some: Series, weights: np.ndarray) -> float:
    return metrics.rmse(features(some) @ weights, some.values.reshape(len(some), -1)) ** 2


def data_options(model: str) -> dict[str, Any]:
    """Options of the record: those of the default preset, interpolated or not."""
    options = configs.flat_settings(DATASET, "ctfno", "default")["data_options"]
    return {**options, "interpolated": model == "linear_interpolated"}


def result(data: SeriesDataset, model: str) -> dict[str, Any]:
    """The row of one regression."""
    assert data.test is not None
    start, cpu_start = time.perf_counter(), time.process_time()
    weights, ridge = fit(data)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    mse = _mse(data.test, weights)
    return {
        "experiment": "vibration", "dataset": DATASET, "model": model, "preset": "default", "seed": 0, "overrides": {},
        "command": "python -m experiments.linear_forecast", "paper": None, "evaluated_on": "test",
        "num_params": weights.size, "steps": 0,
        "train_seconds": round(seconds, 1), "cpu_seconds": round(cpu_seconds, 1),
        "metrics": {
            "mse": mse, "rmse": mse**0.5, "train_mse": _mse(data.train, weights),
            "validation_mse": _mse(data.validation, weights),
        },
        "source": data.source, "data": dict(data.info),
        "config": {"data": {"data_options": data_options(model)}, "ridge": ridge}, "commit": results.commit(),
        "versions": versions(), "devices": [f"{d.platform}:{d.device_kind}" for d in jax.local_devices()],
    }  # fmt: skip


def main() -> None:
    for model in MODELS:
        data = problems.load_dataset(DATASET, data_dir=FLAGS.data_dir, **data_options(model))
        assert isinstance(data, SeriesDataset)
        row = result(data, model)
        print(f"{model}: test MSE {row['metrics']['mse']:.3e}, training MSE {row['metrics']['train_mse']:.3e}")
        if FLAGS.results_dir:
            files.write_json(Cell("vibration", DATASET, model).row_path(FLAGS.results_dir), row)


if __name__ == "__main__":
    flags.DEFINE_string("data_dir", None, "folder with the record")
    flags.DEFINE_string("results_dir", None, "leave the rows there")
    program.run(main, __doc__ or "")
