"""Initial parameters of a model, by a program that is compiled in a moment because it runs only once."""

from typing import Any

import jax
from flax import linen as nn

from ctfno_jax.types import Key, Params


def initial_parameters(model: nn.Module, key: Key, *inputs: Any) -> Params:
    """``model.init(key, *inputs)`` as one compiled program.

    On CPU, optimising the generation of random numbers takes three times as long as generating them without.
    """
    quick = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else {}
    return jax.jit(model.init, compiler_options=quick)(key, *inputs)
