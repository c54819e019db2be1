"""The certificate: never below what an error does grow by, and not far above where it should be tight."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ctfno_jax.certify import certify, measured_gain, observed_lipschitz
from ctfno_jax.data import equations, normalization
from ctfno_jax.models import ctfno, latent, presets
from ctfno_jax.training import objectives
from ctfno_jax.training import step as step_lib

TINY = {"width": 6, "modes": (4,), "depth": 2, "heads": 2, "time_width": 8, "time_features": 4, "time_scale": 5.0}
TIMES = jnp.asarray([0.0, 0.05, 0.3, 0.9, 2.5, 7.0])

VARIANTS = {
    "plain": {},
    "depth_one": {"depth": 1},
    "depth_three": {"depth": 3},
    "no_coordinates": {"coordinates": False},
    "padding": {"padding": 0.25},
    "mlp_head": {"head": "mlp", "out_channels": 2},
    "low_pass": {"lifting": "low_pass"},
    "low_pass_mlp_padding": {"lifting": "low_pass", "head": "mlp", "padding": 0.1, "time_bias": False},
    "block_diagonal": {"kernel": "block_diagonal", "num_blocks": 3},
    "two_dimensional": {"modes": (2, 3)},
    "two_dimensional_low_pass": {"modes": (2, 3), "lifting": "low_pass", "depth": 1},
    "all_frequencies": {"modes": (6,)},
}


def _case(seed=0, in_channels=1, scale=1.0, **options):
    """A model with every parameter random, biases included, and a state."""
    model = ctfno.CTFNO(**{**TINY, **options})
    grid = (10,) if len(model.modes) == 1 else (9, 7)
    rng = np.random.default_rng(seed)
    u0 = jnp.asarray(rng.normal(size=(*grid, in_channels)), jnp.float32)
    shapes = jax.eval_shape(model.init, jax.random.key(seed), u0[None], TIMES[:1])
    size = lambda x: 0.3 + (1 / np.sqrt(x.shape[-2]) if len(x.shape) > 1 else 0)  # noqa: E731
    noise = lambda x: jnp.asarray(scale * size(x) * rng.normal(size=x.shape), jnp.float32)  # noqa: E731
    return model, jax.tree.map(noise, shapes), u0


@functools.lru_cache(maxsize=1)
def _compiled(model):
    return jax.jit(model.apply)


def _largest_quotients(model, params, u0, seed=0, num_pairs=24):
    """Largest growth of a difference at each time, over pairs that are near and pairs that are far apart."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(num_pairs, *u0.shape))
    size = 10.0 ** rng.uniform(-1, 1.5, size=(num_pairs, *[1] * u0.ndim))
    a, b = (jnp.asarray(x, jnp.float32) for x in (a * size, (a + 0.3 * rng.normal(size=a.shape)) * size))
    apply_fn = _compiled(model)
    change = np.asarray(apply_fn(params, a, TIMES) - apply_fn(params, b, TIMES), np.float64)
    norms = np.sqrt(np.square(change).reshape(num_pairs, len(TIMES), -1).sum(-1))
    return (norms / np.linalg.norm(np.asarray(a - b).reshape(num_pairs, -1), axis=-1)[:, None]).max(0)


@pytest.mark.parametrize("name", VARIANTS)
def test_no_observed_difference_grows_more_than_certified(name):
    for scale in (0.5, 1.0, 2.0):
        model, params, u0 = _case(scale=scale, in_channels=2, **VARIANTS[name])
        certified = certify(model, params, TIMES).lipschitz
        assert np.all(certified * (1 + 1e-5) >= _largest_quotients(model, params, u0))


@pytest.mark.parametrize("name", VARIANTS)
def test_the_certificate_is_above_the_measured_gain_for_every_form_of_the_model(name):
    model, params, u0 = _case(seed=1, **VARIANTS[name])
    measured = measured_gain(model.apply, params, u0, TIMES)
    assert np.all(measured > 0)
    assert np.all(certify(model, params, TIMES).lipschitz * (1 + 1e-5) >= measured)


