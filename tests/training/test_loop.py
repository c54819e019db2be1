"""The loop with a made-up step: how often it calls what, and what it does when a loss is not finite."""

import os
import signal

import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.config import TrainConfig
from ctfno_jax.training import loop
from ctfno_jax.training import step as step_lib
from ctfno_jax.training.task import Buckets


def _state(step=0):
    zero = jnp.zeros(())
    return step_lib.TrainState(jnp.asarray(step), {"w": zero}, (), None, jnp.zeros(2, jnp.uint32))


class Recorder:
    """A compiled call of ``steps_per_call`` steps, an evaluation and a hook, which remember what they saw."""

    def __init__(self, steps_per_call, bad_step=None, bad_evaluation=None):
        self.steps_per_call, self.bad_step, self.bad_evaluation = steps_per_call, bad_step, bad_evaluation
        self.calls, self.evaluated, self.reports = [], [], []

    def one(self, state, data):
        first = int(state.step)
        self.calls.append((first, data))
        losses = np.arange(first + 1, first + self.steps_per_call + 1, dtype=np.float32)
        if self.bad_step is not None:
            losses = np.where(losses == self.bad_step, np.nan, losses)
        done = first + self.steps_per_call
        return state.replace(step=jnp.asarray(done), params={"w": jnp.asarray(float(done))}), jnp.asarray(losses)

    def multi_step(self, states, data):
        (state,) = states
        state, losses = self.one(state, data)
        return [state], [losses]

    def evaluate(self, params):
        done = int(params["w"])
        self.evaluated.append(done)
        return {"validation_rmse": np.inf if done == self.bad_evaluation else 1.0 / done}

    def hook(self, state, report):
        assert int(state.step) == report.step
        self.reports.append(report)

    def fit(self, num_steps, eval_every, start=0, data="data", hooks=(), **options):
        config = TrainConfig(num_steps, self.steps_per_call, eval_every)
        (state,) = loop.fit(
            [_state(start)], self.multi_step, data, config=config, evaluate_fn=self.evaluate,
            hooks=[[self.hook, *hooks]], **options,
        )  # fmt: skip
        return state


def test_calls_follow_each_other_until_all_steps_are_made():
    recorder = Recorder(3)
    state = recorder.fit(12, 6)
    assert recorder.calls == [(0, "data"), (3, "data"), (6, "data"), (9, "data")]
    assert int(state.step) == 12


def test_buckets_give_each_call_the_arrays_of_its_turn():
    """The turn depends on the number of the call, so a resumed run reads what an uninterrupted one would."""
    buckets = Buckets(["short", "long"], order=(0, 1, 1))
    whole, resumed = Recorder(2), Recorder(2)
    whole.fit(10, 10, data=buckets)
    resumed.fit(10, 10, start=4, data=buckets)
    assert [data for _, data in whole.calls] == ["short", "long", "long", "short", "long"]
    assert resumed.calls == whole.calls[2:]


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
    hooks = [lambda s, r: order.append(("first", r.step)), lambda s, r: order.append(("second", r.step))]
    Recorder(2).fit(4, 4, hooks=hooks)
    assert order == [("first", 2), ("second", 2), ("first", 4), ("second", 4)]


def test_a_restored_state_goes_on_where_it_stands():
    recorder = Recorder(2)
    recorder.fit(10, 4, start=6, spent=loop.Spent(100.0, 50.0))
    assert [first for first, _ in recorder.calls] == [6, 8]
    assert recorder.evaluated == [8, 10]
    assert recorder.reports[0].train_seconds >= 100.0
    assert recorder.reports[0].cpu_seconds >= 50.0


def test_a_finished_state_is_returned_as_it_is():
    recorder = Recorder(2)
    state = recorder.fit(10, 4, start=10)
    assert (recorder.calls, recorder.reports, int(state.step)) == ([], [], 10)


def test_a_loss_that_is_not_finite_stops_the_run_before_any_hook_sees_it():
    recorder = Recorder(3, bad_step=8)
    with pytest.raises(
        loop.TrainingDiverged, match=r"the loss became nan at step 8; earlier checkpoints are kept; try a"
    ):
        recorder.fit(12, 3)
    assert [r.step for r in recorder.reports] == [3, 6]
    assert recorder.evaluated == [3, 6]


def test_a_validation_error_that_is_not_finite_stops_the_run_before_any_hook_sees_it():
    recorder = Recorder(3, bad_evaluation=6)
    with pytest.raises(loop.TrainingDiverged, match=r"the validation error is .*inf.* after step 6"):
        recorder.fit(12, 3)
    assert [r.step for r in recorder.reports] == [3]


def test_time_left_is_the_remaining_steps_over_the_speed():
    report = loop.Report(30, 100, loss=1.0, steps_per_second=7.0, train_seconds=4.0, cpu_seconds=5.0, metrics=None)
    assert report.seconds_left == pytest.approx(10.0, rel=1e-12)


