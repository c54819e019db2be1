"""Burgers' equation ``u_t + u u_x = viscosity u_xx`` on the periodic unit interval.

Pseudo-spectral in space, dealiased by the two-thirds rule on a grid that may be finer than the one asked for. In time
the exponential Runge-Kutta method of order four (ETDRK4): diffusion is exact, so only the advection limits the step.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

# Points on a circle round z over which phi functions are averaged: formulas with z in the denominator lose all digits
# near zero, their mean over the circle does not.
_CONTOUR_POINTS = 32


def solve(
    u0_hat: Complex[np.ndarray, "batch k"],
    times: Float[np.ndarray, " time"],
    num_points: int,
    viscosity: float,
    *,
    internal_points: int = 2048,
    max_step: float = 1e-3,
) -> Float[np.ndarray, "batch time x"]:
    """Solution on ``num_points`` points at increasing ``times``, from coefficients in ``norm="forward"``.

    Args:
      u0_hat: coefficients ``0 .. k - 1`` of real fields at t = 0; those above the dealiasing limit are dropped.
      times: increasing, positive (a leading zero is allowed).
      num_points: of the result, a divisor of ``internal_points``.
      viscosity: positive.
      internal_points: grid on which products are formed; a third of it is the highest frequency.
      max_step: largest time step; every interval between two times is cut into steps of equal length.
    """
    intervals = np.diff(np.asarray(times, np.float64), prepend=0.0)
    if not (len(intervals) and np.all(intervals[1:] > 0) and intervals[0] >= 0):
        raise ValueError(f"times must increase and be at least zero, got {np.asarray(times)[:5]} ...")
    if num_points < 1 or internal_points % num_points:
        raise ValueError(f"internal_points={internal_points} must be a multiple of num_points={num_points}")
    if viscosity <= 0 or max_step <= 0:
        raise ValueError(f"viscosity and max_step must be positive, got {viscosity} and {max_step}")
    num_frequencies = (internal_points - 1) // 3 + 1
    steps = max(1, int(np.ceil(intervals.max() / max_step - 1e-9)))
    with jax.enable_x64(True):
        v = jnp.zeros((u0_hat.shape[0], num_frequencies), jnp.complex128)
        kept = min(num_frequencies, u0_hat.shape[1])
        v = v.at[:, :kept].set(u0_hat[:, :kept])
        v_hat = _integrate(v, jnp.asarray(intervals), viscosity, steps, internal_points)
        u = jnp.fft.irfft(v_hat, n=internal_points, axis=-1, norm="forward")
        result = np.asarray(u[..., :: internal_points // num_points])
    if not np.all(np.isfinite(result)):
        raise ValueError(f"Burgers: the solution blew up; max_step={max_step} is too long for this field")
    return result


@functools.partial(jax.jit, static_argnums=(3, 4))
def _integrate(v: Array, intervals: Array, viscosity: Array, steps: int, n: int) -> Array:
    """Spectra after each interval, ``(batch, time, k)``."""
    k = jnp.arange(v.shape[-1])
    linear = -viscosity * (2 * jnp.pi * k) ** 2
    derivative = -0.5 * 2j * jnp.pi * k

    def advection(v: Array) -> Array:
        u = jnp.fft.irfft(v, n=n, axis=-1, norm="forward")
        return derivative * jnp.fft.rfft(u * u, axis=-1, norm="forward")[..., : v.shape[-1]]

    def over_interval(v: Array, interval: Array) -> tuple[Array, Array]:
        step = interval / steps
        weights = _etdrk4_weights(linear * step, step)
        v = jax.lax.fori_loop(0, steps, lambda _, v: _etdrk4_step(v, advection, weights), v)
        return v, v

    _, history = jax.lax.scan(over_interval, v, intervals)
    return jnp.moveaxis(history, 0, 1)


def _etdrk4_weights(z: Float[Array, " k"], step: Array) -> tuple[Array, ...]:
    """Factors of one step of ETDRK4 for the diagonal operator ``z / step``."""
    angle = jnp.pi * (jnp.arange(_CONTOUR_POINTS) + 0.5) / _CONTOUR_POINTS
    circle = z[:, None] + jnp.exp(1j * angle)
    e = jnp.exp(circle)
    # z is real, so the lower half of the circle is the conjugate of the upper one.
    mean = lambda f: jnp.mean(f, axis=-1).real  # noqa: E731
    half = step * mean((jnp.exp(circle / 2) - 1) / circle)
    first = step * mean((-4 - circle + e * (4 - 3 * circle + circle**2)) / circle**3)
    middle = step * mean((2 + circle + e * (circle - 2)) / circle**3)
    last = step * mean((-4 - 3 * circle - circle**2 + e * (4 - circle)) / circle**3)
    return jnp.exp(z), jnp.exp(z / 2), half, first, middle, last


def _etdrk4_step(v: Array, nonlinear, weights: tuple[Array, ...]) -> Array:
    full_decay, half_decay, half, first, middle, last = weights
    nv = nonlinear(v)
    a = half_decay * v + half * nv
    na = nonlinear(a)
    b = half_decay * v + half * na
    nb = nonlinear(b)
    c = half_decay * a + half * (2 * nb - nv)
    nc = nonlinear(c)
    return full_decay * v + first * nv + 2 * middle * (na + nb) + last * nc
