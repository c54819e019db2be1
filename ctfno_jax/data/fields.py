"""Trajectories of fields: initial states, query times and solutions, split into training, validation and test."""

import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from ctfno_jax.solvers import heat, random_fields


@dataclasses.dataclass(frozen=True)
class Trajectories:
    """Solutions of one equation at shared times.

    Attributes:
      u0: initial states, ``(batch, *space, channels)``, float32, physical units.
      times: query times, ``(time,)``, float32.
      u: solutions at those times, ``(batch, time, *space, channels)``, float32.
    """

    u0: Float[np.ndarray, "batch *space channels"]
    times: Float[np.ndarray, " time"]
    u: Float[np.ndarray, "batch time *space out_channels"]

    def __post_init__(self) -> None:
        expected = (self.u0.shape[0], self.times.shape[0], *self.u0.shape[1:-1])
        if self.times.ndim != 1 or self.u.shape[:-1] != expected:
            raise ValueError(
                f"u must have shape (batch, time, *space, channels) = {(*expected, 'channels')} to agree with u0 "
                f"{self.u0.shape} and times {self.times.shape}, got {self.u.shape}"
            )
        for name in ("u0", "times", "u"):
            if not np.all(np.isfinite(getattr(self, name))):
                raise ValueError(f"{name} contains values that are not finite; remove those trajectories first")

    def __len__(self) -> int:
        return self.u0.shape[0]

    @property
    def grid(self) -> tuple[int, ...]:
        return self.u0.shape[1:-1]

    def select(self, index: np.ndarray | slice) -> "Trajectories":
        """The trajectories at ``index``."""
        return Trajectories(self.u0[index], self.times, self.u[index])

    def coarsen(self, num_points: int) -> "Trajectories":
        """Every k-th grid point, so that each space axis has ``num_points``."""
        for n in self.grid:
            if n % num_points:
                divisors = [d for d in range(8, n + 1) if n % d == 0]
                raise ValueError(f"a grid of {n} points cannot be cut to {num_points}; use one of {divisors}")
        strides = tuple(slice(None, None, n // num_points) for n in self.grid)
        return Trajectories(self.u0[(slice(None), *strides)], self.times, self.u[(slice(None), slice(None), *strides)])


@dataclasses.dataclass(frozen=True)
class FieldDataset:
    """Three disjoint sets of trajectories, and what is known about them.

    Attributes:
      info: facts worth logging, such as the standard deviation of the initial fields.
    """

    name: str
    train: Trajectories
    validation: Trajectories
    test: Trajectories
    info: dict[str, float]


def split(trajectories: Trajectories, num_test: int, num_validation: int) -> tuple[Trajectories, ...]:
    """Training, validation and test set, the test set drawn first: it stays the same however many are trained on."""
    num_train = len(trajectories) - num_test - num_validation
    if num_train < 1:
        raise ValueError(
            f"{len(trajectories)} trajectories leave none for training after {num_test} + {num_validation}"
        )
    held_out = num_test + num_validation
    cuts = (slice(held_out, None), slice(num_test, held_out), slice(num_test))
    return tuple(trajectories.select(cut) for cut in cuts)


def heat_trajectories(
    num_samples: int,
    seed: int,
    *,
    num_points: int = 1024,
    viscosity: float = 1e-3,
    sigma: float = 20.0,
    tau: float = 3.5,
    gamma: float = 2.5,
    final_time: float = 2.5,
    num_times: int = 50,
) -> Trajectories:
    """Exact solutions of the heat equation from Gaussian random fields, on the periodic unit interval."""
    if num_points < 2 or num_times < 1:
        raise ValueError(f"num_points must be at least 2 and num_times at least 1, got {num_points} and {num_times}")
    if min(viscosity, sigma, tau, final_time) <= 0:
        raise ValueError(
            f"viscosity, sigma, tau and final_time must be positive, got {viscosity}, {sigma}, {tau}, {final_time}"
        )
    times = np.arange(1, num_times + 1) * (final_time / num_times)
    # One generator per sample: the first samples stay the same when more are asked for.
    sequences = np.random.SeedSequence(seed).spawn(num_samples)
    u0_hat = np.concatenate([
        random_fields.sample(np.random.default_rng(s), 1, num_points, sigma=sigma, tau=tau, gamma=gamma)
        for s in sequences
    ])  # fmt: skip
    u = heat.solve(u0_hat, np.concatenate([[0.0], times]), num_points, viscosity).astype(np.float32)[..., None]
    return Trajectories(u0=u[:, 0], times=times.astype(np.float32), u=np.ascontiguousarray(u[:, 1:]))


# Generators by name: (num_samples, seed, *, options) -> Trajectories. One option is `num_times`.
Generator = Callable[..., Trajectories]
GENERATORS: dict[str, Generator] = {"heat": heat_trajectories}
