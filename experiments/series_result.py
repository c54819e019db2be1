"""What a run on series is worth: its best state on the test set, as numbers, a figure and result.json."""

import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ctfno_jax import metrics, predict
from ctfno_jax.certify import measured_gain, observed_lipschitz
from ctfno_jax.config import ExperimentConfig
from ctfno_jax.data import series
from ctfno_jax.models.latent import ObservedCTFNO
from ctfno_jax.plotting import series as plots
from ctfno_jax.training import checkpoint
from experiments import files, result_row

# Scores of an experiment's own, from the trained run and its data.
MoreScores = Callable[[predict.Predictor, series.SeriesDataset], dict[str, Any]]

# Names of the components where there are two.
_COMPONENTS = ("x", "y")


def solved(values: np.ndarray) -> np.ndarray:
    """Series that are answered at all times."""
    return np.all(np.isfinite(values), axis=(1, 2))


def unsolved_message(values: np.ndarray, times: np.ndarray) -> str | None:
    """Which series a solver gave up, and where; None if there is none."""
    bad = np.flatnonzero(~solved(values))
    if not bad.size:
        return None
    first = bad[0]
    every = np.broadcast_to(times, values.shape[:2])
    missing = ~np.all(np.isfinite(values[first]), axis=-1)
    return (
        f"the solver ran out of steps in {bad.size} of {len(values)} series; the first is number {first}, from "
        f"t={every[first][missing].min():g} on. Errors are of the others; raise max_steps or the tolerances"
    )


def finish(
    config: ExperimentConfig, workdir: Path, data: series.SeriesDataset, best: checkpoint.Checkpoint,
    last: checkpoint.Checkpoint, num_params: int, more_scores: MoreScores | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The best state on the test set: numbers, a figure and result.json."""
    predictor = predict.predictor_from_checkpoint(best)
    inputs = data.test.inputs(with_times=not data.test.regular)
    start = time.perf_counter()
    values = predictor(inputs, data.test.times)
    seconds = time.perf_counter() - start
    message = unsolved_message(values, data.test.times)
    if message is not None:
        print(f"note: {message}")
    answered = solved(values)
    if not answered.any():
        raise ValueError(f"nothing to judge in {workdir}: {message}")
    scores = {
        **_errors(data, values[answered], data.test.select(answered)),
        "unsolved": int(np.sum(~answered)),
        checkpoint.METRIC: best.description["metrics"][checkpoint.METRIC],
        "best_step": best.step,
        "evaluation_seconds": round(seconds, 3),
        **_evaluations(predictor, inputs, data.test.times),
        **_stability(predictor, data),
        **(more_scores(predictor, data) if more_scores else {}),
    }
    title = f"{config.dataset.dataset}: {config.model.model}, first test series"
    files.write_figure(workdir / "figures" / "series.png", plots.forecast(data.test, values, title=title))
    result = result_row.row(
        config,
        source=config.dataset.data_file or "generated",
        facts=data.info,
        num_params=num_params,
        last=last,
        scores=scores,
    )
    files.write_json(workdir / "result.json", result)
    return result


def _errors(data: series.SeriesDataset, values: np.ndarray, test: series.Series) -> dict[str, Any]:
    errors: dict[str, Any] = {
        "rmse": metrics.rmse(values, test.values),
        # Of all series together: one of the spirals rests at zero.
        "nrmse": metrics.relative_error(values, test.values),
        "max_error": metrics.max_error(values, test.values),
    }
    if test.features == len(_COMPONENTS):
        for i, name in enumerate(_COMPONENTS):
            errors[f"rmse_{name}"] = metrics.rmse(values[..., i], test.values[..., i])
    if data.name == "stiff":
        errors["spikes"] = int(data.info["spikes_in_test"])
    if test.times.ndim == 1:
        over_time = metrics.rmse_over_time(values, test.values)
        errors["rmse_over_time"] = [float(f"{value:.4g}") for value in over_time]
        errors["times"] = [float(f"{t:.6g}") for t in test.times]
    return errors


def _evaluations(predictor: predict.Predictor, inputs: np.ndarray, times: np.ndarray) -> dict[str, float]:
    """How often the vector field of a differential equation is evaluated for one series, on average."""
    model: Any = predictor.model
    if not hasattr(model, "stepping"):
        return {}
    if "count_evaluations" not in inspect.signature(type(model).__call__).parameters:
        return {}
    inputs = predictor.normalization.inputs.normalize(inputs)
    _, count = model.apply(predictor.params, jnp.asarray(inputs), jnp.asarray(times), count_evaluations=True)
    return {"function_evaluations": float(np.mean(count))}


def _stability(predictor: predict.Predictor, data: series.SeriesDataset) -> dict[str, float]:
    """Certified growth of an error in observed values, and growth measured at the first test series.

    Values are those that the model sees: in training deviations, if it is normalised.
    """
    if not isinstance(predictor.model, ObservedCTFNO) or data.test.times.ndim != 1:
        return {}
    times = data.test.times[:: max(1, len(data.test.times) // 20)]
    certified = observed_lipschitz(predictor.model, predictor.params, jnp.asarray(times))
    inputs = data.test.inputs(with_times=not data.test.regular)[:1]
    inputs = jnp.asarray(predictor.normalization.inputs.normalize(inputs)[0])
    features = data.test.features

    def of_values(params: Any, values: Any, some_times: Any) -> Any:
        return predictor.model.apply(params, jnp.concatenate([values, inputs[None, :, features:]], -1), some_times)

    measured = measured_gain(of_values, predictor.params, inputs[:, :features], jnp.asarray(times))
    return {
        "certified_lipschitz": float(certified.max()),
        "measured_gain": float(measured.max()),
        "certificate_ratio": float((certified / measured).max()),
    }


def summary(result: dict[str, Any], workdir: Path) -> str:
    """The table that ends a run: ours, the paper's, the ratio."""
    rows = (("test RMSE", "rmse"), ("of x", "rmse_x"), ("of y", "rmse_y"), ("test nRMSE", "nrmse"))
    return "\n".join(["", *result_row.summary_lines(result, rows), f"files in {workdir}"])