@pytest.mark.parametrize("rule", ["rows", "rows_and_columns"])
@pytest.mark.parametrize("bound", [1.0, 3.0])
@pytest.mark.parametrize("name", ["plain", "low_pass_mlp_padding"])
def test_the_certificate_is_above_the_measured_gain_of_bounded_models(name, bound, rule):
    model, params, u0 = _case(seed=2, scale=2.0, stability_bound=bound, stability_rule=rule, **VARIANTS[name])
    certified = certify(model, params, TIMES).lipschitz
    assert np.all(certified * (1 + 1e-5) >= measured_gain(model.apply, params, u0, TIMES))
    assert np.all(certified * (1 + 1e-5) >= _largest_quotients(model, params, u0))


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_certificate_is_above_the_measured_gain_for_small_and_large_parameters(scale):
    model, params, u0 = _case(seed=3, scale=scale)
    certified = certify(model, params, TIMES).lipschitz
    assert np.all(certified * (1 + 1e-5) >= measured_gain(model.apply, params, u0, TIMES))


@pytest.mark.parametrize("bound", [None, pytest.param(2.0, marks=pytest.mark.slow)])
def test_the_certificate_holds_after_training(bound):
    data = equations.heat_trajectories(12, 0, num_points=16, num_times=4)
    statistics = normalization.fit(data)
    u0, u = (jnp.asarray(part.normalize(x)) for part, x in ((statistics.inputs, data.u0), (statistics.outputs, data.u)))
    model = ctfno.CTFNO(**{**TINY, "coordinates": False, "stability_bound": bound})
    params = jax.jit(model.init)(jax.random.key(0), u0[:1], data.times[:1])
    optimizer = optax.adam(1e-2)
    loss_fn = lambda p, batch: objectives.mse(model.apply(p, batch[0], batch[1]), batch[2])  # noqa: E731
    state = step_lib.create_state(params, optimizer, jax.random.key(1))
    update = jax.jit(lambda s, batch: step_lib.train_step(s, batch, loss_fn=loss_fn, optimizer=optimizer))
    losses = []
    for _ in range(30):
        state, loss = update(state, (u0, jnp.asarray(data.times), u))
        losses.append(float(loss))
    assert losses[-1] < 0.5 * losses[0]
    certified = certify(model, state.params, TIMES).lipschitz
    assert np.all(certified * (1 + 1e-5) >= measured_gain(model.apply, state.params, u0[7], TIMES))


def test_the_certificate_holds_where_a_low_pass_meets_a_layer_at_frequency_zero():
    """Of the mean only the real part passes from the low-pass to the layer.

    The complex product of the two vanishes here, (1, i) times (1, i), and yet an error in the mean gets through.
    """
    model = ctfno.CTFNO(
        width=2, modes=(1,), depth=1, heads=1, time_width=2, time_features=2, lifting="low_pass", coordinates=False
    )
    u0 = jnp.asarray(np.random.default_rng(0).normal(size=(8, 1)), jnp.float32)
    params = jax.tree.map(jnp.zeros_like, jax.jit(model.init)(jax.random.key(0), u0[None], TIMES[:1]))
    p = params["params"]
    p["lifting"] = {"weight": jnp.asarray([[1.0, 0.0]]), "bias": jnp.asarray([5.0, 0.0])}
    p["low_pass"]["weight_re"] = jnp.asarray([[1.0, 0.0], [0.0, 0.0]])
    p["low_pass"]["weight_im"] = jnp.asarray([[0.0, 1.0], [0.0, 0.0]])
    p["kernel_time_network"]["bias_2"] = jnp.asarray([1.0, 0.0])
    p["layer_0"]["modulation_re"] = jnp.asarray([[[1.0, 0.0]]])
    p["layer_0"]["kernel_re"] = jnp.asarray([[[1.0, 0.0], [0.0, 0.0]]])
    p["layer_0"]["kernel_im"] = jnp.asarray([[[0.0, 0.0], [1.0, 0.0]]])
    p["layer_0"]["time_map_bias"] = jnp.asarray([1.0, 1.0, 5.0, 5.0])
    p["projection"]["weight"] = jnp.asarray([[1.0], [0.0]])
    measured = measured_gain(model.apply, params, u0, TIMES[:1])
    assert measured[0] == pytest.approx(1.0, rel=1e-3)
    assert certify(model, params, TIMES[:1]).lipschitz[0] >= measured[0] * (1 - 1e-5)


