"""Random initial states of the five equations, solved by the reference solvers.

A generator is a function ``(num_samples, seed, first, *, options) -> Trajectories`` for the samples ``first`` to
``first + num_samples - 1``. Each sample has its own seed sequence, so it depends neither on ``num_samples`` nor on how
samples are divided into calls. All generators have the options ``num_times``, the number of equispaced query times, and
``refinement``, which divides the steps of the discretisation.
"""

from collections.abc import Callable, Iterator

import numpy as np

from ctfno_jax.data.trajectories import Trajectories
from ctfno_jax.solvers import burgers, diffusion_sorption, gas_fields, heat, random_fields, reaction
from ctfno_jax.solvers import compressible_navier_stokes as navier_stokes

Generator = Callable[..., Trajectories]


def heat_trajectories(
    num_samples: int,
    seed: int,
    first: int = 0,
    *,
    num_points: int = 1024,
    viscosity: float = 1e-3,
    sigma: float = 20.0,
    tau: float = 3.5,
    gamma: float = 2.5,
    final_time: float = 2.5,
    num_times: int = 50,
    refinement: int = 1,
) -> Trajectories:
    """Exact solutions of the heat equation from Gaussian random fields, on the periodic unit interval.

    ``refinement`` has no effect: the solution is exact.
    """
    _check_sizes(num_points, num_times, refinement)
    _check_positive(viscosity=viscosity, sigma=sigma, tau=tau, final_time=final_time)
    times = _times(final_time, num_times)
    u0_hat = _gaussian_fields(num_samples, seed, first, num_points, sigma, tau, gamma)
    u = heat.solve(u0_hat, np.concatenate([[0.0], times]), num_points, viscosity)
    return _trajectories(u[:, 0, :, None], times, u[:, 1:, :, None])


