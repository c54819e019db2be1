"""Normalisation: statistics of the training data per channel, and an exact inverse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.transforms import normalization
from ctfno_jax.transforms.normalization import ChannelStatistics, Normalization


def _arrays(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """States with one channel, solutions with three."""
    rng = np.random.default_rng(seed)
    u0 = rng.normal(3.0, 2.0, size=(5, 12, 1)).astype(np.float32)
    u = (rng.normal(size=(5, 4, 12, 3)) * [0.1, 5.0, 40.0] + [7.0, -2.0, 0.0]).astype(np.float32)
    return u0, u


def _same_channels() -> tuple[np.ndarray, np.ndarray]:
    """States and solutions with the same two channels."""
    rng = np.random.default_rng(3)
    frames = (rng.normal(size=(5, 4, 12, 2)) * [2.0, 0.3] + [4.0, 0.7]).astype(np.float32)
    return frames[:, 0], frames[:, 1:]


# --- statistics -----------------------------------------------------------------------------------------------------


def test_statistics_are_mean_and_standard_deviation_of_each_channel():
    u0, u = _arrays()
    fitted = normalization.fit(jnp.asarray(u0), u)
    np.testing.assert_allclose(fitted.inputs.mean, [u0.astype(np.float64).mean()], rtol=1e-12)
    np.testing.assert_allclose(fitted.outputs.std, u.astype(np.float64).std((0, 1, 2)), rtol=1e-12)


def test_encoded_training_data_have_mean_zero_and_standard_deviation_one():
    u0, u = _arrays()
    fitted = normalization.fit(u0, u)
    for encoded in (fitted.encode(u0), fitted.encode_solution(u)):
        values = np.asarray(encoded, np.float64).reshape(-1, encoded.shape[-1])
        np.testing.assert_allclose(values.mean(0), 0.0, atol=1e-5)
        np.testing.assert_allclose(values.std(0), 1.0, rtol=1e-5)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6 + 0.1])
def test_a_constant_channel_has_standard_deviation_one_despite_rounding(constant):
    statistics = normalization.channel_statistics(np.full((7, 11, 1), constant, np.float32))
    assert statistics.std == (1.0,)
    assert statistics.mean == (pytest.approx(constant, rel=1e-6),)


def test_shared_statistics_are_those_of_states_and_solutions_together():
    u0, u = _same_channels()
    fitted = normalization.fit(u0, u, shared=True)
    assert fitted.inputs == fitted.outputs
    frames = np.concatenate([u0[:, None], u], axis=1).astype(np.float64)
    np.testing.assert_allclose(fitted.inputs.mean, frames.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(fitted.inputs.std, frames.std((0, 1, 2)), rtol=1e-12)
    assert normalization.fit(u0, u).inputs != normalization.fit(u0, u).outputs


def test_shared_statistics_leave_further_channels_of_the_state_their_own():
    rng = np.random.default_rng(0)
    u0 = (rng.normal(size=(5, 12, 3)) * [1.0, 30.0, 7.0]).astype(np.float32)
    u = rng.normal(2.0, 3.0, size=(5, 4, 12, 1)).astype(np.float32)
    fitted = normalization.fit(u0, u, shared=True)
    both = np.concatenate([u0[..., 0].ravel(), u.ravel()]).astype(np.float64)
    np.testing.assert_allclose(fitted.outputs.std, [both.std()], rtol=1e-6)
    np.testing.assert_allclose(fitted.inputs.mean, [both.mean(), *u0[..., 1:].mean((0, 1))], rtol=1e-4)
    np.testing.assert_allclose(fitted.inputs.std, [both.std(), *u0[..., 1:].std((0, 1))], rtol=1e-4)


@pytest.mark.parametrize("shared", [False, True])
def test_centred_channels_have_mean_zero_and_keep_their_standard_deviation(shared):
    u0, u = _same_channels()
    plain, centred = (normalization.fit(u0, u, shared=shared, centred=c) for c in (None, (False, True)))
    for before, after in ((plain.inputs, centred.inputs), (plain.outputs, centred.outputs)):
        assert after.mean == (before.mean[0], 0.0)
        assert after.std == before.std
    np.testing.assert_array_equal(centred.encode_solution(-u)[..., 1], -centred.encode_solution(u)[..., 1])
    assert normalization.fit(u0, u, shared=shared, centred=(False, False)) == plain
    first = normalization.fit(u0, u, centred=(True,))
    assert first.inputs.mean[1:] == normalization.fit(u0, u).inputs.mean[1:]


@pytest.mark.parametrize(("mean", "std"), [((0.0, 1.0), (1.0,)), ((0.0,), (0.0,)), ((0.0,), (float("nan"),))])
def test_statistics_that_cannot_be_divided_by_are_refused(mean, std):
    with pytest.raises(ValueError, match="one entry per channel and std must be positive, got"):
        ChannelStatistics(mean, std)


# --- the transform --------------------------------------------------------------------------------------------------

EXAMPLE = Normalization(ChannelStatistics((1.0, -3.0), (2.0, 0.017)), ChannelStatistics((0.3,), (7.0,)))


def test_values_by_hand():
    np.testing.assert_allclose(EXAMPLE.encode(np.asarray([[[5.0, -2.966]]])), [[[2.0, 2.0]]], rtol=1e-6)
    np.testing.assert_allclose(EXAMPLE.decode(np.asarray([[[[2.0]]]]), (1,)), [[[[14.3]]]], rtol=1e-6)
    assert EXAMPLE.encoded_grid((5, 6)) == (5, 6)


def test_numpy_arrays_are_divided_exactly_and_come_back_as_jax_arrays():
    u0 = np.random.default_rng(0).normal(size=(3, 40, 2)).astype(np.float32)
    mean, std = (np.asarray(values, np.float32) for values in (EXAMPLE.inputs.mean, EXAMPLE.inputs.std))
    encoded = EXAMPLE.encode(u0)
    assert isinstance(encoded, jax.Array)
    np.testing.assert_array_equal(encoded, (u0 - mean) / std)
    # A compiled program may multiply by the reciprocal.
    np.testing.assert_allclose(jax.jit(EXAMPLE.encode)(u0), encoded, rtol=1e-6)


def test_integers_become_floats():
    assert EXAMPLE.encode(np.ones((1, 3, 2), int)).dtype == jnp.float32
    assert EXAMPLE.encode(jnp.ones((1, 3, 2), int)).dtype == jnp.float32


def test_a_wrong_number_of_channels_is_refused():
    with pytest.raises(ValueError, match=r"fields must have 2 channels in their last axis, got shape \(4, 9, 1\)"):
        EXAMPLE.encode(np.ones((4, 9, 1)))
