"""Learning from trajectories: what is refused, what a batch and an evaluation are, devices and seeds."""

import dataclasses

import jax
import numpy as np
import pytest
from helpers import compiled, prediction, small_runs

from ctfno_jax import metrics
from ctfno_jax.config import ConfigError, OptimizerConfig, TrainConfig
from ctfno_jax.data import problems
from ctfno_jax.data.trajectories import FieldDataset, Trajectories
from ctfno_jax.tasks import fields
from ctfno_jax.tasks.fields import FieldSettings, FieldTask
from ctfno_jax.training import run
from experiments import configs

TRAIN = TrainConfig(steps=4, steps_per_call=2, eval_every=4)
SGD = OptimizerConfig(optimizer="sgd", learning_rate=0.02, schedule="constant", clip_norm=0.0)


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
    """The run on one device; every trajectory of a batch has its own random shift and sign."""
    with prediction.one_device():
        (trained,) = _train(small_runs.task("deeponet"))
        return trained


@pytest.mark.slow
# Other numbers of devices are tried on a linear regression, by the tests of whole trainings.
@pytest.mark.parametrize("parallel", ["shard_map", "pmap"])
def test_gradients_over_several_devices_are_those_of_one(alone, parallel):
    (trained,) = _train(small_runs.task("deeponet"), parallel=parallel)
    _assert_close(trained, alone)


@pytest.mark.slow
def test_seeds_at_once_are_the_seeds_alone():
    """Constants that a network computes from data come through vmap too."""
    task = small_runs.task("pod_deeponet")
    with prediction.one_device():
        together = _train(task, seeds=(5, 6))
        _assert_close(together[1], *_train(task, seeds=[6]))
    first, second = (np.concatenate([np.ravel(a) for a in jax.tree.leaves(t.params["params"])]) for t in together)
    assert np.abs(first - second).max() > 1e-2


def test_an_adjoint_that_cannot_be_sharded_is_refused_on_several_devices():
    task = small_runs.task("neural_ode", fields={"adjoint": "checkpoints"})
    with pytest.raises(
        ConfigError, match="adjoint=checkpoints cannot be sharded over several devices; use adjoint=dir"
    ):
        _train(task)


# --- what a task refuses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"times_per_step": -1}, "times_per_step must be at least 0, got -1"),
        ({"train_grid": -1}, "train_grid must be at least 0, got -1"),
        ({"window": -1}, "window must be at least 0, got -1"),
        ({"random_starts": 1.5, "shared_normalization": True}, r"random_starts must be in \[0, 1\], got 1\.5"),
        ({"random_starts": float("nan")}, r"random_starts must be in \[0, 1\], got nan"),
        ({"loss": "l1"}, "unknown loss 'l1'; known are mse, rmse, relative_l2"),
        ({"transform": "aligned"}, "unknown transform 'aligned'; known are none, resampling, odd_extension"),
        ({"random_starts": 0.5}, "random_starts and window use solutions as initial states; set shared_normalization"),
        ({"window": 2}, "random_starts and window use solutions as initial states; set shared_normalization"),
        ({"own_times": True, "times_per_step": 0}, "own_times draws times_per_step times for each trajectory"),
        (
            {"random_starts": 0.5, "shared_normalization": True, "times_per_step": 0},
            "random_starts needs times_per_step of at least 1, or a window",
        ),
        (
            {"random_starts": 0.5, "shared_normalization": True, "own_times": True},
            "random_starts with own_times needs a window",
        ),
    ],
)
def test_settings_that_contradict_themselves_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        FieldSettings(**settings)


