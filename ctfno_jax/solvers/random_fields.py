"""Periodic Gaussian random fields on (0, 1) with covariance sigma^2 (-Laplacian + tau^2)^(-gamma)."""

import numpy as np
from jaxtyping import Complex, Float


def spectral_density(num_modes: int, *, sigma: float, tau: float, gamma: float) -> Float[np.ndarray, " modes"]:
    """Standard deviation of the cosine and sine amplitudes of the frequencies ``1 .. num_modes``."""
    k = np.arange(1, num_modes + 1)
    return np.sqrt(2.0) * sigma * ((2 * np.pi * k) ** 2 + tau**2) ** (-gamma / 2)


def sample(
    rng: np.random.Generator, num_samples: int, num_points: int, *, sigma: float, tau: float, gamma: float
) -> Complex[np.ndarray, "samples frequencies"]:
    """Coefficients ``0 .. num_points // 2`` (``norm="forward"``) of fields without a mean.

    A draw depends on ``num_points`` only through the number of its frequencies. The constant is left out: its
    standard deviation, sigma / tau^gamma, would be several times that of all the rest.
    """
    num_modes = num_points // 2
    deviation = spectral_density(num_modes, sigma=sigma, tau=tau, gamma=gamma)
    cosine, sine = np.moveaxis(rng.standard_normal((num_samples, 2, num_modes)), 1, 0)
    coefficients = np.zeros((num_samples, num_modes + 1), complex)
    coefficients[:, 1:] = deviation * (cosine - 1j * sine) / 2
    if num_points % 2 == 0:
        # At Nyquist the sine vanishes on the grid, and the cosine is not shared with a mirror image.
        coefficients[:, -1] = deviation[-1] * cosine[:, -1]
    return coefficients
