"""Compressible Navier-Stokes on PDEBench's random fields: the error of a grid, measured against a finer one."""

import numpy as np
import pytest

from ctfno_jax.solvers import compressible_navier_stokes as cns
from ctfno_jax.solvers import gas_fields

_GAMMA = 5 / 3


def _coarsen(u: np.ndarray, factor: int) -> np.ndarray:
    """Averages of ``factor`` cells in density, momentum and energy, which are what a cell holds."""
    density, pressure, velocity = np.moveaxis(u, -1, 0)
    conserved = np.stack([density, density * velocity, pressure / (_GAMMA - 1) + density * velocity**2 / 2], axis=-1)
    conserved = conserved.reshape(*u.shape[:-2], -1, factor, 3).mean(axis=-2)
    density, momentum, energy = np.moveaxis(conserved, -1, 0)
    pressure = (_GAMMA - 1) * (energy - momentum**2 / density / 2)
    return np.stack([density, pressure, momentum / density], axis=-1)


def _relative_errors(u: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """L2 error of each sample and channel, over all times."""
    square = np.square(u - reference).sum(axis=(1, 2)) / np.square(reference).sum(axis=(1, 2))
    return np.sqrt(square)


@pytest.mark.slow
def test_the_error_of_random_fields_falls_with_the_grid_and_is_small_at_1024_cells():
    num_fine, times = 2048, np.linspace(0.2, 1, 5)
    initial = np.stack([gas_fields.sample(np.random.default_rng(seed), num_fine) for seed in range(4)])
    fine = cns.solve(initial, times)
    errors = []
    for num_cells in (256, 512, 1024):
        factor = num_fine // num_cells
        errors.append(
            _relative_errors(cns.solve(_coarsen(initial, factor), times), _coarsen(fine, factor)).mean(axis=0)
        )
    # Density carries contacts that nothing smooths; friction smooths the other two.
    assert np.all(errors[0] / errors[-1] > [4, 8, 8]), errors
    assert np.all(errors[-1] < [1e-3, 4e-5, 4e-5]), errors
