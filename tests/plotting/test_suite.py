"""Figures over several equations and models show the arrays they are given, each in its place."""

import numpy as np
import pytest

from ctfno_jax.plotting import suite


def _panel(label, seed, num_times, num_points, domain):
    rng = np.random.default_rng(seed)
    truth, error = rng.standard_normal((2, num_times, num_points))
    return suite.Panel(label, truth, truth + 0.1 * error, np.arange(1, num_times + 1) / 8, domain)


def test_every_field_is_a_row_of_truth_prediction_and_error():
    panels = [_panel("heat", 0, 4, 7, (0.0, 1.0)), _panel("flow, density", 1, 3, 5, (-1.0, 1.0))]
    figure = suite.heatmap_rows(panels)
    axes = np.asarray([axis for axis in figure.axes if axis.images]).reshape(2, 3)
    for row, panel in zip(axes, panels, strict=True):
        assert [axis.get_title() for axis in row] == ["truth", "prediction", "error"]
        expected = (panel.truth, panel.prediction, panel.prediction - panel.truth)
        for axis, array in zip(row, expected, strict=True):
            np.testing.assert_array_equal(axis.images[0].get_array(), array)
            assert axis.images[0].get_extent() == [*panel.domain, panel.times[0], panel.times[-1]]
        assert row[0].images[0].get_clim() == row[1].images[0].get_clim()
        assert row[0].get_ylabel() == f"{panel.label}\nt"
    assert axes[0, 0].images[0].get_clim() != axes[1, 0].images[0].get_clim()


def test_the_colours_of_one_row_do_not_depend_on_another():
    small, large = _panel("a", 0, 4, 7, (0.0, 1.0)), _panel("b", 1, 4, 7, (0.0, 1.0))
    large = suite.Panel("b", 100 * large.truth, 100 * large.prediction, large.times, large.domain)
    alone, together = suite.heatmap_rows([small]), suite.heatmap_rows([small, large])
    assert alone.axes[0].images[0].get_clim() == together.axes[0].images[0].get_clim()


def _curves(*names):
    times = np.asarray([0.5, 1.0, 1.5])
    return {
        name: {"ctfno": (times, np.asarray([1.0, 2.0, 3.0]) * (i + 1)), "fno_2d": (times[1:], np.asarray([5.0, 4.0]))}
        for i, name in enumerate(names)
    }


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_equation_is_a_panel_and_every_model_a_curve(count):
    names = ("heat", "burgers", "sorption", "flow")[:count]
    figure = suite.error_curves(_curves(*names))
    drawn = [axis for axis in figure.axes if axis.lines]
    assert [axis.get_title() for axis in drawn] == list(names)
    for i, axis in enumerate(drawn):
        ours, theirs = axis.lines
        assert (ours.get_label(), theirs.get_label()) == ("ctfno", "fno_2d")
        np.testing.assert_array_equal(ours.get_ydata(), np.asarray([1.0, 2.0, 3.0]) * (i + 1))
        np.testing.assert_array_equal(theirs.get_xdata(), [1.0, 1.5])
        assert axis.get_yscale() == "log"
        assert axis.get_xlabel() == "t"
    assert [axis for axis in figure.axes if axis.get_visible()] == drawn
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ctfno", "fno_2d"]


def test_a_model_looks_the_same_in_every_panel():
    curves = _curves("heat", "burgers")
    del curves["heat"]["ctfno"]
    figure = suite.error_curves(curves)
    looks = [
        {line.get_label(): (line.get_color(), line.get_linestyle(), line.get_marker()) for line in axis.lines}
        for axis in figure.axes
    ]
    assert looks[0]["fno_2d"] == looks[1]["fno_2d"]
    assert looks[1]["fno_2d"] != looks[1]["ctfno"]
