"""Space-time pictures of one-dimensional fields."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def heatmaps(
    truth: Float[np.ndarray, "time x"],
    prediction: Float[np.ndarray, "time x"],
    times: Float[np.ndarray, " time"],
    *,
    title: str = "",
    domain: tuple[float, float] = (0.0, 1.0),
) -> Figure:
    """Truth, prediction and their difference over x and t, the first two on one colour scale."""
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    heatmap_row(figure, list(axes), truth, prediction, times, domain=domain)
    if title:
        figure.suptitle(title)
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


def snapshots(
    u0: Float[np.ndarray, " x"], u: Float[np.ndarray, "time x"], times: Float[np.ndarray, " time"], *, title: str = ""
) -> Figure:
    """The initial state and the prediction at each time, as curves over x."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axis = figure.subplots()
    axis.plot(np.arange(len(u0)) / len(u0), u0, color="0.6", lw=1.5, label="initial state")
    # A dozen curves can be told apart; more cannot.
    shown = np.unique(np.linspace(0, len(times) - 1, min(12, len(times))).round().astype(int))
    colours = _viridis(len(shown))
    for colour, index in zip(colours, shown, strict=True):
        axis.plot(np.arange(u.shape[1]) / u.shape[1], u[index], color=colour, lw=1.2, label=f"t = {times[index]:g}")
    axis.set_xlabel("x")
    axis.set_ylabel("u")
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    if title:
        axis.set_title(title)
    return figure


def growth(
    times: Float[np.ndarray, " time"],
    certified: Float[np.ndarray, " time"],
    measured: Float[np.ndarray, " time"],
    *,
    title: str = "",
) -> Figure:
    """Certified bound and measured growth of an input error against time."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axis = figure.subplots()
    axis.semilogy(times, certified, "o-", ms=3, label="certified: no error grows more")
    axis.semilogy(times, measured, "s-", ms=3, label="measured: this much was found")
    for which in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
        which("{x:g}")  # plain numbers: the range is small
    axis.set_xlabel("t")
    axis.set_ylabel("growth of an L2 error in the input")
    axis.grid(alpha=0.3, which="both")
    axis.legend(fontsize=8)
    if title:
        axis.set_title(title)
    return figure


def _viridis(count: int) -> np.ndarray:
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(0.0, 0.92, count))
