"""Losses, against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax import metrics
from ctfno_jax.training import losses

TARGET = jnp.asarray([[[1.0, 2.0, 2.0], [4.0, 0.0, 0.0]], [[0.0, 3.0, 0.0], [0.0, 0.0, 4.0]]])[..., None]
ERROR = jnp.asarray([[[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]], [[0.0, 0.0, 0.0], [0.0, -12.0, 0.0]]])[..., None]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mse", (9 + 16 + 144) / 12),
        ("rmse", (5 / np.sqrt(6) + 12 / np.sqrt(6)) / 2),
        ("relative_l2", (5 / 5 + 12 / 5) / 2),
    ],
)
def test_losses_by_hand(name, expected):
    assert losses.loss(name)(TARGET + ERROR, TARGET) == pytest.approx(expected, rel=1e-6)


def test_relative_l2_is_the_metric_of_the_same_meaning():
    rng = np.random.default_rng(0)
    prediction, target = (rng.normal(size=(3, 4, 5, 6, 2)).astype(np.float32) for _ in range(2))
    expected = metrics.nrmse(prediction, target)
    assert losses.relative_l2(jnp.asarray(prediction), jnp.asarray(target)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", losses.LOSSES)
def test_a_loss_is_the_mean_of_the_losses_of_the_shards(name):
    rng = np.random.default_rng(1)
    prediction, target = (jnp.asarray(rng.normal(size=(6, 2, 5, 1)), jnp.float32) for _ in range(2))
    loss = losses.loss(name)
    parts = [loss(prediction[i : i + 2], target[i : i + 2]) for i in (0, 2, 4)]
    assert loss(prediction, target) == pytest.approx(float(np.mean(parts)), rel=1e-6)


@pytest.mark.parametrize("name", losses.LOSSES)
def test_the_gradient_at_a_perfect_prediction_is_zero_and_not_nan(name):
    gradient = jax.grad(losses.loss(name))(TARGET, TARGET)
    np.testing.assert_array_equal(gradient, 0.0)


@pytest.mark.parametrize("name", losses.LOSSES)
def test_the_gradient_equals_finite_differences(name):
    loss = losses.loss(name)
    direction = jnp.asarray(np.random.default_rng(2).normal(size=TARGET.shape), jnp.float32)
    slope = jnp.vdot(jax.grad(loss)(TARGET + ERROR, TARGET), direction)
    step = 1e-2
    numeric = (loss(TARGET + ERROR + step * direction, TARGET) - loss(TARGET + ERROR - step * direction, TARGET)) / (
        2 * step
    )
    assert slope == pytest.approx(float(numeric), rel=1e-2)


def test_an_unknown_loss_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown loss 'mae'; known are mse, rmse, relative_l2"):
        losses.loss("mae")
