"""FNO over a fixed grid of times: the one that steps and the one that predicts a block."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.parameters import random_parameters

from ctfno_jax.models import fno
from ctfno_jax.models.ctfno import num_parameters

# Predictions are of order one and pass a few layers in float32.
ATOL = 2e-5

STEP = dict(out_channels=2, width=7, modes=(4,), depth=2, head_width=5, time_step=0.1, num_times=4)
BLOCK = dict(out_channels=4, width=7, modes=(4, 2), depth=2, head_width=5, final_time=0.8, num_times=6)
BLOCK_STEP = 0.8 / 6


def stepping(**changes) -> fno.FNORNN:
    return fno.FNORNN(**{**STEP, **changes})


def block(**changes) -> fno.FNO2D:
    return fno.FNO2D(**{**BLOCK, **changes})


def state(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def init(model, u0, seed: int = 0):
    return random_parameters(model, u0, np.ones(1, np.float32), scale=0.4, seed=seed)


@functools.partial(jax.jit, static_argnums=0)
def _run(model, variables, u0, times):
    return model.apply(variables, u0, times)


# Tests share sizes, so that they share compiled programs.
@functools.partial(jax.jit, static_argnums=(0, 3))
def _roll(model, variables, u0, num_steps):
    return model.apply(variables, u0, num_steps, method="rollout")


# Results are compared on the host, where nothing is compiled for it.
def run(*arguments) -> np.ndarray:
    return np.asarray(_run(*arguments))


def roll(*arguments) -> np.ndarray:
    return np.asarray(_roll(*arguments))


# A model, its channels, and times on its grid, unordered and with one twice.
BOTH = [
    (stepping(), 2, np.array([0.3, 0.0, 0.4, 0.1, 0.3], np.float32)),
    (stepping(residual=True, remat=True, activation_last=True), 2, np.array([0.4, 0.2, 0.0, 0.2, 0.1], np.float32)),
    (block(), 2, np.float32(BLOCK_STEP) * np.array([3, 1, 6, 2, 3], np.float32)),
    (block(time_padding=0.3, activation_last=True), 2, np.float32(BLOCK_STEP) * np.array([6, 5, 1, 1, 4], np.float32)),
]


# --- sizes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "count"),
    [(fno.FNORNN(), 2_122_433), (fno.FNO2D(), 12_590_561), (fno.FNO2D(modes=(32, 16)), 6_299_105)],
)
def test_numbers_of_parameters(model, count):
    u0 = jax.ShapeDtypeStruct((1, 128, 1), jnp.float32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), u0, jax.ShapeDtypeStruct((1,), jnp.float32))
    assert num_parameters(shapes) == count
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(shapes))


def test_initial_parameters_keep_a_rollout_within_bounds():
    model, u0 = stepping(), state(3, 9, 2)
    u = roll(model, jax.jit(model.init)(jax.random.key(0), u0, np.ones(1, np.float32)), u0, 4)
    assert 1e-3 < float(np.abs(u).max()) < 100


# --- times ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "channels", "times"), BOTH)
def test_every_time_is_answered_as_if_it_were_asked_for_alone(model, channels, times):
    u0 = state(3, 9, channels)
    variables = init(model, u0)
    together = run(model, variables, u0, times)
    alone = np.stack([run(model, variables, u0, np.full(5, t))[:, 0] for t in times], axis=1)
    np.testing.assert_allclose(together, alone, rtol=0, atol=ATOL)
    assert float(np.abs(together[:, 0] - together[:, 1]).max()) > 1e-2


@pytest.mark.parametrize(("model", "channels", "times"), BOTH)
def test_shared_times_equal_times_of_each_sample(model, channels, times):
    u0 = state(3, 9, channels)
    variables = init(model, u0)
    shared = run(model, variables, u0, times)
    np.testing.assert_allclose(run(model, variables, u0, np.stack([times] * 3)), shared, rtol=0, atol=ATOL)
    turned = np.stack([np.roll(times, k) for k in range(3)])
    expected = np.stack([np.roll(shared[k], k, axis=0) for k in range(3)])
    np.testing.assert_allclose(run(model, variables, u0, turned), expected, rtol=0, atol=ATOL)


def test_times_of_the_stepping_model_count_its_steps():
    model, u0 = stepping(), state(3, 9, 2)
    variables = init(model, u0)
    u = run(model, variables, u0, np.array([0.0, 0.1, 0.2, 0.3, 0.4], np.float32))
    np.testing.assert_array_equal(u[:, 0], u0)
    np.testing.assert_allclose(u[:, 1:], roll(model, variables, u0, 4), rtol=0, atol=ATOL)


def test_times_of_the_block_count_from_its_first_instant():
    model, u0 = block(), state(3, 9, 2)
    variables = init(model, u0)
    u = run(model, variables, u0, np.float32(BLOCK_STEP) * np.arange(2, 7, dtype=np.float32))
    whole = lambda p: jnp.asarray(model.apply(p, u0, method="block"))[:, 1:]  # noqa: E731
    np.testing.assert_allclose(u, jax.jit(whole)(variables), rtol=0, atol=ATOL)


@pytest.mark.parametrize(
    ("model", "good", "bad", "text"),
    [
        (fno.FNORNN(), [0.0, 0.05, 2.5], 0.37, "fno_rnn answers only at multiples of 0.05 up to 2.5, got 0.37; train"),
        (fno.FNORNN(), [1.0], 2.55, "got 2.55"),
        (fno.FNORNN(), [1.0], -0.05, "got -0.05"),
        (fno.FNO2D(), [0.05, 1.7, 2.5], 0.0, "fno_2d answers only at multiples of 0.05 from 0.05 up to 2.5, got 0;"),
        (fno.FNO2D(), [1.0], float("nan"), "got nan"),
    ],
)
def test_answerable_names_a_time_off_the_grid(model, good, bad, text):
    assert model.answerable(np.asarray(good)) is None
    assert text in model.answerable(np.asarray([[*good, bad]]))


@pytest.mark.parametrize("model", [fno.FNORNN(), fno.FNO2D(), fno.FNO2D(final_time=1.0)])
def test_all_times_of_the_grid_are_answerable_in_single_precision(model):
    final = 2.5 if isinstance(model, fno.FNORNN) else model.final_time
    assert model.answerable(np.linspace(0, final, 51, dtype=np.float32)[1:]) is None


# --- stepping ---------------------------------------------------------------------------------------------------


def test_two_steps_are_one_step_twice():
    model, u0 = stepping(), state(3, 9, 2)
    variables = init(model, u0)
    once = roll(model, variables, u0, 1)
    twice = roll(model, variables, np.asarray(once[:, 0]), 1)
    np.testing.assert_allclose(roll(model, variables, u0, 2), np.concatenate([once, twice], axis=1), rtol=0, atol=ATOL)


@pytest.mark.parametrize(("residual", "factor"), [(True, 1.0), (False, 0.0)])
def test_a_step_of_a_zero_head_changes_nothing_if_residual_and_leaves_nothing_if_not(residual, factor):
    model, u0 = stepping(residual=residual), state(3, 9, 2)
    variables = init(model, u0)
    head = variables["params"]["network"]["projection"]
    variables["params"]["network"]["projection"] = jax.tree.map(np.zeros_like, head)
    np.testing.assert_array_equal(roll(model, variables, u0, 2), factor * np.stack([u0, u0], axis=1))


@pytest.mark.slow
def test_recomputing_steps_changes_no_gradient():
    u0 = state(2, 9, 2)
    variables = init(stepping(), u0)

    def slope(model):
        return jax.jit(jax.grad(lambda p: jnp.mean(jnp.sin(model.apply(p, u0, 3, method="rollout")))))(variables)

    for one, other in zip(
        jax.tree.leaves(slope(stepping())), jax.tree.leaves(slope(stepping(remat=True))), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


def test_a_single_layer_without_activation_is_what_its_formula_says():
    model, u0 = stepping(depth=1), state(3, 9, 2)
    variables = init(model, u0)
    weights = jax.tree.map(lambda x: np.asarray(x, np.float64), variables["params"]["network"])
    layer, x = weights["layer_0"], np.broadcast_to(np.arange(9)[None, :, None] / 9, (3, 9, 1))
    v = np.concatenate([u0, x], axis=-1) @ weights["lifting"]["weight"] + weights["lifting"]["bias"]
    v_hat = np.fft.rfft(v, axis=1)[:, :4]
    mixed = np.einsum("bki,kio->bko", v_hat, layer["kernel_re"] + 1j * layer["kernel_im"])
    v = np.fft.irfft(mixed, n=9, axis=1) + v @ layer["pointwise"] + layer["bias"]
    hidden = jax.nn.gelu(v @ weights["hidden_projection"]["weight"] + weights["hidden_projection"]["bias"])
    expected = hidden @ weights["projection"]["weight"] + weights["projection"]["bias"]
    np.testing.assert_allclose(roll(model, variables, u0, 1)[:, 0], expected, rtol=0, atol=ATOL)


def test_a_block_of_a_single_layer_is_what_its_formula_says():
    """State, x and t as channels of one field in space and time, which is transformed in both."""
    model, u0, instants = block(depth=1), state(3, 9, 2), np.arange(1, 7)
    variables = init(model, u0)
    weights = jax.tree.map(lambda x: np.asarray(x, np.float64), variables["params"]["network"])
    layer, grid = weights["layer_0"], (3, 9, 6)
    x = np.broadcast_to((np.arange(9) / 9)[None, :, None, None], (*grid, 1))
    t = np.broadcast_to((instants / 6)[None, None, :, None], (*grid, 1))
    a = np.concatenate([np.broadcast_to(u0[:, :, None], (*grid, 2)), x, t], axis=-1)
    v = a @ weights["lifting"]["weight"] + weights["lifting"]["bias"]
    v_hat, mixed = np.fft.rfft2(v, axes=(1, 2)), np.zeros((3, 9, 4, 7), complex)
    stored = [0, 1, 2, 3, -4, -3, -2, -1]
    kernel = layer["kernel_re"] + 1j * layer["kernel_im"]
    mixed[:, stored, :2] = np.einsum("bkli,klio->bklo", v_hat[:, stored, :2], kernel)
    v = np.fft.irfft2(mixed, s=(9, 6), axes=(1, 2)) + v @ layer["pointwise"] + layer["bias"]
    hidden = jax.nn.gelu(v @ weights["hidden_projection"]["weight"] + weights["hidden_projection"]["bias"])
    expected = np.swapaxes(hidden @ weights["projection"]["weight"] + weights["projection"]["bias"], 1, 2)
    u = run(model, variables, u0, (BLOCK_STEP * instants).astype(np.float32))
    np.testing.assert_allclose(u, expected, rtol=0, atol=ATOL * np.abs(expected).max())


# --- space and samples ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_of", [stepping, block])
def test_without_coordinates_a_shifted_state_gives_a_shifted_solution(model_of):
    u0, times = state(3, 9, 2), np.full(5, 0.4, np.float32)
    for coordinates in (False, True):
        model = model_of(coordinates=coordinates)
        variables = init(model, u0)
        error = run(model, variables, np.roll(u0, 3, axis=1), times) - np.roll(run(model, variables, u0, times), 3, 2)
        assert (float(np.abs(error).max()) < ATOL) != coordinates


@pytest.mark.parametrize("model_of", [stepping, block])
def test_a_smooth_state_gives_nearly_the_same_on_a_finer_grid(model_of):
    model, times = model_of(coordinates=False), np.array([0.4], np.float32)
    x = np.arange(64, dtype=np.float32)[None, :, None] / 64
    fine = np.concatenate([np.sin(2 * np.pi * x), np.cos(2 * np.pi * 2 * x) - 0.3], axis=-1).astype(np.float32)
    variables = init(model, fine)
    on_fine = run(model, variables, fine, times)[:, :, ::2]
    np.testing.assert_allclose(run(model, variables, fine[:, ::2], times), on_fine, rtol=0, atol=1e-3)


@pytest.mark.parametrize(("model", "channels", "times"), BOTH[1:3])
def test_samples_do_not_see_each_other(model, channels, times):
    u0, order = state(3, 9, channels), np.array([2, 0, 1])
    variables = init(model, u0)
    expected = run(model, variables, u0, times)[order]
    np.testing.assert_allclose(run(model, variables, u0[order], times), expected, rtol=0, atol=ATOL)


@pytest.mark.parametrize("model_of", [stepping, block])
def test_both_methods_of_transforming_agree(model_of):
    u0, times = state(3, 9, 2), np.array([0.4, 0.2], np.float32)
    variables = init(model_of(), u0)
    one, other = (run(model_of(fourier_method=method), variables, u0, times) for method in ("fft", "matmul"))
    np.testing.assert_allclose(one, other, rtol=0, atol=ATOL)


@pytest.mark.parametrize(("model_of", "first_time"), [(stepping, 0.1), (block, BLOCK_STEP)])
def test_padding_of_space_continues_the_field_by_zeros(model_of, first_time):
    """Without the other channels, which padding sets to zero too, that is a longer field."""
    u0, times = state(3, 9, 2), np.array([first_time], np.float32)
    padded, plain = model_of(coordinates=False, padding=1 / 3), model_of(coordinates=False)
    variables = init(plain, u0)
    lifting = variables["params"]["network"]["lifting"]
    lifting["weight"] = lifting["weight"].at[2:].set(0.0)
    lifting["bias"] = jnp.zeros_like(lifting["bias"])
    longer = np.pad(u0, [(0, 0), (0, 3), (0, 0)])
    expected = run(plain, variables, longer, times)[:, :, :9]
    np.testing.assert_allclose(run(padded, variables, u0, times), expected, rtol=0, atol=ATOL)
    assert float(np.abs(run(plain, variables, u0, times) - expected).max()) > 1e-2


def test_padding_of_time_changes_the_prediction():
    u0, times = state(3, 9, 2), np.array([0.4], np.float32)
    variables = init(block(), u0)
    change = run(block(), variables, u0, times) - run(block(time_padding=0.5), variables, u0, times)
    assert float(np.abs(change).max()) > 1e-2


@pytest.mark.parametrize(("model", "channels", "times"), [BOTH[1], BOTH[3]])
def test_every_parameter_has_a_gradient(model, channels, times):
    u0 = state(2, 9, channels)
    variables = init(model, u0)
    slopes = jax.jit(jax.grad(lambda p: jnp.mean(jnp.sin(model.apply(p, u0, times)))))(variables)
    for leaf in jax.tree.leaves(slopes):
        assert np.all(np.isfinite(leaf))
        assert np.any(np.asarray(leaf) != 0)


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [fno.FNORNN, fno.FNO2D])
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"depth": 0}, "depth must be at least 1"),
        ({"num_times": 0}, "num_times must be at least 1"),
        ({"modes": (3, 3, 3)}, "modes must be"),
        ({"padding": -0.1}, "padding must be a fraction of the space axis between 0 and 1, got -0.1"),
        ({"fourier_method": "dft"}, "fourier_method must be one of auto, fft, matmul, got 'dft'"),
    ],
)
def test_fields_out_of_range_are_refused(cls, fields, text):
    with pytest.raises(ValueError, match=text):
        cls(**fields).check_fields()


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (fno.FNORNN(time_step=0.0), "time_step must be positive"),
        (fno.FNORNN(modes=(0,)), "modes must be at least 1"),
        (fno.FNO2D(final_time=-1.0), "final_time must be positive"),
        (fno.FNO2D(time_padding=1.5), "time_padding must be a fraction"),
        (fno.FNO2D(modes=(4, 9), num_times=10), "10 instants carry at most 6"),
    ],
)
def test_fields_of_one_model_out_of_range_are_refused(model, text):
    with pytest.raises(ValueError, match=text):
        model.check_fields()


@pytest.mark.parametrize("model_of", [stepping, block])
def test_bad_fields_are_refused_when_the_model_is_used(model_of):
    with pytest.raises(ValueError, match="head_width"):
        init(model_of(head_width=0), state(2, 9, 2))


@pytest.mark.parametrize("model_of", [stepping, block])
def test_modes_that_do_not_fit_the_grid_are_refused(model_of):
    with pytest.raises(ValueError, match="do not fit a grid"):
        init(model_of(), state(2, 5, 2))


@pytest.mark.parametrize("residual", [False, True])
def test_a_step_to_more_channels_than_the_state_has_is_refused(residual):
    with pytest.raises(ValueError, match="u0 has 1 channels and out_channels is 2"):
        init(stepping(residual=residual), state(2, 9, 1))


@pytest.mark.parametrize("residual", [False, True])
def test_further_channels_of_the_state_stay_in_every_step(residual):
    model, u0, times = stepping(residual=residual), state(2, 9, 5), np.array([0.0, 0.1, 0.2, 0.3], np.float32)
    variables = init(model, u0)
    u = run(model, variables, u0, times)
    np.testing.assert_allclose(u[:, 0], u0[..., :2])
    for i in range(3):
        one = run(model, variables, np.concatenate([u[:, i], u0[..., 2:]], axis=-1), times[1:2])
        np.testing.assert_allclose(u[:, i + 1], one[:, 0], rtol=1e-4, atol=1e-5)


def test_other_channels_than_the_parameters_are_for_are_refused():
    variables = init(block(), state(2, 9, 2))
    with pytest.raises(ValueError, match="have 5 channels, but the parameters are for 4"):
        block().apply(variables, state(2, 9, 3), np.ones(1, np.float32))


def test_a_rollout_of_no_steps_and_a_state_without_samples_axis_are_refused():
    u0 = state(2, 9, 2)
    variables = init(stepping(), u0)
    with pytest.raises(ValueError, match="num_steps must be at least 1"):
        stepping().apply(variables, u0, 0, method="rollout")
    with pytest.raises(ValueError, match=r"axes \(batch, x, channels\)"):
        stepping().apply(variables, u0[0], 1, method="rollout")
