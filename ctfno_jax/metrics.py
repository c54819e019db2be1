"""Errors of predicted fields, on arrays ``(batch, time, *space, channels)``."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float


def check_shapes(prediction: np.ndarray, target: np.ndarray) -> None:
    """Raises ValueError unless both have one shape."""
    # Broadcasting would hide a wrong time or channel axis behind a plausible number.
    if prediction.shape != target.shape:
        raise ValueError(f"prediction and target must have one shape, got {prediction.shape} and {target.shape}")


def rmse(prediction: Float[np.ndarray, "..."], target: Float[np.ndarray, "..."]) -> float:
    """Root of the mean squared error over samples, times, points and channels."""
    check_shapes(prediction, target)
    return float(np.sqrt(np.mean(np.square(prediction.astype(np.float64) - target))))


def nrmse(prediction: Float[np.ndarray, "..."], target: Float[np.ndarray, "..."]) -> float:
    """Relative L2 error of each trajectory (over its times, points and channels), averaged over trajectories."""
    check_shapes(prediction, target)
    axes = tuple(range(1, target.ndim))
    error = np.sqrt(np.sum(np.square(prediction.astype(np.float64) - target), axis=axes))
    return float(np.mean(error / np.sqrt(np.sum(np.square(target.astype(np.float64)), axis=axes))))


def relative_error(prediction: Float[np.ndarray, "..."], target: Float[np.ndarray, "..."]) -> float:
    """L2 error of everything over the L2 norm of everything: defined also where some trajectory is zero throughout."""
    check_shapes(prediction, target)
    return rmse(prediction, target) / float(np.sqrt(np.mean(np.square(target.astype(np.float64)))))


def max_error(prediction: Float[np.ndarray, "..."], target: Float[np.ndarray, "..."]) -> float:
    """Largest absolute error at any sample, time, point and channel."""
    check_shapes(prediction, target)
    return float(np.max(np.abs(prediction.astype(np.float64) - target)))


def rmse_over_time(
    prediction: Float[np.ndarray, "batch time *rest"], target: Float[np.ndarray, "batch time *rest"]
) -> Float[np.ndarray, " time"]:
    """Root mean squared error at each query time."""
    check_shapes(prediction, target)
    axes = (0, *range(2, target.ndim))
    return np.sqrt(np.mean(np.square(prediction.astype(np.float64) - target), axis=axes))


def field_errors(
    u: np.ndarray, target: np.ndarray, *, deviation: np.ndarray, channels: Sequence[str]
) -> dict[str, float]:
    """Errors over all samples, times, points and channels, and by channel where there are several."""
    errors = {
        "rmse": rmse(u, target),
        "nrmse": nrmse(u, target),
        "rmse_in_deviations": rmse(u / deviation, target / deviation),
        "max_error": max_error(u, target),
    }
    if len(channels) > 1:
        for i, channel in enumerate(channels):
            errors[f"rmse_{channel}"] = rmse(u[..., i], target[..., i])
            errors[f"rmse_in_deviations_{channel}"] = errors[f"rmse_{channel}"] / float(deviation[i])
    return errors
