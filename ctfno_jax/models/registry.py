"""Models by name, from plain values, and as JSON values that rebuild them.

A name stands for a class and for the classes of the modules that it holds. The fields of all of them are given side by
side; those of an encoder have the prefix ``encoder_``.
"""

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from flax import linen as nn

from ctfno_jax.models import dynamics, encoders, interface
from ctfno_jax.models.ablations import AblationFeatures, AblationInput, AblationLifted
from ctfno_jax.models.classifiers import CNN, FNOClassifier, ImageANODE
from ctfno_jax.models.composition import Residual, Semigroup
from ctfno_jax.models.ctfno import CTFNO
from ctfno_jax.models.deeponet import DeepONet
from ctfno_jax.models.fno import FNO2D, FNORNN
from ctfno_jax.models.latent import ODERNN, LatentModel
from ctfno_jax.models.neural_flow import FieldNeuralFlow, ObservedNeuralFlow
from ctfno_jax.models.neural_laplace import FieldNeuralLaplace, ObservedNeuralLaplace
from ctfno_jax.models.neural_ode import FieldNeuralODE, ObservedNeuralODE
from ctfno_jax.models.observed import ObservedCTFNO
from ctfno_jax.models.pod_deeponet import PODDeepONet
from ctfno_jax.models.recurrent_ode import GHBNODE, HBNODE, SONODE, RecurrentANODE, RecurrentNODE


@dataclasses.dataclass(frozen=True)
class Tree:
    """A class and the classes of the modules in its fields."""

    cls: type[nn.Module]
    parts: Mapping[str, "Tree"] = dataclasses.field(default_factory=dict)

    def __iter__(self) -> Iterator["Tree"]:
        yield self
        for part in self.parts.values():
            yield from part


def _chain(*classes: type[nn.Module]) -> Tree:
    """Classes of which each but the last holds the next one as ``operator``."""
    outer, *inner = classes
    return Tree(outer, {"operator": _chain(*inner)} if inner else {})


def _latent(encoder: type[nn.Module], *moved_by: type[nn.Module]) -> Tree:
    return Tree(LatentModel, {"encoder": Tree(encoder), "dynamics": _chain(*moved_by)})


MODELS: dict[str, Tree] = {
    # Fields: (batch, *space, channels) to (batch, time, *space, out_channels).
    "ctfno": _chain(CTFNO),
    "ctfno_semigroup": _chain(Semigroup, Residual, CTFNO),
    "fno_rnn": _chain(FNORNN),
    "fno_2d": _chain(FNO2D),
    "deeponet": _chain(DeepONet),
    "pod_deeponet": _chain(PODDeepONet),
    "ablation_input": _chain(AblationInput),
    "ablation_lifted": _chain(AblationLifted),
    "ablation_features": _chain(AblationFeatures),
    "neural_ode": _chain(FieldNeuralODE),
    "neural_flow": _chain(FieldNeuralFlow),
    "neural_laplace": _chain(FieldNeuralLaplace),
    # Series: (batch, steps, inputs) to (batch, time, out_features).
    "series_ctfno": _chain(ObservedCTFNO, CTFNO),
    "series_neural_ode": _chain(ObservedNeuralODE),
    "series_neural_flow": _chain(ObservedNeuralFlow),
    "series_neural_laplace": _chain(ObservedNeuralLaplace),
    "recurrent_node": _chain(RecurrentNODE),
    "recurrent_anode": _chain(RecurrentANODE),
    "sonode": _chain(SONODE),
    "hbnode": _chain(HBNODE),
    "ghbnode": _chain(GHBNODE),
    # Partly observed series: packed observations (batch, steps, 1 + 2 features) to (batch, time, out_features).
    "latent_ctfno": _latent(encoders.GRUEncoder, dynamics.GridDynamics, CTFNO),
    "latent_ctfno_attention": _latent(encoders.AttentionEncoder, dynamics.GridDynamics, CTFNO),
    "latent_ode_rnn": _latent(encoders.GRUEncoder, dynamics.ODEDynamics),
    "latent_ode": _latent(encoders.ODERNNEncoder, dynamics.ODEDynamics),
    "latent_flow": _latent(encoders.FlowEncoder, dynamics.FlowDynamics),
    "rnn_vae": _latent(encoders.GRUEncoder, dynamics.GRUDynamics),
    "ode_rnn": _chain(ODERNN),
    # Images: (batch, height, width, channels) to (batch, num_classes).
    "fno_classifier": _chain(FNOClassifier),
    "cnn": _chain(CNN),
    "image_anode": _chain(ImageANODE),
}

# Fields of an operator that the module around it fixes.
_FIXED: dict[type[nn.Module], tuple[str, ...]] = {ObservedCTFNO: ("out_channels",)}
# Every Flax module has these; they are not hyper-parameters.
_FLAX_FIELDS = ("parent", "name")
# Parts whose fields are named as they are; those of other parts have the name of the part before them.
_PLAIN_PARTS = ("operator", "dynamics")


def model_names() -> tuple[str, ...]:
    """The names that :func:`build_model` knows."""
    return tuple(MODELS)


def hyper_parameters(name: str) -> dict[str, tuple[Any, Any]]:
    """Type and default of every field, those of inner classes first; no default is ``dataclasses.MISSING``."""
    return _known(_tree(name))


def build_model(name: str, **fields: Any) -> nn.Module:
    """A module from its name and fields; lists, as JSON has them, become tuples."""
    known = hyper_parameters(name)
    unknown = [field for field in fields if field not in known]
    if unknown:
        raise ValueError(f"model {name} has no field {', '.join(unknown)}; it has {', '.join(known)}")
    missing = [k for k, (_, default) in known.items() if default is dataclasses.MISSING and k not in fields]
    if missing:
        raise ValueError(f"model {name} needs a value of {', '.join(missing)}")
    model = _build(_tree(name), {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
    interface.check_fields(model)
    return model


def _tree(name: str) -> Tree:
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}; known are {', '.join(model_names())}")
    return MODELS[name]


def _known(tree: Tree) -> dict[str, tuple[Any, Any]]:
    known: dict[str, tuple[Any, Any]] = {}
    for part, inner in tree.parts.items():
        known |= {_prefix(part) + name: kind for name, kind in _known(inner).items()}
    for fixed in _FIXED.get(tree.cls, ()):
        del known[fixed]
    return known | _fields(tree)


def _build(tree: Tree, values: dict[str, Any]) -> nn.Module:
    parts = {}
    for part, inner in tree.parts.items():
        prefix, names = _prefix(part), _known(inner)
        parts[part] = _build(inner, {n: values[prefix + n] for n in names if prefix + n in values})
    return tree.cls(**parts, **{name: values[name] for name in _fields(tree) if name in values})


def _prefix(part: str) -> str:
    return "" if part in _PLAIN_PARTS else f"{part}_"


def _fields(tree: Tree) -> dict[str, tuple[Any, Any]]:
    hints = typing.get_type_hints(tree.cls)
    hidden = (*_FLAX_FIELDS, *tree.parts)
    return {f.name: (hints[f.name], f.default) for f in dataclasses.fields(tree.cls) if f.name not in hidden}


# --- models as JSON values, for checkpoints ---------------------------------------------------------------------------


def classes() -> dict[str, type[nn.Module]]:
    """The library's model classes by name."""
    return {part.cls.__name__: part.cls for tree in MODELS.values() for part in tree}


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
