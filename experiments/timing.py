"""Times CTFNO and the models it is compared with on this machine: ``python -m experiments.timing --measure=operator``.

operator: forward and backward passes of CTFNO on random fields, as it is (``ours``), with ``fourier_method="fft"``
(``rfft``), and as a direct transcription of its formula (``obvious``, see experiments/obvious.py), with the same
parameters and inputs. Also growth with times, points and width, and the arithmetic rate of ours as a fraction of that
of a 2048-cube float32 matrix product. Only matrix products are counted.

heat: training and inference of FNO-RNN, FNO-2D and CTFNO on heat, seconds per epoch, as in the paper. All three use
the library's transforms, which are matrix products where few modes are kept; FNO-2D is also timed with its usual FFT.

time_to_accuracy: seconds from a cold start until the validation error on heat is at most 2.6e-4 and 1e-4.

dynamics, vibration: training step and forecast of all models on the spiral and, with ``--preset=paper``, on plane
vibration. Models whose solver adapts its steps are those of trained runs in ``--runs``.

mujoco: training and inference of latent models on the hopper, seconds per epoch, as in the paper.

images: a training step of the Fourier classifiers of MNIST and CIFAR-10 on random images, against a direct
transcription with ``jnp.fft.rfft2`` and complex einsums, for the whole batch and, as ours, for few images at a time.

peer: a training step on heat against the FNO of the neuraloperator package, which ``--python`` must have.

Every number is the least of several repetitions after warm-up. ``--results_dir`` keeps them for experiments.tables.
"""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from absl import flags

from ctfno_jax import files, results
from ctfno_jax.config import ExperimentConfig, OptimizerConfig, from_dict
from ctfno_jax.data import batching, problems
from ctfno_jax.data.trajectories import FieldDataset
from ctfno_jax.models import interface
from ctfno_jax.models.ctfno import num_parameters
from ctfno_jax.models.registry import build_model
from ctfno_jax.predict import load_predictor
from ctfno_jax.tasks.fields import FieldTask
from ctfno_jax.tasks.images import ImageArrays, ImageSettings
from ctfno_jax.tasks.latent import LatentTask
from ctfno_jax.tasks.series import SeriesTask
from ctfno_jax.training import losses, optimizers
from ctfno_jax.training import step as step_lib
from ctfno_jax.training.in_parts import in_parts
from ctfno_jax.training.workdir import versions
from ctfno_jax.types import Params
from experiments import (
    catalog,
    configs,
    host,
    obvious,
    operator_timing,
    program,
    reproduce,
    tables,
    time_to_accuracy,
    timing_lines,
)
from experiments.cells import Cell
from experiments.peers import peer as peers
from experiments.stopwatch import best_seconds

FLAGS = flags.FLAGS

# Models that an epoch on heat is timed of, with what differs from the paper's settings.
HEAT_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "ctfno": ("ctfno", {}),
    # Without remat, the layers of all fifty steps of FNO-RNN do not fit into the memory of a small machine.
    "fno_rnn": ("fno_rnn", {"remat": True}),
    "fno_2d": ("fno_2d", {}),
    "fno_2d with FFT": ("fno_2d", {"fourier_method": "fft"}),
}
# Experiment, data set, preset and models of series that a step is timed of.
SERIES = {
    "dynamics": ("synthetic", "spiral", "default", catalog.DE_MODELS),
    "vibration": ("vibration", "plane_vibration", "paper", catalog.VIBRATION),
}
LATENT_MODELS = ("ctfno", "ctfno_wide", "latent_ode_rnn", "latent_ode", "neural_flow")
_SERIES = 120  # in one step, as in the training on the spiral; fewer where a data set has fewer
_TEST_SERIES = 2000  # of the hopper


# --- training and inference -------------------------------------------------------------------------------------------


