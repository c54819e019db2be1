"""The search for M: what it trains, which candidate wins, and what it keeps."""

import json
import math
from pathlib import Path

import pytest
from helpers import small_runs, small_series

from ctfno_jax.config import ConfigError, ExperimentConfig
from ctfno_jax.training import checkpoint
from experiments import choose_bound

CANDIDATES = choose_bound.CANDIDATES
# As a function of M, with its least value in the middle.
ERRORS = {0.3: 0.9, 0.6: 0.5, 1.2: 0.2, 2.5: 0.4, 5.0: 0.6, 10.0: 0.8, None: 1.0}


class _Train:
    """Takes note of what it is asked to train, and returns the error of that M."""

    def __init__(self, errors=ERRORS):
        self.errors = errors
        self.calls: list[tuple[ExperimentConfig, Path]] = []

    def __call__(self, config, workdir):
        self.calls.append((config, workdir))
        return {"metrics": {checkpoint.METRIC: self.errors[config.model.model_fields["stability_bound"]]}}

    @property
    def configs(self):
        return [config for config, _ in self.calls]


def _refuse(config, workdir):
    pytest.fail(f"trained {config} in {workdir}")


def _config(**changes):
    return small_runs.config("ctfno", **changes)


def _fields(config):
    return dict(config.model.model_fields)


def _with_error(**changes):
    """The errors above but for the named ones; M with a dot is written as M2_5."""
    named = {f"M{'none' if bound is None else f'{bound:g}'.replace('.', '_')}": bound for bound in ERRORS}
    return {**ERRORS, **{named[name]: error for name, error in changes.items()}}


# --- what is trained ----------------------------------------------------------------------------------------------


def test_every_candidate_is_trained_once_in_a_folder_of_its_own(tmp_path):
    train = _Train()
    choose_bound.choose(_config(), tmp_path, train)
    assert [_fields(config)["stability_bound"] for config in train.configs] == list(CANDIDATES)
    folders = [folder.relative_to(tmp_path / "bound_search").as_posix() for _, folder in train.calls]
    assert folders == ["M_0.3", "M_0.6", "M_1.2", "M_2.5", "M_5", "M_10", "M_none"]


@pytest.mark.parametrize(
    ("steps", "per_call", "expected"), [(400, 2, 40), (60, 4, 8), (52, 4, 4), (4, 1, 1), (100, 100, 100)]
)
def test_candidates_take_a_tenth_of_the_steps_in_whole_calls(tmp_path, steps, per_call, expected):
    train = _Train()
    choose_bound.choose(_config(steps=steps, steps_per_call=per_call, eval_every=per_call), tmp_path, train)
    for config in train.configs:
        # One look at the validation set, at the end.
        assert (config.train.steps, config.train.eval_every) == (expected, expected)
        assert config.train.steps_per_call == per_call
        assert config.train.steps % per_call == 0


def test_candidates_differ_from_the_run_in_m_and_length_only(tmp_path):
    config, train = _config(learning_rate=0.02, batch_size=7), _Train()
    choose_bound.choose(config, tmp_path, train)
    for candidate in train.configs:
        assert (candidate.dataset, candidate.optimizer, candidate.seed) == (
            config.dataset,
            config.optimizer,
            config.seed,
        )
        assert {k: v for k, v in _fields(candidate).items() if k != "stability_bound"} == _fields(config)
        assert candidate.train.batch_size == 7


def test_the_result_is_the_run_with_the_best_m_and_all_of_its_steps(tmp_path):
    config = _config(steps=40)
    chosen = choose_bound.choose(config, tmp_path, _Train())
    assert chosen == choose_bound.with_bound(config, 1.2)
    assert (_fields(chosen)["stability_bound"], chosen.train.steps) == (1.2, 40)
    assert (chosen.train.eval_every, chosen.model.model) == (config.train.eval_every, "ctfno")


def test_models_of_series_have_an_m_too(tmp_path):
    config, train = small_series.config("ctfno"), _Train()
    assert _fields(choose_bound.choose(config, tmp_path, train))["stability_bound"] == 1.2
    assert len(train.calls) == len(CANDIDATES)


