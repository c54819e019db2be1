"""Attacks reach closed forms where there are any, and never break what is certified."""

import functools
import re
import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax import attacks
from ctfno_jax.attacks import auto_pgd, balls, problems

ROOT = Path(__file__).parents[1]
BATCH, SHAPE = 5, (3, 4, 2)
SIZE = 24
NORMS = ("linf", "l2")
ATTACKS = {"fgsm": attacks.fgsm, "pgd": attacks.pgd, "apgd": functools.partial(attacks.apgd, steps=20)}


@functools.partial(jax.jit, static_argnames=("name", "logits", "norm"))
def _compiled(name, logits, images, labels, epsilon, norm, key):
    return ATTACKS[name](logits, images, labels, epsilon, norm=norm, key=key)


def _attacked(name, logits, images, labels, epsilon, norm, key=None):
    """One program for all radii."""
    return _compiled(name, logits, images, labels, np.full(len(images), epsilon, np.float32), norm, key)


def _images(count=BATCH, seed=0, low=0.0, high=1.0):
    return np.random.default_rng(seed).uniform(low, high, size=(count, *SHAPE)).astype(np.float32)


@functools.lru_cache
def _linear(classes, seed=1):
    """Weights ``(SIZE, classes)`` and the classifier, whose classes are about equally frequent around 0.5."""
    weights = np.random.default_rng(seed).normal(size=(SIZE, classes)).astype(np.float32)
    return weights, lambda x: (x.reshape(-1, SIZE) - 0.5) @ weights


@functools.lru_cache
def _network(classes, scale=1.0, seed=2):
    """A classifier with one hidden layer, and its Lipschitz constant in L2."""
    rng = np.random.default_rng(seed)
    first, second = (rng.normal(size=s).astype(np.float32) for s in ((SIZE, 16), (16, classes)))
    lipschitz = np.linalg.norm(first, 2) * np.linalg.norm(second, 2)
    return (lambda x: scale * jnp.tanh((x.reshape(-1, SIZE) - 0.5) @ first) @ second), lipschitz


def _size(change, norm):
    flat = np.asarray(change, np.float64).reshape(len(change), -1)
    return np.abs(flat).max(1) if norm == "linf" else np.linalg.norm(flat, axis=1)


@functools.partial(jax.jit, static_argnums=0)
def _cross_entropy(logits, images, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(images)), labels[:, None], axis=1)[:, 0]


# --- where attacks search -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ATTACKS)
def test_attacked_images_stay_in_ball_and_box_also_near_its_corners(name, norm):
    logits, _ = _network(3)
    images = np.where(_images(seed=1) < 0.5, 0.1, 1.0).astype(np.float32) * _images(seed=2)
    images[0], images[1] = 0.0, 1.0
    labels = np.asarray(logits(images)).argmax(-1)
    for epsilon, key in ((0.07, None), (2.0, jax.random.key(3))):
        attacked = np.asarray(_attacked(name, logits, images, labels, epsilon, norm, key))
        assert attacked.shape == images.shape
        assert attacked.dtype == np.float32
        assert attacked.min() >= 0
        assert attacked.max() <= 1
        assert np.all(_size(attacked - images, norm) <= epsilon * (1 + 1e-5))
        assert np.all(_size(attacked - images, norm) > 0.01 * epsilon)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("distance", [0.3, 30.0])
def test_points_are_projected_to_the_nearest_of_ball_and_box(norm, distance):
    """The way from a projection to the point has no positive part along any way into the convex set."""
    rng = np.random.default_rng(4)
    images = _images(count=100, seed=3) ** 4
    points = (images + distance * rng.standard_cauchy(size=images.shape)).astype(np.float32)
    epsilon = np.where(np.arange(100) < 50, 0.2, 1.5).astype(np.float32)
    project = jax.jit(jax.vmap(balls.BALLS[norm].project))
    projected = np.asarray(project(points, images, epsilon))
    assert projected.min() >= 0
    assert projected.max() <= 1
    assert np.all(_size(projected - images, norm) <= epsilon * (1 + 1e-5))
    np.testing.assert_allclose(project(projected, images, epsilon), projected, atol=1e-6)
    for seed in range(20):
        others = project(rng.normal(0.5, 10.0 ** (seed % 3), size=images.shape).astype(np.float32), images, epsilon)
        rise = np.sum((points - projected) * (np.asarray(others) - projected), axis=(1, 2, 3), dtype=np.float64)
        assert np.all(rise <= 1e-5 * _size(points - projected, "l2"))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ATTACKS)
