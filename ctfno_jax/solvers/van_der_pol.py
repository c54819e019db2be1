"""The Van der Pol oscillator ``x' = y, y' = stiffness (1 - x^2) y - x``, by a stiff method in float64.

With a stiffness of a thousand, x creeps for hundreds of units of time and then jumps within a hundredth of one. The
multistep method of LSODA needs a third of a second for three such jumps at this tolerance, one-step implicit methods,
compiled or not, several times as long.
"""

import numpy as np
from jaxtyping import Float
from scipy import integrate


def solve(
    initial_states: Float[np.ndarray, "batch 2"],
    times: Float[np.ndarray, " time"] | Float[np.ndarray, "batch time"],
    *,
    stiffness: float = 1000.0,
    tolerance: float = 1e-9,
) -> Float[np.ndarray, "batch time 2"]:
    """States at increasing times, those of all samples or of each."""

    def field(t: float, state: np.ndarray) -> list[float]:
        del t
        x, y = state
        return [y, stiffness * (1 - x * x) * y - x]

    def jacobian(t: float, state: np.ndarray) -> list[list[float]]:
        del t
        x, y = state
        return [[0.0, 1.0], [-2 * stiffness * x * y - 1, stiffness * (1 - x * x)]]

    states = np.asarray(initial_states, np.float64)
    times = np.broadcast_to(np.asarray(times, np.float64), (len(states), np.shape(times)[-1]))
    result = np.empty((*times.shape, 2))
    for i, (state, ts) in enumerate(zip(states, times, strict=True)):
        solution = integrate.solve_ivp(
            field, (0.0, ts[-1]), state, method="LSODA", t_eval=ts, jac=jacobian, rtol=tolerance, atol=tolerance * 1e-2
        )
        if not solution.success:
            raise ValueError(f"trajectory {i} from {state} could not be solved up to t={ts[-1]:g}: {solution.message}")
        result[i] = solution.y.T
    return result
