"""The lines that tell how far a program is."""

import io

import pytest

from ctfno_jax.training.loop import Report
from experiments.progress import GenerationLine, ProgressLine, duration


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0s"), (59.4, "59s"), (185, "3m05s"), (7800, "2h10m")])
def test_durations_are_short(seconds, text):
    assert duration(seconds) == text


def _reports() -> list[Report]:
    first = Report(step=100, num_steps=200, loss=0.25, steps_per_second=50.0, train_seconds=2.0, metrics=None)
    last = Report(
        step=200, num_steps=200, loss=0.125, steps_per_second=50.0, train_seconds=4.0, metrics={"validation_rmse": 0.5}
    )
    return [first, last]


def test_a_terminal_sees_one_line_rewritten():
    stream = _Terminal()
    line = ProgressLine(stream)
    for report in _reports():
        line(None, report)
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().count("\r") == 2
    assert "step    100/200   loss 2.500e-01   validation -   50.0 steps/s   2s left" in stream.getvalue()


def test_a_file_sees_one_line_per_evaluation():
    stream = io.StringIO()
    line = ProgressLine(stream)
    for report in _reports():
        line(None, report)
    assert stream.getvalue() == ("step    200/200   loss 1.250e-01   validation 5.000e-01   50.0 steps/s   0s left\n")


def _generate(stream, monkeypatch, *, seconds=10.0):
    """Two pieces of fifty trajectories, each of which takes as long."""
    now = [0.0]
    monkeypatch.setattr("experiments.progress.time.perf_counter", lambda: now[0])
    line = GenerationLine("burgers", stream)
    for ready in (50, 100):
        now[0] += seconds
        line(ready, 100)
    return stream.getvalue()


def test_generation_tells_how_far_it_is_and_how_long_it_will_take(monkeypatch):
    assert _generate(io.StringIO(), monkeypatch) == (
        "burgers: generated 50/100 trajectories\nburgers: generated 100/100 trajectories   0s left\n"
    )


def test_a_terminal_sees_one_line_of_generation(monkeypatch):
    text = _generate(_Terminal(), monkeypatch)
    assert (text.count("\r"), text.count("\n")) == (2, 1)
    assert text.endswith("\n")


def test_nothing_is_said_of_data_that_are_there_already():
    stream = io.StringIO()
    GenerationLine("heat", stream)
    assert stream.getvalue() == ""
