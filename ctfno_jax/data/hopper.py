"""The hopper of the DeepMind Control Suite without control: the generated data set of Latent ODEs.

A sequence has 200 states of 7 positions and 7 velocities, 5 milliseconds apart, from a random initial state. The random
stream is that of the published generator: legacy NumPy generator with seed 123, for each sequence two positions in
[0, 0.5], five positions in [-2, 2] and seven velocities in [-5, 5].
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import numpy as np
from jaxtyping import Float

from ctfno_jax.data import cache, masked_series, splits
from ctfno_jax.data.masked_series import MaskedDataset, Observations, Part
from ctfno_jax.data.trajectories import Trajectories

NAME = "mujoco"
TASKS = ("interpolation", "prediction")
WINDOWS = ("drawn_once", "first")
NORMALIZATIONS = ("max", "range")
STATISTICS = ("all", "train")
NUM_STEPS = 200
WINDOW = 100
NUM_OBSERVED = NUM_STEPS // 3
STEP_SECONDS = 0.005
_JOINTS = ("rootx", "rootz", "rooty", "waist", "hip", "knee", "ankle")
FEATURES = (*(f"position_{joint}" for joint in _JOINTS), *(f"velocity_{joint}" for joint in _JOINTS))

_VERSIONS = {"mujoco": "3.17.0", "dm_control": "1.0.50"}
_PUBLISHED_SEED = 123
# SHA-256 of the float64 states of the first sequences with that seed and these versions.
_DIGESTS = {
    500: "2a3cf08ec09563893b60fce1f89b0365659ab1e800450c5e6b5216ae0495733d",
    10_000: "e7d06b0f7f4c1cfb9732ae66a820a7d5b2430615b9ebe83618b06b4c7bae6339",
}
# Sequences per piece of the cache.
_CHUNK = 500


def load(
    path: None = None,
    *,
    seed: int = 1,
    with_test: bool = True,
    progress: cache.Progress | None = None,
    task: str = "interpolation",
    observed: float = 0.1,
    num_sequences: int = 10_000,
    windows: str = "drawn_once",
    normalization: str = "max",
    statistics: str = "all",
    generator_seed: int = _PUBLISHED_SEED,
) -> MaskedDataset:
    """Sequences in order: the first 80% for training, of which the last tenth validates, and the last 20% for the test.

    Args:
      path: not used; the data are generated.
      seed: seed of the windows and of the observed steps of validation and test sequences.
      with_test: return the test part.
      progress: called with the numbers of finished and of all sequences during generation.
      task: ``"interpolation"`` of all steps of a window of 100, or ``"prediction"`` of the last 134 of 200 steps.
      observed: share of the 100, or of the first 66, steps that are observed.
      num_sequences: number of sequences; the first ones do not depend on it.
      windows: start of the windows, ``"drawn_once"`` for each sequence, or the ``"first"`` step. The times of each
        window begin at zero.
      normalization: ``"max"`` for the published ``(x - min) / max``, ``"range"`` for ``(x - min) / (max - min)``.
      statistics: minimum and maximum over ``"all"`` sequences, as published, or over the ``"train"`` part.
      generator_seed: seed of the initial states; 123 is the published one.
    """
    del path
    _check_options(task, observed, num_sequences, windows, normalization, statistics, generator_seed)
    train, test = splits.in_order(num_sequences)
    # Test sequences are the last ones, and not generated where nothing of them is needed.
    needed = num_sequences if with_test or statistics == "all" else len(train)
    states = generate(needed, generator_seed, progress)
    agrees = _agrees(states, generator_seed)
    train, validation = splits.last_tenth(train)
    reference = states if statistics == "all" else states[train]
    offset, scale = masked_series.min_max_scaling(reference.min((0, 1)), reference.max((0, 1)), normalization)
    window_rng, *draw_rngs = np.random.default_rng(seed).spawn(3)
    starts = np.zeros(num_sequences, int)
    if task == "interpolation" and windows == "drawn_once":
        starts = window_rng.integers(0, NUM_STEPS - WINDOW + 1, num_sequences)
    last = NUM_STEPS if task == "prediction" else WINDOW
    count = int(observed * (NUM_OBSERVED if task == "prediction" else WINDOW) + 1e-9)
    steps = np.arange(last)

    def part(index: np.ndarray, rng: np.random.Generator | None) -> Part:
        values = (states[index[:, None], starts[index][:, None] + steps] - offset) / scale
        target = seen = _complete(values, steps)
        if task == "prediction":
            seen, target = (
                _complete(values[:, cut], steps[cut]) for cut in (slice(NUM_OBSERVED), slice(NUM_OBSERVED, None))
            )
        if rng is not None and observed < 1:
            seen = masked_series.subsample(seen, count, rng)
        return Part(seen, target)

    parts = (part(train, None), part(validation, draw_rngs[0]), part(test, draw_rngs[1]) if with_test else None)
    info = {
        "num_sequences": num_sequences, "num_steps": last, "train": len(train), "validation": len(validation),
        "test": len(test) if with_test else 0, "observed_steps": count,
    }  # fmt: skip
    if agrees is not None:
        info["checksum_agrees"] = agrees
    return MaskedDataset(
        NAME, task, *parts, FEATURES, tuple(map(float, offset)), tuple(map(float, scale)),
        time_unit=NUM_STEPS * STEP_SECONDS, time_name="s", subsample=count if observed < 1 else 0, num_classes=0,
        info={name: float(value) for name, value in info.items()}, source=_source(agrees),
    )  # fmt: skip


def generate(
    num_sequences: int, generator_seed: int = _PUBLISHED_SEED, progress: cache.Progress | None = None
) -> Float[np.ndarray, "sequences steps states"]:
    """States of the first sequences, float64, from the cache where they are there."""
    folder = cache.folder_of(NAME, generator_seed, _versions())

    def piece(count: int, first: int) -> Trajectories:
        states = simulate(count, generator_seed, first)
        return Trajectories(states[:, 0], STEP_SECONDS * np.arange(NUM_STEPS), states)

    return cache.load_or_generate(piece, folder, num_sequences, _CHUNK, progress).u


def simulate(num_sequences: int, generator_seed: int, first: int = 0) -> Float[np.ndarray, "sequences steps states"]:
    """States of the sequences from ``first`` on, float64, simulated now."""
    positions, velocities = initial_states(num_sequences, generator_seed, first)
    physics = _physics()
    states = np.empty((num_sequences, NUM_STEPS, len(FEATURES)))
    for sequence in range(num_sequences):
        with physics.reset_context():
            physics.data.qpos[:] = positions[sequence]
            physics.data.qvel[:] = velocities[sequence]
        for step in range(NUM_STEPS):
            states[sequence, step] = np.concatenate([physics.data.qpos, physics.data.qvel])
            physics.step()
    return states


def initial_states(num_sequences: int, generator_seed: int, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities, ``(sequences, 7)`` each.

    All draws are uniform, one sequence after the other: earlier sequences are skipped by drawing their numbers.
    """
    stream = np.random.RandomState(generator_seed)
    stream.random_sample((first, len(FEATURES)))
    lower = np.asarray([0.0] * 2 + [-2.0] * 5 + [-5.0] * 7)
    width = np.asarray([0.5] * 2 + [4.0] * 5 + [10.0] * 7)
    drawn = lower + width * stream.random_sample((num_sequences, len(FEATURES)))
    return drawn[:, :7], drawn[:, 7:]


