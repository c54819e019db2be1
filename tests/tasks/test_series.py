"""Learning forecasts: what is refused, what an evaluation is, losses of the models' own, devices and seeds."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import compiled, prediction, small_series

from ctfno_jax import metrics
from ctfno_jax.config import ConfigError, OptimizerConfig, TrainConfig
from ctfno_jax.data import problems
from ctfno_jax.tasks import series
from ctfno_jax.tasks.series import SeriesSettings, SeriesTask
from ctfno_jax.training import loop, run
from experiments import configs

TRAIN = TrainConfig(steps=4, steps_per_call=2, eval_every=4)
SGD = OptimizerConfig(optimizer="sgd", learning_rate=1e-3, schedule="constant", clip_norm=0.0)


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    with compiled.kept_in(tmp_path_factory.mktemp("compiled")):
        yield


def _train(task, **options):
    return run.train(task, optimizer=SGD, config=TRAIN, show_progress=False, **options)


def _assert_close(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), found.params, expected.params)
    assert found.metrics["validation_rmse"] == pytest.approx(expected.metrics["validation_rmse"], rel=1e-4)


# --- devices and seeds ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone():
    with prediction.one_device():
        (trained,) = _train(small_series.task("series_neural_laplace", times_per_step=3))
        return trained


# Other numbers of devices are tried on a linear regression, by the tests of whole trainings.
@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["shard_map", "pmap"])
def test_gradients_over_several_devices_are_those_of_one(alone, parallel):
    (trained,) = _train(small_series.task("series_neural_laplace", times_per_step=3), parallel=parallel)
    _assert_close(trained, alone)


@pytest.mark.slow
def test_seeds_at_once_are_the_seeds_alone(alone):
    task = small_series.task("series_neural_laplace", times_per_step=3)
    with prediction.one_device():
        together = _train(task, seeds=(6, 0))
    _assert_close(together[1], alone)
    first, second = (np.concatenate([np.ravel(a) for a in jax.tree.leaves(t.params["params"])]) for t in together)
    assert np.abs(first - second).max() > 1e-2


def test_an_adjoint_that_cannot_be_sharded_is_refused_on_several_devices():
    task = small_series.task("series_neural_ode", fields={"adjoint": "checkpoints"})
    with pytest.raises(ConfigError, match="adjoint=checkpoints cannot be sharded over several devices"):
        _train(task)


# --- what a task refuses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"times_per_step": -1}, "times_per_step must be at least 0, got -1"),
        ({"loss": "l1"}, "unknown loss 'l1'; known are mse, rmse, relative_l2"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        SeriesSettings(**settings)


@pytest.mark.parametrize(
    ("dataset", "model", "overrides", "message"),
    [
        ("sine", "node", {"loss": "elbo"}, "loss=elbo is for models with a latent distribution; ObservedNeuralODE"),
        ("sine", "ctfno", {"loss": "with_steps"}, "loss=with_steps is for models with a state at each observation"),
        ("sine", "node", {"data_options": {"clock": "zero"}}, "starts at the last observation, time zero; remove"),
        ("sine", "ctfno", {"width": 10, "heads": 4}, "width=10 must be divisible by heads=4"),
        (
            "plane_vibration", "sonode", {"data_options": {"clock": "segment"}},
            "follows its equation from the last observation.*use clock=forecast or clock=last",
        ),
    ],
)  # fmt: skip
def test_what_follows_from_model_and_settings_is_refused_before_data_are_made(
    monkeypatch, dataset, model, overrides, message
):
    monkeypatch.setattr(problems, "load_dataset", lambda *_, **__: pytest.fail("data were made"))
    with pytest.raises(ValueError, match=message):
        SeriesTask.from_config(configs.cell("synthetic", dataset, model, overrides=overrides))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("series_ctfno", {"batch_size": 17}, "batch_size=17 exceeds the 16 training series; lower it"),
        ("series_ctfno", {"times_per_step": 6}, "times_per_step=6 exceeds the 5 times of the data; 0 is all"),
        (
            "series_ctfno",
            {"fields": {"out_features": 2}},
            "sine has 1 features, but the network answers 2; set out_fea",
        ),
    ],
)
def test_what_does_not_fit_the_data_is_refused(name, options, message):
    with pytest.raises(ConfigError, match=message):
        small_series.task(name, **options)


# --- what it does -----------------------------------------------------------------------------------------------


def test_errors_on_the_test_set_agree_with_each_other():
    task = small_series.task("series_ctfno", data=small_series.dataset("spiral"))
    params = task.init(jax.random.key(0))
    scores, test = task.evaluate(params, "test"), task.data.test
    values = task.predict(params, test.observed, test.times)
    assert values.shape == test.values.shape == (5, 5, 2)
    assert scores["rmse"] == metrics.rmse(values, test.values)
    assert scores["mse"] == pytest.approx(scores["rmse"] ** 2, rel=1e-6)
    assert scores["nrmse"] == metrics.relative_error(values, test.values)
    assert scores["rmse"] ** 2 == pytest.approx((scores["rmse_x"] ** 2 + scores["rmse_y"] ** 2) / 2, rel=1e-5)
    train = task.data.train
    found = task.predict(params, train.observed, train.times)
    assert scores["train_mse"] == pytest.approx(metrics.rmse(found, train.values) ** 2, rel=1e-6)
    assert np.sqrt(np.mean(np.square(scores["rmse_over_time"]))) == pytest.approx(scores["rmse"], rel=1e-3)
    assert (scores["unsolved"], len(scores["times"])) == (0, 5)
    assert "function_evaluations" not in scores
    for size, name in ((0.1, "rmse_noise_0.1"), (1.0, "rmse_noise_1")):
        noisy = task.predict(params, series.with_noise(test, size).observed, test.times)
        assert scores[name] == metrics.rmse(noisy, test.values)
    assert scores["certified_lipschitz"] >= scores["measured_gain"] > 0
    assert sorted(scores["singular_values"]["kernels"], reverse=True) == scores["singular_values"]["kernels"]
    validation = task.evaluate(params, "validation")
    some = task.data.validation
    assert validation["validation_rmse"] == metrics.rmse(task.predict(params, some.observed, some.times), some.values)
    assert validation["validation_unsolved"] == 0


def test_noise_is_on_the_observed_values_only_and_of_the_given_size():
    test = small_series.dataset("spiral", num_test=500).test
    assert np.array_equal(series.with_noise(test, 0.0).observed, test.observed)
    small, large = (series.with_noise(test, size) for size in (0.25, 1.0))
    assert np.std(large.observed - test.observed) == pytest.approx(1.0, rel=0.05)
    # The same draw at every size, so that levels can be compared.
    assert np.allclose(4 * (small.observed - test.observed), large.observed - test.observed, atol=1e-5)
    for name in ("observed_times", "times", "values"):
        assert np.array_equal(getattr(large, name), getattr(test, name))
    assert large.observed.dtype == test.observed.dtype


def test_without_the_test_set_only_validation_data_are_evaluated():
    task = small_series.task("series_neural_laplace", data=dataclasses.replace(small_series.dataset(), test=None))
    params = task.init(jax.random.key(0))
    assert np.isfinite(task.evaluate(params, "validation")["validation_rmse"])
    with pytest.raises(ValueError, match="the test set was not loaded"):
        task.evaluate(params, "test")


def test_irregular_observations_come_with_their_times():
    """Times are inputs that stay as they are; values that are not of order one are normalised."""
    data = dataclasses.replace(small_series.dataset(irregular=True), scaled=False)
    task = small_series.task("series_neural_laplace", data=data)
    assert task.arrays.u0.shape == (16, 7, 2)
    train = task.data.train
    np.testing.assert_array_equal(task.arrays.u0[..., 1], train.observed_times)
    seen = np.concatenate([train.observed, train.values], axis=1).astype(np.float64)
    statistics = task.transform.inputs
    np.testing.assert_allclose(statistics.mean, [seen.mean(), 0.0], atol=1e-6)
    np.testing.assert_allclose(statistics.std, [seen.std(), 1.0], rtol=1e-6)
    np.testing.assert_allclose(task.arrays.u, (train.values - seen.mean()) / seen.std(), rtol=1e-4, atol=1e-5)
    assert task.facts()["in_channels"] == 2


def test_series_of_order_one_are_not_normalised():
    task = small_series.task("series_neural_laplace")
    np.testing.assert_array_equal(task.arrays.u0, task.data.train.observed)
    np.testing.assert_array_equal(task.arrays.u, task.data.train.values)


@pytest.mark.parametrize(
    ("name", "loss"), [("series_neural_flow", "elbo"), pytest.param("hbnode", "with_steps", marks=pytest.mark.slow)]
)
def test_losses_of_a_model_differ_from_that_of_its_output_and_have_gradients(name, loss):
    """An evidence bound draws random numbers by the key of the step."""
    task, plain = (small_series.task(name, loss=which) for which in (loss, "mse"))
    params = task.init(jax.random.key(0))

    @jax.jit
    def losses(params, key):
        batch = task.sample(task.arrays, jax.random.key(1), jnp.asarray(0), 0, 1)
        return jax.value_and_grad(task.loss)(params, batch, key), plain.loss(params, batch, key)

    (value, gradient), of_output = losses(params, jax.random.key(2))
    assert np.isfinite(value)
    assert float(value) != pytest.approx(float(of_output), rel=1e-3)
    assert max(np.abs(g).max() for g in jax.tree.leaves(jax.device_get(gradient))) > 1e-6
    (again, _), _ = losses(params, jax.random.key(3))
    assert (float(again) == float(value)) == (loss == "with_steps")


# --- solvers that give up ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_solver_that_answers_nothing_stops_the_training():
    fields = {"step_size": 0.4, "max_steps": 3}
    task = small_series.task("series_neural_ode", fields=fields)
    with pytest.raises(loop.TrainingDiverged, match="answers none of the validation series; raise max_steps"):
        _train(task)


@pytest.mark.slow
def test_series_without_an_answer_are_counted_and_left_out(monkeypatch, capsys):
    data = small_series.dataset()
    # Parts of one size, so that one program evaluates them all.
    four = dataclasses.replace(data, train=data.validation, test=data.test.select(slice(4)))
    task = small_series.task("series_neural_ode", data=four, batch_size=4)
    params = task.init(jax.random.key(0))
    whole = task.evaluate(params, "test")
    assert whole["function_evaluations"] >= 1
    predict = task.predict

    def with_a_gap(params, inputs, times):
        values = predict(params, inputs, times)
        values[1, 2:] = np.inf
        return values

    monkeypatch.setattr(task, "predict", with_a_gap)
    scores, test = task.evaluate(params, "test"), task.data.test
    assert scores["unsolved"] == 1
    left = [0, 2, 3]
    values = predict(params, test.observed, test.times)[left]
    assert scores["rmse"] == pytest.approx(metrics.rmse(values, test.values[left]), rel=1e-6)
    assert (
        "note: the solver ran out of steps in 1 of 4 series; the first is number 1, from t=" in capsys.readouterr().out
    )
    assert task.evaluate(params, "validation")["validation_unsolved"] == 1


def test_a_gap_in_training_counts_as_no_error(monkeypatch):
    task = small_series.task("series_neural_ode")

    def apply(scale, observed, times):
        return (scale * jnp.ones((len(observed), len(times), 1))).at[0].set(jnp.nan)

    monkeypatch.setattr(task, "model", types.SimpleNamespace(apply=apply, stepping="constant"))

    def loss(scale):
        batch = task.sample(task.arrays, jax.random.key(1), jnp.asarray(0), 0, 1)
        return task.loss(scale, batch, jax.random.key(0)), batch.target

    (found, target), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(2.0)
    error = 2.0 - np.asarray(target)[1:]
    assert float(found) == pytest.approx(float(np.sum(np.square(error))) / target.size, rel=1e-5)
    assert float(gradient) == pytest.approx(float(np.sum(2 * error)) / target.size, rel=1e-5)


def test_the_message_names_the_first_series_and_time():
    values = np.zeros((3, 4, 2))
    values[1, 2:] = np.inf
    message = series.unsolved_message(values, np.asarray([0.5, 1.0, 1.5, 2.0]))
    assert message is not None
    assert "1 of 3 series; the first is number 1, from t=1.5 on" in message
    assert series.unsolved_message(np.zeros((3, 4, 2)), np.arange(4)) is None
    np.testing.assert_array_equal(series.solved(values), [True, False, True])


# --- cells ------------------------------------------------------------------------------------------------------


def test_a_cell_is_a_task_on_its_data(monkeypatch):
    """Sizes, seed, options and parts of the config reach the data; those of a record only its seed and options."""
    asked = []
    monkeypatch.setattr(
        problems, "load_dataset", lambda name, **options: asked.append((name, options)) or small_series.dataset()
    )
    small = {"batch_size": 8, "width": 8, "heads": 1, "modes": [2], "times_per_step": 2}
    changes = {
        **small,
        "num_train": 9,
        "num_validation": 3,
        "num_test": 2,
        "data_seed": 4,
        "data_options": {"noise": 0.5},
    }
    config = configs.cell("synthetic", "sine", "ctfno", "quick", overrides=changes)
    SeriesTask.from_config(config, data_dir="here", parts=("train", "validation"))
    common = {"data_dir": "here", "progress": None, "parts": ("train", "validation"), "seed": 4}
    assert asked.pop() == ("sine", {**common, "num_train": 9, "num_validation": 3, "num_test": 2, "noise": 0.5})
    changes = {**small, "data_seed": 4, "data_options": {"train_stride": 7}, "out_features": 1}
    config = configs.cell("vibration", "plane_vibration", "ctfno", "quick", overrides=changes)
    SeriesTask.from_config(config, data_dir="here", parts=("train", "validation"))
    assert asked.pop() == ("plane_vibration", {**common, "train_stride": 7})
