"""Errors of forecasts of partly observed series, and the noise that they leave."""

import numpy as np
from jaxtyping import Float

from ctfno_jax.data.masked_series import Part


def scores(values: Float[np.ndarray, "draws batch time outputs"], part: Part) -> dict[str, float]:
    """Errors of forecasts, or the accuracy of scores of classes.

    ``mse`` is the published mean: over the observed times of each series and feature, zero for a feature without any,
    then over features, series and draws. ``mse_pooled`` is the mean over all observed values.
    """
    if part.labels is not None:
        known = part.labels >= 0
        right = (np.argmax(values, axis=-1) == part.labels) & known
        return {"accuracy": float(right.sum() / (len(values) * known.sum()))}
    target, mask = part.target.values, part.target.mask.astype(bool)

    def squared(some: np.ndarray) -> np.ndarray:
        return np.where(mask, np.square(some.astype(np.float64) - target), 0)

    count = mask.sum(axis=1)
    errors = [squared(draw) for draw in values]
    each = [np.mean(error.sum(axis=1) / np.maximum(count, 1)) for error in errors]
    return {
        "mse": float(np.mean(each)),
        "mse_pooled": float(np.mean([error.sum() for error in errors]) / mask.sum()),
        "mse_of_mean": float(np.mean(squared(values.mean(axis=0)).sum(axis=1) / np.maximum(count, 1))),
    }


def unexplained(values: Float[np.ndarray, "draws batch time features"], part: Part) -> Float[np.ndarray, " features"]:
    """Standard deviation of each feature's noise, which with the variance of the draws makes up the squared error.

    The mean of ``variance of the draws + noise^2`` over the part is the mean squared error of the mean forecast, unless
    the draws alone vary more. A feature that the part does not hold has noise of one.
    """
    mask = part.target.mask.astype(bool)
    count = mask.sum(axis=(0, 1))
    values = values.astype(np.float64)
    left = np.where(mask, np.square(values.mean(axis=0) - part.target.values) - values.var(axis=0), 0).sum(axis=(0, 1))
    return np.where(count > 0, np.sqrt(np.maximum(left, 0) / np.maximum(count, 1)), 1.0)
