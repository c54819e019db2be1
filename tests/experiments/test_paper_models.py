"""Numbers of parameters of the paper's networks."""

import jax
import jax.numpy as jnp
import pytest

from ctfno_jax.models import ctfno
from experiments import paper_models


def _shape(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _observed(features):
    return _shape(2, 6, 1 + 2 * features), _shape(3)


@pytest.mark.parametrize(
    ("name", "inputs", "count"),
    [
        ("f1_low", (_shape(2, 100, 1), _shape(3)), 17858),
        ("f1_reaction", (_shape(2, 128, 1), _shape(3)), 1912321),
        ("f1_pde", (_shape(2, 128, 1), _shape(3)), 2502145),
        ("f1_navier_stokes", (_shape(2, 128, 3), _shape(3)), 2502403),
        ("f2_low", (_shape(2, 100, 1), _shape(3)), 17858),
        ("f2_mujoco", _observed(14), 150621),
        ("f2_physionet", _observed(41), 68016),
        ("f2_activity", _observed(12), 124746),
        ("f2_vibration", (_shape(2, 64, 6), _shape(3)), 6310),
    ],
)
def test_a_network_has_the_stated_number_of_real_parameters(name, inputs, count):
    params = jax.eval_shape(paper_models.paper_model(name).init, jax.random.key(0), *inputs)
    assert all(not jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in jax.tree.leaves(params))
    assert ctfno.num_parameters(params) == count


def test_every_network_is_counted_above():
    (mark,) = test_a_network_has_the_stated_number_of_real_parameters.pytestmark
    assert {case[0] for case in mark.args[1]} == set(paper_models.PAPER_MODELS)


def test_an_unknown_network_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown model of the paper 'f3_pde'; known are f1_low, f1_reaction, f1_pde"):
        paper_models.paper_model("f3_pde")
