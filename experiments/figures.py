"""Draws the figures of the suites: ``python -m experiments.figures``.

* ``heatmaps.png``: truth, prediction and error of one test trajectory of every equation, from trained runs;
* ``error_over_time.png``: test error of every model against time, from the rows of finished cells;
* ``trajectories.png``: forecasts of low-dimensional dynamics by every model, from trained runs;
* ``spiral_extrapolation.png``: the same for the spiral, far beyond the times of the training;
* ``noise.png``: forecasts under noisy observations, with and without stabilisation;
* ``effect_of_bound.png``: errors and growth of errors on plane vibration against M, from rows of the paper preset;
* ``singular_values.png``: of the weights trained there with a tight and a loose M.

A run or a row that is not there leaves its place empty, and is named.
"""

from pathlib import Path

import numpy as np
from absl import flags

from ctfno_jax.config import ConfigError
from ctfno_jax.data import equations
from ctfno_jax.plotting import suite
from ctfno_jax.predict import load_predictor
from ctfno_jax.training.checkpoint import CheckpointError
from experiments import common, dynamics_figures, field_run, files, stability_figures, tables
from experiments.configs import pde as presets

FLAGS = flags.FLAGS

FIGURES = (
    "all", "heatmaps", "error_over_time", "trajectories", "spiral_extrapolation", "noise", "effect_of_bound",
    "singular_values",
)  # fmt: skip


def heatmaps(runs: Path, sample: int) -> suite.Figure | None:
    """One test trajectory of every equation for which a trained CTFNO is in ``runs``."""
    panels = []
    for dataset in presets.PROBLEMS:
        workdir = runs / "pde" / dataset / "ctfno" / "seed0"
        try:
            predictor = load_predictor(workdir)
        except (CheckpointError, ConfigError) as error:
            print(f"left out: {error}")
            continue
        if predictor.config.dataset.data_file:
            print(f"left out: {workdir} was trained on {predictor.config.dataset.data_file}, not on generated data")
            continue
        test = field_run.load(predictor.config).test
        if not 0 <= sample < len(test):
            raise ValueError(f"--sample must be between 0 and {len(test) - 1} for {dataset}, got {sample}")
        u = predictor(test.u0[sample : sample + 1], test.times)[0]
        equation = equations.EQUATIONS[dataset]
        for channel, name in enumerate(equation.channels):
            label = dataset if len(equation.channels) == 1 else f"{dataset}, {name}"
            truth = test.u[sample, ..., channel]
            panels.append(suite.Panel(label, truth, u[..., channel], test.times, equation.domain))
    return suite.heatmap_rows(panels) if panels else None


def error_over_time(results: Path, preset: str) -> suite.Figure | None:
    """Test error of every model against time, the mean over seeds, one panel for each equation."""
    rows = tables.read_rows(results / "pde", preset)
    curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for dataset in presets.PROBLEMS:
        for model in (m for m in (*presets.SURROGATES, presets.AT_ONCE) if m in presets.cells(dataset)):
            found = [r["metrics"] for r in tables.cell(rows, dataset, model)]
            found = [m for m in found if "rmse_in_deviations_over_time" in m]
            if not found:
                print(f"left out: no row of {dataset} with {model} in {results / 'pde'}")
                continue
            mean = np.mean([m["rmse_in_deviations_over_time"] for m in found], axis=0)
            curves.setdefault(dataset, {})[model] = (np.asarray(found[0]["times"]), mean)
    return suite.error_curves(curves) if curves else None


def main() -> None:
    output = files.make_directory(FLAGS.output_dir)
    runs, results = Path(FLAGS.runs), Path(FLAGS.results_dir)
    makers = {
        "heatmaps": lambda: heatmaps(runs, FLAGS.sample),
        "error_over_time": lambda: error_over_time(results, FLAGS.preset),
        "trajectories": lambda: dynamics_figures.learned_trajectories(runs, FLAGS.sample),
        "spiral_extrapolation": lambda: dynamics_figures.spiral_extrapolation(runs, FLAGS.sample),
        "noise": lambda: dynamics_figures.noisy_observations(runs, FLAGS.sample, FLAGS.noise),
        # The effect shows where training runs are few, as in the paper.
        "effect_of_bound": lambda: stability_figures.effect_of_bound(results, "paper"),
        "singular_values": lambda: stability_figures.singular_values(results, "paper"),
    }
    chosen = tuple(makers) if FLAGS.figure == "all" else (FLAGS.figure,)
    drawn = [_write(output / f"{name}.png", makers[name]()) for name in chosen]
    if not any(drawn):
        names = ", ".join(f"{name}.png" for name in chosen)
        raise ValueError(
            f"nothing to draw in {names}: train first, with python -m experiments.pde, experiments.synthetic or "
            "experiments.vibration"
        )


def _write(path: Path, drawn: suite.Figure | tuple[suite.Figure, dynamics_figures.Numbers] | None) -> bool:
    """The figure, and beside it the numbers that it is about, where they are in no row."""
    if drawn is None:
        print(f"left out: there is nothing to draw in {path.name}")
        return False
    figure, numbers = drawn if isinstance(drawn, tuple) else (drawn, None)
    files.write_figure(path, figure)
    if numbers is not None:
        files.write_json(path.with_suffix(".json"), numbers)
    print(path)
    return True


if __name__ == "__main__":
    flags.DEFINE_enum("figure", "all", FIGURES, "which figure")
    flags.DEFINE_string("runs", "runs", "folder with trained runs")
    flags.DEFINE_string("results_dir", "results", "folder with the rows")
    flags.DEFINE_string("output_dir", "results/figures", "where to write")
    flags.DEFINE_integer("sample", 0, "test trajectory that is drawn")
    flags.DEFINE_float("noise", 0.1, "standard deviation of the noise on observations", lower_bound=0.0)
    flags.DEFINE_enum(
        "preset",
        "default",
        common.PRESETS,
        "rows in error_over_time; figures on M are of the paper preset",
    )
    common.run_program(main)
