"""Resampling: exact on cubics and resolved waves, of fourth order on smooth fields, the identity on its own grid."""

import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.transforms import protocol
from ctfno_jax.transforms.resampling import Resampling


def _field(function, n):
    """``(batch, time, x, channels)`` with two of each but the points."""
    x = np.arange(n) / n
    scale = np.asarray([[1.0, -2.0], [0.5, 3.0]])
    return (scale[:, :, None, None] * np.stack([function(x), -function(x)], axis=-1)).astype(np.float32)


def _cubic(x):
    return 1 - 2 * x + 0.5 * x**2 + 3 * x**3


def _smooth(x):
    return np.exp(-2 * x) * np.cos(5 * x)


@pytest.mark.parametrize("num_data", [15, 21, 36, 48])
def test_cubics_are_exact_in_both_directions(num_data):
    """Also beyond the last point of the coarser grid."""
    transform = Resampling(12)
    encoded = transform.encode_solution(_field(_cubic, num_data))
    np.testing.assert_allclose(encoded, _field(_cubic, 12), atol=1e-5)
    np.testing.assert_allclose(transform.encode(_field(_cubic, num_data)[:, 0]), _field(_cubic, 12)[:, 0], atol=1e-5)
    np.testing.assert_allclose(transform.decode(encoded, (num_data,)), _field(_cubic, num_data), atol=2e-5)


def test_a_multiple_of_the_points_is_cut_and_its_own_grid_is_left_alone():
    u = np.random.default_rng(0).normal(size=(2, 3, 24, 2)).astype(np.float32)
    np.testing.assert_array_equal(Resampling(8).encode_solution(u), u[:, :, ::3])
    np.testing.assert_array_equal(Resampling(24).encode(u[:, 0]), u[:, 0])
    np.testing.assert_array_equal(Resampling(24).decode(u, (24,)), u)


def test_the_error_of_smooth_fields_is_of_fourth_order():
    errors = []
    for n in (16, 32, 64):
        found = Resampling(n).decode(_field(_smooth, n), (256,))
        errors.append(np.max(np.abs(found - _field(_smooth, 256))))
    assert errors[0] > 1e-4
    orders = np.log2(np.asarray(errors[:-1]) / errors[1:])
    assert np.all(orders > 3.5)
    assert np.all(orders < 5)


def _waves(x):
    return 0.3 + np.sin(2 * np.pi * x) - 0.5 * np.cos(10 * np.pi * x + 0.2)


@pytest.mark.parametrize("num_points", [11, 12])
@pytest.mark.parametrize("num_data", [15, 22, 36, 48])
def test_waves_below_the_nyquist_frequency_are_exact_on_periodic_domains(num_points, num_data):
    transform = Resampling(num_points, periodic=True)
    encoded = transform.encode_solution(_field(_waves, num_data))
    np.testing.assert_allclose(encoded, _field(_waves, num_points), atol=1e-5)
    np.testing.assert_allclose(transform.decode(encoded, (num_data,)), _field(_waves, num_data), atol=1e-5)
    shifted = np.roll(np.asarray(encoded), 3, axis=-2)
    moved = _field(lambda x: _waves(x - 3 / num_points), num_data)
    np.testing.assert_allclose(transform.decode(shifted, (num_data,)), moved, atol=1e-5)


@pytest.mark.parametrize("num_data", [18, 21, 48])
@pytest.mark.parametrize("periodic", [False, True])
def test_the_gain_is_reached_by_a_linear_network_up_to_the_worst_directions(num_data, periodic):
    transform, matrix = Resampling(16, periodic=periodic), np.random.default_rng(1).normal(size=(16, 16))
    fields = np.eye(num_data, dtype=np.float32)[..., None]
    with_network = jnp.einsum("pq,bqc->bpc", matrix, transform.encode(fields))[:, None]
    operator = np.asarray(transform.decode(with_network, (num_data,)))[:, 0, :, 0].T
    bound = transform.gain((num_data,)) * np.linalg.norm(matrix, 2)
    assert 0.1 * bound < np.linalg.norm(operator, 2) <= bound * (1 + 1e-5)


def test_json_gives_it_back():
    for made in (Resampling(20), Resampling(20, periodic=True)):
        assert protocol.from_dict(made.to_dict()) == made
    assert protocol.from_dict({"kind": "resampling", "num_points": 20}) == Resampling(20)


def test_other_axes_and_few_points_are_refused():
    with pytest.raises(ValueError, match="num_points must be at least 4, got 3"):
        Resampling(3)
    with pytest.raises(ValueError, match=r"u0 must have shape \(batch, x, channels\), got \(2, 8, 8, 1\)"):
        Resampling(8).encode(np.zeros((2, 8, 8, 1)))
    with pytest.raises(ValueError, match=r"4 points or more, got the grid \(3,\)"):
        Resampling(8).decode(np.zeros((2, 1, 8, 1)), (3,))
    with pytest.raises(ValueError, match="u must be given on 8 points"):
        Resampling(8).decode(np.zeros((2, 1, 9, 1)), (9,))