def _physics() -> Any:
    """Physics of the hopper; ValueError if the packages are missing."""
    try:
        with _without_display():
            from dm_control import suite
    except ImportError as error:
        raise ValueError(f"dataset {NAME} is generated by mujoco and dm_control: pip install -e '.[mujoco]'") from error
    return suite.load("hopper", "stand").physics


@contextlib.contextmanager
def _without_display() -> Iterator[None]:
    """Imports of dm_control look for a display, which nothing here needs."""
    given = os.environ.get("MUJOCO_GL")
    os.environ["MUJOCO_GL"] = given or "disable"
    try:
        yield
    finally:
        if given is None:
            del os.environ["MUJOCO_GL"]


def _complete(values: np.ndarray, steps: np.ndarray) -> Observations:
    """Observations of all features at steps of 1/200."""
    times = np.broadcast_to((steps / NUM_STEPS).astype(np.float32), values.shape[:2]).copy()
    return Observations(times, values.astype(np.float32), np.ones(values.shape, np.float32))


def _versions() -> dict[str, str]:
    """Installed versions of the two packages, or those that are needed."""
    found = {}
    for package, version in _VERSIONS.items():
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = version
    return found


def _agrees(states: np.ndarray, generator_seed: int) -> bool | None:
    """True if the states equal the reference bit for bit; None where there is no reference."""
    if generator_seed != _PUBLISHED_SEED or len(states) not in _DIGESTS:
        return None
    return hashlib.sha256(np.ascontiguousarray(states).data).hexdigest() == _DIGESTS[len(states)]


def _source(agrees: bool | None) -> str:
    versions = ", ".join(f"{package} {version}" for package, version in _versions().items())
    # Contacts are chaotic: another processor or version gives other trajectories of the same distribution.
    note = (
        "; trajectories differ from the reference ones in their last bits or after contacts" if agrees is False else ""
    )
    return f"generated by {versions}{note}"


def _check_options(
    task: str, observed: float, num_sequences: int, windows: str, normalization: str, statistics: str, seed: int
) -> None:
    for option, value, known in (
        ("task", task, TASKS), ("windows", windows, WINDOWS), ("normalization", normalization, NORMALIZATIONS),
        ("statistics", statistics, STATISTICS),
    ):  # fmt: skip
        masked_series.check_choice(NAME, option, value, known)
    if task == "prediction" and windows != "drawn_once":
        raise ValueError(f"option windows of dataset {NAME} belongs to task=interpolation; remove it")
    for option, value, least in (("num_sequences", num_sequences, 10), ("generator_seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(
                f"option {option} of dataset {NAME} must be a whole number of at least {least}, got {value!r}"
            )
    masked_series.check_share(NAME, "observed", observed)
    steps = NUM_OBSERVED if task == "prediction" else WINDOW
    if observed * steps + 1e-9 < 1:
        raise ValueError(f"observed={observed:g} keeps none of the {steps} steps that are observed; raise it")
