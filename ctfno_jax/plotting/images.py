"""Images with the classes that a network gives them."""

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
