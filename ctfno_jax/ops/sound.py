"""Sound in a uniform gas with friction, on a periodic domain: the exact solution in Fourier space.

    p_t + v_x = 0
    v_t + p_x = viscosity v_xx

in units of the speed of sound and of the length of the domain. Waves of a wavenumber k below 2 / viscosity run and are
damped; shorter ones do not run any more: their velocity diffuses, and their pressure creeps to the mean.
"""

import jax.numpy as jnp
from jaxtyping import Array, Complex, Float


def propagate(
    waves: Float[Array, "batch x 2"], times: Float[Array, "batch time"], viscosity: Float[Array, " batch"]
) -> Float[Array, "batch time x 2"]:
    """Pressure and velocity, in this order, at the times of each sample.

    Args:
      waves: both at time zero.
      times: how often sound has gone round the domain since.
      viscosity: of each sample.
    """
    num_points = waves.shape[1]
    spectrum = jnp.fft.rfft(waves, axis=1)
    pressure, velocity = spectrum[:, None, :, 0], spectrum[:, None, :, 1]
    kept_pressure, exchanged, kept_velocity = propagator(num_points, times, viscosity[:, None])
    later = [kept_pressure * pressure + exchanged * velocity, exchanged * pressure + kept_velocity * velocity]
    return jnp.fft.irfft(jnp.stack(later, axis=-1), n=num_points, axis=2)


def propagator(
    num_points: int, times: Float[Array, "*any"], viscosity: Float[Array, "*#any"]
) -> tuple[Float[Array, "*any waves"], Complex[Array, "*any waves"], Float[Array, "*any waves"]]:
    """Of each wave: the pressure that stays pressure, that becomes velocity or comes from it, velocity that stays.

    For a wavenumber k the solution is ``exp(t M)`` with ``M = [[0, -ik], [-ik, -viscosity k^2]]``, whose eigenvalues
    are ``-a + q`` and ``-a - q`` with ``a = viscosity k^2 / 2`` and ``q^2 = a^2 - k^2``.
    """
    wave = jnp.arange(num_points // 2 + 1)
    k = 2 * jnp.pi * wave
    t = times[..., None]
    a = viscosity[..., None] * k**2 / 2
    discriminant = (a - k) * (a + k)
    creeping = discriminant > 0
    # Where both eigenvalues meet, the limit of small q. Each root is safe where the other is used.
    q = jnp.sqrt(jnp.maximum(jnp.abs(discriminant), 1e-6))
    # The slow rate is a - q, whose digits would cancel.
    slow_rate = k**2 / jnp.maximum(a + q, 1e-6)
    slow, fast = jnp.exp(-jnp.where(creeping, slow_rate, 0.0) * t), jnp.exp(-jnp.where(creeping, a + q, 0.0) * t)
    decay = jnp.exp(-a * t)
    even = jnp.where(creeping, (slow + fast) / 2, decay * jnp.cos(q * t))
    odd = jnp.where(creeping, (slow - fast) / (2 * q), decay * jnp.sin(q * t) / q)
    even = jnp.where(wave == 0, 1.0, even)  # means stay
    # The last frequency of an even grid has no sine.
    has_sine = (wave > 0) & (2 * wave < num_points)
    return even + a * odd, jnp.where(has_sine, -1j * k * odd, 0.0), even - a * odd
