"""Eight virtual devices against one: the same gradients, and nothing gathered on the way."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ctfno_jax.data import batching
from ctfno_jax.models import ctfno, neural_ode
from ctfno_jax.training import objectives, sharding
from ctfno_jax.training import step as step_lib

BATCH = 16
SAMPLING = batching.Sampling(batch_size=BATCH, times_per_step=2, sign_flips=True)


@pytest.fixture(scope="module")
def pieces():
    model = ctfno.CTFNO(width=4, modes=(3,), depth=1, heads=2, time_width=4, time_features=4, time_scale=3.0)
    rng = np.random.default_rng(0)
    data = batching.FieldArrays(
        jnp.asarray(rng.normal(size=(24, 10, 1)), jnp.float32),
        jnp.asarray([0.1, 0.5, 0.9, 1.4, 2.0]),
        jnp.asarray(rng.normal(size=(24, 5, 10, 1)), jnp.float32),
    )
    params = jax.jit(model.init)(jax.random.key(0), data.u0[:1], data.times[:1])
    return model, data, params


def _multi_step(model, num_steps, **options):
    optimizer = optax.sgd(1.0)  # so that a difference of parameters is a gradient
    loss_fn = step_lib.make_loss(model.apply, objectives.mse)

    def step_fn(state, batch):
        return step_lib.train_step(state, batch, loss_fn=loss_fn, optimizer=optimizer, axis_name=sharding.AXIS)

    def sample_fn(data, state, shard, num_shards):
        return batching.sample(data, state.key, state.step, SAMPLING, shard=shard, num_shards=num_shards)

    return sharding.make_multi_step(step_fn, sample_fn, num_steps, **options), optimizer


def _state(params, optimizer):
    return step_lib.create_state(jax.tree.map(jnp.copy, params), optimizer, jax.random.key(3))


def _gradient_by_one_step(pieces, **options):
    model, data, params = pieces
    multi_step, optimizer = _multi_step(model, 1, **options)
    state, losses = multi_step(_state(params, optimizer), data)
    assert int(state.step) == 1
    return jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), params, jax.device_get(state.params)), losses


@pytest.fixture(scope="module")
def gradient_without_devices(pieces):
    """Straight from the whole batch, with no mapped axis at all."""
    model, data, params = pieces
    batch = batching.sample(data, jax.random.key(3), jnp.asarray(0), SAMPLING)
    loss_fn = step_lib.make_loss(model.apply, objectives.mse)
    loss, grads = jax.jit(jax.value_and_grad(loss_fn))(params, batch)
    return float(loss), jax.tree.map(np.asarray, grads)


def test_there_are_eight_devices():
    assert len(jax.local_devices()) == 8


@pytest.mark.parametrize("parallel", ["shard_map", "pmap"])
@pytest.mark.parametrize("num_devices", [1, 2, 8])
def test_a_step_on_many_devices_takes_the_gradient_of_the_whole_batch(
    pieces, gradient_without_devices, parallel, num_devices
):
    loss, expected = gradient_without_devices
    found, losses = _gradient_by_one_step(pieces, parallel=parallel, devices=jax.local_devices()[:num_devices])
    assert np.asarray(losses).reshape(-1)[0] == pytest.approx(loss, rel=1e-5)
    scale = max(np.abs(g).max() for g in jax.tree.leaves(expected))
    assert scale > 1e-2
    # Differences of parameters of size one carry their rounding, hence the absolute part.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)


def test_several_steps_in_one_call_equal_several_calls(pieces):
    model, data, params = pieces
    devices = jax.local_devices()[:2]
    together, optimizer = _multi_step(model, 3, devices=devices)
    alone, _ = _multi_step(model, 1, devices=devices)
    state, losses = together(_state(params, optimizer), data)
    other, other_losses = _state(params, optimizer), []
    for _ in range(3):
        other, loss = alone(other, data)
        other_losses.append(loss[0])
    assert losses.shape == (3,)
    np.testing.assert_allclose(losses, other_losses, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), state.params, other.params)


def _by_shard_map(step_fn, sample_fn, num_steps, device):
    """What several devices do, on one."""

    def local(state, data):
        body = lambda s, _: step_fn(s, sample_fn(data, s, jax.lax.axis_index(sharding.AXIS), 1))  # noqa: E731
        return jax.lax.scan(body, state, None, length=num_steps)

    mesh = jax.sharding.Mesh(np.asarray([device]), (sharding.AXIS,))
    everywhere = jax.sharding.PartitionSpec()
    return jax.jit(
        jax.shard_map(
            local, mesh=mesh, in_specs=(everywhere, everywhere), out_specs=everywhere, check_vma=False
        )
    )  # fmt: skip


def test_one_device_alone_makes_the_steps_of_a_mesh_of_one(pieces, monkeypatch):
    model, data, params = pieces
    device = jax.local_devices()[0]
    alone, optimizer = _multi_step(model, 3, devices=[device])
    seen = []
    monkeypatch.setattr(sharding, "make_multi_step", lambda *args, **options: seen.append(args))
    _multi_step(model, 3)
    mapped = _by_shard_map(*seen[0], device)
    (state, losses), (other, other_losses) = (f(_state(params, optimizer), data) for f in (alone, mapped))
    assert losses.shape == other_losses.shape == (3,)
    np.testing.assert_allclose(losses, other_losses, rtol=1e-6)
    assert int(state.step) == int(other.step) == 3
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), state.params, other.params)


@pytest.mark.slow
def test_one_device_alone_goes_through_the_checkpoints_of_an_ode_solver():
    # They may not be sharded. Two steps of Euler for u' = w u end at (1 + w / 2)^2, with the slope 1 + w / 2.
    how = neural_ode.Integration("euler", "constant", step_size=0.5, adjoint="checkpoints", max_steps=2)
    optimizer = optax.sgd(1.0)

    def loss_fn(params, batch):
        return neural_ode.solve(lambda t, u, w: w * u, params["w"], batch, jnp.ones(1), how)[0].mean()

    def step_fn(state, batch):
        return step_lib.train_step(state, batch, loss_fn=loss_fn, optimizer=optimizer, axis_name=sharding.AXIS)

    multi_step = sharding.make_multi_step(step_fn, lambda data, *_: data, 1, devices=jax.local_devices()[:1])
    state, losses = multi_step(_state({"w": jnp.asarray(0.6)}, optimizer), jnp.ones((3, 2)))
    np.testing.assert_allclose(losses, 1.3**2, rtol=1e-6)
    assert float(state.params["w"]) == pytest.approx(0.6 - 1.3, rel=1e-5)


def test_the_compiled_step_averages_and_gathers_nothing(pieces):
    model, data, params = pieces
    multi_step, optimizer = _multi_step(model, 1)
    text = multi_step.lower(_state(params, optimizer), data).compile().as_text()
    assert "all-reduce" in text
    assert "all-gather" not in text


def test_the_state_is_donated(pieces):
    model, data, params = pieces
    multi_step, optimizer = _multi_step(model, 1, devices=jax.local_devices()[:1])
    state = _state(params, optimizer)
    multi_step(state, data)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state.params))


def test_a_batch_that_cannot_be_cut_evenly_is_refused():
    with pytest.raises(ValueError, match="batch_size=20 cannot be divided among 8 devices; use a multiple of 8"):
        sharding.check_batch(20, 8)
    assert sharding.check_batch(24, 8) is None


def test_an_unknown_way_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown way to run in parallel 'xmap'; known are shard_map, pmap"):
        sharding.make_multi_step(lambda s, b: (s, 0.0), lambda *a: None, 1, parallel="xmap")
