"""Trajectories of fields: initial states, query times and solutions, split into training, validation and test."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from ctfno_jax.data.problems import FieldProblem


@dataclasses.dataclass(frozen=True)
class Trajectories:
    """Solutions of one equation.

    Attributes:
      u0: initial states, ``(batch, *space, channels)``, float32, physical units.
      times: query times, ``(time,)`` shared by all samples or ``(batch, time)``, float32.
      u: solutions at those times, ``(batch, time, *space, channels)``, float32.
    """

    u0: Float[np.ndarray, "batch *space channels"]
    times: Float[np.ndarray, " time"] | Float[np.ndarray, "batch time"]
    u: Float[np.ndarray, "batch time *space out_channels"]

    def __post_init__(self) -> None:
        expected = (self.u0.shape[0], self.num_times, *self.u0.shape[1:-1])
        shared = self.times.ndim == 1
        if not (shared or self.times.shape == expected[:2]) or self.u.shape[:-1] != expected:
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
    def num_times(self) -> int:
        return self.times.shape[-1] if self.times.ndim else 0

    @property
    def grid(self) -> tuple[int, ...]:
        return self.u0.shape[1:-1]

    def select(self, index: np.ndarray | slice) -> "Trajectories":
        """The trajectories at ``index``."""
        times = self.times if self.times.ndim == 1 else self.times[index]
        return Trajectories(self.u0[index], times, self.u[index])

    def coarsen(self, num_points: int) -> "Trajectories":
        """Every k-th grid point, so that each space axis has ``num_points``."""
        for n in self.grid:
            if n % num_points:
                divisors = [d for d in range(8, n + 1) if n % d == 0]
                raise ValueError(f"a grid of {n} points cannot be cut to {num_points}; use one of {divisors}")
        strides = tuple(slice(None, None, n // num_points) for n in self.grid)
        return Trajectories(self.u0[(slice(None), *strides)], self.times, self.u[(slice(None), slice(None), *strides)])

    def thin(self, num_times: int) -> "Trajectories":
        """Every k-th time, the last one included, so that ``num_times`` are left."""
        if num_times < 1 or self.num_times % num_times:
            divisors = [d for d in range(1, self.num_times + 1) if self.num_times % d == 0]
            raise ValueError(f"{self.num_times} times cannot be cut to {num_times}; use one of {divisors}")
        every = self.num_times // num_times
        kept = slice(every - 1, None, every)
        return Trajectories(self.u0, self.times[..., kept], self.u[:, kept])


@dataclasses.dataclass(frozen=True)
class FieldDataset:
    """Three disjoint sets of trajectories of one problem.

    Attributes:
      problem: entry of :data:`ctfno_jax.data.problems.PROBLEMS`, or a problem of the user's own.
      train: training trajectories.
      validation: trajectories that select the best state of a run.
      test: trajectories for the final evaluation; None if they were not loaded.
      info: facts to log, such as the standard deviation of the initial states.
      source: "generated", or the name of the file.
    """

    problem: "FieldProblem"
    train: Trajectories
    validation: Trajectories
    test: Trajectories | None
    info: dict[str, float]
    source: str = "generated"

    @property
    def name(self) -> str:
        return self.problem.name


def split(
    trajectories: Trajectories, num_test: int, num_validation: int
) -> tuple[Trajectories, Trajectories, Trajectories]:
    """Training, validation and test set of trajectories in the order test, validation, training.

    The test set does not depend on the number of training trajectories.
    """
    num_train = len(trajectories) - num_test - num_validation
    if num_train < 1:
        raise ValueError(
            f"{len(trajectories)} trajectories leave none for training after num_test={num_test} and "
            f"num_validation={num_validation}; lower these"
        )
    held_out = num_test + num_validation
    cuts = (slice(held_out, None), slice(num_test, held_out), slice(num_test))
    train, validation, test = (trajectories.select(cut) for cut in cuts)
    return train, validation, test
