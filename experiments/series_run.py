"""Training runs on series of observed vectors; several seeds of one cell can be trained at once."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ctfno_jax import metrics, predict
from ctfno_jax.config import ConfigError, DatasetConfig, ExperimentConfig
from ctfno_jax.data import batching, plane_vibration, registry, series, synthetic
from ctfno_jax.data.normalization import Normalization
from ctfno_jax.models import ctfno
from ctfno_jax.training import checkpoint, loop, objectives, optimizers, sharding
from ctfno_jax.training import step as step_lib
from experiments import device_checks, files, hooks, run_folder, series_result
from experiments.progress import GenerationLine, ProgressLine, duration

# Settings of the training that mean nothing without space, and the value that leaves them unused.
_OF_FIELDS = {
    "train_grid": 0, "train_times": 0, "sign_flips": False, "reflections": False, "translations": False,
    "random_starts": 0.0, "random_splits": 0.0, "window": 0, "frame": "", "shared_normalization": False,
}  # fmt: skip

# Models whose state at time zero is that of the last observation.
_FROM_LAST = ("node", "anode", "neural_flow")

# Losses that are methods of some models.
_OWN_LOSSES = {
    "elbo": ("negative_elbo", "a latent distribution"),
    "with_steps": ("loss_with_steps", "a state at each observation"),
}


def check_settings(config: ExperimentConfig) -> None:
    """Raises for what follows from the config alone."""
    for name, unused in _OF_FIELDS.items():
        if getattr(config.train, name) != unused:
            raise ConfigError(f"{name} is a setting for fields; {config.dataset.dataset} is a series, remove it")
    optimizers.optimizer(config.optimizer, config.train.steps)
    model = predict.model_of(config)
    clock = config.dataset.data_options.get("clock")
    if clock == "zero" and config.model.model in _FROM_LAST:
        raise ConfigError(
            f"{config.model.model} starts at the last observation, time zero; remove the option clock=zero"
        )
    if clock == "segment" and hasattr(model, "loss_with_steps"):
        raise ConfigError(
            f"{config.model.model} follows its equation from the last observation, whose time must be on the clock of "
            "the queries; use clock=forecast or clock=last"
        )
    if config.dataset.dataset == plane_vibration.NAME:
        _check_record(config)
    if config.train.loss in _OWN_LOSSES:
        method, what = _OWN_LOSSES[config.train.loss]
        if not hasattr(model, method):
            raise ConfigError(f"loss={config.train.loss} is for models with {what}; {config.model.model} has none")
    else:
        objectives.objective(config.train.loss)


def _check_record(config: ExperimentConfig) -> None:
    """A record is cut as its options say, not by the settings of generated data."""
    for name in ("num_train", "num_validation", "num_test", "data_seed"):
        if getattr(config.dataset, name) != getattr(DatasetConfig, name):
            raise ConfigError(f"{config.dataset.dataset} is cut in order as published; remove --{name}")


def load(config: ExperimentConfig, data_dir: str | None = None) -> series.SeriesDataset:
    """The data of a run, with a line that says what is in it."""
    start = time.perf_counter()
    d = config.dataset
    options: dict[str, Any] = dict(d.data_options)
    if d.dataset == plane_vibration.NAME:
        data = registry.load_dataset(d.dataset, data_dir=data_dir, **options)
        assert isinstance(data, series.SeriesDataset)
    else:
        data = synthetic.load_series(
            d.dataset, num_train=d.num_train, num_validation=d.num_validation, num_test=d.num_test, seed=d.data_seed,
            progress=GenerationLine(d.dataset), **options,
        )  # fmt: skip
    facts = ", ".join(f"{name} {value:.4g}" for name, value in data.info.items())
    print(f"{d.dataset}: {facts} ({duration(time.perf_counter() - start)})", flush=True)
    return data


def run(
    configs: list[ExperimentConfig], workdirs: list[Path], *, resume: bool = False, parallel: str = "shard_map",
    tensorboard: bool = False, data_dir: str | None = None, more_scores: series_result.MoreScores | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Trains, evaluates and writes all files of the runs, which differ in their seeds only; returns their results."""
    if len(configs) > 1 and parallel != "shard_map":
        raise ConfigError(f"several seeds at once share one device; parallel={parallel} needs one seed at a time")
    for config in configs:
        check_settings(config)
    found = [run_folder.claim_workdir(w, c, resume=resume) for c, w in zip(configs, workdirs, strict=True)]
    finished = {workdir: result for workdir, result in zip(workdirs, found, strict=True) if result is not None}
    for workdir in finished:
        print(f"{workdir} has finished already; nothing to do")
    left = [(c, w) for c, w in zip(configs, workdirs, strict=True) if w not in finished]
    if left:
        results = _train(
            [c for c, _ in left], [w for _, w in left], resume, parallel, tensorboard, data_dir, more_scores
        )
        finished |= dict(zip((w for _, w in left), results, strict=True))
    return [finished[workdir] for workdir in workdirs]


