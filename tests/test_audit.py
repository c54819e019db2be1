"""Defects of flows: none where a flow is exact, and the number that is put in where it is not."""

import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax import audit
from ctfno_jax.solvers import heat

# Three samples of two channels on five points; all times below are sums of few powers of two, exact in float32.
U0 = np.random.default_rng(0).normal(size=(3, 5, 2)) + 3.0


def _over_times(values, u0):
    """``(time,)`` as factors of ``(batch, 1, *space, channels)``."""
    return np.asarray(values, np.float64).reshape(1, -1, *[1] * (u0.ndim - 1))


def _decay(u0, times):
    return u0[:, None] * np.exp(-_over_times(times, u0))


def _heat(u0, times):
    u_hat = np.fft.rfft(u0[..., 0], norm="forward")
    return heat.solve(u_hat, np.asarray(times, np.float64), u0.shape[1], 1e-2)[..., None]


def _wrong_by(share):
    """Decay that is too large by a share of each sample, whenever it is asked."""
    return lambda u0, times: _decay(u0, times) * (1 + np.reshape(share, (-1, 1, 1, 1)))


# --- flows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("solve", "channels"), [(_decay, 2), (_heat, 1)])
def test_an_exact_flow_has_no_defect(solve, channels):
    u0 = U0[..., :channels]
    np.testing.assert_allclose(audit.identity_defect(solve, u0), np.zeros(3), atol=1e-14)
    for first, second in ((0.5, 0.75), (2.0, 0.125), (0.0, 1.0), (1.0, 0.0)):
        np.testing.assert_allclose(audit.semigroup_defect(solve, u0, first, second), np.zeros(3), atol=1e-14)


def test_defects_of_a_flow_that_is_wrong_by_a_share_are_that_share():
    """Composed, the share is there twice: (1 + c)^2 against 1 + c."""
    share = np.asarray([0.02, 0.0, -0.3])
    np.testing.assert_allclose(audit.identity_defect(_wrong_by(share), U0), np.abs(share), rtol=1e-13, atol=1e-14)
    defect = audit.semigroup_defect(_wrong_by(share), U0, 0.5, 0.25)
    np.testing.assert_allclose(defect, np.abs(share), rtol=1e-12, atol=1e-14)


def test_a_clock_in_the_equation_is_a_defect_of_the_semigroup_only():
    """exp(-t^2) is the identity at zero; composed, t^2 + s^2 takes the place of (t + s)^2."""
    solve = lambda u0, times: u0[:, None] * np.exp(-_over_times(np.square(times), u0))  # noqa: E731
    np.testing.assert_allclose(audit.identity_defect(solve, U0), np.zeros(3), atol=1e-14)
    np.testing.assert_allclose(audit.semigroup_defect(solve, U0, 0.5, 0.25), np.expm1(2 * 0.5 * 0.25), rtol=1e-12)


def test_the_order_of_the_two_times_is_that_of_the_composition():
    asked = []

    def solve(u0, times):
        asked.append((float(times[0]), float(np.max(u0))))
        return _decay(u0, times)

    audit.semigroup_defect(solve, U0, 0.5, 2.0)
    (first, start), (second, half_way), (both, again) = asked
    assert (first, second, both) == (0.5, 2.0, 2.5)
    assert start == again == U0.max()
    assert half_way == pytest.approx(U0.max() * np.exp(-0.5), rel=1e-12)


def test_an_input_of_more_channels_is_compared_where_there_is_a_solution():
    solve = lambda u0, times: 1.25 * _decay(u0, times)[..., :1]  # noqa: E731
    np.testing.assert_allclose(audit.identity_defect(solve, U0), np.full(3, 0.25), rtol=1e-13)


def test_a_solution_that_is_no_state_cannot_be_composed():
    solve = lambda u0, times: _decay(u0, times)[..., :1]  # noqa: E731
    with pytest.raises(ValueError, match="a solution of 1 channels is no initial state of 2: nothing to compose"):
        audit.semigroup_defect(solve, U0, 0.5, 0.5)


# --- norms --------------------------------------------------------------------------------------------------------


