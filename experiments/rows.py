"""Rows of finished cells, read and checked."""

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
