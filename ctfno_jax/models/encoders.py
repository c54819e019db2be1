"""Encoders of irregular, partly observed series into a Gaussian over latent states.

All read packed observations (:mod:`ctfno_jax.models.packing`). ``encoder(observations, latent)`` returns mean and
standard deviation of a state of that size. The standard deviation is the absolute value of a raw output, as published,
or its softplus, as released.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models import layers, mlp, neural_flow
from ctfno_jax.models.inputs import check_positive
from ctfno_jax.models.packing import Unpacked, unpack
from ctfno_jax.ops import recurrent, time_features

Posterior = tuple[Float[Array, "batch latent"], Float[Array, "batch latent"]]

STDS = ("abs", "softplus")


def _posterior(raw: Float[Array, "batch raw"], std: str) -> Posterior:
    mean, spread = jnp.split(raw, 2, axis=-1)
    return mean, jnp.abs(spread) if std == "abs" else jax.nn.softplus(spread)


def check_std(module: Any) -> None:
    """Raises ValueError for a reading of the standard deviation that does not exist."""
    if module.std not in STDS:
        raise ValueError(f"std must be one of {', '.join(STDS)}, got {module.std!r}")


def _steps(parts: Unpacked) -> tuple[Array, Array, Array]:
    """Times, values with their mask, and validity of the steps, time first, from the last one to the first."""
    inputs = jnp.concatenate([parts.values, parts.mask], axis=-1)
    times, inputs, valid = (jnp.swapaxes(a, 0, 1)[::-1] for a in (parts.times, inputs, parts.valid))
    return times[..., None], inputs, valid[..., None]


def _gap(last: Array, now: Array, started: Array) -> Array:
    """Time between a step and the last valid one that was read; zero for the first."""
    return jnp.where(started > 0, jnp.abs(now - last), 0)


class GRUEncoder(nn.Module):
    """A GRU that reads the observations backwards in time.

    Each step reads the gap to the observation read before it (zero for the first), the values and their mask. The cell
    has separate biases for input and state in all three gates.

    Attributes:
      hidden: size of the recurrent state.
      readout: width of the hidden layer between it and the latent state.
      std: ``"abs"`` or ``"softplus"``.
    """

    hidden: int = 100
    readout: int = 50
    std: str = "abs"

    def check_fields(self) -> None:
        check_positive(self, ("hidden", "readout"))
        check_std(self)

    @nn.compact
    def __call__(self, observations: Float[Array, "batch steps inputs"], latent: int) -> Posterior:
        times, inputs, valid = _steps(unpack(observations))
        input_weight, input_bias = layers.Affine(3 * self.hidden, name="gru_input")(1 + inputs.shape[-1])
        state_weight, state_bias = layers.Affine(3 * self.hidden, name="gru_state")(self.hidden)
        # All that does not depend on the gap is one product for all steps.
        projected = inputs @ input_weight[1:] + input_bias

        def cell(carry: tuple[Array, Array, Array], now: tuple[Array, Array, Array]) -> tuple[Any, None]:
            state, last, started = carry
            time, from_input, is_valid = now
            from_input = from_input + _gap(last, time, started) * input_weight[0]
            new = recurrent.gru(state, from_input, state @ state_weight + state_bias)
            state, last = jnp.where(is_valid > 0, new, state), jnp.where(is_valid > 0, time, last)
            return (state, last, jnp.maximum(started, is_valid)), None

        start = (jnp.zeros((times.shape[1], self.hidden), inputs.dtype), jnp.zeros_like(times[0]), 0 * valid[0])
        (state, _, _), _ = jax.lax.scan(cell, start, (times, projected, valid))
        hidden_weight, hidden_bias = layers.Affine(self.readout, name="readout_hidden")(self.hidden)
        weight, bias = layers.Affine(2 * latent, name="readout")(self.readout)
        return _posterior(jnp.tanh(state @ hidden_weight + hidden_bias) @ weight + bias, self.std)


class ODERNNCell(nn.Module):
    """Parameters of an ODE-RNN: the vector field of the mean, and three gates that update mean and spread.

    Attributes:
      size: of the mean, and of the spread.
      units: width of the vector field.
      depth: maps between hidden layers of the field.
      gate_units: width of the gates.
    """

    size: int
    units: int
    depth: int
    gate_units: int

    @nn.compact
    def __call__(self, inputs: int) -> tuple[list[mlp.Affine], tuple[list[mlp.Affine], ...]]:
        field = mlp.MLP((self.size, *[self.units] * (self.depth + 1), self.size), name="field")()
        read = 2 * self.size + inputs
        gates = tuple(
            mlp.MLP((read, self.gate_units, outputs), name=name)()
            for name, outputs in (("update", self.size), ("reset", self.size), ("candidate", 2 * self.size))
        )
        return field, gates


def ode_rnn_step(
    cell: tuple[list[mlp.Affine], tuple[list[mlp.Affine], ...]], mean: Array, spread: Array, inputs: Array
) -> tuple[Array, Array]:
    """Mean and spread after an observation."""
    _, (update_maps, reset_maps, candidate_maps) = cell
    read = jnp.concatenate([mean, spread, inputs], axis=-1)
    update, reset = (jax.nn.sigmoid(mlp.mlp(maps, read)) for maps in (update_maps, reset_maps))
    read = jnp.concatenate([reset * mean, reset * spread, inputs], axis=-1)
    new_mean, new_spread = jnp.split(mlp.mlp(candidate_maps, read), 2, axis=-1)
    spread = (1 - update) * jnp.abs(new_spread) + update * spread
    return (1 - update) * new_mean + update * mean, jnp.abs(spread)


def euler(field: list[mlp.Affine], state: Array, gap: Array, substeps: int) -> Array:
    """The state after a gap of its own, by that many equal steps of Euler's method."""
    return jax.lax.fori_loop(
        0, substeps, lambda _, y: y + gap / substeps * mlp.mlp(field, y), state, unroll=True
    )  # fmt: skip


