"""Scaling of packed observations, by hand and back."""

import numpy as np
import pytest
from helpers import partly_observed

from ctfno_jax.transforms import protocol
from ctfno_jax.transforms.masked_normalization import MaskedNormalization

TRANSFORM = MaskedNormalization((1.0, -2.0), (2.0, 0.5), time_unit=48.0, time_offset=6.0)


def test_observed_values_and_times_are_scaled_and_masks_stay():
    packed = partly_observed.packed()
    encoded = np.asarray(TRANSFORM.encode(packed))
    times, values, mask = np.split(packed, [1, 3], axis=-1)
    np.testing.assert_allclose(encoded[..., :1], (times - 6) / 48, rtol=1e-5, atol=1e-6)
    expected = np.where(mask > 0, (values - [1.0, -2.0]) / [2.0, 0.5], 0)
    np.testing.assert_allclose(encoded[..., 1:3], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(encoded[..., 3:], mask)


def test_decoding_undoes_encoding():
    u = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)
    np.testing.assert_allclose(TRANSFORM.decode(TRANSFORM.encode_solution(u), (5,)), u, rtol=1e-5, atol=1e-6)
    assert TRANSFORM.gain((5,)) == 4.0


def test_scores_of_classes_have_no_units():
    transform = MaskedNormalization((1.0,), (2.0,), decodes=False)
    scores = np.ones((2, 3, 7), np.float32)
    np.testing.assert_array_equal(transform.decode(scores, (5,)), scores)
    np.testing.assert_array_equal(transform.encode_solution(scores), scores)


@pytest.mark.parametrize("transform", [TRANSFORM, MaskedNormalization((0.0,), (1.0,), decodes=False)])
def test_a_transform_is_rebuilt_from_json_values(transform):
    assert protocol.from_dict(transform.to_dict()) == transform
