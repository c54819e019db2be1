"""One step, by hand."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ctfno_jax.training import losses as loss_functions
from ctfno_jax.training import step as step_lib

RATE = 0.1


class Batch(NamedTuple):
    u0: jax.Array
    times: jax.Array
    target: jax.Array


def _linear(params, u0, times):
    """u(t) = w t u0."""
    return params["w"] * times[None, :, None, None] * u0[:, None]


def _loss(params, batch):
    return loss_functions.mse(_linear(params, batch.u0, batch.times), batch.target)


def _batch() -> Batch:
    rng = np.random.default_rng(0)
    return Batch(
        jnp.asarray(rng.normal(size=(3, 4, 1)), jnp.float32),
        jnp.asarray([0.5, 2.0]),
        jnp.asarray(rng.normal(size=(3, 2, 4, 1)), jnp.float32),
    )


def _run(num_steps, average_decay=0.0):
    optimizer = optax.sgd(RATE)
    state = step_lib.create_state({"w": jnp.asarray(1.5)}, optimizer, jax.random.key(7), average_decay=average_decay)
    history = [float(state.params["w"])]
    losses = []
    for _ in range(num_steps):
        state, loss = step_lib.train_step(
            state, _batch(), loss_fn=_loss, optimizer=optimizer, average_decay=average_decay
        )
        history.append(float(state.params["w"]))
        losses.append(float(loss))
    return state, history, losses


def test_one_step_of_gradient_descent_by_hand():
    state, history, losses = _run(1)
    batch = jax.tree.map(lambda x: np.asarray(x, np.float64), _batch())
    basis = batch.times[None, :, None, None] * batch.u0[:, None]
    residual = 1.5 * basis - batch.target
    assert losses[0] == pytest.approx(np.mean(residual**2), rel=1e-5)
    assert history[1] == pytest.approx(1.5 - RATE * np.mean(2 * residual * basis), rel=1e-5)
    assert int(state.step) == 1


def test_descent_ends_at_the_least_squares_solution():
    _, history, losses = _run(60)
    batch = _batch()
    basis = batch.times[None, :, None, None] * batch.u0[:, None]
    assert history[-1] == pytest.approx(float(jnp.vdot(basis, batch.target) / jnp.vdot(basis, basis)), rel=1e-4)
    assert np.all(np.diff(losses) <= 1e-6)


@pytest.mark.parametrize("decay", [0.15, 0.9])
def test_the_average_follows_its_recurrence(decay):
    state, history, _ = _run(4, average_decay=decay)
    average = history[0]
    for step, w in enumerate(history[1:]):
        weight = min(decay, (1 + step) / (10 + step))
        average = weight * average + (1 - weight) * w
    assert float(state.average["w"]) == pytest.approx(average, rel=1e-5)
    assert state.evaluation_params is state.average


@pytest.mark.parametrize("decay", [0.3, 0.999])
def test_a_parameter_that_does_not_change_keeps_its_average_exactly(decay):
    optimizer, params = optax.sgd(0.0), {"w": jnp.asarray(0.1)}
    state = step_lib.create_state(params, optimizer, jax.random.key(0), average_decay=decay)
    for _ in range(8):
        state, _ = step_lib.train_step(state, _batch(), loss_fn=_loss, optimizer=optimizer, average_decay=decay)
    assert float(state.average["w"]) == float(params["w"])


def test_averaging_does_not_change_what_is_trained():
    assert _run(3)[1] == _run(3, average_decay=0.9)[1]


def test_without_averaging_the_parameters_themselves_are_evaluated():
    state, _, _ = _run(1)
    assert state.average is None
    assert state.evaluation_params is state.params


def test_the_average_starts_as_a_copy_that_shares_no_buffer():
    params = {"w": jnp.arange(3.0)}
    state = step_lib.create_state(params, optax.sgd(RATE), jax.random.key(0), average_decay=0.5)
    np.testing.assert_array_equal(state.average["w"], params["w"])
    assert state.average["w"].unsafe_buffer_pointer() != params["w"].unsafe_buffer_pointer()


def test_the_key_is_kept_as_integers_and_never_changes():
    state, _, _ = _run(2)
    np.testing.assert_array_equal(jax.random.key_data(state.key), jax.random.key_data(jax.random.key(7)))
    assert jnp.issubdtype(state.key_data.dtype, jnp.unsignedinteger)


def test_constants_of_a_model_reach_the_loss_but_not_the_optimizer():
    """As if the constants were numbers in the loss: the rest takes the same steps, with a state of its own size."""
    constants, batch = {"shift": jnp.asarray([0.5, -1.0])}, _batch()
    optimizer = optax.adamw(0.1, weight_decay=0.5)
    learned = {"params": {"w": jnp.asarray([1.0, 2.0])}}

    def loss(params, _):
        return jnp.sum((params["params"]["w"] - params["constants"]["shift"]) ** 2)

    with_constants = step_lib.create_state({**learned, "constants": constants}, optimizer, jax.random.key(0))
    without = step_lib.create_state(learned, optimizer, jax.random.key(0))
    for _ in range(3):
        with_constants, one = step_lib.train_step(with_constants, batch, loss_fn=loss, optimizer=optimizer)
        without, two = step_lib.train_step(
            without, batch, loss_fn=lambda p, b: loss({**p, "constants": constants}, b), optimizer=optimizer
        )
        assert one == two
    np.testing.assert_array_equal(with_constants.params["params"]["w"], without.params["params"]["w"])
    np.testing.assert_array_equal(with_constants.params["constants"]["shift"], constants["shift"])
    assert jax.tree.structure(with_constants.opt_state) == jax.tree.structure(without.opt_state)
