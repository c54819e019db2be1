"""What the rows and the closing tables of all runs have in common."""

import platform
from importlib import metadata
from typing import Any

import jax

from ctfno_jax.config import ExperimentConfig
from ctfno_jax.training import checkpoint
from experiments import host, paper_results


def row(
    config: ExperimentConfig, *, source: str, facts: dict[str, float], num_params: int, last: checkpoint.Checkpoint,
    scores: dict[str, Any], **extra: Any,
) -> dict[str, Any]:  # fmt: skip
    """The result of one run: which cell it is, what it scored, and on what it was made."""
    return {
        "experiment": config.experiment,
        "dataset": config.dataset.dataset,
        "source": source,
        "data": {name: float(f"{value:.6g}") for name, value in facts.items()},
        "model": config.model.model,
        "preset": config.preset,
        "seed": config.seed,
        "num_params": num_params,
        "steps": last.step,
        "train_seconds": round(float(last.description["train_seconds"]), 1),
        **extra,
        "metrics": scores,
        "paper": paper_results.paper_result(config.experiment, config.dataset.dataset, config.model.model),
        "versions": {name: metadata.version(name) for name in ("jax", "flax", "optax", "orbax-checkpoint", "numpy")}
        | {"python": platform.python_version()},
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.local_devices()],
        "cpu_cores": host.usable_cores(),
    }


def summary_lines(result: dict[str, Any], rows: tuple[tuple[str, str], ...], unit: str = "rmse") -> list[str]:
    """Lines of the table that ends a run: errors beside the paper's, size, time, evaluations and certified growth.

    Args:
      result: the row.
      rows: labels and names of the metrics to show, where the row has them.
      unit: the metric that the paper's number is compared with.
    """
    ours, paper = result["metrics"], result["paper"] or {}
    lines = [f"{'':<30}{'ours':>12}{'paper':>12}{'ratio':>8}"]
    for label, key in rows:
        if key not in ours:
            continue
        published = paper.get("mse" if unit == "mse" else "rmse") if key == unit else None
        printed, ratio = ("-", "-") if published is None else (f"{published:.3e}", f"{ours[key] / published:.2f}")
        lines.append(f"{label:<30}{ours[key]:>12.3e}{printed:>12}{ratio:>8}")
    count = f"{round(paper['num_params']):>12,}" if "num_params" in paper else ""
    lines.append(f"{'parameters':<30}{result['num_params']:>12,}" + count)
    lines.append(f"{'training seconds':<30}{result['train_seconds']:>12.0f}")
    if "function_evaluations" in ours:
        lines.append(f"{'evaluations of the field':<30}{ours['function_evaluations']:>12.0f}")
    if "certified_lipschitz" in ours:
        lines.append(
            f"{'certified growth':<30}{ours['certified_lipschitz']:>12.3g}   (measured {ours['measured_gain']:.3g})"
        )
    return lines
