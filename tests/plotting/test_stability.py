"""Figures on M show every value that they are given, in the order of M, with none at the end."""

import numpy as np
import pytest

from ctfno_jax.plotting import stability

BOUNDS = (10.0, 0.3, None, 1.2)


def _curves(*rules, bounds=BOUNDS):
    """Two seeds of every value, ten percent apart."""
    return {
        rule: {
            name: {bound: [size * (i + 1), 1.1 * size * (i + 1)] for i, bound in enumerate(bounds)}
            for name, size in (("training error", 1.0), ("test error", 2.0), ("certified", 100.0), ("measured", 3.0))
        }
        for rule in rules
    }


def _ticks(axis):
    return [label.get_text() for label in axis.get_xticklabels()]


def test_every_bound_is_labelled_in_order_and_none_comes_last():
    figure = stability.effect_of_bound(_curves("rows", "rows_and_columns"), title="the effect")
    assert figure.get_suptitle() == "the effect"
    for axis, label in zip(figure.axes, ("MSE", "growth of an L2 error"), strict=True):
        assert _ticks(axis) == ["0.3", "1.2", "10", "none"]
        assert (axis.get_xlabel(), axis.get_ylabel(), axis.get_yscale()) == ("bound M", label, "log")


def test_curves_are_means_of_the_seeds_between_their_extremes():
    figure = stability.effect_of_bound(_curves("rows"), title="")
    errors, growth = figure.axes
    assert [line.get_label() for line in errors.lines] == ["training error, rows", "test error, rows"]
    assert [line.get_label() for line in growth.lines] == ["certified, rows", "measured, rows"]
    # 0.3 is the second of the bounds above, 1.2 the fourth, and so on.
    np.testing.assert_allclose(errors.lines[1].get_ydata(), 2.1 * np.asarray([2, 4, 1, 3]))
    np.testing.assert_array_equal(errors.lines[1].get_xdata(), [0, 1, 2, 3])
    heights = errors.collections[1].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((2.0, 2.2 * 4))


def test_a_bound_that_one_rule_lacks_keeps_its_place():
    curves = _curves("rows") | _curves("rows_and_columns", bounds=(1.2, None))
    figure = stability.effect_of_bound(curves, title="")
    assert _ticks(figure.axes[0]) == ["0.3", "1.2", "10", "none"]
    both = figure.axes[0].lines[2]
    assert both.get_label() == "training error, rows and columns"
    np.testing.assert_array_equal(both.get_xdata(), [1, 3])
    assert both.get_linestyle() != figure.axes[0].lines[0].get_linestyle()


def test_singular_values_fall_along_each_curve_and_every_bound_is_named():
    rng = np.random.default_rng(0)
    values = {kind: {b: rng.uniform(0, 3, (4, 5)) for b in (10.0, None, 1.2)} for kind in ("kernels", "maps")}
    figure = stability.singular_values(values)
    assert [axis.get_title() for axis in figure.axes] == ["kernels", "maps"]
    for axis, by_bound in zip(figure.axes, values.values(), strict=True):
        names = [text.get_text() for text in axis.get_legend().get_texts()]
        assert [name.split(":")[0] for name in names] == ["M = 1.2", "M = 10", "no bound"]
        for line, bound in zip(axis.lines, (1.2, 10.0, None), strict=True):
            np.testing.assert_array_equal(line.get_ydata(), np.sort(by_bound[bound].ravel())[::-1])
            assert (line.get_xdata()[0], line.get_xdata()[-1]) == (0, 100)
            assert f"largest {by_bound[bound].max():.2g}" in line.get_label()