def test_epsilon_zero_gives_the_images_back(name, norm):
    logits, _ = _network(3)
    images, labels = _images(), np.arange(BATCH) % 3
    for key in (None, jax.random.key(0)):
        np.testing.assert_array_equal(_attacked(name, logits, images, labels, 0.0, norm, key), images)


@pytest.mark.parametrize("name", ATTACKS)
def test_each_image_may_have_its_own_epsilon(name):
    logits, _ = _network(3)
    images, labels = _images(), np.arange(BATCH) % 3
    radii = np.asarray([0.0, 0.01, 0.02, 0.03, 0.04], np.float32)
    together = _attacked(name, logits, images, labels, radii, "l2")
    for index, radius in enumerate(radii):
        alone = _attacked(name, logits, images, labels, radius, "l2")[index]
        np.testing.assert_allclose(together[index], alone, atol=1e-6)


# --- what they find -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ATTACKS)
def test_on_a_linear_model_attacks_reach_the_closed_form(name):
    weights, logits = _linear(2)
    labels = np.arange(BATCH) % 2
    rise = (weights[:, 1] - weights[:, 0]) * np.where(labels == 0, 1, -1)[:, None]
    rise = rise.reshape(BATCH, *SHAPE)
    images = _images()
    attacked = _attacked(name, logits, images, labels, 0.2, "linf")
    np.testing.assert_allclose(attacked, np.clip(images + 0.2 * np.sign(rise), 0, 1), atol=1e-6)
    images = _images(low=0.4, high=0.6)
    attacked = _attacked(name, logits, images, labels, 0.3, "l2")
    unit = rise / np.linalg.norm(weights[:, 1] - weights[:, 0])
    np.testing.assert_allclose(attacked, images + 0.3 * unit, atol=1e-5)


@pytest.mark.parametrize("norm", NORMS)
def test_apgd_finds_at_least_the_loss_of_pgd(norm):
    logits, _ = _network(4, seed=5)
    images = _images(count=64, seed=6)
    labels = np.asarray(logits(images)).argmax(-1)
    epsilon = 0.08 if norm == "linf" else 0.3
    pgd, apgd = (functools.partial(a, epsilon=epsilon, steps=30, norm=norm) for a in (attacks.pgd, attacks.apgd))
    weak, strong = (_cross_entropy(logits, jax.jit(functools.partial(a, logits))(images, labels), labels)
                    for a in (pgd, apgd))  # fmt: skip
    assert np.mean(np.asarray(strong) >= np.asarray(weak) - 1e-4) > 0.95
    assert np.mean(strong) >= np.mean(weak)
    assert np.all(np.asarray(strong) >= np.asarray(_cross_entropy(logits, images, labels)))
    accuracies = [attacks.robust_accuracy(logits, images, labels, a) for a in (pgd, apgd)]
    assert accuracies[1] <= accuracies[0] < 0.9


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
def test_apgd_shortens_its_steps_until_it_meets_a_maximum_inside_the_ball(norm):
    """Steps of fixed length jump over it for ever."""
    images = _images(low=0.4, high=0.6)
    summit = images + 0.03 * np.sin(np.arange(images.size, dtype=np.float32)).reshape(images.shape)

    def logits(x):
        height = -jnp.sum((x - summit) ** 2, axis=(1, 2, 3))
        return jnp.stack([jnp.zeros_like(height), height], axis=1)

    labels = np.zeros(BATCH, int)
    epsilon = 0.1 if norm == "linf" else 0.4
    pgd = jax.jit(functools.partial(attacks.pgd, logits, steps=100, norm=norm))(images, labels, epsilon)
    apgd = jax.jit(functools.partial(attacks.apgd, logits, steps=100, norm=norm))(images, labels, epsilon)
    missed, met = (_size(a - summit, "l2") for a in (pgd, apgd))
    assert np.all(met < 0.02)
    assert np.all(met < 0.25 * missed)


