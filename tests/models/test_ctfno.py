"""CTFNO: what must not change the prediction, and what must."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from jax.sharding import Mesh, PartitionSpec

from ctfno_jax.models import ctfno, time_chunks
from ctfno_jax.ops import gershgorin

# Predictions are of order one and pass two layers in float32.
ATOL = 1e-5

SMALL = dict(out_channels=2, width=8, modes=(4,), heads=2, time_width=6, time_features=4, time_scale=3.0)
TIMES = np.array([0.7, 0.0, 1.3, 0.2, 2.5], np.float32)
RULES = gershgorin.RULES


def model_of(**changes) -> ctfno.CTFNO:
    return ctfno.CTFNO(**{**SMALL, **changes})


def state(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def init(model: ctfno.CTFNO, u0: np.ndarray, seed: int = 0):
    """Parameters without any special value, drawn on the host: no bias is zero and no scale is one."""
    shapes = jax.eval_shape(lambda key: model.init(key, u0, TIMES), jax.random.key(0))
    leaves, tree = jax.tree.flatten(shapes)
    rng = np.random.default_rng(seed)
    return tree.unflatten([jnp.asarray(0.5 * rng.standard_normal(leaf.shape), leaf.dtype) for leaf in leaves])


# Programs this small take longer to optimise than to run.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def run(model: ctfno.CTFNO, variables, u0, times):
    return model.apply(variables, u0, times)


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def slopes(model: ctfno.CTFNO, variables, u0, times):
    """Gradient of a loss by parameters and initial state."""
    return jax.grad(lambda p, u: jnp.mean(jnp.sin(model.apply(p, u, times))), argnums=(0, 1))(variables, u0)


# --- times ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [11, 12])
def test_every_time_is_predicted_as_if_it_were_asked_for_alone(n):
    model, u0 = model_of(), state(3, n, 1)
    variables = init(model, u0)
    together = run(model, variables, u0, TIMES)
    assert together.shape == (3, 5, n, 2)
    for i in range(5):
        alone = run(model, variables, u0, TIMES[i : i + 1])
        chex.assert_trees_all_close(alone[:, 0], together[:, i], atol=ATOL, rtol=0)
    assert float(jnp.abs(together[:, 0] - together[:, 2]).max()) > 1e-2


@pytest.mark.parametrize("changes", [{}, {"stability_bound": 0.5, "stability_rule": "rows_and_columns"}])
def test_one_grid_of_times_per_sample(changes):
    model, u0 = model_of(**changes), state(3, 11, 1)
    variables = init(model, u0)
    shared = run(model, variables, u0, TIMES)
    repeated = run(model, variables, u0, np.tile(TIMES, (3, 1)))
    chex.assert_trees_all_close(repeated, shared, atol=ATOL, rtol=0)
    own = np.stack([TIMES[:2], TIMES[1:3], TIMES[3:5]])
    result = run(model, variables, u0, own)
    expected = np.stack([shared[0, :2], shared[1, 1:3], shared[2, 3:5]])
    np.testing.assert_allclose(np.asarray(result), expected, atol=ATOL, rtol=0)


@pytest.mark.parametrize("time_chunk", [None, 2])
def test_the_order_of_times_is_only_an_order(time_chunk):
    model, u0 = model_of(time_chunk=time_chunk), state(3, 11, 1)
    variables = init(model, u0)
    order = np.array([3, 1, 4, 0, 2])
    permuted = run(model, variables, u0, TIMES[order])
    chex.assert_trees_all_close(permuted, run(model, variables, u0, TIMES)[:, order], atol=ATOL, rtol=0)


def test_samples_do_not_see_each_other():
    model, u0 = model_of(), state(3, 11, 1)
    variables = init(model, u0)
    together = run(model, variables, u0, TIMES)
    alone = run(model, variables, u0[1:2], TIMES)
    chex.assert_trees_all_close(together[1:2], alone, atol=ATOL, rtol=0)


@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("time_chunk", [1, 2, 5, 9])
def test_chunks_change_neither_values_nor_gradients(time_chunk, per_sample):
    """Five times in chunks of one, of two (the last is filled up), in one chunk, and in a larger one."""
    u0 = state(3, 11, 1)
    times = np.stack([TIMES, TIMES[::-1], TIMES + 0.1]) if per_sample else TIMES
    whole, chunked = model_of(), model_of(time_chunk=time_chunk)
    variables = init(whole, u0)
    expected = run(whole, variables, u0, times)
    chex.assert_trees_all_close(run(chunked, variables, u0, times), expected, atol=ATOL, rtol=0)
    chex.assert_trees_all_close(
        slopes(chunked, variables, u0, times), slopes(whole, variables, u0, times), atol=1e-6, rtol=1e-3
    )


def test_chunks_in_two_dimensions_with_bound_and_padding():
    u0 = state(2, 6, 7, 1)
    changes = dict(modes=(2, 3), stability_bound=0.6, stability_rule="rows_and_columns", padding=(0.5, 0.0))
    whole, chunked = model_of(**changes), model_of(**changes, time_chunk=2)
    variables = init(whole, u0)
    expected = run(whole, variables, u0, TIMES)
    assert expected.shape == (2, 5, 6, 7, 2)
    chex.assert_trees_all_close(run(chunked, variables, u0, TIMES), expected, atol=ATOL, rtol=0)


def test_time_zero_is_a_time_like_any_other():
    model, u0 = model_of(), state(2, 9, 1)
    result = run(model, init(model, u0), u0, np.zeros(1, np.float32))
    chex.assert_shape(result, (2, 1, 9, 2))
    chex.assert_tree_all_finite(result)


def test_time_scale_multiplies_time():
    u0 = state(3, 11, 1)
    slow, fast = model_of(time_scale=1.0), model_of(time_scale=4.0)
    variables = init(slow, u0)
    chex.assert_trees_all_close(run(fast, variables, u0, TIMES / 4), run(slow, variables, u0, TIMES), atol=1e-4, rtol=0)


def test_a_single_chunk_is_chosen_while_everything_fits():
    assert time_chunks.automatic_chunk((20, 256, 1), 50, 64, 0.0) == 50
    assert time_chunks.automatic_chunk((1, 8, 9, 1), 3, 8, (0.5, 0.0)) == 3


@pytest.mark.parametrize("padding", [0.0, 0.25])
def test_a_large_query_is_cut_into_chunks_of_bounded_memory(padding):
    """20 samples, 200 times, 1024 points, width 64: one activation would take a thousand megabytes."""
    chunk = time_chunks.automatic_chunk((20, 1024, 1), 200, 64, padding)
    points = ctfno.padded_grid((1024,), padding)[0]
    bytes_per_time = 4 * 20 * points * 64
    assert 200 * bytes_per_time > 10**9
    assert 1 <= chunk < 200
    assert chunk * bytes_per_time <= 128 * 2**20 < (chunk + 1) * bytes_per_time


def test_at_least_one_time_is_evaluated_however_large():
    assert time_chunks.automatic_chunk((64, 1024, 1024, 1), 10, 64, 0.0) == 1


# --- equal ways to compute --------------------------------------------------------------------------------------

VARIANTS = [
    pytest.param({}, (11,), id="1d"),
    pytest.param({"modes": (7,)}, (12,), id="1d-nyquist"),
    pytest.param({"modes": (3, 2), "lifting": "low_pass"}, (7, 6), id="2d-low-pass"),
    pytest.param({"modes": (2, 1, 3), "time_bias": False}, (4, 3, 5), id="3d-constant-bias"),
]


@pytest.mark.parametrize(("changes", "grid"), VARIANTS)
def test_fft_equals_matmul(changes, grid):
    """Values and gradients, to rounding relative to the largest entry of each array."""
    u0 = state(2, *grid, 3)
    by_fft, by_matmul = (model_of(**changes, fourier_method=method) for method in ("fft", "matmul"))
    variables = init(by_fft, u0)
    expected = (run(by_fft, variables, u0, TIMES), slopes(by_fft, variables, u0, TIMES))
    result = (run(by_matmul, variables, u0, TIMES), slopes(by_matmul, variables, u0, TIMES))
    for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(result), strict=True):
        np.testing.assert_allclose(np.asarray(b), np.asarray(a), atol=1e-4 * float(jnp.abs(a).max()), rtol=0)


@pytest.mark.parametrize("changes", [{}, {"stability_bound": 0.4}, {"padding": 0.3}, {"coordinates": False}])
def test_folding_the_lifting_changes_nothing(changes, monkeypatch):
    model, u0 = model_of(**changes), state(3, 11, 1)
    variables = init(model, u0)
    # Traced anew each time, since the limit is read while tracing.
    folded = jax.jit(lambda p: model.apply(p, u0, TIMES), compiler_options=QUICK)(variables)
    monkeypatch.setattr(ctfno, "_FOLDED_CHANNELS", 0)
    unfolded = jax.jit(lambda p: model.apply(p, u0, TIMES), compiler_options=QUICK)(variables)
    chex.assert_trees_all_close(folded, unfolded, atol=ATOL, rtol=0)


@pytest.mark.parametrize("rule", RULES)
def test_a_huge_bound_is_no_bound(rule):
    u0 = state(3, 11, 1)
    free, bounded = model_of(), model_of(stability_bound=1e6, stability_rule=rule)
    variables = init(free, u0)
    chex.assert_trees_all_close(run(bounded, variables, u0, TIMES), run(free, variables, u0, TIMES), atol=ATOL, rtol=0)


@pytest.mark.parametrize("rule", RULES)
def test_a_bound_holds_for_every_layer_and_time(rule):
    bound, u0 = 0.3, state(3, 11, 1)
    model = model_of(stability_bound=bound, stability_rule=rule)
    variables = init(model, u0)
    assert float(jnp.abs(run(model, variables, u0, TIMES) - run(model_of(), variables, u0, TIMES)).max()) > 1e-3
    for weights, factors in model.apply(variables, TIMES, method="time_factors"):
        phi = np.hypot(*factors.phi)
        kernel = np.hypot(*weights.kernel) * phi[..., None, :]
        pointwise = np.abs(weights.pointwise * factors.scale[..., None])
        pointwise = pointwise * np.asarray(factors.pointwise_rows)[:, None, :]
        assert kernel.shape == (5, 4, 8, 8)
        assert pointwise.shape == (5, 8, 8)
        if factors.kernel_columns is not None:
            kernel = kernel * np.asarray(factors.kernel_columns)[..., None]
        assert max(kernel.sum(-2).max(), pointwise.sum(-2).max()) <= bound * (1 + 1e-5)
        if rule == "rows_and_columns":
            assert max(kernel.sum(-1).max(), pointwise.sum(-1).max()) <= bound * (1 + 1e-5)


def test_bfloat16_pointwise_products_change_little():
    u0 = state(3, 11, 1)
    exact, rough = model_of(), model_of(pointwise_dtype="bfloat16")
    variables = init(exact, u0)
    a, b = (run(model, variables, u0, TIMES) for model in (exact, rough))
    assert b.dtype == jnp.float32
    assert 0 < float(jnp.linalg.norm(a - b) / jnp.linalg.norm(a)) < 1e-2


@pytest.mark.parametrize("coordinates", [True, False])
def test_whole_numbers_are_states_like_any_other(coordinates):
    model = model_of(coordinates=coordinates)
    u0 = np.random.default_rng(0).integers(-2, 3, (3, 11, 1))
    variables = init(model, u0.astype(np.float32))
    expected = run(model, variables, u0.astype(np.float32), TIMES)
    chex.assert_trees_all_close(run(model, variables, u0.astype(np.int32), TIMES), expected, atol=ATOL, rtol=0)


# --- space ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "grid", "shift"),
    [
        pytest.param({}, (11,), (4,), id="1d"),
        pytest.param({"modes": (3, 2), "head": "mlp"}, (7, 6), (2, 5), id="2d"),
        pytest.param({"modes": (2, 1, 2), "stability_bound": 0.5}, (4, 5, 3), (1, 3, 2), id="3d"),
    ],
)
def test_without_coordinates_the_model_commutes_with_translations(changes, grid, shift):
    model, u0 = model_of(**changes, coordinates=False), state(2, *grid, 1)
    variables = init(model, u0)
    axes = tuple(range(1, len(grid) + 1))
    moved = run(model, variables, np.roll(u0, shift, axes), TIMES)
    expected = np.roll(run(model, variables, u0, TIMES), shift, tuple(a + 1 for a in axes))
    np.testing.assert_allclose(np.asarray(moved), expected, atol=ATOL, rtol=0)


@pytest.mark.parametrize("changes", [{"coordinates": True}, {"coordinates": False, "padding": 0.3}])
def test_with_coordinates_or_padding_it_does_not(changes):
    model, u0 = model_of(**changes), state(2, 11, 1)
    variables = init(model, u0)
    moved = np.asarray(run(model, variables, np.roll(u0, 4, 1), TIMES))
    assert np.abs(moved - np.roll(run(model, variables, u0, TIMES), 4, 2)).max() > 1e-2


def smooth_state(n: int) -> np.ndarray:
    x = np.arange(n) / n
    u0 = 0.3 * np.cos(2 * np.pi * x) + 0.2 * np.sin(4 * np.pi * x + 0.5)
    return u0[None, :, None].astype(np.float32)


def test_grids_agree_at_common_points_and_better_the_finer_they_are():
    """Only GELU makes new frequencies; those that a grid cannot hold are few if the state is smooth and small."""
    model = model_of(coordinates=False)
    variables = init(model, smooth_state(16))
    errors = []
    for n in (8, 16, 32):
        coarse, fine = (run(model, variables, smooth_state(m), TIMES) for m in (n, 2 * n))
        errors.append(float(jnp.abs(coarse - fine[:, :, ::2]).max() / jnp.abs(coarse).max()))
    assert errors[1] < 1e-3
    assert errors[1] < errors[0]
    # Nothing is left to gain below rounding.
    assert errors[2] < max(errors[1], 5e-6)
    assert errors[2] < 1e-5


@pytest.mark.parametrize(
    ("grid", "modes", "padding", "padded"), [((10,), (4,), 0.3, (13,)), ((6, 8), (2, 3), (0.5, 0.25), (9, 10))]
)
def test_padding_is_a_larger_grid_on_which_everything_vanishes_outside(grid, modes, padding, padded):
    """The same as a model without bias in the lifting that is given the constant as one more zero-padded channel."""
    assert ctfno.padded_grid(grid, padding) == padded
    inside = model_of(modes=modes, coordinates=False, padding=padding)
    outside = model_of(modes=modes, coordinates=False)
    u0 = state(2, *grid, 1)
    variables = init(inside, u0)
    params = dict(variables["params"])
    weight, bias = params["lifting"]["weight"], params["lifting"]["bias"]
    params["lifting"] = {"weight": jnp.concatenate([weight, bias[None]]), "bias": jnp.zeros_like(bias)}
    with_constant = np.concatenate([u0, np.ones_like(u0)], axis=-1)
    zeros = [(0, p - n) for p, n in zip(padded, grid, strict=True)]
    larger = np.pad(with_constant, [(0, 0), *zeros, (0, 0)])
    result = run(inside, variables, u0, TIMES)
    assert result.shape == (2, 5, *grid, 2)
    expected = run(outside, {"params": params}, larger, TIMES)[(slice(None), slice(None), *map(slice, grid))]
    chex.assert_trees_all_close(result, expected, atol=ATOL, rtol=0)


def test_padding_matters_and_the_shape_stays():
    u0 = state(2, 11, 1)
    plain, padded = model_of(), model_of(padding=0.5)
    variables = init(plain, u0)
    a, b = (run(model, variables, u0, TIMES) for model in (plain, padded))
    assert a.shape == b.shape == (2, 5, 11, 2)
    assert float(jnp.abs(a - b).max()) > 1e-2


def test_padding_of_one_entry_holds_for_every_axis():
    """A tuple of length one is accepted by the checks, so it must mean the same as the number."""
    u0 = state(2, 6, 8, 1)
    number, single = model_of(modes=(2, 3), padding=0.5), model_of(modes=(2, 3), padding=(0.5,))
    variables = init(number, u0)
    chex.assert_trees_all_close(run(single, variables, u0, TIMES), run(number, variables, u0, TIMES), atol=ATOL, rtol=0)


# --- shapes and parameters --------------------------------------------------------------------------------------

EVERYTHING = dict(lifting="low_pass", head="mlp", kernel="block_diagonal", num_blocks=4)


@pytest.mark.parametrize(
    ("grid", "modes"), [((9,), (4,)), ((6, 7), (3, 2)), ((4, 5, 3), (2, 1, 2))], ids=["1d", "2d", "3d"]
)
def test_shapes_and_real_parameters_with_every_option(grid, modes):
    model, u0 = model_of(modes=modes, **EVERYTHING), state(2, *grid, 3)
    variables = init(model, u0)
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    result = run(model, variables, u0, TIMES)
    chex.assert_shape(result, (2, 5, *grid, 2))
    chex.assert_type(result, jnp.float32)
    chex.assert_tree_all_finite(result)
    gradient = slopes(model, variables, u0, TIMES)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}
    chex.assert_tree_all_finite(gradient)


def test_initial_values_are_real_finite_and_start_as_an_ordinary_fourier_layer():
    u0 = state(2, 9, 3)
    params = jax.jit(model_of(**EVERYTHING).init, compiler_options=QUICK)(jax.random.key(0), u0, TIMES)["params"]
    chex.assert_tree_all_finite(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    for name in ("layer_0", "layer_1"):
        np.testing.assert_array_equal(np.asarray(params[name]["time_map_bias"]), [1.0] * 8 + [0.0] * 8)
    np.testing.assert_array_equal(np.asarray(params["lifting"]["bias"]), np.zeros(8))


def test_every_parameter_has_an_influence():
    """No array of parameters is idle, though single entries may be, such as imaginary parts at frequency zero."""
    model, u0 = model_of(**EVERYTHING), state(2, 9, 3)
    variables = init(model, u0)
    by_parameters, by_state = slopes(model, variables, u0, TIMES)
    for path, leaf in jax.tree_util.tree_leaves_with_path(by_parameters):
        assert float(jnp.abs(leaf).max()) > 0, jax.tree_util.keystr(path)
    assert float(jnp.abs(by_state).max()) > 0


@pytest.mark.parametrize("rule", RULES)
def test_gradients_are_finite_with_a_tight_bound(rule):
    model, u0 = model_of(stability_bound=0.2, stability_rule=rule), state(2, 9, 3)
    gradient = slopes(model, init(model, u0), u0, TIMES)
    chex.assert_tree_all_finite(gradient)


def test_a_block_diagonal_kernel_of_one_block_is_dense():
    """One block plus a channel map equals the dense kernel that is their sum."""
    u0 = state(2, 9, 3)
    dense, blocks = model_of(), model_of(kernel="block_diagonal", num_blocks=1)
    variables = init(blocks, u0)
    params = dict(variables["params"])
    for name in ("layer_0", "layer_1"):
        layer = dict(params[name])
        for part in ("re", "im"):
            layer[f"kernel_{part}"] = layer[f"kernel_{part}"][..., 0, :, :] + layer.pop(f"channel_map_{part}")
        params[name] = layer
    expected = run(blocks, variables, u0, TIMES)
    chex.assert_trees_all_close(run(dense, {"params": params}, u0, TIMES), expected, atol=ATOL, rtol=0)


def test_the_number_of_parameters_does_not_depend_on_heads():
    u0 = state(2, 9, 3)
    counts = {ctfno.num_parameters(init(model_of(width=6, heads=heads), u0)) for heads in (1, 2, 3)}
    assert len(counts) == 1


def test_number_of_parameters_in_closed_form():
    u0 = state(2, 9, 3)
    width, modes, time_width, features, out, depth, channels = 8, 4, 6, 4, 2, 2, 3 + 1
    lifting = channels * width + width
    networks = 2 * (features * time_width + time_width + 2 * (time_width**2 + time_width))
    layer = 2 * modes * time_width + 2 * modes * width**2 + width**2 + time_width * 2 * width + 2 * width
    projection = width * out + out
    expected = lifting + networks + depth * layer + projection
    assert ctfno.num_parameters(init(model_of(), u0)) == expected


# --- transformations and other frameworks -----------------------------------------------------------------------


def on_two_devices(model: ctfno.CTFNO, variables, u0):
    """The prediction by ``shard_map``, one sample on each device."""
    mesh, samples = Mesh(np.array(jax.devices()[:2]), ("data",)), PartitionSpec("data")
    mapped = jax.shard_map(
        lambda p, u: model.apply(p, u, TIMES), mesh=mesh, in_specs=(PartitionSpec(), samples), out_specs=samples
    )
    return jax.block_until_ready(jax.jit(mapped)(variables, u0))


def test_jit_vmap_pmap_and_shard_map_give_the_same_numbers():
    model, u0 = model_of(), state(2, 9, 1)
    variables = init(model, u0)
    expected = model.apply(variables, u0, TIMES)
    assert float(jnp.abs(expected).max()) > 1e-2

    compiled = run(model, variables, u0, TIMES)
    one_sample = lambda u: model.apply(variables, u[None], TIMES)[0]  # noqa: E731
    over_samples = jax.jit(jax.vmap(one_sample), compiler_options=QUICK)(u0)
    one_time = lambda t: model.apply(variables, u0, t[None])[:, 0]  # noqa: E731
    over_times = jax.jit(jax.vmap(one_time, out_axes=1), compiler_options=QUICK)(TIMES)
    by_pmap = jax.pmap(one_sample)(u0)
    sharded = on_two_devices(model, variables, u0)
    for result in (compiled, over_samples, over_times, by_pmap, sharded):
        chex.assert_trees_all_close(result, expected, atol=ATOL, rtol=0)


def test_shard_map_with_chunks():
    model, u0 = model_of(time_chunk=2), state(2, 9, 1)
    variables = init(model, u0)
    sharded = on_two_devices(model, variables, u0)
    chex.assert_trees_all_close(sharded, run(model, variables, u0, TIMES), atol=ATOL, rtol=0)


def test_gradient_by_parameters_and_time_equals_finite_differences():
    """Central differences of step 1e-2 in float32: agreement to about one percent is all there is."""
    model, u0 = model_of(), state(2, 9, 1)
    variables = init(model, u0)
    leaves, tree = jax.tree.flatten(variables)
    rng = np.random.default_rng(1)
    direction = tree.unflatten([rng.standard_normal(leaf.shape).astype(np.float32) for leaf in leaves])

    @jax.jit
    def loss(variables, times):
        return jnp.mean(jnp.sum(model.apply(variables, u0, times) ** 2, axis=(2, 3)))

    by_parameters, by_times = jax.grad(loss, argnums=(0, 1))(variables, TIMES)
    step = 1e-3
    plus, minus = (jax.tree.map(lambda x, d, s=sign: x + s * step * d, variables, direction) for sign in (1, -1))
    numeric = (loss(plus, TIMES) - loss(minus, TIMES)) / (2 * step)
    exact = sum(jnp.vdot(g, d) for g, d in zip(jax.tree.leaves(by_parameters), jax.tree.leaves(direction), strict=True))
    np.testing.assert_allclose(float(exact), float(numeric), rtol=1e-2)
    step = 1e-2
    numeric = (loss(variables, TIMES + step) - loss(variables, TIMES - step)) / (2 * step)
    np.testing.assert_allclose(float(by_times.sum()), float(numeric), rtol=1e-2, atol=1e-3)


class Doubled(nn.Module):
    """A larger network of which the model is a part."""

    inner: ctfno.CTFNO

    @nn.compact
    def __call__(self, u0, times):
        return 2.0 * self.inner(u0, times)


def test_as_part_of_another_module():
    model, u0 = model_of(), state(2, 9, 1)
    variables = init(model, u0)
    outer = Doubled(model)
    chex.assert_trees_all_equal_shapes(
        jax.eval_shape(outer.init, jax.random.key(0), u0, TIMES)["params"]["inner"], variables["params"]
    )
    doubled = jax.jit(outer.apply)({"params": {"inner": variables["params"]}}, u0, TIMES)
    chex.assert_trees_all_close(doubled, 2 * run(model, variables, u0, TIMES), atol=ATOL, rtol=0)


def test_through_the_nnx_bridge():
    model, u0 = model_of(), state(2, 9, 1)
    bridged = nnx.bridge.ToNNX(model, rngs=nnx.Rngs(0)).lazy_init(u0, TIMES)
    params = nnx.to_pure_dict(nnx.state(bridged, nnx.Param))
    fresh = jax.eval_shape(model.init, jax.random.key(0), u0, TIMES)["params"]
    chex.assert_trees_all_equal_shapes(params, fresh)
    expected = run(model, {"params": params}, u0, TIMES)
    assert float(jnp.abs(expected).max()) > 1e-3
    chex.assert_trees_all_close(bridged(u0, TIMES), expected, atol=ATOL, rtol=0)
