"""Partly observed series: what was observed, what was asked for, and the forecasts with their spread."""

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from ctfno_jax.data.masked_series import MaskedDataset, Part

# Features that are drawn, those observed most often.
_FEATURES = 4


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
