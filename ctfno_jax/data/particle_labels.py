"""Flows on labels of their particles, and back onto the grid.

Particles are numbered by a label that grows along the domain at time zero, and keep it. A jump of density rests at its
label whatever the flow does, where on the grid it would be carried about; and mass is kept by counting: a cell of
labels has the same mass at all times.

Positions and labels are in units of cells here: the centre of cell j is at j, its edges at j - 1/2 and j + 1/2, and the
domain is periodic with as many cells as the arrays have on their last axis. Masses are in units of density times cell.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import ndimage

_NEWTON_STEPS = 3


class Labels(NamedTuple):
    """One number for every particle of a flow, as they are at time zero.

    Attributes:
      position: of the centre of each cell of labels.
      width: of each cell of labels.
      mass: of each cell of labels.
      mass_before: of all particles up to the centre of each cell.
      moment: first moment of the density on the grid.
    """

    position: Float[np.ndarray, " x"]
    width: Float[np.ndarray, " x"]
    mass: Float[np.ndarray, " x"]
    mass_before: Float[np.ndarray, " x"]
    moment: float


def labels(density: Float[np.ndarray, " x"], weight: Float[np.ndarray, " x"]) -> Labels:
    """Labels that grow along the domain in proportion to a positive weight."""
    num_cells = len(density)
    cells = np.arange(num_cells)[None]
    label = _Cumulative((weight / weight.mean())[None])
    edges, centres = label.invert(cells), label.invert(cells + 0.5)
    mass = _Cumulative(density[None])
    mass_at_edges = mass(edges)
    return Labels(
        position=centres[0],
        width=np.diff(edges[0], append=edges[0, 0] + num_cells),
        mass=np.diff(mass_at_edges[0], append=mass_at_edges[0, 0] + density.sum()),
        mass_before=mass(centres)[0],
        moment=float(cells[0] @ density),
    )


def initial_fields(particles: Labels, fields: Float[np.ndarray, "x fields"]) -> Float[np.ndarray, "x fields"]:
    """Fields at time zero, at the particles."""
    return _interpolate_all(fields[None], particles.position[None])[0]


def follow(
    particles: Labels, density: Float[np.ndarray, "time x"], fields: Float[np.ndarray, "time x fields"]
) -> tuple[Float[np.ndarray, "time x"], Float[np.ndarray, "time x fields"]]:
    """What the particles see of a flow whose centre of mass rests.

    Args:
      particles: their labels.
      density: at later times.
      fields: other quantities at those times.

    Returns:
      The widths of the cells of labels, with mean one, and the fields at their centres.
    """
    num_cells = density.shape[-1]
    # Mass that has flowed in over the left edge of the domain, since the first moment of the mass stays what it was.
    inflow = ((particles.moment - density @ np.arange(num_cells)) / num_cells)[:, None]
    mass = _Cumulative(density)
    edges = mass.invert(np.cumsum(particles.mass) - particles.mass + inflow)
    centres = mass.invert(particles.mass_before + inflow)
    return np.diff(edges, axis=-1, append=edges[:, :1] + num_cells), _interpolate_all(fields, centres)


def release(
    particles: Labels, width: Float[np.ndarray, "time x"], fields: Float[np.ndarray, "time x fields"]
) -> tuple[Float[np.ndarray, "time x"], Float[np.ndarray, "time x fields"]]:
    """The inverse of :func:`follow`: density and fields on the grid. Widths are first scaled to mean one."""
    cells = np.arange(width.shape[-1], dtype=np.float64)
    place = _Cumulative(width / width.mean(axis=-1, keepdims=True))
    # The places are known up to a shift, and the centre of mass has not moved.
    displacement = place(np.broadcast_to(cells, width.shape)) - particles.position
    shift = (displacement @ particles.mass / particles.mass.sum())[:, None]
    label_of_edge = place.invert(cells - 0.5 + shift)
    label_of_centre = place.invert(cells + shift)
    mass = _Cumulative(particles.mass[None])(label_of_edge)
    density = np.diff(mass, axis=-1, append=mass[:, :1] + particles.mass.sum())
    return density, _interpolate_all(fields, label_of_centre)


class _Cumulative:
    """The integral of a positive periodic density from the left edge of cell 0, as a function of the position."""

    def __init__(self, density: Float[np.ndarray, "rows x"]):
        self._mean = density.mean(axis=-1, keepdims=True)
        self.at_edges = np.cumsum(density, axis=-1) - density
        self._num_cells = density.shape[-1]
        self._coefficients = _spline(self.at_edges - self._mean * np.arange(self._num_cells))

    def __call__(self, position: Float[np.ndarray, "rows points"]) -> Float[np.ndarray, "rows points"]:
        edge = position + 0.5
        return _evaluate(self._coefficients, edge) + self._mean * edge

    def invert(self, mass: Float[np.ndarray, "rows points"]) -> Float[np.ndarray, "rows points"]:
        """The positions at which the integral has the given values."""
        total = self._mean * self._num_cells
        turns = np.floor(mass / total)
        rest = mass - turns * total
        edges = np.concatenate([self.at_edges, total], axis=-1)
        cell = np.stack([np.searchsorted(e, r, side="right") - 1 for e, r in zip(edges, rest, strict=True)])
        cell = np.clip(cell, 0, self._num_cells - 1)
        left, right = (np.take_along_axis(edges, cell + i, axis=-1) for i in (0, 1))
        edge = cell + (rest - left) / np.maximum(right - left, np.finfo(np.float64).tiny)
        for _ in range(_NEWTON_STEPS):
            value, slope = _evaluate_with_slope(self._coefficients, edge)
            # Newton's method from the chord, kept in the cell that is known to hold the solution.
            step = (rest - value - self._mean * edge) / np.maximum(slope + self._mean, 1e-3 * self._mean)
            edge = np.clip(edge + step, cell, cell + 1.0)
        return edge - 0.5 + turns * self._num_cells


def _interpolate_all(values: Float[np.ndarray, "rows x fields"], position: np.ndarray) -> np.ndarray:
    return np.stack([_evaluate(_spline(values[..., i]), position) for i in range(values.shape[-1])], axis=-1)


def _spline(values: Float[np.ndarray, "rows x"]) -> Float[np.ndarray, "rows x"]:
    """Coefficients of the periodic cubic spline through values at 0, 1, 2 and so on."""
    return ndimage.spline_filter1d(values, order=3, axis=-1, mode="grid-wrap", output=np.float64)


def _evaluate(coefficients: np.ndarray, position: np.ndarray) -> np.ndarray:
    """A spline at the positions of each row."""
    c0, c1, c2, c3, s = _neighbours(coefficients, position)
    r = 1 - s
    return (r**3 * c0 + s**3 * c3) / 6 + (2 / 3 - s * s * (1 - s / 2)) * c1 + (2 / 3 - r * r * (1 - r / 2)) * c2


def _evaluate_with_slope(coefficients: np.ndarray, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A spline and its derivative at the positions of each row."""
    c0, c1, c2, c3, s = _neighbours(coefficients, position)
    # As a polynomial of s.
    second = (c0 + c2) / 2 - c1
    third = (c3 - c0) / 6 + (c1 - c2) / 2
    slope = (c2 - c0) / 2
    value = (c0 + c2) / 6 + 2 / 3 * c1
    return value + s * (slope + s * (second + s * third)), slope + s * (2 * second + s * (3 * third))


def _neighbours(coefficients: np.ndarray, position: np.ndarray) -> tuple[np.ndarray, ...]:
    """The four coefficients that matter at each position, and how far it is past the second."""
    num_points = coefficients.shape[-1]
    left = np.floor(position)
    wrapped = np.concatenate([coefficients[:, -1:], coefficients, coefficients[:, :2]], axis=-1)
    rows = np.arange(len(wrapped))[:, None] if len(wrapped) > 1 else np.zeros((len(position), 1), np.int64)
    first = rows * (num_points + 3) + left.astype(np.int64) % num_points
    wrapped = wrapped.ravel()
    return *(wrapped.take(first + i) for i in range(4)), position - left
