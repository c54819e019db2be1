"""The inverse transform: known pairs, its error in closed form, and the sphere."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.ops import inverse_laplace
from ctfno_jax.types import Complex

TIMES = np.asarray([0.3, 1.0, 2.2, 4.5, 7.0], np.float32)

# Compiled as a whole, which is quicker than one operation after the other.
query_points = jax.jit(inverse_laplace.query_points, static_argnames=("num_terms", "shift", "tolerance"))
invert = jax.jit(inverse_laplace.invert, static_argnames=("shift", "tolerance"))
to_sphere, from_sphere = jax.jit(inverse_laplace.to_sphere), jax.jit(inverse_laplace.from_sphere)


def _inverse(transform, times: np.ndarray, num_terms: int, **settings) -> np.ndarray:
    """Of a function of complex numbers, evaluated in double precision."""
    s = query_points(jnp.asarray(times), num_terms, **settings)
    f = transform(np.asarray(s.re, np.float64) + 1j * np.asarray(s.im, np.float64))
    answer = Complex(jnp.asarray(f.real, jnp.float32), jnp.asarray(f.imag, jnp.float32))
    return np.asarray(invert(answer, jnp.asarray(times), **settings))


# --- the transform ------------------------------------------------------------------------------------------------


def test_query_points_of_one_time_by_hand():
    s = query_points(jnp.asarray([0.5, 3.0]), 4, shift=0.2, tolerance=1e-3)
    assert s.re.shape == s.im.shape == (2, 4)
    np.testing.assert_allclose(s.re[0], 0.2 + math.log(1000) / 2, rtol=1e-6)
    np.testing.assert_allclose(s.im[0], math.pi * np.arange(4), rtol=1e-6)
    np.testing.assert_allclose(s.im[1], math.pi / 6 * np.arange(4), rtol=1e-6)


def test_points_of_many_times_are_those_of_each():
    times = jnp.asarray(TIMES[:4].reshape(2, 2))
    many = query_points(times, 3)
    np.testing.assert_array_equal(many.im[1, 0], query_points(times[1, 0], 3).im)
    np.testing.assert_array_equal(many.re[1, 0], query_points(times[1, 0], 3).re)


@pytest.mark.parametrize("num_terms", [1, 4, 7])
def test_the_sum_is_the_series_with_complex_exponentials(num_terms):
    rng = np.random.default_rng(0)
    f = rng.normal(size=(5, num_terms)) + 1j * rng.normal(size=(5, num_terms))
    period, k = 2 * TIMES.astype(float), np.arange(num_terms)
    line = 0.1 - math.log(1e-3) / (2 * period)
    waves = np.exp(1j * k * math.pi * (TIMES / period)[:, None])
    series = (f * waves).real.sum(-1) - f[:, 0].real / 2
    answer = Complex(jnp.asarray(f.real, jnp.float32), jnp.asarray(f.imag, jnp.float32))
    found = invert(answer, jnp.asarray(TIMES), shift=0.1, tolerance=1e-3)
    np.testing.assert_allclose(found, np.exp(line * TIMES) / period * series, rtol=1e-4, atol=1e-5)


PAIRS = {
    "one": (lambda s: 1 / s, np.ones_like),
    "time": (lambda s: 1 / s**2, lambda t: t),
    "decay": (lambda s: 1 / (s + 0.7), lambda t: np.exp(-0.7 * t)),
    "sine": (lambda s: 1.5 / (s**2 + 1.5**2), lambda t: np.sin(1.5 * t)),
    "cosine": (lambda s: s / (s**2 + 1.5**2), lambda t: np.cos(1.5 * t)),
    "damped sine": (lambda s: 2 / ((s + 0.3) ** 2 + 4), lambda t: np.exp(-0.3 * t) * np.sin(2 * t)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_known_pairs(name):
    # A jump at zero costs one over the number of terms; periods that follow add the tolerance times their values.
    transform, function = PAIRS[name]
    found = _inverse(transform, TIMES, 4000, tolerance=1e-4)
    scale = max(1.0, float(np.abs(function(TIMES)).max()))
    np.testing.assert_allclose(found, function(TIMES), rtol=0, atol=1.5e-3 * scale)


def test_the_sum_converges_to_all_periods_one_after_the_other():
    # Of the constant one, with weights tolerance^k: the default tolerance is an error of a hundredth.
    expected = 1 / (1 - 1e-2 * np.exp(-4e-3 * TIMES))
    np.testing.assert_allclose(_inverse(lambda s: 1 / s, TIMES, 4001), expected, rtol=0, atol=5e-4)


@pytest.mark.parametrize("name", ["sine", "time"])
def test_more_terms_are_better(name):
    transform, function = PAIRS[name]
    few, many = (np.abs(_inverse(transform, TIMES, n, tolerance=1e-4) - function(TIMES)).max() for n in (9, 129))
    assert many < few / 10


def test_the_inverse_is_linear():
    rng = np.random.default_rng(1)
    a, b = (Complex(*jnp.asarray(rng.normal(size=(2, 5, 7)), jnp.float32)) for _ in range(2))
    both = Complex(2 * a.re - 3 * b.re, 2 * a.im - 3 * b.im)
    one, other, found = (invert(x, jnp.asarray(TIMES)) for x in (a, b, both))
    np.testing.assert_allclose(found, 2 * one - 3 * other, rtol=1e-4, atol=1e-4)


# --- the sphere ---------------------------------------------------------------------------------------------------


def _numbers(low: float, high: float) -> Complex:
    rng = np.random.default_rng(2)
    radius, angle = np.exp(rng.uniform(np.log(low), np.log(high), 40)), rng.uniform(-np.pi, np.pi, 40)
    return Complex(jnp.asarray(radius * np.cos(angle), jnp.float32), jnp.asarray(radius * np.sin(angle), jnp.float32))


def _modulus(s: Complex) -> np.ndarray:
    return np.hypot(np.asarray(s.re, np.float64), np.asarray(s.im, np.float64))


def test_a_number_comes_back_from_the_sphere():
    s = _numbers(0.05, 20.0)
    back = from_sphere(*to_sphere(s))
    np.testing.assert_allclose((back.re - s.re) / _modulus(s), 0, atol=1e-4)
    np.testing.assert_allclose((back.im - s.im) / _modulus(s), 0, atol=1e-4)


def test_a_point_of_the_sphere_comes_back_from_the_plane():
    rng = np.random.default_rng(3)
    longitude, latitude = rng.uniform(-3.1, 3.1, 30), rng.uniform(-1.4, 1.4, 30)
    s = from_sphere(jnp.asarray(longitude, jnp.float32), jnp.asarray(latitude, jnp.float32))
    found = to_sphere(s)
    np.testing.assert_allclose(found, np.stack([longitude, latitude]), rtol=0, atol=1e-4)


def test_places_of_known_numbers():
    re, im = jnp.asarray([1.0, 0.0, -2.0, 0.0]), jnp.asarray([0.0, 1.0, 0.0, 0.0])
    longitude, latitude = to_sphere(Complex(re, im))
    np.testing.assert_allclose(longitude[:3], [0, np.pi / 2, np.pi], rtol=0, atol=1e-6)
    # One and i lie on the equator, zero at the south pole.
    np.testing.assert_allclose(latitude, [0, 0, np.arcsin(0.6), -np.pi / 2], rtol=0, atol=1e-6)


def test_the_inverse_of_a_number_is_its_reflection():
    s = _numbers(0.1, 10.0)
    square = s.re**2 + s.im**2
    longitude, latitude = to_sphere(s)
    other_longitude, other_latitude = to_sphere(Complex(s.re / square, -s.im / square))
    np.testing.assert_allclose(other_longitude, -longitude, rtol=0, atol=1e-4)
    np.testing.assert_allclose(other_latitude, -latitude, rtol=0, atol=1e-4)


def test_large_numbers_stay_apart_from_each_other_and_from_the_pole():
    radius = jnp.asarray([1e2, 1e3, 1e4, 1e5], jnp.float32)
    _, latitude = to_sphere(Complex(0.6 * radius, 0.8 * radius))
    np.testing.assert_allclose(np.pi / 2 - np.asarray(latitude, np.float64), 2 / radius, rtol=0.02)


def test_small_numbers_come_back_too():
    s = _numbers(1e-4, 1e-2)
    back = from_sphere(*to_sphere(s))
    np.testing.assert_allclose(_modulus(back), _modulus(s), rtol=0.02)
