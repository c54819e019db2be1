"""Models by name, from plain values."""

import dataclasses
import typing
from typing import Any

from flax import linen as nn

from ctfno_jax.models.ctfno import CTFNO, check_fields
from ctfno_jax.models.ctfno_ablations import AblationFeatures, AblationInput, AblationLifted
from ctfno_jax.models.deeponet import DeepONet
from ctfno_jax.models.fno import FNO2D, FNORNN
from ctfno_jax.models.pod_deeponet import PODDeepONet

MODELS: dict[str, type[nn.Module]] = {
    "ctfno": CTFNO,
    "fno_rnn": FNORNN,
    "fno_2d": FNO2D,
    "deeponet": DeepONet,
    "pod_deeponet": PODDeepONet,
    "ablation_input": AblationInput,
    "ablation_lifted": AblationLifted,
    "ablation_features": AblationFeatures,
}

# Every Flax module has these; they are not hyper-parameters.
_FLAX_FIELDS = ("parent", "name")


def model_names() -> tuple[str, ...]:
    """The names that :func:`build_model` knows."""
    return tuple(sorted(MODELS))


def model_class(name: str) -> type[nn.Module]:
    """The module class of that name."""
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}; known are {', '.join(model_names())}")
    return MODELS[name]


def hyper_parameters(name: str) -> dict[str, tuple[Any, Any]]:
    """Type and default of every field of a model."""
    cls = model_class(name)
    hints = typing.get_type_hints(cls)
    return {f.name: (hints[f.name], f.default) for f in dataclasses.fields(cls) if f.name not in _FLAX_FIELDS}


def build_model(name: str, **fields: Any) -> nn.Module:
    """A module from its fields; lists, as JSON has them, become tuples."""
    known = hyper_parameters(name)
    unknown = sorted(set(fields) - set(known))
    if unknown:
        raise ValueError(f"model {name} has no field {', '.join(unknown)}; it has {', '.join(known)}")
    model = model_class(name)(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
    if isinstance(model, CTFNO):
        check_fields(model)
    elif hasattr(model, "check_fields"):
        model.check_fields()  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    return model
