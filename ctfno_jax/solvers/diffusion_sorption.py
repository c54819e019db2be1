"""Diffusion with nonlinear sorption, ``R(u) u_t = D u_xx`` on the unit interval, solved implicitly in float64.

The retardation factor of the Freundlich isotherm is

    R(u) = 1 + (1 - porosity) / porosity * density * freundlich_k * n * (u + 1e-6)^(n - 1).

Space is discretised as PDEBench does, so that its files and these solutions belong to the same equations: cell centres
with second differences, a ghost value 1 one cell left of the first centre, and the ghost value
``D (u[N - 2] - u[N - 1]) / dx`` right of the last. Both are first-order accurate.

With the total concentration ``W(u)``, the antiderivative of ``R``, the equation reads ``W_t = D u_xx``. It is
integrated in this form: ``W`` increases and, for ``n <= 1``, is concave, so Newton's method converges from any start.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# PDEBench's constants.
DIFFUSION, POROSITY, BULK_DENSITY, FREUNDLICH_K, FREUNDLICH_EXPONENT = 5e-4, 0.29, 2880.0, 3.5e-4, 0.874
LEFT_VALUE = 1.0

_OFFSET = 1e-6  # keeps R finite at u = 0

# An L-stable, stiffly accurate, singly diagonally implicit Runge-Kutta method of order 4 with 5 stages: Hairer and
# Wanner, Solving Ordinary Differential Equations II, section IV.6. The last row holds the weights.
_GAMMA = 1 / 4
_STAGES = (
    (1 / 4,),
    (1 / 2, 1 / 4),
    (17 / 50, -1 / 25, 1 / 4),
    (371 / 1360, -137 / 2720, 15 / 544, 1 / 4),
    (25 / 24, -49 / 48, 125 / 16, -85 / 12, 1 / 4),
)
# Newton's method squares the error in every iteration: after an update of 1e-8 nothing is left to correct.
_NEWTON_TOLERANCE = 1e-8
_NEWTON_ITERATIONS = 50


class _Rows(NamedTuple):
    """Rows of ``D u_xx = lower u[i - 1] + diagonal u[i] + upper u[i + 1] + source``."""

    lower: Float[Array, " x"]
    diagonal: Float[Array, " x"]
    upper: Float[Array, " x"]
    source: Float[Array, " x"]


def _rows(num_points: int, diffusion: float) -> _Rows:
    scale = diffusion * num_points**2
    lower, upper = np.full(num_points, scale), np.full(num_points, scale)
    diagonal, source = np.full(num_points, -2 * scale), np.zeros(num_points)
    lower[0] = upper[-1] = 0.0
    source[0] = scale * LEFT_VALUE
    lower[-1] += scale * diffusion * num_points
    diagonal[-1] -= scale * diffusion * num_points
    return _Rows(*map(jnp.asarray, (lower, diagonal, upper, source)))


def _total(u: Array, sorption: Array, exponent: Array) -> tuple[Array, Array]:
    """``W(u)`` and ``R(u)``; below zero, where only iterates can be, ``W`` continues as its tangent."""
    base = jnp.maximum(u, 0.0) + _OFFSET
    # exp(log) is twice as fast here as a power.
    power = jnp.exp((exponent - 1) * jnp.log(base))
    retardation = 1 + sorption * exponent * power
    return sorption * base * power + jnp.maximum(u, 0.0) + retardation * jnp.minimum(u, 0.0), retardation


def _tridiagonal_solve(lower: Array, diagonal: Array, upper: Array, right: Array) -> Array:
    """Elimination without pivoting, for diagonally dominant rows; the scanned axis leads, the batch is the vector.

    For hundreds of samples on CPU this is faster than one LAPACK call for each.
    """

    def eliminate(previous: tuple[Array, Array], row: tuple[Array, ...]) -> tuple:
        low, diag, up, rhs = row
        inverse = 1 / (diag - low * previous[0])
        out = up * inverse, (rhs - low * previous[1]) * inverse
        return out, out

    def substitute(following: Array, row: tuple[Array, Array]) -> tuple:
        value = row[1] - row[0] * following
        return value, value

    zero = jnp.zeros_like(right[0])
    _, rows = jax.lax.scan(eliminate, (zero, zero), (lower, diagonal, upper, right))
    return jax.lax.scan(substitute, zero, rows, reverse=True)[1]


def _stage(guess: Array, target: Array, step: Array, rows: _Rows, sorption: Array, exponent: Array) -> Array:
    """Solution ``u`` of ``W(u) - step D u_xx = target`` by Newton's method."""
    lower, diagonal, upper = -step * rows.lower, -step * rows.diagonal, -step * rows.upper
    right = target + step * rows.source[:, None]

    def iterate(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        u, _, count = state
        total, retardation = _total(u, sorption, exponent)
        # The operator is linear, so the new value follows directly: (R - step D_xx) new = target - W(u) + R u.
        new = _tridiagonal_solve(lower, retardation + diagonal[:, None], upper, right - total + retardation * u)
        return new, jnp.max(jnp.abs(new - u), axis=0), count + 1

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        return jnp.any(state[1] > _NEWTON_TOLERANCE) & (state[2] < _NEWTON_ITERATIONS)

    start = guess, jnp.full_like(guess[0], jnp.inf), jnp.asarray(0)
    u, change, _ = jax.lax.while_loop(unfinished, iterate, start)
    return jnp.where(change <= _NEWTON_TOLERANCE, u, jnp.nan)  # found by the check of the result


class _Interval(NamedTuple):
    """Time steps between two saved times: each is ``growth`` times the one before."""

    first_step: float
    growth: float
    num_steps: int


def _intervals(times: np.ndarray, start: float, steps_per_decade: int, refinement: int) -> list[_Interval]:
    """The steps from 0 to the first time and from each time to the next.

    In them ``t + start`` grows geometrically: the layers at the ends of the domain appear at once and spread like the
    square root of time.
    """
    intervals = []
    for begin, end in zip(np.concatenate([[0.0], times[:-1]]), times, strict=True):
        log_ratio = np.log1p((end - begin) / (begin + start))
        num_steps = refinement * int(np.ceil(steps_per_decade * log_ratio / np.log(10)))
        rate = log_ratio / max(num_steps, 1)
        intervals.append(_Interval((begin + start) * float(np.expm1(rate)), float(np.exp(rate)), num_steps))
    return intervals


@jax.jit
def _advance(
    u: Float[Array, "x batch"], interval: _Interval, rows: _Rows, sorption: Array, exponent: Array
) -> Float[Array, "x batch"]:
    """State at the end of an interval."""

    def one_step(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        u, step = state
        start = _total(u, sorption, exponent)[0]
        slopes: list[Array] = []
        for *explicit, _gamma in _STAGES:
            target = start + step * sum(a * slope for a, slope in zip(explicit, slopes, strict=True))
            u = _stage(u, target, _GAMMA * step, rows, sorption, exponent)
            # Not D u_xx: that would multiply what Newton's method left over by the stiffness.
            slopes.append((_total(u, sorption, exponent)[0] - target) / (_GAMMA * step))
        return u, step * interval.growth

    return jax.lax.fori_loop(0, interval.num_steps, one_step, (u, jnp.asarray(interval.first_step)))[0]


def _check(initial: np.ndarray, times: np.ndarray, positive: dict[str, float], porosity: float) -> None:
    if initial.shape[0] < 1 or initial.shape[1] < 2:
        raise ValueError(f"initial must hold at least one sample of at least 2 points, got shape {initial.shape}")
    bad = np.flatnonzero(~np.all((initial >= 0) & (initial <= LEFT_VALUE), axis=1))
    if len(bad):
        raise ValueError(f"initial must lie in [0, {LEFT_VALUE:g}], sample {bad[0]} does not; rescale it")
    if not (len(times) and np.all(np.isfinite(times)) and times[0] >= 0 and np.all(np.diff(times) > 0)):
        raise ValueError(f"times must be finite, not negative and strictly increasing, got {times}")
    for name, value in positive.items():
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be positive and finite, got {value}")
    if not 0 < porosity <= 1:
        raise ValueError(f"porosity must lie in (0, 1], got {porosity}")


def solve(
    initial: Float[np.ndarray, "batch x"],
    times: Float[np.ndarray, " time"],
    *,
    diffusion: float = DIFFUSION,
    porosity: float = POROSITY,
    bulk_density: float = BULK_DENSITY,
    freundlich_k: float = FREUNDLICH_K,
    freundlich_exponent: float = FREUNDLICH_EXPONENT,
    steps_per_decade: int = 20,
    refinement: int = 1,
) -> Float[np.ndarray, "batch time x"]:
    """Solutions at ``times`` from the cell values ``initial`` at time 0; the constants default to PDEBench's.

    Args:
      initial: values in [0, 1] at the cell centres ``(i + 1/2) / x``.
      times: strictly increasing; 0 is allowed and gives back ``initial``.
      steps_per_decade: time steps while the time grows tenfold; the error falls with its fourth power.
      refinement: divides every time step. The grid stays, its rows being part of the problem.
    """
    positive = {
        "diffusion": diffusion,
        "bulk_density": bulk_density,
        "freundlich_k": freundlich_k,
        "freundlich_exponent": freundlich_exponent,
        "steps_per_decade": steps_per_decade,
        "refinement": refinement,
    }
    _check(initial, times, positive, porosity)
    num_points = initial.shape[1]
    # Diffusion crosses one cell in this time: nothing is faster.
    start = 1 / (diffusion * num_points**2)
    intervals = _intervals(times, start, steps_per_decade, refinement)
    result = np.empty((len(initial), len(times), num_points))
    with jax.enable_x64(True):
        rows = _rows(num_points, diffusion)
        sorption = jnp.asarray((1 - porosity) / porosity * bulk_density * freundlich_k)
        u = jnp.asarray(initial.T, jnp.float64)
        for k, interval in enumerate(intervals):
            u = _advance(u, interval, rows, sorption, jnp.asarray(freundlich_exponent))
            result[:, k] = np.asarray(u).T
    bad = np.flatnonzero(~np.all(np.isfinite(result), axis=(1, 2)))
    if len(bad):
        raise ValueError(
            f"the solution of sample {bad[0]} is not finite; use constants of moderate size or a larger refinement"
        )
    return result


def retardation(
    u: Any,
    *,
    porosity: float = POROSITY,
    bulk_density: float = BULK_DENSITY,
    freundlich_k: float = FREUNDLICH_K,
    freundlich_exponent: float = FREUNDLICH_EXPONENT,
) -> Any:
    """The factor ``R(u)`` of a concentration that is not negative."""
    sorption = (1 - porosity) / porosity * bulk_density * freundlich_k
    return 1 + sorption * freundlich_exponent * (u + _OFFSET) ** (freundlich_exponent - 1)


def rate(
    u: Float[np.ndarray, "*lead x"],
    *,
    diffusion: float = DIFFUSION,
    porosity: float = POROSITY,
    bulk_density: float = BULK_DENSITY,
    freundlich_k: float = FREUNDLICH_K,
    freundlich_exponent: float = FREUNDLICH_EXPONENT,
) -> Float[np.ndarray, "*lead x"]:
    """The time derivative of a state that is not negative, ``D u_xx / R(u)``, by the differences of :func:`solve`."""
    num_points = u.shape[-1]
    left = np.full_like(u[..., :1], LEFT_VALUE)
    right = diffusion * num_points * (u[..., -2:-1] - u[..., -1:])
    second = np.diff(np.concatenate([left, u, right], axis=-1), n=2, axis=-1) * num_points**2
    constants = {"porosity": porosity, "bulk_density": bulk_density, "freundlich_k": freundlich_k}
    return diffusion * second / retardation(np.maximum(u, 0.0), freundlich_exponent=freundlich_exponent, **constants)


def sample_initial_value(rng: np.random.Generator) -> float:
    """The constant initial concentration of one sample, uniform in [0, 0.2]."""
    return float(rng.uniform(0.0, 0.2))
