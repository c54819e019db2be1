"""The compressible Navier-Stokes equations of an ideal gas in one dimension.

    density_t + (density v)_x = 0
    (density v)_t + (density v^2 + p)_x = F_x
    E_t + ((E + p) v)_x = (v F)_x,    E = p / (gamma - 1) + density v^2 / 2

The viscous stress F is ``(4/3 eta + zeta) density v_x`` (``"kinematic"``, what PDEBench computes) or
``(4/3 eta + zeta) v_x`` (``"dynamic"``, what its equations say). There is no heat conduction.

Each step is a Strang splitting: MUSCL-Hancock with HLLC fluxes for the gas without friction, and Crank-Nicolson for the
velocity at fixed density under friction. The half-steps of friction of two neighbouring steps are taken as one. Both
parts are in conservation form: on a periodic domain mass, momentum and total energy stay the same up to rounding.

Inside, arrays are ``(x, batch)``, one for each variable: the elimination of friction then runs over x with the samples
as vector.
"""

import concurrent.futures
import functools
import math
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

VISCOUS_LAWS = ("kinematic", "dynamic")
BOUNDARIES = ("periodic", "outflow")

# Samples that advance together: the state stays in a core's cache, and few samples wait for the slowest of them.
_CHUNK = 32


class Gas(NamedTuple):
    """The variables of a state."""

    density: Float[Array, "..."]
    pressure: Float[Array, "..."]
    velocity: Float[Array, "..."]


class Constants(NamedTuple):
    """Numbers of a run: width of a cell, ``4/3 eta + zeta``, ratio of specific heats, Courant number, and 1."""

    dx: Float[Array, ""]
    viscosity: Float[Array, ""]
    gamma: Float[Array, ""]
    cfl: Float[Array, ""]
    one: Float[Array, ""]


# --- the gas without friction ---------------------------------------------------------------------------------


def _stored(w: Gas, one: Float[Array, ""]) -> Gas:
    """The same state, computed once.

    On CPU the compiler repeats cheap expressions inside everything that reads them, but never a division. Dividing by
    a one that it does not know makes a step five times as fast and changes no digit.
    """
    return Gas(*(u / one for u in w))


def _limited_slope(u: Float[Array, "x batch"]) -> Float[Array, "inner batch"]:
    """Monotonised-central slope (factor 2) of all cells but the first and the last, per cell."""
    left, right = u[1:-1] - u[:-2], u[2:] - u[1:-1]
    size = jnp.minimum(2 * jnp.minimum(jnp.abs(left), jnp.abs(right)), jnp.abs(left + right) / 2)
    return jnp.where(left * right > 0, jnp.copysign(size, left), 0.0)


def _face_states(w: Gas, ratio: Float[Array, " batch"], constants: Constants) -> tuple[Gas, Gas]:
    """States at the left and the right face of all cells but the first and the last, half a step later.

    ``ratio`` is dt / dx. A cell that would have a face without mass or pressure gets no slope.
    """
    slope = _stored(Gas(*(_limited_slope(u) for u in w)), constants.one)
    w = Gas(*(u[1:-1] for u in w))
    half = ratio / 2
    change = Gas(
        -half * (w.velocity * slope.density + w.density * slope.velocity),
        -half * (w.velocity * slope.pressure + constants.gamma * w.pressure * slope.velocity),
        -half * (w.velocity * slope.velocity + slope.pressure / w.density),
    )
    # The lower of the two faces, before and after the half-step.
    lowest = [u - jnp.abs(s) / 2 + jnp.minimum(c, 0.0) for u, s, c in zip(w[:2], slope[:2], change[:2], strict=True)]
    positive = (lowest[0] > 0) & (lowest[1] > 0)
    parts = list(zip(w, slope, change, strict=True))
    left = Gas(*(jnp.where(positive, u + c - s / 2, u) for u, s, c in parts))
    right = Gas(*(jnp.where(positive, u + c + s / 2, u) for u, s, c in parts))
    return _stored(left, constants.one), _stored(right, constants.one)


