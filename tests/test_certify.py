"""The certificate: never below what an error does grow by, and not far above where it should be tight."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ctfno_jax.certify import certify, measured_gain, observed_lipschitz, uncertifiable
from ctfno_jax.models import ctfno
from ctfno_jax.models.composition import Residual, Semigroup
from ctfno_jax.models.fno import FNORNN
from ctfno_jax.models.observed import ObservedCTFNO

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
    u0 = rng.normal(size=(*grid, in_channels)).astype(np.float32)
    shapes = jax.eval_shape(model.init, jax.random.key(seed), u0[None], TIMES[:1])
    size = lambda x: 0.3 + (1 / np.sqrt(x.shape[-2]) if len(x.shape) > 1 else 0)  # noqa: E731
    noise = lambda x: jnp.asarray(scale * size(x) * rng.normal(size=x.shape), jnp.float32)  # noqa: E731
    return model, jax.tree.map(noise, shapes), u0


@functools.lru_cache(maxsize=4)
def _compiled(model):
    return jax.jit(model.apply)


def _growth(model, params, u0, num_pairs=24, step=1e-2):
    """What the certificate must exceed, at each time: growth of differences between states, and gain at one state.

    Pairs of states are near and far apart, small and large. The gain is the largest singular value of the Jacobian, by
    central differences. All states go through one call, so that each model is compiled once.
    """
    rng = np.random.default_rng(0)
    a = rng.normal(size=(num_pairs, *u0.shape))
    size = 10.0 ** rng.uniform(-1, 1.5, size=(num_pairs, *[1] * u0.ndim))
    basis = step * np.eye(u0.size).reshape(u0.size, *u0.shape)
    states = [a * size, (a + 0.3 * rng.normal(size=a.shape)) * size, u0 + basis, u0 - basis]
    states = np.concatenate(states).astype(np.float32)
    u = np.asarray(_compiled(model)(params, states, TIMES), np.float64).reshape(len(states), len(TIMES), -1)
    first, second, plus, minus = np.split(u, [num_pairs, 2 * num_pairs, 2 * num_pairs + u0.size])
    distances = np.linalg.norm((states[:num_pairs] - states[num_pairs : 2 * num_pairs]).reshape(num_pairs, -1), axis=-1)
    quotients = (np.linalg.norm(first - second, axis=-1) / distances[:, None]).max(0)
    jacobians = np.swapaxes((plus - minus) / (2 * step), 0, 1)
    return quotients, np.linalg.svd(jacobians, compute_uv=False)[:, 0]


def _assert_above(certified, growth):
    quotients, gain = growth
    # A contraction composed many times leaves less than float32 resolves; differences have an error of the third order.
    assert np.all(gain[certified > 1e-2] > 0)
    assert gain.max() > 0
    assert np.all(certified * (1 + 1e-5) + 1e-6 >= quotients)
    assert np.all(certified * (1 + 5e-3) >= gain)


# Each option takes another minute: the others are slow tests.
_ALWAYS = ("low_pass_mlp_padding", "two_dimensional")


@pytest.mark.parametrize("name", [n if n in _ALWAYS else pytest.param(n, marks=pytest.mark.slow) for n in VARIANTS])
def test_no_difference_grows_more_than_certified(name):
    for scale in (0.5, 1.0, 2.0):
        model, params, u0 = _case(scale=scale, in_channels=2, **VARIANTS[name])
        exact = certify(model, params, TIMES)
        _assert_above(exact.lipschitz, _growth(model, params, u0))
    cheap = certify(model, params, TIMES, exact=False)
    assert np.all(cheap.lipschitz >= exact.lipschitz * (1 - 1e-6))
    assert np.all(cheap.product >= exact.product * (1 - 1e-6))
    for bounds in (exact, cheap):
        assert np.all(bounds.lipschitz <= bounds.product)


@pytest.mark.parametrize("rule", ["rows", "rows_and_columns"])
@pytest.mark.parametrize(("name", "bound"), [("plain", 1.0), ("low_pass_mlp_padding", 3.0)])
def test_no_difference_grows_more_than_certified_in_bounded_models(name, bound, rule):
    model, params, u0 = _case(seed=2, scale=2.0, stability_bound=bound, stability_rule=rule, **VARIANTS[name])
    _assert_above(certify(model, params, TIMES).lipschitz, _growth(model, params, u0))


@pytest.mark.slow
def test_the_certificate_holds_after_training():
    """Thirty steps of Adam towards ``u0 exp(-t)``; gradients do not keep the weights small."""
    u0 = jnp.asarray(np.random.default_rng(0).normal(size=(7, 10, 1)), jnp.float32)
    target = u0[:, None] * jnp.exp(-TIMES)[:, None, None]
    model = ctfno.CTFNO(**{**TINY, "coordinates": False, "depth": 1})
    optimizer = optax.adam(1e-2)
    loss_fn = lambda p: jnp.mean(jnp.square(model.apply(p, u0, TIMES) - target))  # noqa: E731

    def update(carry, _):
        params, state = carry
        loss, slopes = jax.value_and_grad(loss_fn)(params)
        updates, state = optimizer.update(slopes, state)
        return (optax.apply_updates(params, updates), state), loss

    @jax.jit
    def train(key):
        params = model.init(key, u0, TIMES)
        (params, _), losses = jax.lax.scan(update, (params, optimizer.init(params)), length=30)
        return params, losses

    params, losses = train(jax.random.key(0))
    assert losses[-1] < 0.5 * losses[0]
    _assert_above(certify(model, params, TIMES).lipschitz, _growth(model, params, np.asarray(u0[5])))


def test_the_certificate_holds_where_a_low_pass_meets_a_layer_at_frequency_zero():
    """Of the mean only the real part passes from the low-pass to the layer.

    The complex product of the two vanishes here, (1, i) times (1, i), and yet an error in the mean gets through.
    """
    model = ctfno.CTFNO(
        width=2, modes=(1,), depth=1, heads=1, time_width=2, time_features=2, lifting="low_pass", coordinates=False
    )
    u0 = np.random.default_rng(0).normal(size=(8, 1)).astype(np.float32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), u0[None], TIMES[:1])
    params = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
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
    gain = _growth(model, params, u0)[1]
    np.testing.assert_allclose(gain, 1.0, rtol=1e-2)
    assert np.all(certify(model, params, TIMES).lipschitz >= gain * (1 - 1e-3))


def test_the_certificate_reads_no_grid_and_holds_on_all_of_them():
    model, params, _ = _case(seed=4)
    certified = certify(model, params, TIMES).lipschitz
    for num_points in (7, 15):  # seven points: the last retained frequency is the largest there is
        u0 = np.random.default_rng(num_points).normal(size=(num_points, 1)).astype(np.float32)
        _assert_above(certified, _growth(model, params, u0))


def test_the_channels_of_coordinates_do_not_enter():
    model, params, _ = _case(seed=5, modes=(2, 3))
    changed = jax.tree.map(lambda x: x, params)
    weight = changed["params"]["lifting"]["weight"]
    changed["params"]["lifting"]["weight"] = weight.at[1:].set(100.0)  # one state channel, then two coordinates
    np.testing.assert_array_equal(certify(model, params, TIMES).lipschitz, certify(model, changed, TIMES).lipschitz)


@pytest.mark.slow
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


@pytest.mark.slow
def test_measured_gain_is_the_largest_singular_value_of_the_jacobian():
    model, params, u0 = _case(seed=11)
    times = TIMES[1:4]
    measured = measured_gain(model.apply, params, u0, times, num_iterations=200)
    jacobian = jax.jit(jax.jacobian(lambda a: model.apply(params, a[None], times)[0]))(u0)
    blocks = np.asarray(jacobian).reshape(len(times), u0.size, u0.size)
    np.testing.assert_allclose(measured, np.linalg.svd(blocks, compute_uv=False)[:, 0], rtol=1e-3)


def test_measured_gain_of_a_linear_map_is_its_norm():
    matrix = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)
    apply_fn = lambda p, a, t: t[..., None, None] * jnp.einsum("xy,byc->bxc", p, a)[:, None]  # noqa: E731
    # More times than are taken at once, and not a multiple of them.
    times = np.linspace(1.0, 3.0, 11)
    gain = measured_gain(apply_fn, matrix, jnp.ones((5, 1)), jnp.asarray(times), num_iterations=300)
    np.testing.assert_allclose(gain, np.linalg.norm(matrix, 2) * times, rtol=1e-4)


def test_one_layer_is_certified_within_a_small_factor():
    for seed in range(3):
        model, params, u0 = _case(seed=seed, depth=1)
        ratio = certify(model, params, TIMES).lipschitz / _growth(model, params, u0)[1]
        assert np.all(ratio >= 1 - 5e-3)
        assert np.all(ratio < 20)


def test_a_saturated_layer_is_certified_almost_exactly():
    """Where every activation has slope one, only the gap between one and the largest slope of GELU is left."""
    model = ctfno.CTFNO(**{**TINY, "depth": 1, "coordinates": False})
    u0 = np.random.default_rng(0).normal(size=(10, 1)).astype(np.float32)
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
    gain = 6 * 2.0 * 0.5
    np.testing.assert_allclose(_growth(model, params, u0)[1], gain, rtol=2e-3)
    np.testing.assert_allclose(certify(model, params, TIMES).lipschitz, 1.12905 * gain, rtol=1e-4)


# --- wrappers -----------------------------------------------------------------------------------------------------

WRAPPERS = {
    "residual": (lambda net: Residual(net, 0.2), 1),
    "semigroup": (lambda net: Semigroup(net, 0.3, 8), 1),
    "semigroup_of_residual": (lambda net: Semigroup(Residual(net, 0.2), 0.3, 8), 2),
    "residual_of_semigroup": (lambda net: Residual(Semigroup(net, 0.3, 8), 0.2), 2),
}


def _wrapped_case(name, scale=1.0, in_channels=2, out_channels=2):
    wrap, depth = WRAPPERS[name]
    network, params, u0 = _case(scale=scale, in_channels=in_channels, out_channels=out_channels, depth=1)
    nested = params["params"]
    for _ in range(depth):
        nested = {"operator": nested}
    return wrap(network), {"params": nested}, u0


@pytest.mark.parametrize(
    ("name", "in_channels"), [*[(name, 2) for name in WRAPPERS], ("semigroup", 3), ("residual_of_semigroup", 3)]
)
def test_wrapped_models_grow_no_difference_more_than_certified(name, in_channels):
    """Also with a third channel that does not change."""
    model, params, u0 = _wrapped_case(name, scale=0.5, in_channels=in_channels)
    _assert_above(certify(model, params, TIMES).lipschitz, _growth(model, params, u0))


def test_residual_adds_one_to_the_rising_bound():
    model, params, _ = _wrapped_case("residual")
    network = certify(model.operator, {"params": params["params"]["operator"]}, TIMES)
    bound = certify(model, params, TIMES)
    rise = np.asarray(TIMES / (TIMES + 0.2))
    np.testing.assert_allclose(bound.lipschitz, 1 + rise * network.lipschitz, rtol=1e-5)
    np.testing.assert_allclose(bound.product, 1 + rise * network.product, rtol=1e-5)
    assert bound.lipschitz[0] == 1.0
    np.testing.assert_array_equal(bound.layers[0].kernel, network.layers[0].kernel)


@pytest.mark.parametrize("constants", [0, 1])
def test_bounds_of_composed_steps_multiply(constants):
    """A step with a constant channel c maps (u, c) to (operator, c), whose constant is at most sqrt(L^2 + 1)."""
    model, params, _ = _wrapped_case("semigroup_of_residual", in_channels=2 + constants)
    # As many times as in other tests, for which everything is compiled.
    whole, rest, *_ = certify(
        model.operator, {"params": params["params"]["operator"]}, jnp.asarray([0.3, 0.1, 0.2, 0.2, 0.2, 0.2])
    ).lipschitz
    step = np.hypot(whole, constants)
    bound = certify(model, params, jnp.asarray([0.0, 0.1, 0.3, 0.7, 0.6, 0.4]))
    expected = [1.0, rest, whole, step**2 * rest, step * whole, step * rest]
    np.testing.assert_allclose(bound.lipschitz, expected, rtol=1e-4)
    np.testing.assert_allclose(bound.layers[0].combined[1], bound.layers[0].combined[3], rtol=1e-4)
    assert all(len(layer.kernel) == 6 for layer in bound.layers)


def test_traced_parameters_or_times_are_refused_and_concrete_ones_work_while_tracing():
    model, params, _ = _wrapped_case("residual")
    message = "certify needs concrete parameters and times; call it outside jit"
    with pytest.raises(ValueError, match=message):
        jax.jit(lambda p: certify(model, p, TIMES).lipschitz)(params)
    with pytest.raises(ValueError, match=message):
        jax.jit(lambda t: certify(model, params, t).lipschitz)(TIMES)
    while_tracing = jax.jit(lambda x: x * certify(model, params, TIMES).lipschitz)(2.0)
    np.testing.assert_allclose(while_tracing, 2 * certify(model, params, TIMES).lipschitz, rtol=1e-5)


def test_other_modules_are_refused():
    message = "only CTFNO, and Residual or Semigroup around it, have a certificate, got "
    for model, name in ((ObservedCTFNO(ctfno.CTFNO()), "ObservedCTFNO"), (Residual(FNORNN(), 0.1), "FNORNN")):
        assert uncertifiable(model) == message + name
        with pytest.raises(ValueError, match=message + name):
            certify(model, {}, TIMES)
    assert uncertifiable(Semigroup(Residual(ctfno.CTFNO(), 0.1), 0.1, 2)) is None


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


# --- observed points ----------------------------------------------------------------------------------------------


def _observed_case(seed=0, out_features=2, inputs=2, scale=1.0):
    """A forecast from five observed points, with every parameter random."""
    model = ObservedCTFNO(ctfno.CTFNO(**TINY), grid_points=10, out_features=out_features)
    rng = np.random.default_rng(seed)
    observed = rng.normal(size=(5, inputs)).astype(np.float32)
    shapes = jax.eval_shape(model.init, jax.random.key(seed), observed[None], TIMES[:1])
    size = lambda x: 0.3 + (1 / np.sqrt(x.shape[-2]) if len(x.shape) > 1 else 0)  # noqa: E731
    noise = lambda x: jnp.asarray(scale * size(x) * rng.normal(size=x.shape), jnp.float32)  # noqa: E731
    return model, jax.tree.map(noise, shapes), observed


def test_no_difference_of_forecasts_grows_more_than_certified():
    for scale in (0.5, 1.5):
        model, params, observed = _observed_case(scale=scale)
        _assert_above(observed_lipschitz(model, params, TIMES), _growth(model, params, observed))


def test_errors_in_times_of_observation_are_no_part_of_it():
    model, params, observed = _observed_case(seed=1, inputs=3)
    certified = observed_lipschitz(model, params, TIMES)

    def values_only(p, values, t):
        times_of_observation = jnp.broadcast_to(observed[:, 2:], (*values.shape[:2], 1))
        return model.apply(p, jnp.concatenate([values, times_of_observation], axis=-1), t)

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
