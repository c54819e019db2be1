"""The paper's networks by name, for counts of parameters.

No single reading of the paper reproduces all its parameter counts. Two do for a part each, and they overlap on the
low-dimensional model:

* F1, also that of the released code: time-dependent scale and shift, linear head (synthetic data and PDEs);
* F2: time-dependent scale and constant bias, two-map head, low-pass lifting on real data (time series).
"""

from collections.abc import Callable

from flax import linen as nn

from ctfno_jax.models.ctfno import CTFNO
from ctfno_jax.models.dynamics import GridDynamics
from ctfno_jax.models.encoders import GRUEncoder
from ctfno_jax.models.latent import LatentModel
from ctfno_jax.models.observed import ObservedCTFNO

_LATENT = 20


def _f1(modes: int, out_channels: int = 1) -> CTFNO:
    return CTFNO(
        out_channels=out_channels, width=64, modes=(modes,), depth=2, heads=4, time_width=512, time_features=128
    )


def _f1_low() -> ObservedCTFNO:
    operator = CTFNO(width=16, modes=(4,), depth=3, heads=1, time_width=32, time_features=16)
    return ObservedCTFNO(operator, grid_points=16, out_features=1)


def _f2(width: int, modes: int, depth: int, time_width: int, time_features: int, **fields) -> CTFNO:
    return CTFNO(
        width=width, modes=(modes,), depth=depth, heads=1, time_width=time_width, time_features=time_features,
        time_bias=False, head="mlp", **fields,
    )  # fmt: skip


def _f2_low() -> ObservedCTFNO:
    return ObservedCTFNO(_f2(16, 4, 3, 32, 32), grid_points=16, out_features=1)


def _f2_latent(
    depth: int, time_features: int, hidden: int, features: int, bound: float | None, num_classes: int = 0
) -> LatentModel:
    operator = _f2(32, 10, depth, 64, time_features, lifting="low_pass", padding=0.1, stability_bound=bound)
    return LatentModel(GRUEncoder(hidden), GridDynamics(operator, _LATENT), features, _LATENT, num_classes)


def _f2_vibration() -> ObservedCTFNO:
    operator = _f2(8, 10, 2, 16, 16, lifting="low_pass", padding=0.125, stability_bound=1.2)
    return ObservedCTFNO(operator, grid_points=20, out_features=5)


PAPER_MODELS: dict[str, Callable[[], nn.Module]] = {
    "f1_low": _f1_low,
    "f1_reaction": lambda: _f1(32),
    "f1_pde": lambda: _f1(64),
    "f1_navier_stokes": lambda: _f1(64, out_channels=3),
    "f2_low": _f2_low,
    "f2_mujoco": lambda: _f2_latent(3, 64, 100, 14, 10.0),
    "f2_physionet": lambda: _f2_latent(1, 16, 40, 41, None),
    "f2_activity": lambda: _f2_latent(2, 64, 100, 12, 10.0, num_classes=11),
    "f2_vibration": _f2_vibration,
}


def paper_model(name: str) -> nn.Module:
    """The module of that name."""
    if name not in PAPER_MODELS:
        raise ValueError(f"unknown model of the paper {name!r}; known are {', '.join(PAPER_MODELS)}")
    return PAPER_MODELS[name]()
