"""The only training path: any task, one seed over all devices or several seeds at once, resumable bitwise."""

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ctfno_jax.config import ConfigError, OptimizerConfig, TrainConfig
from ctfno_jax.training import checkpoint, loop, optimizers, progress
from ctfno_jax.training import step as step_lib
from ctfno_jax.training.task import Buckets, Task
from ctfno_jax.training.workdir import TensorBoardHook, Workdir
from ctfno_jax.types import Params


@dataclasses.dataclass(frozen=True)
class Trained:
    """The result of training one seed.

    Attributes:
      params: variables of the state with the least validation error.
      metrics: validation metrics of that state.
      best_step: its step.
      step: updates made in all.
      train_seconds: wall time spent in steps.
      cpu_seconds: CPU time of the process in the training loop, compilation and evaluation included.
    """

    params: Params
    metrics: dict[str, float]
    best_step: int
    step: int
    train_seconds: float
    cpu_seconds: float


def train(
    task: Task,
    *,
    optimizer: OptimizerConfig,
    config: TrainConfig,
    seeds: Sequence[int] = (0,),
    workdirs: Sequence[Workdir] = (),
    parallel: str = "shard_map",
    show_progress: bool = True,
    tensorboard: bool = False,
) -> list[Trained]:
    """Trains a task, once for each seed.

    Args:
      task: what is learned.
      optimizer: settings of the optimizer.
      config: lengths.
      seeds: one is sharded over all devices; several are trained at once on the first device, by vmap.
      workdirs: an open folder for each seed; without any, nothing is written and the best state is kept in memory.
      parallel: ``"shard_map"`` or ``"pmap"``, for one seed.
      show_progress: print a progress line.
      tensorboard: also write TensorBoard events into the folders.

    Returns:
      The best state of each seed.
    """
    if len(seeds) > 1 and parallel != "shard_map":
        raise ConfigError(f"several seeds share one device; parallel={parallel} needs one seed at a time")
    if len(workdirs) not in (0, len(seeds)) or (tensorboard and not workdirs):
        raise ConfigError(f"{len(seeds)} seed(s) need a workdir each, or none and no TensorBoard; got {len(workdirs)}")
    devices = jax.devices()[: 1 if len(seeds) > 1 else None]
    update = optimizers.optimizer(optimizer, config.steps)
    # A batch that cannot be sharded over the devices is refused here, before anything is written.
    for arrays in task.arrays.arrays if isinstance(task.arrays, Buckets) else (task.arrays,):
        jax.eval_shape(lambda a: task.sample(a, jax.random.key(0), jnp.int32(0), 0, len(devices)), arrays)
    states = [_initial_state(task, update, seed, optimizer.average_decay) for seed in seeds]
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), states[0].params)
    multi_step = _multi_step(
        task, update, optimizer.average_decay, config.steps_per_call, devices, parallel, len(seeds)
    )
    description = {**task.describe(), "averaged": bool(optimizer.average_decay)} if workdirs else {}
    with ExitStack() as stack:
        stores = [
            stack.enter_context(checkpoint.CheckpointStore(w.checkpoints, keep_latest=config.keep_checkpoints))
            for w in workdirs
        ]
        states, spent = _restored(workdirs, stores, states)
        step = int(states[0].step)
        if step and show_progress:
            print(f"resumed at step {step}", flush=True)
        evaluate = lambda params: task.evaluate(_on_default_device(params), "validation")  # noqa: E731
        if not step:
            evaluate(states[0].evaluation_params)  # a mistake in the evaluation shows now
        memories = [_Memory(task.metric) for _ in seeds]
        hooks: list[list[loop.Hook]] = [[memory] for memory in memories]
        for followers, w, store in zip(hooks, workdirs, stores, strict=False):
            followers[:] = w.hooks(store, description, task.metric)
            if tensorboard:
                followers.append(stack.enter_context(TensorBoardHook(w.path)))
        if show_progress:
            hooks[0].append(progress.ProgressLine(task.metric))
        for w in workdirs:
            w.begin(step)
        try:
            # On their devices from the start, or the second call would compile again for the sharding of its input.
            loop.fit(
                step_lib.replicate(states, devices), multi_step, _on_devices(task.arrays, devices), config=config,
                evaluate_fn=evaluate, hooks=hooks, spent=spent,
            )  # fmt: skip
        except loop.Interrupted as error:
            where = ", ".join(str(w.path) for w in workdirs)
            saved = f"saved in {where}; continue with resume (--resume)" if where else "nothing was saved"
            raise loop.Interrupted(f"{error}; {saved}") from None
        if not workdirs:
            return [memory.trained() for memory in memories]
        return [_from_store(store, like) for store in stores]


