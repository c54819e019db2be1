"""The image task: what a step sees, what is reported, and that proofs and attacks do not contradict each other."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import small_images

from ctfno_jax import attacks
from ctfno_jax.certify_classifier import classifier_lipschitz, estimated_classifier_lipschitz
from ctfno_jax.classify import load_classifier
from ctfno_jax.config import ConfigError, OptimizerConfig, TrainConfig
from ctfno_jax.data.images import Images
from ctfno_jax.predict import load_predictor
from ctfno_jax.training import run
from ctfno_jax.training.checkpoint import CheckpointError
from ctfno_jax.training.workdir import Workdir

TESTS = {"noises": (20.0,), "epsilons": (40.0,), "certified_radius": 0.05}


def at(step):
    return jnp.asarray(step, jnp.int32)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A task that was trained for a few steps, its parameters and its folder."""
    task = small_images.task(**TESTS)
    folder = tmp_path_factory.mktemp("images") / "run"
    with Workdir(folder, {}) as workdir:
        (found,) = run.train(
            task, optimizer=OptimizerConfig(learning_rate=3e-2), config=TrainConfig(60, 20, 20), workdirs=[workdir],
            show_progress=False,
        )  # fmt: skip
    return task, found.params, folder


def test_an_epoch_shows_every_image_once():
    task = small_images.task()
    seen = [task.sample(task.arrays, jax.random.key(3), at(step), 0, 1) for step in range(5)]
    pixels = np.concatenate([batch.images[:, 0, 0, 0] for batch in seen])
    np.testing.assert_array_equal(np.sort(pixels), np.sort(task.data.train.images[:, 0, 0, 0]))


def test_shards_together_are_the_batch_of_one_device():
    task = small_images.task()
    whole = task.sample(task.arrays, jax.random.key(4), at(3), 0, 1)
    parts = [task.sample(task.arrays, jax.random.key(4), at(3), shard, 2) for shard in range(2)]
    for field in ("images", "labels"):
        np.testing.assert_array_equal(np.concatenate([getattr(p, field) for p in parts]), getattr(whole, field))
    with pytest.raises(ConfigError, match="batch_size=8 cannot be divided among 3 devices"):
        task.sample(task.arrays, jax.random.key(4), at(3), 0, 3)


def test_the_loss_is_the_mean_cross_entropy():
    task = small_images.task()
    params = task.init(jax.random.key(0))
    batch = task.sample(task.arrays, jax.random.key(5), at(0), 0, 1)
    logits = np.asarray(jax.jit(task.model.apply)(params, batch.images))
    expected = -np.mean([np.log(jax.nn.softmax(row)[label]) for row, label in zip(logits, batch.labels, strict=True)])
    assert float(jax.jit(task.loss)(params, batch, jax.random.key(6))) == pytest.approx(expected, rel=1e-5)


def test_the_gradient_of_a_few_images_at_a_time_is_that_of_the_batch():
    whole, divided = small_images.task(), small_images.task(images_per_pass=2)
    params = whole.init(jax.random.key(0))
    batch = whole.sample(whole.arrays, jax.random.key(1), at(0), 0, 1)
    expected, found = (jax.jit(jax.grad(task.loss))(params, batch, None) for task in (whole, divided))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), found, expected)


@pytest.mark.slow
def test_a_margin_adds_to_all_other_classes_what_they_may_gain():
    plain, with_margin = small_images.task(), small_images.task(margin_radius=0.2)
    params = plain.init(jax.random.key(0))
    batch = plain.sample(plain.arrays, jax.random.key(5), at(0), 0, 1)
    bounds = estimated_classifier_lipschitz(plain.model, params, small_images.SHAPE)
    raised = plain.model.apply(params, batch.images) + 0.2 * bounds[batch.labels]
    expected = jnp.mean(optax.softmax_cross_entropy_with_integer_labels(raised, batch.labels))
    found = with_margin.loss(params, batch, jax.random.key(6))
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
    assert float(found) > float(plain.loss(params, batch, jax.random.key(6)))


@pytest.mark.slow
def test_what_is_learned_is_reported(trained):
    task, params, _ = trained
    validation = task.evaluate(params, "validation")
    assert validation["validation_accuracy"] == 1 - validation["validation_error"] > 0.8
    scores = task.evaluate(params, "test")
    assert set(scores) == {
        "accuracy", "evaluation_seconds", "gaussian_20", "fgsm_40", "pgd_40", "pgd_quarter_40", "apgd_40",
        "certified_lipschitz", "certified_accuracy",
    }  # fmt: skip
    assert json.loads(json.dumps(scores)) == scores  # a row holds them
    right = task.answers(params, task.data.test) == task.data.test.labels
    assert scores["accuracy"] == right.mean()
    assert scores["certified_accuracy"] <= scores["accuracy"]
    weaker = [scores[name] for name in ("fgsm_40", "pgd_40", "pgd_quarter_40")]
    assert scores["apgd_40"] <= min(weaker) <= max(weaker) <= scores["accuracy"]


