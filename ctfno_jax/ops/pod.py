"""Proper orthogonal decomposition: the directions in which a set of snapshots varies most."""

import numpy as np
from jaxtyping import Float


def pod_basis(
    snapshots: Float[np.ndarray, "snapshots features"], num_modes: int
) -> tuple[Float[np.ndarray, " features"], Float[np.ndarray, "features modes"], Float[np.ndarray, " modes"]]:
    """Mean, leading modes and their shares of the variance, all float64, strongest mode first.

    The modes are eigenvectors of the empirical covariance. They are orthogonal, and scaled so that the mean square of
    the entries of each is one: ``basis.T @ basis = features * identity``. The best coefficients of a snapshot are
    therefore ``basis.T @ (snapshot - mean) / features``. Of the two signs of a mode, the one is taken that makes
    positive the first entry of at least half the largest magnitude.

    A mode counts if its variance is more than rounding, a fraction ``eps * min(snapshots, features)`` of the strongest
    with ``eps`` of float64. In amplitude this is about the rounding of float32 data: what lies below is noise.

    Args:
      snapshots: one snapshot per row.
      num_modes: number of modes to return.

    Returns:
      The mean of the snapshots, the basis, and the fraction of the total variance that each mode carries.
    """
    if snapshots.ndim != 2 or snapshots.size == 0:
        raise ValueError(f"snapshots must have shape (snapshots, features), both at least 1, got {snapshots.shape}")
    if num_modes < 1:
        raise ValueError(f"num_modes must be at least 1, got {num_modes}")
    num_snapshots, num_features = snapshots.shape
    mean = snapshots.mean(axis=0, dtype=np.float64)
    centred = snapshots.astype(np.float64) - mean
    # Both Gram matrices have the same non-zero eigenvalues: the smaller one is cheaper.
    wide = num_snapshots < num_features
    gram = centred @ centred.T if wide else centred.T @ centred
    values, vectors = np.linalg.eigh(gram)
    values, vectors = values[::-1], vectors[:, ::-1]
    rank = int(np.sum(values > values[0] * np.finfo(np.float64).eps * min(snapshots.shape))) if values[0] > 0 else 0
    if num_modes > rank:
        raise ValueError(
            f"num_modes={num_modes} is more than the rank {rank} of {num_snapshots} centred snapshots of "
            f"{num_features} features; ask for at most {rank} modes or give more snapshots"
        )
    modes = vectors[:, :num_modes]
    if wide:
        # Weak modes lose orthogonality in this product; the factorisation restores it and keeps the strong ones.
        modes, _ = np.linalg.qr(centred.T @ (modes / np.sqrt(values[:num_modes])))
    basis = modes * _signs(modes) * np.sqrt(num_features)
    return mean, basis, values[:num_modes] / np.trace(gram)


def _signs(modes: Float[np.ndarray, "features modes"]) -> Float[np.ndarray, " modes"]:
    """One sign per mode. Half the maximum and not the maximum itself, which a sine attains with both signs."""
    magnitude = np.abs(modes)
    first = np.argmax(magnitude >= 0.5 * magnitude.max(axis=0), axis=0)
    return np.sign(modes[first, np.arange(modes.shape[1])])
