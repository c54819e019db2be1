"""Packed observations: times, values and masks in one array, the input of a latent model.

``(batch, steps, 1 + 2 features)``: the time of a step, its values, and a one for every value that was observed. Values
that were not observed count for nothing. A step without any observed value is padding wherever it stands: it changes no
answer and no gradient.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ctfno_jax.models.inputs import check_real


class Unpacked(NamedTuple):
    """The parts of packed observations.

    Attributes:
      times: of the steps.
      values: zero where nothing was observed.
      mask: one where a value was observed.
      valid: one for a step at which anything was observed.
    """

    times: Float[Array, "batch steps"]
    values: Float[Array, "batch steps features"]
    mask: Float[Array, "batch steps features"]
    valid: Float[Array, "batch steps"]


def unpack(observations: Float[Array, "batch steps inputs"]) -> Unpacked:
    """The parts; ValueError for a shape that cannot be packed observations."""
    check_real("observations", observations)
    if observations.ndim != 3 or observations.shape[-1] < 3 or observations.shape[-1] % 2 == 0:
        raise ValueError(
            "observations must have shape (batch, steps, 1 + 2 features): time, values and mask of every step, got "
            f"{observations.shape}"
        )
    times, values, mask = jnp.split(observations, [1, (observations.shape[-1] + 1) // 2], axis=-1)
    valid = jnp.max(mask, axis=-1)
    # Whatever stands in padding must not reach a product: zero times NaN is NaN.
    values = jnp.where(mask > 0, values, 0)
    return Unpacked(times[..., 0], values, mask, valid)


def pack(
    times: Float[Array, "batch steps"], values: Float[Array, "batch steps features"],
    mask: Float[Array, "batch steps features"],
) -> Float[Array, "batch steps inputs"]:  # fmt: skip
    """The parts in one array."""
    return jnp.concatenate([times[..., None], values, mask], axis=-1)
