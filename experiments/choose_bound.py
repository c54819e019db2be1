"""``--stability_bound=auto``: the bound M by a short search on the validation set.

Every candidate is trained for a tenth of the steps, and the one with the smallest validation error is taken; of two
within a hundredth of each other the smaller, whose certificate is tighter. The trials are printed and kept in
``bound_search.json`` in the folder of the run, which a second start reads.
"""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ctfno_jax import files
from ctfno_jax.config import ConfigError
from ctfno_jax.training import loop
from ctfno_jax.training.workdir import read_json

CANDIDATES: tuple[float | None, ...] = (0.3, 0.6, 1.2, 2.5, 5.0, 10.0, None)
_FRACTION = 0.1
_TIE = 1.01

# Trains a cell into a folder and returns its row.
Train = Callable[[Any, Path], dict[str, Any]]


def choose(cell: Any, workdir: Path, train: Train) -> float | None:
    """The bound that the search finds for a cell."""
    config = cell.config()
    if "stability_bound" not in config.network.network_fields:
        raise ConfigError(f"network {config.network.network} has no stability_bound; remove --stability_bound")
    path = workdir / "bound_search.json"
    if path.exists():
        return _kept(path, cell)
    steps = short(config.train.steps, config.train.steps_per_call)
    print(f"stability_bound=auto: {len(CANDIDATES)} candidates, {steps} steps each", flush=True)
    errors = {}
    for bound in CANDIDATES:
        trial = with_bound(cell, bound)
        trial = dataclasses.replace(trial, overrides={**trial.overrides, "steps": steps, "eval_every": steps})
        try:
            row = train(trial, workdir / "bound_search" / f"M_{_name(bound)}")
            errors[bound] = float(row["metrics"]["validation_rmse"])
        except loop.TrainingDiverged:
            errors[bound] = math.inf
        print(f"  M = {_name(bound):<5} validation {errors[bound]:.4e}", flush=True)
    chosen = best(errors)
    print(f"stability_bound={_name(chosen)} is taken", flush=True)
    # JSON has no infinity: a training that diverged has no error.
    tried = [
        {"stability_bound": bound, "validation_rmse": error if math.isfinite(error) else None}
        for bound, error in errors.items()
    ]
    files.write_json(path, {"chosen": chosen, "cell": cell.command, "steps": steps, "tried": tried})
    return chosen


def with_bound(cell: Any, bound: float | None) -> Any:
    """The cell with that bound; without one, the rule is the default, as there is nothing to bound."""
    changes: dict[str, Any] = {"stability_bound": bound}
    if bound is None and cell.config().network.network_fields["stability_rule"] != "rows":
        changes["stability_rule"] = "rows"
    return dataclasses.replace(cell, overrides={**cell.overrides, **changes})


def _kept(path: Path, cell: Any) -> float | None:
    """The choice of an earlier search for the same cell."""
    remedy = "delete it to search again"
    values = read_json(path, remedy)
    if values.get("cell") != cell.command:
        raise ConfigError(f"{path} is a search for another cell ({values.get('cell')}); {remedy}")
    chosen = values.get("chosen", math.nan)
    if chosen not in CANDIDATES:
        raise ConfigError(f"{path} is damaged (it names no candidate); {remedy}")
    print(f"stability_bound={_name(chosen)}, as {path} says")
    return chosen


def best(errors: dict[float | None, float]) -> float | None:
    """The smallest bound whose error is within a hundredth of the least."""
    least = min((error for error in errors.values() if math.isfinite(error)), default=math.inf)
    if not math.isfinite(least):
        raise ConfigError("none of the candidates for stability_bound has a finite validation error; lower the rate")
    return min((b for b, e in errors.items() if e <= _TIE * least), key=lambda b: math.inf if b is None else b)


def short(steps: int, steps_per_call: int) -> int:
    """A tenth of the steps, in whole calls."""
    return max(1, round(_FRACTION * steps / steps_per_call)) * steps_per_call


def _name(bound: float | None) -> str:
    return "none" if bound is None else f"{bound:g}"
