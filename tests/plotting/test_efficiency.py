"""Box plots show the errors of every seed at the place of their training set."""

import numpy as np
from matplotlib.patches import PathPatch

from ctfno_jax.plotting import efficiency


def test_every_set_of_seeds_is_a_box_beside_its_rivals():
    errors = {1.2: {20: [3.0, 1.0, 2.0], 400: [0.5, 0.7, 0.6]}, None: {20: [6.0, 5.0, 7.0]}}
    figure = efficiency.box_plots(errors)
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["20", "400"]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["no bound", "M = 1.2"]
    assert axis.get_yscale() == "log"
    boxes = [patch for patch in axis.patches if isinstance(patch, PathPatch)]
    middles = sorted(box.get_path().vertices[:, 0].mean() for box in boxes)
    assert len(boxes) == 3
    assert middles[0] < 0 < middles[1] < 0.5 < 1 < middles[2]
    points = [line for line in axis.lines if line.get_marker() == "."]
    drawn = sorted(tuple(np.sort(line.get_ydata())) for line in points)
    assert drawn == [(0.5, 0.6, 0.7), (1.0, 2.0, 3.0), (5.0, 6.0, 7.0)]
    medians = {line.get_ydata()[0] for line in axis.lines if line.get_color() == "black" and len(line.get_xdata()) == 2}
    assert {2.0, 0.6, 6.0} <= medians
