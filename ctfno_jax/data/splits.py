"""Splits of series into training, validation and test parts by index."""

import numpy as np
from jaxtyping import Int

Indices = Int[np.ndarray, " samples"]


def in_order(num_series: int, train_share: float = 0.8) -> tuple[Indices, Indices]:
    """The first series for training and the others for the test."""
    cut = int(num_series * train_share)
    return np.arange(cut), np.arange(cut, num_series)


def shuffled(num_series: int, train_share: float = 0.8, seed: int = 42) -> tuple[Indices, Indices]:
    """Training and test series of scikit-learn's ``train_test_split`` with ``train_size`` and ``random_state``.

    A permutation of the legacy generator begins with the test series.
    """
    num_train = int(np.floor(num_series * train_share))
    order = np.random.RandomState(seed).permutation(num_series)
    num_test = num_series - num_train
    return order[num_test:], order[:num_test]


def last_tenth(train: Indices) -> tuple[Indices, Indices]:
    """The training series without their last tenth, and that tenth (at least one) for validation."""
    cut = len(train) - max(len(train) // 10, 1)
    return train[:cut], train[cut:]
