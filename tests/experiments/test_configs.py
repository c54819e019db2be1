"""Every cell of the tables: its settings hold together, and the paper's sizes have the paper's counts."""

import dataclasses
import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax import config as config_lib
from ctfno_jax.data import equations, frames
from ctfno_jax.models import registry
from ctfno_jax.models.ctfno import num_parameters
from experiments import common, field_checks
from experiments.configs import pde, synthetic

MODELS = (*pde.SURROGATES, *pde.ABLATIONS)
ROOT = Path(__file__).parents[2]
EACH_DATASET = pytest.mark.parametrize("dataset", list(pde.PROBLEMS))


def _times(problem):
    return np.arange(1, problem.num_times + 1) * (problem.final_time / problem.num_times)


@pytest.mark.parametrize(("dataset", "model", "preset"), list(itertools.product(pde.PROBLEMS, MODELS, common.PRESETS)))
def test_every_cell_passes_the_rules_and_can_be_built(dataset, model, preset):
    config = pde.pde_config(dataset, model, preset, 3)
    assert config_lib.check(config) is config
    assert (config.experiment, config.dataset.dataset, config.preset, config.seed) == ("pde", dataset, preset, 3)
    assert type(config).from_json(config.to_json()) == config
    module = registry.build_model(config.model.model, **config.model.model_fields)
    assert module.out_channels == len(equations.EQUATIONS[dataset].channels)
    field_checks.check_settings(config, module)
    times = _times(pde.PROBLEMS[dataset])
    # The frame of CTFNO has times of its own, and CTFNO answers at any.
    field_checks.check_fit(config, module, times, times, pde.PROBLEMS[dataset].channels)


@pytest.mark.parametrize("preset", ["quick", "default"])
@pytest.mark.parametrize("dataset", ["burgers", "navier_stokes"])
def test_where_ctfno_is_composed_it_can_answer_at_once_too(dataset, preset):
    problem, times = pde.PROBLEMS[dataset], _times(pde.PROBLEMS[dataset])
    horizons = {}
    for model in ("ctfno", pde.AT_ONCE):
        config = pde.pde_config(dataset, model, preset, 0)
        module = registry.build_model(config.model.model, **config.model.model_fields)
        field_checks.check_settings(config_lib.check(config), module)
        field_checks.check_fit(config, module, times, times, pde.PROBLEMS[dataset].channels)
        assert module.answerable(times) is None
        horizons[model] = module.horizon
    assert horizons[pde.AT_ONCE] is None
    assert 0 < horizons["ctfno"] < problem.final_time / 5
    with pytest.raises(ValueError, match="in the paper CTFNO answers at once: preset=paper is for ctfno"):
        pde.pde_config(dataset, pde.AT_ONCE, "paper", 0)
    paper = pde.pde_config(dataset, "ctfno", "paper", 0)
    assert registry.build_model("ctfno", **paper.model.model_fields).horizon is None
    assert (paper.train.window, paper.train.frame) == (0, "")


def test_where_ctfno_answers_at_once_there_is_no_other_form():
    with pytest.raises(ValueError, match="there is no cell heat with ctfno_at_once"):
        pde.pde_config("heat", pde.AT_ONCE, "default", 0)


def test_the_unit_of_viscosity_is_that_of_the_frame():
    fields = pde.pde_config("navier_stokes", "ctfno", "default", 0).model.model_fields
    assert fields["viscosity_unit"] == frames.VISCOSITY_UNIT


@pytest.mark.parametrize("preset", ["quick", "default"])
@pytest.mark.parametrize("model", pde.SURROGATES)
def test_between_walls_models_see_periodic_fields_on_points_of_their_own(model, preset):
    config = pde.pde_config("diffusion_sorption", model, preset, 0)
    assert config.train.frame == ("mirrored" if model == "fno_rnn" else "diffusing")
    assert config.train.train_grid == 128
    module = registry.build_model(model, **config.model.model_fields)
    field_checks.check_settings(config_lib.check(config), module)
    assert not getattr(module, "coordinates", False)
    assert not getattr(module, "padding", 0)
    # It answers on those points, and not by luck on more.
    u0, times = jnp.zeros((1, 128, 3)), jnp.asarray([10.0])
    answer = jax.eval_shape(lambda: module.init_with_output(jax.random.key(0), u0, times)[0])
    assert answer.shape == (1, 1, 128, 1)
    paper = pde.pde_config("diffusion_sorption", model, "paper", 0)
    assert (paper.train.frame, paper.train.train_grid) == ("", 0)


