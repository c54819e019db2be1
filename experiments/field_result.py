"""What a run is worth: its best state on the test set, as numbers, figures, result.json and a printed table."""

import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ctfno_jax import metrics, pdebench_metrics, predict
from ctfno_jax.certify import measured_gain
from ctfno_jax.config import ExperimentConfig
from ctfno_jax.data import equations, fields, normalization, registry
from ctfno_jax.plotting import fields as plots
from ctfno_jax.training import checkpoint
from experiments import files, paper_results, result_row
from experiments.progress import GenerationLine


def finish(
    config: ExperimentConfig, workdir: Path, data: fields.FieldDataset, best: checkpoint.Checkpoint,
    last: checkpoint.Checkpoint, num_params: int, data_file: Path | None,
) -> dict[str, Any]:  # fmt: skip
    """The best state on the test set: numbers, figures and result.json."""
    predictor = predict.predictor_from_checkpoint(best)
    start = time.perf_counter()
    u = predictor(data.test.u0, data.test.times)
    seconds = time.perf_counter() - start
    scores = {
        **errors_on_test_set(u, data),
        checkpoint.METRIC: best.description["metrics"][checkpoint.METRIC],
        "best_step": best.step,
        "evaluation_seconds": round(seconds, 2),
    }
    scores.update(_between_times(config, predictor, data, data_file))
    scores.update(_stability(workdir, predictor, data))
    title = f"{config.dataset.dataset}: {config.model.model}, first test trajectory"
    figure = plots.heatmaps(
        data.test.u[0, ..., 0], u[0, ..., 0], data.test.times, title=title,
        domain=equations.EQUATIONS[config.dataset.dataset].domain,
    )  # fmt: skip
    files.write_figure(workdir / "figures" / "heatmap.png", figure)
    result = result_row.row(
        config, source=data.source, facts=data.info, num_params=num_params, last=last, scores=scores,
        train_grid=config.train.train_grid or data.train.grid[0],
    )  # fmt: skip
    files.write_json(workdir / "result.json", result)
    return result


def errors_on_test_set(u: np.ndarray, data: fields.FieldDataset) -> dict[str, Any]:
    """Errors on the test set: ours, by channel where there are several, over time, and as PDEBench reports them."""
    equation = equations.EQUATIONS[data.name]
    deviation = _deviation(data)
    target = data.test.u
    errors: dict[str, Any] = {
        "rmse": metrics.rmse(u, target),
        "rmse_in_deviations": metrics.rmse(u / deviation, target / deviation),
        "nrmse": metrics.nrmse(u, target),
        "max_error": metrics.max_error(u, target),
    }
    if len(equation.channels) > 1:
        for i, channel in enumerate(equation.channels):
            errors[f"rmse_{channel}"] = metrics.rmse(u[..., i], target[..., i])
            errors[f"rmse_in_deviations_{channel}"] = errors[f"rmse_{channel}"] / float(deviation[i])
    errors["pdebench"] = pdebench_metrics.pdebench_errors(u, target, length=equation.length)
    over_time = metrics.rmse_over_time(u / deviation, target / deviation)
    errors["rmse_in_deviations_over_time"] = [float(f"{value:.4g}") for value in over_time]
    errors["times"] = [float(f"{t:.6g}") for t in data.test.times]
    return errors


def _deviation(data: fields.FieldDataset) -> np.ndarray:
    """Standard deviation of each channel of the training solutions, the unit in which channels can be compared."""
    return np.asarray(normalization.channel_statistics(data.train.u).std, np.float32)


def _between_times(
    config: ExperimentConfig, predictor: predict.Predictor, data: fields.FieldDataset, data_file: Path | None
) -> dict[str, float]:
    """Error half-way between the times of the training data: what being continuous in time is worth."""
    d = config.dataset
    options = dict(d.data_options)
    if options.get("num_times") == 1:
        return {}
    grid_only = predict.unanswerable(predictor.model, 0.75 * data.test.times[:1])
    if grid_only is not None:
        return {}
    unseen = registry.load_between_times(
        d.dataset, num_train=d.num_train, num_test=d.num_test, seed=d.data_seed, data_file=data_file,
        progress=GenerationLine(f"{d.dataset} between times"), **options,
    )  # fmt: skip
    u = predictor(unseen.u0, unseen.times)
    deviation = _deviation(data)
    return {
        "rmse_between_times": metrics.rmse(u, unseen.u),
        "rmse_in_deviations_between_times": metrics.rmse(u / deviation, unseen.u / deviation),
    }


def _stability(workdir: Path, predictor: predict.Predictor, data: fields.FieldDataset) -> dict[str, Any]:
    """Certified growth of an input error, and growth measured at the first test state, over all times of the data."""
    # Fifty times show the course of both; the power iteration at each takes most of a second.
    times = data.test.times[:: max(1, len(data.test.times) // 50)]
    try:
        certified = predictor.lipschitz(times)
    except ValueError:  # which says why this run has none
        return {}
    measured = measured_gain(predictor.apply, predictor.params, jnp.asarray(data.test.u0[0]), jnp.asarray(times))
    figure = plots.growth(times, certified, measured, title=f"{data.name}: growth of an input error")
    files.write_figure(workdir / "figures" / "growth.png", figure)
    return {
        "certified_lipschitz": float(certified.max()),
        "measured_gain": float(measured.max()),
        "certificate_ratio": float((certified / measured).max()),
    }


def summary(result: dict[str, Any], workdir: Path) -> str:
    """The table that ends a run: ours, the paper's, the ratio."""
    unit = paper_results.UNITS.get(result["dataset"], "rmse")
    rows = (
        ("test RMSE", "rmse"), ("in standard deviations", "rmse_in_deviations"), ("test nRMSE", "nrmse"),
        ("RMSE between times", "rmse_between_times"),
    )  # fmt: skip
    return "\n".join(["", *result_row.summary_lines(result, rows, unit), f"files in {workdir}"])
