"""Losses of latent models against NumPy, value by value."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.training import latent_losses as losses

DRAWS, BATCH, TIMES, FEATURES = 2, 3, 4, 5


def _case(seed=0):
    rng = np.random.default_rng(seed)
    prediction = rng.normal(size=(DRAWS, BATCH, TIMES, FEATURES)).astype(np.float32)
    target = rng.normal(size=(BATCH, TIMES, FEATURES)).astype(np.float32)
    mask = (rng.random(target.shape) < 0.5).astype(np.float32)
    mask[1, :, 2] = 0  # a feature that was never observed in one series
    mask[0, 0] = 1
    return prediction, target, mask


def test_the_published_mean_counts_unobserved_features_as_zero():
    prediction, target, mask = _case()
    error = np.square(prediction[0] - target)
    expected = np.zeros((BATCH, FEATURES))
    for i in range(BATCH):
        for f in range(FEATURES):
            seen = mask[i, :, f] > 0
            expected[i, f] = error[i, seen, f].mean() if seen.any() else 0.0
    np.testing.assert_allclose(losses.per_feature(error, mask), expected.mean(axis=1), rtol=1e-5)


def test_squared_errors_are_pooled_over_draws_and_observed_values():
    prediction, target, mask = _case()
    expected = np.mean([np.square(draw - target)[mask > 0].mean() for draw in prediction])
    assert losses.squared_error(prediction, target, mask) == pytest.approx(expected, rel=1e-5)


def test_weighted_squared_errors_are_the_published_mean():
    prediction, target, mask = _case()
    expected = np.mean([losses.per_feature(np.square(draw - target), mask).mean() for draw in prediction])
    found = losses.weighted_squared_error(prediction, target, losses.published_weights(mask))
    assert found == pytest.approx(expected, rel=1e-5)


def test_weights_of_some_times_give_the_mean_over_all_of_them():
    """The mean over all draws of two of the times, each as likely as the others, has no bias."""
    prediction, target, mask = _case()
    mask[0, 1:], mask[2, 2:] = 0, 0  # series of one, four and two times
    mask[1:, :2, 0], mask[1, 2:, 0] = 1, 1
    weights = np.asarray(losses.published_weights(mask, num_drawn=2))
    drawn = []
    for series in range(BATCH):
        there = np.flatnonzero(mask[series].any(axis=1))
        pairs = list(itertools.combinations(there, min(2, len(there))))
        error = weights[series] * np.square(prediction[:, series] - target[series])
        drawn.append(np.mean([error[:, list(pair)].sum(axis=1) for pair in pairs]))
    whole = losses.weighted_squared_error(prediction, target, losses.published_weights(mask))
    assert whole == pytest.approx(np.mean(drawn), rel=1e-5)


def test_with_everything_observed_the_likelihood_is_a_plain_mean():
    prediction, target, _ = _case()
    std = 0.3
    density = -0.5 * ((prediction - target) / std) ** 2 - np.log(std * np.sqrt(2 * np.pi))
    found = losses.log_likelihood(prediction, target, np.ones_like(target), std)
    np.testing.assert_allclose(found, density.mean(axis=(2, 3)), rtol=1e-4)


def test_the_divergence_is_that_of_two_normal_distributions():
    """Against an integral of the densities."""
    mean, std = np.asarray([[0.7]]), np.asarray([[0.4]])
    x = np.linspace(-8, 8, 200_001)
    q = np.exp(-0.5 * ((x - 0.7) / 0.4) ** 2) / (0.4 * np.sqrt(2 * np.pi))
    log_p = -0.5 * x**2 - 0.5 * np.log(2 * np.pi)
    log_q = -0.5 * ((x - 0.7) / 0.4) ** 2 - np.log(0.4 * np.sqrt(2 * np.pi))
    expected = np.sum(q * (log_q - log_p)) * (x[1] - x[0])
    assert losses.divergence(mean, std)[0, 0] == pytest.approx(expected, rel=1e-4)
    assert losses.divergence(np.zeros((1, 1)), np.ones((1, 1)))[0, 0] == pytest.approx(0, abs=1e-5)
    # A standard deviation of zero is far from the prior, but not infinitely far.
    assert np.isfinite(losses.divergence(np.zeros((1, 1)), np.zeros((1, 1)))).all()


def test_the_published_objective_takes_means_over_the_batch_before_the_logarithm():
    rng = np.random.default_rng(0)
    likelihood, kl = rng.normal(size=(3, 4)), rng.random((4, 2))
    inner = likelihood.mean(axis=1) - 0.3 * kl.mean()
    expected = -np.log(np.exp(inner).sum())
    assert losses.published_bound(likelihood, kl, 0.3) == pytest.approx(expected, rel=1e-5)


def test_the_evidence_bound_is_tight_where_the_posterior_is_exact():
    """x = z + noise with a standard normal z: the bound with the exact posterior is the log evidence."""
    std, x = 0.5, 0.8
    precision = 1 + 1 / std**2
    mean, deviation = x / std**2 / precision, precision**-0.5
    draws = np.random.default_rng(0).normal(size=(200_000, 1, 1, 1))
    prediction = mean + deviation * draws
    target, mask = np.full((1, 1, 1), x), np.ones((1, 1, 1))
    kl = losses.divergence(np.asarray([[mean]]), np.asarray([[deviation]]))
    variance = 1 + std**2
    evidence = -0.5 * x**2 / variance - 0.5 * np.log(2 * np.pi * variance)
    assert -losses.evidence_bound(prediction, target, mask, kl, std) == pytest.approx(evidence, abs=5e-3)


def test_cross_entropy_counts_the_times_that_have_a_label():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 3, 4, 5))
    labels = rng.integers(0, 5, (3, 4))
    labels[0, 2:] = -1
    probability = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    chosen = [-np.log(probability[d, i, t, labels[i, t]]) for d in range(2) for i in range(3) for t in range(4)
              if labels[i, t] >= 0]  # fmt: skip
    assert losses.cross_entropy(logits, labels) == pytest.approx(np.mean(chosen), rel=1e-5)


def test_the_weight_of_the_divergence_begins_after_some_epochs():
    epochs = jnp.asarray([0, 9, 10, 11, 20, 500])
    expected = [0, 0, 0, 1 - 0.99, 1 - 0.99**10, 1 - 0.99**490]
    np.testing.assert_allclose(jax.vmap(lambda e: losses.kl_weight(e, 10, 0.99))(epochs), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["squared_error", "weighted", "likelihood", "evidence"])
def test_what_was_not_observed_reaches_neither_the_loss_nor_its_gradient(name):
    prediction, target, mask = _case()

    def loss(prediction, target):
        if name == "squared_error":
            return losses.squared_error(prediction, target, mask)
        if name == "weighted":
            return losses.weighted_squared_error(prediction, target, losses.published_weights(mask))
        if name == "likelihood":
            return losses.log_likelihood(prediction, target, mask, 0.1).sum()
        return losses.evidence_bound(prediction, target, mask, jnp.zeros((BATCH, 2)), 0.1)

    other = np.where(mask > 0, target, 1e6).astype(np.float32)
    first, second = (jax.value_and_grad(loss)(prediction, some) for some in (target, other))
    assert first[0] == second[0]
    np.testing.assert_array_equal(first[1], second[1])
    assert np.all(np.asarray(first[1])[:, mask == 0] == 0)
