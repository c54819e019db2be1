"""Gaussian random fields: their amplitudes have the stated deviations, and the fields the stated size."""

import numpy as np
import pytest

from ctfno_jax.solvers import random_fields

HEAT = {"sigma": 20.0, "tau": 3.5, "gamma": 2.5}


def test_density_is_the_closed_form():
    density = random_fields.spectral_density(3, sigma=2.0, tau=1.5, gamma=2.0)
    expected = [np.sqrt(2) * 2.0 / ((2 * np.pi * k) ** 2 + 1.5**2) for k in (1, 2, 3)]
    np.testing.assert_allclose(density, expected, rtol=1e-14)


@pytest.mark.parametrize("num_points", [16, 17])
def test_amplitudes_of_sines_and_cosines_have_the_stated_deviation(num_points):
    num_samples = 20_000
    coefficients = random_fields.sample(np.random.default_rng(3), num_samples, num_points, **HEAT)
    field = np.fft.irfft(coefficients, n=num_points, norm="forward")
    x = np.arange(num_points) / num_points
    modes = np.arange(1, (num_points + 1) // 2)  # without Nyquist
    cosine = 2 * np.mean(field[:, None] * np.cos(2 * np.pi * modes[:, None] * x), axis=-1)
    sine = 2 * np.mean(field[:, None] * np.sin(2 * np.pi * modes[:, None] * x), axis=-1)
    density = random_fields.spectral_density(len(modes), **HEAT)
    # The relative error of a deviation from n samples is about 1 / sqrt(2 n) = 0.005.
    np.testing.assert_allclose(cosine.std(0), density, rtol=0.025)
    np.testing.assert_allclose(sine.std(0), density, rtol=0.025)
    correlation = np.mean(cosine * sine, axis=0) / density**2
    np.testing.assert_allclose(correlation, 0.0, atol=0.035)


def test_the_amplitude_at_nyquist_has_the_stated_deviation():
    coefficients = random_fields.sample(np.random.default_rng(4), 20_000, 10, **HEAT)
    field = np.fft.irfft(coefficients, n=10, norm="forward")
    amplitude = np.mean(field * np.cos(np.pi * np.arange(10)), axis=-1)
    density = random_fields.spectral_density(5, **HEAT)[-1]
    np.testing.assert_allclose(amplitude.std(), density, rtol=0.025)


def test_fields_of_the_heat_data_have_deviation_one_fifth():
    coefficients = random_fields.sample(np.random.default_rng(5), 4000, 64, **HEAT)
    field = np.fft.irfft(coefficients, n=64, norm="forward")
    assert field.std() == pytest.approx(0.21, rel=0.03)


def test_the_deviation_of_a_point_is_the_root_of_the_sum_over_modes():
    coefficients = random_fields.sample(np.random.default_rng(6), 20_000, 33, **HEAT)
    field = np.fft.irfft(coefficients, n=33, norm="forward")
    expected = np.sqrt(np.sum(random_fields.spectral_density(16, **HEAT) ** 2))
    np.testing.assert_allclose(field.std(0), expected, rtol=0.025)


@pytest.mark.parametrize("num_points", [8, 9])
def test_fields_have_no_mean(num_points):
    coefficients = random_fields.sample(np.random.default_rng(7), 5, num_points, **HEAT)
    assert coefficients.shape == (5, num_points // 2 + 1)
    np.testing.assert_array_equal(coefficients[:, 0], 0.0)


@pytest.mark.parametrize("num_points", [8, 9])
def test_coefficients_are_those_of_a_real_field(num_points):
    coefficients = random_fields.sample(np.random.default_rng(8), 5, num_points, **HEAT)
    field = np.fft.irfft(coefficients, n=num_points, norm="forward")
    np.testing.assert_allclose(np.fft.rfft(field, norm="forward"), coefficients, rtol=0, atol=1e-15)


def test_a_larger_gamma_gives_smoother_fields():
    rough = random_fields.spectral_density(9, sigma=1.0, tau=3.0, gamma=2.0)
    smooth = random_fields.spectral_density(9, sigma=1.0, tau=3.0, gamma=4.0)
    assert np.all(np.diff(smooth / rough) < 0)
