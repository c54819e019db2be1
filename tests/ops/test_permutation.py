import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.ops.permutation import permute


def _all(size, key=0):
    return np.asarray(jax.jit(permute, static_argnums=2)(jax.random.key(key), jnp.arange(size), size))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 100, 257, 7200])
def test_every_number_is_the_image_of_one(size):
    np.testing.assert_array_equal(np.sort(_all(size)), np.arange(size))


def test_some_images_are_those_of_the_whole():
    index = jnp.asarray([41, 3, 3, 99, 0])
    np.testing.assert_array_equal(permute(jax.random.key(5), index, 100), _all(100, key=5)[np.asarray(index)])


def test_the_largest_size_and_no_larger_one():
    index = jnp.asarray([0, 2**31 - 1, 12345])
    images = permute(jax.random.key(1), index, 2**31)
    assert images.dtype == index.dtype
    assert len(np.unique(images)) == 3
    assert np.all(np.asarray(images) >= 0)
    for size in (0, 2**31 + 1):
        with pytest.raises(ValueError, match=rf"size must be from 1 to 2\*\*31, got {size}"):
            permute(jax.random.key(1), index, size)


def test_each_place_holds_each_number_equally_often():
    """Chi-square of 4,000 keys: 30 places and as many numbers, five standard deviations."""
    size, keys = 30, jax.random.split(jax.random.key(2), 4000)
    images = np.asarray(jax.jit(jax.vmap(lambda key: permute(key, jnp.arange(size), size)))(keys))
    counts = np.stack([np.bincount(images[:, place], minlength=size) for place in range(size)])
    expected = len(keys) / size
    statistic, freedom = np.sum((counts - expected) ** 2) / expected, (size - 1) ** 2
    assert abs(statistic - freedom) < 5 * np.sqrt(2 * freedom)


def test_neighbours_go_to_unrelated_places():
    """The mean distance of the images of neighbours is a third of the range, as of two random numbers."""
    images = _all(5000, key=3)
    distance = np.abs(np.diff(images)) / 5000
    assert np.mean(distance) == pytest.approx(1 / 3, abs=5 * np.std(distance) / np.sqrt(len(distance)))


def test_vmap_over_keys_is_a_loop_over_keys():
    keys, index = jax.random.split(jax.random.key(4), 3), jnp.arange(11)
    together = jax.vmap(lambda key: permute(key, index, 11))(keys)
    for key, images in zip(keys, together, strict=True):
        np.testing.assert_array_equal(images, permute(key, index, 11))
