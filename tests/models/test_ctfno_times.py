"""CTFNO: any set of query times, in any order, in chunks or at once."""

import chex
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.small_ctfno import ATOL, TIMES, init, model_of, run, run_and_slopes, state

from ctfno_jax.models import inputs, time_chunks


def test_every_time_is_predicted_as_if_it_were_asked_for_alone():
    model, u0 = model_of(), state(3, 11, 1)
    variables = init(model, u0)
    together = run(model, variables, u0, TIMES)
    assert together.shape == (3, 5, 11, 2)
    for i in range(5):
        alone = run(model, variables, u0, TIMES[i : i + 1])
        chex.assert_trees_all_close(alone[:, 0], together[:, i], atol=ATOL, rtol=0)
    assert float(np.abs(together[:, 0] - together[:, 2]).max()) > 1e-2


@pytest.mark.parametrize("changes", [{}, {"stability_bound": 0.5, "stability_rule": "rows_and_columns"}])
def test_one_grid_of_times_per_sample(changes):
    model, u0 = model_of(**changes), state(3, 11, 1)
    variables = init(model, u0)
    shared = run(model, variables, u0, TIMES)
    repeated = run(model, variables, u0, np.tile(TIMES, (3, 1)))
    chex.assert_trees_all_close(repeated, shared, atol=ATOL, rtol=0)
    own = np.stack([TIMES[:2], TIMES[1:3], TIMES[3:5]])
    result = run(model, variables, u0, own)
    expected = np.stack([shared[0, :2], shared[1, 1:3], shared[2, 3:5]])
    np.testing.assert_allclose(np.asarray(result), expected, atol=ATOL, rtol=0)


@pytest.mark.parametrize("time_chunk", [None, 2])
def test_the_order_of_times_is_only_an_order(time_chunk):
    model, u0 = model_of(time_chunk=time_chunk), state(3, 11, 1)
    variables = init(model, u0)
    order = np.array([3, 1, 4, 0, 2])
    permuted = run(model, variables, u0, TIMES[order])
    chex.assert_trees_all_close(permuted, run(model, variables, u0, TIMES)[:, order], atol=ATOL, rtol=0)


def test_samples_do_not_see_each_other():
    model, u0 = model_of(), state(3, 11, 1)
    variables = init(model, u0)
    together = run(model, variables, u0, TIMES)
    alone = run(model, variables, u0[1:2], TIMES)
    chex.assert_trees_all_close(together[1:2], alone, atol=ATOL, rtol=0)


@pytest.mark.parametrize("per_sample", [False, True])
def test_chunks_change_neither_values_nor_gradients(per_sample):
    """Five times in chunks of two, of which the last is filled up."""
    u0 = state(3, 11, 1)
    times = np.stack([TIMES, TIMES[::-1], TIMES + 0.1]) if per_sample else TIMES
    whole, chunked = model_of(), model_of(time_chunk=2)
    variables = init(whole, u0)
    (expected, slopes), (result, chunked_slopes) = (
        run_and_slopes(model, variables, u0, times) for model in (whole, chunked)
    )
    chex.assert_trees_all_close(result, expected, atol=ATOL, rtol=0)
    chex.assert_trees_all_close(chunked_slopes, slopes, atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("chunk", [1, 2, 4, 5, 9])
@pytest.mark.parametrize("times", [np.arange(5.0), np.arange(15.0).reshape(3, 5)], ids=["shared", "per-sample"])
def test_a_function_over_chunks_is_the_function_over_all_times(times, chunk):
    """One space axis before the time axis, the batch behind it."""
    x = jnp.arange(4.0)[:, None, None]
    at_times = lambda t: x + 10 * jnp.atleast_2d(t).T  # noqa: E731
    result = time_chunks.over_chunks(at_times, jnp.asarray(times), chunk, num_space=1)
    np.testing.assert_array_equal(result, at_times(jnp.asarray(times)))


def test_chunks_in_two_dimensions_with_bound_and_padding():
    u0 = state(2, 6, 7, 1)
    changes = dict(modes=(2, 3), stability_bound=0.6, stability_rule="rows_and_columns", padding=(0.5, 0.0))
    whole, chunked = model_of(**changes), model_of(**changes, time_chunk=2)
    variables = init(whole, u0)
    expected = run(whole, variables, u0, TIMES)
    assert expected.shape == (2, 5, 6, 7, 2)
    chex.assert_trees_all_close(run(chunked, variables, u0, TIMES), expected, atol=ATOL, rtol=0)


def test_time_zero_is_a_time_like_any_other():
    model, u0 = model_of(), state(2, 9, 1)
    result = run(model, init(model, u0), u0, np.zeros(1, np.float32))
    chex.assert_shape(result, (2, 1, 9, 2))
    chex.assert_tree_all_finite(result)


def test_time_scale_multiplies_time():
    u0 = state(3, 11, 1)
    slow, fast = model_of(time_scale=1.0), model_of(time_scale=4.0)
    variables = init(slow, u0)
    chex.assert_trees_all_close(run(fast, variables, u0, TIMES / 4), run(slow, variables, u0, TIMES), atol=1e-4, rtol=0)


def test_a_single_chunk_is_chosen_while_everything_fits():
    assert time_chunks.automatic_chunk((20, 256, 1), 50, 64, 0.0) == 50
    assert time_chunks.automatic_chunk((1, 8, 9, 1), 3, 8, (0.5, 0.0)) == 3


@pytest.mark.parametrize("padding", [0.0, 0.25])
def test_a_large_query_is_cut_into_chunks_of_bounded_memory(padding):
    """20 samples, 200 times, 1024 points, width 64: one activation would take a thousand megabytes."""
    chunk = time_chunks.automatic_chunk((20, 1024, 1), 200, 64, padding)
    points = inputs.padded_grid((1024,), padding)[0]
    bytes_per_time = 4 * 20 * points * 64
    assert 200 * bytes_per_time > 10**9
    assert 1 <= chunk < 200
    assert chunk * bytes_per_time <= 128 * 2**20 < (chunk + 1) * bytes_per_time


def test_at_least_one_time_is_evaluated_however_large():
    assert time_chunks.automatic_chunk((64, 1024, 1024, 1), 10, 64, 0.0) == 1
