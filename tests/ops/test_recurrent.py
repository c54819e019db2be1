import jax
import jax.numpy as jnp
import numpy as np

from ctfno_jax.ops import recurrent


def test_an_open_update_gate_keeps_the_state():
    state = jax.random.normal(jax.random.key(0), (3, 4))
    gates = jnp.concatenate([jnp.zeros((3, 4)), jnp.full((3, 4), 50.0), jnp.ones((3, 4))], axis=-1)
    np.testing.assert_allclose(recurrent.gru(state, gates, jnp.zeros_like(gates)), state, rtol=1e-6)


def test_a_closed_reset_gate_hides_the_state_from_the_candidate():
    candidate, seen = jnp.asarray([[0.3, -0.7]]), jnp.asarray([[5.0, 6.0]])
    closed = jnp.full((1, 2), -50.0)
    new = recurrent.gru(
        jnp.ones((1, 2)), jnp.concatenate([closed, closed, candidate], axis=-1),
        jnp.concatenate([jnp.zeros((1, 4)), seen], axis=-1),
    )  # fmt: skip
    np.testing.assert_allclose(new, np.tanh(candidate), rtol=1e-6)


def test_half_open_gates_average_state_and_candidate():
    state = jnp.asarray([[2.0]])
    new = recurrent.gru(state, jnp.asarray([[0.0, 0.0, 0.1]]), jnp.asarray([[0.0, 0.0, 0.6]]))
    np.testing.assert_allclose(new, (2.0 + np.tanh(0.1 + 0.5 * 0.6)) / 2, rtol=1e-6)
