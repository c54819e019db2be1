"""A loss in parts has the value and the gradient of the whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.training.in_parts import in_parts


def _loss(params, batch):
    x, labels = batch["x"], batch["label"]
    logits = jnp.tanh(x @ params["hidden"]) @ params["head"]
    return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(x)), labels])


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    params = {"hidden": jnp.asarray(rng.normal(size=(3, 5))), "head": jnp.asarray(rng.normal(size=(5, 4)))}
    return params, {"x": jnp.asarray(rng.normal(size=(12, 3))), "label": jnp.asarray(rng.integers(0, 4, 12))}


@pytest.mark.parametrize("size", [1, 3, 12])
def test_value_and_gradient_are_those_of_the_whole_batch(case, size):
    expected = jax.jit(jax.value_and_grad(_loss))(*case)
    found = jax.jit(jax.value_and_grad(in_parts(_loss, size)))(*case)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)
    np.testing.assert_allclose(in_parts(_loss, size)(*case), expected[0], rtol=1e-5)


def test_a_factor_on_the_loss_is_one_on_the_gradient(case):
    params, batch = case
    part = in_parts(_loss, 4)
    one = jax.grad(part)(params, batch)
    three = jax.grad(lambda params: 3 * part(params, batch))(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(3 * a, b, rtol=1e-6), one, three)


def test_a_batch_that_cannot_be_divided_is_refused(case):
    with pytest.raises(ValueError, match="a batch of 12 samples cannot be divided into parts of 5"):
        in_parts(_loss, 5)(*case)
