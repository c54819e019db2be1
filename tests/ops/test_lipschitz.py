"""Norms of blocks and their composition, against matrices whose norms are known."""

import itertools
import math

import jax
import numpy as np
import pytest

from ctfno_jax.ops import lipschitz


def _blocks(seed, *shape, is_complex=True):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) + (1j * rng.normal(size=shape) if is_complex else 0)


@pytest.mark.parametrize("approximate", [True, False])
def test_the_slope_of_gelu_is_bounded_tightly_in_both_forms(approximate):
    x = np.linspace(-8.0, 8.0, 200_001)
    if approximate:
        c = math.sqrt(2 / math.pi)
        inner = c * (x + 0.044715 * x**3)
        slope = 0.5 * (1 + np.tanh(inner)) + 0.5 * x * c * (1 + 3 * 0.044715 * x**2) / np.cosh(inner) ** 2
    else:
        erf = np.vectorize(math.erf)
        slope = 0.5 * (1 + erf(x / math.sqrt(2))) + x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    some = x[::10_000].astype(np.float32)
    gelu_slope = jax.vmap(jax.grad(lambda v: jax.nn.gelu(v, approximate=approximate)))(some)
    np.testing.assert_allclose(gelu_slope, slope[::10_000], rtol=0, atol=1e-5)  # these are the slopes of jax's form
    assert slope.max() <= lipschitz.GELU_SLOPE <= slope.max() + 1e-3
    assert np.abs(slope - 0.5).max() <= lipschitz.GELU_SLOPE - 0.5


def test_spectral_norm_of_known_matrices():
    rotation = np.asarray([[0.6, -0.8], [0.8, 0.6]])
    phases = np.diag(np.exp(1j * np.asarray([0.3, 1.1, -2.0])))
    assert lipschitz.spectral_norm(rotation) == pytest.approx(1.0, rel=1e-5)
    assert lipschitz.spectral_norm(phases) == pytest.approx(1.0, rel=1e-5)
    assert lipschitz.spectral_norm(np.diag([1.0, -7.0, 3.0])) == pytest.approx(7.0, rel=1e-5)
    assert lipschitz.spectral_norm(np.outer([3.0, 4.0], [5.0, 12.0, 0.0])) == pytest.approx(5 * 13, rel=1e-5)


def test_the_norm_of_blocks_is_that_of_the_largest_block():
    blocks = _blocks(0, 5, 3, 4)
    each = [np.linalg.norm(block, 2) for block in blocks]
    assert lipschitz.spectral_norm(blocks) == pytest.approx(max(each), rel=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (4, 3), (2, 6), (5, 3, 4)])
@pytest.mark.parametrize("seed", range(3))
def test_bounds_without_singular_values_are_never_below_the_norm(seed, shape):
    blocks = _blocks(seed, *shape)
    exact = max(np.linalg.norm(block, 2) for block in blocks.reshape(-1, *shape[-2:]))
    for bound in (lipschitz.spectral_norm, lipschitz.row_column_bound, lipschitz.frobenius_bound, lipschitz.cheap_norm):
        assert bound(blocks) >= exact


def test_cheap_bounds_are_exact_where_they_should_be():
    rank_one = np.outer([3.0, 4.0], [5.0, 12.0])
    assert lipschitz.frobenius_bound(rank_one) == pytest.approx(65.0, rel=1e-5)
    permutation = 2j * np.eye(4)[[2, 0, 3, 1]]
    assert lipschitz.row_column_bound(permutation) == pytest.approx(2.0, rel=1e-5)
    assert lipschitz.cheap_norm(permutation) == pytest.approx(2.0, rel=1e-5)
    assert lipschitz.cheap_norm(rank_one) == pytest.approx(65.0, rel=1e-5)


def test_row_column_bound_by_hand():
    # Row sums 3 and 7, column sums 4 and 6.
    assert lipschitz.row_column_bound(np.asarray([[1.0, -2.0], [3.0, 4j]])) == pytest.approx(np.sqrt(42), rel=1e-5)


def test_product_bound_has_one_activation_less_than_stages():
    assert lipschitz.product_bound([3.0]) == 3.0
    assert lipschitz.product_bound([3.0, 5.0]) == pytest.approx(15 * lipschitz.GELU_SLOPE, rel=1e-14)
    expected = 30 * lipschitz.GELU_SLOPE**2
    assert lipschitz.product_bound([3.0, 5.0, 2.0]) == pytest.approx(expected, rel=1e-14)


def test_path_bound_of_one_stage_is_its_norm():
    assert lipschitz.path_bound(np.asarray([[4.0]])) == 4.0


