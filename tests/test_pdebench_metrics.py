"""The errors of PDEBench, against numbers worked out by hand."""

import numpy as np
import pytest

from ctfno_jax import metrics, pdebench_metrics

FIELD_METRICS = [
    pdebench_metrics.rmse,
    pdebench_metrics.nrmse,
    pdebench_metrics.crmse,
    pdebench_metrics.brmse,
    pdebench_metrics.max_error,
    pdebench_metrics.error_spectrum,
]
KEYS = {"rmse", "nrmse", "crmse", "brmse", "max", "frmse_low", "frmse_mid", "frmse_high"}
SPECTRAL = {"frmse_low", "frmse_mid", "frmse_high"}

# Two samples, one time, four points, one channel.
ERROR = np.asarray([[3.0, 1.0, 1.0, -5.0], [2.0, 2.0, 2.0, 2.0]])[:, None, :, None]
TARGET = np.asarray([[6.0, 0.0, 0.0, 0.0], [4.0, -4.0, 4.0, -4.0]])[:, None, :, None]


def _random_pair(num_points=25):
    # All axes of different size.
    prediction, target = np.random.default_rng(0).normal(size=(2, 3, 4, num_points, 2))
    return prediction, target


def _only_error(error):
    """A prediction and a target of ones that differ by ``error``, given along x."""
    target = np.ones((2, 3, len(error), 1))
    return target + np.asarray(error)[:, None], target


def test_rmse_takes_the_root_before_the_mean_over_samples():
    # Mean squares 36 / 4 = 9 and 16 / 4 = 4, so roots 3 and 2.
    assert pdebench_metrics.rmse(TARGET + ERROR, TARGET) == pytest.approx(2.5, rel=1e-12)


def test_nrmse_is_relative_for_each_field():
    # Roots 3 and 2 against target norms sqrt(36 / 4) = 3 and 4.
    assert pdebench_metrics.nrmse(TARGET + ERROR, TARGET) == pytest.approx((3 / 3 + 2 / 4) / 2, rel=1e-12)


def test_crmse_takes_the_mean_over_samples_before_the_root():
    # Means over x: 0 and 2. Their mean square is 2.
    assert pdebench_metrics.crmse(TARGET + ERROR, TARGET) == pytest.approx(np.sqrt(2), rel=1e-12)


def test_brmse_sees_the_first_and_the_last_point():
    # sqrt((9 + 25) / 2) = sqrt(17) and sqrt((4 + 4) / 2) = 2.
    assert pdebench_metrics.brmse(TARGET + ERROR, TARGET) == pytest.approx((np.sqrt(17) + 2) / 2, rel=1e-12)


def test_max_error_is_the_largest_over_samples_and_points():
    assert pdebench_metrics.max_error(TARGET + ERROR, TARGET) == 5.0


def test_the_spectrum_takes_the_mean_over_samples_before_the_root():
    # Sums with 1, -i, -1, i over 3, 1, 1, -5: k = 0 gives 0, k = 1 gives 2 - 6i, k = 2 gives 8. The second sample has
    # 8 at k = 0 only. Divided by four points: sqrt(4 / 2), sqrt((40 / 16) / 2), sqrt(4 / 2).
    expected = [np.sqrt(2), np.sqrt(1.25), np.sqrt(2)]
    np.testing.assert_allclose(pdebench_metrics.error_spectrum(TARGET + ERROR, TARGET), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        # One sample, two times and two channels, whose four fields are off by the constants 1, 2, 3 and 10.
        (pdebench_metrics.rmse, 4.0),
        (pdebench_metrics.nrmse, 2.0),
        (pdebench_metrics.crmse, 4.0),
        (pdebench_metrics.brmse, 4.0),
        (pdebench_metrics.max_error, 4.0),
    ],
)
def test_times_and_channels_are_averaged_last(metric, expected):
    target = np.full((1, 2, 3, 2), 2.0)
    error = np.asarray([[1.0, 2.0], [3.0, 10.0]])[None, :, None, :]
    assert metric(target + error, target) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("num_points", [32, 33])
@pytest.mark.parametrize(
    ("k", "band", "width"),
    # The high band has 17 - 12 = 5 frequencies for 32 as for 33 points.
    [(1, "low", 4), (3, "low", 4), (4, "mid", 8), (11, "mid", 8), (12, "high", 5), (15, "high", 5)],
)
def test_a_cosine_lands_in_the_band_of_its_frequency(num_points, k, band, width):
    # Half of amplitude 6 is at k, the other half at -k, which does not count; then the mean over the band.
    prediction, target = _only_error(6.0 * np.cos(2 * np.pi * k * np.arange(num_points) / num_points))
    errors = pdebench_metrics.pdebench_errors(prediction, target)
    expected = {name: 3.0 / width if name == f"frmse_{band}" else 0.0 for name in SPECTRAL}
    assert {name: errors[name] for name in SPECTRAL} == pytest.approx(expected, rel=1e-12, abs=1e-14)
    assert errors["crmse"] == pytest.approx(0.0, abs=1e-14)
    assert errors["rmse"] == pytest.approx(6.0 / np.sqrt(2), rel=1e-12)