def test_norms_are_of_each_sample_and_the_mean_over_channels():
    reference = np.zeros((2, 4, 2))
    reference[:, :, 0], reference[:, :, 1] = 1.0, [[0.0, 3.0, 4.0, 0.0]] * 2
    difference = np.zeros((2, 4, 2))
    difference[0, 1, 0] = 0.5  # against a norm of two
    difference[1, 0, 1] = 1.0  # against one of five
    np.testing.assert_allclose(audit.relative_norm(difference, reference), [0.25 / 2, 0.2 / 2], rtol=1e-14)


def test_channels_of_different_units_count_alike():
    rng = np.random.default_rng(1)
    difference, reference = rng.normal(size=(2, 3, 7, 5, 2))
    units = np.asarray([1e-6, 1e5])
    np.testing.assert_allclose(
        audit.relative_norm(difference * units, reference * units),
        audit.relative_norm(difference, reference),
        rtol=1e-12,
    )
    np.testing.assert_allclose(audit.relative_norm(-0.4 * reference, reference), np.full(3, 0.4), rtol=1e-13)


def test_nothing_against_nothing_is_nothing():
    np.testing.assert_array_equal(audit.relative_norm(np.zeros((2, 3, 1)), np.zeros((2, 3, 1))), 0.0)


# --- time derivatives ---------------------------------------------------------------------------------------------

TIMES = np.asarray([0.5, 1.25, 2.0], np.float32)


def test_differentiation_gives_the_derivative_of_the_function():
    apply_fn = lambda rate, u0, times: u0[:, None] * jnp.exp(-rate * times)[None, :, None, None]  # noqa: E731
    found = audit.time_derivative(apply_fn, 1.5, jnp.asarray(U0, jnp.float32), TIMES)
    expected = -1.5 * U0[:, None] * np.exp(-1.5 * TIMES.astype(np.float64))[:, None, None]
    assert found.shape == (3, 3, 5, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_every_time_is_differentiated_by_itself():
    apply_fn = lambda _, u0, times: u0[:, None] * (times**2)[None, :, None, None]  # noqa: E731
    found = audit.time_derivative(apply_fn, None, jnp.asarray(U0, jnp.float32), TIMES)
    np.testing.assert_allclose(found, 2 * _over_times(TIMES, U0) * U0[:, None], rtol=1e-5)
    alone = audit.time_derivative(apply_fn, None, jnp.asarray(U0, jnp.float32), TIMES[1:2])
    np.testing.assert_allclose(alone[:, 0], found[:, 1], rtol=1e-6)


def test_differences_come_closer_with_the_square_of_the_step():
    exact = -_decay(U0, TIMES)
    errors = [
        np.abs(audit.finite_difference(_decay, U0, TIMES, step) - exact).max() for step in (2**-3, 2**-4, 2**-5, 2**-6)
    ]
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 4.0, rtol=0.01)
    assert errors[-1] < 1e-4 * np.abs(exact).max()


def test_differences_of_a_square_are_exact():
    solve = lambda u0, times: u0[:, None] * _over_times(times, u0) ** 2  # noqa: E731
    found = audit.finite_difference(solve, U0, TIMES, 0.25)
    np.testing.assert_allclose(found, 2 * _over_times(TIMES, U0) * U0[:, None], rtol=1e-13)


def test_times_that_single_precision_moves_are_no_error():
    """Of a thousandth beside three hundred float32 keeps two digits; what it makes of it is what counts."""
    solve = lambda u0, times: u0[:, None] * _over_times(times, u0)  # noqa: E731
    times, step = np.asarray([300.1, 0.7]), 1e-3
    moved = (np.float32(300.1) + np.float32(step)).astype(np.float64) - (np.float32(300.1) - np.float32(step))
    assert abs(moved / (2 * step) - 1) > 1e-3
    found = audit.finite_difference(solve, U0, times, step)
    np.testing.assert_allclose(found, np.stack([U0, U0], axis=1), rtol=1e-9)


def test_both_ways_to_differentiate_agree():
    apply_fn = lambda rate, u0, times: u0[:, None] / (1 + rate * times)[None, :, None, None]  # noqa: E731
    solve = lambda u0, times: u0[:, None] / (1 + 0.5 * _over_times(times, u0))  # noqa: E731
    exact = audit.time_derivative(apply_fn, 0.5, jnp.asarray(U0, jnp.float32), TIMES)
    np.testing.assert_allclose(audit.finite_difference(solve, U0, TIMES, 2**-7), exact, rtol=1e-4)