def _reference_apgd(first, second, x0, label, epsilon, steps):
    """Algorithm 1 of Croce and Hein for one image, linf and ``tanh((x - 0.5) first) second``, step by step."""

    def loss(x):
        h = np.tanh((x - 0.5) @ first)
        p = np.exp(h @ second - np.logaddexp.reduce(h @ second))
        return -np.log(p[label]), first @ ((1 - h**2) * (second @ (p - np.eye(len(p))[label])))

    project = lambda x: np.clip(np.clip(x, x0 - epsilon, x0 + epsilon), 0, 1)  # noqa: E731
    shares = [0, 0.22, 0.41, 0.57, 0.70, 0.80, 0.87, 0.93, 0.99]
    checkpoints = [int(np.ceil(p * steps - 1e-9)) for p in shares]
    eta, x, best, rises = 2 * epsilon, [x0], x0, []
    last, last_eta, last_best = 0, eta, loss(x0)[0]
    for k in range(steps):
        z = project(x[k] + eta * np.sign(loss(x[k])[1]))
        x.append(z if k == 0 else project(x[k] + 0.75 * (z - x[k]) + 0.25 * (x[k] - x[k - 1])))
        rises.append(loss(x[k + 1])[0] > loss(x[k])[0])
        best = x[k + 1] if loss(x[k + 1])[0] > loss(best)[0] else best
        if k + 1 in checkpoints:
            few = sum(rises[last:]) < 0.75 * (k + 1 - last)
            stuck = eta == last_eta and loss(best)[0] == last_best
            last, last_eta, last_best = k + 1, eta, loss(best)[0]
            if few or stuck:
                eta, x[k + 1] = eta / 2, best
    return best, loss(best)[0]


def test_apgd_is_the_algorithm_of_the_paper():
    rng = np.random.default_rng(17)
    first, second = rng.normal(size=(SIZE, 16)), rng.normal(size=(16, 2))
    images, labels = _images(count=12, seed=18), np.arange(12) % 2
    logits = lambda x: jnp.tanh((x.reshape(-1, SIZE) - 0.5) @ first) @ second  # noqa: E731
    attacked = _attacked("apgd", logits, images, labels, 0.3, "linf")
    for x, y, z in zip(images.reshape(12, -1), labels, np.asarray(attacked).reshape(12, -1), strict=True):
        point, loss = _reference_apgd(first, second, x.astype(float), y, 0.3, 20)
        found = _cross_entropy(logits, z[None], np.asarray([y]))[0]
        assert found == pytest.approx(loss, rel=1e-3)
        np.testing.assert_allclose(z, point, atol=1e-3)


def test_steps_are_halved_by_few_rises_or_without_a_new_best():
    """Images with: few rises; just enough; all rises but no new best; the same after the step size was halved."""
    points = np.arange(4, dtype=np.float32)[:, None]
    current = problems.Evaluation(points, np.ones(4), points, np.zeros(4, bool))
    best = current._replace(points=points + 10, loss=np.full(4, 2.0))
    state = auto_pgd._Ascent(
        current=current,
        previous=points,
        best=best,
        strongest=best,
        step_size=np.ones(4),
        rises=np.asarray([5, 6, 8, 8]),
        halved=np.asarray([False, False, False, True]),
        checked_loss=np.asarray([1.0, 1.0, 2.0, 2.0]),
    )
    adapted = auto_pgd._adapted(state, 8)
    np.testing.assert_array_equal(adapted.halved, [True, False, True, False])
    np.testing.assert_array_equal(adapted.step_size, [0.5, 1.0, 0.5, 1.0])
    np.testing.assert_array_equal(adapted.current.points[:, 0], [10, 1, 12, 3])
    np.testing.assert_array_equal(adapted.current.loss, [2, 1, 2, 1])
    np.testing.assert_array_equal(adapted.checked_loss, best.loss)
    assert not adapted.rises.any()


