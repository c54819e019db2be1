"""Recurrent networks whose state follows a learned equation, of first or second order, between observations.

The initial state is an affine map of everything observed. At each observation a linear map of state and values is added
to the state; up to the next one, and then to the query times, it follows the equation. The forecast is an affine map of
the state, or of its positions where there are positions and velocities. With NODE, ANODE, SONODE, HBNODE and GHBNODE as
equations these are the models of Heavy Ball Neural ODEs.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models import mlp, neural_ode, observations
from ctfno_jax.models.inputs import check_positive, check_times, float_inputs

# Weight of each of the two errors at the observations beside that of the forecast.
_STEP_WEIGHT = 0.1

# Parameters and a state to its derivative.
Equation = Callable[[Any, Float[Array, "batch state"]], Float[Array, "batch state"]]


class RecurrentODE(nn.Module):
    """Base of the five recurrent models; each adds its equation.

    Attributes:
      out_features: values at each time.
      hidden: size of the state, or of positions and of velocities each.
      initial_scale: multiplies all initial parameters: the state must not grow from each observation to the next.
      time_step: between observations that come without their times.
      solver: this and the following fields are those of :class:`neural_ode.Integration`; time runs from zero to one
        from each observation or query to the next, for all samples together. Constant steps are a part of that, and
        read neither the adjoint nor the number of steps.
    """

    out_features: int = 5
    hidden: int = 20
    initial_scale: float = 0.01
    time_step: float = 1.0
    solver: str = "dopri5"
    stepping: str = "constant"
    step_size: float = 1.0
    rtol: float = 1e-3
    atol: float = 1e-4
    adjoint: str = "direct"
    max_steps: int = 100

    # Positions and velocities, or a state of one kind.
    second_order = False

    def check_fields(self) -> None:
        check_positive(self, ("out_features", "hidden", "initial_scale", "time_step"))
        if self.stepping == "queries":
            raise ValueError("stepping must be adaptive or constant here: time runs from zero to one between queries")
        self._integration().check()
        if self.stepping == "constant":
            if self.step_size > 1:
                raise ValueError(
                    f"step_size is a part of the time between observations, at most 1, got {self.step_size}"
                )
            for name in ("adjoint", "max_steps"):
                if getattr(self, name) != getattr(RecurrentODE, name):
                    raise ValueError(f"stepping=constant does not read {name} here; leave it out")

    def _integration(self) -> neural_ode.Integration:
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(neural_ode.Integration)}
        if self.stepping != "constant" and self.step_size == RecurrentODE.step_size:
            del settings["step_size"]  # not set, and not read
        return neural_ode.Integration(**settings)

    @property
    def state_size(self) -> int:
        return 2 * self.hidden if self.second_order else self.hidden

    @property
    def given_size(self) -> int:
        """Components of the initial state that the observations determine; the others start at zero."""
        return self.state_size

    def equation(self) -> tuple[Any, Equation]:
        """Parameters of the equation, and the equation."""
        raise NotImplementedError

    def durations(self, gaps: Float[Array, "batch steps"]) -> Float[Array, "batch steps"]:
        """For how long the equation is followed between observations."""
        return gaps

    def affine(self, name: str, inputs: int, outputs: int) -> mlp.Affine:
        """A map whose weights start as uniform draws of variance ``1 / (3 inputs)``, scaled."""
        scale = self.initial_scale
        initial = nn.initializers.variance_scaling(scale**2 / 3, "fan_in", "uniform")
        weight = self.param(f"{name}_weight", initial, (inputs, outputs))
        return weight, self.param(f"{name}_bias", nn.initializers.zeros_init(), (outputs,))

    def network(self, *sizes: int) -> list[mlp.Affine]:
        """Maps of a field, one after another."""
        return [self.affine(f"field_{i}", a, b) for i, (a, b) in enumerate(itertools.pairwise(sizes))]

    def __call__(
        self,
        observed: Float[Array, "batch steps inputs"],
        times: Float[Array, " time"] | Float[Array, "batch time"],
    ) -> Float[Array, "batch time out_features"]:
        """Values at ``times``, none of which may be before the last observation."""
        return self._run(observed, times)[0]

    def loss_with_steps(self, observed: Array, times: Array, target: Array) -> Float[Array, ""]:
        """Squared error of the forecast, and a tenth of those of each observation and of the next one.

        What follows the last observation is the first value that is asked for.
        """
        forecast, seen, following = self._run(observed, times)
        values = observed[..., : self.out_features]
        first = jnp.argmin(jnp.broadcast_to(times, target.shape[:2]), axis=1)
        following = jnp.concatenate([following, jnp.take_along_axis(forecast, first[:, None, None], axis=1)], axis=1)
        truth = jnp.take_along_axis(target, first[:, None, None], axis=1)
        truth = jnp.concatenate([values[:, 1:], truth], axis=1)
        error = lambda a, b: jnp.mean(jnp.square(a - b))  # noqa: E731
        return error(forecast, target) + _STEP_WEIGHT * (error(seen, values) + error(following, truth))

    @nn.compact
    def _run(self, observed: Array, times: Array) -> tuple[Array, Array, Array]:
        """The forecast, what is read off the state at each observation, and just before each but the first."""
        self.check_fields()
        observations.check_features(observed, self.out_features)
        check_times(times)
        observed, times = float_inputs(observed, times)
        values = observed[..., : self.out_features]
        clock = observations.times_of_observation(observed, self.out_features, self.time_step)
        size, given = self.state_size, self.given_size
        parameters, equation = self.equation()
        start_weight, start_bias = self.affine("start", math.prod(values.shape[1:]), given)
        state = jnp.pad(values.reshape(len(values), -1) @ start_weight + start_bias, [(0, 0), (0, size - given)])
        input_map = self.affine("from_input", self.out_features, size)
        parts = ("positions", "velocities") if self.second_order else ("state",)
        state_maps = [self.affine(f"from_{part}", self.hidden, size) for part in parts]
        readout_weight, readout_bias = self.affine("readout", self.hidden, self.out_features)
        integration = self._integration()

        def advance(state: Array, gap: Array) -> Array:
            # Samples have gaps of their own, but one unit of time each.
            field = lambda _, y, args: args[1] * equation(args[0], y)  # noqa: E731
            return neural_ode.advance(field, (parameters, gap[:, None]), state, integration)

        def update(state: Array, value: Array) -> Array:
            added = value @ input_map[0] + input_map[1]
            for part, (weight, bias) in zip(jnp.split(state, len(parts), axis=-1), state_maps, strict=True):
                added = added + part @ weight + bias
            return state + added

        def read(state: Array) -> Array:
            return state[..., : self.hidden] @ readout_weight + readout_bias

        def between(state: Array, now: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            value, gap = now
            at_value = update(state, value)
            state = advance(at_value, gap)
            return state, (at_value, state)

        gaps = self.durations(jnp.diff(clock, axis=1))
        state, (at_values, before_next) = jax.lax.scan(between, state, (jnp.swapaxes(values[:, :-1], 0, 1), gaps.T))
        state = update(state, values[:, -1])
        seen = jnp.swapaxes(read(jnp.concatenate([at_values, state[None]])), 0, 1)

        every = jnp.broadcast_to(times, (len(values), times.shape[-1]))
        order = jnp.argsort(every, axis=1)
        steps = jnp.diff(jnp.take_along_axis(every, order, axis=1), axis=1, prepend=clock[:, -1:])
        # From the last observation to the first query is one more gap between samples of the record.
        steps = jnp.concatenate([self.durations(steps[:, :1]), steps[:, 1:]], axis=1)

        def onward(state: Array, gap: Array) -> tuple[Array, Array]:
            state = advance(state, gap)
            return state, state

        _, later = jax.lax.scan(onward, state, steps.T)
        forecast = jnp.take_along_axis(jnp.swapaxes(read(later), 0, 1), jnp.argsort(order, axis=1)[..., None], axis=1)
        return forecast, seen, jnp.swapaxes(read(before_next), 0, 1)


class RecurrentNODE(RecurrentODE):
    """``h' = f(h)`` with a network three and four times as wide as the state. Fields as in the common part."""

    hidden: int = 21

    def equation(self) -> tuple[Any, Equation]:
        return self.network(self.hidden, 3 * self.hidden, 4 * self.hidden, self.hidden), _relu_network


