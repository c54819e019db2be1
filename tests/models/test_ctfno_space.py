"""CTFNO in space: translations, grids and padding."""

import chex
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.small_ctfno import ATOL, TIMES, init, model_of, run, state

from ctfno_jax.models import inputs


@pytest.mark.parametrize(
    ("changes", "grid", "shift"),
    [
        pytest.param({}, (11,), (4,), id="1d"),
        pytest.param({"modes": (3, 2), "head": "mlp"}, (7, 6), (2, 5), id="2d", marks=pytest.mark.slow),
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
        errors.append(float(np.abs(coarse - fine[:, :, ::2]).max() / np.abs(coarse).max()))
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
    assert inputs.padded_grid(grid, padding) == padded
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
    assert float(np.abs(a - b).max()) > 1e-2


def test_padding_of_one_entry_holds_for_every_axis():
    """A tuple of length one is accepted by the checks, so it must mean the same as the number."""
    u0 = state(2, 6, 8, 1)
    number, single = model_of(modes=(2, 3), padding=0.5), model_of(modes=(2, 3), padding=(0.5,))
    variables = init(number, u0)
    chex.assert_trees_all_close(run(single, variables, u0, TIMES), run(number, variables, u0, TIMES), atol=ATOL, rtol=0)