def test_apgd_treats_every_image_by_itself():
    logits, _ = _network(3, seed=7)
    images, labels = _images(count=4, seed=8), np.arange(4) % 3
    attack = jax.jit(functools.partial(attacks.apgd, logits, steps=25))
    together = attack(images, labels, 0.1)
    for index in range(4):
        repeated = attack(images[[index] * 4], labels[[index] * 4], 0.1)
        np.testing.assert_allclose(repeated[0], together[index], atol=1e-6)


def test_apgd_prefers_a_wrong_answer_to_a_larger_loss():
    """The label loses against one class at the image, and wins narrowly against ten classes at the edge of the ball."""

    def logits(x):
        a = x - 0.5
        return jnp.concatenate([0 * a, 0.1 - 2 * a, jnp.repeat(49 * a - 5, 9, axis=1)], axis=1)

    images, labels = np.full((1, 1), 0.5, np.float32), np.zeros(1, int)
    edge = images + np.float32(0.1)
    attacked = jax.jit(functools.partial(attacks.apgd, logits, steps=7))(images, labels, 0.1)
    assert jnp.argmax(logits(edge)) == 0
    assert jnp.argmax(logits(attacked)) == 1
    assert _cross_entropy(logits, attacked, labels) < _cross_entropy(logits, edge, labels)


def test_checkpoints_are_those_of_the_paper():
    windows = auto_pgd._windows(100)
    assert list(np.flatnonzero(windows) + 1) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert list(windows[windows > 0]) == [22, 19, 16, 13, 10, 7, 6, 6]
    for steps in (1, 2, 3, 7, 50):
        windows = auto_pgd._windows(steps)
        assert windows.shape == (steps,)
        assert 1 <= windows.sum() <= steps


@pytest.mark.parametrize("name", ATTACKS)
def test_confidence_does_not_hide_the_gradient(name):
    """A factor on the logits of two classes changes no attack; with the larger one, the cross-entropy underflows."""
    images = _images(count=20, seed=9)
    tiny, large = (_network(2, scale=scale)[0] for scale in (2.0**-40, 2.0**14))
    labels = np.asarray(large(images)).argmax(-1)
    assert not jax.grad(lambda x: jnp.sum(_cross_entropy(large, x, labels)))(images).any()
    attacked = _attacked(name, large, images, labels, 0.5, "l2")
    np.testing.assert_allclose(_attacked(name, tiny, images, labels, 0.5, "l2"), attacked, atol=1e-6)
    assert np.mean(np.asarray(large(attacked)).argmax(-1) != labels) > 0.5


@pytest.mark.parametrize("name", ATTACKS)
def test_a_constant_model_cannot_be_attacked(name):
    constant = lambda x: jnp.broadcast_to(jnp.asarray([0.0, 2.0, 1.0]), (len(x), 3))  # noqa: E731
    images, labels = _images(), np.asarray([1, 1, 0, 2, 1])
    for norm in NORMS:
        np.testing.assert_array_equal(_attacked(name, constant, images, labels, 0.3, norm), images)
    attack = functools.partial(ATTACKS[name], epsilon=0.3)
    assert attacks.robust_accuracy(constant, images, labels, attack, key=jax.random.key(0)) == 0.6


@pytest.mark.parametrize("name", ATTACKS)
def test_gradients_that_are_no_numbers_do_not_spoil_the_images(name):
    """The norm of an image has no gradient at zero."""
    weights, _ = _linear(2)

    def logits(x):
        flat = x.reshape(-1, SIZE)
        return flat @ weights + jnp.linalg.norm(flat, axis=1, keepdims=True)

    images, labels = _images(), np.zeros(BATCH, int)
    images[2] = 0.0
    attacked = np.asarray(_attacked(name, logits, images, labels, 0.1, "l2"))
    assert np.all(np.isfinite(attacked))
    assert np.all(_size(attacked - images, "l2")[[0, 1, 3, 4]] > 0.05)


