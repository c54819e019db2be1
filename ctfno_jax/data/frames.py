"""Frames in which a flow is learned: what its equations are known to do is taken out, and put back afterwards.

``"comoving"``: a periodic flow keeps its mass and momentum, and so the velocity of its centre of mass. Seen from there
it obeys the same equations (Galilean invariance), and a model need not learn that the same waves may drift at any
speed.

``"particles"``: besides, on labels of the particles (:mod:`ctfno_jax.data.particle_labels`), where jumps of density
rest. Energy tells the pressure that the flow will have once at rest, and pressure and density of a particle tell its
density there. So the sound speed c and the impedance Z = density * c that the particle will have are known from the
start. Labels grow with the time that sound takes, in which waves run at one speed through dense and thin parts alike,
and velocity * sqrt(Z) and pressure / sqrt(Z) are what a wave keeps on its way. All is in units of the flow's own.
Channels of the initial state are the logarithm of the density at rest; that of the pressure over the one at rest,
divided by gamma sqrt(Z); velocity * sqrt(Z); and a constant, the logarithm of the flow's unit of velocity, which says
how viscous the flow is in its own units. Channels of the solution are the entropy that each particle has gained, and
pressure and velocity as before; density follows from the first two. Of the latter, the sum is a wave to the right and
the difference one to the left, both of one known speed: they are moved back to where they started. In a uniform gas a
weak wave then stays as it was but for friction, and what is left to learn are echoes, steepening and damping.

``"acoustic"``: besides, time is measured by the turns that sound makes round the domain. Every flow has its own times
then, which only a model that is continuous in time can answer.

Channels outside are density, pressure and velocity, in this order.
"""

import dataclasses
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float

from ctfno_jax.data import particle_labels
from ctfno_jax.data.fields import Trajectories

FLOW_FRAMES = ("comoving", "particles", "acoustic")
_DENSITY, _PRESSURE, _VELOCITY = range(3)


class Frame(Protocol):
    """What a run needs of a frame; :mod:`ctfno_jax.data.alignment` has another one. Placements have a ``state``."""

    def place(self, u0: np.ndarray) -> Any:
        """The placement of each sample, from its state at time zero."""

    def enter_times(self, times: np.ndarray, placement: Any) -> np.ndarray:
        """The times as the model sees them."""
        ...

    def enter(self, trajectories: Trajectories) -> Trajectories:
        """Initial states, times and solutions as the model sees them."""
        ...

    def leave(self, u: np.ndarray, times: np.ndarray, placement: Any) -> np.ndarray:
        """What the model answered for ``times``, as it looks from outside."""
        ...

    def worth(self, placement: Any, deviation: np.ndarray) -> np.ndarray:
        """What an error of one is outside, for each sample and channel, in units of the deviations there."""
        ...


class Placement(NamedTuple):
    """Where flows are put.

    Attributes:
      velocity: of their centres of mass.
      density: their units of density.
      speed: their units of velocity.
      state: the flows at time zero as the model sees them.
      particles: labels of the particles, one entry for each flow; none in a frame on the grid.
      impedance: square root of the impedance of the particles at rest, relative to the flow's units.
      pressure: logarithm of the initial pressure of the particles, relative to the one at rest.
    """

    velocity: Float[np.ndarray, " batch"]
    density: Float[np.ndarray, " batch"]
    speed: Float[np.ndarray, " batch"]
    state: Float[np.ndarray, "batch x channels"]
    particles: tuple[particle_labels.Labels, ...] = ()
    impedance: Float[np.ndarray, "batch x"] | None = None
    pressure: Float[np.ndarray, "batch x"] | None = None


