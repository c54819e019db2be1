"""One training run on a field data set, from config to result.json."""

import dataclasses
import json
import platform
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ctfno_jax import metrics, predict
from ctfno_jax.certify import measured_gain
from ctfno_jax.config import ConfigError, ExperimentConfig
from ctfno_jax.data import batching, fields, normalization, registry
from ctfno_jax.models import ctfno
from ctfno_jax.models.registry import build_model
from ctfno_jax.plotting import fields as plots
from ctfno_jax.training import checkpoint, loop, objectives, optimizers, sharding
from ctfno_jax.training import step as step_lib
from experiments import files, paper_results
from experiments.progress import ProgressLine, duration


def default_workdir(config: ExperimentConfig) -> Path:
    """``runs/<experiment>/<dataset>/<model>/seed<k>``."""
    return Path("runs") / config.experiment / config.dataset.dataset / config.model.model / f"seed{config.seed}"


def row_path(results_dir: str | Path, config: ExperimentConfig) -> Path:
    """Where the row of a cell is kept."""
    name = f"{config.dataset.dataset}-{config.model.model}-{config.preset}-seed{config.seed}.json"
    return Path(results_dir) / config.experiment / name


def claim_workdir(workdir: Path, config: ExperimentConfig, *, resume: bool) -> dict[str, Any] | None:
    """Raises if the folder is not this run's to write in; returns its result if the run has finished already."""
    path = workdir / "config.json"
    started = (workdir / "checkpoints").exists()
    if started and not path.exists():
        raise ConfigError(f"{workdir} holds checkpoints without a config.json; choose another --workdir")
    if path.exists():
        existing = ExperimentConfig.load(path)
        if started and json.loads(existing.to_json()) != json.loads(config.to_json()):
            raise ConfigError(
                f"{workdir} belongs to another config ({_difference(existing, config)}); choose another --workdir"
            )
        if (workdir / "result.json").exists():
            return json.loads((workdir / "result.json").read_text())
        if started and not resume:
            raise ConfigError(f"{workdir} holds an unfinished run; go on with --resume, or choose another --workdir")
    files.make_directory(workdir)
    return None


def _difference(existing: ExperimentConfig, config: ExperimentConfig) -> str:
    there, here = _leaves(dataclasses.asdict(existing)), _leaves(dataclasses.asdict(config))
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    text = ", ".join(f"{name} is {there.get(name)} there and {here.get(name)} here" for name in names[:3])
    return text + (f", and {len(names) - 3} more" if len(names) > 3 else "")


def _leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves = {}
    for name, value in values.items():
        if isinstance(value, dict):
            leaves.update(_leaves(value, f"{prefix}{name}."))
        else:
            leaves[prefix + name] = list(value) if isinstance(value, tuple) else value
    return leaves


