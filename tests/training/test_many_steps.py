"""Eight virtual devices against one: the same gradients, and nothing gathered on the way."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers.linear_task import LinearTask

from ctfno_jax.data import batching
from ctfno_jax.models import ctfno, neural_ode
from ctfno_jax.training import losses
from ctfno_jax.training import step as step_lib

TASK = LinearTask()
SGD = optax.sgd(1.0)  # so that a difference of parameters is a gradient
KEY = jax.random.key(3)


def _step(state, batch, axis_name, shard, *, loss_fn):
    del shard
    return step_lib.train_step(state, batch, loss_fn=loss_fn, optimizer=SGD, axis_name=axis_name)


def _sample(data, state, shard, num_shards):
    return TASK.sample(data, state.key, state.step, shard, num_shards)


LINEAR = (functools.partial(_step, loss_fn=lambda params, batch: TASK.loss(params, batch, None)), _sample)


def _state(params=None, key=KEY):
    params = TASK.init(jax.random.key(0)) if params is None else params
    return step_lib.create_state(jax.tree.map(jnp.copy, params), SGD, key)


def _gradient(before, after):
    return jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), before, jax.device_get(after))


def _assert_close(found, expected):
    # Differences of parameters of order one carry their rounding, hence the absolute part.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6), found, expected)


def test_there_are_eight_devices():
    assert len(jax.devices()) == 8


@pytest.mark.slow
@pytest.mark.parametrize("parallel", step_lib.WAYS)
@pytest.mark.parametrize("num_devices", [1, 2, 8])
def test_a_step_on_many_devices_takes_the_gradient_of_the_whole_batch(parallel, num_devices):
    params = TASK.init(jax.random.key(0))
    batch = TASK.sample(TASK.arrays, KEY, jnp.asarray(0), 0, 1)
    loss, expected = jax.value_and_grad(TASK.loss)(params, batch, None)
    multi_step = step_lib.over_devices(*LINEAR, 1, devices=jax.devices()[:num_devices], parallel=parallel)
    (state,), (losses_,) = multi_step([_state(params)], TASK.arrays)
    assert int(state.step) == 1
    assert np.asarray(losses_).reshape(-1)[0] == pytest.approx(float(loss), rel=1e-5)
    assert max(np.abs(g).max() for g in jax.tree.leaves(expected)) > 1
    _assert_close(_gradient(params, state.params), expected)


def test_several_steps_in_one_call_equal_several_calls():
    devices = jax.devices()[:2]
    together, alone = (step_lib.over_devices(*LINEAR, n, devices=devices) for n in (3, 1))
    (state,), (losses_,) = together([_state()], TASK.arrays)
    others, other_losses = [_state()], []
    for _ in range(3):
        others, (loss,) = alone(others, TASK.arrays)
        other_losses.append(loss[0])
    assert losses_.shape == (3,)
    np.testing.assert_allclose(losses_, other_losses, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), state.params, others[0].params)


def test_runs_at_once_are_the_runs_alone():
    keys = [jax.random.key(i) for i in (3, 4, 5)]
    alone = step_lib.over_devices(*LINEAR, 3, devices=jax.devices()[:1])
    together = step_lib.over_seeds(*LINEAR, 3)
    states, losses_ = together([_state(key=key) for key in keys], TASK.arrays)
    for key, state, loss in zip(keys, states, losses_, strict=True):
        (other,), (other_loss,) = alone([_state(key=key)], TASK.arrays)
        np.testing.assert_allclose(loss, other_loss, rtol=1e-5)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), state.params, other.params)
    assert not np.allclose(states[0].params["params"]["w"], states[1].params["params"]["w"], rtol=1e-2)


def test_shards_of_one_step_have_numbers_of_their_own():
    """A loss that draws random numbers must not draw the same ones on every device."""

    def step(state, batch, axis_name, shard):
        del batch
        return state.replace(step=state.step + 1), jax.lax.psum(2.0**shard, axis_name)

    for parallel in step_lib.WAYS:
        multi_step = step_lib.over_devices(step, _sample, 1, devices=jax.devices(), parallel=parallel)
        assert float(multi_step([_state()], TASK.arrays)[1][0][0]) == 2**8 - 1


@pytest.mark.slow
def test_one_device_alone_differentiates_through_the_checkpoints_of_an_ode_solver():
    # They may not be sharded. Two steps of Euler for u' = w u end at (1 + w / 2)^2, with the derivative 1 + w / 2.
    how = neural_ode.Integration("euler", "constant", step_size=0.5, adjoint="checkpoints", max_steps=2)

    def loss_fn(params, batch):
        return neural_ode.solve(lambda t, u, w: w * u, params["w"], batch, jnp.ones(1), how)[0].mean()

    step = functools.partial(_step, loss_fn=loss_fn)
    multi_step = step_lib.over_devices(step, lambda data, *_: data, 1, devices=jax.devices()[:1])
    (state,), (loss,) = multi_step([_state({"w": jnp.asarray(0.6)})], jnp.ones((3, 2)))
    np.testing.assert_allclose(loss, 1.3**2, rtol=1e-6)
    assert float(state.params["w"]) == pytest.approx(0.6 - 1.3, rel=1e-5)


def test_the_step_of_a_network_averages_the_gradient_of_the_whole_batch_and_gathers_nothing(monkeypatch):
    """Only the gradient crosses devices."""
    model = ctfno.CTFNO(width=4, modes=(3,), depth=1, heads=2, time_width=4, time_features=4, time_scale=3.0)
    rng = np.random.default_rng(0)
    data = batching.FieldArrays(
        jnp.asarray(rng.normal(size=(24, 10, 1)), jnp.float32),
        jnp.asarray([0.1, 0.5, 0.9, 1.4, 2.0]),
        jnp.asarray(rng.normal(size=(24, 5, 10, 1)), jnp.float32),
    )
    sampling = batching.Sampling(batch_size=16, times_per_step=2, sign_flips=True)
    params = jax.jit(model.init)(jax.random.key(0), data.u0[:1], data.times[:1])
    loss_fn = lambda p, b: losses.mse(model.apply(p, b.u0, b.times), b.target)  # noqa: E731
    sample = lambda d, s, shard, n: batching.sample(d, s.key, s.step, sampling, shard=shard, num_shards=n)  # noqa: E731
    jitted, original = [], jax.jit
    with monkeypatch.context() as patch:
        patch.setattr(jax, "jit", lambda *a, **k: jitted.append(original(*a, **k)) or jitted[-1])
        step_lib.over_devices(functools.partial(_step, loss_fn=loss_fn), sample, 1, devices=jax.devices())
    (multi_step,) = jitted
    arguments = step_lib.replicate((_state(params), data), jax.devices())
    program = multi_step.lower(*arguments).compile()
    assert "all-reduce" in program.as_text()
    assert "all-gather" not in program.as_text()
    state, (loss,) = program(*arguments)
    batch = batching.sample(data, KEY, jnp.asarray(0), sampling)
    expected, gradient = jax.jit(jax.value_and_grad(loss_fn))(params, batch)
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    assert max(np.abs(g).max() for g in jax.tree.leaves(gradient)) > 1e-2
    _assert_close(_gradient(params, state.params), gradient)


def test_the_state_is_donated():
    multi_step = step_lib.over_devices(*LINEAR, 1, devices=jax.devices()[:1])
    state = _state()
    multi_step([state], TASK.arrays)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state.params))


def test_an_unknown_way_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown way to run in parallel 'xmap'; known are shard_map, pmap"):
        step_lib.over_devices(*LINEAR, 1, devices=jax.devices(), parallel="xmap")
