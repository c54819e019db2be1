"""Models by name, from plain values, and as JSON values that rebuild them.

A name stands for a chain of classes, the outermost first. Each class but the last holds the next one as ``operator``,
and the fields of all of them are given side by side.
"""

import dataclasses
import typing
from typing import Any

from flax import linen as nn

from ctfno_jax.models import interface
from ctfno_jax.models.ablations import AblationFeatures, AblationInput, AblationLifted
from ctfno_jax.models.composition import Residual, Semigroup
from ctfno_jax.models.ctfno import CTFNO
from ctfno_jax.models.deeponet import DeepONet
from ctfno_jax.models.fno import FNO2D, FNORNN
from ctfno_jax.models.latent import ObservedCTFNO
from ctfno_jax.models.neural_flow import FieldNeuralFlow, ObservedNeuralFlow
from ctfno_jax.models.neural_laplace import FieldNeuralLaplace, ObservedNeuralLaplace
from ctfno_jax.models.neural_ode import FieldNeuralODE, ObservedNeuralODE
from ctfno_jax.models.pod_deeponet import PODDeepONet
from ctfno_jax.models.recurrent_ode import GHBNODE, HBNODE, SONODE, RecurrentANODE, RecurrentNODE

MODELS: dict[str, tuple[type[nn.Module], ...]] = {
    # Fields: (batch, *space, channels) to (batch, time, *space, out_channels).
    "ctfno": (CTFNO,),
    "ctfno_semigroup": (Semigroup, Residual, CTFNO),
    "fno_rnn": (FNORNN,),
    "fno_2d": (FNO2D,),
    "deeponet": (DeepONet,),
    "pod_deeponet": (PODDeepONet,),
    "ablation_input": (AblationInput,),
    "ablation_lifted": (AblationLifted,),
    "ablation_features": (AblationFeatures,),
    "neural_ode": (FieldNeuralODE,),
    "neural_flow": (FieldNeuralFlow,),
    "neural_laplace": (FieldNeuralLaplace,),
    # Series: (batch, steps, inputs) to (batch, time, out_features).
    "series_ctfno": (ObservedCTFNO, CTFNO),
    "series_neural_ode": (ObservedNeuralODE,),
    "series_neural_flow": (ObservedNeuralFlow,),
    "series_neural_laplace": (ObservedNeuralLaplace,),
    "recurrent_node": (RecurrentNODE,),
    "recurrent_anode": (RecurrentANODE,),
    "sonode": (SONODE,),
    "hbnode": (HBNODE,),
    "ghbnode": (GHBNODE,),
}

# Fields of an operator that the module around it fixes.
_FIXED: dict[type[nn.Module], tuple[str, ...]] = {ObservedCTFNO: ("out_channels",)}
# Every Flax module has these; they are not hyper-parameters.
_FLAX_FIELDS = ("parent", "name")
_NO_HYPER_PARAMETERS = (*_FLAX_FIELDS, "operator")


def model_names() -> tuple[str, ...]:
    """The names that :func:`build_model` knows."""
    return tuple(MODELS)


def hyper_parameters(name: str) -> dict[str, tuple[Any, Any]]:
    """Type and default of every field, those of an inner class first; no default is ``dataclasses.MISSING``."""
    known: dict[str, tuple[Any, Any]] = {}
    for cls in reversed(_classes(name)):
        for fixed in _FIXED.get(cls, ()):
            del known[fixed]
        known |= _fields(cls)
    return known


def build_model(name: str, **fields: Any) -> nn.Module:
    """A module from its name and fields; lists, as JSON has them, become tuples."""
    known = hyper_parameters(name)
    unknown = [field for field in fields if field not in known]
    if unknown:
        raise ValueError(f"model {name} has no field {', '.join(unknown)}; it has {', '.join(known)}")
    missing = [k for k, (_, default) in known.items() if default is dataclasses.MISSING and k not in fields]
    if missing:
        raise ValueError(f"model {name} needs a value of {', '.join(missing)}")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    chain: dict[str, nn.Module] = {}
    for cls in reversed(_classes(name)):
        own = {k: values.pop(k) for k in _fields(cls) if k in values}
        chain = {"operator": cls(**chain, **own)}
    model = chain["operator"]
    interface.check_fields(model)
    return model


def _classes(name: str) -> tuple[type[nn.Module], ...]:
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}; known are {', '.join(model_names())}")
    return MODELS[name]


def _fields(cls: type[nn.Module]) -> dict[str, tuple[Any, Any]]:
    hints = typing.get_type_hints(cls)
    return {f.name: (hints[f.name], f.default) for f in dataclasses.fields(cls) if f.name not in _NO_HYPER_PARAMETERS}


# --- models as JSON values, for checkpoints ---------------------------------------------------------------------------


def classes() -> dict[str, type[nn.Module]]:
    """The library's model classes by name."""
    return {cls.__name__: cls for chain in MODELS.values() for cls in chain}


def to_dict(model: nn.Module) -> dict[str, Any]:
    """Class name and fields, nested for wrappers; ValueError for a class that is not the library's."""
    if classes().get(type(model).__name__) is not type(model):
        raise ValueError(
            f"a {type(model).__name__} cannot be saved: only models of the library can be rebuilt from JSON; "
            f"they are {', '.join(sorted(classes()))}"
        )
    fields = {f.name: getattr(model, f.name) for f in dataclasses.fields(model) if f.name not in _FLAX_FIELDS}
    values = {name: to_dict(v) if isinstance(v, nn.Module) else v for name, v in fields.items()}
    return {"class": type(model).__name__, **{n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}}


def from_dict(values: dict[str, Any]) -> nn.Module:
    """The model that :func:`to_dict` described; ValueError for what this version of the library does not know."""
    fields = dict(values)
    name = fields.pop("class", None)
    if name not in classes():
        raise ValueError(f"unknown model class {name!r}; known are {', '.join(sorted(classes()))}")
    cls = classes()[name]
    known = {f.name for f in dataclasses.fields(cls)}
    unknown = sorted(set(fields) - known)
    if unknown:
        raise ValueError(f"{name} has no field {', '.join(unknown)}; the run is from another version of the library")
    inner = {n: from_dict(v) for n, v in fields.items() if isinstance(v, dict)}
    model = cls(**{n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()} | inner)
    interface.check_fields(model)
    return model
