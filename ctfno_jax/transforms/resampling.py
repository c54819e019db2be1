"""Fields on a grid with a fixed number of points: the network reads the grid of its training, whatever the data's.

Some networks have weights for every point of their grid. Others see a jump, as zero padding makes one at a boundary,
and the discrete transform of a jump depends on the grid to first order. Interpolation takes their answers to the data
grid: trigonometric on periodic domains, cubic between boundaries.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

_DEGREE = 3


@dataclasses.dataclass(frozen=True)
class Resampling:
    """A transform for one space axis, whose n points are at j / n.

    Attributes:
      num_points: points that the network reads, at least 4. Of a data grid with a multiple of them, every k-th is read.
      periodic: fields are periodic; interpolate by their Fourier series.
    """

    num_points: int
    periodic: bool = False

    def __post_init__(self) -> None:
        if self.num_points <= _DEGREE:
            raise ValueError(f"num_points must be at least {_DEGREE + 1}, got {self.num_points}")

    def encode(self, u0: ArrayLike) -> Float[Array, "batch points channels"]:
        return _resampled(_checked(u0, "u0", ("batch", "x", "channels")), self.num_points, self.periodic)

    def encode_times(self, times: ArrayLike) -> Array:
        return jnp.asarray(times)

    def encode_solution(self, u: ArrayLike) -> Float[Array, "batch time points channels"]:
        return _resampled(_checked(u, "u", ("batch", "time", "x", "channels")), self.num_points, self.periodic)

    def decode(self, u: ArrayLike, grid: tuple[int, ...]) -> Float[Array, "batch time x channels"]:
        u = _checked(u, "u", ("batch", "time", "points", "channels"))
        if u.shape[-2] != self.num_points:
            raise ValueError(f"u must be given on {self.num_points} points, got shape {u.shape}")
        return _resampled(u, _points(grid), self.periodic)

    def encoded_grid(self, grid: tuple[int, ...]) -> tuple[int, ...]:
        _points(grid)
        return (self.num_points,)

    def gain(self, grid: tuple[int, ...]) -> float:
        """Spectral norm of the matrix of ``encode`` times that of the matrix of ``decode``."""
        there, back = (self.num_points, _points(grid)), (_points(grid), self.num_points)
        return float(
            np.prod([np.linalg.norm(_matrix(source, target, self.periodic), 2) for target, source in (there, back)])
        )

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "resampling", **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Resampling":
        return cls(**values)


def _resampled(u: Array, target: int, periodic: bool) -> Array:
    source = u.shape[-2]
    if source % target == 0:
        return u[..., :: source // target, :]
    with jax.default_matmul_precision("highest"):
        return jnp.asarray(_matrix(source, target, periodic), u.dtype) @ u


@functools.lru_cache(maxsize=16)
def _matrix(source: int, target: int, periodic: bool) -> Float[np.ndarray, "target source"]:
    return _fourier_matrix(source, target) if periodic else _cubic_matrix(source, target)


def _fourier_matrix(source: int, target: int) -> Float[np.ndarray, "target source"]:
    """Values of the Fourier series through the source points, whose Nyquist frequency is a cosine."""
    waves = np.exp(2j * np.pi * np.outer(np.arange(target) / target, np.fft.fftfreq(source, 1 / source)))
    return (waves @ np.fft.fft(np.eye(source)) / source).real


def _cubic_matrix(source: int, target: int) -> Float[np.ndarray, "target source"]:
    """Interpolation by the cubic through the four nearest points, at the right end also beyond the last of them."""
    x = np.arange(target) * (source / target)
    first = np.clip(np.floor(x).astype(int) - _DEGREE // 2, 0, source - _DEGREE - 1)
    offset = x - first
    matrix = np.zeros((target, source))
    for i in range(_DEGREE + 1):
        others = [j for j in range(_DEGREE + 1) if j != i]
        matrix[np.arange(target), first + i] = np.prod([(offset - j) / (i - j) for j in others], axis=0)
    return matrix


def _checked(u: ArrayLike, name: str, axes: tuple[str, ...]) -> Array:
    u = jnp.asarray(u)
    if u.ndim != len(axes):
        raise ValueError(f"resampling is for one space axis: {name} must have shape ({', '.join(axes)}), got {u.shape}")
    _points(u.shape[-2:-1])
    return u if jnp.issubdtype(u.dtype, jnp.floating) else u.astype(jnp.float32)


def _points(grid: tuple[int, ...]) -> int:
    """The number of points of a grid with one axis."""
    if len(grid) != 1 or grid[0] <= _DEGREE:
        raise ValueError(
            f"resampling is for one space axis of {_DEGREE + 1} points or more, got the grid {tuple(grid)}"
        )
    return grid[0]
