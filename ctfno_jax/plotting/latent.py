"""Partly observed series: observations, and forecasts with their spread or classes with their probabilities."""

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from ctfno_jax.data.masked_series import MaskedDataset, Part

# Features that are drawn, those observed most often.
_FEATURES = 4
# Of features in one panel: more than the ten of the default cycle.
_COLORS = [to_hex(matplotlib.colormaps["tab20"](i)) for i in range(20)]


def forecasts(
    some: Part,
    mean: Float[np.ndarray, "batch time features"],
    std: Float[np.ndarray, "batch time features"],
    data: MaskedDataset,
    *,
    title: str,
) -> Figure:
    """One column for each series, one row for each of the features that are observed most often.

    Args:
      some: the series.
      mean: forecasts at the targets, in real units.
      std: their standard deviations.
      data: the data set they are from, for units and names.
      title: of the figure.
    """
    scale, offset = np.asarray(data.scale), np.asarray(data.offset)
    often = np.argsort(-some.target.mask.sum(axis=(0, 1)), kind="stable")[: min(_FEATURES, len(data.features))]
    shown = sorted(int(feature) for feature in often)
    figure = Figure(figsize=(4 * len(some), 1.8 * len(shown) + 0.8), layout="constrained")
    axes = figure.subplots(len(shown), len(some), squeeze=False, sharex="col")
    for column in range(len(some)):
        times = some.target.times[column] * data.time_unit + data.time_offset
        order = np.argsort(times, kind="stable")
        valid = order[some.target.valid[column][order]]
        for row, feature in enumerate(shown):
            axis = axes[row, column]
            value, deviation = mean[column, valid, feature], std[column, valid, feature]
            axis.fill_between(times[valid], value - deviation, value + deviation, color="C0", alpha=0.25, lw=0)
            axis.plot(times[valid], value, color="C0", lw=1.2, label="forecast ± std")
            for part, style, label in (
                (some.target, {"marker": ".", "color": "0.6", "ms": 3}, "asked for"),
                (some.observed, {"marker": "o", "color": "C3", "ms": 4, "fillstyle": "none"}, "observed"),
            ):
                there = part.mask[column, :, feature] > 0
                real = part.values[column, there, feature] * scale[feature] + offset[feature]
                at = part.times[column, there] * data.time_unit + data.time_offset
                axis.plot(at, real, ls="none", label=label, **style)
            if column == 0:
                axis.set_ylabel(data.features[feature], fontsize=9)
            if row == len(shown) - 1:
                axis.set_xlabel(f"time [{data.time_name}]" if data.time_name else "time")
            axis.tick_params(labelsize=8)
    axes[0, 0].legend(fontsize=7)
    figure.suptitle(title, fontsize=10)
    return figure


def classes(
    some: Part, probabilities: Float[np.ndarray, "batch time classes"], data: MaskedDataset, *, title: str
) -> Figure:
    """One column for each series: its observations above, probabilities of the classes and the true class below.

    Args:
      some: the series, with their labels.
      probabilities: of every class at the targets.
      data: the data set they are from, for units and names.
      title: of the figure.
    """
    assert some.labels is not None
    scale, offset = np.asarray(data.scale), np.asarray(data.offset)
    shown = len(data.class_names) or 1 + max(int(some.labels.max()), int(probabilities.argmax(-1).max()))
    figure = Figure(figsize=(4 * len(some) + 1, 5), layout="constrained")
    axes = figure.subplots(2, len(some), squeeze=False, sharex="col", sharey="row")
    for column in range(len(some)):
        above, below = axes[:, column]
        for feature, name in enumerate(data.features):
            there = some.observed.mask[column, :, feature] > 0
            at = some.observed.times[column, there] * data.time_unit + data.time_offset
            real = some.observed.values[column, there, feature] * scale[feature] + offset[feature]
            above.plot(at, real, ".", ms=3, color=_COLORS[feature % len(_COLORS)], label=name)
        valid = some.target.valid[column]
        at = some.target.times[column, valid] * data.time_unit + data.time_offset
        chances, labels = probabilities[column, valid, :shown], some.labels[column, valid]
        below.pcolormesh(at, np.arange(shown), chances.T, cmap="Blues", vmin=0, vmax=1, shading="nearest")
        below.plot(at[labels >= 0], labels[labels >= 0], ".", ms=4, color="C3", label="true class")
        below.set_xlabel(f"time [{data.time_name}]" if data.time_name else "time")
    axes[0, 0].set_ylabel("observed")
    axes[1, 0].set_yticks(range(shown), data.class_names or [str(i) for i in range(shown)], fontsize=8)
    axes[1, 0].invert_yaxis()
    axes[1, 0].legend(fontsize=7)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right upper", fontsize=7)
    figure.suptitle(title, fontsize=10)
    return figure
