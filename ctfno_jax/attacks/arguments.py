"""Checks of arguments: values where they are concrete, shapes and types always."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int


def _array(values: Any) -> Array | np.ndarray:
    """The values as an array, on the host if they came from there."""
    return values if isinstance(values, jax.Array) else np.asarray(values)


def _concrete(values: Any) -> np.ndarray | None:
    """Values to check; None inside jit, where there are none."""
    return None if isinstance(values, Tracer) else np.asarray(values)


def check_not_negative(name: str, value: Any, remedy: str) -> None:
    """Refuse values that are negative or not finite."""
    seen = _concrete(value)
    if seen is not None and not np.all((seen >= 0) & np.isfinite(seen)):
        raise ValueError(f"{name} must be finite and not negative, got {value}; {remedy}")


def checked_steps(steps: int) -> int:
    """A number of steps that is known before jit."""
    if isinstance(steps, Tracer) or not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"steps must be a whole number of at least 1, known before jit, got {steps}")
    return int(steps)


def checked_images(images: Any) -> Float[Array, "batch *shape"]:
    """Floating-point images with pixels in [0, 1]."""
    images = _array(images)
    if not jnp.issubdtype(images.dtype, jnp.floating):
        raise ValueError(
            f"images must be floating-point with pixels in [0, 1], got {images.dtype}; divide by the largest value"
        )
    if images.ndim < 1 or images.size < 1:
        raise ValueError(f"images must have shape (batch, *shape) with at least one pixel, got {images.shape}")
    seen = _concrete(images)
    if seen is not None:
        low, high = float(seen.min()), float(seen.max())
        if not (low >= 0 and high <= 1):
            raise ValueError(
                f"images must be finite and in [0, 1], got values from {low:g} to {high:g}; "
                "scale the pixels, and normalise inside the logits function"
            )
    return jnp.asarray(images)


def checked_labels(labels: Any, count: int) -> Int[Array, " batch"]:
    """Integer labels, one for each image."""
    labels = _array(labels)
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(f"labels must be integers, the index of each image's class, got {labels.dtype}")
    if labels.shape != (count,):
        raise ValueError(
            f"labels must have shape ({count},), one for each image, got {labels.shape}; of one-hot rows, give argmax"
        )
    return jnp.asarray(labels)


def check_range(labels: Int[Array, " batch"], num_classes: int) -> None:
    """Refuse labels that are no index of a class."""
    seen = _concrete(labels)
    if seen is not None and not np.all((seen >= 0) & (seen < num_classes)):
        raise ValueError(
            f"labels must be from 0 to {num_classes - 1}, got {seen.min()} to {seen.max()}; count from zero"
        )


def num_classes(logits: Callable, images: Float[Array, "batch *shape"]) -> int:
    """Number of logits, of a function that can be attacked."""
    try:
        values = jax.eval_shape(logits, images)
    except jax.errors.JAXTypeError as error:
        raise ValueError(
            "logits must be a function of JAX arrays that can be traced; write it with jax.numpy"
        ) from error
    if not isinstance(values, jax.ShapeDtypeStruct):
        raise ValueError(f"logits must return one array of shape (batch, classes), got {type(values).__name__}")
    if len(values.shape) != 2 or values.shape[0] != len(images) or values.shape[1] < 2:
        raise ValueError(
            f"logits must return shape ({len(images)}, classes) with two classes or more, got {values.shape}"
        )
    if not jnp.issubdtype(values.dtype, jnp.floating):
        raise ValueError(
            f"logits must return floating-point values to differentiate, got {values.dtype}; leave out argmax"
        )
    return values.shape[1]


def checked_values(values: Any) -> Float[Array, "batch classes"]:
    """Finite logits."""
    values = _array(values)
    if values.ndim != 2 or values.shape[0] < 1 or values.shape[1] < 2:
        raise ValueError(
            f"values must be logits of shape (batch, classes) with two classes or more, got {values.shape}"
        )
    seen = _concrete(values)
    if seen is not None and not np.all(np.isfinite(seen)):
        raise ValueError("values must be finite logits, got some that are not; there is no radius for them")
    return jnp.asarray(values)


def checked_lipschitz(lipschitz: Any, num_classes: int) -> Float[Array, "classes classes"]:
    """A constant for each difference of two logits."""
    shape = (num_classes, num_classes)
    if jnp.shape(lipschitz) not in ((), shape):
        raise ValueError(f"lipschitz must be one number or have shape {shape}, got {jnp.shape(lipschitz)}")
    seen = _concrete(lipschitz)
    if seen is not None and not np.all(seen >= 0):
        raise ValueError("lipschitz must not be negative or NaN; give an upper bound on how much the logits change")
    if jnp.shape(lipschitz) == shape:
        return jnp.asarray(lipschitz)
    return jnp.broadcast_to(math.sqrt(2) * jnp.asarray(lipschitz), shape)
