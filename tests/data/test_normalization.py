"""Channel statistics: from training data only, and undone exactly."""

import json

import numpy as np
import pytest

from ctfno_jax.data import fields, normalization


def _train(seed=0):
    rng = np.random.default_rng(seed)
    u0 = rng.normal(3.0, 2.0, size=(5, 12, 1)).astype(np.float32)
    u = (rng.normal(size=(5, 4, 12, 3)) * [0.1, 5.0, 40.0] + [7.0, -2.0, 0.0]).astype(np.float32)
    return fields.Trajectories(u0, np.arange(1, 5, dtype=np.float32), u)


def test_statistics_are_mean_and_deviation_of_each_channel():
    train = _train()
    statistics = normalization.fit(train)
    np.testing.assert_allclose(statistics.inputs.mean, [train.u0.astype(np.float64).mean()], rtol=1e-12)
    np.testing.assert_allclose(statistics.outputs.std, train.u.astype(np.float64).std((0, 1, 2)), rtol=1e-12)


def test_normalised_data_have_mean_zero_and_deviation_one_in_every_channel():
    train = _train()
    normalised = normalization.fit(train).outputs.normalize(train.u).astype(np.float64)
    np.testing.assert_allclose(normalised.mean((0, 1, 2)), 0.0, atol=1e-5)
    np.testing.assert_allclose(normalised.std((0, 1, 2)), 1.0, rtol=1e-5)


def test_denormalising_undoes_normalising():
    train = _train()
    outputs = normalization.fit(train).outputs
    np.testing.assert_allclose(outputs.denormalize(outputs.normalize(train.u)), train.u, rtol=1e-5, atol=1e-6)


def test_statistics_do_not_depend_on_validation_and_test_data():
    train = _train()
    everything = fields.Trajectories(
        np.concatenate([_train(1).u0, train.u0]), train.times, np.concatenate([_train(1).u, train.u])
    )
    changed = fields.Trajectories(
        np.concatenate([100 * _train(1).u0, train.u0]), train.times, np.concatenate([100 * _train(1).u, train.u])
    )
    first, second = (normalization.fit(fields.split(data, num_test=3, num_validation=2)[0])
                     for data in (everything, changed))  # fmt: skip
    assert first == second == normalization.fit(train)


def test_a_constant_channel_is_only_shifted():
    u = np.stack([np.full((4, 6), 2.5), np.arange(24.0).reshape(4, 6)], axis=-1).astype(np.float32)
    statistics = normalization.channel_statistics(u)
    assert statistics.std[0] == 1.0
    np.testing.assert_array_equal(statistics.normalize(u)[..., 0], 0.0)
    np.testing.assert_allclose(statistics.denormalize(statistics.normalize(u)), u, rtol=1e-6)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6 + 0.1])
def test_rounding_in_the_mean_does_not_make_a_constant_channel_vary(constant):
    assert normalization.channel_statistics(np.full((7, 11, 1), constant, np.float32)).std == (1.0,)


def _same_channels(seed=3):
    rng = np.random.default_rng(seed)
    frames = (rng.normal(size=(5, 4, 12, 2)) * [2.0, 0.3] + [4.0, 0.7]).astype(np.float32)
    return fields.Trajectories(frames[:, 0], np.arange(1, 4, dtype=np.float32), frames[:, 1:])


def test_shared_statistics_are_those_of_initial_states_and_solutions_together():
    train = _same_channels()
    statistics = normalization.fit(train, shared=True)
    assert statistics.inputs == statistics.outputs
    frames = np.concatenate([train.u0[:, None], train.u], axis=1).astype(np.float64)
    np.testing.assert_allclose(statistics.inputs.mean, frames.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(statistics.inputs.std, frames.std((0, 1, 2)), rtol=1e-12)
    # So a solution can be an initial state again.
    np.testing.assert_array_equal(statistics.inputs.normalize(train.u), statistics.outputs.normalize(train.u))
    assert normalization.fit(train).inputs != normalization.fit(train).outputs


@pytest.mark.parametrize("shared", [False, True])
def test_centred_channels_have_mean_zero_and_keep_their_deviation(shared):
    train = _same_channels()
    plain, centred = (normalization.fit(train, shared=shared, centred=c) for c in (None, (False, True)))
    for before, after in ((plain.inputs, centred.inputs), (plain.outputs, centred.outputs)):
        assert after.mean == (before.mean[0], 0.0)
        assert after.std == before.std
        np.testing.assert_array_equal(after.normalize(-train.u)[..., 1], -after.normalize(train.u)[..., 1])
    assert normalization.fit(train, shared=shared, centred=(False, False)) == plain


def test_channels_that_centring_does_not_name_keep_their_mean():
    plain = normalization.fit(_same_channels())
    centred = normalization.fit(_same_channels(), centred=(True,))
    assert centred.inputs.mean == (0.0, *plain.inputs.mean[1:])
    assert centred.inputs.std == plain.inputs.std


def test_the_dictionary_form_survives_json():
    statistics = normalization.fit(_train())
    values = json.loads(json.dumps(statistics.to_dict()))
    assert normalization.Normalization.from_dict(values) == statistics


def test_normalising_keeps_single_precision():
    train = _train()
    outputs = normalization.fit(train).outputs
    assert outputs.normalize(train.u).dtype == np.float32
    assert outputs.denormalize(train.u).dtype == np.float32


def test_shared_statistics_leave_further_channels_of_the_initial_state_their_own():
    rng = np.random.default_rng(0)
    u0 = (rng.normal(size=(5, 12, 3)) * [1.0, 30.0, 7.0]).astype(np.float32)
    u = rng.normal(2.0, 3.0, size=(5, 4, 12, 1)).astype(np.float32)
    statistics = normalization.fit(fields.Trajectories(u0, np.arange(1, 5, dtype=np.float32), u), shared=True)
    both = np.concatenate([u0[..., 0].ravel(), u.ravel()]).astype(np.float64)
    np.testing.assert_allclose(statistics.outputs.std, [both.std()], rtol=1e-6)
    np.testing.assert_allclose(statistics.inputs.mean, [both.mean(), *u0[..., 1:].mean((0, 1))], rtol=1e-4)
    np.testing.assert_allclose(statistics.inputs.std, [both.std(), *u0[..., 1:].std((0, 1))], rtol=1e-4)
