"""Errors of predictions, against numbers worked out by hand."""

import numpy as np
import pytest

from ctfno_jax import metrics

# Two trajectories, two times, three points, one channel.
TARGET = np.asarray([[[1.0, 2.0, 2.0], [4.0, 0.0, 0.0]], [[0.0, 3.0, 0.0], [0.0, 0.0, 4.0]]], np.float32)[..., None]
ERROR = np.asarray([[[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]], [[0.0, 0.0, 0.0], [0.0, -12.0, 0.0]]], np.float32)[..., None]


def test_rmse_is_the_root_of_the_mean_over_everything():
    # 9 + 16 + 144 over twelve values.
    assert metrics.rmse(TARGET + ERROR, TARGET) == pytest.approx(13 / np.sqrt(12), rel=1e-12)


def test_nrmse_is_relative_for_each_trajectory_and_then_averaged():
    # Errors 5 and 12 against norms 5 and 5.
    assert metrics.nrmse(TARGET + ERROR, TARGET) == pytest.approx((5 / 5 + 12 / 5) / 2, rel=1e-12)


def test_max_error_takes_the_largest_modulus():
    assert metrics.max_error(TARGET + ERROR, TARGET) == 12.0


def test_rmse_over_time_keeps_the_time_axis():
    expected = [np.sqrt(9 / 6), np.sqrt((16 + 144) / 6)]
    np.testing.assert_allclose(metrics.rmse_over_time(TARGET + ERROR, TARGET), expected, rtol=1e-12)


def test_mean_square_over_time_is_the_squared_rmse():
    rng = np.random.default_rng(0)
    prediction, target = rng.normal(size=(2, 3, 4, 5, 6, 2))
    mean_square = np.mean(metrics.rmse_over_time(prediction, target) ** 2)
    assert np.sqrt(mean_square) == pytest.approx(metrics.rmse(prediction, target), rel=1e-12)


@pytest.mark.parametrize("metric", [metrics.rmse, metrics.nrmse, metrics.max_error])
def test_a_perfect_prediction_has_no_error(metric):
    assert metric(TARGET, TARGET) == 0.0


@pytest.mark.parametrize("factor", [1e-3, -7.0])
def test_nrmse_does_not_depend_on_units_and_rmse_scales_with_them(factor):
    prediction, target = (TARGET + ERROR).astype(np.float64), TARGET.astype(np.float64)
    scaled = factor * prediction, factor * target
    assert metrics.nrmse(*scaled) == pytest.approx(metrics.nrmse(prediction, target), rel=1e-12)
    assert metrics.rmse(*scaled) == pytest.approx(abs(factor) * metrics.rmse(prediction, target), rel=1e-12)


def test_sums_are_taken_in_double_precision():
    # Squares of 1e20 overflow in single precision.
    prediction, target = np.full((1, 2, 3), 1e20, np.float32), np.zeros((1, 2, 3), np.float32)
    assert metrics.rmse(prediction, target) == pytest.approx(1e20, rel=1e-6)


@pytest.mark.parametrize("metric", [metrics.rmse, metrics.nrmse, metrics.max_error, metrics.rmse_over_time])
def test_shapes_that_would_only_broadcast_are_refused(metric):
    with pytest.raises(ValueError, match=r"must have one shape, got \(2, 1, 3, 1\) and \(2, 2, 3, 1\)"):
        metric(TARGET[:, :1], TARGET)


def test_the_relative_error_of_everything_bears_a_trajectory_at_rest():
    target = np.asarray([[[0.0], [0.0], [0.0]], [[3.0], [0.0], [4.0]]])
    prediction = target + np.asarray([[[1.0], [0.0], [0.0]], [[0.0], [0.0], [0.0]]])
    assert metrics.relative_error(prediction, target) == pytest.approx(1 / 5)
    assert metrics.relative_error(target, target) == 0
