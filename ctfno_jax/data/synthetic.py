"""Five families of low-dimensional dynamics: three waveforms, a stiff oscillator and a spiral.

Trajectories of a family differ by a phase or an initial state, taken from an equispaced grid with as many values as
there are trajectories. Each trajectory has ``num_points`` points up to ``final_time``, time zero excluded. The first
``num_observed`` points are observations, the others are queries. The published protocol normalises by statistics of all
trajectories, test set included (``normalization="whole"``); the default is no normalisation.
"""

import dataclasses
import inspect
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from ctfno_jax.data import cache
from ctfno_jax.data.series import SeriesDataset, observe
from ctfno_jax.data.trajectories import Trajectories
from ctfno_jax.solvers import spiral, van_der_pol

PHASES = ("grid", "random")
CLOCKS = ("last", "zero")
NORMALIZATIONS = ("none", "training", "whole")
# Units of the stiff oscillator per unit of time: t = 20 is 4000 of its own.
_STIFF_UNITS = 200.0
# Velocities above this lie within a jump of the relaxation oscillation; elsewhere they are about a thousandth.
SPIKE = 1.0

# (positions in the unit interval or square, increasing times, shared or per trajectory) -> (batch, points, features)
Values = Callable[..., Float[np.ndarray, "batch points features"]]


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of trajectories.

    Attributes:
      values: trajectories at given positions, evaluated at given times.
      axes: dimension of the positions.
      closed: positions are periodic, so the grid leaves position one out. The published grid contains both ends, which
        puts one trajectory in the data twice, possibly in training and test set.
      chunk: trajectories per piece of the cache; 0 for no cache, where solving is faster than reading.
    """

    values: Values
    axes: int = 1
    closed: bool = False
    chunk: int = 0


def sawtooth(phases: np.ndarray, times: np.ndarray) -> np.ndarray:
    """A sawtooth wave of period 2 pi that rises from zero to one."""
    turns = (times + 2 * np.pi * phases) / (2 * np.pi)
    return (turns - np.floor(turns))[..., None]


def square(phases: np.ndarray, times: np.ndarray) -> np.ndarray:
    """A square wave of period 2 pi with the values two and zero."""
    halves = np.floor((times + 2 * np.pi * phases) / np.pi)
    return (2.0 * (1 - halves % 2))[..., None]


def sine(phases: np.ndarray, times: np.ndarray, decay: float = 0.05) -> np.ndarray:
    """A sine with exponentially decaying amplitude."""
    return (np.exp(-decay * times) * np.sin(times + 2 * np.pi * phases))[..., None]


def stiff(positions: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The Van der Pol oscillator with stiffness 1000, from x in [0.1, 2] with velocity zero."""
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
    num_train: int,
    num_validation: int,
    num_test: int,
    seed: int,
    with_test: bool = True,
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
      num_train: number of training trajectories.
      num_validation: number of validation trajectories.
      num_test: number of test trajectories.
      seed: seed of the split and of all random draws.
      with_test: load the test trajectories. Without them, no value of a test trajectory is computed.
      progress: called with the numbers of finished and of all trajectories while they are solved.
      num_points: points per trajectory.
      num_observed: number of these that are observed.
      final_time: time of the last point.
      phases: ``"grid"`` for equispaced positions, ``"random"`` for uniform draws.
      irregular: give each trajectory its own sorted uniform times instead of the shared equispaced ones.
      noise: standard deviation of Gaussian noise on the observations, in all three sets.
      clock: times count from the ``"last"`` observation, or from ``"zero"``.
      normalization: ``"none"``, or by mean and standard deviation of the ``"training"`` set or of the ``"whole"`` data.
      **options: options of the family, such as ``decay`` for sine.
    """
    if name not in FAMILIES:
        raise ValueError(f"unknown family {name!r}; known are {', '.join(FAMILIES)}")
    chosen = {"phases": (phases, PHASES), "clock": (clock, CLOCKS), "normalization": (normalization, NORMALIZATIONS)}
    _check_settings(name, chosen, num_points, num_observed, final_time, noise, options)
    if normalization == "whole" and not with_test:
        raise ValueError("normalization=whole uses the test set; load it too, or use normalization=training")
    count, held_out = num_train + num_validation + num_test, num_test + num_validation
    order_rng, position_rng, time_rng, noise_rng = np.random.default_rng(seed).spawn(4)
    positions = _positions(FAMILIES[name], count, position_rng if phases == "random" else None)
    times = final_time / num_points * np.arange(1, num_points + 1)
    if irregular:
        times = final_time * _irregular(time_rng, len(positions), num_points)
    # Test trajectories come first, then validation, then training. The arrays below begin at trajectory `first`.
    order = order_rng.permutation(len(positions))[:count]
    first = 0 if with_test else num_test
    values = _solve(name, positions, times, order, num_test, with_test, options, progress)
    times = times if times.ndim == 1 else times[order[first:]]
    normalized = _normalized(values, normalization, slice(held_out - first, None))
    series = observe(times, normalized, num_observed, from_last=clock == "last")
    if noise:
        drawn = noise_rng.standard_normal((count, *series.observed.shape[1:]))[first:]
        series = dataclasses.replace(series, observed=(series.observed + noise * drawn).astype(np.float32))
    validation, train = (
        series.select(slice(a - first, b - first)) for a, b in ((num_test, held_out), (held_out, count))
    )
    test = series.select(slice(num_test)) if with_test else None
    later = values[:, num_observed:]
    info = {
        "num_points": num_points,
        **_facts(name, later[held_out - first :], later[:num_test] if with_test else None),
    }
    if name == "square" and times.ndim == 1 and not noise and normalization == "none":
        info["least_rmse"] = least_square_error(times, num_observed)
    return SeriesDataset(name, train, validation, test, info)


def known_options(name: str) -> tuple[str, ...]:
    """Names of the options of a family."""
    own = inspect.signature(FAMILIES[name].values).parameters.values()
    common = inspect.signature(load_series).parameters.values()
    sizes = ("num_train", "num_validation", "num_test", "seed", "with_test", "progress")
    return (
        *(p.name for p in common if p.kind is p.KEYWORD_ONLY and p.name not in sizes),
        *(p.name for p in own if p.default is not p.empty),
    )


def _positions(family: Family, count: int, rng: np.random.Generator | None) -> np.ndarray:
    if rng is not None:
        return rng.uniform(size=(count, family.axes))
    # With several axes, the smallest square grid of at least that many positions.
    side = int(np.ceil(count ** (1 / family.axes) - 1e-9))
    axis = np.linspace(0.0, 1.0, side, endpoint=not family.closed)
    return np.stack(np.meshgrid(*[axis] * family.axes, indexing="ij"), axis=-1).reshape(-1, family.axes)


def _irregular(rng: np.random.Generator, count: int, num_points: int) -> np.ndarray:
    """Increasing uniform times in (0, 1], multiples of 2^-20 so that they differ in float32."""
    raster = 2**20
    ticks = np.sort(rng.integers(1, raster + 1, (count, num_points)), axis=1)
    while (repeated := np.any(np.diff(ticks, axis=1) == 0, axis=1)).any():
        ticks[repeated] = np.sort(rng.integers(1, raster + 1, (int(repeated.sum()), num_points)), axis=1)
    return ticks / raster


def _solve(
    name: str, positions: np.ndarray, times: np.ndarray, order: np.ndarray, num_test: int, with_test: bool,
    options: dict[str, float], progress: cache.Progress | None,
) -> np.ndarray:  # fmt: skip
    """Values in the given order, of which the first ``num_test`` are left out if not ``with_test``."""
    family = FAMILIES[name]

    def times_of(index: np.ndarray) -> np.ndarray:
        return times if times.ndim == 1 else times[index]

    if family.chunk:
        # Separate pieces, so that none holds test trajectories together with others.
        parts = [order[:num_test], order[num_test:]] if with_test and num_test else [order[num_test:]]
        return np.concatenate([_cached(name, positions[i], times_of(i), options, progress) for i in parts])
    if with_test:
        return family.values(positions, times, **options)[order]
    return family.values(positions[order[num_test:]], times_of(order[num_test:]), **options)


def _cached(
    name: str, positions: np.ndarray, times: np.ndarray, options: dict[str, float], progress: cache.Progress | None
) -> np.ndarray:
    """Values at these positions, from pieces on disk."""
    family = FAMILIES[name]

    def piece(num_samples: int, first: int) -> Trajectories:
        some = slice(first, first + num_samples)
        ts = times if times.ndim == 1 else times[some]
        return Trajectories(positions[some], ts, family.values(positions[some], ts, **options))

    folder = cache.folder_of(name, 0, {"inputs": cache.digest_of(positions, times), **options})
    return cache.load_or_generate(piece, folder, len(positions), family.chunk, progress).u


def _normalized(values: np.ndarray, how: str, training: slice) -> np.ndarray:
    if how == "none":
        return values
    reference = values if how == "whole" else values[training]
    return (values - reference.mean((0, 1))) / reference.std((0, 1))


def _facts(name: str, train: np.ndarray, test: np.ndarray | None) -> dict[str, float]:
    """Facts about the values at the query times, before normalisation."""
    facts = {"std": float(np.std(train))}
    if name == "stiff":
        facts["std_x"] = float(np.std(train[..., 0]))
        facts["spikes_in_training"] = spikes(train)
        if test is not None:
            facts["spikes_in_test"] = spikes(test)
    return facts


def _check_settings(
    name: str, chosen: dict[str, tuple[str, tuple[str, ...]]], num_points: int, num_observed: int, final_time: float,
    noise: float, options: dict[str, float],
) -> None:  # fmt: skip
    for what, (value, known) in chosen.items():
        if value not in known:
            raise ValueError(f"option {what} of dataset {name} must be one of {', '.join(known)}, got {value!r}")
    unknown = sorted(set(options) - set(known_options(name)))
    if unknown:
        raise ValueError(f"dataset {name} has no option {', '.join(unknown)}; it has {', '.join(known_options(name))}")
    numbers = {"num_points": num_points, "num_observed": num_observed, "final_time": final_time, "noise": noise}
    for what, value in {**numbers, **options}.items():
        kinds = int if what.startswith("num_") else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise ValueError(f"option {what} of dataset {name} must be a number, got {value!r}")
    if num_points < 2 or not final_time > 0 or not noise >= 0:
        raise ValueError(
            f"dataset {name} needs num_points >= 2, final_time > 0 and noise >= 0, "
            f"got {num_points}, {final_time} and {noise}"
        )


def least_square_error(times: Float[np.ndarray, " points"], num_observed: int, num_phases: int = 20_000) -> float:
    """Smallest RMSE that any forecast of the square wave can have.

    The observations determine each jump only up to the interval between two of them. Phases with equal observations
    have different continuations; the best forecast is their mean, and this is its RMSE over all phases.
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
    """Number of values within a jump of the stiff oscillator."""
    return int(np.sum(np.abs(values[..., 1]) > SPIKE))
