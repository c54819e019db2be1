"""Damped sound against its closed forms, the matrix exponential, and the flow of a gas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from ctfno_jax.ops import sound
from ctfno_jax.solvers import compressible_navier_stokes as navier_stokes

X = np.arange(32) / 32


def _propagate(pressure, velocity, times, viscosity):
    waves = np.stack([pressure, velocity], axis=-1)[None].astype(np.float32)
    times = np.asarray(times, np.float32)[None]
    return np.asarray(sound.propagate(jnp.asarray(waves), jnp.asarray(times), jnp.asarray([viscosity], jnp.float32)))[0]


@pytest.mark.parametrize("viscosity", [0.0, 0.01, 0.2, 1 / np.pi, 3.0])
@pytest.mark.parametrize("wave", [0, 1, 5])
def test_each_wave_is_the_exponential_of_its_matrix(viscosity, wave):
    """Running, critically damped (1 / pi for the first wave) and creeping waves alike."""
    times = np.array([0.0, 0.03, 0.7, 2.0], np.float32)
    viscosity = np.float32(viscosity)
    kept_pressure, exchanged, kept_velocity = sound.propagator(33, jnp.asarray(times), jnp.asarray(viscosity))
    k = 2 * np.pi * wave
    for i, t in enumerate(times):
        expected = scipy.linalg.expm(t * np.array([[0, -1j * k], [-1j * k, -viscosity * k**2]]))
        found = [[kept_pressure[i, wave], exchanged[i, wave]], [exchanged[i, wave], kept_velocity[i, wave]]]
        np.testing.assert_allclose(np.asarray(found), expected, atol=2e-5)


def test_without_friction_a_wave_to_the_right_keeps_its_shape():
    shape = lambda x: np.cos(2 * np.pi * x) + 0.3 * np.sin(6 * np.pi * x)  # noqa: E731
    times = np.array([0.25, 1.1])
    u = _propagate(shape(X), shape(X), times, 0.0)
    for i, t in enumerate(times):
        np.testing.assert_allclose(u[i], np.repeat(shape(X - t)[:, None], 2, axis=1), atol=1e-5)


@pytest.mark.parametrize("num_points", [24, 25])
def test_two_steps_are_one(num_points):
    x = np.arange(num_points) / num_points
    waves = np.stack([np.cos(2 * np.pi * x) + np.sin(22 * np.pi * x), np.sin(6 * np.pi * x)], axis=-1)
    waves = jnp.asarray(np.stack([waves, waves[::-1]]), jnp.float32)
    viscosity = jnp.array([0.02, 0.3])
    half, whole = (jnp.full((2, 1), t) for t in (0.4, 0.8))
    once = sound.propagate(waves, whole, viscosity)
    twice = sound.propagate(sound.propagate(waves, half, viscosity)[:, 0], half, viscosity)
    np.testing.assert_allclose(twice, once, atol=1e-5)


def test_means_stay_and_energy_only_falls():
    waves = np.random.default_rng(1).normal(size=(32, 2))
    u = _propagate(waves[:, 0], waves[:, 1], np.linspace(0, 2, 9), 0.05)
    np.testing.assert_allclose(u.mean(axis=1), np.tile(waves.mean(axis=0), (9, 1)), atol=1e-6)
    assert np.all(np.diff(np.sum(u**2, axis=(1, 2))) < 1e-4)


def test_at_time_zero_waves_are_what_they_are():
    waves = np.random.default_rng(2).normal(size=(31, 2))
    np.testing.assert_allclose(_propagate(waves[:, 0], waves[:, 1], [0.0], 0.04)[0], waves, atol=1e-5)


def test_a_short_wave_does_not_run():
    """Its velocity diffuses away at once, and its pressure creeps at the rate of one over the viscosity."""
    viscosity, wave = 0.5, np.cos(2 * np.pi * 12 * X)
    u = _propagate(wave, wave, [0.1], viscosity)[0]
    assert np.abs(u[:, 1]).max() < 0.05
    # Of the initial velocity little has become pressure.
    np.testing.assert_allclose(u[:, 0], wave * np.exp(-0.1 / viscosity), atol=0.05)


def test_a_weak_flow_of_a_uniform_gas_is_sound():
    num_points, viscosity, speed, length = 256, 7 / 30, np.sqrt(5 / 3 * 3 / 2), 2.0
    x = np.arange(num_points) / num_points
    pressure, velocity = 1e-4 * np.cos(2 * np.pi * x), 1e-4 * np.sin(4 * np.pi * x + 1)
    # In units of sound: pressure over gamma times the one at rest, velocity over the speed.
    u0 = np.stack([2 * (1 + pressure), 3 * (1 + 5 / 3 * pressure), speed * velocity], axis=-1)[None]
    times = np.array([0.1, 0.6])
    flow = navier_stokes.solve(u0, times)[0]
    expected = _propagate(pressure, velocity, times * speed / length, viscosity / (speed * length))
    found = np.stack([(flow[..., 1] / 3 - 1) * 3 / 5, flow[..., 2] / speed], axis=-1)
    np.testing.assert_allclose(found, expected, atol=5e-7)


def test_derivatives_are_finite_where_eigenvalues_meet():
    """The first wave is critically damped, and the mean does not move at all."""
    waves = jnp.asarray(np.random.default_rng(3).normal(size=(1, 16, 2)), jnp.float32)
    loss = lambda v: jnp.sum(sound.propagate(waves, jnp.array([[0.3]]), v) ** 2)  # noqa: E731
    assert np.isfinite(jax.grad(loss)(jnp.array([1 / jnp.pi]))).all()
