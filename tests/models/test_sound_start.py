"""CTFNO that starts as sound: what it adds to is the solution of weak waves, and what it refuses."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import small_ctfno
from helpers.small_ctfno import ATOL, init, run

from ctfno_jax import certify
from ctfno_jax.ops import sound

UNIT = 0.05
SOUND = dict(out_channels=3, coordinates=False, start="sound", rise_time=0.1, viscosity_unit=UNIT)


def _state() -> np.ndarray:
    """Entropy, pressure, velocity, a constant field and a viscosity: five channels of which three are solved for."""
    u0 = small_ctfno.state(4, 10, 5)
    u0[..., 4] = np.array([0.5, 1.0, 2.0, 0.1], np.float32)[:, None]
    return u0


def test_at_time_zero_the_solution_is_the_state():
    u0, model = _state(), small_ctfno.model_of(**SOUND)
    u = run(model, init(model, u0), u0, np.zeros(1, np.float32))
    np.testing.assert_allclose(u[:, 0], u0[..., :3], atol=ATOL)


@pytest.mark.parametrize("shared", [True, False])
def test_the_network_adds_to_sound_of_its_own_viscosity(shared):
    u0, model = _state(), small_ctfno.model_of(**SOUND)
    variables = init(model, u0)
    times = np.array([0.3, 1.1], np.float32)
    each = np.tile(times, (4, 1)) if shared else np.linspace(0.1, 1.2, 8, dtype=np.float32).reshape(4, 2)
    added = run(model.at_once(), variables, u0, each)
    waves = sound.propagate(jnp.asarray(u0[..., 1:3]), jnp.asarray(each), UNIT * u0[:, 0, 4])
    rise = (each / (each + 0.1))[..., None, None]
    u = run(model, variables, u0, times if shared else each)
    np.testing.assert_allclose(u[..., 1:], waves + rise * added[..., 1:], atol=ATOL)
    np.testing.assert_allclose(u[..., 0], u0[:, None, :, 0] + rise[..., 0] * added[..., 0], atol=ATOL)


def test_steps_of_a_horizon_start_from_where_sound_has_got_to():
    u0, model = _state(), small_ctfno.model_of(**SOUND, horizon=0.4, max_steps=5)
    variables = init(model, u0)
    one = model.clone(horizon=None, max_steps=16)
    first = run(one, variables, u0, np.array([0.4], np.float32))[:, 0]
    later = np.concatenate([first, u0[..., 3:]], axis=-1)
    expected = run(one, variables, later, np.array([0.25], np.float32))
    np.testing.assert_allclose(run(model, variables, u0, np.array([0.65], np.float32)), expected, atol=10 * ATOL)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"viscosity_unit": None}, "start='sound' needs a viscosity_unit"),
        ({"rise_time": None}, "start='sound' needs a rise_time"),
        ({"viscosity_unit": -1.0}, r"viscosity_unit must be positive and finite, or None, got -1\.0"),
        ({"start": "state"}, "start='state' does not read viscosity_unit; leave it out"),
        ({"out_channels": 1}, "start='sound' is for one space axis, and pressure and velocity among the channels"),
        ({"out_channels": 5}, "needs those of the solution and the viscosity, 6"),
    ],
)
def test_what_is_no_sound_is_refused(changes, text):
    with pytest.raises(ValueError, match=text):
        init(small_ctfno.model_of(**{**SOUND, **changes}), _state())


def test_there_is_no_certificate():
    u0, model = _state(), small_ctfno.model_of(**SOUND)
    with pytest.raises(ValueError, match="start='sound' has no certificate"):
        certify(model, init(model, u0), np.array([0.5]))
