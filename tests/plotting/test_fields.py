"""Pictures show the arrays they are given."""

import numpy as np

from ctfno_jax.plotting import fields


def test_heatmaps_show_truth_prediction_and_error():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((4, 7))
    prediction = truth + 0.1 * rng.standard_normal((4, 7))
    figure = fields.heatmaps(truth, prediction, np.array([0.1, 0.2, 0.3, 0.4]), title="heat")
    images = {axis.get_title(): axis.images[0] for axis in figure.axes if axis.images}
    np.testing.assert_array_equal(images["truth"].get_array(), truth)
    np.testing.assert_array_equal(images["prediction"].get_array(), prediction)
    np.testing.assert_array_equal(images["error"].get_array(), prediction - truth)
    assert images["truth"].get_clim() == images["prediction"].get_clim()
    assert images["truth"].get_extent() == [0.0, 1.0, 0.1, 0.4]


def test_a_field_that_changes_sign_has_its_zero_in_the_middle_of_the_colours():
    truth = np.asarray([[-1.0, 3.0], [0.5, 2.0]])
    times = np.asarray([0.1, 0.2])
    both, positive = (fields.heatmaps(u, u, times, domain=(-1.0, 1.0)) for u in (truth, truth + 1.5))
    assert both.axes[0].images[0].get_clim() == (-3.0, 3.0)
    assert positive.axes[0].images[0].get_clim() == (0.5, 4.5)
    assert both.axes[2].images[0].get_extent() == [-1.0, 1.0, 0.1, 0.2]


def test_a_perfect_prediction_can_be_drawn():
    truth = np.ones((2, 3))
    figure = fields.heatmaps(truth, truth, np.array([0.1, 0.2]))
    error = next(axis for axis in figure.axes if axis.get_title() == "error")
    assert error.images[0].get_clim() == (-1.0, 1.0)


def test_snapshots_name_the_initial_state_and_at_most_a_dozen_times():
    times = np.linspace(0.0, 1.0, 30)
    figure = fields.snapshots(np.zeros(5), np.ones((30, 5)), times)
    labels = [line.get_label() for line in figure.axes[0].lines]
    assert labels[0] == "initial state"
    assert len(labels) == 13
    assert labels[1] == "t = 0"
    assert labels[-1] == "t = 1"


def test_growth_has_both_curves():
    times = np.array([0.5, 1.0])
    figure = fields.growth(times, np.array([4.0, 3.0]), np.array([1.0, 0.9]))
    certified, measured = figure.axes[0].lines
    np.testing.assert_array_equal(certified.get_ydata(), [4.0, 3.0])
    np.testing.assert_array_equal(measured.get_ydata(), [1.0, 0.9])
