"""DeepONets of a size for tests."""

import functools

import jax
import numpy as np

TIMES = np.asarray([0.3, 1.0, 0.1], np.float32)
SMALL = {"width": 16, "depth": 1, "num_sensors": 32}


def state(batch: int = 4, num_points: int = 32, channels: int = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(batch, num_points, channels)).astype(np.float32)


def random_variables(model, channels: int = 1, seed: int = 1):
    shapes = jax.eval_shape(model.init, jax.random.key(0), state(1, channels=channels), TIMES)
    leaves, tree = jax.tree.flatten(shapes)
    rng = np.random.default_rng(seed)
    return tree.unflatten([np.asarray(0.25 * rng.normal(size=a.shape), np.float32) for a in leaves])


@functools.cache
def jitted(model):
    return jax.jit(model.apply)


def ask(model, variables, u0, times) -> np.ndarray:
    return np.asarray(jitted(model)(variables, u0, times))
