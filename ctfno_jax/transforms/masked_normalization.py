"""Scaling of packed observations: values by feature, times by one unit; masks stay as they are."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float


@dataclasses.dataclass(frozen=True)
class MaskedNormalization:
    """Between real units and those of a latent model.

    Attributes:
      offset: of every feature; real value = value * scale + offset.
      scale: of every feature.
      time_unit: real time = time * time_unit + time_offset.
      time_offset: the real time that is zero to the network.
      decodes: False if the network answers with scores of classes, which have no units.
    """

    offset: tuple[float, ...]
    scale: tuple[float, ...]
    time_unit: float = 1.0
    time_offset: float = 0.0
    decodes: bool = True

    def encode(self, u0: ArrayLike) -> Float[Array, "batch steps inputs"]:
        """Packed observations (see :mod:`ctfno_jax.models.packing`) as the network reads them."""
        u0 = jnp.asarray(u0)
        times, values, mask = jnp.split(u0, [1, 1 + len(self.scale)], axis=-1)
        values = jnp.where(mask > 0, self._scaled(values), 0)
        return jnp.concatenate([self.encode_times(times), values, mask], axis=-1)

    def encode_times(self, times: ArrayLike) -> Array:
        return (jnp.asarray(times) - self.time_offset) / self.time_unit

    def encode_solution(self, u: ArrayLike) -> Float[Array, "batch time features"]:
        return self._scaled(jnp.asarray(u)) if self.decodes else jnp.asarray(u)

    def decode(self, u: ArrayLike, grid: tuple[int, ...]) -> Float[Array, "batch time features"]:
        del grid
        u = jnp.asarray(u)
        return u * jnp.asarray(self.scale, u.dtype) + jnp.asarray(self.offset, u.dtype) if self.decodes else u

    def encoded_grid(self, grid: tuple[int, ...]) -> tuple[int, ...]:
        return grid

    def gain(self, grid: tuple[int, ...]) -> float:
        """Largest over smallest scale."""
        del grid
        return max(self.scale) / min(self.scale) if self.decodes else 1 / min(self.scale)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "masked_normalization", "offset": list(self.offset), "scale": list(self.scale),
            "time_unit": self.time_unit, "time_offset": self.time_offset, "decodes": self.decodes,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "MaskedNormalization":
        clock = (values["time_unit"], values["time_offset"])
        return cls(tuple(values["offset"]), tuple(values["scale"]), *clock, values["decodes"])

    def _scaled(self, values: Array) -> Array:
        return (values - jnp.asarray(self.offset, values.dtype)) / jnp.asarray(self.scale, values.dtype)