def test_committed_rows_are_those_of_the_present_settings():
    """A row that its command would not make again is not a result."""
    rows = [path for kind in ("pde", "ablation") for path in (ROOT / "results" / kind).glob("*.json")]
    assert rows
    for path in rows:
        row = json.loads(path.read_text())
        config = pde.pde_config(row["dataset"], row["model"], row["preset"], row["seed"], row["experiment"])
        points = int(config.dataset.data_options.get("num_points", 1024))
        expected = (config.train.steps, config.train.train_grid or points)
        assert (row["steps"], row["train_grid"]) == expected, path.name
        module = registry.build_model(config.model.model, **config.model.model_fields)
        seen = config.train.train_grid if config.train.frame in config_lib.OWN_GRID else points
        u0 = jax.ShapeDtypeStruct((1, seen, _channels_seen(config)), jnp.float32)
        variables = jax.eval_shape(module.init, jax.random.key(0), u0, jax.ShapeDtypeStruct((1,), jnp.float32))
        assert row["num_params"] == num_parameters(variables["params"]), path.name


def test_committed_rows_of_series_are_those_of_the_present_settings():
    rows = [path for path in (ROOT / "results" / "synthetic").glob("*.json") if "reaction" not in path.name]
    assert rows
    for path in rows:
        row = json.loads(path.read_text())
        config = synthetic.synthetic_config(row["dataset"], row["model"], row["preset"], row["seed"])
        assert (row["steps"], row["experiment"]) == (config.train.steps, "synthetic"), path.name


def _channels_seen(config) -> int:
    channels = len(equations.EQUATIONS[config.dataset.dataset].channels)
    more = {"particles": 1, "aligned_particles": 1, "acoustic": 1, "states": 2, "clocked_states": 2}
    more |= {"mirrored": 2, "diffusing": 2}
    return channels + more.get(config.train.frame, 0)


@EACH_DATASET
def test_what_is_said_of_a_problem_is_what_its_generator_makes(dataset):
    problem, equation = pde.PROBLEMS[dataset], equations.EQUATIONS[dataset]
    options = equation.generate.__kwdefaults__
    assert (problem.num_times, problem.final_time) == (options["num_times"], options["final_time"])
    assert (problem.channels, problem.periodic) == (len(equation.channels), equation.periodic)


@EACH_DATASET
def test_all_models_of_an_equation_see_the_same_data(dataset):
    for preset in ("default", "paper"):
        assert {pde.pde_config(dataset, model, preset, 0).dataset.data_file for model in MODELS} == {""}
        assert all(pde.pde_config(dataset, model, preset, 0).dataset == pde.PROBLEMS[dataset].data for model in MODELS)
    quick = [dataclasses.replace(pde.pde_config(dataset, m, "quick", 0).dataset, data_options={}) for m in MODELS]
    assert all(data == quick[0] for data in quick)
    assert quick[0].num_train <= pde.PROBLEMS[dataset].data.num_train


@EACH_DATASET
def test_symmetries_in_use_are_symmetries_of_the_equation(dataset):
    equation = equations.EQUATIONS[dataset]
    for model in MODELS:
        train = pde.pde_config(dataset, model, "default", 0).train
        assert not train.sign_flips or equation.odd
        assert not train.reflections or equation.reflection is not None
        assert not train.translations or equation.periodic


def test_an_ablation_is_trained_as_ctfno_is():
    for dataset in pde.PROBLEMS:
        at_once = pde.AT_ONCE if pde.PROBLEMS[dataset].composed else "ctfno"
        ours = pde.pde_config(dataset, at_once, "default", 0)
        for model in pde.ABLATIONS:
            theirs = pde.pde_config(dataset, model, "default", 0, experiment="ablation")
            assert (theirs.train, theirs.optimizer) == (ours.train, ours.optimizer)
            assert theirs.experiment == "ablation"


@pytest.mark.parametrize(
    ("model", "count"),
    [("ctfno", 2_502_145), ("fno_rnn", 2_122_433), ("fno_2d", 12_590_561), ("pod_deeponet", 1_874_816)],
)
def test_the_paper_preset_has_the_counts_of_the_paper(model, count):
    config = pde.pde_config("heat", model, "paper", 0)
    module = registry.build_model(model, **config.model.model_fields)
    u0, times = jax.ShapeDtypeStruct((1, 1024, 1), jnp.float32), jax.ShapeDtypeStruct((1,), jnp.float32)
    variables = jax.eval_shape(module.init, jax.random.key(0), u0, times)
    assert num_parameters(variables["params"]) == count


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (("heet", "ctfno", "quick"), "unknown dataset 'heet'; known are heat, burgers, diffusion_sorption, navier"),
        (("heat", "fno", "quick"), "there is no cell heat with fno; models are ctfno, fno_rnn, fno_2d, deeponet"),
        (("heat", "ctfno", "fast"), "unknown preset 'fast'; known are quick, default, paper"),
    ],
)
def test_unknown_names_list_the_known_ones(cell, message):
    with pytest.raises(ValueError, match=message):
        pde.pde_config(*cell, 0)
