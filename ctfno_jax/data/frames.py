"""Frames in which a flow is learned: what its equations are known to do is taken out, and put back afterwards.

``"comoving"``: a periodic flow keeps its mass and momentum, and so the velocity of its centre of mass. Seen from there
it obeys the same equations (Galilean invariance), and a model need not learn that the same waves may drift at any
speed.

``"particles"``: besides, on labels of the particles (:mod:`ctfno_jax.data.particle_labels`), where jumps of density
rest. Energy tells the pressure that the flow will have once at rest, and pressure and density of a particle tell its
density there. So the sound speed c and the impedance Z = density * c that the particle will have are known from the
start. Labels grow with the time that sound will take through the particles at rest, so that waves run at one speed
through dense and thin parts alike, and velocity * sqrt(Z) and pressure / sqrt(Z) are what a wave keeps on its way. All
is in units of the flow's own. Channels of the initial state are the logarithm of the density at rest; that of the
pressure over the one at rest, divided by gamma sqrt(Z); velocity * sqrt(Z); and a constant, the viscosity that damps
sound. Channels of the solution are the entropy that each particle has gained, and pressure and velocity as before;
density follows from the first two. What weak sound would do in a uniform gas (:mod:`ctfno_jax.ops.sound`) is
subtracted from pressure and velocity. Of what is left, the sum is a wave to the right and the difference one to the
left, both of one known speed: they are moved back to where they started. So what has to be learned are echoes,
steepening and what friction does in dense and in thin parts. What comes out of the frame has the mass, momentum and
energy that went in.

``"acoustic"``: besides, time is measured by the turns that sound makes round the domain. Every flow has its own times
then, which only a model that is continuous in time can answer.

``"states"``: for models that make steps, which need solutions that are states again. Particles and times as in the
acoustic frame, but waves stay where they are and nothing is subtracted: that is for each step to do
(``CTFNO(start="sound")``). Channels of the solution, which come first in the initial state, are the entropy gained,
pressure and velocity; those that do not change are the logarithm of the density at rest and the viscosity. All are in
fixed units in which they are of the order of one, and on a number of labels that is always the same: what a model sees
does not depend on the grid. Waves that are shorter are dropped; friction does the same soon after the start.

``"clocked_states"``: the same by the clock, for models whose steps are all of one length; the viscosity, which is that
in a turn of sound, tells them how fast sound is. So it must be there, and kinematic: a dynamic one says how fast sound
is in a gas of known density only.

Channels outside are density, pressure and velocity, in this order.
"""

import dataclasses
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Float

from ctfno_jax.config import STATE_FRAMES
from ctfno_jax.data import particle_labels
from ctfno_jax.data.fields import Trajectories
from ctfno_jax.ops import sound

_propagate = jax.jit(sound.propagate)

# Raised whenever a frame shows something else than before: runs that were trained in an older one are refused.
VERSION = 2
FLOW_FRAMES = ("comoving", "particles", "acoustic", *STATE_FRAMES)
# Units of viscosity in the frame of states; the model has to know it.
VISCOSITY_UNIT = 1 / 32
_DENSITY, _PRESSURE, _VELOCITY = range(3)
_LARGEST_LOGARITHM = 30.0
# Entropy, pressure, velocity; logarithm of density, viscosity.
_STATE_UNITS = np.array([1 / 32, 1 / 16, 1 / 16, 1 / 4, VISCOSITY_UNIT])


