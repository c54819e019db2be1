"""Error against the number of training trajectories, with and without stabilisation: the paper's box plots.

``python -m experiments.data_efficiency`` trains CTFNO on heat for every part of the training set, every bound and every
seed whose row is missing in ``--results_dir``, then draws all rows that are there. All cells see the same test set, and
those of a smaller part see a part of what the others do.
"""

import json
from pathlib import Path
from typing import Any

from absl import flags

from ctfno_jax.config import ExperimentConfig
from ctfno_jax.plotting import efficiency as plots
from experiments import common, field_run, files, run_folder
from experiments.configs import data_efficiency as presets

FLAGS = flags.FLAGS


def main() -> None:
    percents = [_number(text, "percents", int) for text in FLAGS.percents]
    bounds = [None if text == "none" else _number(text, "bounds", float) for text in FLAGS.bounds]
    cells = [
        presets.efficiency_config(percent, bound, FLAGS.preset, seed)
        for seed in range(FLAGS.seed, FLAGS.seed + FLAGS.num_seeds)
        for bound in bounds
        for percent in percents
    ]
    for number, config in enumerate(cells, start=1):
        variant = presets.variant(config)
        row = run_folder.row_path(FLAGS.results_dir, config, variant)
        if row.exists():
            print(f"{row} is there already")
            continue
        print(f"cell {number} of {len(cells)}: {variant}, seed {config.seed}", flush=True)
        folder = variant if FLAGS.preset == "default" else f"{variant}-{FLAGS.preset}"
        result = field_run.run(config, run_folder.default_workdir(config, folder), resume=True)
        files.write_json(row, {**result, **_cell(config)})
    rows = read_rows(Path(FLAGS.results_dir), FLAGS.preset)
    figure = Path(FLAGS.results_dir) / "figures" / "data_efficiency.png"
    files.make_directory(figure.parent)
    files.write_figure(figure, plots.box_plots(errors_by_cell(rows)))
    print(summary(rows))
    print(f"{figure} from {len(rows)} rows")


def _number(text: str, flag: str, kind: Any) -> Any:
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError(f"--{flag} cannot hold {text!r}: expected numbers between commas") from error


def _cell(config: ExperimentConfig) -> dict[str, Any]:
    """What tells the cells apart, beside the model and the seed."""
    return {
        "percent": presets.percent_of(config),
        "num_trajectories": config.dataset.num_train - config.dataset.num_validation,
        "stability_bound": config.model.model_fields["stability_bound"],
    }


def read_rows(results: Path, preset: str) -> list[dict[str, Any]]:
    """All rows of the experiment."""
    return [
        row
        for path in sorted((results / "data_efficiency").glob("*.json"))
        if (row := json.loads(path.read_text()))["preset"] == preset
    ]


def errors_by_cell(rows: list[dict[str, Any]]) -> dict[float | None, dict[int, list[float]]]:
    """Test errors of the seeds, by bound and by percent of the training set."""
    errors: dict[float | None, dict[int, list[float]]] = {}
    for row in rows:
        errors.setdefault(row["stability_bound"], {}).setdefault(row["percent"], []).append(row["metrics"]["rmse"])
    return errors


def summary(rows: list[dict[str, Any]]) -> str:
    """Median test errors, one line for each part of the training set."""
    errors = errors_by_cell(rows)
    bounds = sorted(errors, key=lambda b: float("inf") if b is None else b)
    percents = sorted({percent for by_percent in errors.values() for percent in by_percent})
    names = ["none" if bound is None else f"M = {bound:g}" for bound in bounds]
    lines = ["", "median test RMSE", "".join([f"{'training set':<14}", *[f"{name:>12}" for name in names]])]
    for percent in percents:
        medians = [plots.median(errors[bound].get(percent, [])) for bound in bounds]
        lines.append(
            "".join([f"{percent:>5} %       ", *[f"{m:>12.3e}" if m is not None else f"{'-':>12}" for m in medians]])
        )
    return "\n".join(lines)


if __name__ == "__main__":
    flags.DEFINE_list("percents", [str(p) for p in presets.PERCENTS], "parts of the training set")
    flags.DEFINE_list("bounds", ["none" if b is None else f"{b:g}" for b in presets.BOUNDS], "values of M, or none")
    flags.DEFINE_enum("preset", "default", common.PRESETS, "settings of the cells")
    flags.DEFINE_integer("seed", 0, "first seed", lower_bound=0)
    flags.DEFINE_integer("num_seeds", 3, "seeds of every cell", lower_bound=1)
    flags.DEFINE_string("results_dir", "results", "where rows are kept and looked for")
    common.run_program(main)
