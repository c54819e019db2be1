"""A trained run as a function: inputs and times in, solutions out, in physical units."""

import bisect
import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.errors import FlaxError
from jaxtyping import Float

from ctfno_jax.models import interface, registry
from ctfno_jax.models.inputs import check_times
from ctfno_jax.tasks import prediction
from ctfno_jax.training import checkpoint, run
from ctfno_jax.transforms import protocol as transforms
from ctfno_jax.types import Params

# Beyond this many times the range of the training data an input gets a note.
_FAR = 1.5
# How models and libraries refuse arrays of a wrong shape.
_SHAPE_ERRORS = (ValueError, TypeError, FlaxError)


class Predictor:
    """Callable ``(u0, times) -> u`` in physical units, as :func:`load_predictor` and :func:`ctfno_jax.fit` return it.

    Attributes:
      model: the module.
      params: its variables.
      transform: between physical units and what the network reads.
      description: JSON values about the run: shapes, range and final time of its training data, its title.
    """

    def __init__(
        self, model: nn.Module, params: Params, transform: transforms.Transform, description: dict[str, Any]
    ) -> None:
        self.model = model
        self.params = params
        self.transform = transform
        self.description = description
        self._evaluate = prediction.Evaluator(model, transform)

    def __repr__(self) -> str:
        d = self.description
        return (
            f"Predictor({type(self.model).__name__}, {d['title']}, {d['in_channels']} -> {d['out_channels']} channels)"
        )

    @property
    def in_channels(self) -> int:
        """Channels of an initial state, or values of an observed point."""
        return self.description["in_channels"]

    @property
    def num_space(self) -> int:
        """Space axes of a field; one, the observed steps, for series."""
        return len(self.description["grid"])

    @property
    def is_series(self) -> bool:
        """The run reads observed vectors, not fields."""
        return self.description["task"] in ("series", "latent")

    def __call__(self, u0: Any, times: Any) -> Float[np.ndarray, "batch time *space channels"]:
        """Solutions at ``times``, ``(time,)`` or ``(batch, time)``, from states ``(batch, *space, channels)``."""
        u0, times = self._checked(u0, times)
        try:
            return self._evaluate(self.params, u0, times)
        except _SHAPE_ERRORS as error:
            problem = None if self.is_series else self._unreadable(u0.shape[1:-1])
            if problem is None:
                raise
            raise ValueError(problem) from error

    @functools.cached_property
    def apply(self) -> prediction.ApplyFn:
        """The same as a pure function ``(params, u0, times)`` for JAX to transform: no checks, no pieces.

        A model that makes steps reaches the times of its training data, as times may be traced.
        """
        return prediction.physical(self.model, self.transform)

    def draws(
        self, observations: Any, times: Any, *, count: int = 16, seed: int = 0
    ) -> Float[np.ndarray, "count batch time features"]:
        """Answers from several draws of the latent state, whose spread shows what the observations leave open.

        Args:
          observations: packed, in real units; see :mod:`ctfno_jax.models.packing`.
          times: query times.
          count: number of draws.
          seed: of the draws.
        """
        if not interface.has_posterior(self.model):
            raise ValueError(f"{type(self.model).__name__} has no latent distribution to draw from")
        observations, times = self._checked(observations, times)

        def draw(key: Any) -> Any:
            read, at = self.transform.encode(observations), self.transform.encode_times(times)
            found: Any = self.model.apply(self.params, read, at, key, method="posterior")
            return self.transform.decode(found.values, ())

        return np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(seed), count)))

    def forecast(
        self, observations: Any, times: Any, *, count: int = 16, seed: int = 0
    ) -> tuple[Float[np.ndarray, "batch time features"], Float[np.ndarray, "batch time features"]]:
        """Mean and standard deviation of every value, in real units.

        The variance is that of the draws plus what they left unexplained on validation data, the same for all values of
        a feature. For the arguments see :meth:`draws`.
        """
        noise = [self.description["metrics"].get(f"validation_noise_{name}") for name in self.description["channels"]]
        if None in noise:
            raise ValueError(
                "the run holds no errors of single features: it classifies, or was made by an older version"
            )
        found = self.draws(observations, times, count=count, seed=seed)
        return found.mean(axis=0), np.hypot(found.std(axis=0), np.asarray(noise))

    def lipschitz(self, times: Any, *, grid: tuple[int, ...] | None = None) -> Float[np.ndarray, " time"]:
        """Certified bound, in physical units, on the growth of an L2 error in ``u0``.

        Args:
          times: query times.
          grid: of the states, for transforms whose norm depends on it; that of the training data by default.
        """
        if self.is_series:
            raise ValueError("certificates of series models are given by observed_lipschitz and latent_lipschitz")
        times = np.asarray(times, np.float32)
        check_times(times)
        shape = tuple(self.description["grid"]) if grid is None else tuple(grid)
        return prediction.lipschitz(self.model, self.transform, self.params, times, shape)

    def notes(self, u0: Any, times: Any) -> list[str]:
        """Sentences about a request that lies outside of the training data, where answers are extrapolations."""
        u0, times = self._checked(u0, times)
        notes = self.notes_on_times(times)
        low, high = (np.asarray(bound) for bound in self.description["range"])
        middle, reach = (low + high) / 2, _FAR * (high - low) / 2 + 1e-6 * np.maximum(np.abs(low), np.abs(high))
        flat = u0.reshape(-1, u0.shape[-1])
        for channel in np.flatnonzero(np.any(np.abs(flat - middle) > reach, axis=0)):
            notes.append(
                f"channel {channel} of the input goes from {flat[:, channel].min():g} to {flat[:, channel].max():g}, "
                f"far outside of the training range {low[channel]:g} to {high[channel]:g}"
            )
        return notes

    def notes_on_times(self, times: Any) -> list[str]:
        """A sentence about times beyond those of the training data, if there are any."""
        latest, horizon = float(np.max(times)), self.description["final_time"]
        if latest <= horizon * (1 + 1e-6):
            return []
        return [f"times up to {latest:g} lie beyond the training horizon of {horizon:g}"]

    def _checked(self, u0: Any, times: Any) -> tuple[np.ndarray, np.ndarray]:
        u0 = np.asarray(u0)
        expected = f"(batch, {'steps' if self.is_series else '*space'}, channels) with {self.num_space} axes between"
        if u0.dtype.kind not in "fiu":
            raise ValueError(f"u0 must be an array of real numbers, got dtype {u0.dtype}")
        if u0.ndim != self.num_space + 2 or u0.shape[-1] != self.in_channels or u0.size == 0:
            raise ValueError(f"u0 must have shape {expected} and {self.in_channels} channels, got {u0.shape}")
        if not np.all(np.isfinite(u0)):
            raise ValueError("u0 contains values that are not finite")
        wide = jax.config.jax_enable_x64 and u0.dtype == np.float64  # pyright: ignore[reportAttributeAccessIssue]
        dtype = np.float64 if wide else np.float32
        if np.abs(u0).max() > np.finfo(dtype).max / 1e6:
            raise ValueError(f"u0 holds values up to {np.abs(u0).max():g}, too large for {np.dtype(dtype).name}")
        times = np.asarray(times)
        if times.dtype.kind not in "fiu":
            raise ValueError(f"times must be an array of real numbers, got dtype {times.dtype}")
        times = times.astype(dtype)
        check_times(times)
        if times.ndim == 2 and len(times) != len(u0):
            raise ValueError(
                f"times must have shape (time,) or (batch, time) with batch={len(u0)}, got shape {times.shape}"
            )
        self.check_size(u0.shape, times.shape[-1])
        return u0.astype(dtype), times

    def check_size(self, shape: tuple[int, ...], num_times: int) -> None:
        """Raises ValueError if the solutions from states of that shape at so many times would not fit in memory."""
        points = 1 if self.is_series else math.prod(shape[1:-1])
        # Times are held in two precisions besides.
        needed = 4 * shape[0] * num_times * points * self.description["out_channels"] + 12 * num_times
        available = _memory()
        if needed > 0.5 * available:
            raise ValueError(
                f"{shape[0]} samples at {num_times} times would take {needed / 2**30:.1f} GiB, more than half of the "
                f"{available / 2**30:.1f} GiB of memory; ask for fewer times or samples at once"
            )

    def _unreadable(self, grid: tuple[int, ...]) -> str | None:
        """A sentence that says which grids the network reads if it does not read this one, else None."""
        problem = self._problem_on(grid)
        if problem is None:
            return None
        trained = tuple(self.description["grid"])
        if self._problem_on(tuple(2 * n for n in trained)) is not None:
            return f"the trained network reads only the grid of its training, {trained}, got {grid}"
        smallest = tuple(self._smallest(axis) for axis in range(len(trained)))
        if any(n < least for n, least in zip(grid, smallest, strict=True)):
            return f"the grid {grid} is too coarse for the trained network: it needs {smallest} points or more"
        # What follows the first semicolon is advice for a network that is not trained yet.
        return f"the trained network cannot read the grid {grid}: {problem.partition(';')[0]}; training had {trained}"

    def _smallest(self, axis: int) -> int:
        """The smallest number of points along one axis that the network reads, the others as in training."""
        trained = tuple(self.description["grid"])
        works = lambda n: self._problem_on((*trained[:axis], n, *trained[axis + 1 :])) is None  # noqa: E731
        return bisect.bisect_left(range(trained[axis]), True, lo=1, key=works)

    def _problem_on(self, grid: tuple[int, ...]) -> str | None:
        """Error message of the network for states on a grid, by tracing only; None if it reads them."""
        u0 = jax.ShapeDtypeStruct((1, *grid, self.in_channels), jnp.float32)
        try:
            jax.eval_shape(self.apply, self.params, u0, jax.ShapeDtypeStruct((1,), jnp.float32))
        except _SHAPE_ERRORS as error:
            return str(error)
        return None