@pytest.mark.parametrize(
    ("dataset", "model", "overrides", "message"),
    [
        ("burgers", "ctfno", {"sign_flips": True}, "burgers does not have the symmetry of sign_flips; remove it"),
        (
            "diffusion_sorption",
            "ctfno",
            {"translations": True},
            "does not have the symmetry of translations; remove it",
        ),
        ("diffusion_sorption", "ctfno", {"reflections": True}, "does not have the symmetry of reflections; remove it"),
        (
            "heat",
            "ctfno",
            {"transform": "odd_extension"},
            "heat has no walls with known values for transform=odd_exten",
        ),
        (
            "heat",
            "ctfno",
            {"transform": "resampling", "train_grid": 7},
            "resampling has train_grid points: set it to 8",
        ),
        (
            "diffusion_sorption",
            "ctfno_odd",
            {"train_grid": 4},
            "odd_extension has train_grid points: set it to 8 or mo",
        ),
        ("heat", "ctfno", {"train_times": 5}, "CTFNO has no grid of times to resample; remove train_times"),
        ("heat", "fno_2d", {"window": 5}, "train_times and window are for different models; remove one of them"),
        ("heat", "ctfno", {"width": 10, "heads": 4}, "width=10 must be divisible by heads=4"),
    ],
)
def test_what_follows_from_problem_model_and_settings_is_refused_before_data_are_made(
    monkeypatch, dataset, model, overrides, message
):
    monkeypatch.setattr(problems, "load_dataset", lambda *_, **__: pytest.fail("data were made"))
    config = configs.cell("pde", dataset, model, overrides=overrides)
    with pytest.raises(ValueError, match=message):
        FieldTask.from_config(config)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ctfno", {"batch_size": 17}, "batch_size=17 exceeds the 16 training trajectories; lower it"),
        ("ctfno", {"times_per_step": 6}, "times_per_step=6 exceeds the 5 times of the data; 0 is all"),
        ("fno_rnn", {"window": 6}, "window=6 exceeds the 5 times of the data"),
        ("fno_rnn", {"fields": {"time_step": 0.3}}, "the model does not fit the times of the data: "),
        ("fno_2d", {"fields": {"final_time": 2.0}}, "the model does not fit the times of the data: "),
        ("pod_deeponet", {"fields": {"basis": "space_time", "num_times": 4}}, "does not fit the times of the data"),
        (
            "ctfno",
            {"fields": {"out_channels": 2}},
            "the data have 1 output channels, but the network answers 2; set out",
        ),
        ("ctfno", {"fields": {"modes": [12]}, "train_grid": 16}, r"modes \(12,\) do not fit a grid of \(16,\) points"),
        ("ctfno", {"train_grid": 12}, r"a grid of 32 points cannot be cut to 12; use one of \[8, 16, 32\]"),
    ],
)
def test_what_does_not_fit_the_data_is_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        small_runs.task(name, **options)


def test_a_window_needs_states_and_evenly_spaced_times():
    u0 = prediction.waves(10, 16)
    times = np.asarray([0.1, 0.2, 0.4], np.float32)
    uneven = Trajectories(u0, times, prediction.decay(u0, times))
    wider = Trajectories(u0, times[:2], np.concatenate([prediction.decay(u0, times[:2])] * 2, axis=-1))
    settings = {"batch_size": 4, "window": 2, "times_per_step": 0, "shared_normalization": True}
    for trajectories, model, message in (
        (uneven, small_runs.network("ctfno"), "not multiples of the first"),
        (wider, small_runs.network("ctfno", out_channels=2), "solutions of 2 channels cannot be initial states of 1"),
    ):
        data = fields.dataset_of_arrays("mine", trajectories, trajectories.select(slice(2)), None, source="arrays")
        with pytest.raises(ValueError, match=message):
            FieldTask(data, model, FieldSettings(**settings))


# --- what it does -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished():
    """A task with its initial parameters, on half of the grid points."""
    task = small_runs.task("ctfno", train_grid=16, sign_flips=True)
    task.between = lambda: dataclasses.replace(task.data.test, times=task.data.test.times * np.float32(0.9))
    return task, task.init(jax.random.key(0))


def test_training_data_are_normalised_and_on_the_grid_of_the_training(finished):
    task, _ = finished
    assert task.arrays.u0.shape == (16, 16, 1)
    assert task.arrays.u.shape == (16, 5, 16, 1)
    # Changes of sign leave the mean at zero.
    normalization = task.transform
    assert normalization.inputs.mean == normalization.outputs.mean == (0.0,)
    coarse = task.data.train.coarsen(16)
    np.testing.assert_allclose(task.arrays.u * normalization.outputs.std[0], coarse.u, rtol=1e-5, atol=1e-6)


