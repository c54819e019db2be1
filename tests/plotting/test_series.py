"""Figures of series show the arrays they are given."""

import numpy as np
import pytest

from ctfno_jax.data.series import Series
from ctfno_jax.plotting import series as plots


@pytest.fixture
def some_series():
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    return Series(np.arange(-3.0, 1.0), draw(2, 4, 2), np.arange(1.0, 6.0), draw(2, 5, 2))


def test_a_forecast_is_drawn_over_the_truth_for_every_component(some_series):
    values = some_series.values + 1
    figure = plots.forecast(some_series, values, title="two", sample=1)
    assert len(figure.axes) == 2
    for i, axis in enumerate(figure.axes):
        drawn = {line.get_label(): line for line in axis.lines}
        np.testing.assert_array_equal(drawn["observed"].get_ydata(), some_series.observed[1, :, i])
        np.testing.assert_array_equal(drawn["truth"].get_ydata(), some_series.values[1, :, i])
        np.testing.assert_array_equal(drawn["forecast"].get_ydata(), values[1, :, i])
        np.testing.assert_array_equal(drawn["forecast"].get_xdata(), some_series.times)


def test_a_model_without_a_run_leaves_its_panel_with_the_truth_alone(some_series):
    rows = {
        "a": (some_series, {"one": some_series.values, "two": -some_series.values}),
        "b": (some_series, {"two": some_series.values}),
    }
    figure = plots.grid_of_forecasts(rows)
    assert [len(axis.lines) for axis in figure.axes] == [2, 2, 1, 2]
    assert [axis.get_title() for axis in figure.axes[:2]] == ["one", "two"]
    assert [figure.axes[i].get_ylabel() for i in (0, 2)] == ["a", "b"]


def test_extrapolations_keep_the_scale_of_the_truth(some_series):
    figure = plots.extrapolations(some_series, {"wild": 1e6 * some_series.values}, trained_until=2.0)
    (axis,) = figure.axes
    assert axis.get_ylim()[1] == pytest.approx(1.5 * np.abs(some_series.values[0]).max())


def test_noise_is_drawn_on_what_was_observed(some_series):
    noise = np.full((4, 2), 0.5)
    panel = plots.NoisyPanel("p", some_series, noise, some_series.values[0], some_series.values[0] + 1)
    figure = plots.noise_panels([panel, panel, panel])
    drawn = {line.get_label(): line for line in figure.axes[0].lines}
    np.testing.assert_allclose(drawn["observed with noise"].get_ydata(), some_series.observed[0, :, 0] + 0.5)
    np.testing.assert_allclose(
        drawn["forecast with noise"].get_ydata() - drawn["forecast without noise"].get_ydata(), np.ones(5), rtol=1e-6
    )
    assert [axis.get_visible() for axis in figure.axes] == [True, True, True, False]


def test_curves_of_a_prediction_have_one_line_for_each_component():
    figure = plots.curves(np.arange(3.0), np.arange(12.0).reshape(3, 4), title="t")
    assert len(figure.axes[0].lines) == 4
    np.testing.assert_array_equal(figure.axes[0].lines[2].get_ydata(), [2.0, 6.0, 10.0])
