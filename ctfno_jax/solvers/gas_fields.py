"""Random initial fields of a gas, as PDEBench draws them for its one-dimensional compressible Navier-Stokes problem."""

import numpy as np
from jaxtyping import Float


def sample(rng: np.random.Generator, num_points: int, *, refinement: int = 1) -> Float[np.ndarray, "x 3"]:
    """Density, pressure and velocity at the centres of cells on [-1, 1], drawn as PDEBench draws them.

    Waves have the period of the first to the last centre, as there, not of the domain: fields jump slightly where the
    domain closes. How much is drawn from ``rng`` does not depend on ``num_points``. With ``refinement``, the same
    fields at the centres of that many times as many cells.
    """
    if num_points < 4 or refinement < 1:
        raise ValueError(f"num_points must be at least 4 and refinement at least 1, got {num_points} and {refinement}")
    cells = refinement * num_points
    x = -1 + (np.arange(cells) + 0.5) * 2 / cells
    period = 2 - 2 / num_points
    density = _between(rng, _sum_of_waves(rng, x, period), 1.0, 10.0)
    pressure = _between(rng, _sum_of_waves(rng, x, period), 10.0, 100.0)
    return np.stack([density, pressure, _sum_of_waves(rng, x, period)], axis=-1)


def _sum_of_waves(rng: np.random.Generator, x: Float[np.ndarray, " x"], period: float) -> Float[np.ndarray, " x"]:
    """Three sines of random amplitude and phase, at times folded to one sign or cut out by a smooth window."""
    # Wavenumbers 1, 2, 3 count as often as they come in two draws: one drawn twice doubles, one not drawn is constant.
    count = np.bincount(rng.integers(3, size=2), minlength=3)
    k = 2 * np.pi * np.arange(1, 4) * count / period
    amplitude, phase = rng.uniform(0, 1, 3), rng.uniform(0, 2 * np.pi, 3)
    field = amplitude @ np.sin(np.outer(k, x) + phase[:, None])
    folded, windowed, sign = rng.uniform() < 0.1, rng.uniform() < 0.5, rng.choice([-1.0, 1.0])
    left, right = rng.uniform(0.1, 0.45), rng.uniform(0.55, 0.9)
    if folded:
        field = np.abs(field)
    if windowed:
        field = field * (np.tanh((x - left) / 0.01) - np.tanh((x - right) / 0.01)) / 2
    return sign * field


def _between(rng: np.random.Generator, field: Float[np.ndarray, " x"], low: float, high: float) -> np.ndarray:
    """The field scaled to a random span above a random minimum, both log-uniform between ``low`` and ``high``."""
    span, minimum = np.exp(rng.uniform(np.log(low), np.log(high), 2))
    return minimum + span * (field - field.min()) / (field.max() - field.min())
