"""CTFNO: fields, states and times that are refused, and the text that says why."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.small_ctfno import TIMES, model_of, state

from ctfno_jax.models import ctfno


def start(model: ctfno.CTFNO, u0, times) -> None:
    """Traces the model; hyper-parameters, shapes and concrete times are checked on the way."""
    jax.eval_shape(lambda key: model.init(key, u0, times), jax.random.key(0))


@pytest.mark.parametrize(
    ("u0", "times", "text"),
    [
        pytest.param(state(9, 1), TIMES, r"u0 must have the 3 axes .*got shape \(9, 1\)", id="no-batch"),
        pytest.param(
            state(2, 9, 8, 1), TIMES, r"the model has 1 space axes, got shape \(2, 9, 8, 1\)", id="extra-axis"
        ),
        pytest.param(state(2, 9, 1), np.float32(0.5), r"times must have shape \(time,\)", id="scalar-time"),
        pytest.param(state(2, 9, 1), np.zeros((1, 2, 3)), r"got shape \(1, 2, 3\)", id="times-of-rank-three"),
        pytest.param(state(2, 9, 1), np.zeros((3, 4)), r"with batch=2, got shape \(3, 4\)", id="times-batch-mismatch"),
        pytest.param(state(2, 9, 1), np.zeros(0), "times is empty: ask for at least one query time", id="no-times"),
        pytest.param(state(2, 9, 1), np.zeros((2, 0)), "times is empty", id="no-times-per-sample"),
        pytest.param(state(2, 5, 1), TIMES, r"modes \(4,\) do not fit a grid of \(5,\) points", id="coarse-grid"),
    ],
)
def test_inputs_that_are_refused(u0, times, text):
    with pytest.raises(ValueError, match=text):
        start(model_of(), u0, np.asarray(times, np.float32))


@pytest.mark.parametrize(("bad", "text"), [(-0.25, r"-0\.25"), (np.nan, "nan"), (np.inf, "inf")])
@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_times_that_are_refused_wherever_they_stand(shape, bad, text):
    """Values can only be checked where they are known, so not inside a compiled function."""
    times = np.linspace(0, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    times[..., 1] = bad
    with pytest.raises(ValueError, match=f"times must be finite and >= 0, got {text}"):
        model_of().init(jax.random.key(0), state(2, 9, 1), times)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"modes": 4}, r"^modes must be a tuple with one number per space axis, e\.g\. \(4,\), got 4"),
        ({"modes": ()}, r"modes must name one to three space axes, got \(\)"),
        ({"modes": (2, 2, 2, 2)}, "modes must name one to three space axes"),
        ({"modes": (0,)}, r"modes \(0,\) do not fit a grid of \(9,\) points: between 1 and \(5,\) are possible"),
        ({"out_channels": 0}, "out_channels must be at least 1, got 0"),
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"depth": 0}, "depth must be at least 1, got 0"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"num_blocks": -1}, "num_blocks must be at least 1, got -1"),
        ({"width": 7}, "width=7 must be divisible by heads=2"),
        ({"time_width": 9}, "time_width=9 must be divisible by heads=2"),
        ({"num_blocks": 3, "kernel": "block_diagonal"}, "width=8 must be divisible by num_blocks=3"),
        ({"time_features": 5}, "time_features must be an even number of at least 2, got 5"),
        ({"time_features": 0}, "time_features must be an even number of at least 2, got 0"),
        ({"time_scale": 0.0}, r"time_scale must be positive and finite, got 0\.0"),
        ({"time_scale": float("inf")}, "time_scale must be positive and finite, got inf"),
        ({"stability_bound": 0.0}, r"stability_bound must be positive, or None for no bound, got 0\.0"),
        ({"stability_bound": -1.0}, r"stability_bound must be positive.*got -1\.0"),
        ({"stability_bound": float("nan")}, "stability_bound must be positive.*got nan"),
        ({"stability_bound": float("inf")}, "stability_bound must be .*got inf"),
        ({"time_chunk": 0}, "time_chunk must be at least 1, or None to choose by size, got 0"),
        ({"padding": -0.1}, r"padding must be a fraction of each axis between 0 and 1.*got -0\.1"),
        ({"padding": 1.5}, r"padding must be a fraction of each axis between 0 and 1.*got 1\.5"),
        ({"padding": (0.1, 0.2)}, r"one for each of the 1 axes, got \(0\.1, 0\.2\)"),
        ({"lifting": "conv"}, "lifting must be one of linear, low_pass, got 'conv'"),
        ({"head": "deep"}, "head must be one of linear, mlp, got 'deep'"),
        ({"stability_rule": "columns"}, "stability_rule must be one of rows, rows_and_columns, got 'columns'"),
        ({"fourier_method": "dct"}, "fourier_method must be one of auto, fft, matmul, got 'dct'"),
        ({"kernel": "sparse"}, "kernel must be one of dense, block_diagonal, got 'sparse'"),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_fields_that_are_refused(changes, text):
    with pytest.raises(ValueError, match=text):
        start(model_of(**changes), state(2, 9, 1), TIMES)


def test_padding_makes_room_for_more_modes():
    """Modes are checked against the padded grid, which is the one that is transformed."""
    u0 = state(2, 6, 1)
    with pytest.raises(ValueError, match=r"do not fit a grid of \(6,\) points"):
        start(model_of(modes=(5,)), u0, TIMES)
    model = model_of(modes=(5,), padding=0.5)
    shape = jax.eval_shape(lambda key: model.init_with_output(key, u0, TIMES)[0], jax.random.key(0)).shape
    assert shape == (2, 5, 6, 2)


def test_a_state_with_other_channels_than_the_parameters_is_refused():
    model = ctfno.CTFNO(width=4, modes=(2,), heads=1, time_width=4, time_features=2)
    params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 6, 1)), jnp.ones(1))
    with pytest.raises(ValueError, match="u0 has 3 channels, but the parameters are for 1"):
        jax.eval_shape(model.apply, params, jnp.zeros((2, 6, 3)), jnp.ones(1))


def test_blocks_need_a_block_diagonal_kernel():
    model = ctfno.CTFNO(width=4, modes=(2,), heads=1, time_width=4, time_features=2, num_blocks=2)
    with pytest.raises(ValueError, match="num_blocks=2 needs kernel='block_diagonal', got kernel='dense'"):
        model.init(jax.random.key(0), jnp.zeros((1, 6, 1)), jnp.ones(1))


def test_a_rule_without_a_bound_is_refused():
    with pytest.raises(ValueError, match="stability_rule='rows_and_columns' needs a stability_bound"):
        start(model_of(stability_rule="rows_and_columns"), state(2, 9, 1), TIMES)
