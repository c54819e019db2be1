"""Figures of partly observed series show what was observed, asked for and answered, in real units."""

import numpy as np
from helpers import small_latent

from ctfno_jax.plotting import latent as plots


def _lines(axis):
    return {line.get_label(): line for line in axis.lines}


def test_forecasts_are_drawn_in_real_units_over_observed_and_asked_points():
    data = small_latent.dataset("regular")
    some = data.validation.select(slice(2))
    mean = np.random.default_rng(0).normal(size=some.target.values.shape)
    figure = plots.forecasts(some, mean, np.ones_like(mean), data, title="waves")
    assert len(figure.axes) == 4  # two features, two series
    for row in range(2):
        for column in range(2):
            axis = figure.axes[2 * row + column]
            lines = _lines(axis)
            there = some.observed.mask[column, :, row] > 0
            real = some.observed.values[column, there, row] * data.scale[row] + data.offset[row]
            np.testing.assert_allclose(lines["observed"].get_ydata(), real, rtol=1e-6)
            np.testing.assert_allclose(
                lines["observed"].get_xdata(), 48 * some.observed.times[column, there], rtol=1e-6
            )
            np.testing.assert_array_equal(lines["forecast ± std"].get_ydata(), mean[column, :, row])
            lowest = axis.collections[0].get_paths()[0].vertices[:, 1].min()
            np.testing.assert_allclose(lowest, mean[column, :, row].min() - 1, rtol=1e-5)


def test_classes_are_drawn_with_their_probabilities_below_the_observations():
    data = small_latent.dataset("classes", class_names=("walking", "falling", "lying"))
    some = data.validation.select(slice(3))
    raw = np.random.default_rng(0).random((*some.labels.shape, 3))
    probabilities = raw / raw.sum(-1, keepdims=True)
    figure = plots.classes(some, probabilities, data, title="waves")
    assert len(figure.axes) == 6
    assert [label.get_text() for label in figure.axes[3].get_yticklabels()] == ["walking", "falling", "lying"]
    for column in range(3):
        above, below = figure.axes[column], figure.axes[3 + column]
        there = some.observed.mask[column, :, 1] > 0
        real = some.observed.values[column, there, 1] * data.scale[1] + data.offset[1]
        np.testing.assert_allclose(_lines(above)["y"].get_ydata(), real, rtol=1e-6)
        valid = some.target.valid[column]
        np.testing.assert_array_equal(_lines(below)["true class"].get_ydata(), some.labels[column, valid])
        shown = below.collections[0].get_array().reshape(3, valid.sum())
        np.testing.assert_allclose(shown, probabilities[column, valid].T, rtol=1e-12)
