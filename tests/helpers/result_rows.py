"""Result rows made by hand, in the files where finished cells leave them."""

import json
from pathlib import Path
from typing import Any

from experiments import rows
from experiments.cells import Cell


def write_row(
    folder: Path, cell: Cell, *, drop: tuple[str, ...] = (), data: Any = None, settings: Any = None,
    steps: int | None = None, **scores: Any,
) -> None:  # fmt: skip
    """The row of a cell with these metrics, facts about its data and settings, without the keys in ``drop``."""
    row = {
        **dict.fromkeys(rows.KEYS), "experiment": cell.experiment, "dataset": cell.dataset, "model": cell.model,
        "preset": cell.preset, "seed": cell.seed, "overrides": dict(cell.overrides), "evaluated_on": "test",
        "num_params": 1234567, "cpu_seconds": 90.0 + 60 * cell.seed, "command": cell.command, "data": data or {},
        "steps": steps, "source": "generated",
        "config": {"settings": settings or {}},
        "metrics": {"rmse": 5.2e-4, "nrmse": 2e-3, **scores},
    }  # fmt: skip
    path = cell.row_path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({name: value for name, value in row.items() if name not in drop}))