def test_the_validation_error_is_that_on_the_grid_of_the_training(finished):
    task, params = finished
    some = task.data.validation.coarsen(16)
    found = task.evaluate(params, "validation")
    u = task.predict(params, some.u0, some.times)
    assert found == {"validation_rmse": metrics.rmse(u, some.u), "validation_nrmse": metrics.nrmse(u, some.u)}


def test_errors_on_the_test_set_agree_with_each_other(finished):
    task, params = finished
    scores, test = task.evaluate(params, "test"), task.data.test
    expected = (
        "rmse nrmse rmse_in_deviations max_error rmse_in_deviations_over_time times pdebench rmse_between_times "
        "rmse_in_deviations_between_times certified_lipschitz measured_gain certificate_ratio evaluation_seconds"
    )
    assert set(scores) == set(expected.split())
    u = task.predict(params, test.u0, test.times)
    assert u.shape == test.u.shape == (3, 5, 32, 1)
    assert scores["rmse"] == metrics.rmse(u, test.u)
    deviation = np.std(task.data.train.u.astype(np.float64))
    assert scores["rmse"] / scores["rmse_in_deviations"] == pytest.approx(deviation, rel=1e-5)
    between = scores["rmse_between_times"] / scores["rmse_in_deviations_between_times"]
    assert between == pytest.approx(deviation, rel=1e-5)
    np.testing.assert_allclose(scores["times"], test.times, rtol=1e-6)
    # Every time has as many points; four digits are kept.
    over_time = np.asarray(scores["rmse_in_deviations_over_time"])
    assert np.sqrt(np.mean(over_time**2)) == pytest.approx(scores["rmse_in_deviations"], rel=1e-3)
    assert scores["certified_lipschitz"] >= scores["measured_gain"] > 0
    assert scores["certificate_ratio"] >= 1


def test_errors_of_channels_are_told_apart_and_count_in_their_own_deviations():
    rng = np.random.default_rng(0)
    target = rng.normal(size=(4, 3, 8, 2)) * [1.0, 100.0]
    u = target + rng.normal(size=target.shape) * [0.1, 20.0]
    deviation = np.asarray([1.0, 100.0])
    errors = metrics.field_errors(u, target, deviation=deviation, channels=("density", "pressure"))
    by_channel = np.asarray([errors["rmse_density"], errors["rmse_pressure"]])
    assert errors["rmse"] == pytest.approx(np.sqrt(np.mean(by_channel**2)), rel=1e-6)
    in_deviations = np.asarray([errors["rmse_in_deviations_density"], errors["rmse_in_deviations_pressure"]])
    np.testing.assert_allclose(in_deviations, by_channel / deviation, rtol=1e-6)
    assert errors["rmse_in_deviations"] == pytest.approx(np.sqrt(np.mean(in_deviations**2)), rel=1e-5)


@pytest.mark.parametrize(("name", "answers"), [("deeponet", True), ("fno_rnn", False)])
def test_errors_between_times_are_for_models_that_answer_there(name, answers):
    task = small_runs.task(name)
    task.between = lambda: dataclasses.replace(task.data.test, times=task.data.test.times * np.float32(0.75))
    params = task.init(jax.random.key(0))
    assert ("rmse_between_times" in task._between_times(params)) == answers


def test_without_the_test_set_only_validation_data_are_evaluated():
    data = dataclasses.replace(small_runs.dataset(), test=None)
    task = small_runs.task("deeponet", data=data)
    params = task.init(jax.random.key(0))
    assert np.isfinite(task.evaluate(params, "validation")["validation_rmse"])
    with pytest.raises(ValueError, match="the test set was not loaded; this task evaluates on validation data only"):
        task.evaluate(params, "test")


