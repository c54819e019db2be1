"""Neural operators that are continuous in time: an initial state in, the solution at any set of times out."""

from ctfno_jax._version import __version__
from ctfno_jax.certify import Certificate, certify, measured_gain, observed_lipschitz
from ctfno_jax.data.registry import load_dataset
from ctfno_jax.models.ctfno import CTFNO, num_parameters
from ctfno_jax.models.presets import build_preset
from ctfno_jax.models.registry import build_model, build_series_model
from ctfno_jax.predict import Predictor, load_predictor

__all__ = [
    "CTFNO",
    "Certificate",
    "Predictor",
    "__version__",
    "build_model",
    "build_preset",
    "build_series_model",
    "certify",
    "load_dataset",
    "load_predictor",
    "measured_gain",
    "num_parameters",
    "observed_lipschitz",
]