class Frame(Protocol):
    """What a run needs of a frame; ``alignment`` and ``mirrored`` beside this file have others.

    Placements have a ``state``.
    """

    @property
    def own_grid(self) -> bool:
        """The model sees fields on a grid of the frame's own, whatever theirs is."""
        ...

    @property
    def own_units(self) -> bool:
        """And in units of its own, in which they are of the order of one."""
        ...

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
      viscosity: that damps their sound, in their own units.
      impedance: square root of the impedance of the particles at rest, relative to the flow's units.
      pressure: logarithm of the initial pressure of the particles, relative to the one at rest.
    """

    velocity: Float[np.ndarray, " batch"]
    density: Float[np.ndarray, " batch"]
    speed: Float[np.ndarray, " batch"]
    state: Float[np.ndarray, "batch x channels"]
    particles: tuple[particle_labels.Labels, ...] = ()
    viscosity: Float[np.ndarray, " batch"] | None = None
    impedance: Float[np.ndarray, "batch x"] | None = None
    pressure: Float[np.ndarray, "batch x"] | None = None


@dataclasses.dataclass(frozen=True)
class FlowFrame:
    """One of :data:`FLOW_FRAMES` for flows on a periodic domain.

    Attributes:
      kind: which frame.
      length: of the domain.
      viscous_law: ``"kinematic"`` or ``"dynamic"``, see the solver.
      viscosity: ``4/3 eta + zeta`` of the solver.
      num_labels: points on which a model sees states; only in the frames of states.
      gamma: ratio of specific heats.
    """

    kind: str
    length: float
    viscous_law: str = "kinematic"
    viscosity: float = 7 / 30
    num_labels: int = 128
    gamma: float = 5 / 3

    def __post_init__(self) -> None:
        if self.kind not in FLOW_FRAMES:
            raise ValueError(f"unknown frame {self.kind!r}; known are {', '.join(FLOW_FRAMES)}")
        if self.viscous_law not in ("kinematic", "dynamic"):
            raise ValueError(f"unknown viscous_law {self.viscous_law!r}; known are kinematic, dynamic")
        if self.kind == "clocked_states" and (self.viscous_law != "kinematic" or not self.viscosity):
            raise ValueError(
                "in the clocked_states frame a kinematic viscosity above zero tells the speed of sound, got "
                f"viscous_law={self.viscous_law} and viscosity {self.viscosity}; use frame=comoving"
            )
        if self.viscosity < 0 or self.num_labels < 8:
            raise ValueError(
                f"viscosity must be >= 0 and num_labels at least 8, got {self.viscosity} and {self.num_labels}"
            )

    @property
    def own_grid(self) -> bool:
        """Only in the frames of states."""
        return self.kind in STATE_FRAMES

    @property
    def own_units(self) -> bool:
        """Only in the frames of states."""
        return self.kind in STATE_FRAMES

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
        # How much denser than at rest the gas is without friction. Friction makes it expand: it will fill the domain.
        compression = (pressure / at_rest[:, None]) ** (1 / self.gamma)
        room = compression.mean(axis=1, keepdims=True)
        compression /= room
        # Time that sound will take, at rest, through what is a unit of length now.
        slowness = np.sqrt(density / compression / (self.gamma * at_rest[:, None])) * compression
        speed = 1 / slowness.mean(axis=1)
        unit = self.gamma * at_rest / speed**2
        particles = tuple(particle_labels.labels(d, s) for d, s in zip(density, slowness, strict=True))
        pairs = zip(particles, seen, strict=True)
        # The logarithm keeps density and pressure positive between the points.
        there = np.stack(
            [particle_labels.initial_fields(p, np.concatenate([np.log(s[:, :2]), s[:, 2:]], -1)) for p, s in pairs]
        )
        log_density, log_pressure = there[..., 0] - np.log(unit)[:, None], there[..., 1] - np.log(at_rest)[:, None]
        log_at_rest = log_density - log_pressure / self.gamma + np.log(room)
        impedance = np.exp(log_at_rest / 4)
        viscosity = self._viscosity(speed, unit, impedance)
        waves = [log_pressure / (self.gamma * impedance), there[..., _VELOCITY] / speed[:, None] * impedance]
        constant = np.broadcast_to(viscosity[:, None], impedance.shape)
        if self.own_grid:
            state = np.stack([np.zeros_like(impedance), *waves, log_at_rest, constant], axis=-1) / _STATE_UNITS
            seen = resample(state, self.num_labels).astype(np.float32)
        else:
            seen = np.stack([log_at_rest, *waves, constant], axis=-1).astype(np.float32)
        return Placement(drift, unit, speed, seen, particles, viscosity, impedance, log_pressure)

    def enter_times(
        self, times: Float[np.ndarray, " time"] | Float[np.ndarray, "batch time"], placement: Placement
    ) -> np.ndarray:
        """The times as the model sees them: in turns of sound, one grid per sample, or as they are."""
        if self.kind not in ("acoustic", "states"):
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
            u = self._within_labels(u, self._turns(trajectories.times, placement), placement)
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
            u = self._from_within_labels(u, self._turns(times, placement), placement)
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
        units = _STATE_UNITS[:3] if self.own_units else 1.0
        return np.stack([entropy, wave, wave], axis=-1) * units

    def _turns(self, times: np.ndarray, placement: Placement) -> Float[np.ndarray, "batch time"]:
        """How often sound has gone round the domain."""
        return placement.speed[:, None] / self.length * times

    def _viscosity(self, speed: np.ndarray, unit: np.ndarray, impedance: np.ndarray) -> Float[np.ndarray, " batch"]:
        """The mean of what sound meets on its way round, in units of its speed and of the domain."""
        if self.viscous_law == "dynamic":
            return self.viscosity / (unit * speed * self.length)
        return self.viscosity / (speed * self.length) * np.mean(impedance**4, axis=1)

    def _within_labels(self, u: np.ndarray, turns: Float[np.ndarray, "batch time"], placement: Placement) -> np.ndarray:
        """Entropy, pressure and velocity of the particles as the model sees them."""
        if self.own_grid:
            return np.stack([resample(one / _STATE_UNITS[:3], self.num_labels) for one in u])
        held = np.concatenate([u[..., :1], u[..., 1:] - self._sound(placement, turns)], axis=-1)
        return hold_waves(held, turns)

    def _from_within_labels(
        self, u: np.ndarray, turns: Float[np.ndarray, "batch time"], placement: Placement
    ) -> np.ndarray:
        """The inverse, at as many particles as the flow has points."""
        if self.own_grid:
            assert placement.impedance is not None
            num_points = placement.impedance.shape[1]
            return np.stack([resample(one * _STATE_UNITS[:3], num_points).astype(u.dtype) for one in u])
        u = hold_waves(u, -turns)
        return np.concatenate([u[..., :1], u[..., 1:] + self._sound(placement, turns)], axis=-1)

    def _sound(
        self, placement: Placement, turns: Float[np.ndarray, "batch time"]
    ) -> Float[np.ndarray, "batch time x 2"]:
        """Pressure and velocity if the flow were weak sound in a uniform gas."""
        assert placement.viscosity is not None
        waves, viscosity = placement.state[..., 1:3], placement.viscosity.astype(np.float32)
        turns = turns.astype(np.float32)
        # Sample by sample: the spectra of all would need several times the memory of the data.
        each = [_propagate(waves[i : i + 1], turns[i : i + 1], viscosity[i : i + 1]) for i in range(len(turns))]
        return np.concatenate([np.asarray(one) for one in each])

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
        # Far beyond any gas; a network that has not learned anything yet may ask for more, and must not get infinity.
        log_pressure = np.clip(pressure * self.gamma * impedance, -_LARGEST_LOGARITHM, _LARGEST_LOGARITHM)
        entropy = np.clip(entropy, -_LARGEST_LOGARITHM, _LARGEST_LOGARITHM)
        width = particles.width * np.exp((entropy - log_pressure + placement.pressure[i]) / self.gamma)
        width = width / width.mean(axis=-1, keepdims=True)
        mass = particles.mass / placement.density[i]
        log_pressure, velocity = self._keep_invariants(log_pressure, velocity / impedance, width, mass)
        density, fields = particle_labels.release(particles, width, np.stack([log_pressure, velocity * unit], axis=-1))
        return np.stack([density, at_rest * np.exp(fields[..., 0]), fields[..., 1]], axis=-1)

    def _keep_invariants(
        self, log_pressure: np.ndarray, velocity: np.ndarray, width: np.ndarray, mass: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Pressure and velocity with the momentum that the flow has, none, and with its energy.

        All is in the flow's own units; of pressure, in those of the pressure at rest, which is all of the energy.
        """
        velocity = velocity - (velocity @ mass)[:, None] / mass.sum()
        motion = self.gamma * (self.gamma - 1) / 2 * np.mean(velocity**2 * mass, axis=-1)
        heat = np.mean(np.exp(log_pressure) * width, axis=-1)
        # An answer that is all motion and no heat is no answer, but must not become less than a number.
        return log_pressure + np.log(np.maximum(1 - motion, 0.01) / heat)[:, None], velocity


def hold_waves(
    u: Float[np.ndarray, "batch time x 3"], turns: Float[np.ndarray, "batch time"]
) -> Float[np.ndarray, "batch time x 3"]:
    """The wave to the right moved back by so many turns, the one to the left forth; negative turns undo it."""
    entropy, pressure, velocity = u[..., :1], u[..., 1:2], u[..., 2:]
    right = translate((pressure + velocity) / 2, turns, 1.0)
    left = translate((pressure - velocity) / 2, -turns, 1.0)
    return np.concatenate([entropy, right + left, right - left], axis=-1)


def resample(u: Float[np.ndarray, "*lead x channels"], num_points: int) -> Float[np.ndarray, "*lead points channels"]:
    """The field on another number of points, by trigonometric interpolation; waves that do not fit are dropped."""
    before = u.shape[-2]
    kept = (min(before, num_points) + 1) // 2  # without the last frequency of an even grid, which has no sine
    spectrum = np.fft.rfft(u, axis=-2, norm="forward")[..., :kept, :]
    return np.fft.irfft(spectrum, n=num_points, axis=-2, norm="forward")


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
