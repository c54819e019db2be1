"""Batches: a pure function of key and step, fair to all trajectories, and the same on any number of shards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.data import batching

NUM_SAMPLES, NUM_TIMES, NUM_POINTS = 40, 6, 5


def _data() -> batching.FieldArrays:
    """Every value tells its own sample, time and point, and u - u0 the time alone."""
    sample = jnp.arange(NUM_SAMPLES, dtype=jnp.float32)[:, None, None] + 1
    point = jnp.arange(NUM_POINTS, dtype=jnp.float32)[:, None] / 100
    times = jnp.arange(NUM_TIMES, dtype=jnp.float32) * 1000
    u0 = sample + point
    return batching.FieldArrays(u0, times, u0[:, None] + times[:, None, None])


def _sample(step, key_seed=0, **options):
    return batching.sample(_data(), jax.random.key(key_seed), jnp.asarray(step), **{"batch_size": 8, **options})


@pytest.mark.parametrize("batch_size", [8, 10, 1])
@pytest.mark.parametrize("epoch", [0, 3])
def test_an_epoch_visits_every_sample_exactly_once(batch_size, epoch):
    per_epoch = NUM_SAMPLES // batch_size
    steps = range(epoch * per_epoch, (epoch + 1) * per_epoch)
    seen = [batching.epoch_indices(jax.random.key(1), jnp.asarray(s), NUM_SAMPLES, batch_size) for s in steps]
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(NUM_SAMPLES))


def test_a_last_short_batch_is_skipped_without_repeating_a_sample():
    seen = np.concatenate([batching.epoch_indices(jax.random.key(1), jnp.asarray(s), 11, 4) for s in (0, 1)])
    assert len(np.unique(seen)) == 8
    third = batching.epoch_indices(jax.random.key(1), jnp.asarray(2), 11, 4)
    second_epoch = np.concatenate([third, batching.epoch_indices(jax.random.key(1), jnp.asarray(3), 11, 4)])
    assert len(np.unique(second_epoch)) == 8


def test_every_epoch_has_its_own_order():
    first, second = (batching.epoch_indices(jax.random.key(1), jnp.asarray(e), 40, 40) for e in (0, 1))
    assert not np.array_equal(first, second)


def test_a_batch_is_a_function_of_key_and_step():
    options = {"times_per_step": 3, "sign_flips": True}
    first, again = _sample(5, **options), _sample(5, **options)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first.u0, _sample(6, **options).u0)
    assert not np.array_equal(first.u0, _sample(5, key_seed=1, **options).u0)


def test_compiling_does_not_change_a_batch():
    compiled = jax.jit(lambda step: _sample(step, times_per_step=3, sign_flips=True))
    for a, b in zip(compiled(7), _sample(7, times_per_step=3, sign_flips=True), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("num_shards", [2, 8])
def test_the_union_of_the_shards_is_the_whole_batch(num_shards):
    options = {"times_per_step": 2, "sign_flips": True}
    whole = _sample(4, **options)
    parts = [_sample(4, shard=i, num_shards=num_shards, **options) for i in range(num_shards)]
    np.testing.assert_array_equal(np.concatenate([part.u0 for part in parts]), whole.u0)
    np.testing.assert_array_equal(np.concatenate([part.target for part in parts]), whole.target)
    for part in parts:
        np.testing.assert_array_equal(part.times, whole.times)


@pytest.mark.parametrize("step", range(4))
def test_query_times_are_drawn_without_repetition_and_targets_belong_to_them(step):
    batch = _sample(step, times_per_step=4)
    assert len(np.unique(batch.times)) == 4
    assert set(np.asarray(batch.times)) <= set(np.asarray(_data().times))
    expected = batch.u0[:, None] + batch.times[:, None, None]
    np.testing.assert_array_equal(batch.target, expected)


def test_all_query_times_are_drawn_sooner_or_later():
    drawn = np.concatenate([_sample(step, times_per_step=2).times for step in range(20)])
    assert len(np.unique(drawn)) == NUM_TIMES


def test_zero_times_per_step_means_all_in_order():
    batch = _sample(0)
    np.testing.assert_array_equal(batch.times, _data().times)
    assert batch.target.shape == (8, NUM_TIMES, NUM_POINTS, 1)


def test_a_sign_flip_acts_on_state_and_solution_alike_and_on_about_half_of_them():
    flips = []
    for step in range(25):
        batch, plain = _sample(step, sign_flips=True), _sample(step)
        sign = np.asarray(batch.u0 / plain.u0)[:, 0, 0]
        assert set(np.abs(sign)) == {1.0}
        np.testing.assert_array_equal(batch.u0, sign[:, None, None] * plain.u0)
        np.testing.assert_array_equal(batch.target, sign[:, None, None, None] * plain.target)
        flips.append(sign < 0)
    # 200 fair coins: a deviation of 0.035.
    assert abs(np.mean(flips) - 0.5) < 0.12