def run(
    config: ExperimentConfig, workdir: Path, *, resume: bool = False, parallel: str = "shard_map",
    tensorboard: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Trains, evaluates and writes all files of one cell; returns its result."""
    finished = claim_workdir(workdir, config, resume=resume)
    if finished is not None:
        print(f"{workdir} has finished already; nothing to do")
        return finished
    devices = jax.local_devices()
    sharding.check_batch(config.train.batch_size, len(devices))
    data = _load(config)
    if config.train.times_per_step > len(data.train.times):
        raise ConfigError(
            f"times_per_step={config.train.times_per_step} exceeds the {len(data.train.times)} times of the data; "
            "use 0 for all of them"
        )
    statistics = normalization.fit(data.train)
    model = build_model(config.model.model, **config.model.model_fields)
    train_set = _coarse(data.train, config.train.train_grid)
    arrays = sharding.replicate(_to_device(train_set, statistics), devices)
    optimizer = optimizers.optimizer(config.optimizer, config.train.steps)
    state = _initial_state(config, model, optimizer, arrays)
    multi_step = _multi_step(config, model, optimizer, parallel, devices)
    evaluate = _validator(model, _coarse(data.validation, config.train.train_grid), statistics)
    num_params = ctfno.num_parameters(state.params)
    print(
        f"{config.model.model}: {num_params:,} parameters; {len(train_set)} trajectories "
        f"on {train_set.grid[0]} points; {len(devices)} {devices[0].platform} device(s)",
        flush=True,
    )
    description = predict.describe_run(config, statistics, arrays.u0.shape, float(train_set.times.max()))
    # Only now, with every setting obeyed so far, does the folder become this run's.
    files.write_text(workdir / "config.json", config.to_json())
    with checkpoint.CheckpointStore(workdir / "checkpoints", keep_latest=config.train.keep_checkpoints) as store:
        state, seconds = _restore(store, state, description) if resume else (state, 0.0)
        if int(state.step):
            print(f"resumed at step {int(state.step)}", flush=True)
        files.truncate_json_lines(workdir / "metrics.jsonl", int(state.step))
        if not int(state.step):
            evaluate(state.evaluation_params)  # a mistake in the evaluation shows now, not after the first minutes
        hooks = [_metrics_hook(workdir), _checkpoint_hook(store, description), ProgressLine()]
        if tensorboard:
            hooks.append(_tensorboard_hook(workdir))
        loop.fit(
            state, multi_step, arrays, num_steps=config.train.steps, steps_per_call=config.train.steps_per_call,
            eval_every=config.train.eval_every, evaluate_fn=evaluate, hooks=hooks, train_seconds=seconds,
        )  # fmt: skip
        best, last = store.restore_best(), store.restore_last()
    assert best is not None
    assert last is not None
    return _finish(config, workdir, data, best, last, num_params)


def _load(config: ExperimentConfig) -> fields.FieldDataset:
    start = time.perf_counter()
    d = config.dataset
    data = registry.load_dataset(
        d.dataset, num_train=d.num_train, num_validation=d.num_validation, num_test=d.num_test, seed=d.data_seed,
        **d.data_options,
    )  # fmt: skip
    facts = ", ".join(f"{name} {value:.4g}" for name, value in data.info.items())
    print(f"{d.dataset}: {facts} ({duration(time.perf_counter() - start)})", flush=True)
    return data


def _coarse(trajectories: fields.Trajectories, grid: int) -> fields.Trajectories:
    return trajectories.coarsen(grid) if grid else trajectories


def _to_device(trajectories: fields.Trajectories, statistics: normalization.Normalization) -> batching.FieldArrays:
    return batching.FieldArrays(
        u0=jnp.asarray(statistics.inputs.normalize(trajectories.u0)),
        times=jnp.asarray(trajectories.times),
        u=jnp.asarray(statistics.outputs.normalize(trajectories.u)),
    )


def _initial_state(config: ExperimentConfig, model: Any, optimizer: Any, arrays: batching.FieldArrays):
    params_key, batch_key = jax.random.split(jax.random.key(config.seed))
    params = jax.jit(model.init)(params_key, arrays.u0[:1], arrays.times[:1])
    return step_lib.create_state(params, optimizer, batch_key, average_decay=config.optimizer.average_decay)


def _multi_step(config: ExperimentConfig, model: Any, optimizer: Any, parallel: str, devices: list[Any]):
    train = config.train
    loss_fn = step_lib.make_loss(model.apply, objectives.objective(train.loss))

    def step_fn(state: step_lib.TrainState, batch: batching.Batch):
        return step_lib.train_step(
            state, batch, loss_fn=loss_fn, optimizer=optimizer, average_decay=config.optimizer.average_decay,
            axis_name=sharding.AXIS,
        )  # fmt: skip

    def sample_fn(data: batching.FieldArrays, state: step_lib.TrainState, shard: Any, num_shards: int):
        return batching.sample(
            data, state.key, state.step, batch_size=train.batch_size, times_per_step=train.times_per_step,
            sign_flips=train.sign_flips, shard=shard, num_shards=num_shards,
        )  # fmt: skip

    return sharding.make_multi_step(step_fn, sample_fn, train.steps_per_call, parallel=parallel, devices=devices)


def _validator(model: Any, validation: fields.Trajectories, statistics: normalization.Normalization) -> loop.Evaluate:
    apply_fn = jax.jit(model.apply)
    u0, times = jnp.asarray(statistics.inputs.normalize(validation.u0)), jnp.asarray(validation.times)

    def evaluate(params: Any) -> dict[str, float]:
        u = statistics.outputs.denormalize(np.asarray(apply_fn(params, u0, times)))
        return {
            checkpoint.METRIC: metrics.rmse(u, validation.u),
            "validation_nrmse": metrics.nrmse(u, validation.u),
        }

    return evaluate


def _restore(
    store: checkpoint.CheckpointStore, state: step_lib.TrainState, description: dict[str, Any]
) -> tuple[step_lib.TrainState, float]:
    """The last intact state and the seconds spent on it; the given ones if there is none yet."""
    last = store.restore_last()
    if last is None:
        return state, 0.0
    there, here = (_leaves(d["config"]) for d in (last.description, description))
    if there != here:
        raise ConfigError("the checkpoints in the workdir are of another config than its config.json")
    restored = jax.tree.map(jnp.asarray, checkpoint.unflatten(last.arrays, state))
    return restored, float(last.description["train_seconds"])


def _metrics_hook(workdir: Path) -> loop.Hook:
    def hook(state: step_lib.TrainState, report: loop.Report) -> None:
        del state
        values = {"step": report.step, "loss": report.loss, "seconds": round(report.train_seconds, 3)}
        files.append_json_line(workdir / "metrics.jsonl", {**values, **(report.metrics or {})})

    return hook


def _checkpoint_hook(store: checkpoint.CheckpointStore, description: dict[str, Any]) -> loop.Hook:
    def hook(state: step_lib.TrainState, report: loop.Report) -> None:
        if report.metrics is not None:
            store.save(report.step, state, {**description, "train_seconds": report.train_seconds}, report.metrics)

    return hook


def _tensorboard_hook(workdir: Path) -> loop.Hook:
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ConfigError("--tensorboard needs the tensorboard extra: pip install -e '.[tensorboard]'") from error
    writer = SummaryWriter(str(workdir / "tensorboard"))

    def hook(state: step_lib.TrainState, report: loop.Report) -> None:
        del state
        for name, value in {"loss": report.loss, **(report.metrics or {})}.items():
            writer.add_scalar(name, value, report.step)
        writer.flush()

    return hook


def _finish(
    config: ExperimentConfig, workdir: Path, data: fields.FieldDataset, best: checkpoint.Checkpoint,
    last: checkpoint.Checkpoint, num_params: int,
) -> dict[str, Any]:  # fmt: skip
    """The best state on the test set: numbers, figures and result.json."""
    predictor = predict.predictor_from_checkpoint(best)
    u = predictor(data.test.u0, data.test.times)
    scores = {
        "rmse": metrics.rmse(u, data.test.u),
        "nrmse": metrics.nrmse(u, data.test.u),
        "max_error": metrics.max_error(u, data.test.u),
        checkpoint.METRIC: best.description["metrics"][checkpoint.METRIC],
        "best_step": best.step,
    }
    scores.update(_between_times(config, predictor))
    scores.update(_stability(workdir, predictor, data))
    if len(data.test.grid) == 1:
        title = f"{config.dataset.dataset}: {config.model.model}, first test trajectory"
        figure = plots.heatmaps(data.test.u[0, ..., 0], u[0, ..., 0], data.test.times, title=title)
        files.write_figure(workdir / "figures" / "heatmap.png", figure)
    paper = paper_results.paper_result(config.experiment, config.dataset.dataset, config.model.model)
    result = {
        "experiment": config.experiment,
        "dataset": config.dataset.dataset,
        "model": config.model.model,
        "preset": config.preset,
        "seed": config.seed,
        "num_params": num_params,
        "steps": last.step,
        "train_seconds": round(float(last.description["train_seconds"]), 1),
        "train_grid": config.train.train_grid or data.train.grid[0],
        "metrics": scores,
        "paper": paper,
        "versions": {name: metadata.version(name) for name in ("jax", "flax", "optax", "orbax-checkpoint", "numpy")}
        | {"python": platform.python_version()},
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.local_devices()],
    }
    files.write_json(workdir / "result.json", result)
    return result


def _between_times(config: ExperimentConfig, predictor: predict.Predictor) -> dict[str, float]:
    """Error half-way between the times of the training data: what being continuous in time is worth."""
    d = config.dataset
    options = dict(d.data_options)
    if options.get("num_times") == 1:
        return {}
    unseen = registry.load_between_times(d.dataset, num_test=d.num_test, seed=d.data_seed, **options)
    return {"rmse_between_times": metrics.rmse(predictor(unseen.u0, unseen.times), unseen.u)}


def _stability(workdir: Path, predictor: predict.Predictor, data: fields.FieldDataset) -> dict[str, Any]:
    """Certified growth of an input error, and growth measured at the first test state, over all times of the data."""
    if not isinstance(predictor.model, ctfno.CTFNO):
        return {}
    times = data.test.times
    certified = predictor.lipschitz(times)
    measured = measured_gain(predictor.apply, predictor.params, jnp.asarray(data.test.u0[0]), jnp.asarray(times))
    figure = plots.growth(times, certified, measured, title=f"{data.name}: growth of an input error")
    files.write_figure(workdir / "figures" / "growth.png", figure)
    return {
        "certified_lipschitz": float(certified.max()),
        "measured_gain": float(measured.max()),
        "certificate_ratio": float((certified / measured).max()),
    }


def summary(result: dict[str, Any], workdir: Path) -> str:
    """The table that ends a run: ours, the paper's, the ratio."""
    ours, paper = result["metrics"], result["paper"] or {}
    printed = f"{paper['rmse']:.3e}" if "rmse" in paper else "-"
    ratio = f"{ours['rmse'] / paper['rmse']:.2f}" if "rmse" in paper else "-"
    lines = [
        f"{'':<22}{'ours':>12}{'paper':>12}{'ratio':>8}",
        f"{'test RMSE':<22}{ours['rmse']:>12.3e}{printed:>12}{ratio:>8}",
        f"{'test nRMSE':<22}{ours['nrmse']:>12.3e}{'-':>12}{'-':>8}",
        f"{'RMSE between times':<22}{ours.get('rmse_between_times', float('nan')):>12.3e}{'-':>12}{'-':>8}",
        f"{'parameters':<22}{result['num_params']:>12,}" + (f"{round(paper['num_params']):>12,}" if paper else ""),
        f"{'training seconds':<22}{result['train_seconds']:>12.0f}",
    ]
    if "certified_lipschitz" in ours:
        lines.append(
            f"{'certified growth':<22}{ours['certified_lipschitz']:>12.3g}   (measured {ours['measured_gain']:.3g})"
        )
    return "\n".join(["", *lines, f"files in {workdir}"])
