"""Many query times in bounded memory: evaluated in chunks, one after the other, and recomputed in the backward pass."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ctfno_jax.models.inputs import padded_grid

# An activation of one chunk of query times may take this many bytes; a network of depth two with its backward pass
# holds about eight of them. Below the first limit nothing is chunked.
_UNCHUNKED_BYTES = 400 * 2**20
_CHUNK_BYTES = 128 * 2**20


def automatic_chunk(
    shape: tuple[int, ...], num_times: int, width: int, padding: float | tuple[float, ...], itemsize: int = 4
) -> int:
    """Number of query times per chunk such that an activation stays within bounds; all of them if they fit."""
    points = math.prod(padded_grid(shape[1:-1], padding))
    bytes_per_time = itemsize * shape[0] * points * width
    if num_times * bytes_per_time <= _UNCHUNKED_BYTES:
        return num_times
    return max(1, _CHUNK_BYTES // bytes_per_time)


def over_chunks(at_times: Callable[[Array], Array], times: Array, chunk: int, num_space: int) -> Array:
    """``at_times`` over chunks of the time axis; the result has time behind the space axes."""
    num_times = times.shape[-1]
    if num_times <= chunk:
        return at_times(times)
    num_chunks = math.ceil(num_times / chunk)
    missing = num_chunks * chunk - num_times
    padded = jnp.pad(times, [*[(0, 0)] * (times.ndim - 1), (0, missing)], mode="edge")
    chunks = jnp.moveaxis(padded.reshape(*times.shape[:-1], num_chunks, chunk), -2, 0)
    u = jnp.moveaxis(jax.lax.map(jax.checkpoint(at_times), chunks), 0, num_space)
    u = u.reshape(*u.shape[:num_space], num_chunks * chunk, *u.shape[num_space + 2 :])
    return jax.lax.slice_in_dim(u, 0, num_times, axis=num_space)
