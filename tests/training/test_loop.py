"""The loop with a made-up step: how often it calls what, and what it does when a loss is not finite."""

import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.training import loop
from ctfno_jax.training import step as step_lib


def _state(step=0):
    zero = jnp.zeros(())
    return step_lib.TrainState(jnp.asarray(step), {"w": zero}, (), None, jnp.zeros(2, jnp.uint32))


class Recorder:
    """A compiled call of ``steps_per_call`` steps, an evaluation and a hook, which remember what they saw."""

    def __init__(self, steps_per_call, bad_step=None, bad_evaluation=None):
        self.steps_per_call, self.bad_step, self.bad_evaluation = steps_per_call, bad_step, bad_evaluation
        self.calls, self.evaluated, self.reports = [], [], []

    def multi_step(self, state, data):
        first = int(state.step)
        self.calls.append((first, data))
        losses = np.arange(first + 1, first + self.steps_per_call + 1, dtype=np.float32)
        if self.bad_step is not None:
            losses = np.where(losses == self.bad_step, np.nan, losses)
        done = first + self.steps_per_call
        return state.replace(step=jnp.asarray(done), params={"w": jnp.asarray(float(done))}), jnp.asarray(losses)

    def evaluate(self, params):
        done = int(params["w"])
        self.evaluated.append(done)
        return {"validation_rmse": np.inf if done == self.bad_evaluation else 1.0 / done}

    def hook(self, state, report):
        assert int(state.step) == report.step
        self.reports.append(report)

    def fit(self, num_steps, eval_every, start=0, **options):
        return loop.fit(
            _state(start), self.multi_step, "data", num_steps=num_steps, steps_per_call=self.steps_per_call,
            eval_every=eval_every, evaluate_fn=self.evaluate, hooks=[self.hook], **options,
        )  # fmt: skip


def test_calls_follow_each_other_until_all_steps_are_made():
    recorder = Recorder(3)
    state = recorder.fit(12, 6)
    assert recorder.calls == [(0, "data"), (3, "data"), (6, "data"), (9, "data")]
    assert int(state.step) == 12


@pytest.mark.parametrize(("eval_every", "expected"), [(3, [3, 6, 9, 12]), (6, [6, 12]), (9, [9, 12]), (30, [12])])
def test_evaluation_comes_when_due_and_after_the_last_step(eval_every, expected):
    recorder = Recorder(3)
    recorder.fit(12, eval_every)
    assert recorder.evaluated == expected
    assert [r.step for r in recorder.reports if r.metrics is not None] == expected


def test_hooks_see_every_call_with_its_mean_loss():
    recorder = Recorder(4)
    recorder.fit(8, 8)
    assert [(r.step, r.loss, r.num_steps) for r in recorder.reports] == [(4, 2.5, 8), (8, 6.5, 8)]
    assert recorder.reports[1].metrics == {"validation_rmse": 1 / 8}


def test_hooks_are_called_in_order():
    order = []
    recorder = Recorder(2)
    hooks = [lambda s, r: order.append(("first", r.step)), lambda s, r: order.append(("second", r.step))]
    loop.fit(
        _state(), recorder.multi_step, None, num_steps=4, steps_per_call=2, eval_every=4,
        evaluate_fn=recorder.evaluate, hooks=hooks,
    )  # fmt: skip
    assert order == [("first", 2), ("second", 2), ("first", 4), ("second", 4)]


def test_a_restored_state_goes_on_where_it_stands():
    recorder = Recorder(2)
    recorder.fit(10, 4, start=6, train_seconds=100.0)
    assert [first for first, _ in recorder.calls] == [6, 8]
    assert recorder.evaluated == [8, 10]
    assert recorder.reports[0].train_seconds >= 100.0


def test_a_finished_state_is_returned_as_it_is():
    recorder = Recorder(2)
    state = recorder.fit(10, 4, start=10)
    assert (recorder.calls, recorder.reports, int(state.step)) == ([], [], 10)


def test_a_loss_that_is_not_finite_stops_the_run_before_any_hook_sees_it():
    recorder = Recorder(3, bad_step=8)
    with pytest.raises(loop.TrainingDiverged, match="the loss became nan at step 8; the last good checkpoint is kept"):
        recorder.fit(12, 3)
    assert [r.step for r in recorder.reports] == [3, 6]
    assert recorder.evaluated == [3, 6]


def test_a_validation_error_that_is_not_finite_stops_the_run_before_any_hook_sees_it():
    recorder = Recorder(3, bad_evaluation=6)
    with pytest.raises(loop.TrainingDiverged, match=r"the validation error is .*inf.* after step 6"):
        recorder.fit(12, 3)
    assert [r.step for r in recorder.reports] == [3]


def test_time_left_is_the_remaining_steps_over_the_speed():
    report = loop.Report(step=30, num_steps=100, loss=1.0, steps_per_second=7.0, train_seconds=4.0, metrics=None)
    assert report.seconds_left == pytest.approx(10.0, rel=1e-12)
