"""Five families of low-dimensional dynamics: waveforms, a stiff oscillator and a spiral, observed and then predicted.

Trajectories of a family differ by a phase or an initial state, on an even grid of as many values as there are
trajectories. Each has ``num_points`` points up to ``final_time``, zero excluded; a model sees the first
``num_observed`` of them and is asked for the others. The published protocol normalises by statistics of all
trajectories, test set included; here nothing is normalised unless asked for, by the training set or in that way.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ctfno_jax.data import cache
from ctfno_jax.data.fields import Trajectories
from ctfno_jax.data.series import SeriesDataset, observe
from ctfno_jax.solvers import spiral, van_der_pol

PHASES = ("grid", "random")
CLOCKS = ("last", "zero")
NORMALIZATIONS = ("none", "training", "whole")
# The stiff oscillator runs from 0 to 4000 while our clock runs to 20.
_STIFF_UNITS = 200.0
# A velocity beyond this is a sample in the middle of a jump: it is a thousandth everywhere else.
SPIKE = 1.0

# Positions of trajectories in the unit interval or square, and increasing times, shared or one row for each, to values
# (batch, points, features).
Values = Callable[..., Float[np.ndarray, "batch points features"]]


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of trajectories.

    Attributes:
      values: of the trajectories at given positions, at given times.
      axes: numbers that tell its trajectories apart.
      closed: position one is position zero again, and the even grid leaves it out: the published one has both ends, one
        trajectory twice, which may be trained on and tested.
      chunk: trajectories that are solved, and kept on disk, together; 0 where solving is faster than reading.
    """

    values: Values
    axes: int = 1
    closed: bool = False
    chunk: int = 0