def test_the_certificate_reads_no_grid_and_holds_on_all_of_them():
    model, params, _ = _case(seed=4)
    certified = certify(model, params, TIMES).lipschitz
    for num_points in (7, 12, 31):  # seven points: the last retained frequency is the largest there is
        u0 = jnp.asarray(np.random.default_rng(num_points).normal(size=(num_points, 1)), jnp.float32)
        assert np.all(certified * (1 + 1e-5) >= _largest_quotients(model, params, u0))


def test_the_channels_of_coordinates_do_not_enter():
    model, params, _ = _case(seed=5, modes=(2, 3))
    changed = jax.tree.map(lambda x: x, params)
    weight = changed["params"]["lifting"]["weight"]
    changed["params"]["lifting"]["weight"] = weight.at[1:].set(100.0)  # one state channel, then two coordinates
    np.testing.assert_array_equal(certify(model, params, TIMES).lipschitz, certify(model, changed, TIMES).lipschitz)


@pytest.mark.parametrize("name", VARIANTS)
def test_cheap_is_never_below_exact_and_paths_never_above_the_product(name):
    model, params, _ = _case(seed=6, **VARIANTS[name])
    exact, cheap = certify(model, params, TIMES), certify(model, params, TIMES, exact=False)
    assert np.all(cheap.lipschitz >= exact.lipschitz * (1 - 1e-6))
    assert np.all(cheap.product >= exact.product * (1 - 1e-6))
    for bounds in (exact, cheap):
        assert np.all(bounds.lipschitz <= bounds.product)


def test_a_larger_bound_on_the_weights_certifies_no_less():
    results = []
    for bound in (0.5, 1.0, 4.0):
        model, params, _ = _case(seed=7, scale=3.0, stability_bound=bound, stability_rule="rows_and_columns")
        results.append(certify(model, params, TIMES).product)
    assert np.all(results[0] < results[1])
    assert np.all(results[1] < results[2])


@pytest.mark.parametrize("bound", [0.5, 2.0])
def test_rows_and_columns_bound_the_norms_of_every_layer(bound):
    model, params, _ = _case(seed=8, scale=3.0, stability_bound=bound, stability_rule="rows_and_columns")
    for layer in certify(model, params, TIMES).layers:
        for norms in (layer.pointwise, layer.kernel, layer.gershgorin):
            assert np.all(norms <= bound * (1 + 1e-4))
        assert np.all(layer.combined <= (layer.pointwise + layer.kernel) * (1 + 1e-6))


def test_rows_alone_bound_sums_of_rows_but_not_norms():
    """If all six outputs read one input, each row has L1 norm M and the matrix has norm sqrt(6) M."""
    model, params, _ = _case(seed=8, depth=1, stability_bound=0.5, stability_rule="rows")
    params["params"]["layer_0"]["pointwise"] = jnp.zeros((6, 6)).at[0].set(1e3)
    (layer,) = certify(model, params, TIMES).layers
    assert np.all(layer.gershgorin <= 0.5 * (1 + 1e-4))
    np.testing.assert_allclose(layer.pointwise, np.sqrt(6) * 0.5, rtol=1e-4)


def test_there_is_one_entry_for_each_time_and_layer():
    model, params, _ = _case(depth=3)
    bounds = certify(model, params, TIMES)
    np.testing.assert_array_equal(bounds.times, TIMES)
    assert [layer.name for layer in bounds.layers] == ["layer_0", "layer_1", "layer_2"]
    assert bounds.lipschitz.shape == bounds.layers[2].combined.shape == TIMES.shape


def test_times_are_certified_one_by_one():
    model, params, _ = _case(seed=9)
    together = certify(model, params, TIMES).lipschitz
    alone = [certify(model, params, t).lipschitz[0] for t in TIMES[::-1]]
    np.testing.assert_allclose(alone[::-1], together, rtol=1e-5)


def test_lifting_and_projection_are_reported_as_norms_of_their_weights():
    model, params, _ = _case(seed=10, coordinates=False, in_channels=2, out_channels=3)
    bounds = certify(model, params, TIMES[:1])
    assert bounds.lifting == pytest.approx(np.linalg.norm(params["params"]["lifting"]["weight"], 2), rel=1e-5)
    assert bounds.projection == pytest.approx(np.linalg.norm(params["params"]["projection"]["weight"], 2), rel=1e-5)


