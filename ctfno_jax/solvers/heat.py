"""The heat equation ``u_t = viscosity u_xx`` on the periodic unit interval, solved exactly in Fourier space."""

import numpy as np
from jaxtyping import Complex, Float


def decay(num_frequencies: int, times: Float[np.ndarray, " time"], viscosity: float) -> Float[np.ndarray, "time k"]:
    """Factor of each frequency at each time, ``exp(-viscosity (2 pi k)^2 t)``."""
    k = np.arange(num_frequencies)
    return np.exp(-viscosity * (2 * np.pi * k) ** 2 * np.asarray(times)[:, None])


def solve(
    u0_hat: Complex[np.ndarray, "batch k"], times: Float[np.ndarray, " time"], num_points: int, viscosity: float
) -> Float[np.ndarray, "batch time x"]:
    """Solution at ``times`` from coefficients in ``norm="forward"``; the only error is rounding in float64."""
    u_hat = u0_hat[:, None] * decay(u0_hat.shape[1], times, viscosity)
    return np.fft.irfft(u_hat, n=num_points, axis=-1, norm="forward")