def _train(
    configs: list[ExperimentConfig], workdirs: list[Path], resume: bool, parallel: str, tensorboard: bool,
    data_dir: str | None, more_scores: series_result.MoreScores | None,
) -> list[dict[str, Any]]:  # fmt: skip
    config = configs[0]
    # Several seeds share one device; a single one is cut over all of them.
    devices = jax.local_devices()[: 1 if len(configs) > 1 else None]
    model: Any = predict.model_of(config)
    device_checks.check_devices(config, model, len(devices))
    data = load(config, data_dir)
    _check_fit(config, model, data)
    statistics = series.normalization_of(data, data.train.inputs(with_times=not data.train.regular).shape[-1])
    arrays = sharding.replicate(_arrays(data.train, statistics), devices)
    optimizer = optimizers.optimizer(config.optimizer, config.train.steps)
    states = [_initial_state(c, model, optimizer, arrays) for c in configs]
    multi_step = _multi_step(config, model, optimizer, parallel, devices, len(configs))
    evaluate = _validator(model, data.validation, statistics)
    num_params = ctfno.num_parameters(states[0].params["params"])
    print(
        f"{config.model.model}: {num_params:,} parameters; {len(data.train)} series; {len(configs)} seed(s) at once; "
        f"{len(devices)} {devices[0].platform} device(s)",
        flush=True,
    )
    descriptions = [
        predict.describe_run(c, statistics, arrays.u0.shape, data.train.times, arrays.u0.shape) for c in configs
    ]
    for c, workdir in zip(configs, workdirs, strict=True):
        files.write_text(workdir / "config.json", c.to_json())
    with ExitStack() as stack:
        stores = [
            stack.enter_context(checkpoint.CheckpointStore(w / "checkpoints", keep_latest=c.train.keep_checkpoints))
            for c, w in zip(configs, workdirs, strict=True)
        ]
        seconds = 0.0
        if resume:
            restored = [run_folder.restore(*some) for some in zip(stores, states, descriptions, strict=True)]
            states, seconds = [state for state, _ in restored], restored[0][1]
        if len({int(state.step) for state in states}) > 1:
            raise ConfigError("the runs stand at different steps; resume each of them by itself, with one --seed")
        if int(states[0].step):
            print(f"resumed at step {int(states[0].step)}", flush=True)
        else:
            evaluate(states[0].evaluation_params)  # a mistake in the evaluation shows now
        followers = []
        for state, workdir, store, description in zip(states, workdirs, stores, descriptions, strict=True):
            files.truncate_json_lines(workdir / "metrics.jsonl", int(state.step))
            some = [hooks.metrics_hook(workdir), hooks.checkpoint_hook(store, description)]
            followers.append([*some, hooks.tensorboard_hook(workdir)] if tensorboard else some)
        followers[0].append(ProgressLine())
        loop.fit_together(
            states, multi_step, arrays, num_steps=config.train.steps, steps_per_call=config.train.steps_per_call,
            eval_every=config.train.eval_every, evaluate_fn=evaluate, hooks=followers, train_seconds=seconds,
        )  # fmt: skip
        ends = [(store.restore_best(), store.restore_last()) for store in stores]
    return [
        series_result.finish(c, w, data, best, last, num_params, more_scores)  # pyright: ignore[reportArgumentType]
        for c, w, (best, last) in zip(configs, workdirs, ends, strict=True)
    ]


def _check_fit(config: ExperimentConfig, model: Any, data: series.SeriesDataset) -> None:
    """Raises for a model that does not fit its data."""
    num_times = data.train.times.shape[-1]
    if config.train.batch_size > len(data.train):
        raise ConfigError(
            f"batch_size={config.train.batch_size} exceeds the {len(data.train)} training series; lower it"
        )
    if config.train.times_per_step > num_times:
        raise ConfigError(
            f"times_per_step={config.train.times_per_step} exceeds the {num_times} times of the data; use 0 for all"
        )
    if model.out_features != data.train.features:
        raise ConfigError(
            f"{config.dataset.dataset} has {data.train.features} features, but out_features={model.out_features}"
        )
    problem = predict.unanswerable(model, data.train.times)
    if problem is not None:
        raise ConfigError(f"the model does not fit the times of the data: {problem}")


