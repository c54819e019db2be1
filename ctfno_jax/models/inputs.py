"""Checks of an operator's inputs and fields, and the array that its first layer reads."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.core import Tracer
from jaxtyping import Array, Float


def as_float(x: Any) -> Array:
    """Float32, or the wider floating type that ``x`` has: integers and half precision are promoted."""
    x = jnp.asarray(x)
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def float_inputs(u0: Any, times: Any) -> tuple[Array, Array]:
    """Both as floating arrays of one type, that of ``u0``: an operator computes in the type of its state."""
    u0 = as_float(u0)
    return u0, jnp.asarray(times).astype(u0.dtype)


def check_inputs(u0: Any, times: Any, num_space: int | None = None) -> tuple[Any, Any]:
    """Both as arrays; ValueError for types, shapes and concrete times that no operator accepts.

    Args:
      u0: ``(batch, *space, channels)``.
      times: ``(time,)`` or ``(batch, time)``.
      num_space: number of space axes; None for any from one to three.
    """
    u0, times = (x if isinstance(x, Array | np.ndarray) else np.asarray(x) for x in (u0, times))
    check_real("u0", u0)
    if num_space is None and not 3 <= u0.ndim <= 5:
        raise ValueError(
            f"u0 must have the axes (batch, *space, channels) with 1 to 3 space axes, got shape {u0.shape}"
        )
    if num_space is not None and u0.ndim != num_space + 2:
        raise ValueError(
            f"u0 must have the {num_space + 2} axes (batch, *space, channels) because the model has {num_space} space "
            f"axes, got shape {u0.shape}"
        )
    if times.ndim not in (1, 2) or (times.ndim == 2 and times.shape[0] != u0.shape[0]):
        raise ValueError(
            f"times must have shape (time,) or (batch, time) with batch={u0.shape[0]}, got shape {times.shape}"
        )
    check_times(times)
    return u0, times


def check_real(name: str, x: Any) -> None:
    """Raises ValueError unless the array holds floating-point numbers or integers."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise ValueError(
            f"{name} must hold real numbers, got dtype {x.dtype}; pass real and imaginary parts as two channels"
        )
    if not (jnp.issubdtype(x.dtype, jnp.floating) or jnp.issubdtype(x.dtype, jnp.integer)):
        raise ValueError(f"{name} must hold real numbers, got dtype {x.dtype}; convert it to float32")


def check_times(times: Any) -> None:
    """Raises ValueError for times that are not real or empty, and for concrete ones that are negative or not finite."""
    check_real("times", times)
    if times.ndim not in (1, 2):
        raise ValueError(f"times must have shape (time,) or (batch, time), got shape {times.shape}")
    if times.shape[-1] == 0:
        raise ValueError("times is empty: ask for at least one query time")
    if not isinstance(times, Tracer):
        values = np.asarray(times)
        if not np.all(np.isfinite(values)) or np.any(values < 0):
            bad = values[~np.isfinite(values) | (values < 0)].flat[0]
            raise ValueError(f"times must be finite and >= 0, got {bad}")


def check_modes(modes: Any) -> None:
    """Raises ValueError unless ``modes`` is a sequence of integers."""
    integers = isinstance(modes, tuple | list) and all(
        isinstance(m, int | np.integer) and not isinstance(m, bool) for m in modes
    )
    if not integers:
        raise ValueError(f"modes must be a tuple with one number per space axis, e.g. (4,), got {modes}")


def padded_grid(grid: tuple[int, ...], padding: float | tuple[float, ...]) -> tuple[int, ...]:
    """Points of each axis after zero padding."""
    fractions = padding if isinstance(padding, tuple | list) else (padding,)
    fractions = (*fractions,) * len(grid) if len(fractions) == 1 else fractions
    return tuple(n + round(f * n) for n, f in zip(grid, fractions, strict=True))


def input_field(
    u0: Float[Array, "batch *space channels"], *, coordinates: bool, padding: float | tuple[float, ...] = 0.0
) -> Array:
    """State, coordinates and a constant, zero-padded: ``(*space, 1, batch, in)``; the 1 is the time axis."""
    grid = u0.shape[1:-1]
    num_space = len(grid)
    parts = [u0]
    if coordinates:
        axes = [jnp.arange(n, dtype=u0.dtype) / n for n in grid]
        mesh = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1)
        parts.append(jnp.broadcast_to(mesh, (*u0.shape[:-1], num_space)))
    # The lifting's bias is the weight of this constant, so the padding stays zero after the lifting.
    parts.append(jnp.ones((*u0.shape[:-1], 1), u0.dtype))
    a = jnp.moveaxis(jnp.concatenate(parts, axis=-1), 0, num_space)
    pad = [(0, padded - n) for n, padded in zip(grid, padded_grid(grid, padding), strict=True)]
    return jnp.expand_dims(jnp.pad(a, [*pad, (0, 0), (0, 0)]), num_space)


def check_positive(model: nn.Module, names: tuple[str, ...]) -> None:
    """Raises ValueError for a field of the model that is not positive and finite."""
    for name in names:
        value = getattr(model, name)
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be positive and finite, got {value}")
