"""Random noise, which does not look at the classifier."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ctfno_jax.attacks import arguments
from ctfno_jax.types import Key


def gaussian_noise(
    images: Float[Array, "batch *shape"], key: Key, std: float, *, clip: bool = False
) -> Float[Array, "batch *shape"]:
    """Images with independent normal noise on every pixel.

    Args:
      images: ``(batch, *shape)``, pixels in [0, 1].
      key: of the noise.
      std: its standard deviation, in units of the pixels.
      clip: whether the result is clipped to [0, 1]. By default it is not, as is common: clipping weakens the noise on
        pixels near 0 or 1.
    """
    images = arguments.checked_images(images)
    arguments.check_not_negative("std", std, "give the standard deviation in units of pixels in [0, 1]")
    noisy = images + jnp.asarray(std, images.dtype) * jax.random.normal(key, images.shape, images.dtype)
    return jnp.clip(noisy, 0, 1) if clip else noisy
