"""DeepONet and POD-DeepONet: counts, symmetries, the meaning of branch, trunk and basis, refusals."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.models import deeponet
from ctfno_jax.models.ctfno import num_parameters
from ctfno_jax.models.deeponet import DeepONet, PODDeepONet

TIMES = np.asarray([0.3, 1.0, 0.1], np.float32)
SMALL = {"width": 16, "depth": 1, "num_sensors": 32}


def _state(batch: int = 4, num_points: int = 32, channels: int = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(batch, num_points, channels)).astype(np.float32)


def _low_rank(num_modes: int = 3, num_samples: int = 6, num_times: int = 5, channels: int = 1) -> np.ndarray:
    """Solutions (samples, time, x, channels) whose snapshots, and whose space-time blocks, span few directions."""
    rng = np.random.default_rng(3)
    modes = rng.normal(size=(num_modes, 32, channels))
    in_time = np.exp(-np.outer(np.arange(1, num_times + 1), np.arange(1, num_modes + 1)) / 4)
    u = np.einsum("bk,tk,kxc->btxc", rng.normal(size=(num_samples, num_modes)), in_time, modes)
    return (u + rng.normal(size=(32, channels))).astype(np.float32)


def _models(**fields):
    """A DeepONet and both kinds of POD-DeepONet, with variables in which nothing is zero."""
    pod_fields = {"num_modes": 3, "num_times": 10, "final_time": 1.0}
    models = [
        DeepONet(**SMALL, **fields),
        PODDeepONet(**SMALL, **pod_fields, **fields),
        PODDeepONet(**SMALL, **pod_fields, basis="space_time", **fields),
    ]
    return [(model, _random_variables(model)) for model in models]


def _random_variables(model, channels: int = 1, seed: int = 1):
    shapes = jax.eval_shape(model.init, jax.random.key(0), _state(1, channels=channels), TIMES)
    leaves, tree = jax.tree.flatten(shapes)
    rng = np.random.default_rng(seed)
    return tree.unflatten([np.asarray(0.25 * rng.normal(size=a.shape), np.float32) for a in leaves])


@functools.cache
def _jitted(model):
    return jax.jit(model.apply)


def _answer(model, variables, u0, times) -> np.ndarray:
    return np.asarray(_jitted(model)(variables, u0, times))


# --- both ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (DeepONet(periodic=False), 1_842_177),
        (DeepONet(), 1_842_945),
        (DeepONet(time_features=8), 1_842_945 + 8 * 256),
        (DeepONet(out_channels=3), 1_842_945 + 2 + (256 + 1) * 3 * 256),
        (PODDeepONet(), 1_874_816),
        (PODDeepONet(basis="space_time"), 1_874_816 - 790_016 - 16_448),
        (PODDeepONet(out_channels=3), 1_874_816),
    ],
)
def test_numbers_of_trained_parameters(model, count):
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 1024, 1)), jnp.ones(1))
    assert num_parameters(shapes["params"]) == count


def test_shapes_with_all_axes_different():
    for model, variables in _models(out_channels=2):
        assert _answer(model, variables, _state(), TIMES).shape == (4, 3, 32, 2)


def test_the_answer_for_a_sample_does_not_depend_on_the_others():
    u0, order = _state(), np.asarray([2, 0, 3, 1])
    for model, variables in _models():
        u = _answer(model, variables, u0, TIMES)
        np.testing.assert_allclose(_answer(model, variables, u0[order], TIMES), u[order], rtol=0, atol=1e-5)


def test_shared_times_equal_the_same_times_for_each_sample():
    u0 = _state()
    for model, variables in _models(out_channels=2):
        own = _answer(model, variables, u0, np.tile(TIMES, (4, 1)))
        np.testing.assert_allclose(own, _answer(model, variables, u0, TIMES), rtol=0, atol=1e-5)


def test_each_sample_is_answered_at_its_own_times():
    u0 = _state(2)
    own_times = np.asarray([[0.1, 0.5, 0.2], [0.9, 0.4, 0.4]], np.float32)
    for model, variables in _models():
        u = _answer(model, variables, u0, own_times)
        for i in range(2):
            alone = _answer(model, variables, u0[i : i + 1], own_times[i])
            np.testing.assert_allclose(u[i], alone[0], rtol=0, atol=1e-5)


def test_times_come_in_any_order_and_number():
    u0, times = _state(), np.asarray([0.7, 0.2, 0.2, 0.9, 0.1], np.float32)
    for model, variables in _models():
        u = _answer(model, variables, u0, times)
        np.testing.assert_allclose(_answer(model, variables, u0, times[::-1]), u[:, ::-1], rtol=0, atol=1e-5)
        np.testing.assert_allclose(_answer(model, variables, u0, times[3:4]), u[:, 3:4], rtol=0, atol=1e-5)


def test_gradients_are_finite_and_reach_every_parameter():
    u0 = _state()
    for model, variables in _models(out_channels=2):
        loss = lambda v, model=model: jnp.mean(model.apply(v, u0, TIMES) ** 2)  # noqa: E731
        for gradient in jax.tree.leaves(jax.jit(jax.grad(loss))(variables)["params"]):
            assert np.all(np.isfinite(gradient))
            assert np.any(gradient != 0)


def test_a_residual_network_whose_second_maps_vanish_is_affine():
    weights = deeponet.ResidualMLP(5, 3, 2)
    shapes = jax.eval_shape(lambda: weights.init(jax.random.key(0), 4))["params"]
    rng = np.random.default_rng(0)
    silent = {k: np.zeros(a.shape) if "second" in k else rng.normal(size=a.shape) for k, a in shapes.items()}
    first, _, last = maps = weights.apply({"params": silent}, 4)
    v = rng.normal(size=(3, 4))
    expected = (v @ first[0] + first[1]) @ last[0] + last[1]
    np.testing.assert_allclose(jax.jit(deeponet.residual_mlp)(maps, v), expected, rtol=0, atol=1e-4)


def test_all_channels_of_the_state_are_read():
    u0 = _state(channels=2)
    other = u0.copy()
    other[:, 5, 1] += 1.0
    for model in (DeepONet(**SMALL), PODDeepONet(**SMALL, num_modes=3)):
        variables = _random_variables(model, channels=2)
        assert np.all(
            np.abs(_answer(model, variables, u0, TIMES) - _answer(model, variables, other, TIMES)).max((1, 2)) > 0
        )
        with pytest.raises(ValueError, match="u0 has 1 channels, but the parameters are for 2"):
            model.apply(variables, _state(), TIMES)


@pytest.mark.parametrize("model_class", [DeepONet, PODDeepONet])
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 0}, "width must be positive"),
        ({"depth": -1}, "depth must be positive"),
        ({"num_sensors": 0}, "num_sensors must be positive"),
        ({"time_scale": float("nan")}, "time_scale must be positive and finite"),
    ],
)
def test_fields_out_of_range_are_refused(model_class, fields, message):
    with pytest.raises(ValueError, match=message):
        model_class(**fields).check_fields()
    with pytest.raises(ValueError, match=message):
        model_class(**fields).init(jax.random.key(0), _state(1), TIMES)


def test_wrong_shapes_and_times_are_refused():
    for model, variables in _models():
        with pytest.raises(ValueError, match="3 axes"):
            model.apply(variables, _state()[..., 0], TIMES)
        with pytest.raises(ValueError, match="batch=4"):
            model.apply(variables, _state(), np.ones((3, 2), np.float32))
        with pytest.raises(ValueError, match="finite and >= 0"):
            model.apply(variables, _state(), np.asarray([-1.0], np.float32))


# --- DeepONet -----------------------------------------------------------------------------------------------------


def test_a_trunk_that_vanishes_leaves_the_bias():
    model = DeepONet(**SMALL, out_channels=2)
    params = _random_variables(model)["params"]
    params = {**params, "trunk": jax.tree.map(jnp.zeros_like, params["trunk"])}
    u = _answer(model, {"params": params}, _state(), TIMES)
    np.testing.assert_array_equal(u, np.broadcast_to(params["bias"], (4, 3, 32, 2)))


def test_the_output_is_linear_in_the_last_map_of_the_branch():
    model = DeepONet(**SMALL, out_channels=2)
    params = _random_variables(model)["params"]

    def without_bias(factor: float):
        last = {k: factor * v if k.startswith("output") else v for k, v in params["branch"].items()}
        return _answer(model, {"params": {**params, "branch": last}}, _state(), TIMES) - params["bias"]

    np.testing.assert_allclose(without_bias(-3.0), -3.0 * without_bias(1.0), rtol=0, atol=1e-4)


def test_one_answer_by_hand():
    model = DeepONet(**SMALL, periodic=False, time_scale=2.0)
    variables = _random_variables(model)
    u0 = _state()
    params = variables["params"]
    branch = deeponet.ResidualMLP(16, 1).apply({"params": params["branch"]}, 32)
    trunk = deeponet.ResidualMLP(16, 1).apply({"params": params["trunk"]}, 2)
    b = deeponet.residual_mlp(branch, jnp.asarray(u0[2, :, 0]))
    g = deeponet.residual_mlp(trunk, jnp.asarray([7 / 32, 2.0 * TIMES[1]]))
    expected = b @ g / 4.0 + params["bias"][0]
    np.testing.assert_allclose(_answer(model, variables, u0, TIMES)[2, 1, 7, 0], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("periodic", [True, False])
def test_a_finer_grid_is_read_at_the_same_sensors(periodic):
    model = DeepONet(**SMALL, periodic=periodic)
    variables = _random_variables(model)
    fine = _state(num_points=96)
    u = _answer(model, variables, fine, TIMES)
    assert u.shape == (4, 3, 96, 1)
    np.testing.assert_allclose(u[:, :, ::3], _answer(model, variables, fine[:, ::3], TIMES), rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_points", [16, 33])
def test_grids_without_the_sensors_are_refused(num_points):
    model = DeepONet(**SMALL)
    with pytest.raises(ValueError, match=f"{num_points} points, which is not a multiple of num_sensors=32"):
        model.apply(_random_variables(model), _state(num_points=num_points), TIMES)


def test_the_trunk_is_periodic_if_asked():
    x, t = jnp.asarray([0.0, 0.2, 0.7]), jnp.asarray(0.4)
    once, twice = (DeepONet(periodic=True).trunk_inputs(x + shift, t) for shift in (0.0, 1.0))
    assert once.shape == (3, 5)
    np.testing.assert_allclose(once, twice, rtol=0, atol=1e-5)
    np.testing.assert_allclose(once[1, :4], np.cos([0.4 * np.pi, 0.8 * np.pi, -0.1 * np.pi, 0.3 * np.pi]), atol=1e-6)
    plain = DeepONet(periodic=False).trunk_inputs(x, t)
    np.testing.assert_allclose(plain, np.stack([x, np.full(3, 0.4)], axis=-1), rtol=1e-6)


def test_sinusoids_of_time_follow_the_scaled_time():
    inputs = DeepONet(periodic=False, time_scale=5.0, time_features=4).trunk_inputs(jnp.zeros(2), jnp.asarray(0.4))
    expected = [0.0, 2.0, np.sin(2.0), np.sin(2e-4), np.cos(2.0), np.cos(2e-4)]
    np.testing.assert_allclose(inputs, np.tile(expected, (2, 1)), rtol=1e-5)


@pytest.mark.parametrize("own_times", [False, True])
def test_many_points_are_taken_in_turns_with_the_same_answer_and_gradient(monkeypatch, own_times):
    model = DeepONet(**SMALL)
    variables = _random_variables(model)
    u0, times = _state(), np.asarray([0.3, 1.0, 0.1, 0.6, 0.2], np.float32)
    times = np.tile(times, (4, 1)) if own_times else times
    value_and_grad = lambda: jax.jit(jax.value_and_grad(lambda v: jnp.mean(model.apply(v, u0, times) ** 2)))(variables)  # noqa: E731
    whole = value_and_grad()
    monkeypatch.setattr(deeponet, "_TRUNK_POINTS", 64)
    for a, b in zip(jax.tree.leaves(value_and_grad()), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_a_deeponet_answers_at_all_times():
    assert DeepONet().answerable(np.asarray([0.0, 0.123, 99.0])) is None


def test_an_odd_number_of_sinusoids_is_refused():
    with pytest.raises(ValueError, match="time_features must be 0 or an even"):
        DeepONet(time_features=3).check_fields()


# --- POD-DeepONet -------------------------------------------------------------------------------------------------


def _fitted(basis: str, u: np.ndarray, num_modes: int = 3):
    """A model with the basis of ``u``, whose data times are 0.2, 0.4, ..., 1."""
    model = PODDeepONet(
        **SMALL, out_channels=u.shape[-1], num_modes=num_modes, basis=basis, num_times=5, final_time=1.0
    )
    times = np.arange(1, 6, dtype=np.float32) / 5
    variables = _fresh(model)
    return model, model.initialize_from_data(variables, _state(len(u)), times, u), times


@functools.cache
def _fresh(model):
    return jax.jit(model.init)(jax.random.key(0), _state(1), TIMES)


def _constant_outputs(params, values: np.ndarray):
    """Parameters of a network that answers ``values`` to everything."""
    silent = jax.tree.map(jnp.zeros_like, params)
    return {**silent, "output_bias": jnp.asarray(values, jnp.float32)}


@pytest.mark.parametrize("channels", [1, 2])
def test_exact_coefficients_reproduce_snapshots_of_low_rank(channels):
    u = _low_rank(channels=channels)
    model, variables, times = _fitted("snapshots", u)
    mean, basis = variables["constants"]["pod"]["mean"], variables["constants"]["pod"]["basis"]
    coefficients = np.einsum("xc,xck->k", u[4, 2] - mean, basis) / (32 * channels)
    params = {
        "branch": _constant_outputs(variables["params"]["branch"], 2 * coefficients),
        "trunk": _constant_outputs(variables["params"]["trunk"], np.full(3, 0.5)),
    }
    answer = _answer(model, {**variables, "params": params}, _state(1), times[2:3])
    np.testing.assert_allclose(answer[0, 0], u[4, 2], rtol=0, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 2])
def test_exact_coefficients_reproduce_whole_solutions_at_the_asked_times(channels):
    u = _low_rank(channels=channels)
    model, variables, times = _fitted("space_time", u)
    mean, basis = variables["constants"]["pod"]["mean"], variables["constants"]["pod"]["basis"]
    coefficients = np.einsum("txc,txck->k", u[4] - mean, basis) / (5 * 32 * channels)
    params = {"branch": _constant_outputs(variables["params"]["branch"], coefficients)}
    variables = {**variables, "params": params}
    asked = np.asarray([3, 0, 4, 0])
    np.testing.assert_allclose(_answer(model, variables, _state(1), times[asked])[0], u[4, asked], rtol=0, atol=1e-5)
    own = np.asarray([[0, 2], [4, 3]])
    np.testing.assert_allclose(_answer(model, variables, _state(2), times[own]), u[4][own], rtol=0, atol=1e-5)


@pytest.mark.parametrize("basis", ["snapshots", "space_time"])
def test_constants_have_no_gradient(basis):
    model, variables, times = _fitted(basis, _low_rank())
    gradient = jax.jit(jax.grad(lambda v: jnp.sum(model.apply(v, _state(), times) ** 2)))(variables)
    for leaf in jax.tree.leaves(gradient["constants"]):
        np.testing.assert_array_equal(leaf, 0.0)
    assert any(np.any(leaf != 0) for leaf in jax.tree.leaves(gradient["params"]))


@pytest.mark.parametrize("basis", ["snapshots", "space_time"])
def test_the_constants_keep_shape_and_parameters_stay(basis):
    model, variables, times = _fitted(basis, _low_rank(channels=2))
    fresh = _fresh(model)
    assert jax.tree.map(jnp.shape, fresh) == jax.tree.map(jnp.shape, variables)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(variables))
    for a, b in zip(jax.tree.leaves(fresh["params"]), jax.tree.leaves(variables["params"]), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(_answer(model, fresh, _state(), times), 0.0)


def test_finer_training_data_are_read_at_the_sensors():
    u = _low_rank()
    fine = np.repeat(u, 2, axis=2)
    fine[:, :, 1::2] = 7.0
    _, variables, _ = _fitted("snapshots", u)
    _, from_fine, _ = _fitted("snapshots", fine)
    for a, b in zip(jax.tree.leaves(variables), jax.tree.leaves(from_fine), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_subset_of_the_snapshots_spans_the_same_modes(monkeypatch):
    u = _low_rank(num_samples=12)
    _, whole, _ = _fitted("snapshots", u)
    monkeypatch.setattr(deeponet, "_MAX_SNAPSHOTS", 20)
    _, some, _ = _fitted("snapshots", u)
    _, again, _ = _fitted("snapshots", u)
    np.testing.assert_array_equal(some["constants"]["pod"]["basis"], again["constants"]["pod"]["basis"])
    a, b = (v["constants"]["pod"]["basis"][:, 0] for v in (whole, some))
    # Two orthogonal bases of one space differ by an orthogonal matrix.
    rotation = a.T @ b / 32
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), rtol=0, atol=1e-4)


def test_space_time_says_at_which_times_it_answers():
    model, variables, times = _fitted("space_time", _low_rank())
    assert model.answerable(times) is None
    assert model.answerable(times[::-1].reshape(1, 5)) is None
    for bad in (0.0, 0.3, 1.2):
        assert "only at the 5 times of its data, 0.2, 0.4, ..., 1" in str(model.answerable(np.asarray([0.2, bad])))
        with pytest.raises(ValueError, match="answers only at the 5 times"):
            model.apply(variables, _state(), np.asarray([0.2, bad], np.float32))
    assert PODDeepONet(basis="snapshots").answerable(np.asarray([0.123])) is None


def test_traced_times_between_those_of_the_data_give_nan():
    model, variables, _ = _fitted("space_time", _low_rank())
    u = jax.jit(model.apply)(variables, _state(), jnp.asarray([0.4, 0.5, 1.4]))
    assert np.all(np.isfinite(u[:, 0]))
    assert np.all(np.isnan(u[:, 1:]))


@pytest.mark.parametrize("num_points", [16, 64])
def test_other_grids_are_refused(num_points):
    model, variables, times = _fitted("snapshots", _low_rank())
    with pytest.raises(ValueError, match=f"only on its 32 training points, got a grid of {num_points}"):
        model.apply(variables, _state(num_points=num_points), times)


def test_training_data_that_do_not_fit_are_refused():
    u = _low_rank()
    model, variables, times = _fitted("space_time", u)
    with pytest.raises(ValueError, match="x a multiple of num_sensors=32"):
        model.initialize_from_data(variables, _state(6), times, u[:, :, :16])
    with pytest.raises(ValueError, match="and 1 channels"):
        model.initialize_from_data(variables, _state(6), times, np.repeat(u, 2, axis=-1))
    with pytest.raises(ValueError, match="times must have shape \\(5,\\)"):
        model.initialize_from_data(variables, _state(6), times[:3], u)
    with pytest.raises(ValueError, match=r"the 5 equally spaced ones up to 1, got 5, 0\.4"):
        model.initialize_from_data(variables, _state(6), 2 * times, u)
    with pytest.raises(ValueError, match="the 5 equally spaced ones up to 1, got 3"):
        model.initialize_from_data(variables, _state(6), times[:3], u[:, :3])
    with pytest.raises(ValueError, match="num_modes=4 is more than the rank 3"):
        _fitted("space_time", _low_rank(num_samples=4), num_modes=4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"basis": "fourier"}, "basis must be one of snapshots, space_time"),
        ({"num_modes": 33}, "at most the 32 values"),
        ({"num_modes": 0}, "num_modes must be positive"),
        ({"final_time": 0.0}, "final_time must be positive"),
    ],
)
def test_fields_of_the_basis_out_of_range_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        PODDeepONet(**SMALL, **{"num_modes": 3, **fields}).check_fields()
