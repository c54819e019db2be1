"""The spiral ``u' = A tanh(u)`` with a damped rotation A, by an explicit method of order eight in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

MATRIX = ((-1 / 8, 1.0), (-1.0, -1 / 8))


def solve(
    initial_states: Float[np.ndarray, "batch 2"],
    times: Float[np.ndarray, " time"] | Float[np.ndarray, "batch time"],
    *,
    tolerance: float = 1e-10,
) -> Float[np.ndarray, "batch time 2"]:
    """States at increasing times, those of all samples or of each."""
    with jax.enable_x64(True):
        states, ts = jnp.asarray(initial_states, jnp.float64), jnp.asarray(times, jnp.float64)
        integrate = functools.partial(_integrate, tolerance=tolerance)
        if ts.ndim == 1:
            # All as one system: its steps suit the hardest of them, and there is but one choice of steps to make.
            return np.asarray(jnp.moveaxis(jax.jit(integrate)(states, ts), 0, 1))
        return np.asarray(jax.jit(jax.vmap(integrate))(states, ts))


def _integrate(state: Float[Array, "*batch 2"], ts: Float[Array, " time"], tolerance: float) -> Array:
    import diffrax  # here, because it takes a second to import

    def field(t, u, args):
        del t, args
        return jnp.tanh(u) @ jnp.asarray(MATRIX).T

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field), diffrax.Dopri8(), t0=0.0, t1=ts[-1], dt0=1e-2, y0=state, saveat=diffrax.SaveAt(ts=ts),
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance), max_steps=100_000,
    )  # fmt: skip
    assert solution.ys is not None
    return solution.ys
