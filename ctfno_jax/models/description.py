"""Models of the library as JSON values, and back: what a checkpoint needs to rebuild one, wrappers included."""

import dataclasses
from typing import Any

from flax import linen as nn

from ctfno_jax.models import interface, registry

# Every Flax module has these; they are not hyper-parameters.
_FLAX_FIELDS = ("parent", "name")


def classes() -> dict[str, type[nn.Module]]:
    """The library's model classes by name."""
    return {cls.__name__: cls for chain in registry.MODELS.values() for cls in chain}


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
    made = {n: from_dict(v) if isinstance(v, dict) else tuple(v) if isinstance(v, list) else v for n, v in fields.items()}
    model = cls(**made)
    interface.check_fields(model)
    return model
