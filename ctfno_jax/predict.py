"""A trained run as a function: initial states and times in, solutions out, in physical units."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Float

from ctfno_jax.certify import certify, uncertifiable
from ctfno_jax.config import STATE_FRAMES, WALL_FRAMES, ExperimentConfig, from_dict
from ctfno_jax.data import equations, frames, registry
from ctfno_jax.data.alignment import Aligned
from ctfno_jax.data.frames import FlowFrame, Frame
from ctfno_jax.data.mirrored import Mirrored
from ctfno_jax.data.normalization import Normalization
from ctfno_jax.models.ctfno import CTFNO
from ctfno_jax.models.inputs import check_times
from ctfno_jax.models.registry import build_model, build_series_model
from ctfno_jax.training import checkpoint
from ctfno_jax.types import Params

# Samples evaluated at once, as grid points times query times: bounds memory whatever the size of the request.
_POINTS_PER_CALL = 4_000_000


@dataclasses.dataclass(frozen=True)
class Predictor:
    """Callable ``(u0, times) -> u``, as :func:`load_predictor` returns it.

    Attributes:
      model: the module.
      params: its variables.
      normalization: statistics of the training data.
      in_channels: channels that the model reads.
      description: the JSON that was saved with the checkpoint, with the config of the run.
    """

    model: nn.Module
    params: Params
    normalization: Normalization
    in_channels: int
    description: dict[str, Any]

    @property
    def state_channels(self) -> int:
        """Channels that a state has; the model may read more, see :mod:`ctfno_jax.data.frames`."""
        return self.description.get("state_channels", self.in_channels)

    @property
    def config(self) -> ExperimentConfig:
        return from_dict(ExperimentConfig, self.description["config"])

    @functools.cached_property
    def frame(self) -> Frame | None:
        """The frame in which the model sees fields, if it has one."""
        return frame_of(self.config)

    @property
    def transformable(self) -> bool:
        """JAX can transform the run, and a certificate holds for it: its frame, if any, is the same for all states."""
        return self.frame is None or isinstance(self.frame, Mirrored)

    def __call__(self, u0: Any, times: Any) -> Float[np.ndarray, "batch time *space channels"]:
        """Solutions at ``times``, ``(time,)`` or ``(batch, time)``, from states ``(batch, *space, channels)``."""
        u0 = self._check_states(u0)
        times = np.asarray(times, np.float32)
        check_times(times)
        if times.ndim == 2 and len(times) != len(u0):
            raise ValueError(
                f"times must have shape (time,) or (batch, time) with batch={len(u0)}, got shape {times.shape}"
            )
        if self.frame is None:
            return self._solve(u0, times)
        placement = self.frame.place(u0)
        u = self._solve(placement.state, self.frame.enter_times(times, placement))
        return self.frame.leave(u, times, placement)

    def _solve(self, u0: np.ndarray, times: np.ndarray) -> np.ndarray:
        """States and times as the model sees them, in physical units of that frame."""
        problem = unanswerable(self.model, times)
        if problem is not None:
            raise ValueError(problem)
        apply_fn = self._apply_for(reaching(self.model, times))
        a = self.normalization.inputs.normalize(u0).astype(np.float32)
        # Models on a grid of times compute all of them, whatever is asked.
        num_times = max(times.shape[-1], getattr(self.model, "num_times", 0))
        per_sample = num_times * int(np.prod(u0.shape[1:-1]))
        size = min(len(a), max(1, _POINTS_PER_CALL // per_sample))
        chunks = [
            np.asarray(apply_fn(self.params, a[i : i + size], times if times.ndim == 1 else times[i : i + size]))
            for i in range(0, len(a), size)
        ]
        return self.normalization.outputs.denormalize(np.concatenate(chunks))

    def lipschitz(self, times: Any, *, num_points: int | None = None) -> Float[np.ndarray, " time"]:
        """Certified bound, in physical units, on the growth of an L2 error in ``u0``; CTFNO only.

        Args:
          times: query times.
          num_points: of the states. Only the bound of runs between walls depends on it: they know a field by its values
            at these points. By default the points of the training data.
        """
        self._refuse_frame("certificate")
        problem = uncertifiable(self.model)
        if problem is not None:
            raise ValueError(problem)
        assert isinstance(self.model, CTFNO)
        units = max(self.normalization.outputs.std) / min(self.normalization.inputs.std)
        bound = certify(self.model.reaching(np.asarray(times)), self.params, times).lipschitz * units
        if not isinstance(self.frame, Mirrored):
            return bound
        return self.frame.growth(bound, self.description["data_grid"][0] if num_points is None else num_points)

    def apply(self, params: Params, u0: Any, times: Any) -> Any:
        """The same function in physical units for JAX to transform: no checks, no chunks, parameters as an argument.

        With a horizon, times beyond those of the training data are reached by a last step that is longer than it.
        """
        self._refuse_frame("form for JAX to transform")
        if not isinstance(self.frame, Mirrored):
            return self._apply_within(params, u0, times)
        state = self.frame.state(u0)
        u = self._apply_within(params, state, times) + self.frame.diffused(state, times, u0.shape[-1])
        return self.frame.between(u, u0.shape[-2])

    def _apply_within(self, params: Params, state: Any, times: Any) -> Any:
        # Times may be traced, so the number of steps cannot depend on them.
        model = reaching(self.model, np.asarray(self.description["final_time"]))
        u = model.apply(params, self.normalization.inputs.normalize(state), times)
        return self.normalization.outputs.denormalize(u)

    def _refuse_frame(self, what: str) -> None:
        if not self.transformable:
            raise ValueError(f"a run in the {self.config.train.frame} frame has no {what}: the frame depends on u0")

    @functools.cached_property
    def _compiled(self) -> dict[int, Any]:
        return {}

    def _apply_for(self, model: nn.Module) -> Any:
        """The model compiled, once for every number of steps that it makes."""
        steps = getattr(model, "max_steps", 0)
        if steps not in self._compiled:
            self._compiled[steps] = jax.jit(model.apply)
        return self._compiled[steps]

    def _check_states(self, u0: Any) -> np.ndarray:
        u0 = np.asarray(u0)
        if u0.dtype.kind not in "fiu":
            raise ValueError(f"u0 must be an array of real numbers, got dtype {u0.dtype}")
        if u0.ndim < 3 or u0.shape[-1] != self.state_channels or u0.shape[0] == 0:
            raise ValueError(
                f"u0 must have shape (batch, *space, channels) with {self.state_channels} channels, got {u0.shape}"
            )
        if not np.all(np.isfinite(u0)):
            raise ValueError("u0 contains values that are not finite")
        return u0


def reaching(model: nn.Module, times: np.ndarray) -> nn.Module:
    """The model with as many steps as the times need, if it makes any."""
    with_steps = getattr(model, "reaching", None)
    return model if with_steps is None else with_steps(np.asarray(times))


def unanswerable(model: nn.Module, times: np.ndarray) -> str | None:
    """Why the model has no answer at some of the times; None if it has. Some live on the time grid of their data."""
    answerable = getattr(reaching(model, times), "answerable", None)
    return None if answerable is None else answerable(np.asarray(times))


def is_series(config: ExperimentConfig) -> bool:
    """The run reads observed vectors, not fields."""
    return registry.is_series(config.dataset.dataset)


def model_of(config: ExperimentConfig) -> nn.Module:
    """The module of a run, in the form that its data need."""
    build = build_series_model if is_series(config) else build_model
    return build(config.model.model, **config.model.model_fields)


def frame_of(config: ExperimentConfig) -> Frame | None:
    """The frame in which a run sees its fields, if it has one of its own."""
    if not config.train.frame:
        return None
    equation = equations.EQUATIONS[config.dataset.dataset]
    odd = equation.reflection is not None and equation.reflection[0] < 0
    if config.train.frame == "aligned":
        return Aligned(odd=odd)
    if config.train.frame in WALL_FRAMES:
        return _between_walls(config, equation)
    kind = config.train.frame.removeprefix("aligned_")
    settings = equations.friction(config.dataset.data_options)
    if kind in STATE_FRAMES:
        settings["num_labels"] = config.train.train_grid
    flow_frame = FlowFrame(kind, equation.length, **settings)
    return flow_frame if kind == config.train.frame else Aligned(flow_frame, odd)


def _between_walls(config: ExperimentConfig, equation: equations.Equation) -> Mirrored:
    assert equation.walls is not None  # or the settings would have been refused
    frame = Mirrored(equation.walls, config.train.train_grid)
    if config.train.frame == "mirrored":
        return frame
    assert equation.diffusivity is not None
    # There and back again is a length of one to the model.
    return dataclasses.replace(frame, diffusivity=equation.diffusivity / (2 * equation.length) ** 2)


def describe_run(
    config: ExperimentConfig,
    normalization: Normalization,
    u0_shape: tuple[int, ...],
    times: np.ndarray,
    state_shape: tuple[int, ...],
) -> dict[str, Any]:
    """What a checkpoint must carry for :func:`load_predictor` to rebuild the run.

    Args:
      config: of the run.
      normalization: statistics of its training data.
      u0_shape: of initial states as the model is trained on them.
      times: of the training data.
      state_shape: of initial states as they are given.
    """
    return {
        "config": dataclasses.asdict(config),
        "normalization": normalization.to_dict(),
        "grid": list(u0_shape[1:-1]),
        "in_channels": u0_shape[-1],
        "state_channels": state_shape[-1],
        "data_grid": list(state_shape[1:-1]),
        "final_time": float(times.max()),
        "frame_version": frame_version(config),
    }


def frame_version(config: ExperimentConfig) -> int | None:
    """Which form of the frames on particles a run is in; None for runs on the grid."""
    frame = config.train.frame
    return frames.VERSION if frame.removeprefix("aligned_") in ("particles", "acoustic", *STATE_FRAMES) else None


def load_predictor(workdir: str | Path) -> Predictor:
    """The best state of a run, from what the run saved and nothing else."""
    workdir = Path(workdir)
    directory = workdir / "checkpoints"
    if not directory.is_dir():
        raise checkpoint.CheckpointError(f"{workdir} holds no trained run: there is no {directory}")
    with checkpoint.CheckpointStore(directory, read_only=True) as store:
        best = store.restore_best()
    if best is None:
        raise checkpoint.CheckpointError(f"{directory} holds no checkpoint yet: train first, or wait for the first one")
    return predictor_from_checkpoint(best)


def predictor_from_checkpoint(best: checkpoint.Checkpoint) -> Predictor:
    """A predictor from one checkpoint."""
    description = best.description
    config = from_dict(ExperimentConfig, description["config"])
    if description.get("frame_version") != frame_version(config):
        raise checkpoint.CheckpointError(
            f"the run was trained in an older form of the {config.train.frame} frame, which is not known any more; "
            "train it again"
        )
    model = model_of(config)
    u0 = jax.ShapeDtypeStruct((1, *description["grid"], description["in_channels"]), jnp.float32)
    like = jax.eval_shape(model.init, jax.random.key(0), u0, jax.ShapeDtypeStruct((1,), jnp.float32))
    prefix = "average/" if config.optimizer.average_decay else "params/"
    arrays = {name.removeprefix(prefix): a for name, a in best.arrays.items() if name.startswith(prefix)}
    params = jax.tree.map(jnp.asarray, checkpoint.unflatten(arrays, like))
    normalization = Normalization.from_dict(description["normalization"])
    return Predictor(model, params, normalization, description["in_channels"], description)