@dataclasses.dataclass(frozen=True)
class FlowFrame:
    """One of :data:`FLOW_FRAMES` for flows on a periodic domain.

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
        if self.kind not in FLOW_FRAMES:
            raise ValueError(f"unknown frame {self.kind!r}; known are {', '.join(FLOW_FRAMES)}")

    def place(self, u0: Float[np.ndarray, "batch x 3"]) -> Placement:
        """The placement of each flow, from its state at time zero."""
        u0 = np.asarray(u0, np.float64)
        density, pressure, velocity = np.moveaxis(u0, -1, 0)
        drift = np.sum(density * velocity, axis=1) / np.sum(density, axis=1)
        seen = boost(u0, -drift)
        if self.kind == "comoving":
            return Placement(drift, np.ones_like(drift), np.ones_like(drift), seen.astype(np.float32))
        if density.min() <= 0 or pressure.min() <= 0:
            raise ValueError("density and pressure of a flow must be positive; check the order of channels")
        motion = np.mean(density * seen[..., _VELOCITY] ** 2, axis=1) / 2
        at_rest = pressure.mean(axis=1) + (self.gamma - 1) * motion
        slowness = np.sqrt(self._density_at_rest(density, pressure, at_rest[:, None]) / (self.gamma * at_rest[:, None]))
        speed = 1 / slowness.mean(axis=1)
        unit = self.gamma * at_rest / speed**2
        particles = tuple(particle_labels.labels(d, s) for d, s in zip(density, slowness, strict=True))
        pairs = zip(particles, seen, strict=True)
        # The logarithm keeps density and pressure positive between the points.
        there = np.stack(
            [particle_labels.initial_fields(p, np.concatenate([np.log(s[:, :2]), s[:, 2:]], -1)) for p, s in pairs]
        )
        log_density, log_pressure = there[..., 0] - np.log(unit)[:, None], there[..., 1] - np.log(at_rest)[:, None]
        log_at_rest = log_density - log_pressure / self.gamma
        impedance = np.exp(log_at_rest / 4)
        reynolds = np.log(speed) + (np.log(unit) if self.viscous_law == "dynamic" else 0.0)
        state = [
            log_at_rest,
            log_pressure / (self.gamma * impedance),
            there[..., _VELOCITY] / speed[:, None] * impedance,
            np.broadcast_to(reynolds[:, None], impedance.shape),
        ]
        return Placement(
            drift, unit, speed, np.stack(state, axis=-1).astype(np.float32), particles, impedance, log_pressure
        )

    def enter_times(
        self, times: Float[np.ndarray, " time"] | Float[np.ndarray, "batch time"], placement: Placement
    ) -> np.ndarray:
        """The times as the model sees them: in the acoustic frame, one grid per sample."""
        if self.kind != "acoustic":
            return times
        return self._turns(times, placement).astype(np.float32)

    def enter(self, trajectories: Trajectories) -> Trajectories:
        """Initial states, times and solutions as the model sees them."""
        placement = self.place(trajectories.u0)
        u = boost(
            translate(trajectories.u, placement.velocity[:, None] * trajectories.times, self.length),
            -placement.velocity,
        )
        if self.kind != "comoving":
            u = np.stack(
                [self._follow(placement, i, u[i].astype(np.float64)).astype(np.float32) for i in range(len(u))]
            )
            u = hold_waves(u, self._turns(trajectories.times, placement))
        return Trajectories(
            placement.state, self.enter_times(trajectories.times, placement), u.astype(np.float32, copy=False)
        )

    def leave(
        self,
        u: Float[np.ndarray, "batch time x 3"],
        times: Float[np.ndarray, " time"] | Float[np.ndarray, "batch time"],
        placement: Placement,
    ) -> Float[np.ndarray, "batch time x 3"]:
        """What the model answered for ``times``, these in units of the clock, as it looks from outside."""
        if self.kind != "comoving":
            u = hold_waves(u, -self._turns(times, placement))
            u = np.stack([self._release(placement, i, u[i].astype(np.float64)) for i in range(len(u))]).astype(u.dtype)
        return translate(boost(u, placement.velocity), -placement.velocity[:, None] * times, self.length)

    def worth(self, placement: Placement, deviation: Float[np.ndarray, " 3"]) -> Float[np.ndarray, "batch 3"]:
        """What an error of one in each channel of the solution is outside, about, in units of the deviations there."""
        if placement.impedance is None:
            return np.ones((len(placement.speed), 3)) / deviation
        root_mean_square = lambda values: np.sqrt(np.mean(values**2, axis=1))  # noqa: E731
        unit, speed, impedance = placement.density, placement.speed, placement.impedance
        entropy = unit * root_mean_square(impedance**4) / self.gamma / deviation[_DENSITY]
        compression = unit * root_mean_square(impedance**5) / deviation[_DENSITY]
        pressure = unit * speed**2 * root_mean_square(impedance) / deviation[_PRESSURE]
        velocity = speed * root_mean_square(1 / impedance) / deviation[_VELOCITY]
        # A wave that is held is neither pressure nor velocity: outside it will be the one at some times and places,
        # the other at others.
        wave = np.sqrt((compression**2 + pressure**2 + velocity**2) / 2)
        return np.stack([entropy, wave, wave], axis=-1)

    def _turns(self, times: np.ndarray, placement: Placement) -> Float[np.ndarray, "batch time"]:
        """How often sound has gone round the domain."""
        return placement.speed[:, None] / self.length * times

    def _density_at_rest(self, density: np.ndarray, pressure: np.ndarray, at_rest: np.ndarray) -> np.ndarray:
        """Density of a gas that goes to another pressure without friction."""
        return density * (at_rest / pressure) ** (1 / self.gamma)

    def _follow(self, placement: Placement, i: int, u: Float[np.ndarray, "time x 3"]) -> np.ndarray:
        """Flow number i, at its particles."""
        assert placement.impedance is not None
        assert placement.pressure is not None
        particles, impedance, unit = placement.particles[i], placement.impedance[i], placement.speed[i]
        at_rest = placement.density[i] * unit**2 / self.gamma
        width, fields = particle_labels.follow(particles, u[..., _DENSITY], u[..., _PRESSURE:])
        log_pressure = np.log(fields[..., 0] / at_rest)
        entropy = log_pressure - placement.pressure[i] + self.gamma * np.log(width / particles.width)
        return np.stack([entropy, log_pressure / (self.gamma * impedance), fields[..., 1] / unit * impedance], axis=-1)

    def _release(self, placement: Placement, i: int, seen: Float[np.ndarray, "time x 3"]) -> np.ndarray:
        """Flow number i on the grid."""
        assert placement.impedance is not None
        assert placement.pressure is not None
        particles, impedance, unit = placement.particles[i], placement.impedance[i], placement.speed[i]
        at_rest = placement.density[i] * unit**2 / self.gamma
        entropy, pressure, velocity = np.moveaxis(seen, -1, 0)
        log_pressure = pressure * self.gamma * impedance
        width = particles.width * np.exp((entropy - log_pressure + placement.pressure[i]) / self.gamma)
        fields = np.stack([log_pressure, velocity * unit / impedance], axis=-1)
        density, fields = particle_labels.release(particles, width, fields)
        return np.stack([density, at_rest * np.exp(fields[..., 0]), fields[..., 1]], axis=-1)


def hold_waves(
    u: Float[np.ndarray, "batch time x 3"], turns: Float[np.ndarray, "batch time"]
) -> Float[np.ndarray, "batch time x 3"]:
    """The wave to the right moved back by so many turns, the one to the left forth; negative turns undo it."""
    entropy, pressure, velocity = u[..., :1], u[..., 1:2], u[..., 2:]
    right = translate((pressure + velocity) / 2, turns, 1.0)
    left = translate((pressure - velocity) / 2, -turns, 1.0)
    return np.concatenate([entropy, right + left, right - left], axis=-1)


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
