"""Prints the paper's tables from the rows of finished cells: ``python -m experiments.tables --table=pde``.

Ours is the mean over the seeds present, with half the range between the best and the worst of them. A cell without a
row stays empty, and so does a number that the paper does not print.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from experiments import common, linear_forecast, paper_results
from experiments.configs import pde as presets
from experiments.configs import synthetic as dynamics
from experiments.configs import vibration

FLAGS = flags.FLAGS

TABLES = ("pde", "ablation", "timing", "synthetic", "vibration")
FORMATS = ("text", "markdown")
Row = dict[str, Any]


def read_rows(directory: Path, preset: str) -> list[Row]:
    """All rows of one experiment that are of a preset, in the order of their names."""
    rows = []
    for path in sorted(directory.glob("*.json")):
        try:
            row = json.loads(path.read_text())
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is not valid JSON: {error}; remove it and run its cell again") from error
        if row.get("preset") == preset:
            rows.append(row)
    return rows


def cell(rows: list[Row], dataset: str, model: str) -> list[Row]:
    """The rows of one cell, one for each seed."""
    return [row for row in rows if row["dataset"] == dataset and row["model"] == model]


def spread(values: list[float], scale: float = 1.0) -> str:
    """Mean and half the range, to four digits of the mean."""
    if not values:
        return ""
    mean = scale * float(np.mean(values))
    digits = max(0, 3 - int(np.floor(np.log10(mean)))) if mean > 0 else 4
    text = f"{mean:.{digits}f}"
    if len(values) > 1:
        text += f" ± {scale * (max(values) - min(values)) / 2:.{digits}f}"
    return text


def cell_line(rows: list[Row], dataset: str, model: str, experiment: str = "pde") -> list[str]:
    """One line of a table of test errors, all of them times 1e-2."""
    found = cell(rows, dataset, model)
    metric = paper_results.UNITS.get(dataset, "rmse")
    paper = paper_results.paper_result(experiment, dataset, model) or {}
    between = f"{metric}_between_times"
    ours = [row["metrics"][metric] for row in found]
    ratio = ""
    if ours and "rmse" in paper:
        value = np.mean(ours) / paper["rmse"]
        ratio = f"{value:.2f}" if value >= 0.1 else f"{value:.1g}"
    return [
        model,
        spread(ours, 100),
        f"{100 * paper['rmse']:.4g}" if "rmse" in paper else "",
        ratio,
        spread([row["metrics"]["nrmse"] for row in found], 100),
        spread([row["metrics"][between] for row in found if between in row["metrics"]], 100),
        f"{found[0]['num_params']:,}" if found else "",
        f"{np.mean([row['train_seconds'] for row in found]) / 60:.1f}" if found else "",
        "/".join(sorted({str(row["cpu_cores"]) for row in found if "cpu_cores" in row})),
        str(len(found)),
    ]


HEADER = ["model", "RMSE", "paper", "ratio", "nRMSE", "between times", "parameters", "minutes", "cores", "seeds"]


def error_table(rows: list[Row], datasets: tuple[str, ...], models: tuple[str, ...], form: str) -> str:
    """Test errors of every model, one block for each equation."""
    blocks = []
    for dataset in datasets:
        unit = "in standard deviations" if dataset in paper_results.UNITS else "in physical units"
        lines = [cell_line(rows, dataset, model) for model in models if model in presets.cells(dataset)]
        blocks.append(f"{dataset}: test errors x 1e-2, RMSE {unit}\n" + layout([HEADER, *lines], form))
    return "\n\n".join(blocks)


def overview(rows: list[Row], datasets: tuple[str, ...], models: tuple[str, ...], form: str) -> str:
    """All equations and models in one table, as the paper prints it, with the paper's CTFNO below."""
    lines = [["model", *datasets, "parameters"]]
    for model in models:
        cells = [cell(rows, dataset, model) for dataset in datasets]
        errors = [
            spread([row["metrics"][paper_results.UNITS.get(dataset, "rmse")] for row in found], 100)
            for dataset, found in zip(datasets, cells, strict=True)
        ]
        counts = [row["num_params"] for found in cells for row in found]
        lines.append([model, *errors, f"{counts[0]:,}" if counts else ""])
    printed = [paper_results.paper_result("pde", dataset, "ctfno") or {} for dataset in datasets]
    lines.append(["ctfno, paper", *(f"{100 * p['rmse']:.4g}" if "rmse" in p else "" for p in printed), ""])
    return "test RMSE x 1e-2 (Navier-Stokes in standard deviations)\n" + layout(lines, form)


