"""Draws the figures of the paper: ``python -m experiments.figures``.

From rows of finished cells: ``error_over_time``, test error of every model against time; ``effect_of_bound``, errors
and certified growth on plane vibration against the bound M; ``singular_values``, of weights trained there with a tight
and a loose M; ``data_efficiency``, test error on heat against the number of training trajectories; ``image_bounds``,
accuracy of a classifier against M; ``learning_curves``, accuracy of classifiers with and without a bound by epoch.

From trained runs, in the folders where experiments.reproduce leaves them: ``heatmaps``, truth, prediction and error of
one test trajectory of every equation; ``trajectories``, forecasts of low-dimensional dynamics by every model;
``spiral_extrapolation``, forecasts of the spiral beyond the training times; ``noise``, forecasts from noisy
observations, with and without a bound.

Missing runs and rows are named and left out.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags
from matplotlib.figure import Figure

from ctfno_jax import files
from ctfno_jax.data import problems
from ctfno_jax.plotting import efficiency, stability, suite
from ctfno_jax.plotting import images as image_plots
from experiments import catalog, configs, program, run_figures
from experiments.cells import Cell
from experiments.table_lines import Results

FLAGS = flags.FLAGS

# Bounds of the paper's figure of singular values.
_SHOWN_BOUNDS = (1.2, 10.0)
_BOUND_METRICS = {
    "training error": "train_mse", "test error": "mse", "certified": "certified_lipschitz", "measured": "measured_gain",
}  # fmt: skip
_IMAGE_METRICS = {
    "clean": "accuracy", "PGD 5/255": "pgd_5", "APGD 5/255": "apgd_5", "certified": "certified_accuracy",
}  # fmt: skip
_MATRICES = {"kernels": "kernels R(t, k), mean over times", "pointwise": "pointwise maps W(t), mean over times"}


def error_over_time(results: Path, preset: str) -> Figure | None:
    """Test error of every model against time, mean over seeds, one panel for each equation."""
    found = Results(results)
    curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for dataset in catalog.EQUATIONS:
        for model in (m for m in catalog.SURROGATES if m in configs.models(dataset)):
            cell = Cell("pde", dataset, model, preset)
            scores = [row["metrics"] for row in found.of(cell)]
            scores = [some for some in scores if "rmse_in_deviations_over_time" in some]
            if not scores:
                _left_out(cell, results)
                continue
            mean = np.mean([some["rmse_in_deviations_over_time"] for some in scores], axis=0)
            curves.setdefault(dataset, {})[model] = (np.asarray(scores[0]["times"]), mean)
    return suite.error_curves(curves) if curves else None


def effect_of_bound(results: Path) -> Figure | None:
    """Errors and growth against M for both rules; the cell without a bound belongs to both."""
    found = Results(results)
    curves: dict[str, dict[str, dict[float | None, list[float]]]] = {}
    for cell in catalog.cells("effect_of_bound", num_seeds=1):
        some = found.of(cell)
        if not some:
            _left_out(cell, results)
        rules = (cell.overrides["stability_rule"],) if "stability_rule" in cell.overrides else catalog.RULES
        for rule in rules if some else ():
            for name, metric in _BOUND_METRICS.items():
                values = [row["metrics"][metric] for row in some]
                curves.setdefault(rule, {}).setdefault(name, {})[cell.overrides["stability_bound"]] = values
    return stability.effect_of_bound(curves, title="plane vibration: effect of the bound M") if curves else None


def singular_values(results: Path) -> Figure | None:
    """Singular values of the trained weights of all seeds, under the paper's rule."""
    found = Results(results)
    values: dict[str, dict[float | None, np.ndarray]] = {}
    for bound in _SHOWN_BOUNDS:
        overrides = {"stability_bound": bound, "stability_rule": "rows"}
        cell = Cell("vibration", "plane_vibration", "ctfno", "paper", overrides=overrides)
        some = [row["metrics"]["singular_values"] for row in found.of(cell)]
        if not some:
            _left_out(cell, results)
            continue
        for name, label in _MATRICES.items():
            values.setdefault(label, {})[bound] = np.concatenate([matrices[name] for matrices in some])
    return stability.singular_values(values) if values else None


def data_efficiency(results: Path) -> Figure | None:
    """Test errors of all seeds on heat against the number of training trajectories, with and without a bound."""
    found = Results(results)
    errors: dict[float | None, dict[int, list[float]]] = {}
    for cell in catalog.cells("data_efficiency", num_seeds=1):
        some = found.of(cell)
        if not some:
            _left_out(cell, results)
            continue
        num_train, bound = catalog.efficiency(cell)
        errors.setdefault(bound, {})[num_train] = [row["metrics"]["rmse"] for row in some]
    return efficiency.box_plots(errors) if errors else None