def test_the_last_frequency_of_an_even_grid_counts_whole():
    prediction, target = _only_error(5.0 * (-1.0) ** np.arange(32))
    assert pdebench_metrics.frmse(prediction, target, "high") == pytest.approx(5.0 / 5, rel=1e-12)


def test_a_constant_offset_is_a_conservation_error_and_of_zero_frequency():
    errors = pdebench_metrics.pdebench_errors(*_only_error(np.full(24, -3.0)))
    # Against a target of one; the low band has four frequencies.
    expected = {"rmse": 3, "nrmse": 3, "crmse": 3, "brmse": 3, "max": 3, "frmse_low": 3 / 4}
    assert errors == pytest.approx(expected | {"frmse_mid": 0.0, "frmse_high": 0.0}, rel=1e-12, abs=1e-14)


def test_an_error_at_the_ends_alone():
    error = np.zeros(25)
    error[[0, -1]] = 1.0, 7.0
    errors = pdebench_metrics.pdebench_errors(*_only_error(error))
    # Squares 1 + 49 over two ends, or over all 25 points; the mean is 8 / 25.
    assert errors["brmse"] == pytest.approx(5.0, rel=1e-12)
    assert errors["rmse"] == pytest.approx(np.sqrt(2), rel=1e-12)
    assert errors["crmse"] == pytest.approx(8 / 25, rel=1e-12)
    assert errors["max"] == pytest.approx(7.0, rel=1e-12)


def test_an_error_inside_is_not_a_boundary_error():
    error = np.zeros(25)
    error[1:-1] = 9.0
    assert pdebench_metrics.brmse(*_only_error(error)) == 0.0


def test_all_errors_are_those_of_the_single_functions():
    prediction, target = _random_pair()
    errors = pdebench_metrics.pdebench_errors(prediction, target, length=2.5)
    assert errors.keys() == KEYS
    assert all(type(value) is float for value in errors.values())
    for name in ("rmse", "nrmse", "crmse", "brmse"):
        assert errors[name] == getattr(pdebench_metrics, name)(prediction, target)
    assert errors["max"] == pdebench_metrics.max_error(prediction, target)
    for band in ("low", "mid", "high"):
        assert errors[f"frmse_{band}"] == pdebench_metrics.frmse(prediction, target, band, length=2.5)


def test_length_scales_the_fourier_errors_and_nothing_else():
    unit = pdebench_metrics.pdebench_errors(*_random_pair())
    long = pdebench_metrics.pdebench_errors(*_random_pair(), length=7.0)
    expected = {name: 7.0 * value if name in SPECTRAL else value for name, value in unit.items()}
    assert long == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("factor", [1e-3, -7.0])
def test_nrmse_does_not_depend_on_units_and_all_others_scale_with_them(factor):
    prediction, target = _random_pair()
    errors = pdebench_metrics.pdebench_errors(prediction, target)
    expected = {name: value if name == "nrmse" else abs(factor) * value for name, value in errors.items()}
    assert pdebench_metrics.pdebench_errors(factor * prediction, factor * target) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("axis", [0, 1, 3])
def test_the_order_of_samples_times_and_channels_does_not_matter(axis):
    prediction, target = _random_pair()
    errors = pdebench_metrics.pdebench_errors(prediction, target)
    flipped = pdebench_metrics.pdebench_errors(np.flip(prediction, axis), np.flip(target, axis))
    assert flipped == pytest.approx(errors, rel=1e-12)


def test_a_shift_along_x_changes_the_boundary_error_alone():
    prediction, target = _random_pair()
    errors = pdebench_metrics.pdebench_errors(prediction, target)
    shifted = pdebench_metrics.pdebench_errors(np.roll(prediction, 5, axis=2), np.roll(target, 5, axis=2))
    assert shifted.pop("brmse") != pytest.approx(errors.pop("brmse"), rel=1e-3)
    assert shifted == pytest.approx(errors, rel=1e-12)


def test_zero_frequency_of_the_spectrum_is_the_conservation_error():
    prediction, target = _random_pair()
    spectrum = pdebench_metrics.error_spectrum(prediction, target)
    assert spectrum[0] == pytest.approx(pdebench_metrics.crmse(prediction, target), rel=1e-12)


@pytest.mark.parametrize("num_points", [24, 25])
def test_the_spectrum_of_a_single_field_holds_its_mean_square(num_points):
    prediction, target = (array[:1, :1, :, :1] for array in _random_pair(num_points))
    spectrum = pdebench_metrics.error_spectrum(prediction, target)
    # Every frequency has a mirror image, except zero and the last one of an even grid.
    weights = np.full(len(spectrum), 2.0)
    weights[0] = 1.0
    if num_points % 2 == 0:
        weights[-1] = 1.0
    assert np.sum(weights * spectrum**2) == pytest.approx(metrics.rmse(prediction, target) ** 2, rel=1e-12)


