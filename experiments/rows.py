"""Rows of finished cells: read and checked, and shown as the table that ends a run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ctfno_jax.config import ConfigError

Row = dict[str, Any]

KEYS = (
    "experiment", "dataset", "model", "preset", "seed", "overrides", "command", "paper", "evaluated_on", "num_params",
    "steps", "train_seconds", "cpu_seconds", "metrics", "source", "data", "config", "commit", "versions", "devices",
)  # fmt: skip


def read(path: Path) -> Row:
    """One row; ConfigError that names the file if it is damaged, not a row, or a row of a trial."""
    remedy = "remove it and run its cell again"
    try:
        row = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); {remedy}") from error
    missing = [key for key in KEYS if key not in row] if isinstance(row, dict) else list(KEYS)
    if missing:
        raise ConfigError(f"{path} is no result row (it lacks {', '.join(missing[:4])}); {remedy}")
    if row["evaluated_on"] != "test":
        raise ConfigError(f"{path} holds errors on {row['evaluated_on']} data; {remedy}")
    return row


def read_all(results_dir: str | Path, experiment: str) -> list[Row]:
    """All rows of one experiment, in the order of their names."""
    return [read(path) for path in sorted((Path(results_dir) / experiment).glob("*.json"))]


def select(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """Rows with these values; ``overrides`` must match as a whole, and are none unless named."""
    wanted = {"preset": "default", "overrides": {}, **wanted}
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def summary(row: Row, labels: Sequence[tuple[str, str]]) -> str:
    """The table that ends a run: errors beside the paper's, size and time.

    Args:
      row: the result.
      labels: labels and names of the metrics to show, where the row has them.
    """
    ours, paper = row["metrics"], row["paper"] or {}
    lines = [f"{'on ' + row['evaluated_on'] + ' data':<30}{'ours':>12}{'paper':>12}{'ratio':>8}"]
    shown = (*labels, ("validation RMSE", "validation_rmse"))
    for label, key in shown:
        if key not in ours:
            continue
        # The paper's numbers are test errors.
        published = paper.get(key) if row["evaluated_on"] == "test" else None
        printed, ratio = ("-", "-") if published is None else (f"{published:.3e}", f"{ours[key] / published:.2f}")
        lines.append(f"{label:<30}{ours[key]:>12.3e}{printed:>12}{ratio:>8}")
    count = f"{paper['num_params']:>12,}" if "num_params" in paper else ""
    lines.append(f"{'parameters':<30}{row['num_params']:>12,}{count}")
    lines.append(f"{'training seconds (CPU)':<30}{row['train_seconds']:>12.0f}   ({row['cpu_seconds']:.0f})")
    if "function_evaluations" in ours:
        lines.append(f"{'vector field evaluations':<30}{ours['function_evaluations']:>12.0f}")
    if "certified_lipschitz" in ours:
        certified, measured = ours["certified_lipschitz"], ours["measured_gain"]
        lines.append(f"{'certified growth':<30}{certified:>12.3g}   (measured {measured:.3g})")
    return "\n".join(lines)
