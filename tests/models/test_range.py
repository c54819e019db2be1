"""CTFNO that keeps the range of its state, as equations with a maximum principle do."""

import numpy as np
import pytest
from helpers import small_ctfno
from helpers.small_ctfno import ATOL, init, run

from ctfno_jax import certify

TIMES = np.array([0.9, 0.05, 0.4], np.float32)
STEPS = dict(start="state", rise_time=0.1, horizon=0.3, max_steps=4)


def _model(**fields):
    return small_ctfno.model_of(**{"out_channels": 2, "coordinates": False, "keeps_range": True, **fields})


def _range(u0):
    return u0[..., :2].min(axis=1)[:, None, None], u0[..., :2].max(axis=1)[:, None, None]


@pytest.mark.parametrize("fields", [{}, STEPS], ids=["at once", "in steps"])
@pytest.mark.parametrize("channels", [2, 3])
def test_no_answer_leaves_the_range_of_the_state_and_all_within_stay(fields, channels):
    u0 = small_ctfno.state(4, 10, channels)
    u0[..., 1] *= 0.01  # a range that an untrained network leaves
    model = _model(**fields)
    variables = init(model, u0)
    u = run(model, variables, u0, TIMES)
    least, largest = _range(u0)
    assert np.all((u >= least - ATOL) & (u <= largest + ATOL))
    free = run(model.clone(keeps_range=False), variables, u0, TIMES)
    assert np.any((free < least) | (free > largest))
    if not fields:
        np.testing.assert_allclose(u, np.clip(free, least, largest), atol=ATOL)


def test_every_step_keeps_the_range_of_the_one_before():
    u0 = small_ctfno.state(4, 10, 2)
    model = _model(**STEPS)
    variables = init(model, u0)
    one = model.clone(horizon=None, max_steps=16)
    first = run(one, variables, u0, np.array([0.3], np.float32))[:, 0]
    expected = run(one, variables, first, np.array([0.1], np.float32))
    np.testing.assert_allclose(run(model, variables, u0, np.array([0.4], np.float32)), expected, atol=10 * ATOL)


def test_steps_in_training_are_free():
    u0, each = small_ctfno.state(4, 10, 2), np.tile(np.array([0.2, 0.5], np.float32), (4, 1))
    model = _model(**STEPS)
    variables = init(model, u0)
    u, free = (m.apply(variables, u0, each, method="rollout") for m in (model, model.clone(keeps_range=False)))
    np.testing.assert_array_equal(u, free)


def test_a_state_without_the_channels_of_the_solution_is_refused():
    with pytest.raises(ValueError, match="keeps_range=True needs those of the solution, 2"):
        init(_model(), small_ctfno.state(4, 10, 1))


def test_there_is_no_certificate_but_of_the_network_alone():
    u0, model = small_ctfno.state(4, 10, 2), _model()
    variables = init(model, u0)
    with pytest.raises(ValueError, match="keeps_range=True has no certificate, but no answer leaves that range"):
        certify(model, variables, TIMES)
    assert np.all(certify(model.at_once(), variables, TIMES).lipschitz > 0)