def _arrays(some: series.Series, statistics: Normalization) -> batching.FieldArrays:
    """What a model reads and learns, normalised."""
    inputs = statistics.inputs.normalize(some.inputs(with_times=not some.regular))
    values = statistics.outputs.normalize(some.values)
    return batching.FieldArrays(jnp.asarray(inputs), jnp.asarray(some.times), jnp.asarray(values))


def _initial_state(config: ExperimentConfig, model: Any, optimizer: Any, arrays: batching.FieldArrays):
    params_key, batch_key = jax.random.split(jax.random.key(config.seed))
    params = jax.jit(model.init)(params_key, arrays.u0[:1], arrays.times[:1])
    return step_lib.create_state(params, optimizer, batch_key, average_decay=config.optimizer.average_decay)


def _loss(config: ExperimentConfig, model: Any) -> Callable[[Any, batching.Batch, Any], Any]:
    if config.train.loss == "elbo":
        return lambda params, batch, key: model.apply(
            params, batch.u0, batch.times, batch.target, key, method="negative_elbo"
        )
    if config.train.loss in _OWN_LOSSES:
        method = _OWN_LOSSES[config.train.loss][0]
        return lambda params, batch, key: model.apply(params, batch.u0, batch.times, batch.target, method=method)
    objective = objectives.objective(config.train.loss)

    def where_answered(prediction: Any, target: Any) -> Any:
        # Where the solver ran out of steps there is nothing to learn from; the validation counts such series.
        return objective(jnp.where(jnp.isfinite(prediction), prediction, target), target)

    plain = step_lib.make_loss(model.apply, where_answered if hasattr(model, "stepping") else objective)
    return lambda params, batch, key: plain(params, batch)


def _multi_step(
    config: ExperimentConfig, model: Any, optimizer: Any, parallel: str, devices: list[Any], num_seeds: int
) -> Callable[[list[Any], Any], tuple[list[Any], list[Any]]]:
    train = config.train
    loss = _loss(config, model)
    sampling = batching.Sampling(batch_size=train.batch_size, times_per_step=train.times_per_step)

    def step_fn(axis_name: str | None) -> sharding.StepFn:
        def step(state: step_lib.TrainState, batch: batching.Batch):
            key = jax.random.fold_in(jax.random.fold_in(state.key, 2), state.step)
            return step_lib.train_step(
                state, batch, loss_fn=lambda params, some: loss(params, some, key), optimizer=optimizer,
                average_decay=config.optimizer.average_decay, axis_name=axis_name,
            )  # fmt: skip

        return step

    def sample_fn(data: batching.FieldArrays, state: step_lib.TrainState, shard: Any, num_shards: int):
        return batching.sample(data, state.key, state.step, sampling, shard=shard, num_shards=num_shards)

    if num_seeds == 1:
        one = sharding.make_multi_step(
            step_fn(sharding.AXIS), sample_fn, train.steps_per_call, parallel=parallel, devices=devices
        )

        def single(states: list[Any], data: Any) -> tuple[list[Any], list[Any]]:
            state, losses = one(states[0], data)
            return [state], [losses]

        return single
    local = step_fn(None)

    @jax.jit
    def together(stacked: Any, data: Any) -> tuple[Any, Any]:
        def steps(state: Any) -> tuple[Any, Any]:
            body = lambda s, _: local(s, sample_fn(data, s, 0, 1))  # noqa: E731
            return jax.lax.scan(body, state, None, length=train.steps_per_call)

        return jax.vmap(steps)(stacked)

    def all_seeds(states: list[Any], data: Any) -> tuple[list[Any], list[Any]]:
        stacked, losses = together(jax.tree.map(lambda *leaves: jnp.stack(leaves), *states), data)
        return [jax.tree.map(lambda leaf, i=i: leaf[i], stacked) for i in range(num_seeds)], list(losses)

    return all_seeds


def _validator(model: Any, validation: series.Series, statistics: Normalization) -> loop.Evaluate:
    apply_fn = jax.jit(model.apply)
    arrays = _arrays(validation, statistics)

    def evaluate(params: Any) -> dict[str, float]:
        values = statistics.outputs.denormalize(np.asarray(apply_fn(params, arrays.u0, arrays.times)))
        solved = series_result.solved(values)
        if not solved.any():
            raise loop.TrainingDiverged("the solver answers none of the validation series; raise max_steps")
        return {
            checkpoint.METRIC: metrics.rmse(values[solved], validation.values[solved]),
            "validation_unsolved": float(np.sum(~solved)),
        }

    return evaluate
