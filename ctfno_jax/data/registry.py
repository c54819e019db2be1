"""Data sets by name: fields, solved for and kept on disk or read from PDEBench's own files, and series."""

import inspect
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ctfno_jax.data import cache, equations, fields, pdebench, plane_vibration, synthetic
from ctfno_jax.data.series import SeriesDataset

# Of a file, the instants that are query times: every second one, as PDEBench's 101 instants hold the paper's 50.
_TIME_STRIDE = 2


def dataset_names() -> tuple[str, ...]:
    """The names that :func:`load_dataset` knows."""
    return tuple(sorted({*equations.EQUATIONS, *synthetic.FAMILIES, plane_vibration.NAME}))


def is_series(name: str) -> bool:
    """The data set of that name is of observed vectors, not of fields."""
    return name in synthetic.FAMILIES or name == plane_vibration.NAME


def load_dataset(name: str, **settings: Any) -> fields.FieldDataset | SeriesDataset:
    """A data set with a seeded split, by name.

    The settings are those of :func:`load_fields`, of :func:`ctfno_jax.data.synthetic.load_series`, or for the record
    ``plane_vibration``, whose split follows from its options, of :func:`ctfno_jax.data.plane_vibration.load` and
    ``data_dir``, the folder of its file.
    """
    if name == plane_vibration.NAME:
        data_dir = settings.pop("data_dir", None)
        known = inspect.signature(plane_vibration.load).parameters
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise ValueError(
                f"dataset {name} has no option {', '.join(unknown)}; it has data_dir, {', '.join(list(known)[1:])}"
            )
        return plane_vibration.load(plane_vibration.find_file(data_dir), **settings)
    if name in synthetic.FAMILIES:
        return synthetic.load_series(name, **settings)
    if name not in equations.EQUATIONS:
        raise ValueError(f"unknown dataset {name!r}; known are {', '.join(dataset_names())}")
    return load_fields(name, **settings)


def find_data_file(name: str, data_dir: str | Path | None) -> Path | None:
    """The file that holds a data set if a folder is named by ``data_dir`` or ``CTFNO_DATA_DIR``, else None.

    A folder given by hand must hold the file. ``CTFNO_DATA_DIR`` must exist, but may hold files of some data sets only.
    """
    if name not in pdebench.FILES:
        return None
    if data_dir is not None:
        return pdebench.find_file(name, data_dir)
    if "CTFNO_DATA_DIR" in os.environ:
        if not Path(os.environ["CTFNO_DATA_DIR"]).is_dir():
            raise ValueError(
                f"CTFNO_DATA_DIR names {os.environ['CTFNO_DATA_DIR']}, which is no folder; unset or mend it"
            )
        try:
            return pdebench.find_file(name, os.environ["CTFNO_DATA_DIR"])
        except ValueError:
            return None
    return None


def load_fields(
    name: str,
    *,
    num_train: int = 400,
    num_validation: int = 20,
    num_test: int = 100,
    seed: int = 0,
    data_file: str | Path | None = None,
    progress: cache.Progress | None = None,
    **options: Any,
) -> fields.FieldDataset:
    """Solutions of one equation, with a seeded split.

    Args:
      name: one of :data:`ctfno_jax.data.equations.EQUATIONS`.
      num_train: trajectories for training and validation together.
      num_validation: of these, held out for choosing the best state.
      num_test: trajectories that nothing but the final evaluation sees.
      seed: of the initial fields; from a file, of the choice of samples.
      data_file: a PDEBench file to read instead of generating (:func:`find_data_file`).
      progress: told the number of samples ready, and of all, while they are generated.
      **options: of the generator, such as ``viscosity`` for heat.

    Returns:
      The three sets, in physical units.
    """
    _check_options(name, options)
    if data_file is not None:
        _refuse_options(name, options)
        samples = _chosen_samples(name, Path(data_file), num_train + num_test, seed)
        everything = pdebench.read(name, Path(data_file), samples, time_stride=_TIME_STRIDE)
    else:
        everything = _generate(name, num_train + num_test, seed, options, progress)
    train, validation, test = fields.split(everything, num_test, num_validation)
    info = _facts(name, train)
    if data_file is None:
        info["discretisation_error"] = _discretisation_error(name, seed, options)
        if name == "reaction":
            drawn = {k: v for k, v in options.items() if k in ("num_points", "max_wave", "margin")}
            info["rejected_draws"] = equations.rejected_reactions(num_train + num_test, seed, **drawn)
    source = "generated" if data_file is None else Path(data_file).name
    return fields.FieldDataset(name, train, validation, test, info, source)


