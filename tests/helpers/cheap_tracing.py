"""Ways around work of JAX and Flax that changes no number, for tests that call hundreds of small programs once."""

import functools
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.core import meta
from flax.core.scope import Scope

_agreed: set[Any] = set()


def install() -> None:
    _convert_on_the_host()
    _check_shapes_once()


def _convert_on_the_host() -> None:
    """``jnp.asarray`` compiles a program for every new shape of a NumPy array, unless it is given the array's type."""
    asarray = jnp.asarray

    @functools.wraps(asarray)
    def converting(a: Any, dtype: Any = None, **options: Any) -> Any:
        # Integers from numbers that are not finite are a matter of JAX.
        if type(a) is np.ndarray and a.dtype.kind in "fi":
            wanted = jax.dtypes.canonicalize_dtype(a.dtype if dtype is None else dtype)
            if jnp.issubdtype(wanted, jnp.floating) or a.dtype.kind == wanted.kind:
                a, dtype = a.astype(wanted), wanted
        return asarray(a, dtype, **options)

    jnp.asarray = converting


def _check_shapes_once() -> None:
    """A shape that an initializer once agreed with is not compared with it again.

    At every call of a network, Flax traces the initializer of every parameter, only to compare shapes: half of the
    time that it takes to trace a small network.
    """
    param = Scope.param

    @functools.wraps(param)
    def checked_once(self: Scope, name: str, init_fn: Callable, *args: Any, unbox: bool = True, **kwargs: Any) -> Any:
        key = None
        if self.has_variable("params", name):
            value = self.get_variable("params", name)
            key = _key(init_fn, args, kwargs, np.shape(meta.unbox(value)))
            if key in _agreed:
                self.reserve(name, "params")
                return meta.unbox(value) if unbox else value
        value = param(self, name, init_fn, *args, unbox=unbox, **kwargs)
        if key is not None:
            _agreed.add(key)
        return value

    Scope.param = checked_once


def _key(init_fn: Callable, args: tuple, kwargs: dict[str, Any], shape: tuple[int, ...]) -> Any:
    """A shape, and what a function computes with: its code and all that is bound to it. None if it cannot be kept."""
    if not isinstance(init_fn, types.FunctionType):
        return None
    bound = tuple(cell.cell_contents for cell in init_fn.__closure__ or ())
    key = (shape, init_fn.__code__, bound, init_fn.__defaults__, args, tuple(kwargs.items()))
    try:
        hash(key)
    except TypeError:
        return None
    return None if any(isinstance(value, nn.Module) for value in bound) else key
