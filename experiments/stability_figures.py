"""Figures on the bound M, from the rows of ``experiments.vibration``."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ctfno_jax.plotting import stability as plots
from experiments import tables
from experiments.configs import vibration as presets

# M of the paper's figure of singular values: with stabilisation, and as good as without.
_SHOWN = (1.2, 10.0)
_METRICS = {
    "train": "train_mse",
    "test": "mse",
    "certified": "certified_lipschitz",
    "measured": "measured_gain",
}
_KINDS = {"kernels": "kernels R(t, xi), mean over times", "pointwise": "maps W(t), mean over times"}


def of_rule(rows: list[tables.Row], rule: str) -> list[tables.Row]:
    """Rows of CTFNO under one rule; those without a bound are of both."""
    return [row for row in rows if row["model"] == "ctfno" and row["stability_rule"] in (None, rule)]


def by_bound(rows: list[tables.Row], metric: str) -> dict[float | None, list[float]]:
    """Values of all seeds, by bound."""
    values: dict[float | None, list[float]] = {}
    for row in rows:
        values.setdefault(row["stability_bound"], []).append(row["metrics"][metric])
    return values


def effect_of_bound(results: Path, preset: str) -> Figure | None:
    """Errors and growth against M, for the rules that there are rows of."""
    rows = tables.read_rows(results / "vibration", preset)
    curves: dict[str, Any] = {}
    for rule in presets.RULES:
        some = of_rule(rows, rule)
        if any(row["stability_rule"] == rule for row in some):
            curves[rule] = {name: by_bound(some, metric) for name, metric in _METRICS.items()}
        else:
            print(f"left out: no row of rule {rule} in {results / 'vibration'} of preset {preset}")
    return plots.effect_of_bound(curves, title="plane vibration: the effect of M") if curves else None


def singular_values(results: Path, preset: str) -> Figure | None:
    """Singular values of the trained weights of all seeds, under the rule of the paper."""
    rows = of_rule(tables.read_rows(results / "vibration", preset), "rows")
    values: dict[str, dict[float | None, np.ndarray]] = {}
    for bound in _SHOWN:
        found = [row["metrics"]["singular_values"] for row in rows if row["stability_bound"] == bound]
        if not found:
            print(f"left out: no row of M = {bound:g} in {results / 'vibration'} of preset {preset}")
            continue
        for name, kind in _KINDS.items():
            values.setdefault(kind, {})[bound] = np.concatenate([some[name] for some in found])
    return plots.singular_values(values) if values else None
