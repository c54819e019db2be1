"""The mean loss of a batch whose gradient is taken part by part.

A gradient keeps what every layer made of every sample. The layers of a few samples fit into the cache of a CPU, or into
the memory of a small GPU, where those of the whole batch do not.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ctfno_jax.types import Params


def in_parts(loss: Callable[[Params, Any], Float[Array, ""]], size: int) -> Callable[[Params, Any], Float[Array, ""]]:
    """The same loss, differentiable by the parameters only.

    Args:
      loss: of parameters and a batch; a mean over the samples, which are the first axis of every array of the batch.
      size: samples of a part; must divide those of the batch.
    """

    def parts(batch: Any) -> Any:
        count = jax.tree.leaves(batch)[0].shape[0]
        if count % size:
            raise ValueError(f"a batch of {count} samples cannot be divided into parts of {size}")
        return jax.tree.map(lambda array: array.reshape(count // size, size, *array.shape[1:]), batch)

    def total(of_part: Callable[[Any], Any], batch: Any) -> Any:
        """The mean over the parts of whatever is computed of each."""
        divided = parts(batch)
        count = jax.tree.leaves(divided)[0].shape[0]
        zero = jax.tree.map(jnp.zeros_like, jax.eval_shape(of_part, jax.tree.map(lambda array: array[0], divided)))
        add = lambda before, part: (jax.tree.map(jnp.add, before, of_part(part)), None)  # noqa: E731
        summed, _ = jax.lax.scan(add, zero, divided)
        return jax.tree.map(lambda leaf: leaf / count, summed)

    @jax.custom_vjp
    def mean(params: Params, batch: Any) -> Float[Array, ""]:
        return total(lambda part: loss(params, part), batch)

    def forward(params: Params, batch: Any) -> tuple[Float[Array, ""], Params]:
        return total(lambda part: jax.value_and_grad(loss)(params, part), batch)

    def backward(gradient: Params, factor: Array) -> tuple[Params, None]:
        return jax.tree.map(lambda leaf: factor * leaf, gradient), None

    mean.defvjp(forward, backward)
    return mean