def _memory() -> int:
    """Bytes of physical memory; where the system does not tell, what any machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 8 * 2**30


def load_predictor(workdir: str | Path) -> Predictor:
    """The best state of a run, from what the run saved and nothing else."""
    return load_run(workdir, _from_checkpoint)


def load_run(workdir: str | Path, build: Callable[[checkpoint.Checkpoint], Any]) -> Any:
    """What ``build`` makes of the best checkpoint of a run."""
    workdir = Path(workdir)
    directory = workdir / "checkpoints"
    if not directory.is_dir():
        raise checkpoint.CheckpointError(f"{workdir} holds no trained run: there is no {directory}")
    with checkpoint.CheckpointStore(directory, read_only=True) as store:
        best = store.restore_best()
    if best is None:
        raise checkpoint.CheckpointError(f"{directory} holds no checkpoint yet: train first, or wait for the first one")
    try:
        return build(best)
    except (KeyError, TypeError, ValueError) as error:
        raise checkpoint.CheckpointError(
            f"{workdir} is from another version of the library ({error}); train it again"
        ) from error


def _from_checkpoint(best: checkpoint.Checkpoint) -> Predictor:
    description = best.description
    if description["task"] == "images":
        raise checkpoint.CheckpointError(f"the run classifies {description['title']}; read it by load_classifier")
    model = registry.from_dict(description["model"])
    u0 = jax.ShapeDtypeStruct((1, *description["input_shape"]), jnp.float32)
    like = jax.eval_shape(model.init, jax.random.key(0), u0, jax.ShapeDtypeStruct((1,), jnp.float32))
    params = jax.tree.map(jnp.asarray, run.best_params(best, like))
    return Predictor(model, params, transforms.from_dict(description["transform"]), description)
