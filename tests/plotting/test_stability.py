"""Figures on M show every value that they are given, in the order of M, with none at the end."""

import json

import numpy as np
import pytest

from ctfno_jax.plotting import stability
from experiments import stability_figures

BOUNDS = (10.0, 0.3, None, 1.2)


def _curves(*rules, bounds=BOUNDS):
    """Two seeds of every value, ten percent apart."""
    return {
        rule: {
            name: {bound: [size * (i + 1), 1.1 * size * (i + 1)] for i, bound in enumerate(bounds)}
            for name, size in (("train", 1.0), ("test", 2.0), ("certified", 100.0), ("measured", 3.0))
        }
        for rule in rules
    }


def _ticks(axis):
    return [label.get_text() for label in axis.get_xticklabels()]


def test_every_bound_is_labelled_in_order_and_none_comes_last():
    figure = stability.effect_of_bound(_curves("rows", "rows_and_columns"), title="the effect")
    assert figure.get_suptitle() == "the effect"
    for axis, label in zip(figure.axes, ("squared error", "growth of an L2 error"), strict=True):
        assert _ticks(axis) == ["0.3", "1.2", "10", "none"]
        assert (axis.get_xlabel(), axis.get_ylabel(), axis.get_yscale()) == ("M", label, "log")


def test_curves_are_means_of_the_seeds_between_their_extremes():
    figure = stability.effect_of_bound(_curves("rows"), title="")
    errors, growth = figure.axes
    assert [line.get_label() for line in errors.lines] == ["train, rows", "test, rows"]
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
    assert both.get_label() == "train, rows and columns"
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


# --- from rows ----------------------------------------------------------------------------------------------------


def _write(folder, bound, rule, *, seed=0, model="ctfno", preset="paper", mse=0.02, top=1.0):
    path = folder / "vibration" / f"{model}-{preset}-{bound}-{rule}-{seed}.json"
    path.parent.mkdir(exist_ok=True)
    metrics = {"mse": mse, "train_mse": mse / 2, "certified_lipschitz": 50.0, "measured_gain": 2.0,
               "singular_values": {"kernels": [top, 0.5], "pointwise": [2 * top, 0.1, 0.0]}}  # fmt: skip
    row = {"model": model, "preset": preset, "stability_bound": bound, "stability_rule": rule, "metrics": metrics}
    path.write_text(json.dumps(row))


def test_the_effect_is_drawn_from_rows_of_ctfno_and_those_without_a_bound_are_of_both_rules(tmp_path, capsys):
    _write(tmp_path, 1.2, "rows", mse=0.01)
    _write(tmp_path, 1.2, "rows", seed=1, mse=0.03)
    _write(tmp_path, 0.3, "rows_and_columns", mse=0.5)
    _write(tmp_path, None, None, mse=0.07)
    _write(tmp_path, None, None, model="hbnode", mse=9.0)
    _write(tmp_path, 1.2, "rows", preset="default", mse=9.0)
    figure = stability_figures.effect_of_bound(tmp_path, "paper")
    by_label = {line.get_label(): line for line in figure.axes[0].lines}
    assert _ticks(figure.axes[0]) == ["0.3", "1.2", "none"]
    np.testing.assert_allclose(by_label["test, rows"].get_ydata(), [0.02, 0.07])
    np.testing.assert_allclose(by_label["train, rows and columns"].get_ydata(), [0.25, 0.035])
    assert capsys.readouterr().out == ""


def test_a_rule_without_rows_is_left_out_and_named(tmp_path, capsys):
    _write(tmp_path, 1.2, "rows")
    figure = stability_figures.effect_of_bound(tmp_path, "paper")
    assert {line.get_label() for line in figure.axes[0].lines} == {"train, rows", "test, rows"}
    assert "left out: no row of rule rows_and_columns" in capsys.readouterr().out
    assert stability_figures.effect_of_bound(tmp_path / "nowhere", "paper") is None


def test_singular_values_of_all_seeds_are_drawn_together(tmp_path, capsys):
    _write(tmp_path, 10.0, "rows", top=4.0)
    _write(tmp_path, 10.0, "rows", seed=1, top=5.0)
    _write(tmp_path, 10.0, "rows_and_columns", top=90.0)
    kernels, maps = stability_figures.singular_values(tmp_path, "paper").axes
    np.testing.assert_array_equal(kernels.lines[0].get_ydata(), [5.0, 4.0, 0.5, 0.5])
    np.testing.assert_array_equal(maps.lines[0].get_ydata(), [10.0, 8.0, 0.1, 0.1, 0.0, 0.0])
    assert "left out: no row of M = 1.2" in capsys.readouterr().out
    assert stability_figures.singular_values(tmp_path / "nowhere", "paper") is None
