"""Losses of latent models on partly observed series.

Predictions of several draws are ``(draws, batch, time, features)``; targets have a mask, and what was not observed does
not count. "Per feature" is the published average: over the observed times of each series and feature, then over all
features, those without any observation counting as zero, then over series.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

# Keeps the logarithm of a standard deviation finite.
_LEAST_STD = 1e-6


def per_feature(
    values: Float[Array, "*draws batch time features"], mask: Float[Array, "batch time features"]
) -> Float[Array, "*draws batch"]:
    """Mean over the observed times of each feature, then over all features."""
    count = jnp.sum(mask, axis=-2)
    total = jnp.sum(jnp.where(mask > 0, values, 0), axis=-2)
    return jnp.mean(total / jnp.maximum(count, 1), axis=-1)


def squared_error(
    prediction: Float[Array, "draws batch time features"],
    target: Float[Array, "batch time features"],
    mask: Float[Array, "batch time features"],
) -> Float[Array, ""]:
    """Mean over all draws and observed values."""
    error = jnp.where(mask > 0, jnp.square(prediction - target), 0)
    return jnp.sum(jnp.mean(error, axis=0)) / jnp.maximum(jnp.sum(mask), 1)


def published_weights(
    mask: Float[Array, "batch time features"], num_drawn: int = 0
) -> Float[Array, "batch time features"]:
    """Weight of every value in the published mean over the observed times of its feature.

    With ``num_drawn``, weights for that many random times of each series: the expectation of the weighted sum over
    them is the mean over all times. A feature that was observed once would otherwise count less than others.
    """
    weights = mask / jnp.maximum(jnp.sum(mask, axis=-2, keepdims=True), 1)
    if not num_drawn:
        return weights
    there = jnp.sum(jnp.max(mask, axis=-1), axis=-1)[:, None, None]
    return weights * jnp.maximum(there / num_drawn, 1)


def weighted_squared_error(
    prediction: Float[Array, "draws batch time features"],
    target: Float[Array, "batch time features"],
    weights: Float[Array, "batch time features"],
) -> Float[Array, ""]:
    """Sum over times of weighted squared errors, then the mean over draws, series and features."""
    error = jnp.where(weights > 0, jnp.square(prediction - target), 0)
    return jnp.mean(jnp.sum(weights * error, axis=-2))


def log_likelihood(
    prediction: Float[Array, "draws batch time features"],
    target: Float[Array, "batch time features"],
    mask: Float[Array, "batch time features"],
    std: float,
) -> Float[Array, "draws batch"]:
    """Gaussian log density of the observed values, per feature."""
    density = -0.5 * jnp.square((prediction - target) / std) - math.log(std) - 0.5 * math.log(2 * math.pi)
    return per_feature(density, mask)


def divergence(mean: Float[Array, "batch latent"], std: Float[Array, "batch latent"]) -> Float[Array, "batch latent"]:
    """Kullback-Leibler divergence of every component of the posterior from a standard normal prior."""
    return 0.5 * (jnp.square(mean) + jnp.square(std) - 1) - jnp.log(std + _LEAST_STD)


def published_bound(
    likelihood: Float[Array, "draws batch"], kl: Float[Array, "batch latent"], kl_weight: Array | float
) -> Float[Array, ""]:
    """The published objective: minus a log-sum-exp over draws of batch means.

    It is not a bound on the evidence: the mean over the batch is taken before the logarithm, and the divergence is a
    mean over components.
    """
    draws = jnp.mean(likelihood, axis=1) - kl_weight * jnp.mean(kl)
    return -jax.scipy.special.logsumexp(draws)


def evidence_bound(
    prediction: Float[Array, "draws batch time features"],
    target: Float[Array, "batch time features"],
    mask: Float[Array, "batch time features"],
    kl: Float[Array, "batch latent"],
    std: float,
    kl_weight: Array | float = 1.0,
) -> Float[Array, ""]:
    """Minus the evidence lower bound, divided by the number of observed values."""
    density = -0.5 * jnp.square((prediction - target) / std) - math.log(std) - 0.5 * math.log(2 * math.pi)
    likelihood = jnp.sum(jnp.mean(jnp.where(mask > 0, density, 0), axis=0))
    return (kl_weight * jnp.sum(kl) - likelihood) / jnp.maximum(jnp.sum(mask), 1)


def cross_entropy(
    logits: Float[Array, "draws batch time classes"], labels: Int[Array, "batch time"]
) -> Float[Array, ""]:
    """Mean over draws and all times that have a label; a label of -1 is none."""
    known = labels >= 0
    log_probability = jax.nn.log_softmax(logits, axis=-1)
    index = jnp.broadcast_to(jnp.maximum(labels, 0), logits.shape[:-1])[..., None]
    chosen = jnp.take_along_axis(log_probability, index, axis=-1)[..., 0]
    return -jnp.sum(jnp.mean(jnp.where(known, chosen, 0), axis=0)) / jnp.maximum(jnp.sum(known), 1)


def kl_weight(epoch: Array, wait: int, rate: float) -> Float[Array, ""]:
    """Zero for the first epochs, then towards one: ``1 - rate^(epoch - wait)``."""
    return jnp.where(epoch < wait, 0.0, 1 - rate ** jnp.maximum(epoch - wait, 0).astype(jnp.float32))
