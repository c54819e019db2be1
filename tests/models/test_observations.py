"""What models of series read: the number of features, and the times of observation."""

import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.models import observations


@pytest.mark.parametrize("inputs", [3, 4])
def test_a_point_has_its_values_and_perhaps_its_time(inputs):
    assert observations.check_features(np.zeros((5, 2, inputs)), 3) is None


@pytest.mark.parametrize("shape", [(5, 2, 2), (5, 2, 5), (5, 3), (5, 2, 3, 1)])
def test_other_shapes_are_refused(shape):
    message = rf"with 3 features, or 4 with the time of observation last, got {shape}".replace("(", r"\(")
    with pytest.raises(ValueError, match=message.replace(")", r"\)")):
        observations.check_features(np.zeros(shape), 3)


def test_times_that_are_given_are_the_last_feature():
    observed = np.random.default_rng(0).normal(size=(5, 4, 3)).astype(np.float32)
    np.testing.assert_array_equal(observations.times_of_observation(observed, 2, 0.1), observed[..., 2])


def test_times_that_are_not_given_are_even_and_end_at_zero():
    times = observations.times_of_observation(jnp.zeros((5, 4, 2)), 2, 0.25)
    assert times.shape == (5, 4)
    np.testing.assert_array_equal(times, np.tile([-0.75, -0.5, -0.25, 0.0], (5, 1)))
