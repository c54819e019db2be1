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


# --- several runs at once -----------------------------------------------------------------------------------------


def _fit_together(recorders, num_steps, eval_every, start=0, evaluate=None, **options):
    """Runs with a recorder each; parameters of the second one are a thousand ahead."""

    def multi_step(states, data):
        results = [recorder.multi_step(state, data) for recorder, state in zip(recorders, states, strict=True)]
        ahead = [state.replace(params={"w": state.params["w"] + 1000 * i}) for i, (state, _) in enumerate(results)]
        return ahead, [losses * (i + 1) for i, (_, losses) in enumerate(results)]

    return loop.fit_together(
        [_state(start) for _ in recorders], multi_step, "data", num_steps=num_steps,
        steps_per_call=recorders[0].steps_per_call, eval_every=eval_every,
        evaluate_fn=evaluate or recorders[0].evaluate, hooks=[[recorder.hook] for recorder in recorders], **options,
    )  # fmt: skip


def test_runs_at_once_step_together_and_report_to_their_own_hooks():
    recorders = [Recorder(4), Recorder(4), Recorder(4)]
    states = _fit_together(recorders, 8, 8)
    assert [int(state.step) for state in states] == [8, 8, 8]
    for i, recorder in enumerate(recorders):
        assert recorder.calls == [(0, "data"), (4, "data")]
        assert [(r.step, r.loss) for r in recorder.reports] == [(4, 2.5 * (i + 1)), (8, 6.5 * (i + 1))]
        assert [r.metrics for r in recorder.reports] == [None, {"validation_rmse": 1 / (8 + 1000 * i)}]


def test_one_run_together_is_a_run():
    alone, together = Recorder(3), Recorder(3)
    state = alone.fit(12, 6, start=3)
    (other,) = _fit_together([together], 12, 6, start=3)
    assert (together.calls, together.evaluated) == (alone.calls, alone.evaluated)
    assert float(other.params["w"]) == float(state.params["w"])
    pick = lambda r: (r.step, r.num_steps, r.loss, r.metrics)  # noqa: E731
    assert [pick(r) for r in together.reports] == [pick(r) for r in alone.reports]


def test_a_loss_of_one_run_that_is_not_finite_stops_all_before_any_hook_sees_it():
    recorders = [Recorder(3), Recorder(3, bad_step=5)]
    with pytest.raises(loop.TrainingDiverged, match="the loss became nan at step 5"):
        _fit_together(recorders, 9, 3)
    assert [[r.step for r in recorder.reports] for recorder in recorders] == [[3], [3]]


def test_a_validation_error_of_one_run_that_is_not_finite_is_not_seen_by_its_hooks():
    recorders = [Recorder(3), Recorder(3)]
    evaluate = lambda params: {"validation_rmse": np.nan if int(params["w"]) == 1006 else 1.0}  # noqa: E731
    with pytest.raises(loop.TrainingDiverged, match=r"the validation error is .*nan.* after step 6"):
        _fit_together(recorders, 9, 3, evaluate=evaluate)
    assert [r.step for r in recorders[1].reports] == [3]


def test_seconds_are_shared_by_the_runs(monkeypatch):
    clock = iter([0.0, 10.0, 100.0, 104.0])  # before and after each of two calls
    monkeypatch.setattr(loop.time, "perf_counter", lambda: next(clock))
    recorders = [Recorder(4), Recorder(4)]
    _fit_together(recorders, 8, 8, train_seconds=7.0)
    for recorder in recorders:
        assert [r.train_seconds for r in recorder.reports] == [12.0, 14.0]
        assert [r.steps_per_second for r in recorder.reports] == [4 / 5, 4 / 2]


def test_runs_that_stand_at_different_steps_are_refused():
    recorder = Recorder(2)
    with pytest.raises(ValueError, match="must stand at the same step"):
        loop.fit_together(
            [_state(0), _state(2)], lambda s, d: (s, []), None, num_steps=4, steps_per_call=2, eval_every=4,
            evaluate_fn=recorder.evaluate, hooks=[[], []],
        )  # fmt: skip
