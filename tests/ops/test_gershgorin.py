"""Gershgorin normalisation: feasible, idempotent, differentiable, and what it does to the 2-norm."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.ops import gershgorin, spectral
from ctfno_jax.ops import time_modulated_fourier as tmf
from ctfno_jax.types import Complex

RULES = gershgorin.RULES

# Rounding of sums of a few numbers and one division.
SLACK = 1e-5

# Compiled as a whole, which is quicker than one operation after the other.
normalize = jax.jit(gershgorin.normalize, static_argnums=(1, 2))
apply_layer = jax.jit(tmf.time_modulated_fourier, static_argnames="modes")
stabilize = jax.jit(tmf.stabilize, static_argnums=(2, 3))


def random_matrix(*shape: int, seed: int = 0, size: float = 1.0) -> Complex:
    rng = np.random.default_rng(seed)
    re, im = size * rng.standard_normal((2, *shape))
    return Complex(jnp.asarray(re, jnp.float32), jnp.asarray(im, jnp.float32))


def as_complex(z: Complex) -> np.ndarray:
    return np.asarray(z.re) + 1j * np.asarray(z.im)


def real(matrix) -> Complex:
    matrix = jnp.asarray(matrix, jnp.float32)
    return Complex(matrix, jnp.zeros_like(matrix))


def assert_feasible(matrix: np.ndarray, bound: float, rule: str) -> None:
    """Sums over inputs for every output and, under the stricter rule, over outputs for every input."""
    assert np.abs(matrix).sum(-2).max() <= bound * (1 + SLACK)
    if rule == "rows_and_columns":
        assert np.abs(matrix).sum(-1).max() <= bound * (1 + SLACK)


# --- one matrix -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("rule", RULES)
def test_result_is_feasible_and_at_the_bound_where_it_was_cut(rule, bound):
    matrix = random_matrix(3, 5, 4, size=2.0)
    result = as_complex(normalize(matrix, bound, rule))
    assert_feasible(result, bound, rule)
    if rule == "rows":
        expected = np.minimum(np.abs(as_complex(matrix)).sum(-2), bound)
        np.testing.assert_allclose(np.abs(result).sum(-2), expected, rtol=SLACK)


@pytest.mark.parametrize("rule", RULES)
def test_normalising_twice_is_normalising_once(rule):
    once = normalize(random_matrix(3, 5, 4, size=2.0), 0.7, rule)
    chex.assert_trees_all_close(normalize(once, 0.7, rule), once, rtol=SLACK, atol=1e-7)


@pytest.mark.parametrize("rule", RULES)
def test_a_matrix_inside_the_bound_is_not_touched(rule):
    matrix = random_matrix(3, 5, 4)
    bound = 1.01 * max(float(np.abs(as_complex(matrix)).sum(axis).max()) for axis in (-1, -2))
    chex.assert_trees_all_equal(normalize(matrix, bound, rule), matrix)


@pytest.mark.parametrize("rule", RULES)
def test_phases_are_kept(rule):
    matrix = random_matrix(5, 4, size=2.0)
    before, after = as_complex(matrix), as_complex(normalize(matrix, 0.5, rule))
    np.testing.assert_allclose(np.angle(after / before), 0.0, atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_scaling_matrix_and_bound_together_scales_the_result(rule):
    matrix = random_matrix(5, 4, size=2.0)
    scaled = normalize(Complex(8 * matrix.re, 8 * matrix.im), 8 * 0.6, rule)
    expected = jax.tree.map(lambda x: 8 * x, normalize(matrix, 0.6, rule))
    chex.assert_trees_all_close(scaled, expected, rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_vmap_equals_loop(rule):
    matrices = random_matrix(3, 5, 4, size=2.0)
    mapped = jax.vmap(lambda m: normalize(m, 0.8, rule))(matrices)
    looped = [normalize(Complex(matrices.re[i], matrices.im[i]), 0.8, rule) for i in range(3)]
    chex.assert_trees_all_close(mapped, jax.tree.map(lambda *x: jnp.stack(x), *looped), rtol=1e-6)


def test_a_row_is_what_one_output_reads():
    """Stored ``(in, out)``: the second output reads 3 + 1 = 4 and is divided by four, the first is left alone."""
    matrix = [[0.5, 3.0], [0.25, 1.0], [0.0, 0.0]]
    result = normalize(real(matrix), 1.0, "rows")
    np.testing.assert_allclose(np.asarray(result.re), [[0.5, 0.75], [0.25, 0.25], [0.0, 0.0]], rtol=1e-6)


# --- 2-norm -----------------------------------------------------------------------------------------------------


def test_rows_do_not_bound_the_two_norm():
    """All outputs read one input with weight M: every row sums to M, the 2-norm is ``sqrt(out) M``."""
    out, bound = 9, 1.5
    matrix = np.zeros((4, out))
    matrix[2] = bound
    result = np.asarray(normalize(real(matrix), bound, "rows").re)
    np.testing.assert_array_equal(result, matrix.astype(np.float32))
    np.testing.assert_allclose(np.linalg.norm(result, 2), np.sqrt(out) * bound, rtol=1e-6)
    tamed = np.asarray(normalize(real(matrix), bound, "rows_and_columns").re)
    assert np.linalg.norm(tamed, 2) <= bound * (1 + SLACK)


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (1, 6), (6, 1), (5, 5)])
def test_rows_and_columns_bound_the_two_norm(shape):
    bound = 0.9
    matrices = as_complex(normalize(random_matrix(32, *shape, size=3.0), bound, "rows_and_columns"))
    assert np.linalg.norm(matrices, 2, axis=(-2, -1)).max() <= bound * (1 + SLACK)


@pytest.mark.parametrize("rule", RULES)
def test_both_rules_bound_the_spectral_radius(rule):
    matrices = as_complex(normalize(random_matrix(16, 5, 5, size=3.0), 0.9, rule))
    assert np.abs(np.linalg.eigvals(matrices)).max() <= 0.9 * (1 + SLACK)


# --- gradients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [100.0, 0.5], ids=["inside", "outside"])
@pytest.mark.parametrize("rule", RULES)
def test_gradient_equals_finite_differences(rule, bound):
    with jax.enable_x64(True):
        rng = np.random.default_rng(5)
        matrix, weight, direction = (Complex(*map(jnp.asarray, rng.standard_normal((2, 4, 3)))) for _ in range(3))

        def loss(m):
            z = normalize(m, bound, rule)
            return jnp.sum(weight.re * z.re + jnp.sin(weight.im * z.im))

        step = 1e-6
        plus, minus = (jax.tree.map(lambda x, d, s=sign: x + s * step * d, matrix, direction) for sign in (1.0, -1.0))
        value_and_grad = jax.jit(jax.value_and_grad(loss))
        numeric = (value_and_grad(plus)[0] - value_and_grad(minus)[0]) / (2 * step)
        _, gradient = value_and_grad(matrix)
        exact = sum(jnp.sum(g * d) for g, d in zip(gradient, direction, strict=True))
        np.testing.assert_allclose(float(exact), float(numeric), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("rule", RULES)
def test_inside_the_bound_the_gradient_is_that_of_the_identity(rule):
    matrix, weight = random_matrix(5, 4), random_matrix(5, 4, seed=1)

    def loss(m):
        z = normalize(m, 100.0, rule)
        return jnp.sum(weight.re * z.re + weight.im * z.im)

    chex.assert_trees_all_close(jax.jit(jax.grad(loss))(matrix), weight, rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("zeros", ["all", "one_entry", "one_row", "one_column"])
def test_gradients_are_finite_at_zero_entries(zeros, rule):
    keep = np.ones((5, 4), np.float32)
    keep[{"all": (slice(None),), "one_entry": (1, 2), "one_row": (slice(None), 2), "one_column": (1,)}[zeros]] = 0.0
    matrix = jax.tree.map(lambda x: x * keep, random_matrix(5, 4, size=2.0))
    loss = lambda m: sum(jnp.sum(part**2 + part) for part in normalize(m, 0.5, rule))  # noqa: E731
    gradient = jax.jit(jax.grad(loss))(matrix)
    chex.assert_tree_all_finite(gradient)


def test_modulus_and_its_gradient_in_closed_form():
    z = Complex(jnp.asarray([3.0, 0.0, -5.0]), jnp.asarray([-4.0, 0.0, 12.0]))
    np.testing.assert_allclose(np.asarray(gershgorin.modulus(z)), [5.0, 0.0, 13.0], rtol=1e-6)
    gradient = jax.grad(lambda z: gershgorin.modulus(z).sum())(z)
    np.testing.assert_allclose(np.asarray(gradient.re), [0.6, 0.0, -5 / 13], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(gradient.im), [-0.8, 0.0, 12 / 13], rtol=1e-6)


def test_shrink_is_one_up_to_the_bound_and_inverse_after_it():
    factors = gershgorin.shrink(jnp.asarray([0.0, 1.0, 2.0, 4.0, 8.0]), 2.0)
    np.testing.assert_allclose(np.asarray(factors), [1.0, 1.0, 1.0, 0.5, 0.25], rtol=1e-7)


# --- matrices with time factors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_modulated_kernel_scales_are_those_of_the_product(rule):
    phi, kernel = random_matrix(6, 3, 4, seed=1), random_matrix(6, 3, 5, 4, size=0.5)
    product = as_complex(kernel) * as_complex(phi)[..., None, :]
    expected = gershgorin.scales(jnp.asarray(np.abs(product), jnp.float32), 1.1, rule)
    result = gershgorin.modulated_kernel_scales(gershgorin.modulus(phi), gershgorin.modulus(kernel), 1.1, rule)
    assert result[0].shape == (6, 3, 4)
    assert (result[1] is None) == (rule == "rows")
    chex.assert_trees_all_close(result, expected, rtol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_modulated_pointwise_scales_are_those_of_the_product(rule):
    psi, weight = np.random.default_rng(2).standard_normal(5), np.random.default_rng(3).standard_normal((5, 4))
    expected = gershgorin.scales(jnp.asarray(np.abs(psi[:, None] * weight), jnp.float32), 0.8, rule)
    psi, weight = (jnp.asarray(np.abs(x), jnp.float32) for x in (psi, weight))
    result = gershgorin.modulated_pointwise_scales(psi, weight, 0.8, rule)
    assert result[0].shape == (4,)
    assert (result[1] is None) == (rule == "rows")
    chex.assert_trees_all_close(result, expected, rtol=1e-5)


GRID, MODES, IN, OUT = (7, 10), (2, 4), 5, 4


def layer_at(t: float) -> tuple[tmf.LayerWeights, tmf.TimeFactors]:
    """Weights of a layer, and factors that grow with time from well inside any bound to far outside."""
    weights = tmf.LayerWeights(random_matrix(4, 4, IN, OUT, seed=1), random_matrix(IN, OUT, seed=2).re)
    growth = 10.0 ** (2 * t - 1)
    phi, scale = random_matrix(4, 4, OUT, seed=3, size=growth), random_matrix(IN, seed=4, size=growth).re
    return weights, tmf.TimeFactors(phi, None, scale, None, jnp.zeros(OUT))


def effective_pointwise(weights: tmf.LayerWeights, factors: tmf.TimeFactors) -> np.ndarray:
    """W(t) as the layer itself applies it: what comes out for each unit vector when the kernel is zero."""
    silent = weights._replace(kernel=jax.tree.map(jnp.zeros_like, weights.kernel))
    probe = jnp.broadcast_to(jnp.eye(IN), (*GRID, IN, IN))
    return np.asarray(apply_layer(probe, silent, at_probes(factors), modes=MODES))[0, 0]


def effective_kernel(weights: tmf.LayerWeights, factors: tmf.TimeFactors, k: tuple[int, int], index) -> np.ndarray:
    """R(t, k) as the layer applies it: the coefficient at k of the answer to a cosine in each input channel."""
    silent = weights._replace(pointwise=jnp.zeros_like(weights.pointwise))
    x, y = np.meshgrid(*(np.arange(n) / n for n in GRID), indexing="ij")
    cosine = 2 * np.cos(2 * np.pi * (k[0] * x + k[1] * y))
    probe = jnp.asarray(cosine[..., None, None] * np.eye(IN), jnp.float32)
    answer = apply_layer(probe, silent, at_probes(factors), modes=MODES)
    return as_complex(spectral.to_modes(answer, MODES))[index]


def at_probes(factors: tmf.TimeFactors) -> tmf.TimeFactors:
    """Factors of one time with an axis that broadcasts over the probes."""
    return jax.tree.map(lambda x: x[..., None, :], factors)


@pytest.mark.parametrize("t", [0.0, 0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("rule", RULES)
def test_stabilised_layer_applies_feasible_matrices(rule, t):
    weights, factors = layer_at(t)
    bound = 0.7
    stable = stabilize(weights, factors, bound, rule)
    assert_feasible(effective_pointwise(weights, stable), bound, rule)
    for k, index in (((1, 1), (1, 1)), ((-2, 3), (2, 3)), ((-1, 2), (3, 2))):
        assert_feasible(effective_kernel(weights, stable, k, index), bound, rule)
    if t == 1.0:
        assert np.abs(effective_pointwise(weights, factors)).sum(-2).max() > 10 * bound


@pytest.mark.parametrize("rule", RULES)
def test_stabilised_layer_applies_the_normalised_product(rule):
    weights, factors = layer_at(0.6)
    stable = stabilize(weights, factors, 0.7, rule)
    product = as_complex(weights.kernel) * as_complex(factors.phi)[..., None, :]
    pair = Complex(jnp.asarray(product.real, jnp.float32), jnp.asarray(product.imag, jnp.float32))
    expected = as_complex(normalize(pair, 0.7, rule))
    np.testing.assert_allclose(effective_kernel(weights, stable, (-2, 3), (2, 3)), expected[2, 3], atol=1e-6)
    pointwise = real(factors.scale[:, None] * weights.pointwise)
    expected = normalize(pointwise, 0.7, rule).re
    np.testing.assert_allclose(effective_pointwise(weights, stable), np.asarray(expected), atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_stabilising_inside_the_bound_changes_nothing(rule):
    weights, factors = layer_at(0.0)
    v = jnp.asarray(np.random.default_rng(0).standard_normal((*GRID, IN)), jnp.float32)
    stable = stabilize(weights, factors, 1e4, rule)
    plain, bounded = (apply_layer(v, weights, f, modes=MODES) for f in (factors, stable))
    chex.assert_trees_all_close(bounded, plain, atol=1e-6, rtol=0)


@pytest.mark.parametrize("rule", RULES)
def test_stabilise_over_many_times_equals_each_alone(rule):
    weights, factors = layer_at(0.6)
    sizes = jnp.asarray([0.1, 1.0, 3.0])

    def at(size):
        grown = factors._replace(phi=jax.tree.map(lambda x: size * x, factors.phi), scale=size * factors.scale)
        return stabilize(weights, grown, 0.7, rule)

    looped = jax.tree.map(lambda *x: jnp.stack(x), *(at(s) for s in sizes))
    chex.assert_trees_all_close(jax.vmap(at)(sizes), looped, rtol=1e-5, atol=1e-7)
