"""Initial parameters by one quickly compiled program."""

import jax
import numpy as np
from helpers.small_ctfno import TIMES, model_of, state

from ctfno_jax.models.initialization import initial_parameters


def test_they_are_those_of_the_model_itself():
    model, u0, key = model_of(lifting="low_pass", depth=1), state(2, 9, 3), jax.random.key(5)
    expected, found = model.init(key, u0, TIMES), initial_parameters(model, key, u0, TIMES)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), found, expected)
