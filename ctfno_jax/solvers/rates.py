"""Time derivatives of states under the known equations.

Periodic fields are differentiated by their Fourier series, which is exact for what a grid can hold; diffusion-sorption
by the second differences of its solver. States are ``(*lead, x, channels)``.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from ctfno_jax.solvers import diffusion_sorption
from ctfno_jax.solvers.compressible_navier_stokes import VISCOUS_LAWS

State = Float[np.ndarray, "*lead x channels"]


def derivative(u: State, length: float, order: int = 1) -> State:
    """Along x, of fields of that period."""
    num_points = u.shape[-2]
    k = 2 * np.pi / length * np.arange(num_points // 2 + 1)
    factor = (1j * k) ** order
    if num_points % 2 == 0 and order % 2:
        factor[-1] = 0  # the wave of the highest frequency, seen at its crests only, has slope zero there
    u_hat = np.fft.rfft(np.asarray(u, np.float64), axis=-2)
    return np.fft.irfft(factor[:, None] * u_hat, n=num_points, axis=-2)


def heat(u: State, *, viscosity: float = 1e-3) -> State:
    """``viscosity u_xx``."""
    return viscosity * derivative(u, 1.0, 2)


def burgers(u: State, *, viscosity: float = 1e-3) -> State:
    """``viscosity u_xx - u u_x``."""
    return viscosity * derivative(u, 1.0, 2) - u * derivative(u, 1.0)


def reaction(u: State, *, rate: float = 6.0) -> State:
    """``rate u (1 - u)``."""
    u = np.asarray(u, np.float64)
    return rate * u * (1 - u)


def diffusion_sorption_rate(u: State) -> State:
    """``D u_xx / R(u)`` as the solver discretises it, with the values outside of the ends that it uses."""
    return diffusion_sorption.rate(np.asarray(u, np.float64)[..., 0])[..., None]


def navier_stokes(
    u: State, *, eta: float = 0.1, zeta: float = 0.1, viscous_law: str = "kinematic", gamma: float = 5 / 3
) -> State:
    """Of density, pressure and velocity, on a period of two."""
    if viscous_law not in VISCOUS_LAWS:
        raise ValueError(f"viscous_law must be one of {', '.join(VISCOUS_LAWS)}, got {viscous_law!r}")
    u = np.asarray(u, np.float64)
    density, pressure, velocity = (u[..., i : i + 1] for i in range(3))
    slope = lambda field: derivative(field, 2.0)  # noqa: E731
    v_x = slope(velocity)
    stress = (4 / 3 * eta + zeta) * v_x * (density if viscous_law == "kinematic" else 1.0)
    # The work of friction heats the gas; there is no conduction.
    pressure_rate = -velocity * slope(pressure) - gamma * pressure * v_x + (gamma - 1) * stress * v_x
    velocity_rate = -velocity * v_x + (slope(stress) - slope(pressure)) / density
    return np.concatenate([-slope(density * velocity), pressure_rate, velocity_rate], axis=-1)


RATES: dict[str, Callable[..., State]] = {
    "heat": heat,
    "burgers": burgers,
    "reaction": reaction,
    "diffusion_sorption": diffusion_sorption_rate,
    "navier_stokes": navier_stokes,
}
