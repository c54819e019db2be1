"""Packed observations of series that were observed in part."""

import numpy as np


def packed(batch: int = 3, steps: int = 5, features: int = 2, seed: int = 0) -> np.ndarray:
    """Random series: every step has at least one observed value, no value is observed everywhere."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.uniform(0.05, 0.2, (batch, steps)), axis=1)
    values = rng.normal(size=(batch, steps, features))
    mask = rng.integers(0, 2, values.shape)
    mask[..., 0] |= mask.sum(-1) == 0
    return pack(times, values * mask, mask)


def pack(times, values, mask) -> np.ndarray:
    return np.concatenate([times[..., None], values, mask], axis=-1).astype(np.float32)


def on_union_grid(observations: np.ndarray) -> np.ndarray:
    """The same series on the grid of the times of all of them: most steps of a series then hold nothing."""
    features = observations.shape[-1] // 2
    grid = np.unique(observations[..., 0])
    made = np.zeros((len(observations), len(grid), observations.shape[-1]), np.float32)
    made[..., 0] = grid
    for i, series in enumerate(observations):
        at = np.searchsorted(grid, series[:, 0])
        seen = series[:, 1 + features :].any(-1)
        made[i, at[seen], 1:] = series[seen, 1:]
    return made
