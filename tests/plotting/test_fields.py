"""Figures of fields show the arrays they are given."""

import numpy as np
import pytest

from ctfno_jax.plotting import fields

TIMES = np.asarray([0.3, 0.1, 0.4, 0.2])


def _images(figure):
    return [axis.images[0] for axis in figure.axes if axis.images]


def _pair(*shape, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(shape)
    return truth, truth + 0.1 * rng.standard_normal(shape)


def test_one_dimension_is_drawn_over_space_and_sorted_time_for_every_channel():
    truth, prediction = _pair(4, 7, 2)
    figure = fields.trajectory(truth, prediction, TIMES, channels=("a", "b"), domain=(-1.0, 2.0), title="some")
    order = np.argsort(TIMES)
    expected = [array[order][..., i] for i in range(2) for array in (truth, prediction, prediction - truth)]
    images = _images(figure)
    for image, array in zip(images, expected, strict=True):
        np.testing.assert_array_equal(image.get_array(), array)
        assert image.get_extent() == [-1.0, 2.0, 0.1, 0.4]
    assert images[0].get_clim() == images[1].get_clim() != images[3].get_clim()
    labels = [axis.get_ylabel() for axis in figure.axes if axis.images]
    assert (labels[0], labels[3], figure.get_suptitle()) == ("a, t", "b, t", "some")


def test_a_field_that_changes_sign_has_its_zero_in_the_middle_of_the_colours():
    truth = np.asarray([[-1.0, 3.0], [0.5, 2.0]])[..., None]
    times = np.asarray([0.1, 0.2])
    both, positive = (fields.trajectory(u, u, times, channels=("u",)) for u in (truth, truth + 1.5))
    assert _images(both)[0].get_clim() == (-3.0, 3.0)
    assert _images(positive)[0].get_clim() == (0.5, 4.5)
    # A perfect prediction has a range of colours too.
    assert _images(both)[2].get_clim() == (-1.0, 1.0)


@pytest.mark.parametrize("space", [(6, 5), (6, 5, 3)])
def test_planes_are_snapshots_and_a_volume_shows_its_middle_plane(space):
    truth, prediction = _pair(4, *space, 2)
    figure = fields.trajectory(truth, prediction, TIMES, channels=("a", "b"))
    images = np.asarray(_images(figure)).reshape(6, 4)
    order = np.argsort(TIMES)
    for row, (i, array) in zip(
        images, [(i, a) for i in range(2) for a in (truth, prediction, prediction - truth)], strict=True
    ):
        for image, field in zip(row, array[order][..., i], strict=True):
            plane = field if field.ndim == 2 else field[..., 1]
            np.testing.assert_allclose(image.get_array(), plane.T)
    titles = [axis.get_title() for axis in figure.axes if axis.images][:4]
    assert titles == ["t = 0.1", "t = 0.2", "t = 0.3", "t = 0.4"]


def test_an_answer_names_the_initial_state_and_at_most_a_dozen_times():
    times = np.linspace(0.0, 1.0, 30)
    u = np.arange(30.0)[:, None, None] * np.ones((1, 5, 2))
    figure = fields.answer(u, times, u0=np.zeros((5, 1)), channels=("a", "b"), title="some")
    first, second = figure.axes
    labels = [line.get_label() for line in first.lines]
    assert (labels[0], labels[1], labels[-1], len(labels)) == ("initial state", "t = 0", "t = 1", 13)
    np.testing.assert_array_equal(first.lines[-1].get_ydata(), np.full(5, 29.0))
    # The state has no second channel.
    assert [line.get_label() for line in second.lines] == labels[1:]
    assert (first.get_title(), first.get_ylabel(), second.get_xlabel()) == ("some", "a", "x")


def test_an_answer_in_two_dimensions_is_a_row_of_snapshots():
    u, _ = _pair(4, 6, 5, 1)
    images = _images(fields.answer(u, TIMES, channels=("u",)))
    assert len(images) == 4
    np.testing.assert_array_equal(images[0].get_array(), u[1, ..., 0].T)
