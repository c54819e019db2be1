"""The gated recurrent unit (Cho et al., 2014), with separate biases for input and state."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def gru(
    state: Float[Array, "... hidden"], from_input: Float[Array, "... gates"], from_state: Float[Array, "... gates"]
) -> Float[Array, "... hidden"]:
    """The next state.

    Args:
      state: before the step.
      from_input: affine map of the input for reset gate, update gate and candidate, side by side.
      from_state: the same of the state.
    """
    reset_in, update_in, candidate_in = jnp.split(from_input, 3, axis=-1)
    reset_state, update_state, candidate_state = jnp.split(from_state, 3, axis=-1)
    reset, update = jax.nn.sigmoid(reset_in + reset_state), jax.nn.sigmoid(update_in + update_state)
    return update * state + (1 - update) * jnp.tanh(candidate_in + reset * candidate_state)
