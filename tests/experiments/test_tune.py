"""Trials of settings: on validation data of their own, kept and ordered by their errors."""

import json

import pytest
from helpers import program_flags

from ctfno_jax.config import ConfigError
from ctfno_jax.training import loop
from experiments import configs, jobs, program, table_lines, tables, tune

TINY = (
    "width=4 modes=4 time_width=8 time_features=4 num_train=4 num_validation=2 batch_size=2 train_grid=64 steps=2 "
    "steps_per_call=1 eval_every=1"
)


def test_a_trial_has_data_of_its_own_and_a_part_of_the_steps():
    cell = tune.trial("heat", "ctfno", "learning_rate=5e-3 depth=3", seed=2, fraction=0.25)
    default = configs.cell("pde", "heat", "ctfno")
    config = cell.config()
    assert config.data.data_seed == 0 != default.data.data_seed
    assert config.train.steps == pytest.approx(default.train.steps / 4, abs=50)
    assert (config.optimizer.learning_rate, config.network.network_fields["depth"], config.seed) == (5e-3, 3, 2)
    assert tune.settings(cell) == "depth=3 learning_rate=0.005"
    assert tune.settings(tune.trial("heat", "ctfno", "", 0, 0.5)) == f"learning_rate={default.optimizer.learning_rate}"
    assert tune.trial("heat", "ctfno", "steps=300", 0, 0.25).config().train.steps == 300


def test_experiments_of_data_sets():
    found = {name: tune.trial(name, configs.models(name)[0], "", 0, 0.25).experiment for name in configs.DATASETS}
    assert found["heat"] == found["navier_stokes"] == "pde"
    assert found["reaction"] == found["spiral"] == "synthetic"
    assert found["plane_vibration"] == "vibration"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("depht=3", "a trial of ctfno on heat is name=value with its settings, got 'depht=3'"),
        ("depth", "got 'depth'"),
        ("decay_steps=5", "schedule one_cycle does not read decay_steps"),
    ],
)
def test_a_setting_that_does_not_exist_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        tune.trial("heat", "ctfno", text, seed=0, fraction=0.25)


def test_trials_are_told_apart_by_all_their_settings():
    digests = {
        tune.digest(tune.trial("heat", "ctfno", text, seed, fraction))
        for text in ("", "depth=3") for seed in (0, 1) for fraction in (0.25, 0.5)
    }  # fmt: skip
    assert len(digests) == 8
    given = configs.cell("pde", "heat", "ctfno").optimizer.learning_rate
    same = [tune.trial("heat", "ctfno", text, 0, 0.25) for text in ("", f"learning_rate={given}")]
    assert tune.digest(same[0]) == tune.digest(same[1])


def test_a_damaged_file_of_trials_is_named(tmp_path):
    file = tmp_path / "heat-ctfno.json"
    file.write_text('{"trials": 3}')
    with pytest.raises(ConfigError, match=r"heat-ctfno\.json holds no trials; remove it and run its trials again"):
        table_lines.read_trials(file)


def test_the_table_of_trials_has_the_best_first(tmp_path):
    known = {"seed": 0, "steps": 100, "config": "0"}
    found = [
        {**known, "settings": "a", "validation": 0.02, "cpu_seconds": 7.4},
        {**known, "settings": "b", "validation": None, "failure": "error"},
        {**known, "settings": "c", "validation": 0.01, "cpu_seconds": 8.0},
    ]
    (tmp_path / "trials").mkdir()
    for model in ("ctfno", "fno_2d"):
        (tmp_path / "trials" / f"heat-{model}.json").write_text(json.dumps({"trials": found}))
    lines = [line.split() for line in tables.render("trials", tmp_path).splitlines()]
    assert lines[0] == ["heat"]
    assert lines[2:5] == [
        ["ctfno", "c", "0", "100", "8", "1.000"], ["ctfno", "a", "0", "100", "7", "2.000"],
        ["ctfno", "b", "0", "100", "-", "diverged"],
    ]  # fmt: skip
    assert [line[0] for line in lines[5:]] == ["fno_2d"] * 3


def test_a_trial_is_kept_as_soon_as_it_ends(tmp_path, monkeypatch):
    program_flags.parse(
        monkeypatch, f"--results_dir={tmp_path}", f"--runs={tmp_path}", f"--trial={TINY}", f"--trial={TINY} depth=3",
        experiment="tune",
    )  # fmt: skip

    def stopped_after_one(todo, jobs_at_once, what, ended):
        ended(todo[0], jobs.Failure(todo[0], program.DIVERGED, "the loss is nan"))
        raise loop.Interrupted("stopped after 1 of 2 trials")

    monkeypatch.setattr(jobs, "run", stopped_after_one)
    with pytest.raises(loop.Interrupted):
        tune.main()
    (kept,) = table_lines.read_trials(tmp_path / "trials" / "heat-ctfno.json")
    assert kept["failure"] == "the loss is nan"


@pytest.mark.slow
def test_trials_are_run_once_and_reported_best_first(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # one device in the jobs
    given = [
        f"--results_dir={tmp_path}", f"--runs={tmp_path / 'runs'}", f"--trial={TINY}",
        f"--trial={TINY} learning_rate=1e30 clip_norm=0", f"--trial={TINY} learning_rate=1e-9", "--jobs=2",
    ]  # fmt: skip
    program_flags.parse(monkeypatch, *given, experiment="tune")
    tune.main()
    kept = json.loads((tmp_path / "trials" / "heat-ctfno.json").read_text())["trials"]
    assert len(kept) == 3
    (diverged,) = [item for item in kept if item["validation"] is None]
    assert "try a smaller learning_rate" in diverged["failure"]
    errors = sorted(item["validation"] for item in kept if item is not diverged)
    assert errors[0] > 0
    assert all(item["cpu_seconds"] > 0 and item["steps"] == 2 for item in kept if item["validation"])
    printed = capsys.readouterr().out.splitlines()
    shown = [line.split()[-1] for line in printed[-3:]]
    assert shown == [*(f"{error:.4e}" for error in errors), "diverged"]
    # No run of a trial has test errors.
    for result in (tmp_path / "runs" / "trials").glob("*/result.json"):
        assert json.loads(result.read_text())["evaluated_on"] == "validation"
    monkeypatch.setattr(jobs, "start", lambda *_: pytest.fail("a trial was run twice"))
    tune.main()
