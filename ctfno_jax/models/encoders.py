"""Recurrent encoder of irregular observations into a Gaussian over latent states."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from ctfno_jax.models import layers


class GRUEncoder(nn.Module):
    """Mean and standard deviation of the latent state, from a GRU that reads the observations backwards in time.

    Each step reads the gap to the observation read before it (zero for the first), the values and their mask. The cell
    has separate biases for input and state in all three gates.

    Attributes:
      hidden: size of the recurrent state.
      latent: size of the latent state.
      readout: width of the hidden layer between them.
    """

    hidden: int
    latent: int
    readout: int = 50

    @nn.compact
    def __call__(
        self,
        values: Float[Array, "batch time features"],
        mask: Float[Array, "batch time features"],
        times: Float[Array, " time"],
    ) -> tuple[Float[Array, "batch latent"], Float[Array, "batch latent"]]:
        gaps = jnp.diff(times[::-1], prepend=times[-1:])
        gaps = jnp.broadcast_to(-gaps[None, :, None], (*values.shape[:2], 1))
        inputs = jnp.concatenate([gaps, (values * mask)[:, ::-1], mask[:, ::-1]], axis=-1)
        input_weight, input_bias = layers.Affine(3 * self.hidden, name="gru_input")(inputs.shape[-1])
        state_weight, state_bias = layers.Affine(3 * self.hidden, name="gru_state")(self.hidden)
        projected = inputs @ input_weight + input_bias

        def cell(state: Array, from_input: Array) -> tuple[Array, None]:
            from_state = state @ state_weight + state_bias
            reset_in, update_in, candidate_in = jnp.split(from_input, 3, axis=-1)
            reset_state, update_state, candidate_state = jnp.split(from_state, 3, axis=-1)
            reset = jax.nn.sigmoid(reset_in + reset_state)
            update = jax.nn.sigmoid(update_in + update_state)
            candidate = jnp.tanh(candidate_in + reset * candidate_state)
            return update * state + (1 - update) * candidate, None

        start = jnp.zeros((values.shape[0], self.hidden), values.dtype)
        state, _ = jax.lax.scan(cell, start, jnp.swapaxes(projected, 0, 1))
        hidden_weight, hidden_bias = layers.Affine(self.readout, name="readout_hidden")(self.hidden)
        weight, bias = layers.Affine(2 * self.latent, name="readout")(self.readout)
        mean, raw = jnp.split(jnp.tanh(state @ hidden_weight + hidden_bias) @ weight + bias, 2, axis=-1)
        return mean, jnp.abs(raw)
