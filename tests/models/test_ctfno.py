"""CTFNO: what must not change the prediction, and what must."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from helpers.small_ctfno import ATOL, QUICK, TIMES, init, model_of, run, run_and_slopes, state
from jax.sharding import Mesh, PartitionSpec

from ctfno_jax.models import ctfno
from ctfno_jax.ops import gershgorin

RULES = gershgorin.RULES


# --- equal ways to compute -------------------------------------------------------------------------------------------

VARIANTS = [
    pytest.param({"modes": (7,)}, (12,), id="1d-nyquist"),
    pytest.param({"modes": (3, 2), "lifting": "low_pass", "depth": 1}, (7, 6), id="2d-low-pass"),
    pytest.param({"modes": (2, 1, 3), "time_bias": False, "depth": 1}, (4, 3, 5), id="3d-constant-bias"),
]


@pytest.mark.parametrize(("changes", "grid"), VARIANTS)
def test_fft_equals_matmul(changes, grid):
    """Values and gradients, to rounding relative to the largest entry of each array."""
    u0 = state(2, *grid, 3)
    by_fft, by_matmul = (model_of(**changes, fourier_method=method) for method in ("fft", "matmul"))
    variables = init(by_fft, u0)
    expected, result = (run_and_slopes(model, variables, u0, TIMES) for model in (by_fft, by_matmul))
    for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(result), strict=True):
        np.testing.assert_allclose(np.asarray(b), np.asarray(a), atol=1e-4 * float(np.abs(a).max()), rtol=0)


@pytest.mark.parametrize("changes", [{"stability_bound": 0.4}, {"padding": 0.3, "coordinates": False}])
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
def test_a_bound_holds_for_every_layer_and_time_and_is_attained(rule):
    bound, u0 = 0.3, state(3, 11, 1)
    model = model_of(stability_bound=bound, stability_rule=rule)
    time_factors = jax.jit(lambda p: model.apply(p, TIMES, method="time_factors"), compiler_options=QUICK)
    for weights, factors in time_factors(init(model, u0)):
        kernel = np.hypot(*weights.kernel) * np.hypot(*factors.phi)[..., None, :]
        pointwise = np.abs(weights.pointwise * factors.scale[..., None])
        pointwise = pointwise * np.asarray(factors.pointwise_rows)[:, None, :]
        assert (kernel.shape, pointwise.shape) == ((5, 4, 8, 8), (5, 8, 8))
        if factors.kernel_columns is not None:
            kernel = kernel * np.asarray(factors.kernel_columns)[..., None]
        for sums in [
            matrix.sum(axis) for matrix in (kernel, pointwise) for axis in ((-2,) if rule == "rows" else (-2, -1))
        ]:
            assert sums.max() <= bound * (1 + 1e-5)
        largest = kernel.sum(-2 if rule == "rows" else -1).max()
        assert largest >= bound * (1 - 1e-5)


# --- shapes and parameters -------------------------------------------------------------------------------------------

EVERYTHING = dict(lifting="low_pass", head="mlp", kernel="block_diagonal", num_blocks=4)


@pytest.mark.parametrize(
    ("grid", "modes", "changes"),
    [
        pytest.param((9,), (4,), {}, id="1d"),
        pytest.param((6, 7), (3, 2), {"depth": 1, "stability_bound": 0.2}, id="2d", marks=pytest.mark.slow),
        pytest.param(
            (4, 5, 3),
            (2, 1, 2),
            {"depth": 1, "stability_bound": 0.2, "stability_rule": RULES[1]},
            id="3d",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_every_parameter_is_real_and_has_a_finite_influence(grid, modes, changes):
    """No array of parameters is idle, though single entries may be, such as imaginary parts at frequency zero."""
    model, u0 = model_of(modes=modes, **EVERYTHING, **changes), state(2, *grid, 3)
    variables = init(model, u0)
    result, slopes = run_and_slopes(model, variables, u0, TIMES)
    chex.assert_shape(result, (2, 5, *grid, 2))
    for path, leaf in jax.tree_util.tree_leaves_with_path((variables, result, slopes)):
        assert leaf.dtype == jnp.float32, jax.tree_util.keystr(path)
    for path, leaf in jax.tree_util.tree_leaves_with_path(slopes):
        assert np.all(np.isfinite(leaf)), jax.tree_util.keystr(path)
        assert np.abs(leaf).max() > 0, jax.tree_util.keystr(path)


def test_initial_values_are_real_finite_and_start_as_an_ordinary_fourier_layer():
    u0 = state(2, 9, 3)
    params = jax.jit(model_of(**EVERYTHING).init, compiler_options=QUICK)(jax.random.key(0), u0, TIMES)["params"]
    chex.assert_tree_all_finite(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    for name in ("layer_0", "layer_1"):
        np.testing.assert_array_equal(np.asarray(params[name]["time_map_bias"]), [1.0] * 8 + [0.0] * 8)
    np.testing.assert_array_equal(np.asarray(params["lifting"]["bias"]), np.zeros(8))


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


# --- transformations and other frameworks ----------------------------------------------------------------------------


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
    expected = run(model, variables, u0, TIMES)
    assert float(np.abs(expected).max()) > 1e-2
    one_sample = lambda u: model.apply(variables, u[None], TIMES)[0]  # noqa: E731
    over_samples = jax.jit(jax.vmap(one_sample), compiler_options=QUICK)(u0)
    one_time = lambda t: model.apply(variables, u0, t[None])[:, 0]  # noqa: E731
    over_times = jax.jit(jax.vmap(one_time, out_axes=1), compiler_options=QUICK)(TIMES)
    by_pmap = jax.pmap(one_sample)(u0)
    sharded = on_two_devices(model, variables, u0)
    for result in (over_samples, over_times, by_pmap, sharded):
        chex.assert_trees_all_close(result, expected, atol=ATOL, rtol=0)


def test_shard_map_with_chunks():
    model, u0 = model_of(time_chunk=2), state(2, 9, 1)
    variables = init(model, u0)
    sharded = on_two_devices(model, variables, u0)
    chex.assert_trees_all_close(sharded, run(model, variables, u0, TIMES), atol=ATOL, rtol=0)


def test_gradient_by_parameters_and_time_equals_finite_differences():
    """Central differences of step 1e-2 in float32: agreement to about one percent is all there is."""
    model, u0 = model_of(), state(2, 9, 1)
    variables = jax.device_get(init(model, u0))
    leaves, tree = jax.tree.flatten(variables)
    rng = np.random.default_rng(1)
    direction = tree.unflatten([rng.standard_normal(leaf.shape).astype(np.float32) for leaf in leaves])

    @jax.jit
    def loss(variables, times):
        return jnp.mean(jnp.sum(model.apply(variables, u0, times) ** 2, axis=(2, 3)))

    by_parameters, by_times = jax.device_get(jax.grad(loss, argnums=(0, 1))(variables, TIMES))
    step = 1e-3
    plus, minus = (jax.tree.map(lambda x, d, s=sign: x + s * step * d, variables, direction) for sign in (1, -1))
    numeric = (loss(plus, TIMES) - loss(minus, TIMES)) / (2 * step)
    exact = sum(np.vdot(g, d) for g, d in zip(jax.tree.leaves(by_parameters), jax.tree.leaves(direction), strict=True))
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

    @nnx.jit
    def bridge():
        module = nnx.bridge.ToNNX(model, rngs=nnx.Rngs(0)).lazy_init(u0, TIMES)
        return module, module(u0, TIMES)

    bridged, answer = bridge()
    params = nnx.to_pure_dict(nnx.state(bridged, nnx.Param))
    fresh = jax.eval_shape(model.init, jax.random.key(0), u0, TIMES)["params"]
    chex.assert_trees_all_equal_shapes(params, fresh)
    expected = run(model, {"params": params}, u0, TIMES)
    assert float(np.abs(expected).max()) > 1e-3
    chex.assert_trees_all_close(answer, expected, atol=ATOL, rtol=0)
