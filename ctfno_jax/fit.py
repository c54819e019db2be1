"""Training on a user's own arrays: ``fit(model, u0, times, u)`` returns a function in physical units."""

import hashlib
import numbers
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from ctfno_jax import results
from ctfno_jax.config import OptimizerConfig, TrainConfig
from ctfno_jax.data.trajectories import Trajectories
from ctfno_jax.models import inputs, registry
from ctfno_jax.models.composition import Residual, Semigroup
from ctfno_jax.models.fno import FNORNN
from ctfno_jax.models.neural_flow import FieldNeuralFlow
from ctfno_jax.models.neural_ode import FieldNeuralODE
from ctfno_jax.predict import Predictor, load_predictor
from ctfno_jax.tasks.fields import FieldSettings, FieldTask, dataset_of_arrays
from ctfno_jax.training import run
from ctfno_jax.training.workdir import Workdir

# Models that start from the state itself: initial states and solutions must be normalised alike.
_FROM_STATE = (Residual, Semigroup, FNORNN, FieldNeuralFlow, FieldNeuralODE)
_NUM_EVALUATIONS = 20
_MOST_STEPS_PER_CALL = 100


def fit(
    model: nn.Module,
    u0: Any,
    times: Any,
    u: Any,
    *,
    steps: int = 2000,
    batch_size: int = 20,
    times_per_step: int | None = None,
    learning_rate: float = 1e-3,
    validation: float = 0.1,
    seed: int = 0,
    workdir: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Predictor:
    """The model, trained on trajectories, as a function in physical units.

    Initial states and solutions are normalised per channel, each by their own statistics. Models that start from the
    state itself (Residual, Semigroup, FNORNN, FieldNeuralODE, FieldNeuralFlow) have one set of statistics for both; the
    first channels of ``u0`` must be those of ``u`` then.

    Args:
      model: a Flax module ``(u0, times) -> u``, such as CTFNO. With a workdir, it must be a model of the library.
      u0: initial states, ``(batch, *space, channels)``, one to three space axes.
      times: query times of the trajectories, ``(time,)`` or ``(batch, time)``, none negative.
      u: solutions, ``(batch, time, *space, out_channels)``.
      steps: number of updates by Adam with a one-cycle schedule.
      batch_size: trajectories per step, rounded up to a multiple of the devices; at most those for training.
      times_per_step: random query times per step; 0 for all, None for five or, if there are fewer, all.
      learning_rate: largest rate of the schedule.
      validation: share of the trajectories that select the best state.
      seed: seed of the validation split, the initial parameters and the batches.
      workdir: folder for config.json, metrics.jsonl, checkpoints, a figure and result.json; None writes nothing. A
        finished run in it is loaded and not trained again.
      resume: continue an interrupted run in ``workdir``, with the same result bitwise.
      progress: print a progress line.

    Returns:
      The state with the least validation error, as ``load_predictor(workdir)`` returns it.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a Flax module such as CTFNO(...), got {model!r}")
    if resume and workdir is None:
        raise ValueError("resume=True continues the run in a workdir, got workdir=None; name the folder")
    seed, config = _whole("seed", seed, 0), train_config(steps)
    everything = trajectories(u0, times, u)
    train, held_out = split(everything, validation, seed)
    wanted_times = min(5, train.num_times) if times_per_step is None else times_per_step
    settings = FieldSettings(
        batch_size=_batch_size(_whole("batch_size", batch_size, 1), len(train)),
        times_per_step=_whole("times_per_step", wanted_times, 0),
        shared_normalization=isinstance(model, _FROM_STATE) and train.u.shape[-1] <= train.u0.shape[-1],
    )
    optimizer = OptimizerConfig(learning_rate=float(learning_rate))
    common = {"optimizer": optimizer, "config": config, "seeds": [seed], "show_progress": progress}
    if workdir is None:
        task = FieldTask(dataset_of_arrays("arrays", train, held_out, None, source="arrays"), model, settings)
        (trained,) = run.train(task, **common)
        return results.predictor(task, trained)
    identity = {"experiment": "fit", "dataset": "arrays", "model": type(model).__name__, "preset": None, "seed": seed}
    saved = {
        **identity, "network": registry.to_dict(model), "settings": vars(settings), "optimizer": vars(optimizer),
        "train": vars(config), "validation": float(validation), "arrays": fingerprint(everything),
    }  # fmt: skip
    with Workdir(workdir, saved, resume=resume) as folder:
        if folder.result is None:
            task = FieldTask(dataset_of_arrays("arrays", train, held_out, None, source="arrays"), model, settings)
            (trained,) = run.train(task, workdirs=[folder], **common)
            row = {**identity, "overrides": {}, "paper": None, "command": None}
            results.finish(task, trained, folder, row, split="validation")
        elif progress:
            print(f"{folder.path} has finished already; it is loaded", flush=True)
    return load_predictor(workdir)


def trajectories(u0: Any, times: Any, u: Any) -> Trajectories:
    """The arrays in float32; ValueError for values and shapes that are no trajectories."""
    u0, times, u = (_real(name, value) for name, value in (("u0", u0), ("times", times), ("u", u)))
    if not 3 <= u0.ndim <= 5 or 0 in u0.shape:
        raise ValueError(
            f"u0 must have shape (batch, *space, channels) with 1 to 3 space axes and no empty one, got {u0.shape}; "
            "fields of one channel have a last axis of one"
        )
    inputs.check_times(times)
    return Trajectories(u0, times, u)


def split(everything: Trajectories, validation: float, seed: int) -> tuple[Trajectories, Trajectories]:
    """Training and validation trajectories, a random choice by seed; at least one of each."""
    if not isinstance(validation, numbers.Real) or not 0 < validation < 1:
        raise ValueError(f"validation must be a share of the trajectories between 0 and 1, got {validation!r}")
    if len(everything) < 2:
        raise ValueError(f"fit needs two trajectories or more, one of them for validation, got {len(everything)}")
    order = np.random.default_rng(seed).permutation(len(everything))
    count = min(len(everything) - 1, max(1, round(validation * len(everything))))
    return everything.select(np.sort(order[count:])), everything.select(np.sort(order[:count]))


def fingerprint(data: Trajectories) -> dict[str, Any]:
    """Shape and hash of each array, by which a resumed run notices other data."""
    arrays = {"u0": data.u0, "times": data.times, "u": data.u}
    return {
        name: {"shape": list(a.shape), "hash": hashlib.blake2b(np.ascontiguousarray(a).data, digest_size=8).hexdigest()}
        for name, a in arrays.items()
    }


def train_config(steps: int) -> TrainConfig:
    """Lengths of a run with about twenty evaluations, each after a whole number of compiled calls."""
    steps = _whole("steps", steps, 1)
    most = max(1, min(_MOST_STEPS_PER_CALL, steps // _NUM_EVALUATIONS))
    per_call = max(d for d in range(1, most + 1) if steps % d == 0)
    return TrainConfig(steps, per_call, eval_every=per_call * max(1, steps // (_NUM_EVALUATIONS * per_call)))


def _real(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{name} must be an array: {error}") from error
    inputs.check_real(name, array)
    with np.errstate(over="ignore"):  # infinities are refused with the other values that are not finite
        return np.asarray(array, np.float32, order="C")


def _whole(name: str, value: Any, least: int) -> int:
    """The number as JSON can hold it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def _batch_size(wanted: int, num_train: int) -> int:
    """A multiple of the number of devices, over which batches are cut: at least ``wanted`` if there are as many."""
    devices = len(jax.devices())
    largest = max(1, num_train // devices) * devices
    return min(-(-wanted // devices) * devices, largest)
