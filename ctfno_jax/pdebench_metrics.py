"""The errors that PDEBench reports (Takamoto et al. 2022), on arrays ``(batch, time, x, channels)``.

With the error ``e = prediction - target``, every measure is one number for each time and channel, taken over samples
and points, and then averaged over times and channels. It matters where the mean over samples stands: outside the root
for ``rmse``, ``nrmse`` and ``brmse``, inside it for ``crmse`` and ``frmse``. For this reason the last two, and
``max_error``, depend on how a test set is cut into batches; here all samples given count as one batch.

PDEBench leaves out the times that a model was given as input: slice them off before calling. NaN comes out only where
NaN or infinity went in.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from jaxtyping import Float

from ctfno_jax import metrics

# First frequency of each band and the first beyond it; None is the end of the spectrum.
BANDS: Mapping[str, tuple[int, int | None]] = MappingProxyType({"low": (0, 4), "mid": (4, 12), "high": (12, None)})


def _error(prediction: np.ndarray, target: np.ndarray) -> Float[np.ndarray, "batch time x channels"]:
    metrics.check_shapes(prediction, target)
    if target.ndim != 4 or target.size == 0:
        raise ValueError(f"expected arrays (batch, time, x, channels) with no empty axis, got shape {target.shape}")
    return prediction.astype(np.float64) - target


def rmse(
    prediction: Float[np.ndarray, "batch time x channels"], target: Float[np.ndarray, "batch time x channels"]
) -> float:
    """Mean over samples, times and channels of ``sqrt(mean_x e^2)``."""
    return float(np.mean(np.sqrt(np.mean(_error(prediction, target) ** 2, axis=2))))


def nrmse(
    prediction: Float[np.ndarray, "batch time x channels"], target: Float[np.ndarray, "batch time x channels"]
) -> float:
    """Mean over samples, times and channels of ``sqrt(mean_x e^2) / sqrt(mean_x target^2)``.

    It is infinite if any target field, that is one sample at one time in one channel, is zero everywhere. PDEBench
    divides by zero there: infinity too, but NaN where the prediction is zero as well.
    """
    error = np.sqrt(np.mean(_error(prediction, target) ** 2, axis=2))
    norm = np.sqrt(np.mean(target.astype(np.float64) ** 2, axis=2))
    if np.any(norm == 0):
        return float("inf")
    return float(np.mean(error / norm))


def crmse(
    prediction: Float[np.ndarray, "batch time x channels"], target: Float[np.ndarray, "batch time x channels"]
) -> float:
    """Error of the conserved quantity: mean over times and channels of ``sqrt(mean_batch (mean_x e)^2)``."""
    return float(np.mean(np.sqrt(np.mean(np.mean(_error(prediction, target), axis=2) ** 2, axis=0))))


def brmse(
    prediction: Float[np.ndarray, "batch time x channels"], target: Float[np.ndarray, "batch time x channels"]
) -> float:
    """Error at the boundary: mean over samples, times and channels of ``sqrt((e_first^2 + e_last^2) / 2)``."""
    ends = _error(prediction, target)[:, :, [0, -1]]
    return float(np.mean(np.sqrt(np.mean(ends**2, axis=2))))


def max_error(
    prediction: Float[np.ndarray, "batch time x channels"], target: Float[np.ndarray, "batch time x channels"]
) -> float:
    """Mean over times and channels of ``max_{batch, x} |e|``, so at most the largest error of all."""
    return float(np.mean(np.max(np.abs(_error(prediction, target)), axis=(0, 2))))


def error_spectrum(
    prediction: Float[np.ndarray, "batch time x channels"],
    target: Float[np.ndarray, "batch time x channels"],
    *,
    length: float = 1.0,
) -> Float[np.ndarray, " k"]:
    """Mean over times and channels of ``(length / num_points) sqrt(mean_batch |rfft(e)_k|^2)``, for each ``k``.

    A cosine of amplitude ``a`` counts ``a length / 2`` at its frequency, a constant ``a`` counts ``a length`` at zero.

    Args:
        prediction: predicted fields.
        target: true fields on the same grid.
        length: length of the domain, in the units in which the errors are to be compared.
    """
    if not (np.isfinite(length) and length > 0):
        raise ValueError(f"length must be a positive number, got {length}")
    e_hat = np.fft.rfft(_error(prediction, target), axis=2, norm="forward")
    return length * np.mean(np.sqrt(np.mean(np.abs(e_hat) ** 2, axis=0)), axis=(0, 2))


def _band_mean(spectrum: Float[np.ndarray, " k"], band: str, num_points: int) -> float:
    if band not in BANDS:
        raise ValueError(f"unknown band {band!r}, choose one of {', '.join(BANDS)}")
    first, end = BANDS[band]
    # The mean over no frequency would be NaN, as it is in PDEBench.
    if len(spectrum) <= first:
        raise ValueError(
            f"band {band!r} starts at frequency {first} and needs at least {2 * first} points along x, "
            f"got {num_points}; use a finer grid or call the other errors one by one"
        )
    return float(np.mean(spectrum[first:end]))


def frmse(
    prediction: Float[np.ndarray, "batch time x channels"],
    target: Float[np.ndarray, "batch time x channels"],
    band: str,
    *,
    length: float = 1.0,
) -> float:
    """Mean of `error_spectrum` over a band: low is ``k < 4``, mid is ``4 <= k < 12``, high is ``k >= 12``."""
    return _band_mean(error_spectrum(prediction, target, length=length), band, target.shape[2])


def pdebench_errors(
    prediction: Float[np.ndarray, "batch time x channels"],
    target: Float[np.ndarray, "batch time x channels"],
    *,
    length: float = 1.0,
) -> dict[str, float]:
    """All errors of this module by name; needs at least 24 points, so that the high band is not empty.

    Args:
        prediction: predicted fields.
        target: true fields on the same grid.
        length: length of the domain; only the three Fourier errors depend on it.

    Returns:
        ``rmse``, ``nrmse``, ``crmse``, ``brmse``, ``max``, ``frmse_low``, ``frmse_mid`` and ``frmse_high``. As in
        `nrmse`, that one is infinite if a target field is zero everywhere.
    """
    spectrum = error_spectrum(prediction, target, length=length)
    return {
        "rmse": rmse(prediction, target),
        "nrmse": nrmse(prediction, target),
        "crmse": crmse(prediction, target),
        "brmse": brmse(prediction, target),
        "max": max_error(prediction, target),
        **{f"frmse_{band}": _band_mean(spectrum, band, target.shape[2]) for band in BANDS},
    }
