"""Data sets by name."""

import inspect
from typing import Any

import numpy as np

from ctfno_jax.data import fields


def dataset_names() -> tuple[str, ...]:
    """The names that :func:`load_dataset` knows."""
    return tuple(sorted(fields.GENERATORS))


def _check_options(name: str, options: dict[str, Any]) -> None:
    if name not in fields.GENERATORS:
        raise ValueError(f"unknown dataset {name!r}; known are {', '.join(dataset_names())}")
    parameters = inspect.signature(fields.GENERATORS[name]).parameters
    known = [p for p, kind in parameters.items() if kind.kind is kind.KEYWORD_ONLY]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(f"dataset {name} has no option {', '.join(unknown)}; it has {', '.join(known)}")
    for option, value in options.items():
        kind = parameters[option].annotation
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, accepted) or (kind is not bool and isinstance(value, bool)):
            raise ValueError(f"option {option} of dataset {name} must be of type {kind.__name__}, got {value!r}")


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
    _check_options(name, options)
    generate = fields.GENERATORS[name]
    everything = generate(num_train + num_test, seed, **options)
    train, validation, test = fields.split(everything, num_test, num_validation)
    info = {
        "initial_std": float(np.std(train.u0)),
        "final_std": float(np.std(train.u[:, -1])),
        "num_points": train.grid[0],
        "num_times": len(train.times),
    }
    return fields.FieldDataset(name, train, validation, test, info)


def load_between_times(name: str, *, num_test: int = 100, seed: int = 0, **options: Any) -> fields.Trajectories:
    """The test trajectories of :func:`load_dataset` half-way between its query times, where no model was trained."""
    _check_options(name, options)
    generate = fields.GENERATORS[name]
    num_times = options.pop("num_times", inspect.signature(generate).parameters["num_times"].default)
    fine = generate(num_test, seed, num_times=2 * num_times, **options)
    # Of the doubled times 1 .. 2n, the even ones are the query times; odd ones after the first lie between two.
    return fields.Trajectories(fine.u0, fine.times[2::2], np.ascontiguousarray(fine.u[:, 2::2]))
