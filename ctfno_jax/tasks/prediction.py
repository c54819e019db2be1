"""A network between transforms as one function in physical units, and its evaluation on requests of any size."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from ctfno_jax.certify import certify, uncertifiable
from ctfno_jax.models import interface
from ctfno_jax.transforms.protocol import Transform
from ctfno_jax.types import Params

# Grid points times query times evaluated in one call: bounds memory whatever the size of the request.
_POINTS_PER_CALL = 4_000_000

# Parameters, inputs (batch, *grid, channels) and times to values (batch, time, *grid, channels).
ApplyFn = Callable[[Params, Any, Any], Any]


def physical(model: nn.Module, transform: Transform) -> ApplyFn:
    """The pure function ``decode(network(encode(u0), times))``, for JAX to transform."""

    def apply(params: Params, u0: Any, times: Any) -> Any:
        u: Any = model.apply(params, transform.encode(u0), transform.encode_times(times))
        return transform.decode(u, tuple(u0.shape[1:-1]))

    return apply


def lipschitz(
    model: nn.Module, transform: Transform, params: Params, times: np.ndarray, grid: tuple[int, ...]
) -> np.ndarray:
    """Certified bound, in physical units, on the growth of an L2 error in the input on that grid, for each time."""
    problem = uncertifiable(model)
    if problem is not None:
        raise ValueError(problem)
    certificate = certify(interface.reaching(model, np.asarray(times)), params, jnp.asarray(times))
    return certificate.lipschitz * transform.gain(grid)


class Evaluator:
    """Evaluates a model on NumPy requests of any size: in pieces, padded to few shapes so that little is compiled.

    Attributes:
      model: the network.
      transform: between physical units and what the network reads.
    """

    def __init__(self, model: nn.Module, transform: Transform) -> None:
        self.model = model
        self.transform = transform
        self._compiled: dict[str, Any] = {}

    def __call__(self, params: Params, u0: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Values at concrete times; ValueError for times that the model cannot answer."""
        problem = interface.unanswerable(self.model, times)
        if problem is not None:
            raise ValueError(problem)
        model = interface.reaching(self.model, times)
        apply_fn = self._apply_for(model)
        batch, num_times = len(u0), times.shape[-1]
        batch_size, times_size = _piece(model, batch, num_times, math.prod(u0.shape[1:-1]))
        answer: np.ndarray | None = None
        for i in range(0, batch, batch_size):
            samples = slice(i, i + batch_size)
            states = jnp.asarray(_padded(u0[samples], batch_size, axis=0))
            for j in range(0, num_times, times_size):
                instants = slice(j, j + times_size)
                some_times = _padded(times[..., instants], times_size, axis=-1)
                if times.ndim == 2:
                    some_times = _padded(some_times[samples], batch_size, axis=0)
                u = np.asarray(apply_fn(params, states, jnp.asarray(some_times)))
                if answer is None:
                    answer = np.empty((batch, num_times, *u.shape[2:]), u.dtype)
                answer[samples, instants] = u[: batch - i, : num_times - j]
        assert answer is not None, "a request has a sample and a time"
        return answer

    def _apply_for(self, model: nn.Module) -> Any:
        """The compiled function, one for each number of steps that a model makes."""
        key = repr(model)
        if key not in self._compiled:
            self._compiled[key] = jax.jit(physical(model, self.transform))
        return self._compiled[key]


def _piece(model: nn.Module, batch: int, num_times: int, points: int) -> tuple[int, int]:
    """Samples and times of one call, rounded to few different sizes and limited by memory."""
    computed = interface.times_per_call(model, 1)
    if interface.distinct_times(model):
        times_size = num_times
    else:
        # A model on a grid of times computes all of it in every call.
        most = max(_previous_size(max(1, _POINTS_PER_CALL // points)), _next_size(computed))
        times_size = min(_next_size(num_times), most)
    most = _previous_size(max(1, _POINTS_PER_CALL // (points * max(computed, times_size))))
    return min(_next_size(batch), most), times_size


def _next_size(count: int) -> int:
    """The next power of two, or three quarters of one: at most a third of the work is wasted."""
    power = 1 << (count - 1).bit_length()
    return 3 * power // 4 if power >= 4 and count <= 3 * power // 4 else power


def _previous_size(count: int) -> int:
    return 1 << (count.bit_length() - 1)


def _padded(values: np.ndarray, size: int, axis: int) -> np.ndarray:
    """The values with the last one repeated along the axis up to ``size``."""
    missing = size - values.shape[axis]
    if not missing:
        return values
    last = np.take(values, [-1], axis)
    return np.concatenate([values, np.repeat(last, missing, axis)], axis)


def in_pieces(apply: Callable[[np.ndarray], Any], inputs: np.ndarray, most: int) -> np.ndarray:
    """Answers for many inputs, in calls of one size: the last input fills the last call.

    Args:
      apply: compiled function of inputs ``(count, ...)`` to answers ``(count, ...)``.
      inputs: all of them.
      most: inputs in one call.
    """
    found, piece = [], min(most, len(inputs))
    for i in range(0, len(inputs), piece):
        index = np.minimum(np.arange(i, i + piece), len(inputs) - 1)
        found.append(np.asarray(apply(inputs[index]))[: len(inputs) - i])
    return np.concatenate(found)