def sawtooth(phases: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Rises from zero to one within each period of 2 pi, then drops."""
    turns = (times + 2 * np.pi * phases) / (2 * np.pi)
    return (turns - np.floor(turns))[..., None]


def square(phases: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Two and zero in turn, for half a period of 2 pi each."""
    halves = np.floor((times + 2 * np.pi * phases) / np.pi)
    return (2.0 * (1 - halves % 2))[..., None]


def sine(phases: np.ndarray, times: np.ndarray, decay: float = 0.05) -> np.ndarray:
    """A sine whose amplitude decays exponentially."""
    return (np.exp(-decay * times) * np.sin(times + 2 * np.pi * phases))[..., None]


def stiff(positions: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The Van der Pol oscillator of stiffness 1000, from rest at x between 0.1 and 2."""
    x = 0.1 + 1.9 * positions[:, 0]
    return van_der_pol.solve(np.stack([x, np.zeros_like(x)], axis=-1), _STIFF_UNITS * times)


def spirals(positions: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The damped rotation from initial states in [-2, 2]^2."""
    return spiral.solve(4 * positions - 2, times)


FAMILIES: dict[str, Family] = {
    "square": Family(square, closed=True),
    "sawtooth": Family(sawtooth, closed=True),
    "sine": Family(sine, closed=True),
    "stiff": Family(stiff, chunk=50),
    "spiral": Family(spirals, axes=2),
}


def load_series(
    name: str,
    *,
    num_train: int = 900,
    num_validation: int = 100,
    num_test: int = 100,
    seed: int = 0,
    progress: cache.Progress | None = None,
    num_points: int = 200,
    num_observed: int = 100,
    final_time: float = 20.0,
    phases: str = "grid",
    irregular: bool = False,
    noise: float = 0.0,
    clock: str = "last",
    normalization: str = "none",
    **options: float,
) -> SeriesDataset:
    """A family with a seeded split.

    Args:
      name: one of :data:`FAMILIES`.
      num_train: trajectories for training and validation together.
      num_validation: of these, held out for choosing the best state.
      num_test: trajectories that nothing but the final evaluation sees.
      seed: of the split, and of all that is drawn.
      progress: told the number of trajectories ready, and of all, while they are solved.
      num_points: of a trajectory.
      num_observed: of these, seen by the model.
      final_time: of the last point.
      phases: ``"grid"`` for even ones, ``"random"`` for uniform draws.
      irregular: every trajectory has sorted uniform times of its own instead of an even grid.
      noise: standard deviation of what is added to observed values, in all three sets.
      clock: times count from the ``"last"`` observation, or from ``"zero"``.
      normalization: ``"none"``, or by mean and deviation of the ``"training"`` set, or of the ``"whole"`` of it.
      **options: of the family, such as ``decay`` for sine.
    """
    if name not in FAMILIES:
        raise ValueError(f"unknown dataset {name!r}; known are {', '.join(FAMILIES)}")
    for what, value, known in (
        ("phases", phases, PHASES), ("clock", clock, CLOCKS), ("normalization", normalization, NORMALIZATIONS),
    ):  # fmt: skip
        if value not in known:
            raise ValueError(f"option {what} of dataset {name} must be one of {', '.join(known)}, got {value!r}")
    numbers = {"num_points": num_points, "num_observed": num_observed, "final_time": final_time, "noise": noise}
    for what, value in numbers.items():
        kinds = int if what.startswith("num_") else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise ValueError(f"option {what} of dataset {name} must be a number, got {value!r}")
    if num_points < 2 or not final_time > 0 or not noise >= 0:
        raise ValueError(
            f"dataset {name} needs num_points >= 2, final_time > 0 and noise >= 0, "
            f"got {num_points}, {final_time} and {noise}"
        )
    count = num_train + num_test
    order_rng, position_rng, time_rng, noise_rng = np.random.default_rng(seed).spawn(4)
    positions = _positions(FAMILIES[name], count, position_rng if phases == "random" else None)
    times = final_time / num_points * np.arange(1, num_points + 1)
    if irregular:
        times = final_time * _irregular(time_rng, len(positions), num_points)
    key = {"count": len(positions), "times": _digest(times), "drawn": seed if phases == "random" else None}
    values = _values(name, positions, times, key, options, progress)
    order = order_rng.permutation(len(positions))[:count]
    values, times = values[order], times if times.ndim == 1 else times[order]
    held_out = num_test + num_validation
    if held_out >= count:
        raise ValueError(f"{count} trajectories leave none for training after {num_test} + {num_validation}")
    normalized = _normalized(values, normalization, slice(held_out, None))
    series = observe(times, normalized, num_observed, from_last=clock == "last")
    info = {"num_points": num_points, **_facts(name, values[:, num_observed:], num_test, held_out)}
    if noise:
        observed = series.observed + noise * noise_rng.standard_normal(series.observed.shape)
        series = dataclasses.replace(series, observed=observed.astype(np.float32))
    test, validation, train = (series.select(s) for s in np.split(np.arange(count), [num_test, held_out]))
    if name == "square" and times.ndim == 1 and not noise and normalization == "none":
        info["least_rmse"] = least_square_error(times, num_observed)
    return SeriesDataset(name, train, validation, test, info)


def known_options(name: str) -> tuple[str, ...]:
    """Names of the options of a family."""
    own = inspect.signature(FAMILIES[name].values).parameters.values()
    common = inspect.signature(load_series).parameters.values()
    sizes = ("num_train", "num_validation", "num_test", "seed", "progress")
    return (
        *(p.name for p in common if p.kind is p.KEYWORD_ONLY and p.name not in sizes),
        *(p.name for p in own if p.default is not p.empty),
    )


def _positions(family: Family, count: int, rng: np.random.Generator | None) -> np.ndarray:
    if rng is not None:
        return rng.uniform(size=(count, family.axes))
    # In several axes, the smallest square grid that holds as many.
    side = int(np.ceil(count ** (1 / family.axes) - 1e-9))
    axis = np.linspace(0.0, 1.0, side, endpoint=not family.closed)
    return np.stack(np.meshgrid(*[axis] * family.axes, indexing="ij"), axis=-1).reshape(-1, family.axes)


def _irregular(rng: np.random.Generator, count: int, num_points: int) -> np.ndarray:
    """Increasing times in (0, 1], uniform but for a raster that keeps them apart in single precision."""
    raster = 2**20
    ticks = np.sort(rng.integers(1, raster + 1, (count, num_points)), axis=1)
    while (repeated := np.any(np.diff(ticks, axis=1) == 0, axis=1)).any():
        ticks[repeated] = np.sort(rng.integers(1, raster + 1, (int(repeated.sum()), num_points)), axis=1)
    return ticks / raster


def _values(
    name: str, positions: np.ndarray, times: np.ndarray, key: dict[str, Any], options: dict[str, float],
    progress: cache.Progress | None,
) -> np.ndarray:  # fmt: skip
    family = FAMILIES[name]
    unknown = sorted(set(options) - set(known_options(name)))
    if unknown:
        raise ValueError(f"dataset {name} has no option {', '.join(unknown)}; it has {', '.join(known_options(name))}")
    for option, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"option {option} of dataset {name} must be a number, got {value!r}")
    if not family.chunk:
        return family.values(positions, times, **options)

    def piece(num_samples: int, first: int) -> Trajectories:
        some = slice(first, first + num_samples)
        ts = times if times.ndim == 1 else times[some]
        return Trajectories(positions[some], ts, family.values(positions[some], ts, **options))

    folder = cache.folder_of(name, 0, {**key, **options})
    return cache.load_or_generate(piece, folder, len(positions), family.chunk, progress).u


def _digest(times: np.ndarray) -> list[float]:
    """Tells grids of times apart in the name of a folder."""
    return [times.shape[-1], float(times[..., -1].max()), float(np.sum(times))]


def _normalized(values: np.ndarray, how: str, training: slice) -> np.ndarray:
    if how == "none":
        return values
    reference = values if how == "whole" else values[training]
    return (values - reference.mean((0, 1))) / reference.std((0, 1))


def _facts(name: str, asked: np.ndarray, num_test: int, held_out: int) -> dict[str, float]:
    """Of the values asked for, in their own units."""
    train, test = asked[held_out:], asked[:num_test]
    facts = {"std": float(np.std(train))}
    if name == "stiff":
        facts["std_x"] = float(np.std(train[..., 0]))
        facts["spikes_in_training"], facts["spikes_in_test"] = spikes(train), spikes(test)
    return facts


def least_square_error(times: Float[np.ndarray, " points"], num_observed: int, num_phases: int = 20_000) -> float:
    """The RMSE below which no model of the square wave can come, whatever it learns.

    Observed points tell between which two of them the wave jumped, but not when: phases that look the same so far part
    later. The best forecast is their mean, and this is its error over all phases.
    """
    phases = np.arange(num_phases)[:, None] / num_phases
    values = square(phases, times)[..., 0]
    seen = np.packbits(values[:, :num_observed] > 1, axis=1)
    _, alike = np.unique(seen, axis=0, return_inverse=True)
    alike, later = alike.reshape(-1), values[:, num_observed:]
    total = np.zeros((alike.max() + 1, later.shape[1]))
    np.add.at(total, alike, later)
    mean = total / np.bincount(alike)[:, None]
    return float(np.sqrt(np.mean(np.square(later - mean[alike]))))


def spikes(values: Float[np.ndarray, "batch time 2"]) -> int:
    """How many values lie in the middle of a jump of the stiff oscillator."""
    return int(np.sum(np.abs(values[..., 1]) > SPIKE))