def load_between_times(
    name: str,
    *,
    num_train: int = 400,
    num_test: int = 100,
    seed: int = 0,
    data_file: str | Path | None = None,
    progress: cache.Progress | None = None,
    **options: Any,
) -> fields.Trajectories:
    """The test trajectories of :func:`load_fields` half-way between its query times, where no model was trained."""
    _check_options(name, options)
    if data_file is not None:
        _refuse_options(name, options)
        samples = _chosen_samples(name, Path(data_file), num_train + num_test, seed)[:num_test]
        return pdebench.read(name, Path(data_file), samples, time_stride=_TIME_STRIDE, time_offset=1)
    generate = equations.EQUATIONS[name].generate
    num_times = options.get("num_times", inspect.signature(generate).parameters["num_times"].default)
    fine = _generate(name, num_test, seed, {**options, "num_times": 2 * num_times}, progress)
    # Of the doubled times 1 .. 2n, the even ones are the query times; odd ones after the first lie between two.
    return fields.Trajectories(fine.u0, fine.times[2::2], np.ascontiguousarray(fine.u[:, 2::2]))


def _generate(
    name: str, num_samples: int, seed: int, options: dict[str, Any], progress: cache.Progress | None
) -> fields.Trajectories:
    equation = equations.EQUATIONS[name]
    if not equation.chunk:
        return equation.generate(num_samples, seed, **options)
    return cache.load_or_generate(
        lambda count, first: equation.generate(count, seed, first, **options),
        cache.folder_of(name, seed, _all_options(name, options)), num_samples, equation.chunk, progress,
    )  # fmt: skip


def _all_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options with the defaults of those not given: naming a default is the same data set."""
    parameters = inspect.signature(equations.EQUATIONS[name].generate).parameters.values()
    chosen = {p.name: options.get(p.name, p.default) for p in parameters if p.kind is p.KEYWORD_ONLY}
    floats = {p.name for p in parameters if p.annotation is float}
    return {option: float(value) if option in floats else value for option, value in chosen.items()}


def _discretisation_error(name: str, seed: int, options: dict[str, Any]) -> float:
    """Measured once for a data set and kept beside it."""
    if not equations.EQUATIONS[name].chunk:
        return equations.discretisation_error(name, seed, **options)
    path = cache.folder_of(name, seed, _all_options(name, options)) / "discretisation_error.json"
    try:
        return float(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        error = equations.discretisation_error(name, seed, **options)
        cache.write_text(path, json.dumps(error))
        return error


def _facts(name: str, train: fields.Trajectories) -> dict[str, float]:
    channels = equations.EQUATIONS[name].channels
    facts: dict[str, float] = {}
    for i, channel in enumerate(channels):
        suffix = f"_{channel}" if len(channels) > 1 else ""
        facts[f"initial_std{suffix}"] = float(np.std(train.u0[..., i]))
        facts[f"final_std{suffix}"] = float(np.std(train.u[:, -1, ..., i]))
    return {**facts, "num_points": train.grid[0], "num_times": len(train.times)}


def _chosen_samples(name: str, path: Path, count: int, seed: int) -> np.ndarray:
    """Samples of a file in a seeded order; the first ones are the test set, as with generated data."""
    available = pdebench.num_samples(name, path)
    if count > available:
        raise ValueError(f"{path.name} holds {available} samples, {count} were asked for; lower num_train and num_test")
    return np.random.default_rng(seed).permutation(available)[:count]


def _refuse_options(name: str, options: dict[str, Any]) -> None:
    if options:
        raise ValueError(f"dataset {name} is read from a file; option {', '.join(options)} is of the generator only")


def _check_options(name: str, options: dict[str, Any]) -> None:
    if name not in equations.EQUATIONS:
        raise ValueError(f"unknown dataset {name!r}; known are {', '.join(equations.EQUATIONS)}")
    parameters = inspect.signature(equations.EQUATIONS[name].generate).parameters
    known = [p for p, kind in parameters.items() if kind.kind is kind.KEYWORD_ONLY]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(f"dataset {name} has no option {', '.join(unknown)}; it has {', '.join(known)}")
    for option, value in options.items():
        kind = parameters[option].annotation
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, accepted) or (kind is not bool and isinstance(value, bool)):
            raise ValueError(f"option {option} of dataset {name} must be of type {kind.__name__}, got {value!r}")
