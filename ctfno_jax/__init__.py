"""Neural operators that are continuous in time: an initial state in, the solution at any set of times out."""

from ctfno_jax._version import __version__
from ctfno_jax.certify import Certificate, certify, latent_lipschitz, measured_gain, observed_lipschitz
from ctfno_jax.data.problems import load_dataset
from ctfno_jax.fit import fit
from ctfno_jax.models.composition import Residual, Semigroup
from ctfno_jax.models.ctfno import CTFNO, num_parameters
from ctfno_jax.models.latent import LatentModel
from ctfno_jax.models.registry import build_model
from ctfno_jax.predict import Predictor, load_predictor

__all__ = [
    "CTFNO",
    "Certificate",
    "LatentModel",
    "Predictor",
    "Residual",
    "Semigroup",
    "__version__",
    "build_model",
    "certify",
    "fit",
    "latent_lipschitz",
    "load_dataset",
    "load_predictor",
    "measured_gain",
    "num_parameters",
    "observed_lipschitz",
]
