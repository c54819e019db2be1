"""CTFNO as a direct transcription of its formula, to time against: u0 repeated over times, FFT, complex einsum.

It reads the parameters of a :class:`ctfno_jax.CTFNO` of one space dimension with a linear lifting and head, without
padding or bound, and computes the same function.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ctfno_jax.models.ctfno import CTFNO
from ctfno_jax.ops import time_features
from ctfno_jax.types import Params


def _time_network(params: Params, features: Array) -> Array:
    for i in range(3):
        features = features @ params[f"weight_{i}"] + params[f"bias_{i}"]
        features = jax.nn.silu(features) if i < 2 else features
    return features


def apply(
    model: CTFNO, params: Params, u0: Float[Array, "batch x channels"], times: Float[Array, " time"]
) -> Float[Array, "batch time x channels"]:
    """Equals ``model.apply(params, u0, times)``."""
    p = params["params"]
    batch, num_points, _ = u0.shape
    v = jnp.repeat(u0, len(times), axis=0)
    if model.coordinates:
        x = jnp.arange(num_points, dtype=u0.dtype) / num_points
        v = jnp.concatenate([v, jnp.broadcast_to(x[None, :, None], (*v.shape[:2], 1))], axis=-1)
    v = v @ p["lifting"]["weight"] + p["lifting"]["bias"]
    features = jax.vmap(lambda t: time_features.sinusoidal_features(t, model.time_features, model.time_scale))(times)
    kernel_features = _time_network(p["kernel_time_network"], features)
    pointwise_features = _time_network(p["pointwise_time_network"], features)
    (modes,) = model.modes
    for i in range(model.depth):
        layer = p[f"layer_{i}"]
        modulation = layer["modulation_re"] + 1j * layer["modulation_im"]
        slices = kernel_features.reshape(len(times), model.heads, -1)
        phi = jnp.einsum("hkc,thc->tkh", modulation, slices)
        phi = jnp.repeat(phi, model.width // model.heads, axis=-1)
        phi = jnp.tile(phi, (batch, 1, 1))
        scale, shift = jnp.split(pointwise_features @ layer["time_map"] + layer["time_map_bias"], 2, axis=-1)
        scale, shift = (jnp.tile(x, (batch, 1))[:, None] for x in (scale, shift))
        v_hat = jnp.fft.rfft(v, axis=1)[:, :modes]
        mixed = phi * jnp.einsum("bki,kio->bko", v_hat, layer["kernel_re"] + 1j * layer["kernel_im"])
        v = jax.nn.gelu((v * scale) @ layer["pointwise"] + shift + jnp.fft.irfft(mixed, n=num_points, axis=1))
    u = v @ p["projection"]["weight"] + p["projection"]["bias"]
    return u.reshape(batch, len(times), num_points, -1)
