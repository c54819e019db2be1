"""The lines that tell how far a program is."""

import dataclasses
import io

import pytest

from ctfno_jax.training.loop import Report
from ctfno_jax.training.progress import GenerationLine, ProgressLine, duration


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0s"), (59.4, "59s"), (185, "3m05s"), (7800, "2h10m")])
def test_durations_are_short(seconds, text):
    assert duration(seconds) == text


def _reports() -> list[Report]:
    first = Report(100, 200, loss=0.25, steps_per_second=50.0, train_seconds=2.0, cpu_seconds=3.0, metrics=None)
    last = Report(200, 200, 0.125, 50.0, 4.0, 6.0, metrics={"error": 0.5})
    return [first, last]


def test_a_terminal_sees_one_line_rewritten():
    stream = _Terminal()
    line = ProgressLine("error", stream)
    for report in _reports():
        line(None, report)
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().count("\r") == 2
    assert "step    100/200  loss 2.50e-01  validation -  50 steps/s  2s left" in stream.getvalue()


def test_a_file_sees_one_line_per_evaluation():
    stream = io.StringIO()
    line = ProgressLine("error", stream)
    for report in _reports():
        line(None, report)
    assert stream.getvalue() == "step    200/200  loss 1.25e-01  validation 5.00e-01  50 steps/s  0s left\n"


def test_a_run_that_stops_ends_the_line_of_a_terminal():
    stream = _Terminal()
    ProgressLine("error", stream)(None, dataclasses.replace(_reports()[0], stopping=True))
    assert stream.getvalue().endswith("\n")


def test_a_long_line_is_cut_to_the_width_of_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    stream = _Terminal()
    ProgressLine("error", stream)(None, _reports()[1])
    assert len(stream.getvalue().removeprefix("\r\033[K").rstrip("\n")) == 29


def test_a_line_fits_80_columns():
    report = Report(12_345, 99_999, 1e-10, 12.3, 4.0, 6.0, metrics={"error": 1e-10})
    line = ProgressLine("error", _Terminal())
    line(None, report)
    assert len(line.line(report)) < 80


def _generate(stream, monkeypatch, *, seconds=10.0):
    """Two pieces of fifty trajectories, each of which takes as long."""
    now = [0.0]
    monkeypatch.setattr("ctfno_jax.training.progress.time.perf_counter", lambda: now[0])
    line = GenerationLine("burgers", stream)
    for ready in (50, 100):
        now[0] += seconds
        line(ready, 100)
    return stream.getvalue()


def test_generation_tells_how_far_it_is_and_how_long_it_will_take(monkeypatch):
    assert _generate(io.StringIO(), monkeypatch) == (
        "burgers: 50/100 samples ready\nburgers: 100/100 samples ready   0s left\n"
    )


def test_a_terminal_sees_one_line_of_generation(monkeypatch):
    text = _generate(_Terminal(), monkeypatch)
    assert (text.count("\r"), text.count("\n")) == (2, 1)
    assert text.endswith("\n")


def test_nothing_is_said_of_data_that_are_there_already():
    stream = io.StringIO()
    GenerationLine("heat", stream)
    assert stream.getvalue() == ""