@pytest.mark.slow
def test_no_attack_breaks_a_certified_image(trained):
    task, params, folder = trained
    test = task.data.test
    radius = load_classifier(folder).certified_radius(test.images)
    right = task.answers(params, test) == test.labels
    sure = np.flatnonzero(right & (radius > 0))
    assert len(sure) > 0
    logits = lambda pixels: task.model.apply(params, pixels)  # noqa: E731
    images, labels = jnp.asarray(test.images[sure]), jnp.asarray(test.labels[sure])
    nearly = 0.999 * jnp.asarray(radius[sure])
    found = attacks.apgd(logits, images, labels, nearly, steps=20, norm="l2", key=jax.random.key(0))
    np.testing.assert_array_equal(np.argmax(logits(found), axis=-1), test.labels[sure])


def test_a_run_is_read_back_as_a_classifier(trained):
    task, params, folder = trained
    classifier = load_classifier(folder)
    np.testing.assert_array_equal(classifier(task.data.test.images), task.answers(params, task.data.test))
    assert "3 classes" in repr(classifier)
    bounds = classifier_lipschitz(task.model, params, small_images.SHAPE)
    expected = attacks.certified_radius(classifier.logits(task.data.test.images), bounds)
    np.testing.assert_allclose(classifier.certified_radius(task.data.test.images), expected, rtol=1e-5)
    with pytest.raises(CheckpointError, match="read it by load_classifier"):
        load_predictor(folder)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((9, 8, 1), np.float32), r"images must have shape \(batch, height, width, 1\), got \(9, 8, 1\)"),
        (np.zeros((2, 9, 8, 3), np.float32), r"got \(2, 9, 8, 3\)"),
        (np.zeros((2, 9, 8, 1), np.uint8), "got dtype uint8; divide by 255"),
        (np.full((2, 9, 8, 1), 255.0, np.float32), r"pixels must lie in \[0, 1\], got values from 255 to 255"),
        (np.full((2, 9, 8, 1), np.nan, np.float32), r"pixels must lie in \[0, 1\]"),
    ],
)
def test_a_classifier_refuses_what_is_no_image(trained, images, message):
    with pytest.raises(ValueError, match=message):
        load_classifier(trained[2])(images)


@pytest.mark.slow
def test_finer_images_are_read_without_training(trained):
    _, params, _ = trained
    finer = small_images.task(resolutions=True)
    scores = finer.evaluate(params, "test")
    for factor in (2, 4, 8):
        for method in ("bilinear", "fourier"):
            assert scores[f"accuracy_x{factor}_{method}"] == pytest.approx(scores["accuracy"], abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn", "image_anode"])
def test_every_classifier_can_be_trained(name):
    task = small_images.task(name, epsilons=(10.0,))
    params = task.init(jax.random.key(0))
    batch = task.sample(task.arrays, jax.random.key(5), at(0), 0, 1)
    gradient = jax.jit(jax.grad(task.loss))(params, batch, jax.random.key(6))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
    assert max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(gradient)) > 0
    assert "certified_accuracy" not in task.evaluate(params, "test")


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigError, match="images_per_pass=3 must divide batch_size=8"):
        small_images.task(batch_size=8, images_per_pass=3)
    with pytest.raises(ConfigError, match="margin_radius needs a certificate, which CNN has not"):
        small_images.task("cnn", margin_radius=0.1)
    with pytest.raises(ConfigError, match="batch_size=50 exceeds the 40 training images"):
        small_images.task(batch_size=50)
    with pytest.raises(ConfigError, match="grey has 4 classes, but the network answers 3"):
        small_images.task(data=small_images.dataset(num_classes=4))
    with pytest.raises(ConfigError, match="epsilons must be positive grey levels"):
        small_images.task(epsilons=(-1.0,))


def test_the_figure_names_both_classes_of_a_wrong_answer(trained):
    task, params, _ = trained
    wrong = Images(task.data.validation.images, ((task.answers(params, task.data.validation) + 1) % 3).astype(np.int32))
    other = small_images.task(data=small_images.dataset(validation=wrong))
    ((name, figure),) = other.figures(params, "validation")
    assert name == "images"
    texts = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert len(texts) == 12
    assert all(", not " in text for text in texts)