def dynamics_line(rows: list[Row], dataset: str, model: str) -> list[str]:
    """One line for low-dimensional dynamics or reaction: as for an equation, but that series have other extras."""
    experiment = "pde" if dataset == "heat" else "synthetic"
    name, ours, paper, ratio, relative, _, count, minutes, cores, seeds = cell_line(rows, dataset, model, experiment)
    found = [row["metrics"] for row in cell(rows, dataset, model)]
    of_x = spread([m["rmse_x"] for m in found if "rmse_x" in m], 100)
    evaluations = [m["function_evaluations"] for m in found if "function_evaluations" in m]
    calls = f"{np.mean(evaluations):.0f}" if evaluations else ""
    return [name, ours, paper, ratio, relative, of_x, calls, count, minutes, cores, seeds]


DYNAMICS_HEADER = [
    "model", "RMSE", "paper", "ratio", "nRMSE", "RMSE of x", "evaluations", "parameters", "minutes", "cores", "seeds",
]  # fmt: skip


def dynamics_table(rows: list[Row], form: str) -> str:
    """Test errors on low-dimensional dynamics, and of the same models on fields."""
    blocks = []
    for dataset in ("square", "sawtooth", "stiff", "spiral", "reaction", "heat"):
        models = dynamics.MODELS
        if dataset == "reaction":
            models = (*models, "fno_2d")
        elif dataset == "heat":
            models = ("ctfno", "neural_flow", "neural_laplace")
        lines = [dynamics_line(rows, dataset, model) for model in models]
        title = f"{dataset}: test errors x 1e-2"
        if dataset == "stiff":
            found = {row["metrics"]["spikes"] for row in rows if row["dataset"] == "stiff"}
            title += f"; values in the middle of a jump, in the test set: {', '.join(map(str, sorted(found))) or '-'}"
        blocks.append(f"{title}\n" + layout([DYNAMICS_HEADER, *lines], form))
    return "\n\n".join(blocks)


def dynamics_overview(rows: list[Row], form: str) -> str:
    """All data sets and models in one table, with the paper's CTFNO below."""
    datasets = ("square", "sawtooth", "stiff", "spiral", "reaction")
    lines = [["model", *datasets]]
    for model in (*dynamics.MODELS, "fno_2d"):
        found = [cell(rows, dataset, model) for dataset in datasets]
        lines.append([model, *(spread([row["metrics"]["rmse"] for row in some], 100) for some in found)])
    printed = [paper_results.paper_result("synthetic", dataset, "ctfno") or {} for dataset in datasets]
    lines.append(["ctfno, paper", *(f"{100 * p['rmse']:.4g}" for p in printed)])
    return "test RMSE x 1e-2\n" + layout(lines, form)


VIBRATION_HEADER = [
    "model", "M", "rule", "test MSE", "paper", "training MSE", "certified", "measured", "parameters", "minutes",
    "cores", "seeds",
]  # fmt: skip


def vibration_line(rows: list[Row], model: str, bound: float | None, rule: str | None) -> list[str]:
    """One line of the table on plane vibration: squared errors times 1e-2, and growth of an input error."""
    name = vibration.REGISTERED.get(model, model)
    found = [r for r in rows if (r["model"], r["stability_bound"], r["stability_rule"]) == (name, bound, rule)]
    paper = paper_results.paper_result("vibration", "plane_vibration", name) or {}
    scores = [row["metrics"] for row in found]
    known = "mse" in paper and (model != "ctfno" or bound == vibration.BOUND)
    growth = [f"{np.mean([m[k] for m in scores if k in m]):.3g}" if any(k in m for m in scores) else ""
              for k in ("certified_lipschitz", "measured_gain")]  # fmt: skip
    return [
        model,
        ("" if model != "ctfno" else "none" if bound is None else f"{bound:g}"),
        (rule or "").replace("_", " "),
        spread([m["mse"] for m in scores], 100),
        f"{100 * paper['mse']:.4g}" if known else "",
        spread([m["train_mse"] for m in scores], 100),
        *growth,
        f"{found[0]['num_params']:,}" if found else "",
        f"{np.mean([row['train_seconds'] for row in found]) / 60:.1f}" if found else "",
        "/".join(sorted({str(row["cpu_cores"]) for row in found})),
        str(len(found)),
    ]


def vibration_table(directory: Path, form: str) -> str:
    """All models with overlapping training runs, and CTFNO in the paper's setting for every M."""
    rows = read_rows(directory, "default")
    lines = [vibration_line(rows, "ctfno", vibration.BOUND, "rows"), vibration_line(rows, "ctfno", None, None)]
    others = (*vibration.MODELS[1:], *linear_forecast.MODELS)
    lines += [vibration_line(rows, model, None, None) for model in others]
    head = "plane_vibration: forecasts of eight samples, squared errors x 1e-2"
    blocks = [
        f"{head}; training runs overlap, observations are interpolated but for linear\n"
        + layout([VIBRATION_HEADER, *lines], form)
    ]
    rows = read_rows(directory, "paper")
    lines = [
        vibration_line(rows, "ctfno", bound, rule) for rule in vibration.RULES for bound in vibration.BOUNDS if bound
    ]
    lines.append(vibration_line(rows, "ctfno", None, None))
    blocks.append(
        f"{head}; 509 training runs and the schedule of the paper\n" + layout([VIBRATION_HEADER, *lines], form)
    )
    return "\n\n".join(blocks)