def burgers_trajectories(
    num_samples: int,
    seed: int,
    first: int = 0,
    *,
    num_points: int = 1024,
    viscosity: float = 1e-3,
    sigma: float = 49.0,
    tau: float = 7.0,
    gamma: float = 2.5,
    final_time: float = 1.0,
    num_times: int = 200,
    refinement: int = 1,
) -> Trajectories:
    """Burgers' equation from Gaussian random fields, on the periodic unit interval.

    ``sigma=49`` is the scale of the public generator, whose fields form shocks before t = 1. The formula of the paper,
    read literally, has ``sigma=7`` and forms none.
    """
    _check_sizes(num_points, num_times, refinement)
    _check_positive(viscosity=viscosity, sigma=sigma, tau=tau, final_time=final_time)
    times = _times(final_time, num_times)
    u0_hat = _gaussian_fields(num_samples, seed, first, num_points, sigma, tau, gamma)
    # Shocks are a few thousandths wide, independently of num_points.
    factor = max(2, -(-2048 // num_points)) * refinement
    # On a finer grid the Nyquist frequency of the coarse one appears twice, as k and -k.
    fine_hat = u0_hat.copy()
    if num_points % 2 == 0:
        fine_hat[:, -1] /= 2
    u = burgers.solve(
        fine_hat, times, num_points, viscosity, internal_points=factor * num_points, max_step=1e-3 / refinement
    )
    u0 = np.fft.irfft(u0_hat, n=num_points, axis=-1, norm="forward")
    return _trajectories(u0[..., None], times, u[..., None])


def diffusion_sorption_trajectories(
    num_samples: int,
    seed: int,
    first: int = 0,
    *,
    num_points: int = 1024,
    final_time: float = 500.0,
    num_times: int = 50,
    refinement: int = 1,
) -> Trajectories:
    """PDEBench's diffusion-sorption problem: constant initial states, inflow of solute at the left boundary."""
    _check_sizes(num_points, num_times, refinement)
    _check_positive(final_time=final_time)
    times = _times(final_time, num_times)
    values = [diffusion_sorption.sample_initial_value(rng) for rng in _generators(num_samples, seed, first)]
    u0 = np.repeat(np.asarray(values)[:, None], num_points, axis=1)
    u = diffusion_sorption.solve(u0, times, refinement=refinement)
    return _trajectories(u0[..., None], times, u[..., None])


def navier_stokes_trajectories(
    num_samples: int,
    seed: int,
    first: int = 0,
    *,
    num_points: int = 1024,
    eta: float = 0.1,
    zeta: float = 0.1,
    viscous_law: str = "kinematic",
    final_time: float = 1.0,
    num_times: int = 50,
    refinement: int = 1,
) -> Trajectories:
    """PDEBench's one-dimensional compressible Navier-Stokes problem: density, pressure and velocity, periodic."""
    _check_sizes(num_points, num_times, refinement)
    _check_positive(final_time=final_time)
    times = _times(final_time, num_times)
    u0 = np.stack(
        [gas_fields.sample(rng, num_points, refinement=refinement) for rng in _generators(num_samples, seed, first)]
    )
    u = navier_stokes.solve(u0, times, eta=eta, zeta=zeta, viscous_law=viscous_law)
    if refinement > 1:
        u0, u = (navier_stokes.average_cells(fields, refinement) for fields in (u0, u))
    return _trajectories(u0, times, u)


def reaction_trajectories(
    num_samples: int,
    seed: int,
    first: int = 0,
    *,
    num_points: int = 100,
    rate: float = 6.0,
    max_wave: int = 4,
    margin: float = 0.05,
    final_time: float = 1.0,
    num_times: int = 50,
    refinement: int = 1,
) -> Trajectories:
    """Exact solutions of the reaction equation from random sums of two sines and an exponential.

    Solutions from negative values blow up in finite time: draws that fall below ``margin`` on the grid are rejected
    (:func:`rejected_reactions` counts them). ``refinement`` has no effect: the solution is exact.
    """
    _check_sizes(num_points, num_times, refinement)
    _check_positive(rate=rate, max_wave=max_wave, margin=margin, final_time=final_time)
    times = _times(final_time, num_times)
    draws = [_reaction_field(rng, num_points, max_wave, margin)[0] for rng in _generators(num_samples, seed, first)]
    u = reaction.solve(np.stack(draws), times, rate=rate)
    return _trajectories(np.stack(draws)[..., None], times, u[..., None])


def rejected_reactions(
    num_samples: int, seed: int, first: int = 0, *, num_points: int = 100, max_wave: int = 4, margin: float = 0.05
) -> int:
    """Number of draws that :func:`reaction_trajectories` rejects for these samples."""
    return sum(_reaction_field(rng, num_points, max_wave, margin)[1] for rng in _generators(num_samples, seed, first))


def _reaction_field(rng: np.random.Generator, num_points: int, max_wave: int, margin: float) -> tuple[np.ndarray, int]:
    """An initial field and the number of draws rejected before it."""
    x = np.arange(num_points) / num_points
    for rejected in range(10_000):
        waves = rng.integers(1, max_wave + 1, size=2)
        z = rng.standard_normal(3)
        sines = np.sin(2 * np.pi * waves[:, None] * x)
        f = 0.5 * (z[:2] @ sines) + z[2] * np.exp(-x) + 2
        if f.min() >= margin:
            return f, rejected
    raise ValueError(f"no draw stays above margin={margin}; choose a smaller one")


def discretisation_error(generate: Generator, seed: int, first: int = 0, *, num_samples: int = 2, **options) -> float:
    """Relative L2 difference between samples and the same samples with twice the refinement, largest over channels."""
    refinement = options.pop("refinement", 1)
    coarse = generate(num_samples, seed, first, refinement=refinement, **options).u.astype(np.float64)
    fine = generate(num_samples, seed, first, refinement=2 * refinement, **options).u
    # Per channel: a large pressure would hide the error of a small velocity.
    axes = tuple(range(fine.ndim - 1))
    error = np.sqrt(np.mean(np.square(coarse - fine), axes) / np.mean(np.square(fine.astype(np.float64)), axes))
    return float(error.max())


def _generators(num_samples: int, seed: int, first: int) -> Iterator[np.random.Generator]:
    for index in range(first, first + num_samples):
        yield np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index,)))


def _gaussian_fields(
    num_samples: int, seed: int, first: int, num_points: int, sigma: float, tau: float, gamma: float
) -> np.ndarray:
    draws = [
        random_fields.sample(rng, 1, num_points, sigma=sigma, tau=tau, gamma=gamma)
        for rng in _generators(num_samples, seed, first)
    ]
    return np.concatenate(draws)


def _times(final_time: float, num_times: int) -> np.ndarray:
    return np.arange(1, num_times + 1) * (final_time / num_times)


def _trajectories(u0: np.ndarray, times: np.ndarray, u: np.ndarray) -> Trajectories:
    as_float32 = (np.ascontiguousarray(array, np.float32) for array in (u0, times, u))
    return Trajectories(*as_float32)


def _check_sizes(num_points: int, num_times: int, refinement: int) -> None:
    if num_points < 2 or num_times < 1 or refinement < 1:
        raise ValueError(
            f"num_points must be at least 2, num_times and refinement at least 1, got {num_points}, {num_times} "
            f"and {refinement}"
        )


def _check_positive(**values: float) -> None:
    if any(value <= 0 for value in values.values()):
        given = ", ".join(f"{name}={value}" for name, value in values.items())
        raise ValueError(f"these must all be positive: {given}")
