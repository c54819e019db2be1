"""Figures over several equations and models."""

import dataclasses

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from ctfno_jax.plotting import fields

# Told apart without colour too.
_STYLES = ("o-", "s--", "^-.", "v:", "D-", "x--", "+-.", "*:")


@dataclasses.dataclass(frozen=True)
class Panel:
    """One field of one equation: its name, truth and prediction over time and x, the times, and the ends of x."""

    label: str
    truth: Float[np.ndarray, "time x"]
    prediction: Float[np.ndarray, "time x"]
    times: Float[np.ndarray, " time"]
    domain: tuple[float, float]


def heatmap_rows(panels: list[Panel]) -> Figure:
    """Truth, prediction and error, one row for each field."""
    figure = Figure(figsize=(11, 2.6 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 3, squeeze=False)
    for row, panel in zip(axes, panels, strict=True):
        fields.heatmap_row(figure, list(row), panel.truth, panel.prediction, panel.times, domain=panel.domain)
        row[0].set_ylabel(f"{panel.label}\nt")
    return figure


def error_curves(curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]) -> Figure:
    """Error against time, one panel for each equation and one curve for each model."""
    columns = min(2, len(curves))
    rows = -(-len(curves) // columns)
    figure = Figure(figsize=(5.5 * columns, 3.4 * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    names = list(dict.fromkeys(model for models in curves.values() for model in models))
    styles = dict(zip(names, [_STYLES[i % len(_STYLES)] for i in range(len(names))], strict=True))
    colours = {name: f"C{i}" for i, name in enumerate(names)}
    for axis, (dataset, models) in zip(axes, curves.items(), strict=False):
        for model, (times, errors) in models.items():
            every = max(1, len(times) // 12)
            axis.semilogy(
                times, errors, styles[model], color=colours[model], ms=4, lw=1.3, markevery=every, label=model
            )
        axis.set_title(dataset)
        axis.set_xlabel("t")
        axis.set_ylabel("test RMSE in standard deviations")
        axis.grid(alpha=0.3)
    for axis in axes[len(curves) :]:
        axis.set_visible(False)
    # One legend for all, where it covers no curve.
    lines = {line.get_label(): line for axis in axes for line in axis.get_lines()}
    figure.legend([lines[name] for name in names], names, loc="outside lower center", ncols=len(names), fontsize=9)
    return figure
