"""Data sets by name."""

import inspect
from typing import Any

import numpy as np

from ctfno_jax.data import fields


def dataset_names() -> tuple[str, ...]:
    """The names that :func:`load_dataset` knows."""
    return tuple(sorted(fields.GENERATORS))


def load_dataset(
    name: str, *, num_train: int = 400, num_validation: int = 20, num_test: int = 100, seed: int = 0, **options: Any
) -> fields.FieldDataset:
    """A data set with a seeded split.

    Args:
      name: one of :func:`dataset_names`.
      num_train: trajectories for training and validation together.
      num_validation: of these, held out for choosing the best state.
      num_test: trajectories that nothing but the final evaluation sees.
      seed: of the initial fields.
      **options: of the generator, such as ``viscosity`` for heat.

    Returns:
      The three sets, in physical units.
    """
    if name not in fields.GENERATORS:
        raise ValueError(f"unknown dataset {name!r}; known are {', '.join(dataset_names())}")
    generate, periodic = fields.GENERATORS[name]
    known = [p for p, kind in inspect.signature(generate).parameters.items() if kind.kind is kind.KEYWORD_ONLY]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(f"dataset {name} has no option {', '.join(unknown)}; it has {', '.join(known)}")
    everything = generate(num_train + num_test, seed, **options)
    train, validation, test = fields.split(everything, num_test, num_validation)
    info = {
        "initial_std": float(np.std(train.u0)),
        "final_std": float(np.std(train.u[:, -1])),
        "num_points": train.grid[0],
        "num_times": len(train.times),
    }
    return fields.FieldDataset(name, train, validation, test, periodic, info)
