"""Whole tiny runs: the files they leave, how they go on, and what they refuse."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from helpers import compiled

from ctfno_jax import config as config_lib
from ctfno_jax import metrics, predict
from ctfno_jax.data import registry
from ctfno_jax.training import checkpoint, loop
from experiments import field_result, field_run, run_folder

# After a failed read, what is left of it reports to an event loop that is closed by then; nobody waits for it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    """The runs of this file compile the same programs again and again."""
    with compiled.kept_in(tmp_path_factory.mktemp("compiled")):
        yield


@pytest.fixture(scope="module")
def finished(tiny_config, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "finished"
    return workdir, field_run.run(tiny_config, workdir)


@pytest.fixture(scope="module")
def predictor(finished):
    return predict.load_predictor(finished[0])


def _data_set(config):
    d = config.dataset
    return registry.load_dataset(
        d.dataset, num_train=d.num_train, num_validation=d.num_validation, num_test=d.num_test, seed=d.data_seed,
        **d.data_options,
    )  # fmt: skip


def _test_set(config):
    return _data_set(config).test


def _last(workdir):
    with checkpoint.CheckpointStore(workdir / "checkpoints") as store:
        return store.restore_last()


def _log(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def _with_hook(monkeypatch, extra):
    original = loop.fit
    monkeypatch.setattr(loop, "fit", lambda *a, hooks, **k: original(*a, hooks=[*hooks, extra], **k))


# --- a finished run -------------------------------------------------------------------------------------------


def test_a_run_leaves_all_its_files(finished, tiny_config):
    workdir, result = finished
    assert config_lib.ExperimentConfig.load(workdir / "config.json") == tiny_config
    assert json.loads((workdir / "result.json").read_text()) == result
    for name in ("heatmap", "growth"):
        assert (workdir / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (workdir / "checkpoints").iterdir() if path.name.isdigit()) == ["4", "8"]
    assert not list(workdir.rglob("*.tmp*"))


def test_the_result_says_what_was_run_and_how_good_it_is(finished, tiny_config):
    _, result = finished
    keys = (
        "experiment dataset source data model preset seed num_params steps train_seconds train_grid metrics paper "
        "versions devices cpu_cores"
    )
    assert set(result) == set(keys.split())
    assert result["source"] == "generated"
    stated = {name: result[name] for name in ("experiment", "dataset", "model", "preset", "seed", "steps")}
    assert stated == {
        "experiment": "pde",
        "dataset": "heat",
        "model": "ctfno",
        "preset": "quick",
        "seed": 0,
        "steps": 8,
    }
    assert result["train_grid"] == tiny_config.train.train_grid
    assert len(result["devices"]) == 8
    assert {"jax", "flax", "optax", "numpy", "python"} <= set(result["versions"])
    scores = result["metrics"]
    expected = (
        "rmse rmse_in_deviations nrmse max_error pdebench rmse_in_deviations_over_time times validation_rmse best_step "
        "evaluation_seconds rmse_between_times rmse_in_deviations_between_times certified_lipschitz measured_gain "
        "certificate_ratio"
    )
    assert set(scores) == set(expected.split())
    assert all(np.all(np.isfinite(value)) for value in jax.tree.leaves(scores))
    assert scores["certified_lipschitz"] >= scores["measured_gain"] > 0


def test_the_errors_of_a_result_agree_with_each_other(finished, tiny_config):
    scores = finished[1]["metrics"]
    train = _data_set(tiny_config).train
    assert scores["rmse"] / scores["rmse_in_deviations"] == pytest.approx(np.std(train.u.astype(np.float64)), rel=1e-5)
    over_time = np.asarray(scores["rmse_in_deviations_over_time"])
    np.testing.assert_allclose(scores["times"], train.times, rtol=1e-6)
    # Every time has as many points, so the mean of the squares over times is the square of the whole; four digits.
    assert np.sqrt(np.mean(over_time**2)) == pytest.approx(scores["rmse_in_deviations"], rel=1e-3)


def test_only_parameters_are_counted(finished, predictor):
    assert finished[1]["num_params"] == sum(np.size(a) for a in jax.tree.leaves(predictor.params["params"]))


def test_the_log_has_a_line_for_every_call_and_errors_where_it_evaluated(finished):
    lines = _log(finished[0])
    assert [line["step"] for line in lines] == [2, 4, 6, 8]
    assert [checkpoint.METRIC in line for line in lines] == [False, True, False, True]
    best = min(line[checkpoint.METRIC] for line in lines if checkpoint.METRIC in line)
    assert finished[1]["metrics"][checkpoint.METRIC] == best


def test_a_finished_workdir_is_not_run_again(finished, tiny_config, monkeypatch, capsys):
    workdir, result = finished
    monkeypatch.setattr(field_run, "load", lambda *_: pytest.fail("data were made for a finished run"))
    assert field_run.run(tiny_config, workdir) == result
    assert "has finished already" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.5}, r"optimizer\.learning_rate is 0\.003 there and 0\.5 here"),
        ({"num_test": 5}, r"dataset\.num_test is 3 there and 5 here"),
        ({"model_fields": {"modes": [6]}}, r"model\.model_fields\.\w+ is \S+ there and None here.*, and 3 more"),
    ],
)
def test_a_workdir_of_another_config_is_refused_with_the_difference(finished, tiny_config, change, message):
    other = config_lib.replace_fields(tiny_config, change)
    with pytest.raises(config_lib.ConfigError, match=f"belongs to another config .*{message}.*; choose another"):
        field_run.run(other, finished[0], resume=True)
    assert config_lib.ExperimentConfig.load(finished[0] / "config.json") == tiny_config


def test_tuples_and_lists_in_a_config_are_the_same_run(finished, tiny_config):
    fields = {**tiny_config.model.model_fields, "modes": (6,)}
    same = dataclasses.replace(tiny_config, model=config_lib.ModelConfig("ctfno", fields))
    assert field_run.run(same, finished[0]) == finished[1]


def test_the_summary_compares_with_the_paper(finished):
    text = field_result.summary(finished[1], finished[0])
    ours, paper = finished[1]["metrics"]["rmse"], finished[1]["paper"]["rmse"]
    assert f"{ours:.3e}" in text
    assert f"{ours / paper:.2f}" in text
    assert str(finished[0]) in text


def test_paths_of_a_run_name_what_it_is(tiny_config):
    assert run_folder.default_workdir(tiny_config).parts == ("runs", "pde", "heat", "ctfno", "seed0")
    assert run_folder.row_path("rows", tiny_config).parts == ("rows", "pde", "heat-ctfno-quick-seed0.json")


# --- interrupted and failed runs ------------------------------------------------------------------------------


def test_an_interrupted_run_goes_on_to_bitwise_the_same_end(finished, tiny_config, tmp_path, monkeypatch, capsys):
    def interrupt(state, report):
        if report.step == 6:  # two steps after the last checkpoint
            raise KeyboardInterrupt

    workdir = tmp_path / "run"
    with monkeypatch.context() as patch:
        _with_hook(patch, interrupt)
        with pytest.raises(KeyboardInterrupt):
            field_run.run(tiny_config, workdir)
    assert not (workdir / "result.json").exists()
    assert _last(workdir).step == 4
    with pytest.raises(config_lib.ConfigError, match="holds an unfinished run; go on with --resume"):
        field_run.run(tiny_config, workdir)
    with open(workdir / "metrics.jsonl", "a") as file:
        file.write('{"step": 8, "lo')  # as an interrupted write leaves it
    result = field_run.run(tiny_config, workdir, resume=True)
    assert "resumed at step 4" in capsys.readouterr().out
    ours, theirs = _last(workdir), _last(finished[0])
    assert ours.step == theirs.step == 8
    assert set(ours.arrays) == set(theirs.arrays)
    for name, array in theirs.arrays.items():
        assert ours.arrays[name].tobytes() == array.tobytes(), name
    without = lambda values, name: {k: v for k, v in values.items() if k != name}  # noqa: E731
    logs = [[without(line, "seconds") for line in _log(w)] for w in (workdir, finished[0])]
    assert logs[0] == logs[1]
    scores = [without(r["metrics"], "evaluation_seconds") for r in (result, finished[1])]
    assert scores[0] == scores[1]


def test_a_loss_that_is_not_finite_keeps_the_last_good_checkpoint(tiny_config, tmp_path, monkeypatch):
    original = loop.fit

    def fit(state, multi_step, data, **options):
        def bad_after_four(state, data):
            state, losses = multi_step(state, data)
            return state, losses * (np.nan if int(state.step) > 4 else 1.0)

        return original(state, bad_after_four, data, **options)

    workdir = tmp_path / "run"
    monkeypatch.setattr(loop, "fit", fit)
    with pytest.raises(loop.TrainingDiverged, match="the loss became nan at step 5"):
        field_run.run(tiny_config, workdir)
    assert _last(workdir).step == 4
    assert [line["step"] for line in _log(workdir)] == [2, 4]
    assert not (workdir / "result.json").exists()
    assert np.all(np.isfinite(predict.load_predictor(workdir)(np.ones((1, 16, 1)), [0.5])))


def test_a_learning_rate_that_is_far_too_large_is_reported(tiny_config, tmp_path):
    config = config_lib.replace_fields(tiny_config, {"learning_rate": 1e30, "clip_norm": 0.0})
    with pytest.raises(loop.TrainingDiverged, match=r"the loss became (nan|inf) at step .*smaller learning_rate"):
        field_run.run(config, tmp_path / "run")
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_batch_that_the_devices_cannot_share_is_refused_before_any_data_are_made(tiny_config, tmp_path, monkeypatch):
    monkeypatch.setattr(field_run, "load", lambda *_: pytest.fail("data were made"))
    config = config_lib.replace_fields(tiny_config, {"batch_size": 10})
    with pytest.raises(ValueError, match="batch_size=10 cannot be divided among 8 devices"):
        field_run.run(config, tmp_path / "run")


# --- predictions from what a run saved ------------------------------------------------------------------------


def test_the_predictor_gives_the_numbers_of_the_run(finished, predictor, tiny_config):
    test = _test_set(tiny_config)
    u = predictor(test.u0, test.times)
    assert metrics.rmse(u, test.u) == pytest.approx(finished[1]["metrics"]["rmse"], rel=1e-6)
    assert metrics.nrmse(u, test.u) == pytest.approx(finished[1]["metrics"]["nrmse"], rel=1e-6)
    assert predictor.config == tiny_config


def test_times_may_come_in_any_order(predictor, tiny_config):
    u0 = _test_set(tiny_config).u0
    times = np.asarray([2.0, 0.1, 1.3, 0.1])
    u = predictor(u0, times)
    order = [1, 3, 2, 0]
    np.testing.assert_allclose(predictor(u0, times[order]), u[:, order], rtol=1e-5, atol=1e-6)


def test_every_sample_may_have_its_own_times(predictor, tiny_config):
    u0 = _test_set(tiny_config).u0
    times = np.asarray([[0.2, 2.5], [1.0, 0.3], [0.7, 0.0]])
    together = predictor(u0, times)
    for i in range(3):
        np.testing.assert_allclose(together[i : i + 1], predictor(u0[i : i + 1], times[i]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_points", [12, 16, 48])
def test_other_grids_show_the_same_solution_at_shared_points(predictor, num_points):
    wave = lambda n: (0.2 * np.cos(2 * np.pi * np.arange(n) / n))[None, :, None]  # noqa: E731
    u = predictor(wave(num_points), [0.5, 1.5])
    assert u.shape == (1, 2, num_points, 1)
    reference = predictor(wave(96), [0.5, 1.5])
    # Activations make frequencies that a coarse grid folds back; they are small for a smooth state.
    np.testing.assert_allclose(u, reference[:, :, :: 96 // num_points], rtol=0, atol=2e-2 * np.abs(reference).max())


def test_large_requests_are_answered_in_parts(predictor, tiny_config, monkeypatch):
    u0 = _test_set(tiny_config).u0
    shared, own = np.asarray([0.1, 0.9]), np.asarray([[0.1, 2.0], [0.4, 0.4], [1.0, 0.2]])
    whole = predictor(u0, shared), predictor(u0, own)
    monkeypatch.setattr(predict, "_POINTS_PER_CALL", 1)
    np.testing.assert_allclose(predictor(u0, shared), whole[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(predictor(u0, own), whole[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("points_per_call", [4_000_000, 1])
@pytest.mark.parametrize("rows", [2, 4])
def test_times_for_another_number_of_samples_are_refused(predictor, monkeypatch, rows, points_per_call):
    monkeypatch.setattr(predict, "_POINTS_PER_CALL", points_per_call)
    with pytest.raises(ValueError, match=r"times must have shape \(time,\) or \(batch, time\) with batch=3"):
        predictor(np.zeros((3, 16, 1)), np.ones((rows, 5)))


def test_the_certificate_of_a_predictor_bounds_differences_in_physical_units(predictor, tiny_config):
    test = _test_set(tiny_config)
    times = [0.1, 1.0, 2.5]
    change = predictor(test.u0[:1], times) - predictor(test.u0[1:2], times)
    growth = np.sqrt(np.square(change).sum((0, 2, 3))) / np.linalg.norm(test.u0[0] - test.u0[1])
    assert np.all(predictor.lipschitz(times) >= growth)


@pytest.mark.parametrize(
    ("u0", "message"),
    [
        (np.zeros((2, 16)), r"u0 must have shape \(batch, \*space, channels\) with 1 channels, got \(2, 16\)"),
        (np.zeros((2, 16, 3)), r"with 1 channels, got \(2, 16, 3\)"),
        (np.zeros((0, 16, 1)), r"got \(0, 16, 1\)"),
        (np.full((2, 16, 1), np.nan), "u0 contains values that are not finite"),
        (np.zeros((2, 16, 1), complex), "u0 must be an array of real numbers, got dtype complex128"),
        (np.full((2, 16, 1), "a"), "u0 must be an array of real numbers, got dtype <U1"),
        (np.zeros((2, 16, 16, 1)), "u0 must have the 3 axes"),
        (np.zeros((2, 8, 1)), r"modes \(6,\) do not fit a grid of \(8,\) points"),
    ],
)
def test_states_that_do_not_fit_are_refused(predictor, u0, message):
    with pytest.raises(ValueError, match=message):
        predictor(u0, [0.5])


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([-0.5, 1.0], r"times must be finite and >= 0, got -0\.5"),
        ([np.nan], "times must be finite and >= 0, got nan"),
        ([np.inf], "times must be finite and >= 0, got inf"),
        ([], "times is empty: ask for at least one query time"),
        (0.5, r"times must have shape \(time,\) or \(batch, time\)"),
    ],
)
def test_times_that_mean_nothing_are_refused(predictor, times, message):
    with pytest.raises(ValueError, match=message):
        predictor(np.zeros((2, 16, 1)), times)


def test_a_folder_without_a_run_or_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(checkpoint.CheckpointError, match="holds no trained run"):
        predict.load_predictor(tmp_path / "nowhere")
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(checkpoint.CheckpointError, match="holds no checkpoint yet"):
        predict.load_predictor(tmp_path)


def test_a_setting_that_is_refused_does_not_claim_the_folder(tiny_config, tmp_path):
    wrong = config_lib.replace_fields(tiny_config, {"schedule": "foo"})
    with pytest.raises(ValueError, match="unknown schedule 'foo'; known are constant, step"):
        field_run.run(wrong, tmp_path / "run")
    assert run_folder.claim_workdir(tmp_path / "run", tiny_config, resume=False) is None


def test_more_times_per_step_than_there_are_is_refused(tiny_config, tmp_path):
    wrong = config_lib.replace_fields(tiny_config, {"times_per_step": 6})
    with pytest.raises(config_lib.ConfigError, match="times_per_step=6 exceeds the 5 times of the data"):
        field_run.run(wrong, tmp_path / "run")


def test_checkpoints_without_a_config_are_not_taken_over(tiny_config, tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(config_lib.ConfigError, match=r"holds checkpoints without a config\.json"):
        run_folder.claim_workdir(tmp_path / "run", tiny_config, resume=True)


def test_physical_units_are_those_of_the_predictor(predictor, tiny_config):
    test = _test_set(tiny_config)
    u = predictor.apply(predictor.params, test.u0, test.times)
    np.testing.assert_allclose(u, predictor(test.u0, test.times), atol=1e-5)


def test_checkpoints_of_another_config_are_not_resumed(finished, tiny_config, tmp_path):
    other = config_lib.replace_fields(tiny_config, {"learning_rate": 1e-2})
    shutil.copytree(finished[0] / "checkpoints", tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "config.json").write_text(other.to_json())
    with pytest.raises(config_lib.ConfigError, match=r"are of another config than its config\.json"):
        field_run.run(other, tmp_path / "run", resume=True)