# --- which one wins -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("best", CANDIDATES)
def test_the_smallest_validation_error_wins(tmp_path, best):
    errors = {**dict.fromkeys(ERRORS, 1.0), best: 0.5}
    chosen = choose_bound.choose(_config(), tmp_path, _Train(errors))
    assert _fields(chosen)["stability_bound"] == best


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"M0_6": 0.2019}, 0.6),  # within a hundredth: the smaller one
        ({"M0_6": 0.2021}, 1.2),  # not within
        ({"M2_5": 0.2019}, 1.2),  # a larger one does not win by being close
        ({"M0_3": 0.2, "M5": 0.2}, 0.3),
        ({"M0_6": 0.2019, "M0_3": 0.2039}, 0.6),  # close to the least error, not to each other
        ({"Mnone": 0.199, "M10": 0.2, "M1_2": 0.3}, 10.0),  # without a bound is larger than any
        ({"Mnone": 0.19}, None),
    ],
)
def test_of_errors_that_are_close_the_smaller_m_wins(changes, expected):
    assert choose_bound.best(_with_error(**changes)) == expected


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_error_that_is_not_finite_never_wins(value):
    assert choose_bound.best(_with_error(M1_2=value)) == 2.5
    assert choose_bound.best({**dict.fromkeys(ERRORS, value), 10.0: 7.0}) == 10.0
    assert choose_bound.best({**dict.fromkeys(ERRORS, value), None: 7.0}) is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_without_any_finite_error_nothing_is_chosen_and_nothing_kept(tmp_path, value):
    message = "none of the candidates for stability_bound has a finite validation error; lower the rate"
    with pytest.raises(ConfigError, match=message):
        choose_bound.choose(_config(), tmp_path, _Train(dict.fromkeys(ERRORS, value)))
    assert not (tmp_path / "bound_search.json").exists()


# --- what is kept -------------------------------------------------------------------------------------------------


def test_what_was_tried_is_kept_and_printed(tmp_path, capsys):
    choose_bound.choose(_config(steps=40), tmp_path, _Train())
    kept = json.loads((tmp_path / "bound_search.json").read_text())
    assert (kept["chosen"], kept["steps"]) == (1.2, 4)
    assert {tried["stability_bound"]: tried[checkpoint.METRIC] for tried in kept["tried"]} == ERRORS
    text = capsys.readouterr().out
    assert "stability_bound=auto: 7 candidates, 4 steps each" in text
    assert "M = none  validation 1.0000e+00" in text
    assert "stability_bound=1.2 is taken" in text


@pytest.mark.parametrize("errors", [ERRORS, _with_error(Mnone=0.1)])
def test_a_second_start_reads_the_choice_and_trains_nothing(tmp_path, capsys, errors):
    first = choose_bound.choose(_config(), tmp_path, _Train(errors))
    capsys.readouterr()
    assert choose_bound.choose(_config(), tmp_path, _refuse) == first
    name = "none" if errors[None] < 0.2 else "1.2"
    assert capsys.readouterr().out == f"stability_bound={name}, as {tmp_path / 'bound_search.json'} says\n"


# --- models and rules ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config", [small_runs.config("fno_rnn"), small_runs.config("deeponet"), small_series.config("node")]
)
def test_a_model_without_a_bound_is_refused(tmp_path, config):
    name = config.model.model
    with pytest.raises(ConfigError, match=f"model {name} has no stability_bound to choose; remove --stability_bound"):
        choose_bound.choose(config, tmp_path, _refuse)
    assert not list(tmp_path.iterdir())


def _with_rule():
    fields = {**small_runs.FIELDS["ctfno"], "stability_bound": 3.0, "stability_rule": "rows_and_columns"}
    return _config(model_fields=fields)


def test_without_a_bound_there_is_no_rule(tmp_path):
    train = _Train(_with_error(Mnone=0.1))
    chosen = choose_bound.choose(_with_rule(), tmp_path, train)
    assert _fields(chosen) == {**small_runs.FIELDS["ctfno"], "stability_bound": None}
    rules = [_fields(config).get("stability_rule") for config in train.configs]
    assert rules == ["rows_and_columns"] * 6 + [None]


def test_with_a_bound_the_rule_stays(tmp_path):
    chosen = choose_bound.choose(_with_rule(), tmp_path, _Train())
    assert _fields(chosen) == {**_fields(_with_rule()), "stability_bound": 1.2}


@pytest.mark.parametrize("bound", [0.6, None])
def test_other_seeds_get_the_m_that_was_chosen_for_the_first(bound):
    chosen = choose_bound.with_bound(_config(steps=8), bound)
    other = choose_bound.with_same_bound(_with_rule(), chosen)
    assert other == choose_bound.with_bound(_with_rule(), bound)
    assert other.train.steps == _with_rule().train.steps
