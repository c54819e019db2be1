"""Odd periodic extension of fields with Dirichlet boundary values, on a grid with a fixed number of points.

A Fourier layer assumes periodic fields. A field on [0, 1] with the boundary values ``left`` and ``right`` is made
periodic in two steps:

1. subtract the straight line ``left (1 - x) + right x``, so that the remainder vanishes at both boundaries;
2. extend the remainder as an odd function to [-1, 1], which has period 2 and is continuous with its first derivative.

The extension is a sine series ``sum_k b_k sin(k pi x)``. Its coefficients are fitted to the values on the data grid by
least squares and evaluated on ``num_points`` equispaced points of one period. The network therefore reads the same grid
for every data grid. Decoding projects the network's output on the same sines, evaluates them on the data grid and adds
the line.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

_FEWEST_POINTS = 8


@dataclasses.dataclass(frozen=True)
class OddExtension:
    """A transform for one space axis with constant boundary values.

    The data grid holds cell centres at ``x_j = (j + 1) / (n (1 + right_slip) + 1)``, j = 0 .. n - 1, with the left
    boundary at x = 0 and the right boundary at x = 1: each boundary lies one cell beyond the last centre.

    An encoded initial state has ``2 channels + 1`` channels: the odd extension; the even (cosine) extension of the
    state itself, without the line subtracted; and ``cos(pi x)``, which distinguishes the two boundaries. An encoded
    solution has the odd extension only.

    Attributes:
      left: value at the left boundary.
      right: value at the right boundary.
      right_slip: shift of the right boundary, in lengths of the domain. The Robin condition
        ``u + slip u_x = right`` one cell beyond the last centre is, to first order, ``u = right`` at that distance.
      num_points: points of one period of the extension, at least 8.
    """

    left: float
    right: float
    right_slip: float
    num_points: int

    def __post_init__(self) -> None:
        if self.num_points < _FEWEST_POINTS or self.right_slip < 0:
            raise ValueError(
                f"num_points must be at least {_FEWEST_POINTS} and right_slip not negative, "
                f"got {self.num_points} and {self.right_slip}"
            )

    def encode(self, u0: ArrayLike) -> Float[Array, "batch points inputs"]:
        u0 = self._checked(u0, "u0", ("batch", "x", "channels"))
        even = _transfer(u0, _even_matrix(self, u0.shape[-2]))
        cosine = np.cos(2 * np.pi * np.arange(self.num_points) / self.num_points)[:, None]
        cosine = jnp.broadcast_to(jnp.asarray(cosine, u0.dtype), (*even.shape[:-1], 1))
        return jnp.concatenate([self._extend(u0), even, cosine], axis=-1)

    def encode_times(self, times: ArrayLike) -> Array:
        return jnp.asarray(times)

    def encode_solution(self, u: ArrayLike) -> Float[Array, "batch time points channels"]:
        return _map_samples(self, self._checked(u, "u", ("batch", "time", "x", "channels")))

    def decode(self, u: ArrayLike, grid: tuple[int, ...]) -> Float[Array, "batch time x channels"]:
        u = self._checked(u, "u", ("batch", "time", "points", "channels"))
        if u.shape[-2] != self.num_points:
            raise ValueError(f"u must be given on {self.num_points} points of the extension, got shape {u.shape}")
        num_points = _points(grid)
        return _transfer(u, _odd_matrices(self, num_points)[1]) + self._line(num_points, u.dtype)

    def encoded_grid(self, grid: tuple[int, ...]) -> tuple[int, ...]:
        _points(grid)
        return (self.num_points,)

    def gain(self, grid: tuple[int, ...]) -> float:
        """Spectral norm of the matrix of ``encode`` times that of the matrix of ``decode``."""
        num_points = _points(grid)
        odd, back = _odd_matrices(self, num_points)
        into = np.concatenate([odd, _even_matrix(self, num_points)])
        return float(np.linalg.norm(into, 2) * np.linalg.norm(back, 2))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "odd_extension", **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "OddExtension":
        return cls(**values)

    def centres(self, num_points: int) -> Float[np.ndarray, " x"]:
        """Cell centres of the data grid, with the boundaries at 0 and 1."""
        return (np.arange(num_points) + 1) / (num_points * (1 + self.right_slip) + 1)

    def _extend(self, u: Float[Array, "*lead x channels"]) -> Float[Array, "*lead points channels"]:
        num_points = u.shape[-2]
        return _transfer(u - self._line(num_points, u.dtype), _odd_matrices(self, num_points)[0])

    def _line(self, num_points: int, dtype: Any) -> Float[Array, "x 1"]:
        x = self.centres(num_points)[:, None]
        return jnp.asarray(self.left * (1 - x) + self.right * x, dtype)

    def _checked(self, u: ArrayLike, name: str, axes: tuple[str, ...]) -> Array:
        u = jnp.asarray(u)
        if u.ndim != len(axes):
            raise ValueError(
                f"the odd extension is for one space axis: {name} must have shape ({', '.join(axes)}), got {u.shape}"
            )
        _points(u.shape[-2:-1])
        return u if jnp.issubdtype(u.dtype, jnp.floating) else u.astype(jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def _map_samples(transform: OddExtension, u: Array) -> Array:
    # One sample at a time: a product over all of them would need several times the memory of the data.
    return jax.lax.map(transform._extend, u)


def _points(grid: tuple[int, ...]) -> int:
    """The number of points of a grid with one axis."""
    if len(grid) != 1 or grid[0] < _FEWEST_POINTS:
        raise ValueError(
            f"the odd extension is for one space axis of {_FEWEST_POINTS} points or more, got the grid {tuple(grid)}"
        )
    return grid[0]


@functools.lru_cache(maxsize=16)
def _odd_matrices(transform: OddExtension, num_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Data grid to extension, and back, by the sines that both grids resolve."""
    k = np.arange(1, min((transform.num_points - 1) // 2, num_points) + 1)
    on_data = np.sin(np.pi * np.outer(transform.centres(num_points), k))
    on_extension = np.sin(2 * np.pi * np.outer(np.arange(transform.num_points) / transform.num_points, k))
    return on_extension @ np.linalg.pinv(on_data), on_data @ on_extension.T * (2 / transform.num_points)


@functools.lru_cache(maxsize=16)
def _even_matrix(transform: OddExtension, num_points: int) -> np.ndarray:
    """Data grid to even extension, by half as many cosines as data points: more would oscillate at the boundaries."""
    k = np.arange(min((transform.num_points + 1) // 2, num_points // 2))
    on_data = np.cos(np.pi * np.outer(transform.centres(num_points), k))
    on_extension = np.cos(2 * np.pi * np.outer(np.arange(transform.num_points) / transform.num_points, k))
    return on_extension @ np.linalg.pinv(on_data)


def _transfer(u: Array, matrix: np.ndarray) -> Array:
    """``matrix`` applied along the last axis but one, in the precision of ``u``."""
    with jax.default_matmul_precision("highest"):
        return jnp.asarray(matrix, u.dtype) @ u
