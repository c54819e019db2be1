"""Memory stays bounded however many times are asked for."""

import subprocess
import sys

import pytest

_PROGRAM = """
import resource
import jax, jax.numpy as jnp
from ctfno_jax import CTFNO

model = CTFNO(coordinates=False, time_scale=20.0)
u0 = jax.random.normal(jax.random.key(1), (20, 1024, 1))
times = jnp.linspace(0.0, 2.5, 200)
params = model.init(jax.random.key(0), u0[:1], times[:1])
loss = lambda p: jnp.mean(model.apply(p, u0, times) ** 2)
value, grads = jax.block_until_ready(jax.jit(jax.value_and_grad(loss))(params))
assert jnp.isfinite(value) and all(bool(jnp.isfinite(g).all()) for g in jax.tree.leaves(grads))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
def test_forward_and_backward_at_200_times_on_1024_points_stay_under_four_gib():
    run = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 4 * 2**30
