"""References without training are what their names say, on series small enough to check by hand."""

import dataclasses

import numpy as np
import pytest
from helpers import small_latent

from ctfno_jax.data.masked_series import Observations, Part
from ctfno_jax.tasks.masked_metrics import scores
from experiments import latent_references


def _answer(name, data, part):
    return latent_references.MODELS[name](data, part)


@pytest.fixture(scope="module")
def regular():
    return small_latent.dataset()


def test_interpolation_is_exact_on_straight_lines(regular):
    part = regular.validation
    slope = np.arange(1, len(part) + 1, dtype=np.float32)[:, None, None]
    line = part.observed.times[..., None] * slope + np.asarray([0.0, 3.0], np.float32)
    observed = dataclasses.replace(part.observed, values=line * part.observed.mask)
    answer = _answer("linear_interpolation", regular, Part(observed, part.target, None))
    inside = (part.target.times >= observed.times[:, :1]) & (part.target.times <= observed.times[:, -1:])
    expected = part.target.times[..., None] * slope + np.asarray([0.0, 3.0])
    assert inside.sum() > 10
    np.testing.assert_allclose(answer[inside], expected[inside], rtol=1e-5)


def test_the_last_value_is_that_of_the_latest_observation(regular):
    part = regular.test
    answer = _answer("last_value", regular, part)
    for i in range(len(part)):
        for j, t in enumerate(part.target.times[i]):
            before = np.flatnonzero(part.observed.times[i] <= t)
            if len(before):
                np.testing.assert_array_equal(answer[i, j], part.observed.values[i, before[-1]])


def test_a_feature_that_was_never_observed_has_its_training_mean(regular):
    part = regular.test
    first = np.asarray([1, 0], np.float32)
    unseen = dataclasses.replace(part.observed, values=part.observed.values * first, mask=part.observed.mask * first)
    mean = regular.train.target.values[..., 1].mean()
    for name in latent_references.OF_TASK["interpolation"]:
        answer = _answer(name, regular, Part(unseen, part.target, None))
        np.testing.assert_allclose(answer[..., 1], mean, rtol=1e-5)


def test_the_majority_is_the_share_of_its_class():
    data = small_latent.dataset("classes")
    labels = data.train.labels
    most = np.bincount(labels[labels >= 0]).argmax()
    known = data.test.labels[data.test.labels >= 0]
    found = scores(_answer("majority_class", data, data.test)[None], data.test)
    assert found == {"accuracy": pytest.approx(np.mean(known == most))}


def _clusters(count, seed, shift=0.0):
    """Points of classes 0 and 2 of three, about two centres, with a feature that never varies."""
    rng = np.random.default_rng(seed)
    times = np.tile(np.linspace(0, 1, 6, dtype=np.float32), (count, 1))
    labels = rng.choice([0, 2], (count, 6)).astype(np.int32)
    values = np.stack([0.5 * labels + shift + 0.1 * rng.normal(size=labels.shape), np.full(labels.shape, 7.0)], -1)
    points = Observations(times, values.astype(np.float32), np.ones(values.shape, np.float32))
    return Part(points, points, labels)


def test_the_discriminant_separates_clusters_and_answers_no_class_that_never_occurs():
    data = small_latent.dataset("classes", train=_clusters(20, 0), validation=_clusters(5, 1), test=_clusters(6, 2))
    values = _answer("linear_discriminant", data, data.test)
    assert scores(values[None], data.test) == {"accuracy": 1.0}
    assert np.all(np.isneginf(values[..., 1]))
    moved = _answer("linear_discriminant", data, _clusters(6, 2, shift=10.0))
    assert np.all(moved.argmax(-1) == 2)


@pytest.mark.slow
def test_the_discriminant_does_not_depend_on_units():
    data = small_latent.dataset("classes")

    def scaled(part):
        points = dataclasses.replace(part.observed, values=(part.observed.values * [1e3, 0.1]).astype(np.float32))
        return Part(points, points, part.labels)

    other = small_latent.dataset("classes", train=scaled(data.train), test=scaled(data.test))
    np.testing.assert_allclose(
        _answer("linear_discriminant", other, other.test), _answer("linear_discriminant", data, data.test), atol=1e-3
    )
