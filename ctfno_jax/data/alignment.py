"""Periodic fields moved so that the first wave of their initial state starts at the origin.

A model that reads a field at fixed points knows nothing of translations, and would have to learn the solution of the
same field anew for every place that it may have. Here it sees each field in one place only.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ctfno_jax.data.fields import Trajectories
from ctfno_jax.data.frames import Frame


class Placement(NamedTuple):
    """Where fields were: ``cells`` to the right of the ``state`` that the model sees; and in the frame inside."""

    cells: Int[np.ndarray, " batch"]
    state: Float[np.ndarray, "batch x channels"]
    inner: Any = None


@dataclasses.dataclass(frozen=True)
class Aligned:
    """A frame as in :mod:`ctfno_jax.data.frames`. Fields move by whole cells, so nothing is interpolated.

    Attributes:
      inner: frame that the fields are in before they move, if any.
      odd: x -> -x also changes the sign of the first channel, whose first wave becomes a sine then and a cosine
        otherwise: so that the reflection of an aligned field is aligned as well.
    """

    inner: Frame | None = None
    odd: bool = False

    @property
    def own_grid(self) -> bool:
        """Fields move by whole cells."""
        return False

    @property
    def own_units(self) -> bool:
        """They are those of the data."""
        return False

    def place(self, u0: Float[np.ndarray, "batch x channels"]) -> Placement:
        """The placement of each field, from the first channel of its state at time zero."""
        inner = None if self.inner is None else self.inner.place(u0)
        state = u0 if inner is None else inner.state
        if state.ndim != 3 or state.shape[1] < 3:
            raise ValueError(f"states must have shape (batch, x, channels) with three points or more, got {u0.shape}")
        num_points = state.shape[1]
        first_wave = np.fft.rfft(state[..., 0].astype(np.float64), axis=1)[:, 1]
        crest = -np.angle(first_wave) * num_points / (2 * np.pi)
        cells = np.round(crest - (num_points / 4 if self.odd else 0)).astype(int) % num_points
        return Placement(cells, _roll(state, -cells, axis=0), inner)

    def enter_times(
        self, times: Float[np.ndarray, " time"] | Float[np.ndarray, "batch time"], placement: Placement
    ) -> Float[np.ndarray, " time"] | Float[np.ndarray, "batch time"]:
        """The times, as the frame inside has them."""
        return times if self.inner is None else self.inner.enter_times(times, placement.inner)

    def enter(self, trajectories: Trajectories) -> Trajectories:
        """Initial states and solutions as the model sees them."""
        placement = self.place(trajectories.u0)
        seen = trajectories if self.inner is None else self.inner.enter(trajectories)
        return Trajectories(placement.state, seen.times, _roll(seen.u, -placement.cells, axis=1))

    def leave(
        self,
        u: Float[np.ndarray, "batch time x channels"],
        times: Float[np.ndarray, " time"] | Float[np.ndarray, "batch time"],
        placement: Placement,
    ) -> Float[np.ndarray, "batch time x channels"]:
        """What the model answered, back where it belongs."""
        u = _roll(u, placement.cells, axis=1)
        return u if self.inner is None else self.inner.leave(u, times, placement.inner)

    def worth(
        self, placement: Placement, deviation: Float[np.ndarray, " channels"]
    ) -> Float[np.ndarray, "batch channels"]:
        """An error is the same where it is moved to: in units of the deviations there."""
        if self.inner is None:
            return np.ones((len(placement.cells), 1)) / deviation
        return self.inner.worth(placement.inner, deviation)


def _roll(u: np.ndarray, cells: Int[np.ndarray, " batch"], axis: int) -> np.ndarray:
    """Every sample by a number of cells of its own; ``axis`` does not count the samples."""
    return np.stack([np.roll(field, by, axis) for field, by in zip(u, cells, strict=True)])