@pytest.mark.parametrize(("reflections", "translations"), [(True, False), (True, True), (False, False)])
def test_a_basis_is_that_of_the_solutions_and_their_reflections(reflections, translations):
    """Fields that are shifted at random have more images than a basis could be made of."""
    task = small_runs.task("pod_deeponet", reflections=reflections, translations=translations)
    params = task.init(jax.random.key(0))
    found = params["constants"]["pod"]["mean"][:, 0]
    shapes = jax.eval_shape(task.init, jax.random.key(0))  # a program counts parameters before it makes them
    assert jax.tree.map(np.shape, shapes) == jax.tree.map(np.shape, params)
    u = np.asarray(task.arrays.u)[..., 0].astype(np.float64)
    mean = u.mean((0, 1))
    if reflections and not translations:
        mean = (mean + mean[-np.arange(32)]) / 2
    np.testing.assert_allclose(found, mean, atol=1e-5)
    if not reflections:
        assert np.abs(mean - mean[-np.arange(32)]).max() > 1e-2


@pytest.mark.parametrize("transform", ["resampling", "odd_extension"])
def test_between_walls_a_network_is_trained_on_points_of_its_own(transform):
    walls = problems.Walls(1.0, 0.0, right_slip=0.1)
    u0, times = prediction.waves(10, 24), np.asarray([0.5, 1.0], np.float32)
    every = Trajectories(u0, times, prediction.decay(u0, times))
    problem = problems.FieldProblem("walls", walls=walls, periodic=False, final_time=1.0, num_times=2)
    data = FieldDataset(problem, every.select(slice(2, None)), every.select(slice(2)), None, {})
    settings = FieldSettings(batch_size=4, times_per_step=2, transform=transform, train_grid=16)
    task = FieldTask(data, small_runs.network("ctfno"), settings)
    assert task.arrays.u0.shape[1] == task.arrays.u.shape[2] == 16
    params = task.init(jax.random.key(0))
    some = data.validation
    u = task.predict(params, some.u0, some.times)
    assert u.shape == some.u.shape
    assert task.evaluate(params, "validation")["validation_rmse"] == pytest.approx(metrics.rmse(u, some.u), rel=1e-6)


def test_on_a_periodic_domain_resampled_fields_keep_symmetries_and_waves():
    """A network that passes its input on has the error of the decay alone, on the grid of the data."""
    u0, times = prediction.waves(10, 24), np.asarray([0.5, 1.0], np.float32)
    every = Trajectories(u0, times, prediction.decay(u0, times))
    problem = problems.FieldProblem("ring", reflection=(1.0,), odd=True, final_time=1.0, num_times=2)
    data = FieldDataset(problem, every.select(slice(2, None)), every.select(slice(2)), None, {})
    settings = FieldSettings(
        batch_size=4, times_per_step=2, transform="resampling", train_grid=16, sign_flips=True, reflections=True,
        translations=True, shared_normalization=True,
    )  # fmt: skip
    task = FieldTask(data, small_runs.network("neural_flow"), settings)
    params = jax.tree.map(np.zeros_like, task.init(jax.random.key(0)))
    some = data.validation
    u = task.predict(params, some.u0, some.times)
    np.testing.assert_allclose(u, np.broadcast_to(some.u0[:, None], some.u.shape), atol=1e-5)


def test_a_cell_is_a_task_on_its_data(monkeypatch):
    """Sizes, seed and options of the config reach the data, and test data only if they are asked for."""
    overrides = {
        "num_train": 9, "num_validation": 3, "num_test": 2, "batch_size": 8, "data_seed": 4,
        "data_options": {"num_points": 32, "num_times": 5}, "train_grid": 16, "modes": [6], "width": 8,
        "time_width": 8, "time_features": 4,
    }  # fmt: skip
    config = configs.cell("pde", "heat", "ctfno", "quick", overrides=overrides)
    without = FieldTask.from_config(config, parts=("train", "validation"))
    assert without.data.test is None
    assert without.between is None
    task = FieldTask.from_config(config)
    assert [len(part) for part in (task.data.train, task.data.validation, task.data.test)] == [9, 3, 2]
    expected = problems.load_dataset(
        "heat", num_train=9, num_validation=3, num_test=2, seed=4, num_points=32, num_times=5
    )  # fmt: skip
    for name in ("train", "validation"):
        np.testing.assert_array_equal(getattr(task.data, name).u, getattr(expected, name).u)
        np.testing.assert_array_equal(getattr(without.data, name).u, getattr(expected, name).u)
    np.testing.assert_array_equal(task.data.test.u, expected.test.u)
    assert task.between().times.shape == (4,)