def image_bounds(results: Path) -> Figure | None:
    """Accuracy on CIFAR-10 as it is, attacked and certified against the bound M."""
    found = Results(results)
    curves: dict[str, dict[float | None, list[float]]] = {}
    for cell in catalog.cells("image_bounds", num_seeds=1):
        some = found.of(cell)
        if not some:
            _left_out(cell, results)
        bound: Any = cell.config().network.network_fields["stability_bound"]
        for name, metric in _IMAGE_METRICS.items() if some else ():
            curves.setdefault(name, {})[bound] = [row["metrics"][metric] for row in some]
    return image_plots.accuracy_by_bound(curves, title="cifar10: accuracy and the bound M") if curves else None


def learning_curves(results: Path, preset: str) -> Figure | None:
    """Validation accuracy by epoch of classifiers with and without a bound, of the first seed."""
    found = Results(results)
    curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for dataset in catalog.IMAGES:
        for model in ("fno", "fno_stabilized"):
            cell = Cell("images", dataset, model, preset)
            some = found.of(cell)
            if not some:
                _left_out(cell, results)
                continue
            curve, num_train = some[0]["validation_curve"], problems.problem(dataset).num_train
            epochs = np.asarray(curve["step"]) * some[0]["config"]["settings"]["batch_size"] / num_train
            curves.setdefault(dataset, {})[model] = (epochs, 1 - np.asarray(curve["validation_error"]))
    return image_plots.learning_curves(curves) if curves else None


def _left_out(cell: Cell, results: Path) -> None:
    print(f"left out: no row in {results} of {cell.command}")


def _results() -> Path:
    return Path(FLAGS.results_dir)


def _runs() -> tuple[Path, str, int]:
    return Path(FLAGS.runs), FLAGS.preset, FLAGS.sample


# Some return numbers with the figure, which are in no row.
FIGURES: dict[str, Callable[[], Any]] = {
    "error_over_time": lambda: error_over_time(_results(), FLAGS.preset),
    "effect_of_bound": lambda: effect_of_bound(_results()),
    "singular_values": lambda: singular_values(_results()),
    "data_efficiency": lambda: data_efficiency(_results()),
    "image_bounds": lambda: image_bounds(_results()),
    "learning_curves": lambda: learning_curves(_results(), FLAGS.preset),
    "heatmaps": lambda: run_figures.heatmaps(*_runs()),
    "trajectories": lambda: run_figures.trajectories(*_runs()),
    "spiral_extrapolation": lambda: run_figures.spiral_extrapolation(*_runs()),
    "noise": lambda: run_figures.noise(*_runs(), FLAGS.noise),
}


def main() -> None:
    output = files.make_directory(FLAGS.output_dir)
    chosen = tuple(FIGURES) if FLAGS.figure == "all" else (FLAGS.figure,)
    drawn = [_write(output / f"{name}.png", FIGURES[name]()) for name in chosen]
    if not any(drawn):
        raise ValueError(
            f"nothing to draw in {', '.join(chosen)}: there are no rows in {FLAGS.results_dir} and no runs in "
            f"{FLAGS.runs}; train first, with python -m experiments.reproduce"
        )


def _write(path: Path, drawn: Any) -> bool:
    """Writes a figure and the numbers that come with it; False if there was nothing to draw."""
    if drawn is None:
        print(f"left out: {path.name}, nothing to draw")
        return False
    figure, numbers = drawn if isinstance(drawn, tuple) else (drawn, None)
    files.write_figure(path, figure)
    if numbers is not None:
        files.write_json(path.with_suffix(".json"), numbers)
    print(path)
    return True


if __name__ == "__main__":
    flags.DEFINE_enum("figure", "all", ("all", *FIGURES), "which figure")
    flags.DEFINE_string("runs", "runs", "folder with trained runs")
    flags.DEFINE_string("results_dir", "results", "folder with the rows")
    flags.DEFINE_string("output_dir", "results/figures", "where to write")
    flags.DEFINE_integer("sample", 0, "test sample that is drawn", lower_bound=0)
    flags.DEFINE_float("noise", 0.1, "standard deviation of the noise on observations", lower_bound=0.0)
    flags.DEFINE_enum("preset", "default", configs.PRESETS, "preset of rows and runs, where a figure has several")
    program.run(main, __doc__ or "")
