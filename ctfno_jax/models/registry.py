"""Models by name, from plain values. Some have two forms: for fields, and for series of observed vectors."""

import dataclasses
import typing
from typing import Any

from flax import linen as nn

from ctfno_jax.models.ctfno import CTFNO, check_fields
from ctfno_jax.models.ctfno_ablations import AblationFeatures, AblationInput, AblationLifted
from ctfno_jax.models.deeponet import DeepONet
from ctfno_jax.models.fno import FNO2D, FNORNN
from ctfno_jax.models.latent import ObservedCTFNO
from ctfno_jax.models.neural_flow import FieldNeuralFlow, ObservedNeuralFlow
from ctfno_jax.models.neural_laplace import FieldNeuralLaplace, ObservedNeuralLaplace
from ctfno_jax.models.neural_ode import FieldNeuralODE, ObservedNeuralODE
from ctfno_jax.models.pod_deeponet import PODDeepONet
from ctfno_jax.models.recurrent_ode import GHBNODE, HBNODE, SONODE, RecurrentANODE, RecurrentNODE

MODELS: dict[str, type[nn.Module]] = {
    "ctfno": CTFNO,
    "ctfno_at_once": CTFNO,  # a name of its own in tables, where the default has a horizon
    "fno_rnn": FNORNN,
    "fno_2d": FNO2D,
    "deeponet": DeepONet,
    "pod_deeponet": PODDeepONet,
    "ablation_input": AblationInput,
    "ablation_lifted": AblationLifted,
    "ablation_features": AblationFeatures,
    "node": FieldNeuralODE,
    "anode": FieldNeuralODE,
    "neural_flow": FieldNeuralFlow,
    "neural_laplace": FieldNeuralLaplace,
}

SERIES_MODELS: dict[str, type[nn.Module]] = {
    "ctfno": ObservedCTFNO,
    "node": ObservedNeuralODE,
    "anode": ObservedNeuralODE,
    "neural_flow": ObservedNeuralFlow,
    "neural_laplace": ObservedNeuralLaplace,
    "node_rnn": RecurrentNODE,
    "anode_rnn": RecurrentANODE,
    "sonode": SONODE,
    "hbnode": HBNODE,
    "ghbnode": GHBNODE,
}

# Every Flax module has these; they are not hyper-parameters.
_FLAX_FIELDS = ("parent", "name")


def model_names(*, series: bool = False) -> tuple[str, ...]:
    """The names that :func:`build_model`, or :func:`build_series_model`, knows."""
    return tuple(sorted(SERIES_MODELS if series else MODELS))


def model_class(name: str, *, series: bool = False) -> type[nn.Module]:
    """The module class of that name."""
    models = SERIES_MODELS if series else MODELS
    if name not in models:
        raise ValueError(f"unknown model {name!r}; known are {', '.join(model_names(series=series))}")
    return models[name]


def hyper_parameters(name: str, *, series: bool = False) -> dict[str, tuple[Any, Any]]:
    """Type and default of every field of a model; of an operator inside it, those take the place of the operator."""
    cls = model_class(name, series=series)
    hints = typing.get_type_hints(cls)
    known = {f.name: (hints[f.name], f.default) for f in dataclasses.fields(cls) if f.name not in _FLAX_FIELDS}
    if "operator" not in known:
        return known
    del known["operator"]
    return {**{k: v for k, v in hyper_parameters("ctfno").items() if k != "out_channels"}, **known}


def build_series_model(name: str, **fields: Any) -> nn.Module:
    """A module ``(observations, times) -> values`` from plain values."""
    if model_class(name, series=True) is not ObservedCTFNO:
        return _build(name, fields, series=True)
    _refuse_unknown(name, fields, series=True)
    own = {k: fields[k] for k in ("grid_points", "out_features", "observation_scale") if k in fields}
    operator = build_model("ctfno", **{k: v for k, v in fields.items() if k not in own})
    assert isinstance(operator, CTFNO)
    return ObservedCTFNO(operator, **own)


def build_model(name: str, **fields: Any) -> nn.Module:
    """A module ``(u0, times) -> u`` from its fields; lists, as JSON has them, become tuples."""
    return _build(name, fields, series=False)


def _refuse_unknown(name: str, fields: dict[str, Any], *, series: bool) -> None:
    known = hyper_parameters(name, series=series)
    unknown = sorted(set(fields) - set(known))
    if unknown:
        raise ValueError(f"model {name} has no field {', '.join(unknown)}; it has {', '.join(known)}")


def _build(name: str, fields: dict[str, Any], *, series: bool) -> nn.Module:
    _refuse_unknown(name, fields, series=series)
    model = model_class(name, series=series)(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
    if isinstance(model, CTFNO):
        check_fields(model)
    elif hasattr(model, "check_fields"):
        model.check_fields()  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    return model