def test_path_bound_of_two_stages_by_hand():
    # Norms 2 and 3, of the product 1: half of the product directly, and the remainder through both.
    norms = np.asarray([[2.0, 1.0], [0.0, 3.0]])
    assert lipschitz.path_bound(norms) == pytest.approx(0.5 * 1 + (lipschitz.GELU_SLOPE - 0.5) * 2 * 3, rel=1e-14)


def test_path_bound_of_three_stages_by_hand():
    norms = np.asarray([[2.0, 1.0, 0.5], [0.0, 3.0, 1.5], [0.0, 0.0, 5.0]])
    rho = lipschitz.GELU_SLOPE - 0.5
    expected = 0.25 * 0.5 + 0.5 * rho * 2 * 1.5 + 0.5 * rho * 1 * 5 + rho**2 * 2 * 3 * 5
    assert lipschitz.path_bound(norms) == pytest.approx(expected, rel=1e-14)


def test_a_junction_that_only_takes_the_real_part_adds_half_of_the_product_and_half_of_the_norms():
    norms = np.asarray([[2.0, 1.0], [0.0, 3.0]])
    assert lipschitz.path_bound(norms, [lipschitz.REAL_PART_SLOPE]) == pytest.approx(0.5 * 1 + 0.5 * 2 * 3, rel=1e-14)
    assert lipschitz.product_bound([2.0, 3.0], [lipschitz.REAL_PART_SLOPE]) == pytest.approx(6.0, rel=1e-14)


def test_as_many_slopes_as_junctions():
    with pytest.raises(ValueError, match="2 stages have 1 junctions, got 2 slopes"):
        lipschitz.product_bound([2.0, 3.0], [1.0, 1.0])


def test_path_bound_is_the_product_bound_if_no_product_is_small():
    norms = np.triu(np.ones((4, 4)))
    assert lipschitz.path_bound(norms) == pytest.approx(lipschitz.product_bound([1.0] * 4), rel=1e-12)


@pytest.mark.parametrize("norm_fn", [lipschitz.spectral_norm, lipschitz.cheap_norm])
@pytest.mark.parametrize("seed", range(3))
def test_path_bound_never_exceeds_the_product(seed, norm_fn):
    sizes = (2, 5, 3, 4, 1)
    stages = [_blocks(seed + i, 6, a, b) for i, (a, b) in enumerate(itertools.pairwise(sizes))]
    norms = lipschitz.segment_norms(stages, norm_fn)
    assert lipschitz.path_bound(norms) <= lipschitz.product_bound(np.diag(norms)) * (1 + 1e-12)


def test_segment_norms_by_hand():
    # The first stage reads one channel into two, the second keeps only what the first does not fill.
    first = np.asarray([[[3.0, 0.0]]])
    second = np.asarray([[[0.0, 0.0], [0.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]]])
    third = np.asarray([[[0.5], [0.5]]])
    expected = np.asarray([[3.0, 3.0, 1.5], [0.0, 4.0, 2.0], [0.0, 0.0, np.sqrt(0.5)]])
    np.testing.assert_allclose(lipschitz.segment_norms([first, second, third]), expected, rtol=1e-5, atol=0)


def test_a_cheap_segment_norm_is_never_above_the_product_of_its_parts():
    stages = [_blocks(i, 3, 4, 4) for i in range(3)]
    norms = lipschitz.segment_norms(stages, lipschitz.cheap_norm)
    exact = lipschitz.segment_norms(stages)
    for i in range(3):
        for j in range(i + 1, 3):
            assert norms[i, j] <= norms[i, j - 1] * norms[j, j] * (1 + 1e-12)
    assert np.all(norms >= exact * (1 - 1e-6))


@pytest.mark.parametrize("seed", range(4))
def test_path_bound_bounds_a_small_network_whose_jacobian_is_known(seed):
    rng = np.random.default_rng(seed)
    sizes = (3, 6, 5, 2)
    stages = [rng.normal(size=(1, a, b)) for a, b in itertools.pairwise(sizes)]
    bound = lipschitz.path_bound(lipschitz.segment_norms(stages))
    for _ in range(50):
        # Any slopes that GELU can have, channel by channel.
        slopes = [rng.choice([1 - lipschitz.GELU_SLOPE, 0.0, 1.0, lipschitz.GELU_SLOPE], size=n) for n in sizes[1:-1]]
        jacobian = stages[0][0] * slopes[0] @ (stages[1][0] * slopes[1]) @ stages[2][0]
        assert np.linalg.norm(jacobian, 2) <= bound