class ODERNNEncoder(nn.Module):
    """An ODE-RNN that reads the observations backwards: between two of them its state follows a vector field.

    Attributes:
      hidden: size of the recurrent mean, and of the recurrent spread.
      units: width of the vector field.
      depth: maps between hidden layers of the field.
      gate_units: width of the three gates.
      readout: width of the hidden layer between the recurrent and the latent state.
      substeps: steps of Euler's method from one observation to the next.
      std: ``"abs"`` or ``"softplus"``.
    """

    hidden: int = 30
    units: int = 300
    depth: int = 3
    gate_units: int = 100
    readout: int = 100
    substeps: int = 2
    std: str = "abs"

    def check_fields(self) -> None:
        check_positive(self, ("hidden", "units", "depth", "gate_units", "readout", "substeps"))
        check_std(self)

    @nn.compact
    def __call__(self, observations: Float[Array, "batch steps inputs"], latent: int) -> Posterior:
        times, inputs, valid = _steps(unpack(observations))
        cell = ODERNNCell(self.hidden, self.units, self.depth, self.gate_units, name="cell")(inputs.shape[-1])

        def step(carry: Any, now: tuple[Array, Array, Array]) -> tuple[Any, None]:
            mean, spread, last, started = carry
            time, some, is_valid = now
            # Backwards in time: the field is followed in the other direction.
            moved = euler(cell[0], mean, -_gap(last, time, started), self.substeps)
            new = (*ode_rnn_step(cell, moved, spread, some), time, jnp.ones_like(started))
            return tuple(jnp.where(is_valid > 0, a, b) for a, b in zip(new, carry, strict=True)), None

        zeros = jnp.zeros((times.shape[1], self.hidden), inputs.dtype)
        (mean, spread, _, _), _ = jax.lax.scan(
            step, (zeros, zeros, jnp.zeros_like(times[0]), 0 * valid[0]), (times, inputs, valid)
        )
        readout = mlp.MLP((2 * self.hidden, self.readout, 2 * latent), name="readout")()
        return _posterior(mlp.mlp(readout, jnp.concatenate([mean, spread], axis=-1)), self.std)