# --- signals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_after_the_call_with_a_last_report(number):
    recorder, before = Recorder(2), signal.getsignal(number)
    made = recorder.one
    recorder.one = lambda state, data: (
        os.kill(os.getpid(), number) if int(state.step) == 4 else None,
        made(state, data),
    )[1]
    with pytest.raises(loop.Interrupted, match="stopped at step 6 of 12"):
        recorder.fit(12, 4)
    assert [(r.step, r.stopping) for r in recorder.reports] == [(2, False), (4, False), (6, True)]
    assert signal.getsignal(number) is before


def test_a_signal_while_hooks_run_stops_only_after_a_state_that_knows_of_it():
    """What was saved without the request may not be the last state: the next call ends the run."""
    recorder = Recorder(2)
    hook = lambda state, report: os.kill(os.getpid(), signal.SIGTERM) if report.step == 4 else None  # noqa: E731
    with pytest.raises(loop.Interrupted, match="stopped at step 6 of 12"):
        recorder.fit(12, 12, hooks=[hook])
    assert [(r.step, r.stopping) for r in recorder.reports] == [(2, False), (4, False), (6, True)]


def test_a_second_signal_does_not_wait():
    def twice(state, report):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)

    recorder = Recorder(2)
    with pytest.raises(KeyboardInterrupt):
        recorder.fit(12, 4, hooks=[twice])
    assert [r.step for r in recorder.reports] == [2]


def test_a_signal_in_the_last_call_does_not_hurt():
    recorder = Recorder(2)
    hook = lambda state, report: os.kill(os.getpid(), signal.SIGTERM) if report.step == 4 else None  # noqa: E731
    assert int(recorder.fit(4, 4, hooks=[hook]).step) == 4
    assert not recorder.reports[-1].stopping


# --- several runs at once -----------------------------------------------------------------------------------------


def _fit_together(recorders, num_steps, eval_every, start=0, evaluate=None, **options):
    """Runs with a recorder each; parameters of the second one are a thousand ahead."""

    def multi_step(states, data):
        results = [recorder.one(state, data) for recorder, state in zip(recorders, states, strict=True)]
        ahead = [state.replace(params={"w": state.params["w"] + 1000 * i}) for i, (state, _) in enumerate(results)]
        return ahead, [losses * (i + 1) for i, (_, losses) in enumerate(results)]

    return loop.fit(
        [_state(start) for _ in recorders], multi_step, "data",
        config=TrainConfig(num_steps, recorders[0].steps_per_call, eval_every),
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


def test_a_loss_of_one_run_that_is_not_finite_stops_all_before_any_hook_sees_it():
    recorders = [Recorder(3), Recorder(3, bad_step=5)]
    with pytest.raises(loop.TrainingDiverged, match="the loss became nan at step 5"):
        _fit_together(recorders, 9, 3)
    assert [[r.step for r in recorder.reports] for recorder in recorders] == [[3], [3]]


def test_a_validation_error_of_one_run_that_is_not_finite_stops_all_before_any_hook_sees_it():
    recorders = [Recorder(3), Recorder(3)]
    evaluate = lambda params: {"validation_rmse": np.nan if int(params["w"]) == 1006 else 1.0}  # noqa: E731
    with pytest.raises(loop.TrainingDiverged, match=r"the validation error is .*nan.* after step 6"):
        _fit_together(recorders, 9, 3, evaluate=evaluate)
    assert [[r.step for r in recorder.reports] for recorder in recorders] == [[3], [3]]


def test_seconds_are_shared_by_the_runs(monkeypatch):
    clock = iter([0.0, 10.0, 100.0, 104.0])  # before and after each of two calls
    cpu = iter([5.0, 25.0, 45.0])  # before the loop and after each call
    monkeypatch.setattr(loop.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(loop.time, "process_time", lambda: next(cpu))
    recorders = [Recorder(4), Recorder(4)]
    _fit_together(recorders, 8, 8, spent=loop.Spent(7.0, 1.0))
    for recorder in recorders:
        assert [r.train_seconds for r in recorder.reports] == [12.0, 14.0]
        assert [r.cpu_seconds for r in recorder.reports] == [11.0, 21.0]
        assert [r.steps_per_second for r in recorder.reports] == [4 / 5, 4 / 2]


def test_runs_that_stand_at_different_steps_are_refused():
    recorder = Recorder(2)
    with pytest.raises(ValueError, match="must stand at the same step"):
        loop.fit(
            [_state(0), _state(2)], recorder.multi_step, None, config=TrainConfig(4, 2, 4),
            evaluate_fn=recorder.evaluate, hooks=[[], []],
        )  # fmt: skip
