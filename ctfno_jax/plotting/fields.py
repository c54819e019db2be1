"""Figures of fields: space-time heatmaps in one dimension, snapshots in two, a middle plane in three."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def trajectory(
    truth: Float[np.ndarray, "time *space channels"],
    prediction: Float[np.ndarray, "time *space channels"],
    times: Float[np.ndarray, " time"],
    *,
    channels: Sequence[str],
    domain: tuple[float, float] = (0.0, 1.0),
    title: str = "",
) -> Figure:
    """Truth, prediction and error of every channel of one trajectory."""
    order = np.argsort(times, kind="stable")
    truth, prediction, times = truth[order], prediction[order], times[order]
    if truth.ndim == 3:
        figure = Figure(figsize=(11, 0.4 + 3 * len(channels)), layout="constrained")
        grid = figure.subplots(len(channels), 3, sharey=True, squeeze=False)
        for i, (axes, name) in enumerate(zip(grid, channels, strict=True)):
            heatmap_row(figure, list(axes), truth[..., i], prediction[..., i], times, domain=domain)
            axes[0].set_ylabel("t" if len(channels) == 1 else f"{name}, t")
    else:
        figure = _planes({"truth": truth, "prediction": prediction, "error": prediction - truth}, times, channels)
    if title:
        figure.suptitle(title)
    return figure


def answer(
    u: Float[np.ndarray, "time *space channels"],
    times: Float[np.ndarray, " time"],
    *,
    u0: Float[np.ndarray, "*space channels"] | None = None,
    channels: Sequence[str],
    title: str = "",
) -> Figure:
    """A prediction by itself: curves over x in one dimension, snapshots of a plane otherwise."""
    order = np.argsort(times, kind="stable")
    u, times = u[order], times[order]
    if u.ndim > 3:
        figure = _planes({"prediction": u}, times, channels)
        figure.suptitle(title)
        return figure
    figure = Figure(figsize=(7.5, 0.6 + 3 * len(channels)), layout="constrained")
    for i, (axis, name) in enumerate(
        zip(figure.subplots(len(channels), 1, squeeze=False)[:, 0], channels, strict=True)
    ):
        initial = None if u0 is None or u0.shape[-1] <= i else u0[..., i]
        _curves(axis, initial, u[..., i], times)
        axis.set_ylabel(name)
    figure.axes[0].set_title(title)
    figure.axes[-1].set_xlabel("x")
    return figure


def _planes(fields: dict[str, np.ndarray], times: np.ndarray, channels: Sequence[str]) -> Figure:
    """Up to five snapshots of each field and channel; of a field in three dimensions, its middle plane."""
    shown = np.unique(np.linspace(0, len(times) - 1, min(5, len(times))).round().astype(int))
    rows = [(name, i) for i in range(len(channels)) for name in fields]
    figure = Figure(figsize=(1.2 + 2.1 * len(shown), 0.6 + 2.1 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), len(shown), squeeze=False)
    for k, (line, (name, i)) in enumerate(zip(grid, rows, strict=True)):
        field = fields[name][..., i]
        if field.ndim == 4:
            field = field[..., field.shape[-1] // 2]
        reference = fields.get("truth", fields[name])[..., i]
        low, high, colours = float(reference.min()), float(reference.max()), "viridis"
        if name == "error":
            worst = float(np.abs(field).max()) or 1.0
            low, high, colours = -worst, worst, "RdBu_r"
        image = None
        for axis, index in zip(line, shown, strict=True):
            image = axis.imshow(field[index].T, origin="lower", cmap=colours, vmin=low, vmax=high)
            axis.set_xticks([])
            axis.set_yticks([])
            if k == 0:
                axis.set_title(f"t = {times[index]:.4g}", fontsize=9)
        line[0].set_ylabel(name if len(channels) == 1 else f"{channels[i]}, {name}", fontsize=9)
        assert image is not None
        figure.colorbar(image, ax=list(line), format="%.1e" if name == "error" else None)
    return figure


def heatmap_row(
    figure: Figure,
    axes: list[Axes],
    truth: Float[np.ndarray, "time x"],
    prediction: Float[np.ndarray, "time x"],
    times: Float[np.ndarray, " time"],
    *,
    domain: tuple[float, float] = (0.0, 1.0),
) -> None:
    """The three panels of one equation; a field that changes sign has its zero in the middle of the colours."""
    error = prediction - truth
    worst = float(np.abs(error).max()) or 1.0
    low, high = float(truth.min()), float(truth.max())
    if low < 0 < high:
        low, high = -max(-low, high), max(-low, high)
    panels = (
        ("truth", truth, (low, high), "viridis"),
        ("prediction", prediction, (low, high), "viridis"),
        ("error", error, (-worst, worst), "RdBu_r"),
    )
    for axis, (name, field, (least, most), colours) in zip(axes, panels, strict=True):
        extent = (*domain, float(times[0]), float(times[-1]))
        image = axis.imshow(
            field, origin="lower", aspect="auto", extent=extent, cmap=colours, vmin=least, vmax=most,
            interpolation="nearest",
        )  # fmt: skip
        axis.set_title(name)
        axis.set_xlabel("x")
        figure.colorbar(image, ax=axis, format="%.1e" if name == "error" else None)
    axes[0].set_ylabel("t")


def _curves(axis: Axes, u0: np.ndarray | None, u: np.ndarray, times: np.ndarray) -> None:
    if u0 is not None:
        axis.plot(np.arange(len(u0)) / len(u0), u0, color="0.6", lw=1.5, label="initial state")
    # A dozen curves can be told apart; more cannot.
    shown = np.unique(np.linspace(0, len(times) - 1, min(12, len(times))).round().astype(int))
    for colour, index in zip(_viridis(len(shown)), shown, strict=True):
        axis.plot(np.arange(u.shape[1]) / u.shape[1], u[index], color=colour, lw=1.2, label=f"t = {times[index]:.4g}")
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _viridis(count: int) -> np.ndarray:
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(0.0, 0.92, count))