class FlowEncoder(nn.Module):
    """An LSTM that reads the observations backwards in time; between two of them its state follows a coupling flow.

    Attributes:
      hidden: size of the recurrent state.
      readout: width of the hidden layer between it and the latent state.
      num_layers: of the flow.
      width: of the networks of the flow.
      depth: hidden layers of these networks.
      std: ``"abs"`` or ``"softplus"``.
    """

    hidden: int = 100
    readout: int = 100
    num_layers: int = 2
    width: int = 100
    depth: int = 2
    std: str = "softplus"

    def check_fields(self) -> None:
        check_positive(self, ("hidden", "readout", "num_layers", "width", "depth"))
        check_std(self)

    @nn.compact
    def __call__(self, observations: Float[Array, "batch steps inputs"], latent: int) -> Posterior:
        times, inputs, valid = _steps(unpack(observations))
        input_weight, input_bias = layers.Affine(4 * self.hidden, name="cell_input")(inputs.shape[-1])
        state_weight, state_bias = layers.Affine(4 * self.hidden, name="cell_state")(self.hidden)
        between = neural_flow.Flow(
            self.hidden, num_layers=self.num_layers, width=self.width, depth=self.depth, name="flow"
        )()

        def step(carry: Any, now: tuple[Array, Array, Array]) -> tuple[Any, None]:
            state, memory, last, started = carry
            time, projected, is_valid = now
            moved = neural_flow.flow(between, state, -_gap(last, time, started), kind="coupling", bounded=False)
            enter, forget, candidate, leave = jnp.split(projected + moved @ state_weight + state_bias, 4, axis=-1)
            new_memory = jax.nn.sigmoid(forget) * memory + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
            new = (jax.nn.sigmoid(leave) * jnp.tanh(new_memory), new_memory, time, jnp.ones_like(started))
            return tuple(jnp.where(is_valid > 0, a, b) for a, b in zip(new, carry, strict=True)), None

        zeros = jnp.zeros((times.shape[1], self.hidden), inputs.dtype)
        start = (zeros, zeros, jnp.zeros_like(times[0]), 0 * valid[0])
        (state, _, _, _), _ = jax.lax.scan(step, start, (times, inputs @ input_weight + input_bias, valid))
        return _posterior(mlp.mlp(mlp.MLP((self.hidden, self.readout, 2 * latent), name="readout")(), state), self.std)


class AttentionEncoder(nn.Module):
    """Learned queries that attend to the observations; no recurrence, so all steps are read at once.

    Each query gives an equal part of the latent state: with a latent state on a grid, one query for each point.

    Attributes:
      num_queries: learned queries; divides the size of the latent state.
      width: of tokens and queries, divisible by ``heads``.
      heads: of the attention.
      time_features: sinusoids of the time of a step that its token holds, even.
      time_scale: multiplies times before the sinusoids.
      std: ``"abs"`` or ``"softplus"``.
    """

    num_queries: int = 20
    width: int = 128
    heads: int = 4
    time_features: int = 32
    time_scale: float = 100.0
    std: str = "softplus"

    def check_fields(self) -> None:
        check_positive(self, ("num_queries", "width", "heads", "time_features", "time_scale"))
        check_std(self)
        if self.width % self.heads:
            raise ValueError(f"width={self.width} must be divisible by heads={self.heads}")
        if self.time_features % 2:
            raise ValueError(f"time_features must be even, got {self.time_features}")

    @nn.compact
    def __call__(self, observations: Float[Array, "batch steps inputs"], latent: int) -> Posterior:
        if latent % self.num_queries:
            raise ValueError(f"latent={latent} must be a multiple of num_queries={self.num_queries}")
        parts = unpack(observations)
        of_time = jax.vmap(
            jax.vmap(lambda t: time_features.sinusoidal_features(t, self.time_features, self.time_scale))
        )(parts.times)
        raw = jnp.concatenate([of_time, parts.values, parts.mask], axis=-1)
        tokens = mlp.mlp(mlp.MLP((raw.shape[-1], self.width, self.width), name="tokens")(), raw, activation=jax.nn.gelu)
        queries = self.param("queries", nn.initializers.normal(1.0), (self.num_queries, self.width))
        projections = [layers.Affine(self.width, name=name)(self.width) for name in ("keys", "contents")]
        keys, contents = (self._by_head(tokens @ weight + bias) for weight, bias in projections)
        scores = jnp.einsum("qhw,bshw->bhqs", self._by_head(queries), keys) / (self.width // self.heads) ** 0.5
        # A series without any observation attends to nothing: its weights are zero, not NaN.
        scores = jnp.where(parts.valid[:, None, None] > 0, scores, -1e30)
        weights = jax.nn.softmax(scores, axis=-1) * parts.valid[:, None, None]
        read = jnp.einsum("bhqs,bshw->bqhw", weights, contents).reshape(len(tokens), self.num_queries, self.width)
        maps = mlp.MLP((self.width, self.width, 2 * latent // self.num_queries), name="readout")()
        answer = mlp.mlp(maps, read + queries, activation=jax.nn.gelu)
        mean, spread = jnp.split(answer, 2, axis=-1)
        flat = jnp.concatenate([mean.reshape(len(tokens), latent), spread.reshape(len(tokens), latent)], axis=-1)
        return _posterior(flat, self.std)

    def _by_head(self, x: Array) -> Array:
        return x.reshape(*x.shape[:-1], self.heads, self.width // self.heads)
