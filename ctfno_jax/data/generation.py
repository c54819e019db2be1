"""Samples of a generator with given options, from the cache where it has one."""

import dataclasses
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ctfno_jax.data import cache, equations
from ctfno_jax.data.trajectories import Trajectories


@dataclasses.dataclass(frozen=True)
class Generation:
    """A generator with a seed and options; ValueError for an option that it does not have.

    Attributes:
      name: name of the problem.
      generate: generator, see :mod:`ctfno_jax.data.equations`.
      chunk: samples per piece of the cache; 0 for no cache.
      seed: seed of the samples.
      options: keyword arguments of the generator; the others keep their defaults.
    """

    name: str
    generate: equations.Generator
    chunk: int
    seed: int
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_names(self.name, self.options, keywords(self.generate))
        parameters = inspect.signature(self.generate).parameters
        for option, value in self.options.items():
            kind = parameters[option].annotation
            accepted = (int, float) if kind is float else kind
            if not isinstance(value, accepted) or (kind is not bool and isinstance(value, bool)):
                raise ValueError(
                    f"option {option} of dataset {self.name} must be of type {kind.__name__}, got {value!r}"
                )

    def samples(self, num_samples: int, first: int = 0, progress: cache.Progress | None = None) -> Trajectories:
        """The samples ``first`` to ``first + num_samples - 1``."""
        if not self.chunk:
            return self.generate(num_samples, self.seed, first, **self.options)
        return cache.load_or_generate(
            lambda count, start: self.generate(count, self.seed, start, **self.options),
            self.folder, num_samples, self.chunk, progress, first=first,
        )  # fmt: skip

    def discretisation_error(self, first: int = 0) -> float:
        """Discretisation error of two samples, kept beside the samples in the cache."""
        measure = lambda: equations.discretisation_error(self.generate, self.seed, first, **self.options)  # noqa: E731
        if not self.chunk:
            return measure()
        path = self.folder / f"discretisation_error-{first:06d}.json"
        try:
            return float(json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            error = measure()
            cache.write_text(path, json.dumps(error))
            return error

    @property
    def folder(self) -> Path:
        """Folder of the cache. Options at their default value do not change it."""
        parameters = inspect.signature(self.generate).parameters.values()
        values = {p.name: self.options.get(p.name, p.default) for p in parameters if p.kind is p.KEYWORD_ONLY}
        floats = {p.name for p in parameters if p.annotation is float}
        values = {option: float(value) if option in floats else value for option, value in values.items()}
        return cache.folder_of(self.name, self.seed, values)


def keywords(function: Callable[..., Any]) -> list[str]:
    """Names of the keyword-only parameters."""
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]


def check_names(name: str, options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises ValueError for an option that is not among the known ones."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(f"dataset {name} has no option {', '.join(unknown)}; it has {', '.join(known)}")
