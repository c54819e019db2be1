"""Fields between two walls, continued beyond them so that they are periodic and smooth, on a grid of the frame's own.

A Fourier layer takes every field for periodic. One that has other values at its left end than at its right, and slopes
there besides, is not, and what the layer makes of the jump has to be learned away. Where all solutions have the same
values at the walls, what is left of them after a straight line between these is subtracted vanishes at both. Its odd
reflection at the walls is periodic over twice the distance, and as smooth as diffusion makes it: a few sines tell it
all. So the model sees it on few points, the same for every grid of the data, and its answer is evaluated wherever it is
asked for.

The frame is linear but for a constant, and the same for all states: JAX can transform it, and a certificate goes
through.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ctfno_jax.data.fields import Trajectories
from ctfno_jax.ops import diffusion

_FEWEST_POINTS = 8


@dataclasses.dataclass(frozen=True)
class Walls:
    """Where all solutions have known values: one cell beyond the first and the last centre, but for a slip.

    Attributes:
      left: the value at the left wall.
      right: that at the right wall.
      right_slip: how much further away the right wall is, in lengths of the domain. A solution with
        ``u + slip u_x = right`` a cell beyond the last centre has that value there, but for its curvature.
    """

    left: float
    right: float
    right_slip: float = 0.0


class Placement(NamedTuple):
    """The state that the model sees, and on how many points the answer is asked for."""

    state: Float[np.ndarray, "batch points seen"]
    num_points: int


@dataclasses.dataclass(frozen=True)
class Mirrored:
    """A frame as in :mod:`ctfno_jax.data.frames`, by sines that are fitted to the grid of the data.

    The state that a model sees has the reflected fields, as its answers do; then the initial fields themselves,
    reflected evenly, so that they stand out from the line; and last the cosine of the place, which tells the walls
    apart.

    Attributes:
      walls: what is known at the ends.
      num_points: of the model, from the left wall to the right one and back, which is a length of one to it.
      diffusivity: what diffusion alone would make of the state is subtracted from solutions, so that only the rest has
        to be learned; None for nothing, so that solutions are states again.
    """

    walls: Walls
    num_points: int
    diffusivity: float | None = None

    @property
    def own_grid(self) -> bool:
        """Always."""
        return True

    @property
    def own_units(self) -> bool:
        """Never: they are those of the data."""
        return False

    # --- for JAX to transform -------------------------------------------------------------------------------------

    def state(self, u0: Float[Array, "batch x channels"]) -> Float[Array, "batch points seen"]:
        """Reflected fields, initial fields, cosine."""
        even = _transfer(u0, _even_matrix(self, u0.shape[-2]))
        cosine = jnp.cos(2 * jnp.pi * jnp.arange(self.num_points) / self.num_points)[:, None]
        return jnp.concatenate([self.reflected(u0), even, jnp.broadcast_to(cosine, (*even.shape[:-1], 1))], axis=-1)

    def reflected(self, u: Float[Array, "*lead x channels"]) -> Float[Array, "*lead points channels"]:
        """What is left of fields without the line, on both sides of a wall."""
        num_points = u.shape[-2]
        return _transfer(u - self._line(num_points), _odd_matrices(self, num_points)[0])

    def between(
        self, reflected: Float[Array, "*lead points channels"], num_points: int
    ) -> Float[Array, "*lead x channels"]:
        """The inverse, of the odd part: fields between the walls, on the grid of the data."""
        return _transfer(reflected, _odd_matrices(self, num_points)[1]) + self._line(num_points)

    def diffused(
        self, state: Float[Array, "batch points seen"], times: Float[Array, "..."], channels: int
    ) -> Float[Array, "batch time points channels"] | float:
        """What is subtracted from solutions."""
        if self.diffusivity is None:
            return 0.0
        return diffusion.propagate(state[..., :channels], times, self.diffusivity)

    def growth(self, model: Float[np.ndarray, " time"], num_points: int) -> Float[np.ndarray, " time"]:
        """A bound on the growth of an error on ``num_points`` points, from one of the model on its own."""
        if num_points < _FEWEST_POINTS:
            raise ValueError(f"num_points must be at least {_FEWEST_POINTS}, got {num_points}")
        into, out = (np.linalg.norm(matrix, 2) for matrix in _odd_matrices(self, num_points))
        seen = np.linalg.norm(np.concatenate([_odd_matrices(self, num_points)[0], _even_matrix(self, num_points)]), 2)
        # What diffuses does not grow.
        return out * (model * seen + (0.0 if self.diffusivity is None else into))

    # --- what a run needs of a frame ------------------------------------------------------------------------------

    def place(self, u0: Float[np.ndarray, "batch x channels"]) -> Placement:
        """The state of each sample."""
        if u0.ndim != 3 or u0.shape[1] < _FEWEST_POINTS:
            raise ValueError(
                f"states must have shape (batch, x, channels) with {_FEWEST_POINTS} points or more, got {u0.shape}"
            )
        return Placement(np.asarray(_state(self, u0)), u0.shape[1])

    def enter_times(self, times: np.ndarray, placement: Placement) -> np.ndarray:
        """The times as they are."""
        del placement
        return times

    def enter(self, trajectories: Trajectories) -> Trajectories:
        """Initial states and solutions as the model sees them."""
        placement = self.place(trajectories.u0)
        # Sample by sample: in one piece, they would need several times the memory of the data.
        u = np.stack([np.asarray(_reflected(self, one)) for one in trajectories.u])
        known = np.asarray(_diffused(self, placement.state, trajectories.times, u.shape[-1]))
        return Trajectories(placement.state, trajectories.times, u - known)

    def leave(self, u: np.ndarray, times: np.ndarray, placement: Placement) -> np.ndarray:
        """What the model answered, between the walls and on the grid that the states came on."""
        u = u + np.asarray(_diffused(self, placement.state, times, u.shape[-1]))
        return np.stack([np.asarray(_between(self, one, placement.num_points)) for one in u])

    def worth(self, placement: Placement, deviation: Float[np.ndarray, " channels"]) -> np.ndarray:
        """An error is as large outside."""
        return np.ones((len(placement.state), 1)) / deviation

    # --- grids ----------------------------------------------------------------------------------------------------

    def places(self, num_points: int) -> Float[np.ndarray, " x"]:
        """Of the centres of cells, with the left wall at 0 and the right one at 1."""
        return (np.arange(num_points) + 1) / (num_points * (1 + self.walls.right_slip) + 1)

    def _line(self, num_points: int) -> Float[np.ndarray, "x 1"]:
        places = self.places(num_points)[:, None]
        return (self.walls.left * (1 - places) + self.walls.right * places).astype(np.float32)


_state = jax.jit(Mirrored.state, static_argnums=0)
_reflected = jax.jit(Mirrored.reflected, static_argnums=0)
_between = jax.jit(Mirrored.between, static_argnums=(0, 2))
_diffused = jax.jit(Mirrored.diffused, static_argnums=(0, 3))


@functools.lru_cache(maxsize=16)
def _odd_matrices(frame: Mirrored, num_points: int) -> tuple[np.ndarray, np.ndarray]:
    """From the grid of the data to that of the model, and back, by as many sines as both can tell apart."""
    waves = np.arange(1, min((frame.num_points - 1) // 2, num_points) + 1)
    here = np.sin(np.pi * np.outer(frame.places(num_points), waves))
    there = np.sin(2 * np.pi * np.outer(np.arange(frame.num_points) / frame.num_points, waves))
    return there @ np.linalg.pinv(here), here @ there.T * (2 / frame.num_points)


@functools.lru_cache(maxsize=16)
def _even_matrix(frame: Mirrored, num_points: int) -> np.ndarray:
    """From the grid of the data to that of the model, by cosines: few enough not to swing between points and walls."""
    waves = np.arange(min((frame.num_points + 1) // 2, num_points // 2))
    here = np.cos(np.pi * np.outer(frame.places(num_points), waves))
    there = np.cos(2 * np.pi * np.outer(np.arange(frame.num_points) / frame.num_points, waves))
    return there @ np.linalg.pinv(here)


def _transfer(u: Array, matrix: np.ndarray) -> Array:
    """Another grid for the last axis but one."""
    with jax.default_matmul_precision("highest"):
        return jnp.asarray(matrix, jnp.float32) @ u
