"""One training run on a field data set, from config to the best state; ``field_result`` judges that."""

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ctfno_jax import metrics, predict
from ctfno_jax.config import ConfigError, ExperimentConfig
from ctfno_jax.data import batching, equations, fields, normalization, registry
from ctfno_jax.data.frames import Frame
from ctfno_jax.models import ctfno
from ctfno_jax.models.registry import build_model
from ctfno_jax.training import checkpoint, loop, objectives, optimizers, sharding
from ctfno_jax.training import step as step_lib
from experiments import device_checks, field_checks, field_result, files, hooks, run_folder
from experiments.progress import GenerationLine, ProgressLine, duration


def run(
    config: ExperimentConfig, workdir: Path, *, resume: bool = False, parallel: str = "shard_map",
    tensorboard: bool = False, data_file: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Trains, evaluates and writes all files of one cell; returns its result."""
    if config.dataset.data_file != (data_file.name if data_file else ""):
        raise ConfigError(f"the config reads {config.dataset.data_file or 'no file'}, but {data_file} was given")
    finished = run_folder.claim_workdir(workdir, config, resume=resume)
    if finished is not None:
        print(f"{workdir} has finished already; nothing to do")
        return finished
    devices = jax.local_devices()
    equation = equations.EQUATIONS[config.dataset.dataset]
    model = build_model(config.model.model, **config.model.model_fields)
    device_checks.check_devices(config, model, len(devices))
    field_checks.check_settings(config, model)
    data = load(config, data_file)
    frame = predict.frame_of(config)
    train = data.train if frame is None else frame.enter(data.train)
    field_checks.check_fit(config, model, data.train.times, train.times, train.u.shape[-1])
    statistics = _statistics(config, equation, frame, train)
    train_set, training_model = _for_training(config, model, train)
    arrays = sharding.replicate(_to_device(train_set, statistics, _weights(frame, data.train, statistics)), devices)
    optimizer = optimizers.optimizer(config.optimizer, config.train.steps)
    state = _initial_state(config, training_model, optimizer, arrays)
    multi_step = _multi_step(config, training_model, optimizer, parallel, devices)
    evaluate = _validator(config, model, frame, data, statistics)
    num_params = ctfno.num_parameters(state.params["params"])
    print(
        f"{config.model.model}: {num_params:,} parameters; {len(train_set)} trajectories "
        f"on {train_set.grid[0]} points; {len(devices)} {devices[0].platform} device(s)",
        flush=True,
    )
    # A model that cannot answer on the grid of the test set says so now, not after the training.
    jax.eval_shape(
        model.apply, state.params, jnp.zeros((1, *train.grid, train.u0.shape[-1])), train.select(slice(1)).times
    )
    description = predict.describe_run(config, statistics, arrays.u0.shape, data.train.times, data.train.u0.shape)
    # Only now, with every setting obeyed so far, does the folder become this run's.
    files.write_text(workdir / "config.json", config.to_json())
    with checkpoint.CheckpointStore(workdir / "checkpoints", keep_latest=config.train.keep_checkpoints) as store:
        state, seconds = run_folder.restore(store, state, description) if resume else (state, 0.0)
        if int(state.step):
            print(f"resumed at step {int(state.step)}", flush=True)
        files.truncate_json_lines(workdir / "metrics.jsonl", int(state.step))
        if not int(state.step):
            evaluate(state.evaluation_params)  # a mistake in the evaluation shows now, not after the first minutes
        followers = [hooks.metrics_hook(workdir), hooks.checkpoint_hook(store, description), ProgressLine()]
        if tensorboard:
            followers.append(hooks.tensorboard_hook(workdir))
        loop.fit(
            state, multi_step, arrays, num_steps=config.train.steps, steps_per_call=config.train.steps_per_call,
            eval_every=config.train.eval_every, evaluate_fn=evaluate, hooks=followers, train_seconds=seconds,
        )  # fmt: skip
        best, last = store.restore_best(), store.restore_last()
    assert best is not None
    assert last is not None
    return field_result.finish(config, workdir, data, best, last, num_params, data_file)


def load(config: ExperimentConfig, data_file: Path | None = None) -> fields.FieldDataset:
    """The data of a run, with a line that says what is in it."""
    start = time.perf_counter()
    d = config.dataset
    data = registry.load_fields(
        d.dataset, num_train=d.num_train, num_validation=d.num_validation, num_test=d.num_test, seed=d.data_seed,
        data_file=data_file, progress=GenerationLine(d.dataset), **d.data_options,
    )  # fmt: skip
    facts = ", ".join(f"{name} {value:.4g}" for name, value in data.info.items())
    print(f"{d.dataset}, {data.source}: {facts} ({duration(time.perf_counter() - start)})", flush=True)
    return data


def _statistics(
    config: ExperimentConfig, equation: equations.Equation, frame: Frame | None, train: fields.Trajectories
) -> normalization.Normalization:
    """From training data only; channels that a symmetry in use turns round have mean zero."""
    if frame is not None and frame.own_units:
        return normalization.identity(train.u0.shape[-1], train.u.shape[-1])
    odd = [False] * len(equation.channels)
    if config.train.sign_flips:
        odd = [True] * len(odd)
    elif config.train.reflections and equation.reflection is not None:
        odd = [sign < 0 for sign in equation.reflection]
    return normalization.fit(train, shared=config.train.shared_normalization, centred=tuple(odd) if any(odd) else None)


def _coarse(trajectories: fields.Trajectories, grid: int) -> fields.Trajectories:
    return trajectories.coarsen(grid) if grid else trajectories


def _for_training(config: ExperimentConfig, model: Any, train: fields.Trajectories) -> tuple[fields.Trajectories, Any]:
    """The training set on the grid and times of the training, and the model that fits them."""
    train_set = _coarse(train, config.train.train_grid)
    if not config.train.train_times:
        return train_set, model
    return train_set.thin(config.train.train_times), model.resampled(config.train.train_times)


def _weights(
    frame: Frame | None, train: fields.Trajectories, statistics: normalization.Normalization
) -> np.ndarray | None:
    """What an error in a frame counts outside of it, in standard deviations of the training data there."""
    if frame is None:
        return None
    worth = frame.worth(frame.place(train.u0), np.asarray(normalization.channel_statistics(train.u).std))
    return (worth * np.asarray(statistics.outputs.std)).astype(np.float32)


def _to_device(
    trajectories: fields.Trajectories, statistics: normalization.Normalization, weight: np.ndarray | None = None
) -> batching.FieldArrays:
    return batching.FieldArrays(
        u0=jnp.asarray(statistics.inputs.normalize(trajectories.u0)),
        times=jnp.asarray(trajectories.times),
        u=jnp.asarray(statistics.outputs.normalize(trajectories.u)),
        weight=None if weight is None else jnp.asarray(weight),
    )


def _initial_state(config: ExperimentConfig, model: Any, optimizer: Any, arrays: batching.FieldArrays):
    params_key, batch_key = jax.random.split(jax.random.key(config.seed))
    params = jax.jit(model.init)(params_key, arrays.u0[:1], arrays.times[:1])
    if hasattr(model, "initialize_from_data"):
        params = model.initialize_from_data(params, arrays.u0, arrays.times, _with_reflections(config, arrays.u))
    return step_lib.create_state(params, optimizer, batch_key, average_decay=config.optimizer.average_decay)


def _with_reflections(config: ExperimentConfig, u: Any) -> Any:
    """The solutions, and their images if the run reflects them in place."""
    signs = equations.EQUATIONS[config.dataset.dataset].reflection
    # Fields that are moved about have more images than a basis could be made of.
    if not config.train.reflections or config.train.translations or signs is None:
        return u
    return np.concatenate([u, np.asarray(batching.reflected(u, 2, signs))])


def _multi_step(config: ExperimentConfig, model: Any, optimizer: Any, parallel: str, devices: list[Any]):
    train = config.train
    apply_fn = model.apply
    horizon = getattr(model, "horizon", None)
    if train.window:
        apply_fn = lambda params, u0, times: model.apply(  # noqa: E731
            params, u0, times if horizon is not None else times.shape[0], method="rollout"
        )
    loss_fn = step_lib.make_loss(apply_fn, objectives.objective(train.loss))
    equation = equations.EQUATIONS[config.dataset.dataset]
    sampling = batching.Sampling(
        batch_size=train.batch_size, times_per_step=train.times_per_step, random_starts=train.random_starts,
        window=train.window, horizon=horizon, random_splits=train.random_splits,
        sign_flips=train.sign_flips, translations=train.translations,
        reflection=equation.reflection if train.reflections else None,
    )  # fmt: skip

    def step_fn(state: step_lib.TrainState, batch: batching.Batch):
        return step_lib.train_step(
            state, batch, loss_fn=loss_fn, optimizer=optimizer, average_decay=config.optimizer.average_decay,
            axis_name=sharding.AXIS,
        )  # fmt: skip

    def sample_fn(data: batching.FieldArrays, state: step_lib.TrainState, shard: Any, num_shards: int):
        return batching.sample(data, state.key, state.step, sampling, shard=shard, num_shards=num_shards)

    return sharding.make_multi_step(step_fn, sample_fn, train.steps_per_call, parallel=parallel, devices=devices)


def _validator(
    config: ExperimentConfig, model: Any, frame: Frame | None, data: fields.FieldDataset,
    statistics: normalization.Normalization,
) -> loop.Evaluate:  # fmt: skip
    """Errors on the validation set as the test set will be judged: outside of any frame, but on the training grid.

    That also coarsens the frame itself, by the same little at every look, unless it has a grid of its own.
    """
    own_grid = frame is not None and frame.own_grid
    flows = data.validation if own_grid else _coarse(data.validation, config.train.train_grid)
    u0, times = flows.u0, flows.times
    placement = None
    if frame is not None:
        placement = frame.place(u0)
        u0, times = placement.state, frame.enter_times(times, placement)
    apply_fn = jax.jit(predict.reaching(model, times).apply)
    u0, times = jnp.asarray(statistics.inputs.normalize(u0)), jnp.asarray(times)
    # In units of the deviation, so that every channel counts alike; with one channel, in the channel's own.
    deviation = np.asarray(normalization.channel_statistics(data.train.u).std, np.float32)
    units = deviation if len(deviation) > 1 else np.float32(1)

    def evaluate(params: Any) -> dict[str, float]:
        u = statistics.outputs.denormalize(np.asarray(apply_fn(params, u0, times)))
        if frame is not None and placement is not None:
            u = frame.leave(u, flows.times, placement)
        return {
            checkpoint.METRIC: metrics.rmse(u / units, flows.u / units),
            "validation_nrmse": metrics.nrmse(u, flows.u),
        }

    return evaluate
