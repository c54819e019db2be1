"""Aligned fields: one place for all translates of a field, and back."""

import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.data import batching
from ctfno_jax.data.alignment import Aligned
from ctfno_jax.data.fields import Trajectories
from ctfno_jax.data.frames import FlowFrame

TIMES = np.array([0.1, 0.4, 0.5])


def _fields(num_points: int, channels: int = 1) -> np.ndarray:
    """Random fields with a first wave that cannot be overlooked."""
    rng = np.random.default_rng(0)
    x = 2 * np.pi * np.arange(num_points) / num_points
    noise = rng.normal(size=(4, num_points, channels))
    return 2 * np.cos(x[None, :, None] - rng.uniform(0, 2 * np.pi, (4, 1, 1))) + 0.3 * noise


@pytest.mark.parametrize("num_points", [16, 17])
@pytest.mark.parametrize("crest", [0, 5, 15])
def test_the_crest_of_the_first_wave_comes_to_the_origin(num_points, crest):
    x = np.arange(num_points)
    wave = np.cos(2 * np.pi * (x - crest) / num_points) + 0.1 * np.cos(4 * np.pi * x / num_points)
    placement = Aligned().place(wave[None, :, None])
    np.testing.assert_array_equal(placement.cells, [crest])
    np.testing.assert_array_equal(placement.state[0, :, 0], np.roll(wave, -crest))


def test_the_first_channel_decides_and_all_channels_move():
    u0 = _fields(12, channels=2)
    placement = Aligned().place(u0)
    np.testing.assert_array_equal(placement.cells, Aligned().place(u0[..., :1]).cells)
    for state, field, cells in zip(placement.state, u0, placement.cells, strict=True):
        np.testing.assert_array_equal(state, np.roll(field, -cells, axis=0))


@pytest.mark.parametrize("num_points", [16, 17])
def test_translates_of_a_field_are_one_field_inside(num_points):
    u0 = _fields(num_points)
    moved = np.stack([np.roll(field, by, axis=0) for field, by in zip(u0, (3, 0, 7, 11), strict=True)])
    np.testing.assert_array_equal(Aligned().place(moved).state, Aligned().place(u0).state)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_reflected_field_is_the_reflection_inside(sign):
    """About the origin, which is where point 0 stays: reflections may still be used to make more data."""
    frame = Aligned(odd=sign < 0)
    reflect = lambda u: np.asarray(batching.reflected(jnp.asarray(u), 1, (sign,)))  # noqa: E731
    u0 = _fields(32).astype(np.float32)
    inside = frame.place(u0).state
    np.testing.assert_array_equal(frame.place(reflect(u0)).state, reflect(inside))
    assert not frame.place(reflect(inside)).cells.any()  # what is aligned stays where it is


@pytest.mark.parametrize("shape", [(2, 2, 1), (2, 8, 8, 1)])
def test_what_has_no_first_wave_is_refused(shape):
    with pytest.raises(ValueError, match=r"states must have shape \(batch, x, channels\) with three points or more"):
        Aligned().place(np.ones(shape))


def test_the_first_wave_of_an_odd_channel_becomes_a_sine():
    x = 2 * np.pi * np.arange(16) / 16
    state = Aligned(odd=True).place(np.sin(x - x[5])[None, :, None]).state
    np.testing.assert_allclose(state[0, :, 0], np.sin(x), atol=1e-12)


def test_leaving_undoes_entering():
    u0 = _fields(16, channels=2).astype(np.float32)
    u = np.stack([u0, u0 + 1, u0[:, ::-1]], axis=1)
    frame = Aligned()
    inside = frame.enter(Trajectories(u0, TIMES, u))
    placement = frame.place(u0)
    np.testing.assert_array_equal(inside.u0, placement.state)
    np.testing.assert_array_equal(inside.u[:, 0], inside.u0)  # solutions move with their initial states
    np.testing.assert_array_equal(frame.enter_times(inside.times, placement), TIMES)
    np.testing.assert_array_equal(frame.leave(inside.u, TIMES, placement), u)
    assert inside.u.dtype == np.float32


def test_an_error_is_worth_what_it_is_in_deviations():
    placement = Aligned().place(_fields(8))
    np.testing.assert_array_equal(Aligned().worth(placement, np.array([2.0, 4.0])), [[0.5, 0.25]] * 4)


def _flows() -> Trajectories:
    """Three smooth flows, and what they might be later; density, pressure and velocity."""
    x = 2 * np.pi * np.arange(64) / 64
    wave = lambda k, shift: np.stack([np.cos(k * (x - s)) for s in shift])  # noqa: E731
    fields = [2 + 0.5 * wave(1, (1, 3, 5)), 5 + wave(1, (2, 0, 1)), 0.3 * wave(2, (0, 1, 2))]
    u0 = np.stack(fields, axis=-1)
    u = np.stack([u0, np.roll(u0, 3, axis=1), u0 * 1.01], axis=1)
    return Trajectories(u0, TIMES, u)


def test_flows_are_aligned_on_labels_of_their_particles():
    flows, inner = _flows(), FlowFrame("particles", 2.0)
    frame = Aligned(inner)
    inside, unaligned = frame.enter(flows), inner.enter(flows)
    placement = frame.place(flows.u0)
    assert len(set(placement.cells)) == 3
    for i, cells in enumerate(placement.cells):
        np.testing.assert_array_equal(inside.u0[i], np.roll(unaligned.u0[i], -cells, axis=0))
        np.testing.assert_array_equal(inside.u[i], np.roll(unaligned.u[i], -cells, axis=1))
    released = inner.leave(unaligned.u, TIMES, placement.inner)
    np.testing.assert_array_equal(frame.leave(inside.u, TIMES, placement), released)
    np.testing.assert_array_equal(frame.enter_times(TIMES, placement), TIMES)
    deviation = np.array([0.3, 2.0, 0.7])
    np.testing.assert_array_equal(frame.worth(placement, deviation), inner.worth(placement.inner, deviation))