class RecurrentANODE(RecurrentNODE):
    """The same with a state that starts at zero but for as many components as there are values."""

    hidden: int = 27

    def check_fields(self) -> None:
        super().check_fields()
        if self.hidden < self.out_features:
            raise ValueError(f"hidden must be at least out_features={self.out_features}, got {self.hidden}")

    @property
    def given_size(self) -> int:
        return self.out_features


class SONODE(RecurrentODE):
    """``y'' = f(y, y')``. Fields as in the common part, and:

    Attributes:
      ignore_gaps: take every gap for one unit of time, as the published code does.
    """

    hidden: int = 19
    ignore_gaps: bool = False
    second_order = True

    def durations(self, gaps: Array) -> Array:
        return jnp.ones_like(gaps) if self.ignore_gaps else gaps

    def equation(self) -> tuple[Any, Equation]:
        maps = self.network(2 * self.hidden, 2 * self.hidden, self.hidden, self.hidden)

        def right_hand_side(maps: Any, state: Array) -> Array:
            return jnp.concatenate([state[..., self.hidden :], _relu_network(maps, state)], axis=-1)

        return maps, right_hand_side


class HBNODE(RecurrentODE):
    """``h' = -m, m' = f(h) - sigmoid(g) m + softplus(c) h`` with trained g and c. Fields as in the common part."""

    hidden: int = 20
    second_order = True

    def equation(self) -> tuple[Any, Equation]:
        scaled = lambda value: lambda key: jnp.full((), self.initial_scale * value)  # noqa: E731
        damping, correction = self.param("damping", scaled(-3.0)), self.param("correction", scaled(0.0))
        maps = self.network(*[self.hidden] * 4)

        def right_hand_side(parameters: Any, state: Array) -> Array:
            maps, damping, correction = parameters
            h, m = jnp.split(state, 2, axis=-1)
            force = _relu_network(maps, h) - jax.nn.sigmoid(damping) * m + jax.nn.softplus(correction) * h
            return jnp.concatenate([self.velocity(-m), force], axis=-1)

        return (maps, damping, correction), right_hand_side

    def velocity(self, m: Array) -> Array:
        return m


class GHBNODE(HBNODE):
    """The same with ``h' = tanh(-m)``."""

    def velocity(self, m: Array) -> Array:
        return jnp.tanh(m)


def _relu_network(maps: list[mlp.Affine], state: Array) -> Array:
    return mlp.mlp(maps, state, jax.nn.relu)
