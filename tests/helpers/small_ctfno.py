"""A CTFNO that compiles in a moment, with parameters without any special value, for tests."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from helpers.parameters import random_parameters

from ctfno_jax.models import ctfno

# Predictions are of order one and pass two layers in float32.
ATOL = 1e-5

SMALL = dict(out_channels=2, width=8, modes=(4,), heads=2, time_width=6, time_features=4, time_scale=3.0)
TIMES = np.array([0.7, 0.0, 1.3, 0.2, 2.5], np.float32)


def model_of(**changes) -> ctfno.CTFNO:
    return ctfno.CTFNO(**{**SMALL, **changes})


def state(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def init(model: ctfno.CTFNO, u0: np.ndarray, seed: int = 0):
    return random_parameters(model, u0, TIMES, scale=0.5, seed=seed)


# Programs this small take longer to optimise than to run.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def _run(model: ctfno.CTFNO, variables, u0, times):
    return model.apply(variables, u0, times)


def run(*arguments) -> np.ndarray:
    """The prediction, on the host, where no program is compiled to compare it."""
    return np.asarray(_run(*arguments))


def run_and_slopes(*arguments):
    return jax.device_get(_run_and_slopes(*arguments))


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def _run_and_slopes(model: ctfno.CTFNO, variables, u0, times):
    """The prediction, and the gradient of a loss by parameters and initial state, in one program."""

    def loss(p, u):
        prediction = model.apply(p, u, times)
        return jnp.mean(jnp.sin(prediction)), prediction

    slopes, prediction = jax.grad(loss, argnums=(0, 1), has_aux=True)(variables, u0)
    return prediction, slopes
