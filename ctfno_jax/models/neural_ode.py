"""Neural ordinary differential equations: the state moves along a learned vector field, plain or augmented by zeros.

Diffrax solves them. Samples that share their query times are solved as one system, with steps that suit all of them.
With times of their own, they still are where all steps have the same length; otherwise each takes steps of its own.
Answers come in the order of the query times.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from ctfno_jax.models import mlp, observations
from ctfno_jax.models.inputs import check_inputs, check_positive, check_times, float_inputs

SOLVERS = ("euler", "heun", "tsit5", "dopri5", "dopri8")
STEPPINGS = ("adaptive", "constant", "queries")
ADJOINTS = ("checkpoints", "direct", "backward")

# State, time and parameters to the derivative of the state.
VectorField = Callable[[Any, Float[Array, "*batch state"], Any], Float[Array, "*batch state"]]


@dataclasses.dataclass(frozen=True)
class Integration:
    """Settings of an ODE solver.

    Attributes:
      solver: one of :data:`SOLVERS`.
      stepping: ``"adaptive"`` to tolerances, ``"constant"`` steps of ``step_size``, or one step from each of the
        ``"queries"`` to the next.
      step_size: of constant stepping.
      rtol: relative tolerance of adaptive stepping.
      atol: absolute tolerance of adaptive stepping.
      adjoint: derivatives through the steps by ``"checkpoints"`` or, with more memory but also on several devices,
        ``"direct"``; or by an equation solved ``"backward"`` in time, which is not exactly their derivative.
      max_steps: after so many, later times have no answer: infinity or NaN stands there. Not read from query to query.
    """

    solver: str = "tsit5"
    stepping: str = "adaptive"
    step_size: float = 0.25
    rtol: float = 1e-3
    atol: float = 1e-4
    adjoint: str = "checkpoints"
    max_steps: int = 1000

    def check(self) -> None:
        """Raises ValueError for values that are unknown or out of range."""
        for name, known in (("solver", SOLVERS), ("stepping", STEPPINGS), ("adjoint", ADJOINTS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        for name in ("step_size", "rtol", "atol", "max_steps"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be positive and finite, got {value}")
        read = {"adaptive": ("rtol", "atol"), "constant": ("step_size",), "queries": ()}[self.stepping]
        for name in ("step_size", "rtol", "atol"):
            if name not in read and getattr(self, name) != getattr(Integration, name):
                raise ValueError(f"stepping={self.stepping} does not read {name}; leave it out, or change stepping")
        if self.solver == "euler" and self.stepping == "adaptive":
            raise ValueError("solver=euler has no error estimate to adapt its steps by; use stepping=constant")


def integration_of(model: Any) -> Integration:
    """The settings of the solver among the fields of a model."""
    return Integration(**{field.name: getattr(model, field.name) for field in dataclasses.fields(Integration)})


def solve(
    field: VectorField,
    params: Any,
    start: Float[Array, "batch state"],
    times: Float[Array, " time"] | Float[Array, "batch time"],
    integration: Integration,
    *,
    from_first: bool = False,
) -> tuple[Float[Array, "batch time state"], Int[Array, " batch"]]:
    """States at ``times`` from those at zero, and how often the field was evaluated for each sample.

    Args:
      field: the vector field.
      params: handed to it.
      start: initial states.
      times: not negative, in any order.
      integration: how to solve.
      from_first: put the initial states at the first of the times instead of at zero.
    """
    # Diffrax cannot solve backward from a solution that is known at all times.
    together = integration.stepping == "constant" and integration.adjoint != "backward" and not from_first
    if times.ndim == 2 and together:
        return _solve_together(field, params, start, times, integration)
    one = lambda state, ts: _solve_one(field, params, state, ts, integration, from_first)  # noqa: E731
    if times.ndim == 2:
        return jax.vmap(one)(start, times)
    u, count = one(start, times)
    return jnp.swapaxes(u, 0, 1), jnp.broadcast_to(count, start.shape[:1])


def _solve_one(
    field: VectorField, params: Any, start: Array, times: Array, integration: Integration, from_first: bool
) -> tuple[Array, Array]:
    import diffrax  # here, because it takes a second to import

    order = jnp.argsort(times)
    ts = times[order]
    first = ts[0] if from_first else jnp.zeros((), ts.dtype)
    evaluations = _solver(integration.solver)[1]
    step_size: Any = integration.step_size
    max_steps = integration.max_steps
    if integration.stepping == "adaptive":
        control: Any = diffrax.PIDController(rtol=integration.rtol, atol=integration.atol)
        step_size = None
    elif integration.stepping == "constant":
        control = diffrax.ConstantStepSize()
    else:
        control = diffrax.StepTo(ts=ts if from_first else jnp.concatenate([first[None], ts]))
        step_size, max_steps = None, ts.shape[0]
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field), _solver(integration.solver)[0], t0=first, t1=ts[-1], dt0=step_size, y0=start,
        args=params, saveat=diffrax.SaveAt(ts=ts), stepsize_controller=control,
        adjoint=_adjoint(integration.adjoint), max_steps=max_steps, throw=False,
    )  # fmt: skip
    assert solution.ys is not None
    return solution.ys[jnp.argsort(order)], evaluations * solution.stats["num_steps"]


def _solve_together(
    field: VectorField, params: Any, start: Array, times: Array, integration: Integration
) -> tuple[Array, Array]:
    """All samples as one system in constant steps, each read off at times of its own.

    Mapping the solver over samples would cost several times as much: its derivative by the parameters would be found,
    and kept, for every sample.
    """
    import diffrax

    solver, evaluations = _solver(integration.solver)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field), solver, t0=jnp.zeros((), times.dtype), t1=jnp.max(times), dt0=integration.step_size,
        y0=start, args=params, saveat=diffrax.SaveAt(dense=True), stepsize_controller=diffrax.ConstantStepSize(),
        adjoint=_adjoint(integration.adjoint), max_steps=integration.max_steps, throw=False,
    )  # fmt: skip
    steps = solution.interpolation
    assert isinstance(steps, diffrax.DenseInterpolation)

    def read(of_sample: Any, first: Array, ts: Array) -> Array:
        mine = dataclasses.replace(steps, infos=of_sample, y0_if_trivial=first)
        return jax.vmap(mine.evaluate)(ts)

    u = jax.vmap(read, in_axes=(-2, 0, 0))(steps.infos, steps.y0_if_trivial, times)
    return u, jnp.broadcast_to(evaluations * solution.stats["num_steps"], start.shape[:1])


def advance(field: VectorField, params: Any, start: Float[Array, "batch state"], integration: Integration) -> Array:
    """States after one unit of time. Constant steps are taken one by one, without a loop that could stop earlier."""
    if integration.stepping != "constant":
        u, _ = solve(field, params, start, jnp.ones(1, start.dtype), integration)
        return u[:, 0]
    import diffrax

    solver = _solver(integration.solver)[0]
    term = diffrax.ODETerm(field)
    num_steps = math.ceil(1 / integration.step_size - 1e-6)
    # Of the type of the state: diffrax would take Python numbers for float64 where that is enabled.
    ends = np.minimum(1.0, np.arange(num_steps + 1) * integration.step_size).astype(start.dtype)
    state = solver.init(term, ends[0], ends[1], start, params)
    for t0, t1 in itertools.pairwise(ends):
        start, _, _, state, _ = solver.step(term, t0, t1, start, params, state, made_jump=False)
    return start


def _adjoint(name: str) -> Any:
    import diffrax

    return {
        "checkpoints": diffrax.RecursiveCheckpointAdjoint, "direct": diffrax.DirectAdjoint,
        "backward": diffrax.BacksolveAdjoint,
    }[name]()  # fmt: skip


def _solver(name: str) -> tuple[Any, int]:
    """A solver of diffrax, and how often it evaluates the field in one step."""
    import diffrax

    return {
        "euler": (diffrax.Euler(), 1), "heun": (diffrax.Heun(), 2), "tsit5": (diffrax.Tsit5(), 6),
        "dopri5": (diffrax.Dopri5(), 6), "dopri8": (diffrax.Dopri8(), 13),
    }[name]  # fmt: skip


def field_of_network(t: Float[Array, ""], state: Float[Array, "*batch state"], maps: list[mlp.Affine]) -> Array:
    """A network that reads time and state."""
    time = jnp.broadcast_to(t.astype(state.dtype), (*state.shape[:-1], 1))
    return mlp.mlp(maps, jnp.concatenate([time, state], axis=-1))


def _integration(model: Any) -> Integration:
    """The settings of that kind among the fields of a model, checked with the others."""
    check_positive(model, ("width", "depth"))
    if model.augmented < 0:
        raise ValueError(f"augmented must not be negative, got {model.augmented}")
    integration = Integration(**{f.name: getattr(model, f.name) for f in dataclasses.fields(Integration)})
    integration.check()
    return integration


def unanswerable(stepping: str, times: np.ndarray, late_start: bool = False) -> str | None:
    """One step from each time to the next needs times that differ, and one to come from."""
    if stepping != "queries":
        return None
    if np.any(np.diff(np.sort(times, axis=-1), axis=-1) == 0):
        return "stepping=queries goes from each query time to the next, but some are equal; ask for each of them once"
    if late_start:
        short = times.shape[-1] < 2
        return (
            "with late_start and stepping=queries the first query is the start; ask for two times or more"
            if short
            else None
        )
    if np.any(times == 0):
        return "stepping=queries starts at zero and cannot step to t=0; leave it out, the state there is known"
    return None


class ObservedNeuralODE(nn.Module):
    """Forecasts a vector along a vector field, from the last point observed.

    Attributes:
      out_features: components of the vector.
      width: of the hidden layers of the field.
      depth: hidden layers of the field.
      augmented: zeros appended to the state.
      late_start: put the last observed point at the first query time, one step late, as the published code does.
      solver: this and the following fields are those of :class:`Integration`.
    """

    out_features: int = 1
    width: int = 128
    depth: int = 2
    augmented: int = 0
    late_start: bool = False
    solver: str = "tsit5"
    stepping: str = "adaptive"
    step_size: float = 0.25
    rtol: float = 1e-3
    atol: float = 1e-4
    adjoint: str = "checkpoints"
    max_steps: int = 1000

    from_last_observation = True

    def check_fields(self) -> None:
        _integration(self)

    def answerable(self, times: np.ndarray) -> str | None:
        return unanswerable(self.stepping, np.asarray(times), self.late_start)

    @nn.compact
    def __call__(
        self,
        observed: Float[Array, "batch steps inputs"],
        times: Float[Array, " time"] | Float[Array, "batch time"],
        count_evaluations: bool = False,
    ) -> Any:
        """Values at ``times``, ``(batch, time, out_features)``; if asked, also the evaluations for each sample."""
        integration = _integration(self)
        observations.check_features(observed, self.out_features)
        check_times(times)
        observed, times = float_inputs(observed, times)
        state = self.out_features + self.augmented
        maps = mlp.MLP((state + 1, *[self.width] * self.depth, state), name="field")()
        start = jnp.pad(observed[:, -1, : self.out_features], [(0, 0), (0, self.augmented)])
        u, count = solve(field_of_network, maps, start, times, integration, from_first=self.late_start)
        u = u[..., : self.out_features]
        return (u, count) if count_evaluations else u


class FieldNeuralODE(nn.Module):
    """Moves all values of a field along a vector field of as many dimensions; the grid is that of the training.

    Attributes:
      out_channels: channels of the field.
      width: of the hidden layers.
      depth: hidden layers.
      augmented: zeros appended to the state.
      solver: this and the following fields are those of :class:`Integration`.
    """

    out_channels: int = 1
    width: int = 1024
    depth: int = 4
    augmented: int = 0
    solver: str = "tsit5"
    stepping: str = "adaptive"
    step_size: float = 0.25
    rtol: float = 1e-3
    atol: float = 1e-4
    adjoint: str = "checkpoints"
    max_steps: int = 1000

    def check_fields(self) -> None:
        _integration(self)

    def answerable(self, times: np.ndarray) -> str | None:
        return unanswerable(self.stepping, np.asarray(times))

    @nn.compact
    def __call__(
        self,
        u0: Float[Array, "batch *space channels"],
        times: Float[Array, " time"] | Float[Array, "batch time"],
        count_evaluations: bool = False,
    ) -> Any:
        """The solution, ``(batch, time, *space, channels)``; if asked, also the evaluations for each sample."""
        integration = _integration(self)
        u0, times = float_inputs(*check_inputs(u0, times))
        if u0.shape[-1] != self.out_channels:
            raise ValueError(f"u0 must have {self.out_channels} channels, as the solution has, got {u0.shape[-1]}")
        values = math.prod(u0.shape[1:])
        state = values + self.augmented
        # A small last map: long trajectories through random fields would leave the data at once.
        maps = mlp.MLP((state + 1, *[self.width] * self.depth, state), last_scale=0.1, name="field")()
        start = jnp.pad(u0.reshape(len(u0), values), [(0, 0), (0, self.augmented)])
        u, count = solve(field_of_network, maps, start, times, integration)
        u = u[..., :values].reshape(*u.shape[:2], *u0.shape[1:])
        return (u, count) if count_evaluations else u
