"""The search for M: what it trains, which candidate wins, and what it keeps."""

import json
import math

import pytest

from ctfno_jax.config import ConfigError
from ctfno_jax.training import loop
from experiments import choose_bound
from experiments.cells import Cell

CANDIDATES = choose_bound.CANDIDATES
# As a function of M, with its least value in the middle.
ERRORS = {0.3: 0.9, 0.6: 0.5, 1.2: 0.2, 2.5: 0.4, 5.0: 0.6, 10.0: 0.8, None: 1.0}
CELL = Cell("pde", "heat", "ctfno", "quick", 3, {"steps": 400, "learning_rate": 0.02})


class _Train:
    """Takes note of what it is asked to train, and returns the error of that M; None for a run that diverges."""

    def __init__(self, errors=ERRORS):
        self.errors, self.cells, self.folders = errors, [], []

    def __call__(self, cell, workdir):
        self.cells.append(cell)
        self.folders.append(workdir)
        error = self.errors[cell.overrides["stability_bound"]]
        if error is None:
            raise loop.TrainingDiverged("the loss became nan")
        return {"metrics": {"validation_rmse": error}}


def _refuse(cell, workdir):
    pytest.fail(f"trained {cell} in {workdir}")


def _with_error(**changes):
    """The errors above but for the named ones; M with a dot is written as M2_5."""
    named = {f"M{'none' if bound is None else f'{bound:g}'.replace('.', '_')}": bound for bound in ERRORS}
    return {**ERRORS, **{named[name]: error for name, error in changes.items()}}


# --- what is trained ----------------------------------------------------------------------------------------------


def test_every_candidate_is_trained_once_in_a_folder_of_its_own(tmp_path):
    train = _Train()
    assert choose_bound.choose(CELL, tmp_path, train) == 1.2
    assert [cell.overrides["stability_bound"] for cell in train.cells] == list(CANDIDATES)
    folders = [folder.relative_to(tmp_path / "bound_search").as_posix() for folder in train.folders]
    assert folders == ["M_0.3", "M_0.6", "M_1.2", "M_2.5", "M_5", "M_10", "M_none"]


def test_candidates_differ_from_the_run_in_m_and_length_only(tmp_path):
    train = _Train()
    choose_bound.choose(CELL, tmp_path, train)
    for cell in train.cells:
        assert cell.overrides == {
            **CELL.overrides,
            "stability_bound": cell.overrides["stability_bound"],
            # A tenth of the steps in whole calls, and one evaluation at the end.
            "steps": 100,
            "eval_every": 100,
        }
        assert (cell.dataset, cell.model, cell.preset, cell.seed) == ("heat", "ctfno", "quick", 3)
        cell.config()


@pytest.mark.parametrize(
    ("steps", "per_call", "expected"), [(400, 2, 40), (60, 4, 8), (52, 4, 4), (4, 1, 1), (100, 100, 100)]
)
def test_candidates_take_a_tenth_of_the_steps_in_whole_calls(steps, per_call, expected):
    assert choose_bound.short(steps, per_call) == expected


def test_models_of_series_have_an_m_too(tmp_path):
    assert choose_bound.choose(Cell("synthetic", "sine", "ctfno"), tmp_path, _Train()) == 1.2


@pytest.mark.parametrize(("dataset", "model"), [("heat", "fno_rnn"), ("heat", "deeponet"), ("sine", "node")])
def test_a_model_without_a_bound_is_refused(tmp_path, dataset, model):
    cell = Cell("pde", dataset, model)
    with pytest.raises(ConfigError, match=r"network \w+ has no stability_bound; remove --stability_bound"):
        choose_bound.choose(cell, tmp_path, _refuse)
    assert not list(tmp_path.iterdir())


# --- which one wins -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("best", CANDIDATES)
def test_the_smallest_validation_error_wins(best):
    assert choose_bound.best({**dict.fromkeys(ERRORS, 1.0), best: 0.5}) == best


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


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_without_any_finite_error_nothing_is_chosen_and_nothing_kept(tmp_path, value):
    message = "none of the candidates for stability_bound has a finite validation error; lower the rate"
    with pytest.raises(ConfigError, match=message):
        choose_bound.choose(CELL, tmp_path, _Train(dict.fromkeys(ERRORS, value)))
    assert not (tmp_path / "bound_search.json").exists()


# --- what is kept -------------------------------------------------------------------------------------------------


def test_what_was_tried_is_kept_and_printed(tmp_path, capsys):
    choose_bound.choose(CELL, tmp_path, _Train(_with_error(M10=None)))
    kept = json.loads((tmp_path / "bound_search.json").read_text())
    assert (kept["chosen"], kept["steps"], kept["cell"]) == (1.2, 100, CELL.command)
    # JSON has no infinity.
    assert {tried["stability_bound"]: tried["validation_rmse"] for tried in kept["tried"]} == {**ERRORS, 10.0: None}
    text = capsys.readouterr().out
    assert "stability_bound=auto: 7 candidates, 100 steps each" in text
    assert "M = none  validation 1.0000e+00" in text
    assert "stability_bound=1.2 is taken" in text


@pytest.mark.parametrize(("errors", "name"), [(ERRORS, "1.2"), (_with_error(Mnone=0.1), "none")])
def test_a_second_start_reads_the_choice_and_trains_nothing(tmp_path, capsys, errors, name):
    first = choose_bound.choose(CELL, tmp_path, _Train(errors))
    capsys.readouterr()
    assert choose_bound.choose(CELL, tmp_path, _refuse) == first
    assert capsys.readouterr().out == f"stability_bound={name}, as {tmp_path / 'bound_search.json'} says\n"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1], r"bound_search\.json is damaged \(it holds no JSON object\)"),
        ({"chosen": 1.2, "cell": "python -m experiments.pde"}, "is a search for another cell"),
        ({"cell": CELL.command}, r"is damaged \(it names no candidate\)"),
        ({"chosen": "big", "cell": CELL.command}, r"is damaged \(it names no candidate\)"),
    ],
)
def test_a_search_that_cannot_be_used_is_named_with_the_remedy(tmp_path, values, message):
    (tmp_path / "bound_search.json").write_text(json.dumps(values))
    with pytest.raises(ConfigError, match=f"{message}.*; delete it to search again"):
        choose_bound.choose(CELL, tmp_path, _refuse)


# --- the rule -----------------------------------------------------------------------------------------------------


def test_without_a_bound_there_is_no_rule():
    ruled = Cell("pde", "heat", "ctfno", overrides={"stability_bound": 3.0, "stability_rule": "rows_and_columns"})
    without = choose_bound.with_bound(ruled, None)
    assert without.overrides == {"stability_bound": None, "stability_rule": "rows"}
    assert choose_bound.with_bound(ruled, 1.2).overrides == {
        "stability_bound": 1.2,
        "stability_rule": "rows_and_columns",
    }
    assert choose_bound.with_bound(CELL, None).overrides == {**CELL.overrides, "stability_bound": None}
