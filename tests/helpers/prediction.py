"""Small trajectories with a closed form, small models for them, and programs called without a new process."""

import contextlib
import functools
import types
from collections.abc import Iterator

import jax
import numpy as np
import pytest
from absl import flags

from ctfno_jax import CTFNO
from experiments import own_data, program, train

TINY = dict(width=4, depth=1, heads=2, time_width=4, time_features=4)


@contextlib.contextmanager
def one_device() -> Iterator[None]:
    """Training on the first of the virtual devices: batches need not be divisible by eight."""
    first = jax.devices()[:1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "devices", lambda *_: first)
        yield


def network(modes: tuple[int, ...] = (3,), **fields) -> CTFNO:
    return CTFNO(**{**TINY, "modes": modes, "coordinates": False, **fields})


def waves(num: int, *grid: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    """Random states of low frequency on a periodic grid."""
    rng = np.random.default_rng(seed)
    u0 = np.zeros((num, *grid, channels))
    for axis, n in enumerate(grid):
        shape = [1] * u0.ndim
        shape[1 + axis] = n
        angle = (2 * np.pi * np.arange(n) / n).reshape(shape)
        a, b = rng.standard_normal((2, num, *[1] * len(grid), channels))
        u0 += a * np.cos(angle) + b * np.sin(angle)
    return u0.astype(np.float32)


def decay(u0: np.ndarray, times: np.ndarray, channels: int | None = None) -> np.ndarray:
    """Solutions of u_t = -u of the first channels, at ``(time,)`` or ``(batch, time)``."""
    factors = np.exp(-np.broadcast_to(times, (len(u0), np.shape(times)[-1])))
    return (u0[:, None, ..., :channels] * factors.reshape(*factors.shape, *[1] * (u0.ndim - 1))).astype(np.float32)


def call(monkeypatch, module, *arguments: str) -> None:
    """Runs the main function of a program with flags of its own."""
    values = flags.FlagValues()
    definitions = {n: functools.partial(getattr(flags, n), flag_values=values) for n in dir(flags) if "DEFINE_" in n}
    defining = own_data if module is train else module
    for where in {module, defining, program}:
        monkeypatch.setattr(where, "flags", types.SimpleNamespace(**definitions))
        monkeypatch.setattr(where, "FLAGS", values, raising=False)
    defining.define_flags()
    values(["program", *map(str, arguments)])
    module.main()
