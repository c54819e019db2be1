"""A pseudo-random permutation whose cost is that of the images asked for, not of the whole range."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32

from ctfno_jax.types import Key

_ROUNDS = 6


def permute(key: Key, index: Int[Array, " some"], size: int) -> Int[Array, " some"]:
    """Images of ``index`` under a permutation of ``range(size)`` that the key chooses.

    ``jax.random.permutation`` sorts as many random numbers as there are samples, at every training step. A Feistel
    network permutes the next power of four; an image beyond ``size`` is mapped again until it lies below.

    Args:
      key: chooses the permutation.
      index: numbers from 0 to ``size - 1``.
      size: of the permuted range, at most 2**31.

    Reference:
      Black and Rogaway, Ciphers with Arbitrary Finite Domains (2002): the generalised Feistel cipher and cycle walking.
    """
    if not 1 <= size <= 2**31:
        raise ValueError(f"size must be from 1 to 2**31, got {size}")
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    keys, end = jax.random.bits(key, (_ROUNDS,)), jnp.uint32(size)

    def again(image: UInt32[Array, " some"]) -> UInt32[Array, " some"]:
        return jnp.where(image < end, image, _feistel(keys, image, half))

    image = _feistel(keys, index.astype(jnp.uint32), half)
    image = jax.lax.while_loop(lambda image: jnp.any(image >= end), again, image)
    return image.astype(index.dtype)


def _feistel(keys: UInt32[Array, " rounds"], value: UInt32[Array, " some"], half: int) -> UInt32[Array, " some"]:
    """A permutation of the numbers of twice ``half`` bits: each round changes one half by a function of the other."""
    mask = jnp.uint32((1 << half) - 1)
    left, right = value >> half, value & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << half) | right


def _mix(value: UInt32[Array, " some"]) -> UInt32[Array, " some"]:
    """A hash of 32 bits, each of which depends on all bits of the value (the finaliser of MurmurHash3)."""
    value = (value ^ (value >> 16)) * jnp.uint32(0x85EBCA6B)
    value = (value ^ (value >> 13)) * jnp.uint32(0xC2B2AE35)
    return value ^ (value >> 16)