def timing_table(path: Path, form: str) -> str:
    """Seconds of an epoch on heat, and their ratios to CTFNO."""
    if not path.exists():
        raise ValueError(f"there is no {path}; make it with python -m experiments.timing --heat_output={path}")
    row = json.loads(path.read_text())
    lines = [["model", "training s", "ratio", "paper", "inference s", "ratio", "paper", "parameters"]]
    ctfno = row["models"]["ctfno"]
    for model, numbers in row["models"].items():
        paper = paper_results.TIMING.get(model, {})
        line = [model]
        for part in ("training", "inference"):
            line += [
                f"{numbers[part]:.1f}",
                f"{numbers[part] / ctfno[part]:.2f}",
                f"{paper[part]:g}" if part in paper else "",
            ]
        lines.append([*line, f"{numbers['num_params']:,}"])
    samples, times, points = row["size"]
    head = f"heat: one epoch, {samples} trajectories x {times} times x {points} points, batches of {row['batch_size']}"
    return head + "\n" + layout(lines, form)


def dynamics_timing_table(path: Path, form: str) -> str:
    """Milliseconds of a step and of a forecast on the spiral, and their ratios to CTFNO."""
    if not path.exists():
        raise ValueError(f"there is no {path}; make it with python -m experiments.timing --dynamics_output={path}")
    row = json.loads(path.read_text())
    lines = [["model", "training ms", "ratio", "inference ms", "ratio", "evaluations", "parameters"]]
    ctfno = row["models"]["ctfno"]
    for model, numbers in row["models"].items():
        line = [model]
        for part in ("training", "inference"):
            line += [f"{1e3 * numbers[part]:.1f}", f"{numbers[part] / ctfno[part]:.2f}"]
        calls = f"{numbers['function_evaluations']:.0f}" if "function_evaluations" in numbers else ""
        lines.append([*line, calls, f"{numbers['num_params']:,}"])
    return f"spiral: {row['batch_size']} series at 100 times\n" + layout(lines, form)


def layout(lines: list[list[str]], form: str) -> str:
    """Lines as aligned text or as Markdown, which starts after an empty line; empty cells are marked in text."""
    if form == "markdown":
        head, *body = ["| " + " | ".join(line) + " |" for line in lines]
        return "\n".join(["", head, "|" + "---|" * len(lines[0]), *body])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    marked = [[text or "-" for text in line] for line in lines]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(t.rjust(w) for t, w in zip(line[1:], widths[1:], strict=True))])
        for line in marked
    )


def main() -> None:
    results = Path(FLAGS.results_dir)
    if not results.is_dir():
        raise ValueError(f"there is no folder {results}; --results_dir names the folder with the rows")
    if FLAGS.table == "timing":
        print(timing_table(results / "timing" / "heat.json", FLAGS.format))
        if (results / "timing" / "dynamics.json").exists():
            print("\n" + dynamics_timing_table(results / "timing" / "dynamics.json", FLAGS.format))
        return
    if FLAGS.table == "vibration":
        if FLAGS.preset != "default":
            raise ValueError("the table of plane vibration shows the presets default and paper; leave out --preset")
        print(vibration_table(results / "vibration", FLAGS.format))
        return
    rows = read_rows(results / "pde", FLAGS.preset)
    if FLAGS.table == "synthetic":
        rows = [row for row in rows if row["dataset"] == "heat"] + read_rows(results / "synthetic", FLAGS.preset)
        print(dynamics_overview(rows, FLAGS.format) + "\n")
        print(dynamics_table(rows, FLAGS.format))
        return
    if FLAGS.table == "pde":
        datasets = tuple(presets.PROBLEMS)
        models = (*presets.SURROGATES, presets.AT_ONCE)
        print(overview(rows, datasets, models, FLAGS.format) + "\n")
        print(error_table(rows, datasets, models, FLAGS.format))
        return
    rows += read_rows(results / "ablation", FLAGS.preset)
    print(error_table(rows, ("heat", "burgers"), ("ctfno", presets.AT_ONCE, *presets.ABLATIONS), FLAGS.format))


if __name__ == "__main__":
    flags.DEFINE_enum("table", "pde", TABLES, "which table")
    flags.DEFINE_string("results_dir", "results", "folder with the rows")
    flags.DEFINE_enum("preset", "default", common.PRESETS, "rows of this preset")
    flags.DEFINE_enum("format", "text", FORMATS, "how to print")
    common.run_program(main)