def train_step_of(model: Any, params: Params, optimizer: OptimizerConfig, steps: int, loss: str) -> tuple[Any, Any]:
    """A compiled training step of a batch, and the state it starts from."""
    update = optimizers.optimizer(optimizer, steps)

    def loss_fn(some: Params, batch: batching.Batch) -> Any:
        return losses.loss(loss)(model.apply(some, batch.u0, batch.times), batch.target)

    step = jax.jit(functools.partial(step_lib.train_step, loss_fn=loss_fn, optimizer=update))
    return step, step_lib.create_state(params, update, jax.random.key(2))


def heat(repeats: int, *, num_train: int = 400, num_test: int = 100, num_points: int = 1024) -> dict[str, Any]:
    """Seconds of a training epoch and of predicting the test set, by the models and sizes of the paper.

    Batches of 20 trajectories at all 50 times on all points: one step is timed and counted as often as an epoch has it.
    """
    batch, num_times = 20, 50
    u0 = jax.random.normal(jax.random.key(1), (batch, num_points, 1))
    times = jnp.arange(1, num_times + 1) * (2.5 / num_times)
    data = batching.Batch(u0, times, jnp.zeros((batch, num_times, num_points, 1)))
    numbers: dict[str, Any] = {}
    for name, (cell_model, more) in HEAT_MODELS.items():
        config = configs.cell("pde", "heat", cell_model, "paper")
        model = build_model(config.network.network, **{**config.network.network_fields, **more})
        params = jax.jit(model.init)(jax.random.key(0), u0[:1], times[:1])
        step, state = train_step_of(model, params, config.optimizer, config.train.steps, str(config.settings["loss"]))
        numbers[name] = {
            "training": num_train // batch * best_seconds(step, state, data, repeats=repeats, warm_up=1),
            "inference": num_test // batch * best_seconds(jax.jit(model.apply), params, u0, times, repeats=repeats),
            "num_params": num_parameters(params["params"]),
        }
        print(f"{name}: {numbers[name]['training']:.1f} s training, {numbers[name]['inference']:.1f} s inference")
    size = {"num_train": num_train, "num_test": num_test, "num_times": num_times, "num_points": num_points}
    return {"size": size, "batch_size": batch, "models": numbers}


def dynamics(measure: str, runs: Path, repeats: int, data_dir: str | None = None) -> dict[str, Any]:
    """Seconds of a training step and of a forecast of some series at all their times.

    The cost of an adaptive solver depends on the learned vector field, so its model is that of a trained run. Other
    models take their initial parameters.
    """
    experiment, dataset, preset, models = SERIES[measure]
    numbers: dict[str, Any] = {}
    count = 0
    for name in models:
        cell = Cell(experiment, dataset, name, preset)
        config = cell.config()
        task = SeriesTask.from_config(config, data_dir=data_dir, parts=("train", "validation"))
        batch = batching.Batch(*jax.tree.map(lambda a: a[:_SERIES], (task.arrays.u0, task.arrays.times, task.arrays.u)))
        adaptive = config.network.network_fields.get("stepping") == "adaptive"
        params = load_predictor(reproduce.trained(cell, runs)).params if adaptive else task.init(jax.random.key(0))
        count = len(batch.u0)
        if task.arrays.times.ndim == 1:
            batch = batch._replace(times=task.arrays.times)
        numbers[name] = {
            "training": _seconds_of_step(task, config, params, batch, repeats),
            "inference": best_seconds(jax.jit(task.model.apply), params, batch.u0, batch.times, repeats=repeats),
            "num_params": num_parameters(params["params"]),
        }
        calls = interface.count_evaluations(task.model, params, batch.u0, batch.times)
        if calls is not None:
            numbers[name]["function_evaluations"] = calls
        _say(name, numbers[name])
    return {"batch_size": count, "models": numbers}


