"""What the timing program compares computes the same function, and its count of operations is right."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.config import ModelConfig
from ctfno_jax.models.ctfno import CTFNO
from experiments import obvious, timing


@pytest.mark.parametrize("coordinates", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_obvious_network_is_the_same_function(coordinates):
    model = CTFNO(
        out_channels=2, width=8, modes=(5,), depth=3, heads=2, time_width=6, time_features=4, time_scale=7.0,
        coordinates=coordinates,
    )  # fmt: skip
    u0 = jax.random.normal(jax.random.key(0), (3, 12, 1))
    times = jnp.asarray([0.3, 0.0, 1.7, 0.9])
    params = model.init(jax.random.key(1), u0, times)
    expected = model.apply(params, u0, times)
    np.testing.assert_allclose(obvious.apply(model, params, u0, times), expected, atol=2e-5)


def test_operations_by_hand():
    model = CTFNO(width=4, modes=(3,), depth=2)
    # Per sample and time: three transforms of 10 points, 6 rows and 4 channels; one complex mixing of 3 frequencies;
    # one pointwise map and the head at 10 points.
    transforms, mixing, pointwise, head = 3 * 2 * 10 * 6 * 4, 8 * 3 * 16, 2 * 10 * 16, 2 * 10 * 4
    forward, both = timing.operations(model, batch=2, num_times=5, num_points=10)
    assert forward == 10 * (transforms + mixing + pointwise + head)
    assert both == 10 * (2 * transforms + 3 * (mixing + pointwise + head))


def test_the_report_shows_ratios_to_ours():
    seconds = {
        "ours": {"forward": 0.01, "forward_backward": 0.03},
        "obvious": {"forward": 0.05, "forward_backward": 0.12},
    }
    fraction = {"forward": 0.4, "forward_backward": 0.25}
    text = timing.report(
        {"size": [2, 3, 4], "seconds": seconds, "matmul_gflops": 100.0, "fraction_of_matmul": fraction}
    )
    assert "obvious        50.0 ms    5.00    120.0 ms    4.00" in text
    assert "40% forward and 25% forward and backward" in text


def test_an_epoch_is_one_step_as_often_as_it_has_batches(monkeypatch):
    small = {
        "ctfno": {"width": 4, "modes": [3], "depth": 1, "heads": 1, "time_width": 4, "time_features": 4},
        "fno_rnn": {"width": 4, "modes": [3], "depth": 1, "head_width": 4},
        "fno_2d": {"width": 4, "modes": [3, 2], "depth": 1, "head_width": 4},
    }
    original = timing.pde.pde_config
    monkeypatch.setattr(
        timing.pde, "pde_config",
        lambda d, m, p, s: dataclasses.replace(original(d, m, p, s), model=ModelConfig(m, small[m])),
    )  # fmt: skip
    monkeypatch.setattr(timing, "best_seconds", lambda fn, *args, repeats, **_: 0.5 if len(args) == 2 else 0.25)
    row = timing.heat_epoch(1, num_train=60, num_test=40, num_points=8)
    assert set(row["models"]) == {"ctfno", "fno_rnn", "fno_2d"}
    for numbers in row["models"].values():
        assert (numbers["training"], numbers["inference"]) == (3 * 0.5, 2 * 0.25)
        assert numbers["num_params"] > 0
    assert (row["size"], row["batch_size"]) == ([60, 50, 8], 20)
