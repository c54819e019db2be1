"""CTFNO on observed points, against its parts by hand."""

import jax
import numpy as np
import pytest
from helpers.parameters import random_parameters

from ctfno_jax.models import ctfno
from ctfno_jax.models.observed import ObservedCTFNO

OPERATOR = ctfno.CTFNO(width=4, modes=(3,), depth=1, heads=1, time_width=8, time_features=4)
QUERIES = np.asarray([0.3, 0.1], np.float32)


def _affine(weights, v):
    return v @ weights["weight"] + weights["bias"]


@pytest.mark.parametrize("observation_scale", [1.0, 0.25])
def test_a_forecast_maps_points_to_functions_and_the_solution_back(observation_scale):
    """Two values and their time of observation, which alone is scaled; points are channels of the operator."""
    observed = np.random.default_rng(0).normal(size=(3, 5, 3)).astype(np.float32)
    model = ObservedCTFNO(OPERATOR, grid_points=7, out_features=2, observation_scale=observation_scale)
    variables = random_parameters(model, observed, QUERIES, scale=0.5)
    weights = variables["params"]
    scaled = observed * np.asarray([1.0, 1.0, observation_scale], np.float32)
    functions = np.swapaxes(_affine(weights["point_embedding"], scaled), 1, 2)
    u = jax.jit(OPERATOR.apply)({"params": weights["operator"]}, functions, QUERIES)[..., 0]
    expected = _affine(weights["point_projection"], u)
    np.testing.assert_allclose(jax.jit(model.apply)(variables, observed, QUERIES), expected, rtol=0, atol=1e-5)
