"""CTFNO with a start and a horizon: exact at time zero, one step within the horizon, a composition beyond it."""

import jax
import numpy as np
import pytest
from helpers import small_ctfno
from helpers.small_ctfno import ATOL, init, run

from ctfno_jax.models import marching
from ctfno_jax.models.ctfno import CTFNO

HORIZON = 0.3
STEPPING = dict(coordinates=False, start="state", rise_time=0.1, horizon=HORIZON, max_steps=4)


def _model(**changes) -> CTFNO:
    return small_ctfno.model_of(**{**STEPPING, **changes})


def _one_step(model: CTFNO) -> CTFNO:
    return model.clone(horizon=None, max_steps=16)


def test_at_time_zero_the_solution_is_the_state():
    u0 = small_ctfno.state(3, 10, 5)
    for model in (_model(), _model(horizon=None, max_steps=16)):
        u = run(model, init(model, u0), u0, np.zeros(1, np.float32))
        np.testing.assert_array_equal(u[:, 0], u0[..., :2])


def test_what_is_added_rises_with_time():
    """Against the same network without a start, whose answers are what is added."""
    u0 = small_ctfno.state(3, 10, 2)
    model = _model(horizon=None, max_steps=16)
    variables, times = init(model, u0), np.array([0.1, 0.9], np.float32)
    added = run(model.at_once(), variables, u0, times)
    expected = u0[:, None] + np.array([0.5, 0.9], np.float32)[:, None, None] * added
    np.testing.assert_allclose(run(model, variables, u0, times), expected, atol=ATOL)


def test_within_the_horizon_it_is_one_step():
    u0, times = small_ctfno.state(3, 10, 2), np.array([0.3, 0.1, 0.2], np.float32)
    model = _model()
    variables = init(model, u0)
    np.testing.assert_allclose(run(model, variables, u0, times), run(_one_step(model), variables, u0, times), atol=ATOL)


@pytest.mark.parametrize(("time", "steps"), [(0.31, 1), (0.6, 1), (0.61, 2), (0.9, 2), (1.1, 3)])
def test_beyond_the_horizon_steps_are_composed(time, steps):
    """Channels that the solution does not have go along unchanged."""
    u0 = small_ctfno.state(3, 10, 5)
    model = _model()
    variables, state = init(model, u0), u0
    for dt in (*[HORIZON] * steps, time - steps * HORIZON):
        u = run(_one_step(model), variables, state, np.array([dt], np.float32))[:, 0]
        state = np.concatenate([u, u0[..., 2:]], axis=-1)
    np.testing.assert_allclose(run(model, variables, u0, np.array([time], np.float32))[:, 0], u, atol=10 * ATOL)


def test_a_step_after_a_whole_horizon_is_a_semigroup():
    u0 = small_ctfno.state(3, 10, 2)
    model = _model()
    variables = init(model, u0)
    later = run(model, variables, u0, np.array([HORIZON], np.float32))[:, 0]
    for time in (0.05, 0.3, 0.5):
        at_once = run(model, variables, u0, np.array([HORIZON + time], np.float32))
        np.testing.assert_allclose(run(model, variables, later, np.array([time], np.float32)), at_once, atol=10 * ATOL)


def test_times_of_each_sample_in_any_order():
    u0 = small_ctfno.state(3, 10, 2)
    own = np.array([[0.7, 0.1], [0.0, 1.1], [0.4, 0.3]], np.float32)
    model = _model()
    variables = init(model, u0)
    together = run(model, variables, u0, own)
    for i in range(3):
        np.testing.assert_allclose(together[i : i + 1], run(model, variables, u0[i : i + 1], own[i]), atol=10 * ATOL)


def test_a_model_with_another_start_may_have_a_horizon_too():
    u0 = small_ctfno.state(3, 10, 2)
    model = _model(start="free", rise_time=None)
    variables = init(model, u0)
    first = run(_one_step(model), variables, u0, np.array([HORIZON], np.float32))[:, 0]
    second = run(_one_step(model), variables, first, np.array([0.2], np.float32))
    np.testing.assert_allclose(run(model, variables, u0, np.array([0.5], np.float32)), second, atol=10 * ATOL)


def test_a_rollout_goes_from_time_to_time():
    u0 = small_ctfno.state(3, 10, 5)
    model = _model()
    variables = init(model, u0)
    times = np.array([[0.1, 0.35], [0.2, 0.5], [0.3, 0.4]], np.float32)
    u = model.apply(variables, u0, times, method="rollout")
    first = run(_one_step(model), variables, u0, times[:, :1])
    state = marching.next_state(first[:, 0], u0)
    second = run(_one_step(model), variables, state, times[:, 1:] - times[:, :1])
    np.testing.assert_allclose(u, np.concatenate([first, second], axis=1), atol=ATOL)


@pytest.mark.slow
def test_derivatives_reach_every_parameter_through_all_steps():
    u0 = small_ctfno.state(3, 10, 2)
    model = _model()
    by_params, by_state = small_ctfno.slopes(model, init(model, u0), u0, np.array([0.8], np.float32))
    for leaf in jax.tree.leaves((by_params, by_state)):
        assert np.all(np.isfinite(leaf))
        assert np.any(leaf != 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"start": "rest"}, "start must be one of free, state, sound, got 'rest'"),
        ({"rise_time": None}, "start='state' needs a rise_time"),
        ({"start": "free"}, "start='free' does not read rise_time; leave it out"),
        ({"rise_time": 0.0}, "rise_time must be positive and finite, or None, got 0.0"),
        ({"horizon": -1.0}, "horizon must be positive and finite, or None, got -1.0"),
        ({"horizon": float("inf")}, "horizon must be positive and finite, or None, got inf"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"horizon": None}, "max_steps=4 needs a horizon, got None"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(fields, message):
    u0 = small_ctfno.state(3, 10, 2)
    with pytest.raises(ValueError, match=message):
        init(_model(**{"rise_time": 0.1, **fields}), u0)


def test_states_that_lack_channels_are_refused():
    message = (
        "u0 has 1 channels, but start='state' with horizon=0.3 and keeps_range=False needs those of the solution, 2"
    )
    with pytest.raises(ValueError, match=message):
        init(_model(), small_ctfno.state(2, 8, 1))


def test_times_after_the_last_step_are_named():
    model = _model(max_steps=3)
    assert model.answerable(np.array([0.9, 0.1])) is None
    assert _model(horizon=None, max_steps=16).answerable(np.array([99.0])) is None
    assert "3 steps of 0.3 end at 0.9, but t=1 was asked for; raise max_steps" in str(model.answerable(np.array([1.0])))