def test_a_single_field_has_the_plain_errors():
    prediction, target = (array[:1, :1, :, :1] for array in _random_pair())
    assert pdebench_metrics.rmse(prediction, target) == pytest.approx(metrics.rmse(prediction, target), rel=1e-12)
    assert pdebench_metrics.nrmse(prediction, target) == pytest.approx(metrics.nrmse(prediction, target), rel=1e-12)
    assert pdebench_metrics.max_error(prediction, target) == metrics.max_error(prediction, target)


def test_means_and_maxima_are_never_above_those_over_everything():
    prediction, target = _random_pair()
    assert pdebench_metrics.rmse(prediction, target) < metrics.rmse(prediction, target)
    assert pdebench_metrics.max_error(prediction, target) < metrics.max_error(prediction, target)


def test_a_perfect_prediction_has_no_error():
    target = _random_pair()[1]
    assert pdebench_metrics.pdebench_errors(target, target) == dict.fromkeys(KEYS, 0.0)


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_a_zero_target_field_makes_nrmse_infinite_and_spares_the_others(offset):
    prediction, target = _random_pair()
    target[1, 2, :, 0] = 0.0
    prediction[1, 2, :, 0] = offset
    errors = pdebench_metrics.pdebench_errors(prediction, target)
    assert errors.pop("nrmse") == np.inf
    assert np.all(np.isfinite(list(errors.values())))


def test_a_zero_value_inside_a_target_field_is_no_trouble():
    # Error 1 at both points, target norm sqrt(8 / 2) = 2.
    target = np.asarray([0.0, np.sqrt(8.0)]).reshape(1, 1, 2, 1)
    assert pdebench_metrics.nrmse(target + 1, target) == pytest.approx(0.5, rel=1e-12)


def test_a_prediction_that_is_not_a_number_has_no_errors_that_look_well():
    prediction, target = _random_pair()
    prediction[0, 1, -1, 1] = np.nan
    errors = pdebench_metrics.pdebench_errors(prediction, target)
    assert np.all(np.isnan(list(errors.values())))


def test_sums_are_taken_in_double_precision():
    # Squares of 1e20 overflow in single precision.
    target = np.full((1, 2, 24, 3), 1e20, np.float32)
    errors = pdebench_metrics.pdebench_errors(-target, target)
    assert errors["rmse"] == pytest.approx(2e20, rel=1e-6)
    assert errors["nrmse"] == pytest.approx(2.0, rel=1e-6)
    assert errors["frmse_low"] == pytest.approx(0.5e20, rel=1e-6)


def test_inputs_are_left_alone():
    prediction, target = _random_pair()
    pdebench_metrics.pdebench_errors(prediction, target)
    np.testing.assert_array_equal([prediction, target], _random_pair())


@pytest.mark.parametrize("metric", [*FIELD_METRICS, pdebench_metrics.pdebench_errors])
def test_shapes_that_would_only_broadcast_are_refused(metric):
    prediction, target = _random_pair()
    with pytest.raises(ValueError, match=r"must have one shape, got \(3, 1, 25, 2\) and \(3, 4, 25, 2\)"):
        metric(prediction[:, :1], target)


@pytest.mark.parametrize("metric", [*FIELD_METRICS, pdebench_metrics.pdebench_errors])
@pytest.mark.parametrize("shape", [(3, 25, 2), (3, 4, 25, 26, 2), (0, 4, 25, 2)])
def test_other_axes_are_refused(metric, shape):
    with pytest.raises(ValueError, match=r"expected arrays \(batch, time, x, channels\) with no empty axis, got shape"):
        metric(np.ones(shape), np.ones(shape))


@pytest.mark.parametrize(("band", "needed"), [("mid", 8), ("high", 24)])
def test_a_band_beyond_the_grid_is_refused(band, needed):
    prediction, target = _random_pair(needed - 1)
    with pytest.raises(ValueError, match=rf"band '{band}' .* at least {needed} points along x, got {needed - 1}"):
        pdebench_metrics.frmse(prediction, target, band)
    assert pdebench_metrics.frmse(*_random_pair(needed), band) > 0


def test_too_few_points_for_all_errors_are_refused():
    with pytest.raises(ValueError, match="band 'high' starts at frequency 12 and needs at least 24 points"):
        pdebench_metrics.pdebench_errors(*_random_pair(23))


def test_an_unknown_band_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown band 'middle', choose one of low, mid, high"):
        pdebench_metrics.frmse(*_random_pair(), "middle")


@pytest.mark.parametrize("length", [0.0, -1.0, np.inf, np.nan])
def test_a_length_that_is_none_is_refused(length):
    with pytest.raises(ValueError, match="length must be a positive number, got"):
        pdebench_metrics.pdebench_errors(*_random_pair(), length=length)