def _restored(
    workdirs: Sequence[Workdir], stores: Sequence[checkpoint.CheckpointStore], states: list[step_lib.TrainState]
) -> tuple[list[step_lib.TrainState], loop.Spent]:
    """The states to continue from, all at the same step, and the seconds spent on each of them."""
    if not workdirs:
        return states, loop.Spent()
    found = [w.restore(store, state) for w, store, state in zip(workdirs, stores, states, strict=True)]
    states = [state for state, _ in found]
    if len({int(state.step) for state in states}) > 1:
        raise ConfigError("the runs stand at different steps; resume each of them alone, with one seed")
    return states, found[0][1]


def _initial_state(task: Task, update: Any, seed: int, average_decay: float) -> step_lib.TrainState:
    params_key, batch_key = jax.random.split(jax.random.key(seed))
    return step_lib.create_state(task.init(params_key), update, batch_key, average_decay=average_decay)


def _on_devices(arrays: Any, devices: Sequence[Any]) -> Any:
    if isinstance(arrays, Buckets):
        return dataclasses.replace(arrays, arrays=[step_lib.replicate(some, devices) for some in arrays.arrays])
    return step_lib.replicate(arrays, devices)


def _on_default_device(params: Params) -> Params:
    """The parameters as new arrays: their sharding is that of loaded ones, so an evaluation compiles only once."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), params)


def _multi_step(
    task: Task, update: Any, average_decay: float, steps_per_call: int, devices: Sequence[Any], parallel: str,
    num_seeds: int,
) -> step_lib.MultiStep:  # fmt: skip
    def step_fn(
        state: step_lib.TrainState, batch: Any, axis_name: str | None, shard: Any
    ) -> tuple[step_lib.TrainState, Any]:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(state.key, 2), state.step), shard)
        return step_lib.train_step(
            state, batch, loss_fn=lambda params, some: task.loss(params, some, key), optimizer=update,
            average_decay=average_decay, axis_name=axis_name,
        )  # fmt: skip

    def sample_fn(arrays: Any, state: step_lib.TrainState, shard: Any, num_shards: int) -> Any:
        return task.sample(arrays, state.key, state.step, shard, num_shards)

    if num_seeds > 1:
        return step_lib.over_seeds(step_fn, sample_fn, steps_per_call)
    return step_lib.over_devices(step_fn, sample_fn, steps_per_call, devices=devices, parallel=parallel)


class _Memory:
    """A hook that keeps the best state when there is no folder to keep it in."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._best: tuple[Params, dict[str, float], int] | None = None
        self._report: loop.Report | None = None

    def __call__(self, state: step_lib.TrainState, report: loop.Report) -> None:
        self._report = report
        if report.metrics is None:
            return
        # The latest of equals, as in a CheckpointStore.
        if self._best is None or report.metrics[self._metric] <= self._best[1][self._metric]:
            # A copy: the buffers of the state are donated to the next call.
            self._best = (jax.tree.map(np.array, state.evaluation_params), report.metrics, report.step)

    def trained(self) -> Trained:
        assert self._best is not None
        assert self._report is not None
        params, metrics, best_step = self._best
        # Loaded as from a folder, without the sharding of the training: what is compiled for one fits the other.
        params, report = jax.tree.map(jnp.asarray, params), self._report
        return Trained(params, metrics, best_step, report.step, report.train_seconds, report.cpu_seconds)


def _from_store(store: checkpoint.CheckpointStore, like: Any) -> Trained:
    best, last = store.restore_best(), store.restore_last()
    assert best is not None
    assert last is not None
    params = jax.tree.map(jnp.asarray, best_params(best, like))
    seconds = (float(last.description[name]) for name in ("train_seconds", "cpu_seconds"))
    return Trained(params, best.description["metrics"], best.step, last.step, *seconds)


def best_params(saved: checkpoint.Checkpoint, like: Any) -> Any:
    """The variables in a checkpoint that predictions are made with, as NumPy arrays in a tree like ``like``."""
    prefix = "average/" if saved.description["averaged"] else "params/"
    arrays = {name.removeprefix(prefix): a for name, a in saved.arrays.items() if name.startswith(prefix)}
    return checkpoint.unflatten(arrays, like, any_dtype=True)
