"""Time to accuracy: a run is stopped at its target, and one that ends before is an error."""

import json

import pytest

from ctfno_jax.config import ConfigError
from experiments import tables, time_to_accuracy, timing_lines
from experiments.cells import Cell

TINY = {
    "width": 4, "modes": (4,), "time_width": 8, "time_features": 4, "num_train": 8, "num_validation": 2,
    "batch_size": 4, "train_grid": 64, "steps_per_call": 1, "eval_every": 1, "data_seed": 0,
}  # fmt: skip


def test_settings_of_every_target_exist():
    for target, settings in time_to_accuracy.TARGETS:
        config = Cell("pde", "heat", "ctfno", overrides=settings).config()
        assert config.train.steps == settings["steps"]
        assert 0 < target < 1e-3


def test_the_table_has_a_line_for_every_target():
    start = {"seconds": 41.6, "cpu_seconds": 63.2, "step": 700}
    made = {
        "devices": ["cpu:cpu"],
        "cores": 2,
        "targets": [{"target": 2.6e-4, "cold": start, "warm": {**start, "seconds": 30.2}}],
    }
    title, lines = timing_lines.TIMINGS["time_to_accuracy"](made)
    assert title.endswith("on CPU with 2 cores")
    assert lines[1] == ["0.00026", "42", "63", "700", "30", "63"]
    assert tables.layout(lines, "text")


def test_the_first_step_at_the_target_is_found_in_a_file_that_grows(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert time_to_accuracy._reached(path, 1.0) is None
    lines = [{"step": 1}, {"step": 2, "validation_rmse": 0.5}, {"step": 3, "validation_rmse": 0.1}]
    path.write_text("\n".join(map(json.dumps, lines)) + '\n{"step": 4, "valid')
    assert [time_to_accuracy._reached(path, t) for t in (0.5, 0.2, 0.05)] == [2, 3, None]


@pytest.mark.slow
def test_a_run_is_stopped_at_its_target_and_one_that_ends_before_is_an_error(tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    long, short = (Cell("pde", "heat", "ctfno", overrides={**TINY, "steps": n}) for n in (100000, 1))
    found = time_to_accuracy.reach(long, 10.0, tmp_path, "long")
    assert found["step"] == 1
    assert found["seconds"] > 0
    assert found["cpu_seconds"] > 0
    with pytest.raises(ConfigError, match="ended before its validation error was 1e-09"):
        time_to_accuracy.reach(short, 1e-9, tmp_path, "short")
