"""The interface of a transform, the composition of transforms, and their JSON form.

A network between ``encode`` and ``decode`` is an operator on physical fields:

    u(t) = decode(network(encode(u0), encode_times(t)), grid of u0)

All methods are pure JAX functions: they can be jitted, vmapped, differentiated and exported. Transforms are frozen and
hashable, so they may be static arguments of ``jax.jit``.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from ctfno_jax.transforms.masked_normalization import MaskedNormalization
from ctfno_jax.transforms.normalization import Normalization
from ctfno_jax.transforms.odd_extension import OddExtension
from ctfno_jax.transforms.resampling import Resampling


@runtime_checkable
class Transform(Protocol):
    """Maps between physical fields and the fields that a network reads and returns.

    Both directions are affine, and the same for all samples.
    """

    def encode(self, u0: ArrayLike) -> Float[Array, "batch *points inputs"]:
        """Physical initial states ``(batch, *space, channels)`` as the network reads them."""
        ...

    def encode_times(self, times: ArrayLike) -> Array:
        """Physical query times as the network reads them."""
        ...

    def encode_solution(self, u: ArrayLike) -> Float[Array, "batch time *points outputs"]:
        """Physical solutions ``(batch, time, *space, channels)`` as the network is trained to return them."""
        ...

    def decode(self, u: ArrayLike, grid: tuple[int, ...]) -> Float[Array, "batch time *space channels"]:
        """The network's output as physical fields on ``grid``, the grid of the initial states."""
        ...

    def encoded_grid(self, grid: tuple[int, ...]) -> tuple[int, ...]:
        """Grid on which the network reads states that are given on ``grid``."""
        ...

    def gain(self, grid: tuple[int, ...]) -> float:
        """Operator norm of ``encode`` on differences times that of ``decode``, for states on ``grid``.

        This factor times an L2 Lipschitz constant of the network is one of the operator on physical fields.
        """
        ...

    def to_dict(self) -> dict[str, Any]:
        """JSON values from which :func:`from_dict` rebuilds the transform."""
        ...


@dataclasses.dataclass(frozen=True)
class Chain:
    """Composition: encodes in the given order, decodes in reverse order. ``Chain(())`` is the identity."""

    transforms: tuple[Transform, ...] = ()

    def encode(self, u0: ArrayLike) -> Array:
        for transform in self.transforms:
            u0 = transform.encode(u0)
        return jnp.asarray(u0)

    def encode_times(self, times: ArrayLike) -> Array:
        for transform in self.transforms:
            times = transform.encode_times(times)
        return jnp.asarray(times)

    def encode_solution(self, u: ArrayLike) -> Array:
        for transform in self.transforms:
            u = transform.encode_solution(u)
        return jnp.asarray(u)

    def decode(self, u: ArrayLike, grid: tuple[int, ...]) -> Array:
        u = jnp.asarray(u)
        for transform, own_grid in reversed(list(zip(self.transforms, self._grids(grid), strict=False))):
            u = transform.decode(u, own_grid)
        return u

    def encoded_grid(self, grid: tuple[int, ...]) -> tuple[int, ...]:
        return self._grids(grid)[-1]

    def gain(self, grid: tuple[int, ...]) -> float:
        gain = 1.0
        for transform, own_grid in zip(self.transforms, self._grids(grid), strict=False):
            gain *= transform.gain(own_grid)
        return gain

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "chain", "transforms": [transform.to_dict() for transform in self.transforms]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Chain":
        return cls(tuple(from_dict(inner) for inner in values["transforms"]))

    def _grids(self, grid: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The grid before each transform, and the one after the last."""
        grids = [tuple(grid)]
        for transform in self.transforms:
            grids.append(tuple(transform.encoded_grid(grids[-1])))
        return grids


KINDS: dict[str, Any] = {
    "chain": Chain, "normalization": Normalization, "odd_extension": OddExtension,
    "resampling": Resampling, "masked_normalization": MaskedNormalization,
}  # fmt: skip


def from_dict(values: Mapping[str, Any]) -> Transform:
    """The transform that ``to_dict`` described."""
    kind = values.get("kind")
    if kind not in KINDS:
        raise ValueError(f"unknown transform {kind!r}; known are {', '.join(KINDS)}")
    return KINDS[kind].from_dict({name: value for name, value in values.items() if name != "kind"})
