"""Proper orthogonal decomposition: against the singular value decomposition, and what a basis must do."""

import numpy as np
import pytest

from ctfno_jax.ops import pod


def _snapshots(num_snapshots: int, num_features: int, seed: int = 0) -> np.ndarray:
    """Directions of very different strength around a mean that is not zero."""
    rng = np.random.default_rng(seed)
    strengths = 2.0 ** -np.arange(num_features)
    return rng.normal(size=(num_snapshots, num_features)) * strengths + rng.normal(size=num_features)


# More snapshots than features, and fewer: the two Gram matrices.
SHAPES = [(30, 7), (8, 13)]


@pytest.mark.parametrize("shape", SHAPES)
def test_modes_are_orthogonal_with_entries_of_order_one(shape):
    _, basis, _ = pod.pod_basis(_snapshots(*shape), 5)
    np.testing.assert_allclose(basis.T @ basis / shape[1], np.eye(5), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_mean_modes_and_variances_are_those_of_the_singular_value_decomposition(shape):
    snapshots = _snapshots(*shape)
    mean, basis, explained = pod.pod_basis(snapshots, 4)
    _, singular, rows = np.linalg.svd(snapshots - snapshots.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(mean, snapshots.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(explained, singular[:4] ** 2 / np.sum(singular**2), rtol=1e-10)
    overlaps = rows[:4] @ basis / np.sqrt(shape[1])
    np.testing.assert_allclose(np.abs(overlaps), np.eye(4), rtol=0, atol=1e-7)


@pytest.mark.parametrize("shape", SHAPES)
def test_data_of_low_rank_are_reconstructed_exactly(shape):
    rng = np.random.default_rng(1)
    snapshots = rng.normal(size=(shape[0], 3)) @ rng.normal(size=(3, shape[1])) + rng.normal(size=shape[1])
    mean, basis, explained = pod.pod_basis(snapshots, 3)
    coefficients = (snapshots - mean) @ basis / shape[1]
    np.testing.assert_allclose(mean + coefficients @ basis.T, snapshots, rtol=0, atol=1e-12)
    assert explained.sum() == pytest.approx(1.0, abs=1e-12)


def test_fewer_modes_are_the_first_of_more():
    snapshots = _snapshots(9, 12)
    np.testing.assert_allclose(pod.pod_basis(snapshots, 2)[1], pod.pod_basis(snapshots, 6)[1][:, :2], atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_sign_of_a_mode_does_not_depend_on_the_sign_of_the_data(shape):
    snapshots = _snapshots(*shape)
    mean, basis, explained = pod.pod_basis(snapshots, 4)
    flipped_mean, flipped_basis, flipped_explained = pod.pod_basis(-snapshots, 4)
    np.testing.assert_allclose(flipped_mean, -mean, rtol=0, atol=1e-14)
    np.testing.assert_allclose(flipped_basis, basis, rtol=0, atol=1e-8)
    np.testing.assert_allclose(flipped_explained, explained, rtol=1e-10)


def test_the_first_large_entry_of_a_sine_is_positive():
    x = np.arange(16) / 16
    snapshots = np.asarray([[-1.0], [1.0], [2.0]]) * -np.sin(2 * np.pi * x)
    _, basis, _ = pod.pod_basis(snapshots, 1)
    np.testing.assert_allclose(basis[:, 0], np.sqrt(2) * np.sin(2 * np.pi * x), rtol=0, atol=1e-12)


def test_the_order_of_the_snapshots_does_not_matter():
    snapshots = _snapshots(30, 7)
    one, other = pod.pod_basis(snapshots, 3), pod.pod_basis(snapshots[::-1], 3)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


def test_float32_snapshots_are_summed_in_float64():
    snapshots = _snapshots(30, 7).astype(np.float32)
    for a, b in zip(pod.pod_basis(snapshots, 3), pod.pod_basis(snapshots.astype(np.float64), 3), strict=True):
        assert a.dtype == np.float64
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("shape", "rank"), [((30, 7), 7), ((8, 13), 7)])
def test_more_modes_than_the_rank_are_refused(shape, rank):
    # Eight snapshots less their mean span seven directions.
    snapshots = np.random.default_rng(2).normal(size=shape)
    assert pod.pod_basis(snapshots, rank)[1].shape == (shape[1], rank)
    with pytest.raises(ValueError, match=f"num_modes=8 is more than the rank {rank}"):
        pod.pod_basis(snapshots, 8)


def test_snapshots_that_do_not_vary_have_no_modes():
    with pytest.raises(ValueError, match="rank 0"):
        pod.pod_basis(np.ones((5, 4)), 1)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="num_modes must be at least 1"):
        pod.pod_basis(np.ones((5, 4)), 0)
    with pytest.raises(ValueError, match="got \\(0, 4\\)"):
        pod.pod_basis(np.ones((0, 4)), 1)
