"""Images with the classes that a network gives them, and the accuracy of classifiers."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Int
from matplotlib.figure import Figure

from ctfno_jax.data.images import Images

_COLUMNS = 8


def answers(some: Images, found: Int[np.ndarray, " count"], *, title: str) -> Figure:
    """Every image with its class; where the network gives another, both, in red.

    Args:
      some: images with their labels.
      found: class that the network gives each of them.
      title: of the figure.
    """
    rows = -(-len(some) // _COLUMNS)
    figure = Figure(figsize=(1.1 * _COLUMNS, 1.3 * rows + 0.4), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(rows, _COLUMNS, squeeze=False)
    for axis in axes.ravel():
        axis.set_axis_off()
    for axis, image, label, answer in zip(axes.ravel(), some.images, some.labels, found, strict=False):
        axis.imshow(image if image.shape[-1] == 3 else image[..., 0], cmap="gray", vmin=0, vmax=1)
        right = label == answer
        text = str(int(label)) if right else f"{int(label)}, not {int(answer)}"
        axis.set_title(text, fontsize=8, color="black" if right else "firebrick")
    return figure


def accuracy_by_bound(curves: Mapping[str, Mapping[float | None, list[float]]], *, title: str) -> Figure:
    """Accuracy against the bound M; None, no bound, comes last.

    Args:
      curves: accuracies of all seeds by bound, by name.
      title: of the figure.
    """
    bounds = sorted({b for values in curves.values() for b in values}, key=lambda b: np.inf if b is None else b)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axis = figure.subplots()
    for name, values in curves.items():
        places = [i for i, bound in enumerate(bounds) if values.get(bound)]
        found = [100 * np.asarray(values[bounds[i]]) for i in places]
        (line,) = axis.plot(places, [some.mean() for some in found], "o-", ms=4, label=name)
        lowest, highest = [some.min() for some in found], [some.max() for some in found]
        axis.fill_between(places, lowest, highest, color=line.get_color(), alpha=0.15)
    axis.set_xticks(range(len(bounds)), ["none" if b is None else f"{b:g}" for b in bounds])
    axis.set_xlabel("bound M")
    axis.set_ylabel("test accuracy (%)")
    axis.set_title(title, fontsize=11)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=9)
    return figure


def learning_curves(curves: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]]) -> Figure:
    """Validation accuracy against epochs: one panel for each data set, one curve for each model."""
    figure = Figure(figsize=(5 * len(curves), 3.8), layout="constrained")
    axes = figure.subplots(1, len(curves), squeeze=False)[0]
    for axis, (dataset, models) in zip(axes, curves.items(), strict=True):
        for model, (epochs, accuracies) in models.items():
            axis.plot(epochs, 100 * accuracies, ".-", label=model)
        axis.set_title(dataset, fontsize=11)
        axis.set_xlabel("epoch")
        axis.set_ylabel("validation accuracy (%)")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=9)
    return figure
