"""POD-DeepONet: the meaning of its basis, what its constants are, refusals."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.small_deeponet import SMALL, TIMES, ask, state

from ctfno_jax.models import pod_deeponet
from ctfno_jax.models.pod_deeponet import PODDeepONet


def _low_rank(num_modes: int = 3, num_samples: int = 6, num_times: int = 5, channels: int = 1) -> np.ndarray:
    """Solutions (samples, time, x, channels) whose snapshots, and whose space-time blocks, span few directions."""
    rng = np.random.default_rng(3)
    modes = rng.normal(size=(num_modes, 32, channels))
    in_time = np.exp(-np.outer(np.arange(1, num_times + 1), np.arange(1, num_modes + 1)) / 4)
    u = np.einsum("bk,tk,kxc->btxc", rng.normal(size=(num_samples, num_modes)), in_time, modes)
    return (u + rng.normal(size=(32, channels))).astype(np.float32)


def _fitted(basis: str, u: np.ndarray, num_modes: int = 3):
    """A model with the basis of ``u``, whose data times are 0.2, 0.4, ..., 1."""
    model = PODDeepONet(
        **SMALL, out_channels=u.shape[-1], num_modes=num_modes, basis=basis, num_times=5, final_time=1.0
    )
    times = np.arange(1, 6, dtype=np.float32) / 5
    variables = _fresh(model)
    return model, model.initialize_from_data(variables, state(len(u)), times, u), times


@functools.cache
def _fresh(model):
    return jax.jit(model.init)(jax.random.key(0), state(1), TIMES)


def _constant_outputs(params, values: np.ndarray):
    """Parameters of a network that answers ``values`` to everything."""
    silent = jax.tree.map(jnp.zeros_like, params)
    return {**silent, "output_bias": jnp.asarray(values, jnp.float32)}


@pytest.mark.parametrize("channels", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_exact_coefficients_reproduce_snapshots_of_low_rank(channels):
    u = _low_rank(channels=channels)
    model, variables, times = _fitted("snapshots", u)
    mean, basis = variables["constants"]["pod"]["mean"], variables["constants"]["pod"]["basis"]
    coefficients = np.einsum("xc,xck->k", u[4, 2] - mean, basis) / (32 * channels)
    params = {
        "branch": _constant_outputs(variables["params"]["branch"], 2 * coefficients),
        "trunk": _constant_outputs(variables["params"]["trunk"], np.full(3, 0.5)),
    }
    answer = ask(model, {**variables, "params": params}, state(1), times[2:3])
    np.testing.assert_allclose(answer[0, 0], u[4, 2], rtol=0, atol=1e-5)


@pytest.mark.parametrize("channels", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_exact_coefficients_reproduce_whole_solutions_at_the_asked_times(channels):
    u = _low_rank(channels=channels)
    model, variables, times = _fitted("space_time", u)
    mean, basis = variables["constants"]["pod"]["mean"], variables["constants"]["pod"]["basis"]
    coefficients = np.einsum("txc,txck->k", u[4] - mean, basis) / (5 * 32 * channels)
    params = {"branch": _constant_outputs(variables["params"]["branch"], coefficients)}
    variables = {**variables, "params": params}
    asked = np.asarray([3, 0, 4, 0])
    np.testing.assert_allclose(ask(model, variables, state(1), times[asked])[0], u[4, asked], rtol=0, atol=1e-5)
    own = np.asarray([[0, 2], [4, 3]])
    np.testing.assert_allclose(ask(model, variables, state(2), times[own]), u[4][own], rtol=0, atol=1e-5)


@pytest.mark.parametrize("basis", ["snapshots", "space_time"])
def test_constants_have_no_gradient(basis):
    model, variables, times = _fitted(basis, _low_rank())
    gradient = jax.jit(jax.grad(lambda v: jnp.sum(model.apply(v, state(), times) ** 2)))(variables)
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
    np.testing.assert_array_equal(ask(model, fresh, state(), times), 0.0)


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
    monkeypatch.setattr(pod_deeponet, "_MAX_SNAPSHOTS", 20)
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
            model.apply(variables, state(), np.asarray([0.2, bad], np.float32))
    assert PODDeepONet(basis="snapshots").answerable(np.asarray([0.123])) is None


def test_traced_times_between_those_of_the_data_give_nan():
    model, variables, _ = _fitted("space_time", _low_rank())
    u = jax.jit(model.apply)(variables, state(), jnp.asarray([0.4, 0.5, 1.4]))
    assert np.all(np.isfinite(u[:, 0]))
    assert np.all(np.isnan(u[:, 1:]))


@pytest.mark.parametrize("num_points", [16, 64])
def test_other_grids_are_refused(num_points):
    model, variables, times = _fitted("snapshots", _low_rank())
    with pytest.raises(ValueError, match=f"only on its 32 training points, got a grid of {num_points}"):
        model.apply(variables, state(num_points=num_points), times)


def test_training_data_that_do_not_fit_are_refused():
    u = _low_rank()
    model, variables, times = _fitted("space_time", u)
    with pytest.raises(ValueError, match="x a multiple of num_sensors=32"):
        model.initialize_from_data(variables, state(6), times, u[:, :, :16])
    with pytest.raises(ValueError, match="and 1 channels"):
        model.initialize_from_data(variables, state(6), times, np.repeat(u, 2, axis=-1))
    with pytest.raises(ValueError, match="times must have shape \\(5,\\)"):
        model.initialize_from_data(variables, state(6), times[:3], u)
    with pytest.raises(ValueError, match=r"the 5 equally spaced ones up to 1, got 5, 0\.4"):
        model.initialize_from_data(variables, state(6), 2 * times, u)
    with pytest.raises(ValueError, match="the 5 equally spaced ones up to 1, got 3"):
        model.initialize_from_data(variables, state(6), times[:3], u[:, :3])
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
