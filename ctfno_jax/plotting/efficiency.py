"""Errors of several seeds against the number of training trajectories."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch


def box_plots(errors: Mapping[float | None, Mapping[int, list[float]]]) -> Figure:
    """One box for each number of trajectories and each bound, side by side.

    Args:
      errors: errors of all seeds, by bound (None for no bound) and number of training trajectories.
    """
    figure = Figure(figsize=(7.5, 4), layout="constrained")
    axis = figure.subplots()
    bounds = sorted(errors, key=lambda bound: -np.inf if bound is None else -bound)
    sizes = sorted({size for by_size in errors.values() for size in by_size})
    width = 0.8 / max(1, len(bounds))
    patches = []
    for i, bound in enumerate(bounds):
        there = [(k, errors[bound][size]) for k, size in enumerate(sizes) if errors[bound].get(size)]
        positions = [k + (i - (len(bounds) - 1) / 2) * width for k, _ in there]
        boxes = axis.boxplot(
            [values for _, values in there], positions=positions, widths=0.8 * width, patch_artist=True,
            medianprops={"color": "black"}, manage_ticks=False, showfliers=False,
        )  # fmt: skip
        for box in boxes["boxes"]:
            box.set_facecolor(f"C{i}")
            box.set_alpha(0.5)
        for position, (_, values) in zip(positions, there, strict=True):
            axis.plot([position] * len(values), values, ".", color=f"C{i}", ms=5)
        name = "no bound" if bound is None else f"M = {bound:g}"
        patches.append(Patch(facecolor=f"C{i}", alpha=0.5, label=name))
    axis.set_yscale("log")
    axis.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axis.set_xlabel("training trajectories")
    axis.set_ylabel("test RMSE on heat")
    axis.grid(alpha=0.3, which="both", axis="y")
    axis.legend(handles=patches, fontsize=9)
    return figure
