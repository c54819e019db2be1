"""Linear interpolation of partly observed values, against NumPy feature by feature."""

import jax
import numpy as np

from ctfno_jax.ops.interpolation import interpolate


def _case(seed=0, batch=3, steps=7, features=2):
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.uniform(0.1, 1.0, (batch, steps)), axis=1).astype(np.float32)
    values = rng.normal(size=(batch, steps, features)).astype(np.float32)
    mask = (rng.random(values.shape) < 0.6).astype(np.float32)
    mask[:, 2] = 1
    return times, values * mask, mask


def test_every_feature_is_interpolated_between_its_own_observations():
    times, values, mask = _case()
    queries = np.sort(np.random.default_rng(1).uniform(-0.5, 6.0, (3, 20)), axis=1).astype(np.float32)
    queries[:, 5] = times[:, 2]  # an observation itself
    found = jax.jit(interpolate)(times, values, mask, queries)
    for i in range(3):
        for f in range(2):
            seen = mask[i, :, f] > 0
            expected = np.interp(queries[i], times[i, seen], values[i, seen, f])
            np.testing.assert_allclose(found[i, :, f], expected, rtol=0, atol=1e-5)


def test_a_feature_that_was_never_observed_is_zero_and_has_no_gradient():
    times, values, mask = _case()
    mask[1, :, 0] = 0
    queries = np.tile(np.linspace(0, 4, 5, dtype=np.float32), (3, 1))
    total = lambda v: interpolate(times, v, mask, queries).sum()  # noqa: E731
    assert np.all(interpolate(times, values * mask, mask, queries)[1, :, 0] == 0)
    grads = np.asarray(jax.jit(jax.grad(total))(values))
    assert np.all(np.isfinite(grads))
    assert np.all(grads[mask == 0] == 0)
    # Weights of the observations add up to one for every query that has any.
    np.testing.assert_allclose(grads.sum(axis=1), 5 * mask.any(axis=1), rtol=0, atol=1e-5)
