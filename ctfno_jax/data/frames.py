"""Frames in which a flow is learned: what symmetries of its equations can take out of a state, and put back afterwards.

``"comoving"``: a periodic flow keeps its mass and momentum, and so the velocity of its centre of mass. Seen from there
it obeys the same equations (Galilean invariance), and a model need not learn that the same waves may drift at any
speed.

``"acoustic"``: besides, density, velocity and time are measured in units of the flow's own mean density and sound
speed. Waves then travel at about speed one in every flow. The equations stay the same but for the viscosity, which
becomes one number per flow; its logarithm is a fourth, constant channel of the initial state. Every flow has its own
times then, which only a model that is continuous in time can answer.

Channels are density, pressure and velocity, in this order.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ctfno_jax.data.fields import Trajectories

FRAMES = ("comoving", "acoustic")
_DENSITY, _PRESSURE, _VELOCITY = range(3)


class Placement(NamedTuple):
    """Where a flow is put: velocity of its centre of mass, and its units of density and of velocity."""

    velocity: Float[np.ndarray, " batch"]
    density: Float[np.ndarray, " batch"]
    speed: Float[np.ndarray, " batch"]

    @property
    def units(self) -> Float[np.ndarray, "batch 3"]:
        """Units of density, pressure and velocity."""
        return np.stack([self.density, self.density * self.speed**2, self.speed], axis=-1)


@dataclasses.dataclass(frozen=True)
class FlowFrame:
    """One of :data:`FRAMES` for flows on a periodic domain.

    Attributes:
      kind: which frame.
      length: of the domain.
      viscous_law: ``"kinematic"`` or ``"dynamic"``, see the solver; what the viscosity is in a flow's own units.
      gamma: ratio of specific heats.
    """

    kind: str
    length: float
    viscous_law: str = "kinematic"
    gamma: float = 5 / 3

    def __post_init__(self) -> None:
        if self.kind not in FRAMES:
            raise ValueError(f"unknown frame {self.kind!r}; known are {', '.join(FRAMES)}")

    def place(self, u0: Float[np.ndarray, "batch x 3"]) -> Placement:
        """The placement of each flow, from its state at time zero."""
        density, pressure, velocity = np.moveaxis(np.asarray(u0, np.float64), -1, 0)
        drift = np.sum(density * velocity, axis=1) / np.sum(density, axis=1)
        if self.kind == "comoving":
            return Placement(drift, np.ones_like(drift), np.ones_like(drift))
        mean_density, mean_pressure = density.mean(axis=1), pressure.mean(axis=1)
        if np.any(mean_density <= 0) or np.any(mean_pressure <= 0):
            raise ValueError("density and pressure of a flow must be positive on average; check the order of channels")
        return Placement(drift, mean_density, np.sqrt(self.gamma * mean_pressure / mean_density))

    def enter_state(self, u0: Float[np.ndarray, "batch x 3"], placement: Placement) -> np.ndarray:
        """The initial state as the model sees it, with the channel of the viscosity if units are the flow's own."""
        state = boost(u0, -placement.velocity) / placement.units[:, None]
        if self.kind == "acoustic":
            reynolds = placement.speed * (placement.density if self.viscous_law == "dynamic" else 1.0)
            constant = np.broadcast_to(np.log(reynolds)[:, None, None], (*state.shape[:-1], 1))
            state = np.concatenate([state, constant], axis=-1)
        return state.astype(np.float32)

    def enter_times(
        self, times: Float[np.ndarray, " time"] | Float[np.ndarray, "batch time"], placement: Placement
    ) -> np.ndarray:
        """The times as the model sees them: one grid per sample if units are the flow's own."""
        if self.kind == "comoving":
            return times
        return (placement.speed[:, None] * times).astype(np.float32)

    def enter(self, flows: Trajectories) -> Trajectories:
        """Initial states, times and solutions as the model sees them."""
        placement = self.place(flows.u0)
        seen = translate(flows.u, placement.velocity[:, None] * flows.times, self.length)
        u = boost(seen, -placement.velocity) / placement.units[:, None, None]
        return Trajectories(
            self.enter_state(flows.u0, placement), self.enter_times(flows.times, placement), u.astype(np.float32)
        )

    def leave(
        self,
        u: Float[np.ndarray, "batch time x 3"],
        times: Float[np.ndarray, " time"] | Float[np.ndarray, "batch time"],
        placement: Placement,
    ) -> Float[np.ndarray, "batch time x 3"]:
        """What the model answered for ``times``, these in units of the clock, as it looks from outside."""
        physical = boost(u * placement.units[:, None, None].astype(np.float32), placement.velocity)
        return translate(physical, -placement.velocity[:, None] * times, self.length)


def boost(
    u: Float[np.ndarray, "batch *rest"], velocity: Float[np.ndarray, " batch"]
) -> Float[np.ndarray, "batch *rest"]:
    """Adds a velocity of its own to every sample."""
    result = np.array(u)
    result[..., _VELOCITY] += velocity.astype(u.dtype).reshape(-1, *[1] * (u.ndim - 2))
    return result


def translate(
    u: Float[np.ndarray, "batch time x channels"], distance: Float[np.ndarray, "batch time"], length: float
) -> Float[np.ndarray, "batch time x channels"]:
    """``u(x + distance)``, by trigonometric interpolation: exact for what the grid resolves."""
    num_points = u.shape[2]
    k = np.arange(num_points // 2 + 1)
    phase = np.exp(2j * np.pi * k * (distance / length)[..., None])
    if num_points % 2 == 0:
        # The last frequency of an even grid has no sine; its cosine alone moves to and fro.
        phase[..., -1] = phase[..., -1].real
    result = np.empty_like(u)
    for i in range(len(u)):  # sample by sample: the spectra of all would need several times the memory of the data
        spectrum = np.fft.rfft(u[i].astype(np.float64), axis=1)
        result[i] = np.fft.irfft(spectrum * phase[i, :, :, None], n=num_points, axis=1)
    return result