def _hllc_flux(left: Gas, right: Gas, gamma: Float[Array, ""]) -> tuple[Array, Array, Array]:
    """Flux of mass, momentum and energy through the faces between two states.

    The outer waves are as fast as those of either state and of their Roe average; then the states between the waves
    have positive density and pressure.
    """
    sound2_left, sound2_right = gamma * left.pressure / left.density, gamma * right.pressure / right.density
    root_left, root_right = jnp.sqrt(left.density), jnp.sqrt(right.density)
    share_left, share_right = root_left / (root_left + root_right), root_right / (root_left + root_right)
    roe_velocity = share_left * left.velocity + share_right * right.velocity
    spread = (gamma - 1) / 2 * share_left * share_right * (right.velocity - left.velocity) ** 2
    roe_sound = jnp.sqrt(share_left * sound2_left + share_right * sound2_right + spread)
    slow = jnp.minimum(left.velocity - jnp.sqrt(sound2_left), roe_velocity - roe_sound)
    fast = jnp.maximum(right.velocity + jnp.sqrt(sound2_right), roe_velocity + roe_sound)
    inflow_left, inflow_right = left.density * (slow - left.velocity), right.density * (fast - right.velocity)
    push = right.pressure - left.pressure + (inflow_left * left.velocity - inflow_right * right.velocity)
    contact = push / (inflow_left - inflow_right)

    # Only the side of the contact on which the face lies matters. Where the outer wave of that side has left the face
    # behind, its clipped speed is zero and the flux is that of the undisturbed state.
    on_left = contact >= 0
    density, pressure, velocity = (jnp.where(on_left, a, b) for a, b in zip(left, right, strict=True))
    speed = jnp.where(on_left, slow, fast)
    clipped = jnp.where(on_left, jnp.minimum(slow, 0.0), jnp.maximum(fast, 0.0))
    inflow = density * (speed - velocity)
    mass = density * velocity
    energy = pressure / (gamma - 1) + mass * velocity / 2
    star_density = inflow / (speed - contact)
    star_energy = star_density * (energy / density + (contact - velocity) * (contact + pressure / inflow))
    return (
        mass + clipped * (star_density - density),
        mass * velocity + pressure + clipped * (star_density * contact - mass),
        (energy + pressure) * velocity + clipped * (star_energy - energy),
    )


def _hyperbolic_step(w: Gas, dt: Float[Array, " batch"], constants: Constants, boundary: str) -> Gas:
    """The state after a step without friction."""
    gamma, ratio = constants.gamma, dt / constants.dx
    mode = "wrap" if boundary == "periodic" else "edge"
    padded = Gas(*(jnp.pad(u, [(2, 2), (0, 0)], mode=mode) for u in w))
    at_left, at_right = _face_states(padded, ratio, constants)
    fluxes = _hllc_flux(Gas(*(u[:-1] for u in at_right)), Gas(*(u[1:] for u in at_left)), gamma)
    mass, momentum, energy = (ratio * (f[1:] - f[:-1]) for f in fluxes)
    density = w.density - mass
    velocity = (w.density * w.velocity - momentum) / density
    kinetic = (w.density * w.velocity**2 - density * velocity**2) / 2
    return Gas(density, w.pressure + (gamma - 1) * (kinetic - energy), velocity)


# --- friction -------------------------------------------------------------------------------------------------


