"""Whole tiny runs on series: what they leave, how they go on, several at once, and what they refuse."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from helpers import compiled, small_series

from ctfno_jax import config as config_lib
from ctfno_jax import metrics, predict
from ctfno_jax.training import loop
from experiments import series_result, series_run

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    with compiled.kept_in(tmp_path_factory.mktemp("compiled")):
        yield


def _run(config, workdir, **settings):
    (result,) = series_run.run([config], [workdir], **settings)
    return result


def _parameters(workdir):
    return jax.tree.leaves(predict.load_predictor(workdir).params)


@pytest.mark.parametrize(
    "model", ["ctfno", *(pytest.param(m, marks=pytest.mark.slow) for m in ("node", "neural_flow", "neural_laplace"))]
)
def test_every_model_trains_and_is_judged_by_what_its_saved_state_predicts(model, tmp_path):
    config = small_series.config(model)
    result = _run(config, tmp_path)
    test = series_run.load(config).test
    values = predict.load_predictor(tmp_path)(test.observed, test.times)
    assert values.shape == test.values.shape == (5, 5, 1)
    assert result["metrics"]["rmse"] == pytest.approx(metrics.rmse(values, test.values), rel=1e-6)
    assert result["metrics"]["nrmse"] == pytest.approx(metrics.relative_error(values, test.values), rel=1e-6)
    assert (result["model"], result["dataset"], result["metrics"]["unsolved"]) == (model, "sine", 0)
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert (tmp_path / "figures" / "series.png").stat().st_size > 1000
    assert ("function_evaluations" in result["metrics"]) == (model == "node")
    assert ("certified_lipschitz" in result["metrics"]) == (model == "ctfno")


@pytest.mark.slow
def test_errors_of_two_components_are_told_apart_and_a_series_at_rest_is_no_obstacle(tmp_path):
    scores = _run(small_series.config("ctfno", dataset="spiral"), tmp_path)["metrics"]
    assert scores["rmse"] ** 2 == pytest.approx((scores["rmse_x"] ** 2 + scores["rmse_y"] ** 2) / 2, rel=1e-6)
    assert 0 < scores["nrmse"] < np.inf


@pytest.mark.slow
def test_certified_growth_is_not_below_measured_growth(tmp_path):
    scores = _run(small_series.config("ctfno"), tmp_path)["metrics"]
    assert scores["certified_lipschitz"] >= scores["measured_gain"] > 0
    assert scores["certificate_ratio"] >= 1


@pytest.mark.slow
def test_seeds_trained_together_are_those_trained_alone(tmp_path):
    configs = [small_series.config("ctfno", seed=seed) for seed in (3, 4)]
    together = series_run.run(configs, [tmp_path / "a", tmp_path / "b"])
    assert [result["seed"] for result in together] == [3, 4]
    for config, name, result in zip(configs, "ab", together, strict=True):
        alone = _run(config, tmp_path / f"{name}_alone")
        assert result["metrics"]["rmse"] == pytest.approx(alone["metrics"]["rmse"], rel=1e-4)
    first, second = (_parameters(tmp_path / name) for name in "ab")
    assert any(np.abs(a - b).max() > 1e-3 for a, b in zip(first, second, strict=True))


@pytest.mark.slow
def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path, monkeypatch):
    config = small_series.config("neural_laplace")
    _run(config, tmp_path / "whole")
    fit = loop.fit_together

    def stop_half_way(*args, num_steps, **settings):
        fit(*args, num_steps=num_steps // 2, **settings)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop, "fit_together", stop_half_way)
        with pytest.raises(KeyboardInterrupt):
            _run(config, tmp_path / "cut")
    with pytest.raises(config_lib.ConfigError, match="unfinished run; go on with --resume"):
        _run(config, tmp_path / "cut")
    _run(config, tmp_path / "cut", resume=True)
    for a, b in zip(_parameters(tmp_path / "whole"), _parameters(tmp_path / "cut"), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_a_finished_run_is_not_made_again(tmp_path, capsys):
    config = small_series.config("ctfno")
    result = _run(config, tmp_path)
    assert _run(config, tmp_path) == result
    assert "has finished already" in capsys.readouterr().out


@pytest.mark.slow
def test_irregular_observations_come_with_their_times(tmp_path):
    config = small_series.config("neural_flow")
    options = {**config.dataset.data_options, "irregular": True}
    config = dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, data_options=options))
    result = _run(config, tmp_path)
    predictor = predict.load_predictor(tmp_path)
    assert predictor.in_channels == 2  # the value and the time
    test = series_run.load(config).test
    values = predictor(test.inputs(with_times=True), test.times)
    assert result["metrics"]["rmse"] == pytest.approx(metrics.rmse(values, test.values), rel=1e-6)


@pytest.mark.slow
def test_an_evidence_bound_trains_the_flow_and_no_other_model(tmp_path):
    assert _run(small_series.config("neural_flow", loss="elbo"), tmp_path)["metrics"]["rmse"] > 0
    with pytest.raises(config_lib.ConfigError, match="elbo is for models with a latent distribution; node has none"):
        series_run.check_settings(small_series.config("node", loss="elbo"))


@pytest.mark.parametrize(
    "change", [{"train_grid": 8}, {"reflections": True}, {"frame": "aligned"}, {"shared_normalization": True}]
)
def test_settings_of_fields_are_refused(change, tmp_path):
    (name,) = change
    with pytest.raises(config_lib.ConfigError, match=f"{name} is a setting for fields; sine is a series"):
        _run(small_series.config("ctfno", **change), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_that_starts_at_the_last_observation_refuses_another_clock():
    config = small_series.config("node", data_options={"clock": "zero"})
    with pytest.raises(config_lib.ConfigError, match="node starts at the last observation, time zero"):
        series_run.check_settings(config)
    series_run.check_settings(small_series.config("ctfno", data_options={"clock": "zero"}))


def test_seeds_at_once_refuse_a_way_to_cut_them_over_devices(tmp_path):
    configs = [small_series.config("ctfno", seed=seed) for seed in (0, 1)]
    with pytest.raises(config_lib.ConfigError, match="parallel=pmap needs one seed at a time"):
        series_run.run(configs, [tmp_path / "a", tmp_path / "b"], parallel="pmap")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"times_per_step": 6}, "times_per_step=6 exceeds the 5 times of the data"),
        (
            {"model_fields": {**small_series.FIELDS["ctfno"], "out_features": 2}},
            "sine has 1 features, but out_features=2",
        ),
        ({"batch_size": 17}, "exceeds the 16 training trajectories"),
    ],
)
def test_what_does_not_fit_the_data_is_refused(changes, message, tmp_path):
    with pytest.raises(config_lib.ConfigError, match=message):
        _run(small_series.config("ctfno", **changes), tmp_path / "run")


def test_an_adjoint_that_cannot_be_cut_over_devices_is_refused_before_anything_is_written(tmp_path):
    fields = {**small_series.FIELDS["node"], "adjoint": "checkpoints"}
    with pytest.raises(config_lib.ConfigError, match="adjoint=checkpoints cannot be cut over 8 devices"):
        _run(small_series.config("node", model_fields=fields), tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_solver_that_runs_out_of_steps_is_reported_and_the_run_kept(tmp_path, capsys):
    fields = {
        **small_series.FIELDS["node"],
        "out_features": 1,
        "stepping": "constant",
        "step_size": 0.4,
        "max_steps": 3,
    }
    config = small_series.config("node", model_fields=fields)
    with pytest.raises(loop.TrainingDiverged, match="answers none of the validation series; raise max_steps"):
        _run(config, tmp_path)
    values = np.zeros((3, 4, 2))
    values[1, 2:] = np.inf
    message = series_result.unsolved_message(values, np.asarray([0.5, 1.0, 1.5, 2.0]))
    assert message is not None
    assert "1 of 3 series; the first is number 1, from t=1.5 on" in message
    assert series_result.unsolved_message(np.zeros((3, 4, 2)), np.arange(4)) is None
    np.testing.assert_array_equal(series_result.solved(values), [True, False, True])