def mujoco(repeats: int, data_dir: str | None = None) -> dict[str, Any]:
    """Seconds of a training epoch on the hopper and of predicting its test set, at all times of every series.

    One step is timed and counted as often as an epoch has it. Solvers have steps of a fixed size, so that their cost
    does not depend on what was learned.
    """
    numbers: dict[str, Any] = {}
    num_train = num_test = 0
    for name in LATENT_MODELS:
        config = Cell("timeseries", "mujoco", name, overrides={"times_per_step": 0, "own_times": False}).config()
        task = LatentTask.from_config(config, data_dir=data_dir, parts=("train", "validation"))
        params = task.init(jax.random.key(0))
        batch = jax.jit(
            lambda arrays, task=task: task.sample(arrays, jax.random.key(1), jnp.zeros((), jnp.int32), 0, 1)
        )(task.arrays)
        some = task.data.validation
        num_train, num_test = len(task.data.train), _TEST_SERIES
        per_series = best_seconds(task.predict, params, some, repeats=repeats) / len(some)
        numbers[name] = {
            "training": num_train // len(batch.observed) * _seconds_of_step(task, config, params, batch, repeats),
            "inference": num_test * per_series,
            "num_params": num_parameters(params["params"]),
        }
        _say(name, numbers[name])
    return {"num_train": num_train, "num_test": num_test, "models": numbers}


def images(repeats: int) -> dict[str, Any]:
    """Seconds of a training step of the Fourier classifiers, and of their direct transcription."""
    numbers: dict[str, Any] = {}
    sizes: dict[str, int] = {}  # the same for all data sets
    for dataset in catalog.IMAGES:
        problem, config = problems.problem(dataset), Cell("images", dataset, "fno").config()
        assert isinstance(problem, problems.ImageProblem)
        model: Any = build_model(config.network.network, **config.network.network_fields)
        settings = from_dict(ImageSettings, config.settings, "settings")
        pixels, labels = jax.random.split(jax.random.key(0))
        size = (settings.batch_size, *problem.image_size, problem.channels)
        batch = ImageArrays(
            jax.random.uniform(pixels, size), jax.random.randint(labels, size[:1], 0, problem.num_classes)
        )
        params = jax.jit(model.init)(jax.random.key(1), batch.images[:1])
        direct = functools.partial(_cross_entropy, functools.partial(obvious.classify, model))
        forms = {
            "ours": in_parts(functools.partial(_cross_entropy, model.apply), settings.images_per_pass),
            "obvious": direct,
            "obvious in parts": in_parts(direct, settings.images_per_pass),
        }
        update = optimizers.optimizer(config.optimizer, config.train.steps)
        state = step_lib.create_state(params, update, jax.random.key(2))
        seconds = {
            name: best_seconds(
                jax.jit(functools.partial(step_lib.train_step, loss_fn=loss_fn, optimizer=update)), state, batch,
                repeats=repeats,
            )
            for name, loss_fn in forms.items()
        }  # fmt: skip
        numbers[dataset] = {"seconds": seconds, "num_params": num_parameters(params["params"])}
        sizes = {"batch_size": settings.batch_size, "images_per_pass": settings.images_per_pass}
    return {**sizes, "datasets": numbers}


def _cross_entropy(logits_fn: Any, params: Params, batch: ImageArrays) -> Any:
    logits = logits_fn(params, batch.images)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch.labels))


def peer(python: str, repeats: int) -> dict[str, Any]:
    """Seconds of a training step on heat of CTFNO, as large as in the paper, and of an FNO of another library.

    Both have 20 trajectories on 256 points, each at two times of its own.
    """
    data = problems.load_dataset("heat", parts=("train", "validation"), num_train=40, num_validation=20, seed=0)
    assert isinstance(data, FieldDataset)
    cell = Cell("pde", "heat", "ctfno", overrides={"num_train": 40, "num_validation": 20, "data_seed": 0})
    task = FieldTask.from_config(cell.config(), parts=("train", "validation"))
    params = task.init(jax.random.key(0))
    step = jnp.zeros((), jnp.int32)
    batch = jax.jit(lambda arrays: task.sample(arrays, jax.random.key(1), step, 0, 1))(task.arrays)
    numbers: dict[str, Any] = {
        "ctfno": {
            "training": _seconds_of_step(task, cell.config(), params, batch, repeats),
            "num_params": num_parameters(params["params"]),
        }
    }
    for name in catalog.PEERS:
        training = peers.Training(learning_rate=1e-3, steps=repeats + 3, seed=0)
        _, summary = peers.run(python, peers.SCRIPTS[name], peers.exported(data, None), training)
        numbers[name] = {"training": summary["step_seconds"], "num_params": summary["num_params"]}
        numbers[name]["versions"] = summary["versions"]
    return {"size": [len(batch.u0), batch.times.shape[-1], batch.u0.shape[1]], "models": numbers}


