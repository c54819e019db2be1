"""Diffusion in Fourier space: decay of single waves, a semigroup, and no growth."""

import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.ops import diffusion


def _random(num_samples, num_points, channels):
    return jnp.asarray(np.random.default_rng(0).standard_normal((num_samples, num_points, channels)), jnp.float32)


@pytest.mark.parametrize("num_points", [16, 17])
def test_a_wave_decays_by_its_own_rate(num_points):
    x, times = np.arange(num_points) / num_points, np.array([0.0, 0.3, 1.2], np.float32)
    u0 = np.stack([np.ones(num_points), np.sin(2 * np.pi * 3 * x)], axis=-1)[None].astype(np.float32)
    u = diffusion.propagate(jnp.asarray(u0), jnp.asarray(times), 0.01)
    decay = np.stack([np.ones(3), np.exp(-0.01 * (2 * np.pi * 3) ** 2 * times)], axis=-1)
    np.testing.assert_allclose(u[0], u0 * decay[:, None], atol=1e-6)


def test_shared_times_equal_times_of_each_sample():
    u0, times = _random(3, 10, 2), jnp.asarray([0.2, 0.0, 0.7])
    each = diffusion.propagate(u0, jnp.tile(times, (3, 1)), 0.003)
    np.testing.assert_allclose(diffusion.propagate(u0, times, 0.003), each, atol=1e-6)
    alone = diffusion.propagate(u0[1:2], jnp.asarray([[0.4]]), 0.003)
    both = diffusion.propagate(u0, jnp.asarray([[0.1], [0.4], [0.9]]), 0.003)
    np.testing.assert_allclose(both[1:2], alone, atol=1e-6)


def test_two_times_in_a_row_are_their_sum():
    u0 = _random(2, 12, 1)
    first = diffusion.propagate(u0, jnp.asarray([0.3]), 0.01)[:, 0]
    then = diffusion.propagate(first, jnp.asarray([0.5]), 0.01)
    np.testing.assert_allclose(then, diffusion.propagate(u0, jnp.asarray([0.8]), 0.01), atol=1e-6)


def test_no_field_grows():
    u0 = _random(4, 15, 1)
    norms = np.linalg.norm(diffusion.propagate(u0, jnp.linspace(0.0, 2.0, 7), 0.02), axis=2)
    assert np.all(norms <= np.linalg.norm(u0, axis=1)[:, None] * (1 + 1e-6))
    assert np.all(np.diff(norms, axis=1) < 1e-5)
