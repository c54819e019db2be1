"""Errors of several seeds against the part of the training set."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch


def median(values: list[float]) -> float | None:
    """The median, or None of nothing."""
    return float(np.median(values)) if values else None


def box_plots(errors: dict[float | None, dict[int, list[float]]]) -> Figure:
    """One box for each part of the training set and each bound, side by side.

    Args:
      errors: by bound, None for no stabilisation, and by percent: the errors of all seeds.
    """
    figure = Figure(figsize=(7.5, 4), layout="constrained")
    axis = figure.subplots()
    bounds = sorted(errors, key=lambda bound: -np.inf if bound is None else -bound)
    percents = sorted({percent for by_percent in errors.values() for percent in by_percent})
    width = 0.8 / max(1, len(bounds))
    patches = []
    for i, bound in enumerate(bounds):
        colour = f"C{i}"
        there = [(k, errors[bound][p]) for k, p in enumerate(percents) if errors[bound].get(p)]
        positions = [k + (i - (len(bounds) - 1) / 2) * width for k, _ in there]
        boxes = axis.boxplot(
            [values for _, values in there], positions=positions, widths=0.8 * width, patch_artist=True,
            medianprops={"color": "black"}, manage_ticks=False,
        )  # fmt: skip
        for box in boxes["boxes"]:
            box.set_facecolor(colour)
            box.set_alpha(0.5)
        for position, (_, values) in zip(positions, there, strict=True):
            axis.plot([position] * len(values), values, ".", color=colour, ms=5)
        name = "no stabilisation" if bound is None else f"M = {bound:g}"
        patches.append(Patch(facecolor=colour, alpha=0.5, label=name))
    axis.set_yscale("log")
    axis.set_xticks(range(len(percents)), [f"{percent}%" for percent in percents])
    axis.set_xlabel("part of the training trajectories")
    axis.set_ylabel("test RMSE on heat")
    axis.grid(alpha=0.3, which="both", axis="y")
    axis.legend(handles=patches, fontsize=9)
    return figure
