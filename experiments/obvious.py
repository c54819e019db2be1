"""Direct transcriptions of the formulas of CTFNO and of the Fourier classifier, with FFTs and complex einsums.

They compute the same functions from the same parameters, and are there to be timed against. :func:`apply` is a
:class:`ctfno_jax.CTFNO` of one space dimension with a linear lifting and head, without padding or bound;
:func:`classify` is a classifier without bound.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ctfno_jax.models.classifiers import FNOClassifier
from ctfno_jax.models.ctfno import CTFNO
from ctfno_jax.models.inputs import padded_grid
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


def classify(
    model: FNOClassifier, params: Params, images: Float[Array, "batch height width channels"]
) -> Float[Array, "batch classes"]:
    """Equals ``model.apply(params, images)``."""
    p = params["params"]
    _, height, width, _ = images.shape
    v = images
    if model.coordinates:
        axes = [jnp.arange(n, dtype=images.dtype) / n for n in (height, width)]
        mesh = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1)
        v = jnp.concatenate([v, jnp.broadcast_to(mesh, (*v.shape[:-1], 2))], axis=-1)
    v = v @ p["lifting"]["weight"] + p["lifting"]["bias"]
    grid = padded_grid((height, width), model.padding)
    v = jax.nn.gelu(jnp.pad(v, ((0, 0), (0, grid[0] - height), (0, grid[1] - width), (0, 0))))
    first, last = model.modes
    rows = jnp.r_[0:first, grid[0] - first : grid[0]]

    def filtered(v: Array, mix: Callable[[Array], Array]) -> Array:
        """``IFFT(mix(FFT(v)))`` with all frequencies zero that are not retained."""
        v_hat = jnp.fft.rfft2(v, axes=(1, 2))
        mixed = mix(v_hat[:, rows, :last])
        full = jnp.zeros((*v_hat.shape[:-1], mixed.shape[-1]), v_hat.dtype).at[:, rows, :last].set(mixed)
        return jnp.fft.irfft2(full, s=grid, axes=(1, 2))

    def pair(name: str) -> Array:
        return p[f"{name}_re"] + 1j * p[f"{name}_im"]

    v = filtered(v, lambda v_hat: v_hat @ pair("low_pass"))
    for i in range(model.depth):
        blocks, channel_map = pair(f"layer_{i}_kernel"), pair(f"layer_{i}_channel_map")

        def mix(v_hat: Array, blocks: Array = blocks, channel_map: Array = channel_map) -> Array:
            cut = v_hat.reshape(*v_hat.shape[:-1], model.num_blocks, -1)
            return jnp.einsum("bxygi,xygio->bxygo", cut, blocks).reshape(v_hat.shape) + v_hat @ channel_map

        v = jax.nn.gelu(filtered(v, mix) + v @ p[f"layer_{i}_pointwise"] + p[f"layer_{i}_bias"])
    v = v[:, :height, :width]
    return jnp.mean(v, axis=(1, 2)) @ p["head"]["weight"] + p["head"]["bias"]
