"""Figures of series: observations, truth and forecasts."""

import dataclasses
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from ctfno_jax.data.series import Series


def curves(times: Float[np.ndarray, " time"], values: Float[np.ndarray, "time features"], *, title: str) -> Figure:
    """Every component against time."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    axis = figure.subplots()
    for i in range(values.shape[-1]):
        axis.plot(times, values[:, i], "o-", ms=3, label=f"component {i}")
    axis.set_title(title)
    axis.set_xlabel("time since the last observation")
    axis.legend()
    return figure


def forecast(test: Series, values: Float[np.ndarray, "batch time features"], *, title: str, sample: int = 0) -> Figure:
    """One series with its forecast, one panel for each component."""
    return compare(test, {"forecast": values}, title=title, sample=sample)


def compare(
    test: Series, values: Mapping[str, Float[np.ndarray, "batch time features"]], *, title: str, sample: int = 0
) -> Figure:
    """One series with the forecasts of several models, one panel for each component."""
    figure = Figure(figsize=(8, 1 + 2 * test.features), layout="constrained")
    figure.suptitle(title, fontsize=11)
    axes = figure.subplots(test.features, 1, squeeze=False)[:, 0]
    observed_times, times = (t if t.ndim == 1 else t[sample] for t in (test.observed_times, test.times))
    for i, axis in enumerate(axes):
        axis.plot(observed_times, test.observed[sample, :, i], color="0.6", label="observed")
        axis.plot(times, test.values[sample, :, i], color="black", label="truth")
        for name, some in values.items():
            axis.plot(times, some[sample, :, i], linestyle="--", label=name)
        axis.axvline(0.0, color="0.8", linewidth=1)
        axis.set_ylabel("xy"[i] if test.features == 2 else f"signal {i + 1}" if test.features > 2 else "x")
    axes[-1].set_xlabel("time since the last observation")
    lines, names = axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=min(len(names), 4), fontsize=9)
    return figure


def grid_of_forecasts(rows: Mapping[str, tuple[Series, Mapping[str, np.ndarray]]]) -> Figure:
    """One row for each data set, one column for each model: truth and forecast of the first component."""
    models = list(dict.fromkeys(model for _, forecasts in rows.values() for model in forecasts))
    figure = Figure(figsize=(2.6 * len(models), 1.9 * len(rows) + 0.4), layout="constrained")
    axes = figure.subplots(len(rows), len(models), squeeze=False, sharey="row", sharex=True)
    for line, (dataset, (test, forecasts)) in zip(axes, rows.items(), strict=True):
        line[0].set_ylabel(dataset)
        for i, (axis, model) in enumerate(zip(line, models, strict=True)):
            axis.plot(test.times, test.values[0, :, 0], color="black", linewidth=1, label="truth")
            if model in forecasts:
                axis.plot(test.times, forecasts[model][0, :, 0], "--", color=f"C{i}", label="forecast")
    for axis, model in zip(axes[0], models, strict=True):
        axis.set_title(model, fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("t")
    figure.suptitle("truth (solid) and forecast (dashed) of the first component", fontsize=10)
    return figure


def extrapolations(test: Series, forecasts: Mapping[str, np.ndarray], *, trained_until: float) -> Figure:
    """One panel for each model: both components against time, beyond the training times."""
    figure = Figure(figsize=(9, 1.7 * len(forecasts) + 0.6), layout="constrained")
    axes = figure.subplots(len(forecasts), 1, squeeze=False, sharex=True)[:, 0]
    for axis, (model, values) in zip(axes, forecasts.items(), strict=True):
        for i, name in enumerate("xy"[: test.features]):
            axis.plot(test.times, test.values[0, :, i], color="0.7", linewidth=2.5, label=f"{name}, truth")
            axis.plot(test.times, values[0, :, i], "--", color=f"C{i}", linewidth=1.2, label=f"{name}, forecast")
        axis.axvline(trained_until, color="black", linewidth=0.8)
        # A diverging forecast must not flatten the truth.
        span = np.abs(test.values[0]).max()
        axis.set_ylim(-1.5 * span, 1.5 * span)
        axis.set_title(model, fontsize=10, loc="left")
    axes[-1].set_xlabel("time since the last observation; the vertical line marks the end of the training times")
    lines, names = axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=4, fontsize=9)
    return figure


@dataclasses.dataclass(frozen=True)
class NoisyPanel:
    """One series, the noise on its observations, and the forecasts without and with it."""

    title: str
    test: Series
    noise: Float[np.ndarray, "steps features"]
    clean: Float[np.ndarray, "time features"]
    noisy: Float[np.ndarray, "time features"]


def noise_panels(panels: list[NoisyPanel]) -> Figure:
    """Noisy observations and forecasts from them, two panels in a row."""
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(11, 3.0 * rows), layout="constrained")
    axes = list(figure.subplots(rows, 2, squeeze=False).flat)
    for axis, panel in zip(axes, panels, strict=False):
        observed = panel.test.observed[0, :, 0]
        axis.plot(
            panel.test.observed_times, observed + panel.noise[:, 0], ".", color="0.6", ms=3, label="observed with noise"
        )
        axis.plot(panel.test.times, panel.test.values[0, :, 0], color="black", linewidth=1, label="truth")
        axis.plot(panel.test.times, panel.clean[:, 0], color="C0", linewidth=1.2, label="forecast without noise")
        axis.plot(panel.test.times, panel.noisy[:, 0], "--", color="C3", linewidth=1.2, label="forecast with noise")
        axis.set_title(panel.title, fontsize=9)
        axis.set_xlabel("time since the last observation")
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    lines, names = axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=4, fontsize=9)
    return figure
