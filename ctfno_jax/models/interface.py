"""Optional methods and fields of models, as functions with defaults for models that lack them.

Optional methods and fields of a model, all read here and nowhere else:

* ``check_fields()``: raises ValueError for hyper-parameters out of range.
* ``answerable(times)``: None, or a sentence that says why some of the concrete times have no answer.
* ``reaching(times)``: the model with as many time steps as the concrete times need.
* ``resampled(num_times)``: the model on another number of instants.
* ``initialize_from_data(variables, u0, times, u)``: variables with constants computed from training data.
* ``negative_elbo``, ``loss_with_steps``: losses that need more than the output.
* ``posterior(inputs, times, key)``: the output from one draw of a latent state, with the distribution of that state.
* ``stepping``, ``adjoint``: how an ODE solver inside steps, and how it is differentiated.
* ``num_times``, ``num_steps``: instants that are computed whatever is asked.
* ``from_last_observation = True``: time zero is that of the last observation.
* ``operator``, or ``dynamics``: the module that this one is built around. What a wrapper does not implement is asked of
  it.
"""

import functools
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import Float

from ctfno_jax.types import Params

# Losses that some models implement: method, and what a model needs to have it.
_LOSSES = {
    "elbo": ("negative_elbo", "a latent distribution"),
    "with_steps": ("loss_with_steps", "a state at each observation"),
}


def _operator(model: nn.Module) -> nn.Module | None:
    """The module that a wrapper is built around; None if the model is no wrapper."""
    return getattr(model, _operator_field(model), None)


def _operator_field(model: nn.Module) -> str:
    return "dynamics" if hasattr(model, "dynamics") else "operator"


def _chain(model: nn.Module | None) -> Iterator[nn.Module]:
    """The model, the operator inside it, and so on."""
    while model is not None:
        yield model
        model = _operator(model)


def _with_operator(model: nn.Module, operator: nn.Module) -> nn.Module:
    """The wrapper around another operator; the model itself if it is the same."""
    if operator is _operator(model):
        return model
    changed: dict[str, Any] = {_operator_field(model): operator}
    return model.clone(**changed, parent=None, name=None)


def check_fields(model: nn.Module) -> None:
    """Raises ValueError for hyper-parameters that are out of range, also of operators inside wrappers."""
    for module in _chain(model):
        check = getattr(module, "check_fields", None)
        if check is not None:
            check()


def reaching(model: nn.Module, times: Float[np.ndarray, "..."]) -> nn.Module:
    """The model, for the same parameters, with enough time steps for these concrete times."""
    with_steps, inner = getattr(model, "reaching", None), _operator(model)
    if with_steps is not None:
        return with_steps(np.asarray(times))
    return model if inner is None else _with_operator(model, reaching(inner, times))


def unanswerable(model: nn.Module, times: Float[np.ndarray, "..."]) -> str | None:
    """A sentence that says why the model has no answer at some of the times; None if it has one at all of them."""
    model = reaching(model, times)
    answerable, inner = getattr(model, "answerable", None), _operator(model)
    if answerable is not None:
        return answerable(np.asarray(times))
    return None if inner is None else unanswerable(inner, times)


def resampled(model: nn.Module, num_times: int) -> nn.Module:
    """The model, for the same parameters, on another number of instants up to the same final time."""
    on_grid, inner = getattr(model, "resampled", None), _operator(model)
    if on_grid is not None:
        return on_grid(num_times)
    if inner is None:
        raise ValueError(f"{type(model).__name__} has no grid of times to resample; remove train_times")
    return _with_operator(model, resampled(inner, num_times))


def takes_data(model: nn.Module) -> bool:
    """True if some variables are computed from training data instead of learned."""
    return any(hasattr(module, "initialize_from_data") for module in _chain(model))


def initialize_from_data(
    model: nn.Module, variables: Mapping[str, Any], u0: Any, times: Any, u: Any
) -> Mapping[str, Any]:
    """The variables with what the model computes from training data; unchanged for models that compute nothing."""
    own = getattr(model, "initialize_from_data", None)
    if own is not None:
        return own(variables, u0, times, u)
    if takes_data(model):
        *_, inner = _chain(model)
        raise ValueError(
            f"{type(inner).__name__} inside {type(model).__name__} cannot be initialised from solutions: they are not "
            f"what it gives there; use {type(inner).__name__} without a wrapper"
        )
    return variables


def loss_method(model: nn.Module, name: str) -> str:
    """Name of the method by which the model implements a loss; ValueError if it has none."""
    if name not in _LOSSES:
        raise ValueError(f"no model implements a loss {name!r} itself; known are {', '.join(_LOSSES)}")
    method, needed = _LOSSES[name]
    if not hasattr(model, method):
        raise ValueError(f"loss={name} is for models with {needed}; {type(model).__name__} has none")
    return method


def may_fail(model: nn.Module) -> bool:
    """True if an ODE solver inside may run out of steps, which leaves later times without a finite answer."""
    return any(hasattr(module, "stepping") for module in _chain(model))


def count_evaluations(model: nn.Module, params: Params, inputs: Any, times: Any) -> float | None:
    """Mean number of evaluations of the vector field for one sample; None for models without one, and for wrappers."""
    if "count_evaluations" not in inspect.signature(type(model).__call__).parameters:
        return None
    _, count = jax.jit(functools.partial(model.apply, count_evaluations=True))(params, inputs, times)
    return float(np.mean(count))


def single_device(model: nn.Module) -> str | None:
    """A sentence that says why a batch cannot be sharded over several devices; None if it can."""
    for module in _chain(model):
        adjoint = getattr(module, "adjoint", "direct")
        if adjoint != "direct":
            return (
                f"adjoint={adjoint} cannot be sharded over several devices; use adjoint=direct, which has the same "
                "derivatives, or one device"
            )
    return None


def forward_differentiable(model: nn.Module) -> nn.Module:
    """The model, for the same parameters, in a form that forward-mode differentiation accepts."""
    inner = _operator(model)
    if inner is not None:
        model = _with_operator(model, forward_differentiable(inner))
    if getattr(model, "adjoint", "direct") == "direct":
        return model
    return model.clone(adjoint="direct", parent=None, name=None)


def distinct_times(model: nn.Module) -> bool:
    """True if query times must differ, so that a request cannot be padded by repeating one."""
    return any(getattr(module, "stepping", None) == "queries" for module in _chain(model))


def times_per_call(model: nn.Module, num_times: int) -> int:
    """Number of times that are computed for a request of ``num_times``: models on a time grid compute all of it."""
    grids = [getattr(module, name, 0) for module in _chain(model) for name in ("num_times", "num_steps")]
    return max(num_times, *grids)


def from_last_observation(model: nn.Module) -> bool:
    """True if time zero of a series model is that of the last observation."""
    return getattr(model, "from_last_observation", False)


def follows_observations(model: nn.Module) -> bool:
    """True if a series model has a state at each observation and needs their times."""
    return hasattr(model, "loss_with_steps")


def has_posterior(model: nn.Module) -> bool:
    """True if the model has a distribution of latent states to draw from."""
    return hasattr(model, "posterior")