def test_measured_gain_is_the_largest_singular_value_of_the_jacobian():
    model, params, u0 = _case(seed=11)
    times = TIMES[1:4]
    measured = measured_gain(model.apply, params, u0, times, num_iterations=200)
    jacobian = jax.jit(jax.jacobian(lambda a: model.apply(params, a[None], times)[0]))(u0)
    blocks = np.asarray(jacobian).reshape(len(times), u0.size, u0.size)
    np.testing.assert_allclose(measured, np.linalg.svd(blocks, compute_uv=False)[:, 0], rtol=1e-3)


def test_measured_gain_of_a_linear_map_is_its_norm():
    matrix = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)
    apply_fn = lambda p, a, t: t[None, :, None, None] * jnp.einsum("xy,byc->bxc", p, a)[:, None]  # noqa: E731
    gain = measured_gain(apply_fn, matrix, jnp.ones((5, 1)), jnp.asarray([1.0, 3.0]), num_iterations=300)
    np.testing.assert_allclose(gain, np.linalg.norm(matrix, 2) * np.asarray([1.0, 3.0]), rtol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_one_layer_is_certified_within_a_small_factor(seed):
    model, params, u0 = _case(seed=seed, depth=1)
    ratio = certify(model, params, TIMES).lipschitz / measured_gain(model.apply, params, u0, TIMES)
    assert np.all(ratio >= 1 - 1e-5)
    assert np.all(ratio < 20)


def test_a_saturated_layer_is_certified_almost_exactly():
    """Where every activation has slope one, only the gap between one and the largest slope of GELU is left."""
    model = ctfno.CTFNO(**{**TINY, "depth": 1, "coordinates": False})
    u0 = jnp.asarray(np.random.default_rng(0).normal(size=(10, 1)), jnp.float32)
    params = jax.jit(model.init)(jax.random.key(0), u0[None], TIMES[:1])
    layer = params["params"]["layer_0"]
    layer["time_map"] = jnp.zeros_like(layer["time_map"])
    layer["time_map_bias"] = layer["time_map_bias"].at[6:].set(50.0)
    layer["modulation_re"] = jnp.zeros_like(layer["modulation_re"])
    layer["modulation_im"] = jnp.zeros_like(layer["modulation_im"])
    ones = jnp.full((6, 6), 1 / 6)  # maps the lifted state onto one channel, which the projection reads fully
    params["params"]["lifting"]["weight"] = jnp.full((1, 6), 2.0)
    layer["pointwise"] = ones
    params["params"]["projection"]["weight"] = jnp.full((6, 1), 0.5)
    measured = measured_gain(model.apply, params, u0, TIMES)
    np.testing.assert_allclose(measured, 6 * 2.0 * 0.5, rtol=1e-5)
    np.testing.assert_allclose(certify(model, params, TIMES).lipschitz, 1.12905 * measured, rtol=1e-4)


COMPOSED = {
    "start": {"start": "state", "rise_time": 0.2},
    "horizon": {"horizon": 0.3},
    "start_and_horizon": {"start": "state", "rise_time": 0.2, "horizon": 0.3, "max_steps": 8},
}


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_models_grow_no_difference_more_than_certified(name):
    for scale in (0.5, 1.0):
        model, params, u0 = _case(scale=scale, in_channels=2, out_channels=2, **COMPOSED[name])
        certified = certify(model, params, TIMES).lipschitz
        # A contraction composed many times leaves less than float32 resolves.
        assert np.all(certified * (1 + 1e-5) + 1e-6 >= _largest_quotients(model, params, u0))
        # After many steps a gain may be more, or less, than float32 can square.
        assert np.all((certified * (1 + 1e-4))[:4] >= measured_gain(_compiled(model), params, u0, TIMES[:4]))


def test_composed_steps_multiply_and_a_start_adds_one():
    fields = {"start": "state", "rise_time": 0.2}
    model, params, _ = _case(in_channels=2, out_channels=2, horizon=0.3, **fields)
    network = certify(model.at_once(), params, jnp.asarray([0.3, 0.1])).lipschitz
    whole, rest = 1 + 0.6 * network[0], 1 + 0.1 / 0.3 * network[1]
    bound = certify(model, params, jnp.asarray([0.0, 0.1, 0.3, 0.7]))
    np.testing.assert_allclose(bound.lipschitz, [1.0, rest, whole, whole**2 * rest], rtol=1e-4)
    np.testing.assert_allclose(bound.layers[0].combined[1], bound.layers[0].combined[3], rtol=1e-4)
    assert all(len(layer.kernel) == 4 for layer in bound.layers)


def test_steps_of_states_with_further_channels_have_no_certificate():
    model, params, _ = _case(in_channels=2, out_channels=1, horizon=0.3)
    with pytest.raises(ValueError, match="needs as many channels of u0 as the solution has, got 2 and 1"):
        certify(model, params, TIMES)


def test_other_modules_are_refused():
    model = presets.build_preset("f1_low")
    assert isinstance(model, latent.ObservedCTFNO)
    with pytest.raises(ValueError, match="only CTFNO has a certificate, got ObservedCTFNO"):
        certify(model, {}, TIMES)


def test_a_grid_of_times_per_sample_is_refused():
    model, params, _ = _case()
    with pytest.raises(ValueError, match=r"times must have shape \(time,\), got \(2, 3\)"):
        certify(model, params, TIMES.reshape(2, 3))


@pytest.mark.parametrize(
    ("times", "message"), [([np.nan], "got nan"), ([-1.0], "got -1"), ([], "times is empty: ask for at least one")]
)
def test_times_that_mean_nothing_are_refused(times, message):
    model, params, _ = _case()
    with pytest.raises(ValueError, match=message):
        certify(model, params, np.asarray(times, np.float32))


def test_a_network_that_rounds_is_refused():
    model, params, _ = _case()
    with pytest.raises(ValueError, match=r"certify model\.clone\(pointwise_dtype='float32'\)"):
        certify(model.clone(pointwise_dtype="bfloat16"), params, np.ones(1))


# --- observed points ----------------------------------------------------------------------------------------------


def _observed_case(seed=0, out_features=2, inputs=2, scale=1.0):
    """A forecast from five observed points, with every parameter random."""
    model = latent.ObservedCTFNO(ctfno.CTFNO(**TINY), grid_points=10, out_features=out_features)
    rng = np.random.default_rng(seed)
    observed = jnp.asarray(rng.normal(size=(5, inputs)), jnp.float32)
    shapes = jax.eval_shape(model.init, jax.random.key(seed), observed[None], TIMES[:1])
    size = lambda x: 0.3 + (1 / np.sqrt(x.shape[-2]) if len(x.shape) > 1 else 0)  # noqa: E731
    noise = lambda x: jnp.asarray(scale * size(x) * rng.normal(size=x.shape), jnp.float32)  # noqa: E731
    return model, jax.tree.map(noise, shapes), observed


@pytest.mark.parametrize("scale", [0.5, 1.5])
def test_a_forecast_is_certified_above_its_gain_and_above_all_differences(scale):
    model, params, observed = _observed_case(scale=scale)
    certified = observed_lipschitz(model, params, TIMES)
    assert certified.shape == TIMES.shape
    assert np.all(certified * (1 + 1e-5) >= measured_gain(model.apply, params, observed, TIMES))
    assert np.all(certified * (1 + 1e-5) >= _largest_quotients(model, params, observed))


def test_errors_in_times_of_observation_are_no_part_of_it():
    model, params, observed = _observed_case(seed=1, inputs=3)
    certified = observed_lipschitz(model, params, TIMES)
    values_only = lambda p, a, t: model.apply(p, jnp.concatenate([a, observed[None, :, 2:]], axis=-1), t)  # noqa: E731
    assert np.all(certified * (1 + 1e-5) >= measured_gain(values_only, params, observed[:, :2], TIMES))
    changed = jax.tree.map(lambda x: x, params)
    embedding = changed["params"]["point_embedding"]
    embedding["weight"] = embedding["weight"].at[2].set(100.0)
    np.testing.assert_array_equal(observed_lipschitz(model, changed, TIMES), certified)


def test_what_is_around_the_operator_multiplies_its_bound():
    model, params, _ = _observed_case(seed=2)
    weights = params["params"]
    inside = certify(model.operator, {"params": weights["operator"]}, TIMES).lipschitz
    around = [np.linalg.norm(weights[name]["weight"], 2) for name in ("point_embedding", "point_projection")]
    np.testing.assert_allclose(observed_lipschitz(model, params, TIMES), inside * np.prod(around), rtol=1e-4)
    cheap = observed_lipschitz(model, params, TIMES, exact=False)
    assert np.all(cheap >= observed_lipschitz(model, params, TIMES) * (1 - 1e-6))
