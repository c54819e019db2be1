"""Tasks on partly observed series: batches, losses, errors, and predictions in real units."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import small_latent

from ctfno_jax import load_predictor, results
from ctfno_jax.config import ConfigError, OptimizerConfig, TrainConfig
from ctfno_jax.data.masked_series import Observations, Part
from ctfno_jax.models import registry
from ctfno_jax.tasks import latent, masked_metrics
from ctfno_jax.tasks.latent import LatentSettings
from ctfno_jax.training import run
from ctfno_jax.training.task import Buckets
from ctfno_jax.training.workdir import Workdir
from experiments import configs


def _sample(task, step=0, shard=0, num_shards=1, arrays=None):
    arrays = task.arrays if arrays is None else arrays
    return jax.jit(lambda a, s: task.sample(a, jax.random.key(3), s, shard, num_shards))(arrays, step)


# --- batches ------------------------------------------------------------------------------------------------------


def test_training_draws_other_points_at_every_step():
    task = small_latent.task(times_per_step=4)
    first, again, next_epoch = (_sample(task, step) for step in (0, 0, 2))
    assert first.observed.shape == (8, 3, 5)
    assert (first.times.shape, first.values.shape) == ((4,), (8, 4, 2))
    np.testing.assert_array_equal(first.observed, again.observed)
    times = np.asarray(first.observed[..., 0])
    assert np.all(np.diff(times, axis=1) > 0)
    assert len(np.unique(times, axis=0)) > 1
    # Every drawn point is one of its series, with all its values.
    whole = {tuple(np.round(row, 5)) for row in np.asarray(task.arrays.observed).reshape(-1, 5)}
    assert {tuple(np.round(row, 5)) for row in np.asarray(next_epoch.observed).reshape(-1, 5)} <= whole
    assert not np.array_equal(times, next_epoch.observed[..., 0])


@pytest.mark.parametrize(
    ("kind", "own_times"),
    [
        pytest.param("regular", False, marks=pytest.mark.slow),
        ("regular", True),
        ("irregular", False),
        pytest.param("classes", False, marks=pytest.mark.slow),
    ],
)
def test_a_batch_is_the_union_of_its_shards(kind, own_times):
    task = small_latent.task(kind=kind, times_per_step=3, own_times=own_times)
    whole = _sample(task, 5)
    parts = [_sample(task, 5, shard, 2) for shard in (0, 1)]
    for name in ("observed", "times", "values", "mask", "weights", "labels"):
        values = getattr(whole, name)
        if values is not None and not (name == "times" and values.ndim == 1):
            np.testing.assert_array_equal(values, np.concatenate([getattr(part, name) for part in parts]))
    assert (whole.labels is not None) == (kind == "classes")


def test_series_with_times_of_their_own_are_asked_at_their_own_points():
    task = small_latent.task(kind="irregular", times_per_step=3)
    batch = _sample(task, 1)
    assert batch.times.shape == (8, 3)
    data = task.data.train.target
    points = zip(data.times.ravel(), data.mask.reshape(-1, 2), strict=True)
    known = {(round(float(t), 5), *map(float, m)) for t, m in points}
    for times, mask in zip(np.asarray(batch.times), np.asarray(batch.mask), strict=True):
        assert all((round(float(t), 5), *map(float, m)) in known for t, m in zip(times, mask, strict=True))


def test_series_on_one_grid_can_have_query_times_of_their_own():
    task = small_latent.task(times_per_step=3, own_times=True)
    grid, values = np.asarray(task.arrays.times), np.asarray(task.arrays.values)
    strata = np.split(np.arange(len(grid)), np.arange(1, 3) * len(grid) // 3)
    drawn = [_sample(task, step) for step in range(6)]
    for batch in drawn:
        assert (batch.times.shape, batch.values.shape) == ((8, 3), (8, 3, 2))
        index = np.searchsorted(grid, np.asarray(batch.times))
        for i, stratum in enumerate(strata):
            assert np.isin(index[:, i], stratum).all()
        # What is asked at a time is what some series has there.
        for row, chosen in zip(np.asarray(batch.values), index, strict=True):
            assert (values[:, chosen] == row).all(axis=(1, 2)).any()
    assert len(np.unique([np.asarray(batch.times) for batch in drawn], axis=0)) > 1
    assert len(np.unique(np.asarray(drawn[0].times), axis=0)) > 1


def test_own_times_need_a_number_of_times():
    with pytest.raises(ConfigError, match="own_times draws times_per_step times for each series; set it to 1 or more"):
        LatentSettings(own_times=True)


def test_groups_of_similar_length_hold_every_series_once():
    data = small_latent.dataset("irregular")
    task = small_latent.task(data=data, lengths=(4, 6), batch_size=2)
    assert isinstance(task.arrays, Buckets)
    sizes = [len(arrays.observed) for arrays in task.arrays.arrays]
    assert sum(sizes) == 16
    assert [arrays.observed.shape[1] for arrays in task.arrays.arrays] == [4, 6, 9]
    assert set(task.arrays.order) == {0, 1, 2}
    values = np.concatenate([np.asarray(a.values).sum((1, 2)) for a in task.arrays.arrays])
    np.testing.assert_allclose(np.sort(values), np.sort(data.train.target.values.sum((1, 2))), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("batch_size", "lengths", "shapes"),
    [(3, (4, 8), [(6, 4), (7, 8), (3, 9)]), (4, (4, 8), [(6, 4), (10, 9)]), (4, (4, 6, 8), [(6, 4), (10, 9)]),
     (4, (8,), [(16, 9)]), (7, (4, 6), [(9, 6), (7, 9)])],
)  # fmt: skip
def test_a_group_that_is_too_small_for_a_batch_joins_its_neighbour(batch_size, lengths, shapes):
    data = small_latent.dataset("irregular")
    task = small_latent.task(data=data, lengths=lengths, batch_size=batch_size)
    groups = task.arrays.arrays if isinstance(task.arrays, Buckets) else [task.arrays]
    assert [arrays.observed.shape[:2] for arrays in groups] == shapes
    values = np.concatenate([np.asarray(a.values).sum((1, 2)) for a in groups])
    np.testing.assert_allclose(np.sort(values), np.sort(data.train.target.values.sum((1, 2))), rtol=1e-5, atol=1e-5)


def test_a_batch_that_is_too_large_is_refused():
    with pytest.raises(ConfigError, match="batch_size=17 exceeds the 16 training series; lower it"):
        small_latent.task(batch_size=17)
    with pytest.raises(ConfigError, match="batch_size=8 cannot be divided among 3 devices"):
        _sample(small_latent.task(), num_shards=3)


def test_variances_of_forecasts_are_their_squared_error_on_average():
    part = small_latent.irregular(7, seed=3)
    target, mask = part.target.values, part.target.mask
    values = target + np.random.default_rng(0).normal(size=(5, *target.shape)) + [1.5, -2.0]
    noise = masked_metrics.unexplained(values, part)
    for feature in range(2):
        there = mask[..., feature] > 0
        variance = values.var(0)[there, feature] + noise[feature] ** 2
        error = np.square(values.mean(0) - target)[there, feature]
        assert noise[feature] > 0
        assert np.mean(variance) == pytest.approx(np.mean(error), rel=1e-5)


def test_draws_that_explain_more_than_the_error_leave_no_noise_and_an_unseen_feature_has_one():
    part = small_latent.regular(3)
    target = part.target.values
    first = dataclasses.replace(part.target, mask=part.target.mask * np.asarray([1, 0], np.float32),
        values=target * np.asarray([1, 0], np.float32))  # fmt: skip
    wide = np.stack([target - 2, target + 2])
    np.testing.assert_array_equal(masked_metrics.unexplained(wide, Part(part.observed, first, None)), [0, 1])


# --- losses -------------------------------------------------------------------------------------------------------


# One with a latent state and one without; the others take another minute.
_ALWAYS = ("latent_ctfno", "ode_rnn")


@pytest.mark.parametrize(
    "name", [n if n in _ALWAYS else pytest.param(n, marks=pytest.mark.slow) for n in small_latent.NETWORKS]
)
def test_every_network_has_a_finite_loss_with_gradients(name):
    task = small_latent.task(name, kind="irregular")
    params = task.init(jax.random.key(0))
    batch = _sample(task)
    loss, grads = jax.jit(jax.value_and_grad(task.loss))(params, batch, jax.random.key(1))
    assert np.isfinite(loss)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(grads))
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(grads)) > 0


def test_targets_that_were_not_observed_do_not_matter():
    task = small_latent.task(kind="irregular")
    params, batch = task.init(jax.random.key(0)), _sample(task)
    other = batch._replace(values=jnp.where(batch.mask > 0, batch.values, 1e6))
    grad = jax.jit(jax.grad(task.loss))
    first, second = (grad(params, some, jax.random.key(1)) for some in (batch, other))
    jax.tree.map(np.testing.assert_array_equal, first, second)


@pytest.mark.parametrize("loss", ["published_bound", pytest.param("evidence_bound", marks=pytest.mark.slow)])
def test_bounds_weigh_the_divergence_by_the_epoch(loss):
    task = small_latent.task(loss=loss, num_draws=3, observation_std=0.5, kl_wait=1, kl_rate=0.5)
    params = task.init(jax.random.key(0))
    early, later = _sample(task, 0), _sample(task, 5)  # two batches are an epoch
    assert (float(early.kl_weight), float(later.kl_weight)) == (0.0, 0.5)
    same = early._replace(kl_weight=later.kl_weight)
    values = [jax.jit(task.loss)(params, some, jax.random.key(1)) for some in (early, same)]
    assert values[1] > values[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "l1"}, "unknown loss 'l1'; known are squared_error"),
        ({"task": "classification"}, "task=classification cannot have loss=squared_error"),
        ({"loss": "cross_entropy"}, "classification has cross_entropy"),
        ({"observed": 1.5}, r"observed must be in \[0, 1\]"),
        ({"observation_std": 0.0, "loss": "evidence_bound"}, "observation_std must be positive"),
        ({"observation_std": 0.1}, "loss=squared_error does not read observation_std; remove it"),
        ({"kl_wait": 3}, "loss=squared_error does not read kl_wait"),
        ({"lengths": (0, 3)}, "lengths must be positive"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        LatentSettings(**settings)


def test_a_share_of_points_is_refused_where_data_are_observed_as_they_are():
    config = configs.cell("timeseries", "physionet", "ctfno", overrides={"observed": 0.5})
    with pytest.raises(ConfigError, match=r"physionet is observed as it is; remove observed=0\.5"):
        latent.LatentTask.load(config)


def test_a_model_without_a_latent_distribution_has_no_bound_and_no_draws():
    with pytest.raises(ConfigError, match="loss=published_bound needs a latent distribution; ODERNN has none"):
        small_latent.task("ode_rnn", loss="published_bound")
    with pytest.raises(ConfigError, match="ODERNN has nothing to draw; set num_draws=1"):
        small_latent.task("ode_rnn", num_draws=2)


# --- errors -------------------------------------------------------------------------------------------------------


def test_errors_by_hand_in_both_conventions():
    times = np.asarray([[0.0, 0.5, 1.0]], np.float32).repeat(2, axis=0)
    mask = np.asarray([[[1, 0], [1, 0], [1, 0]], [[1, 1], [0, 1], [0, 0]]], np.float32)
    target = Observations(np.where(mask.any(-1), times, 0.5).astype(np.float32), np.zeros_like(mask), mask)
    values = np.asarray([[[3, 9], [0, 9], [0, 9]], [[2, 1], [9, 3], [9, 9]]], np.float32)[None]
    found = masked_metrics.scores(values, Part(target, target, None))
    # Squared errors: 9, 0, 0 of x in the first series; 4 of x and 1, 9 of y in the second.
    assert found["mse"] == pytest.approx(((3 + 0) / 2 + (4 + 5) / 2) / 2)
    assert found["mse_pooled"] == pytest.approx((9 + 4 + 1 + 9) / 6)
    two = np.concatenate([values, -values])
    assert masked_metrics.scores(two, Part(target, target, None))["mse"] == pytest.approx(found["mse"])
    assert masked_metrics.scores(two, Part(target, target, None))["mse_of_mean"] == 0


def test_accuracy_counts_labelled_times_of_all_draws():
    part = small_latent.irregular(2, num_classes=3)
    logits = np.zeros((2, *part.labels.shape, 3), np.float32)
    right = np.maximum(part.labels, 0)
    np.put_along_axis(logits[0], right[..., None], 1.0, axis=-1)
    np.put_along_axis(logits[1], ((right + 1) % 3)[..., None], 1.0, axis=-1)
    assert masked_metrics.scores(logits, part) == {"accuracy": 0.5}


def test_the_test_set_is_needed_for_test_errors_only():
    task = small_latent.task(data=dataclasses.replace(small_latent.dataset(), test=None))
    params = task.init(jax.random.key(0))
    assert task.evaluate(params, "validation")["validation_error"] > 0
    with pytest.raises(ValueError, match="the test set was not loaded"):
        task.evaluate(params, "test")


def test_a_network_with_another_number_of_outputs_is_refused():
    network = {**small_latent.NETWORKS["latent_ctfno"], "out_features": 2, "num_classes": 4}
    settings = LatentSettings(task="classification", loss="cross_entropy", batch_size=8)
    with pytest.raises(ConfigError, match="waves has 3 features or classes, but the network answers 4"):
        latent.LatentTask(small_latent.dataset("classes"), registry.build_model("latent_ctfno", **network), settings)


# --- a whole run --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short run on the waves, and its folder."""
    folder = tmp_path_factory.mktemp("latent") / "run"
    task = small_latent.task(times_per_step=4)
    with Workdir(folder, {"made": "by a test"}) as workdir:
        (found,) = run.train(
            task, optimizer=OptimizerConfig(learning_rate=1e-2), config=TrainConfig(200, 100, 100), workdirs=[workdir],
            show_progress=False,
        )  # fmt: skip
        row = results.finish(task, found, workdir, {"model": "latent_ctfno"})
    return task, found, folder, row


def test_training_lowers_the_error_and_leaves_a_row_and_a_figure(trained):
    task, found, folder, row = trained
    series = task.data.train
    before, after = (
        masked_metrics.scores(task.predict(params, series), series)["mse"]
        for params in (task.init(jax.random.key(0)), found.params)
    )
    assert after < 0.8 * before
    assert row["metrics"]["validation_error"] == found.metrics["validation_error"]
    assert (folder / "figures" / "series.png").stat().st_size > 10_000


def test_a_predictor_answers_in_real_units(trained):
    task, found, folder, _ = trained
    predictor = load_predictor(folder)
    part = task.data.test
    times = np.asarray([0.1, 0.55], np.float32)
    inside = task.model.apply(found.params, part.observed.packed(), times)
    expected = np.asarray(inside) * [2.0, 0.5] + [1.0, -2.0]
    real = task._real(part.observed)
    assert real[..., 0].max() > 10  # hours, not parts of two days
    np.testing.assert_allclose(predictor(real, 48 * times), expected, rtol=1e-4, atol=1e-4)
    assert predictor.notes(real, [100.0]) == ["times up to 100 lie beyond the training horizon of 48"]
