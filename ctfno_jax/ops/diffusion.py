"""Diffusion on a periodic domain of length one, ``u_t = diffusivity u_xx``: the exact solution in Fourier space."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def propagate(
    u0: Float[Array, "batch x channels"], times: Float[Array, " time"] | Float[Array, "batch time"], diffusivity: float
) -> Float[Array, "batch time x channels"]:
    """The solution at times that all samples share, or at those of each. It has no larger norm than ``u0`` has."""
    num_points = u0.shape[1]
    k = 2 * jnp.pi * jnp.arange(num_points // 2 + 1)
    decay = jnp.exp(-diffusivity * times[..., None] * k**2)  # shared times broadcast over the samples
    spectrum = jnp.fft.rfft(u0, axis=1)[:, None] * decay[..., None]
    return jnp.fft.irfft(spectrum, n=num_points, axis=2)