def _solve_tridiagonal(lower: Array, diagonal: Array, upper: Array, rhs: tuple[Array, Array]) -> tuple[Array, Array]:
    """Solves ``diagonal_i y_i - lower_i y_{i-1} - upper_i y_{i+1} = rhs_i`` for two right sides.

    Elimination needs no exchange of rows because the diagonal dominates. One scan each way over the cells, with all
    samples at once, takes half the time of a call of LAPACK for each sample.
    """

    def eliminate(above: tuple[Array, ...], row: tuple[Array, ...]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        a, b, c, f, g = row
        pivot = 1 / (b - a * above[0])
        result = (c * pivot, (f + a * above[1]) * pivot, (g + a * above[2]) * pivot)
        return result, result

    def substitute(below: tuple[Array, ...], row: tuple[Array, ...]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        c, f, g = row
        result = (f + c * below[0], g + c * below[1])
        return result, result

    zero = jnp.zeros_like(diagonal[0])
    _, rows = jax.lax.scan(eliminate, (zero, zero, zero), (lower, diagonal, upper, *rhs))
    _, (y, z) = jax.lax.scan(substitute, (zero, zero), rows, reverse=True)
    return y, z


def _solve_coupled(
    density: Float[Array, "x batch"], coupling: Float[Array, "x batch"], rhs: Float[Array, "x batch"]
) -> Float[Array, "x batch"]:
    """Solves ``density_i y_i + c_i (y_i - y_{i+1}) + c_{i-1} (y_i - y_{i-1}) = rhs_i`` on a ring.

    Without the last coupling the ring is open and its matrix tridiagonal; that coupling is a correction of rank one.
    """
    upper = coupling.at[-1].set(0.0)
    lower = jnp.roll(upper, 1, axis=0)
    ends = jnp.zeros_like(rhs).at[0].set(1.0).at[-1].set(-1.0)
    y, z = _solve_tridiagonal(lower, density + upper + lower, upper, (rhs, ends))
    closing = coupling[-1]
    return y - z * (closing * (y[0] - y[-1]) / (1 + closing * (z[0] - z[-1])))


def _viscous_step(w: Gas, dt: Float[Array, " batch"], constants: Constants, boundary: str, viscous_law: str) -> Gas:
    """The state after friction during ``dt``; where that is zero, the same state to the last digit.

    With the mean of old and new velocity in the stress and in its work, a cell's kinetic energy changes by what its
    faces bring less half of their ``mu (v_x)^2``, which is heat and never negative. So total energy is conserved, and
    pressure cannot fall however long the step.
    """
    after = lambda u: jnp.roll(u, -1, axis=0)  # noqa: E731
    before = lambda u: jnp.roll(u, 1, axis=0)  # noqa: E731
    # Index i of what lives on faces is the face between the cells i and i + 1.
    mu = constants.viscosity * (
        (w.density + after(w.density)) / 2 if viscous_law == "kinematic" else jnp.ones_like(w.density)
    )
    if boundary == "outflow":
        mu = mu.at[-1].set(0.0)
    coupling = dt / constants.dx**2 * mu
    force = coupling * (after(w.velocity) - w.velocity)
    mean_velocity = w.velocity + _solve_coupled(w.density, coupling / 2, force - before(force)) / 2
    jump = after(mean_velocity) - mean_velocity
    force, heat = coupling * jump, coupling * jump**2 / 2
    return Gas(
        w.density,
        w.pressure + (constants.gamma - 1) * (heat + before(heat)),
        w.velocity + (force - before(force)) / w.density,
    )


# --- time -----------------------------------------------------------------------------------------------------


class _Progress(NamedTuple):
    """A state, its time, and the last step, whose second half of friction is still to come."""

    w: Gas
    t: Float[Array, " batch"]
    last_dt: Float[Array, " batch"]


def _stable_step(w: Gas, constants: Constants) -> Float[Array, " batch"]:
    sound = jnp.sqrt(constants.gamma * w.pressure / w.density)
    return constants.cfl * constants.dx / jnp.max(jnp.abs(w.velocity) + sound, axis=0)


@functools.partial(jax.jit, static_argnames=("boundary", "viscous_law"))
def _march(initial: Gas, times: Float[Array, " time"], constants: Constants, *, boundary: str, viscous_law: str) -> Gas:
    """States at ``times``, the first axis of the result. Every sample has its own time step."""
    friction = functools.partial(_viscous_step, constants=constants, boundary=boundary, viscous_law=viscous_law)

    def step(target: Float[Array, ""], progress: _Progress) -> _Progress:
        w, t, last_dt = progress
        moving = t < target
        dt = _stable_step(w, constants)
        # A step too short to be seen means an infinite speed. Time that is not a number ends the loop.
        dt = jnp.where(t + dt > t, dt, jnp.nan)
        arriving = dt >= target - t
        dt = jnp.where(arriving, target - t, dt)
        w = friction(w, jnp.where(moving, (last_dt + dt) / 2, 0.0))
        moved = _hyperbolic_step(w, dt, constants, boundary)
        return _Progress(
            Gas(*(jnp.where(moving, new, old) for new, old in zip(moved, w, strict=True))),
            jnp.where(moving, jnp.where(arriving, target, t + dt), t),
            jnp.where(moving, dt, last_dt),
        )

    def advance(carry: tuple[Gas, Array], target: Float[Array, ""]) -> tuple[tuple[Gas, Array], Gas]:
        w, t = carry
        progress = jax.lax.while_loop(
            lambda progress: jnp.any(progress.t < target),
            functools.partial(step, target),
            _Progress(w, t, jnp.zeros_like(t)),
        )
        w = friction(progress.w, progress.last_dt / 2)
        return (w, progress.t), w

    start = jnp.zeros_like(initial.density[0])
    return jax.lax.scan(advance, (initial, start), times)[1]


def solve(
    initial: Float[np.ndarray, "batch x 3"],
    times: Float[np.ndarray, " time"],
    *,
    length: float = 2.0,
    eta: float = 0.1,
    zeta: float = 0.1,
    gamma: float = 5 / 3,
    viscous_law: str = "kinematic",
    boundary: str = "periodic",
    cfl: float = 0.5,
) -> Float[np.ndarray, "batch time x 3"]:
    """Density, pressure and velocity, in this order, at ``times``; second order in cells and steps where smooth.

    Args:
      initial: density, pressure and velocity of equal cells at time zero.
      times: when to save, in ascending order. Steps are cut to end there.
      length: of the domain.
      eta: shear viscosity.
      zeta: bulk viscosity.
      gamma: ratio of specific heats.
      viscous_law: ``"kinematic"`` for a stress proportional to density, or ``"dynamic"``.
      boundary: ``"periodic"``, or ``"outflow"`` for zero gradients at both ends.
      cfl: part of a cell that the fastest wave crosses in a step, at most 0.5 so that waves of two faces do not meet.

    Raises:
      ValueError: for bad arguments, and if a sample does not keep finite values, positive density and pressure.
    """
    initial, times = np.asarray(initial, np.float64), np.asarray(times, np.float64)
    _check_arrays(initial, times)
    _check_settings(length, eta, zeta, gamma, viscous_law, boundary, cfl)
    constants = (length / initial.shape[1], 4 / 3 * eta + zeta, gamma, cfl, 1.0)
    u = np.empty((initial.shape[0], times.size, *initial.shape[1:]))

    def solve_chunk(samples: np.ndarray) -> None:
        # Precision is a setting of each thread, so the caller's stays as it is.
        with jax.enable_x64(True):
            w = Gas(*(jnp.asarray(channel.T) for channel in np.moveaxis(initial[samples], -1, 0)))
            numbers = Constants(*(jnp.asarray(c, jnp.float64) for c in constants))
            states = _march(w, jnp.asarray(times), numbers, boundary=boundary, viscous_law=viscous_law)
            for channel, state in enumerate(states):
                u[samples, ..., channel] = np.moveaxis(np.asarray(state), -1, 0)

    # Samples of similar speed go together because a chunk takes as many steps as its fastest sample.
    speed = np.max(np.abs(initial[..., 2]) + np.sqrt(gamma * initial[..., 1] / initial[..., 0]), axis=1)
    chunks = np.array_split(np.argsort(-speed), math.ceil(len(speed) / _CHUNK))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(solve_chunk, samples) for samples in chunks]:
            done.result()
    _check_result(u, times)
    return u


def _check_arrays(initial: Any, times: Any) -> None:
    if initial.ndim != 3 or initial.shape[0] < 1 or initial.shape[1] < 4 or initial.shape[2] != 3:
        raise ValueError(
            "initial must have shape (batch, x, 3) with at least one sample and 4 cells; the channels are density, "
            f"pressure, velocity; got shape {initial.shape}"
        )
    bad = ~(np.isfinite(initial).all(axis=(1, 2)) & (initial[..., :2] > 0).all(axis=(1, 2)))
    if bad.any():
        raise ValueError(
            "initial must be finite with positive density (channel 0) and pressure (channel 1), "
            f"but sample {np.argmax(bad)} is not"
        )
    if times.ndim != 1 or times.size == 0:
        raise ValueError(f"times must have shape (time,) with at least one time, got shape {times.shape}")
    if not np.all(np.isfinite(times)) or times[0] < 0 or np.any(np.diff(times) < 0):
        raise ValueError(f"times must be finite, >= 0 and in ascending order, got {times}")


def _check_settings(
    length: float, eta: float, zeta: float, gamma: float, viscous_law: str, boundary: str, cfl: float
) -> None:
    if not 0 < length < math.inf:
        raise ValueError(f"length must be positive and finite, got {length}")
    for name, value in (("eta", eta), ("zeta", zeta)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and >= 0, got {value}")
    if not 1 < gamma < math.inf:
        raise ValueError(f"gamma must be finite and greater than 1, got {gamma}")
    if not 0 < cfl <= 0.5:
        raise ValueError(f"cfl must be positive and at most 0.5, got {cfl}")
    for name, value, allowed in (("viscous_law", viscous_law, VISCOUS_LAWS), ("boundary", boundary, BOUNDARIES)):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def _check_result(u: np.ndarray, times: np.ndarray) -> None:
    good = np.isfinite(u).all(axis=(2, 3)) & (u[..., :2] > 0).all(axis=(2, 3))
    if not good.all():
        sample, time = np.argwhere(~good)[0]
        raise ValueError(
            f"sample {sample} has values that are not finite, or density or pressure that is not positive, at time "
            f"{times[time]}; use a smaller cfl or more cells"
        )


# --- other cells ---------------------------------------------------------------------------------------------


def average_cells(
    fields: Float[np.ndarray, "*lead x 3"], factor: int, *, gamma: float = 5 / 3
) -> Float[np.ndarray, "*lead coarse 3"]:
    """Fields on cells that are ``factor`` times as long: means of mass, momentum and total energy."""
    density, pressure, velocity = np.moveaxis(fields, -1, 0)
    energy = pressure / (gamma - 1) + density * velocity**2 / 2
    mean = lambda q: q.reshape(*q.shape[:-1], -1, factor).mean(axis=-1)  # noqa: E731
    mass, momentum, energy = mean(density), mean(density * velocity), mean(energy)
    velocity = momentum / mass
    return np.stack([mass, (gamma - 1) * (energy - mass * velocity**2 / 2), velocity], axis=-1)