def _seconds_of_step(task: Any, config: ExperimentConfig, params: Params, batch: Any, repeats: int) -> float:
    """Seconds of one training step of a task."""
    update = optimizers.optimizer(config.optimizer, config.train.steps)
    loss_fn = functools.partial(_loss, task)
    step = jax.jit(functools.partial(step_lib.train_step, loss_fn=loss_fn, optimizer=update))
    return best_seconds(step, step_lib.create_state(params, update, jax.random.key(2)), batch, repeats=repeats)


def _loss(task: Any, params: Params, batch: Any) -> Any:
    return task.loss(params, batch, jax.random.key(3))


def _say(name: str, numbers: dict[str, Any]) -> None:
    print(f"{name}: {numbers['training']:.4f} s training, {numbers['inference']:.4f} s inference", flush=True)


# --- the program ------------------------------------------------------------------------------------------------------


def record(name: str, numbers: dict[str, Any]) -> dict[str, Any]:
    """The numbers with the command, the versions and the devices that they are of."""
    return {
        "experiment": "timing", "command": f"python -m experiments.timing --measure={name}", **numbers,
        "commit": results.commit(), "versions": versions(),
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.local_devices()],
        "cores": len(host.cores()),
    }  # fmt: skip


def main() -> None:
    name, repeats = FLAGS.measure, FLAGS.repeats
    if FLAGS.quick and FLAGS.results_dir:
        raise ValueError("--quick measures one size only, which is no result; remove it or --results_dir")
    if name == "operator":
        numbers = operator_timing.measure(repeats, quick=FLAGS.quick)
    elif name == "heat":
        numbers = heat(max(1, repeats // 6))
    elif name == "time_to_accuracy":
        numbers = time_to_accuracy.measure()
    elif name == "images":
        numbers = images(repeats)
    elif name == "peer":
        numbers = peer(FLAGS.python, repeats)
    elif name == "mujoco":
        numbers = mujoco(max(1, repeats // 3), FLAGS.data_dir)
    else:
        numbers = dynamics(name, Path(FLAGS.runs), repeats, FLAGS.data_dir)
    made = record(name, numbers)
    title, lines = timing_lines.TIMINGS[name](made)
    print(f"{title}\n{tables.layout(lines, 'text')}")
    if name == "operator":
        print(operator_timing.notes(made))
    if FLAGS.results_dir:
        files.write_json(Path(FLAGS.results_dir) / "timing" / f"{name}.json", made)


if __name__ == "__main__":
    flags.DEFINE_enum("measure", "operator", tuple(timing_lines.TIMINGS), "what to time")
    flags.DEFINE_integer("repeats", 12, "repetitions of which the least counts", lower_bound=1)
    flags.DEFINE_boolean("quick", False, "operator: the smallest size only")
    flags.DEFINE_string("results_dir", None, "keep the numbers there, in timing/<measure>.json")
    flags.DEFINE_string("runs", "runs", "folder with trained runs, for dynamics and vibration")
    flags.DEFINE_string("data_dir", None, "folder with raw data, for vibration")
    flags.DEFINE_string("python", "python3", "interpreter of the environment that has the peer's packages")
    program.run(main, __doc__ or "")
