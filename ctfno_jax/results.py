"""Output of a finished run: its errors, its figures, and the row ``result.json``, whose command makes it again."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from ctfno_jax import files
from ctfno_jax.models.ctfno import num_parameters
from ctfno_jax.predict import Predictor
from ctfno_jax.training.run import Trained
from ctfno_jax.training.workdir import Workdir, versions


def predictor(task: Any, trained: Trained) -> Predictor:
    """The trained task as a function in physical units."""
    return Predictor(task.model, trained.params, task.transform, task.facts())


def finish(
    task: Any, trained: Trained, workdir: Workdir, row: dict[str, Any], *, split: str = "test"
) -> dict[str, Any]:
    """Evaluates the best state, draws its figures and writes the row of the run.

    Args:
      task: the task that was trained.
      trained: its best state.
      workdir: the folder of the run.
      row: what identifies the run: experiment, dataset, model, preset, seed, paper, command, ...
      split: ``"test"``, or ``"validation"`` for trials that must not see test data.
    """
    scores = task.evaluate(trained.params, split)
    result = {
        **row,
        "evaluated_on": split,
        "num_params": num_parameters(trained.params["params"]),
        "steps": trained.step,
        "train_seconds": round(trained.train_seconds, 1),
        "cpu_seconds": round(trained.cpu_seconds, 1),
        "metrics": {**scores, **trained.metrics, "best_step": trained.best_step},
        "validation_curve": workdir.validation_curve(task.metric),
        "source": task.data.source,
        "data": {name: float(f"{value:.6g}") for name, value in task.data.info.items()},
        "config": workdir.config,
        "commit": commit(),
        "versions": versions(),
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.local_devices()],
    }
    for name, figure in task.figures(trained.params, split):
        files.write_figure(workdir.path / "figures" / f"{name}.png", figure)
    files.write_json(workdir.path / "result.json", result)
    return result


def commit() -> str | None:
    """The commit of the source tree, with ``+`` if it has changes; None outside of a repository."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True).stdout

    try:
        changed = git("status", "--porcelain", "--", "ctfno_jax", "experiments").strip()
        return git("rev-parse", "--short=12", "HEAD").strip() + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def summary(row: Mapping[str, Any], labels: Sequence[tuple[str, str]]) -> str:
    """The table that ends a run: errors, beside the paper's if it has any, size and time.

    Args:
      row: the result.
      labels: labels and names of the metrics to show, where the row has them.
    """
    ours, paper = row["metrics"], row["paper"] or {}
    shown = [pair for pair in (*labels, ("validation RMSE", "validation_rmse")) if pair[1] in ours]
    # The paper's numbers are test errors.
    published = {key: paper[key] for _, key in shown if key in paper and row["evaluated_on"] == "test"}
    head = f"{'paper':>12}{'ratio':>8}" if published else ""
    lines = [f"{'on ' + row['evaluated_on'] + ' data':<30}{'ours':>12}{head}"]
    for label, key in shown:
        beside = f"{published[key]:>12.3e}{ours[key] / published[key]:>8.2f}" if key in published else ""
        lines.append(f"{label:<30}{ours[key]:>12.3e}{beside}")
    count = f"{paper['num_params']:>12,}" if "num_params" in paper else ""
    lines.append(f"{'parameters':<30}{row['num_params']:>12,}{count}")
    lines.append(f"{'training seconds (CPU)':<30}{row['train_seconds']:>12.0f}   ({row['cpu_seconds']:.0f})")
    if "function_evaluations" in ours:
        lines.append(f"{'vector field evaluations':<30}{ours['function_evaluations']:>12.0f}")
    if "certified_lipschitz" in ours:
        measured = f"   (measured {ours['measured_gain']:.3g})" if "measured_gain" in ours else ""
        lines.append(f"{'certified growth':<30}{ours['certified_lipschitz']:>12.3g}{measured}")
    return "\n".join(lines)