# --- keys and compilation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["pgd", "apgd"])
def test_random_starts_come_from_the_key(name, norm):
    logits, _ = _network(3)
    images, labels = _images(), np.arange(BATCH) % 3
    first, again, other, none = (
        np.asarray(_attacked(name, logits, images, labels, 0.5, norm, key))
        for key in (jax.random.key(1), jax.random.key(1), jax.random.key(2), None)
    )
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)
    assert np.any(first != none)


def test_random_starts_are_uniform_in_the_ball():
    images = np.full((4000, 3), 0.5, np.float32)
    constant = lambda x: jnp.zeros((len(x), 2))  # noqa: E731
    labels = np.zeros(4000, int)
    key = jax.random.key(0)
    linf, l2 = (np.asarray(_attacked("pgd", constant, images, labels, 0.4, norm, key)) - 0.5 for norm in NORMS)
    np.testing.assert_allclose(linf.std(0), 0.4 / np.sqrt(3), rtol=0.05)
    np.testing.assert_allclose(np.mean(_size(l2, "l2") <= 0.2), 1 / 8, atol=0.02)
    np.testing.assert_allclose(l2.mean(0), 0, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pgd", "apgd"])
def test_jit_changes_nothing(name):
    logits, _ = _network(3)
    images, labels = _images(), np.arange(BATCH) % 3
    eager = ATTACKS[name](logits, images, labels, 0.05, norm="l2")
    np.testing.assert_allclose(_attacked(name, logits, images, labels, 0.05, "l2"), eager, atol=1e-6)


# --- noise --------------------------------------------------------------------------------------------------------


def test_noise_has_the_standard_deviation_asked_for_and_is_clipped_only_on_request():
    images = np.full((50, 20, 10), 0.3, np.float32)
    key = jax.random.key(0)
    noisy = np.asarray(attacks.gaussian_noise(images, key, 0.4))
    assert (noisy - images).std() == pytest.approx(0.4, rel=0.02)
    assert (noisy - images).mean() == pytest.approx(0, abs=0.02)
    assert noisy.min() < 0
    assert noisy.max() > 1
    clipped = attacks.gaussian_noise(images, key, 0.4, clip=True)
    np.testing.assert_array_equal(clipped, np.clip(noisy, 0, 1))
    np.testing.assert_array_equal(attacks.gaussian_noise(images, key, 0.0), images)
    assert np.any(noisy != attacks.gaussian_noise(images, jax.random.key(1), 0.4))


# --- accuracy under attack ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_robust_accuracy_does_not_depend_on_the_batch_size(batch_size):
    logits, _ = _network(3, seed=10)
    images = _images(count=23, seed=11)
    labels = np.asarray(logits(images)).argmax(-1)
    labels[:3] = (labels[:3] + 1) % 3
    attack = functools.partial(attacks.fgsm, epsilon=0.05)
    attacked = _attacked("fgsm", logits, images, labels, 0.05, "linf")
    right = [np.asarray(logits(x)).argmax(-1) == labels for x in (images, attacked)]
    expected = np.mean(right[0] & right[1])
    assert 0.2 < expected < 0.8
    assert attacks.robust_accuracy(logits, images, labels, attack, batch_size=batch_size) == pytest.approx(expected)


def test_an_attack_never_raises_the_accuracy_and_no_number_is_no_answer():
    weights, logits = _linear(2)
    images = _images(count=40, seed=12)
    labels = np.asarray(logits(images)).argmax(-1)
    labels[:10] = 1 - labels[:10]
    rise = (weights[:, 1] - weights[:, 0]).reshape(SHAPE)
    correct = lambda f, x, y, key: x + jnp.where(y == 1, 1, -1)[:, None, None, None] * rise  # noqa: E731
    assert np.mean(np.asarray(logits(correct(None, images, labels, None))).argmax(-1) == labels) == 1
    assert attacks.robust_accuracy(logits, images, labels, correct, batch_size=16) == 0.75
    spoil = lambda f, x, y, key: jnp.full_like(x, jnp.nan)  # noqa: E731
    assert attacks.robust_accuracy(logits, images, labels, spoil, batch_size=16) == 0


def test_only_the_survivors_of_one_attack_need_another():
    logits, _ = _network(3, seed=10)
    images = _images(count=23, seed=11)
    labels = np.asarray(logits(images)).argmax(-1)
    weak, strong = (functools.partial(attacks.fgsm, epsilon=size) for size in (0.03, 0.06))
    alive = functools.partial(attacks.survivors, logits, images, labels, batch_size=7)
    after_both = alive(strong, among=alive(weak))
    np.testing.assert_array_equal(after_both, alive(weak) & alive(strong))
    assert 0 < after_both.sum() < alive(weak).sum() < 23
    untouched = lambda f, x, y, key: x  # noqa: E731
    among = np.arange(23) % 2 == 0
    np.testing.assert_array_equal(alive(untouched, among=among), among)
    assert not alive(untouched, among=np.zeros(23, bool)).any()


def test_every_batch_has_a_key_of_its_own():
    logits = lambda x: jnp.stack([x[:, 0], 1 - x[:, 0]], axis=1)  # noqa: E731
    images, labels = np.full((400, 1), 0.6, np.float32), np.zeros(400, int)
    noise = lambda f, x, y, key: attacks.gaussian_noise(x, key, 0.1)  # noqa: E731
    first, again = (
        attacks.robust_accuracy(logits, images, labels, noise, batch_size=20, key=jax.random.key(0)) for _ in range(2)
    )
    assert first == again
    # One standard deviation to the boundary; a key used for all batches would give a multiple of 0.05.
    assert first == pytest.approx(0.841, abs=0.05)
    assert abs(first * 20 - round(first * 20)) > 1e-6


# --- certificate --------------------------------------------------------------------------------------------------


def test_the_radius_of_a_linear_model_is_the_distance_from_the_decision_boundary():
    weights, logits = _linear(4)
    images = _images(count=30, seed=13)
    values = np.asarray(logits(images))
    differences = weights[:, :, None] - weights[:, None, :]
    radius = np.asarray(attacks.certified_radius(values, np.linalg.norm(differences, axis=0)))
    for x, value, r in zip(images.reshape(-1, SIZE), values, radius, strict=True):
        i = value.argmax()
        # The nearest point at which class j wins, for every other class.
        normals = np.delete(differences[:, :, i], i, axis=1)
        gaps = value[i] - np.delete(value, i)
        feet = x + (gaps / np.sum(normals**2, axis=0) * normals).T
        np.testing.assert_allclose(r, np.linalg.norm(feet - x, axis=1).min(), rtol=1e-4)
    general = attacks.certified_radius(values, np.linalg.norm(weights, 2))
    assert np.all(general <= radius * (1 + 1e-5))
    top = np.sort(values, axis=1)
    np.testing.assert_allclose(general, (top[:, -1] - top[:, -2]) / np.sqrt(2) / np.linalg.norm(weights, 2), rtol=1e-4)


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_break_a_linear_model_just_beyond_the_certified_radius_and_not_within(name):
    weights, logits = _linear(2)
    images = _images(count=30, seed=14, low=0.45, high=0.55)
    values = np.asarray(logits(images))
    labels = values.argmax(-1)
    sharp = np.linalg.norm(weights[:, 0] - weights[:, 1]) * np.ones((2, 2))
    radius = np.asarray(attacks.certified_radius(values, sharp))
    for factor, broken in ((0.99, False), (1.05, True)):
        attacked = _attacked(name, logits, images, labels, factor * radius, "l2")
        assert np.all((np.asarray(logits(attacked)).argmax(-1) != labels) == broken)


@pytest.mark.parametrize("name", ["pgd", "apgd"])
def test_no_attack_breaks_what_is_certified(name):
    logits, lipschitz = _network(4)
    images = _images(count=40, seed=16)
    values = np.asarray(logits(images))
    labels = values.argmax(-1)
    radius = np.asarray(attacks.certified_radius(values, lipschitz))
    assert radius.max() > 0.05
    attacked = _attacked(name, logits, images, labels, 0.99 * radius, "l2")
    assert np.all(np.asarray(logits(attacked)).argmax(-1) == labels)
    assert np.any(np.asarray(logits(_attacked(name, logits, images, labels, 1.0, "l2"))).argmax(-1) != labels)


def test_certified_accuracy_counts_what_is_right_and_certified():
    values = np.asarray([[3.0, 1.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 4.0], [1.0, 1.0, 0.0]], np.float32)
    labels = np.asarray([0, 1, 1, 0])
    np.testing.assert_allclose(
        attacks.certified_radius(values, 2.0), np.asarray([2.0, 0.5, 4.0, 0.0]) / (2 * np.sqrt(2)), rtol=1e-6
    )
    for radius, share in ((0.0, 0.5), (0.17, 0.5), (0.18, 0.25), (0.70, 0.25), (0.71, 0.0)):
        assert attacks.certified_accuracy(values, labels, 2.0, radius) == share
        jitted = jax.jit(attacks.certified_accuracy)(values, labels, 2.0, radius)
        assert jitted == share


def test_a_constant_has_an_infinite_radius_and_a_tie_has_none():
    values = np.asarray([[2.0, 1.0], [1.0, 1.0]], np.float32)
    np.testing.assert_array_equal(attacks.certified_radius(values, 0.0), [np.inf, 0.0])
    np.testing.assert_array_equal(attacks.certified_radius(values, np.inf), [0.0, 0.0])
    unsure = jax.jit(attacks.certified_radius)(jnp.asarray([[jnp.nan, 1.0]]), 1.0)
    np.testing.assert_array_equal(unsure, [0.0])


# --- mistakes -----------------------------------------------------------------------------------------------------

GOOD = {"images": _images(), "labels": np.arange(BATCH) % 3, "epsilon": 0.1}

MISTAKES = {
    "negative": ({"epsilon": -0.1}, r"epsilon must be finite and not negative, got -0.1; give the radius"),
    "nan": ({"epsilon": float("nan")}, "epsilon must be finite and not negative, got nan"),
    "infinite": ({"epsilon": float("inf")}, "epsilon must be finite and not negative, got inf"),
    "epsilons": ({"epsilon": np.ones(2)}, r"epsilon must be one number or have shape \(5,\).*got \(2,\)"),
    "norm": ({"norm": "l1"}, "norm must be one of linf, l2, got 'l1'"),
    "bright": ({"images": 255 * GOOD["images"]}, r"images must be finite and in \[0, 1\], got values from .*scale the"),
    "dark": ({"images": GOOD["images"] - 0.5}, r"images must be finite and in \[0, 1\], got values from -"),
    "no_number": ({"images": GOOD["images"] * np.nan}, "images must be finite .* got values from nan to nan"),
    "integers": (
        {"images": np.ones((BATCH, *SHAPE), np.uint8)},
        "images must be floating-point .*got uint8; divide by",
    ),
    "empty": ({"images": np.zeros((0, *SHAPE))}, r"images must have shape \(batch, \*shape\).*got \(0, 3, 4, 2\)"),
    "one_hot": ({"labels": np.zeros((BATCH, 3), int)}, r"labels must have shape \(5,\).*got \(5, 3\); of one-hot"),
    "few_labels": ({"labels": np.zeros(4, int)}, r"labels must have shape \(5,\), one for each image, got \(4,\)"),
    "real_labels": ({"labels": np.zeros(BATCH)}, "labels must be integers, .*got float64"),
    "large_label": ({"labels": np.arange(BATCH)}, "labels must be from 0 to 2, got 0 to 4; count from zero"),
    "negative_label": ({"labels": np.arange(BATCH) - 3}, "labels must be from 0 to 2, got -3 to 1"),
    "shape": ({"logits": lambda x: x}, r"logits must return shape \(5, classes\).*got \(5, 3, 4, 2\)"),
    "batch": ({"logits": lambda x: x[:2, 0, 0]}, r"logits must return shape \(5, classes\).*got \(2, 2\)"),
    "one_class": ({"logits": lambda x: x[:, 0, 0, :1]}, r"two classes or more, got \(5, 1\)"),
    "tuple": ({"logits": lambda x: (x, x)}, r"logits must return one array of shape \(batch, classes\), got tuple"),
    "argmax": (
        {"logits": lambda x: jax.nn.one_hot(x.reshape(-1, SIZE).argmax(-1), 3, dtype=int)},
        "logits must return floating-point values to differentiate, got int32; leave out argmax",
    ),
    "numpy": (
        {"logits": lambda x: np.asarray(x)[:, 0, 0]},
        "logits must be a function of JAX arrays that can be traced",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_explained_in_one_line(mistake, name):
    change, message = MISTAKES[mistake]
    arguments = {"logits": _network(3)[0], **GOOD, **change}
    with pytest.raises(ValueError, match=message) as error:
        ATTACKS[name](**arguments)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("steps", [0, -3, 2.5])
def test_numbers_of_steps_are_whole_and_positive(steps):
    for attack in (attacks.pgd, attacks.apgd):
        with pytest.raises(ValueError, match=f"steps must be a whole number of at least 1, .*got {steps}"):
            attack(_network(3)[0], **GOOD, steps=steps)


def test_shapes_and_types_are_checked_inside_jit_and_values_are_not():
    attack = jax.jit(functools.partial(attacks.fgsm, _network(3)[0]))
    with pytest.raises(ValueError, match="images must be floating-point"):
        attack(np.ones((BATCH, *SHAPE), np.int32), GOOD["labels"], 0.1)
    with pytest.raises(ValueError, match="labels must have shape"):
        attack(GOOD["images"], GOOD["labels"][:3], 0.1)
    assert attack(GOOD["images"], GOOD["labels"] + 7, -0.1).shape == (BATCH, *SHAPE)


def test_other_mistakes_are_explained():
    logits, values = _network(3)[0], np.ones((4, 3), np.float32)
    images, labels = GOOD["images"], GOOD["labels"]
    key = jax.random.key(0)
    noise = functools.partial(attacks.gaussian_noise, images, key)
    same = lambda f, x, y, key: x  # noqa: E731
    accuracy = functools.partial(attacks.robust_accuracy, logits)
    for call, message in (
        (lambda: noise(-1.0), "std must be finite and not negative, got -1.0"),
        (lambda: attacks.gaussian_noise(255 * images, key, 0.1), "images must be finite and in"),
        (lambda: attacks.pgd(logits, **GOOD, step_size=-1.0), "step_size must be finite and not negative, got -1.0"),
        (lambda: accuracy(images, labels, same, batch_size=0), "batch_size must be at least 1, got 0"),
        (lambda: attacks.survivors(logits, images, labels, same, among=[True]), r"among must have shape \(5,\)"),
        (lambda: accuracy(images, labels + 1, same), "labels must be from 0 to 2, got 1 to 3"),
        (lambda: accuracy(images, labels, lambda f, x, y, key: x[0]), r"attack must return .*\(5, 3, 4, 2\), got \(3"),
        (lambda: attacks.certified_radius(values[0], 1.0), r"values must be logits of shape .*got \(3,\)"),
        (lambda: attacks.certified_radius(values * np.nan, 1.0), "values must be finite logits"),
        (lambda: attacks.certified_radius(values, -1.0), "lipschitz must not be negative or NaN"),
        (lambda: attacks.certified_radius(values, np.nan), "lipschitz must not be negative or NaN"),
        (lambda: attacks.certified_radius(values, np.ones(3)), r"one number or have shape \(3, 3\), got \(3,\)"),
        (lambda: attacks.certified_accuracy(values, np.zeros(3, int), 1.0, 0.1), r"labels must have shape \(4,\)"),
        (lambda: attacks.certified_accuracy(values, np.full(4, 3), 1.0, 0.1), "labels must be from 0 to 2, got 3 to 3"),
        (lambda: attacks.certified_accuracy(values, np.zeros(4, int), 1.0, -0.1), "radius must be finite and not neg"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


# --- the page -----------------------------------------------------------------------------------------------------


def test_the_example_of_the_page_runs_and_its_numbers_are_in_order(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "attacks.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 1
    script = tmp_path / "example.py"
    script.write_text(blocks[0])
    robust = runpy.run_path(str(script))["robust"]
    assert 0 < robust["certified"] < robust["apgd"] <= robust["pgd"] <= robust["fgsm"] < 1
