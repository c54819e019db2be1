"""Learning a solution operator from trajectories of fields: initial state and query times to the solution."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from ctfno_jax import metrics, pdebench_metrics
from ctfno_jax.certify import measured_gain, uncertifiable
from ctfno_jax.config import ConfigError, ExperimentConfig, at_least, fraction, from_dict
from ctfno_jax.data import batching, problems
from ctfno_jax.data.trajectories import FieldDataset, Trajectories
from ctfno_jax.models import interface, registry
from ctfno_jax.tasks import prediction
from ctfno_jax.training import losses
from ctfno_jax.transforms import normalization
from ctfno_jax.transforms.odd_extension import OddExtension
from ctfno_jax.transforms.protocol import Chain, Transform
from ctfno_jax.transforms.resampling import Resampling
from ctfno_jax.types import Key, Params

TRANSFORMS = ("none", "resampling", "odd_extension")


@dataclasses.dataclass(frozen=True)
class FieldSettings:
    """Settings of one training step and of the transform."""

    batch_size: int = 20  # trajectories per step, over all devices
    times_per_step: int = 5  # random query times per step; 0 for all
    own_times: bool = False  # every trajectory has its own stratified query times
    train_grid: int = 0  # points per axis in training, a divisor of the data's; 0 for all
    train_times: int = 0  # query times in training, a divisor of the data's; for models on a grid of times
    window: int = 0  # start at random frames and ask for the next so many frames; 0 for whole trajectories
    random_starts: float = 0.0  # share of trajectories that start from a later frame
    loss: str = "mse"  # mse, rmse, relative_l2
    sign_flips: bool = False  # u -> -u with probability 1/2
    reflections: bool = False  # x -> -x with probability 1/2
    translations: bool = False  # random shifts of periodic fields
    # none; resampling: the network reads train_grid points of any grid; odd_extension: known values at the walls
    transform: str = "none"
    shared_normalization: bool = False  # one set of statistics for initial states and solutions

    def __post_init__(self) -> None:
        at_least(self, batch_size=1, times_per_step=0, train_grid=0, train_times=0, window=0)
        fraction(self, "random_starts")
        losses.loss(self.loss)
        if self.transform not in TRANSFORMS:
            raise ConfigError(f"unknown transform {self.transform!r}; known are {', '.join(TRANSFORMS)}")
        if (self.random_starts or self.window) and not self.shared_normalization:
            raise ConfigError("random_starts and window use solutions as initial states; set shared_normalization")
        if self.own_times and not self.times_per_step:
            raise ConfigError("own_times draws times_per_step times for each trajectory; set it to 1 or more")
        if self.random_starts and not (self.window or self.times_per_step):
            raise ConfigError("random_starts needs times_per_step of at least 1, or a window")
        if self.random_starts and self.own_times and not self.window:
            raise ConfigError("random_starts with own_times needs a window")


class FieldTask:
    """Training and evaluation of an operator on trajectories.

    Attributes:
      data: the three sets of trajectories; the test set may be None.
      model: a module ``(u0, times) -> u``.
      settings: what a step reads.
      transform: between physical fields and what the network reads, fitted on training data.
      between: loads the test trajectories half-way between the query times, if there are any.
    """

    kind = "fields"
    metric = "validation_rmse"
    labels = (
        ("RMSE", "rmse"), ("relative L2 error", "nrmse"), ("RMSE in standard deviations", "rmse_in_deviations"),
        ("RMSE between times", "rmse_between_times"),
    )  # fmt: skip

    def __init__(
        self,
        data: FieldDataset,
        model: nn.Module,
        settings: FieldSettings,
        *,
        between: Callable[[], Trajectories] | None = None,
    ) -> None:
        check_settings(data.problem, model, settings)
        _check_fit(data.train, model, settings)
        self.data, self.model, self.settings, self.between = data, model, settings, between
        self.transform = _fit_transform(data, settings)
        self._evaluate = prediction.Evaluator(model, self.transform)
        self._deviation = np.asarray(normalization.channel_statistics(data.train.u).std, np.float32)
        train = _for_training(data.train, settings)
        self._training_model = _training_model(model, settings, train.times)
        self._sampling = batching.Sampling(
            batch_size=settings.batch_size, times_per_step=settings.times_per_step, own_times=settings.own_times,
            window=settings.window, random_starts=settings.random_starts, sign_flips=settings.sign_flips,
            translations=settings.translations, reflection=data.problem.reflection if settings.reflections else None,
        )  # fmt: skip
        self.arrays = batching.FieldArrays(
            u0=self.transform.encode(train.u0),
            times=jnp.asarray(train.times),
            u=self.transform.encode_solution(train.u),
        )
        self._check_network()

    @classmethod
    def from_config(
        cls, config: ExperimentConfig, *, data_dir: str | Path | None = None, parts: Sequence[str] = problems.PARTS,
        progress: Any = None,
    ) -> "FieldTask":  # fmt: skip
        """The task of a cell; settings that contradict each other are refused before data are made."""
        settings = from_dict(FieldSettings, config.settings, "settings")
        model = registry.build_model(config.network.network, **config.network.network_fields)
        problem = problems.problem(config.dataset)
        assert isinstance(problem, problems.FieldProblem)
        check_settings(problem, model, settings)
        options: dict[str, Any] = {
            "num_train": config.data.num_train, "num_validation": config.data.num_validation,
            "num_test": config.data.num_test, "seed": config.data.data_seed, "progress": progress,
            "data_dir": data_dir, **config.data.data_options,
        }  # fmt: skip
        data = problems.load_dataset(config.dataset, parts=parts, **options)
        assert isinstance(data, FieldDataset)
        between = (
            None
            if data.test is None or data.train.num_times < 2
            else lambda: problems.between_times(config.dataset, **options)
        )
        return cls(data, model, settings, between=between)

    # --- what training needs --------------------------------------------------------------------------------------

    def init(self, key: Key) -> Params:
        params = jax.jit(self._training_model.init)(key, self.arrays.u0[:1], self.arrays.times[:1])
        if not interface.takes_data(self._training_model):
            return params
        u = self.arrays.u
        # Fields that are shifted at random have more images than a basis could be made of.
        if self._sampling.reflection is not None and not self.settings.translations:
            with jax.ensure_compile_time_eval():  # a basis is made of numbers also where only shapes are asked for
                mirrored = np.asarray(batching.reflected(u, 2, self._sampling.reflection))
            u = np.concatenate([u, mirrored])
        return interface.initialize_from_data(self._training_model, params, self.arrays.u0, self.arrays.times, u)

    def sample(self, arrays: batching.FieldArrays, key: Key, step: Any, shard: Any, num_shards: int) -> batching.Batch:
        problem = interface.single_device(self.model) if num_shards > 1 else None
        if problem is not None:
            raise ConfigError(problem)
        return batching.sample(arrays, key, step, self._sampling, shard=shard, num_shards=num_shards)

    def loss(self, params: Params, batch: batching.Batch, key: Key) -> Any:
        del key
        u: Any = self._training_model.apply(params, batch.u0, batch.times)
        return losses.loss(self.settings.loss)(u, batch.target)

    def evaluate(self, params: Params, split: str) -> dict[str, Any]:
        return self._on_validation(params) if split == "validation" else self._on_test(params)

    def describe(self) -> dict[str, Any]:
        return {**self.facts(), "model": registry.to_dict(self.model)}

    def facts(self) -> dict[str, Any]:
        """Facts about the training data that a predictor keeps, as JSON values."""
        train, problem = self.data.train, self.data.problem
        state = train.u0.reshape(-1, train.u0.shape[-1])
        return {
            "task": self.kind,
            "transform": self.transform.to_dict(),
            "input_shape": [int(n) for n in self.arrays.u0.shape[1:]],
            "grid": list(train.grid),
            "in_channels": train.u0.shape[-1],
            "out_channels": train.u.shape[-1],
            "final_time": float(train.times.max()),
            "range": [[float(v) for v in bound] for bound in (state.min(0), state.max(0))],
            "title": problem.name,
            "domain": list(problem.domain),
            "channels": list(problem.channels),
        }

    # --- evaluation -----------------------------------------------------------------------------------------------

    def predict(self, params: Params, u0: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Solutions in physical units."""
        return self._evaluate(params, u0, times)

    def _on_validation(self, params: Params) -> dict[str, float]:
        """Errors on the training grid; with several channels in standard deviations, so that each counts alike."""
        some = (
            self.data.validation if self.settings.transform != "none" else _coarse(self.data.validation, self.settings)
        )
        u = self.predict(params, some.u0, some.times)
        units = self._deviation if len(self._deviation) > 1 else np.float32(1)
        return {
            self.metric: metrics.rmse(u / units, some.u / units),
            "validation_nrmse": metrics.nrmse(u, some.u),
        }

    def _on_test(self, params: Params) -> dict[str, Any]:
        test = self._test()
        start = time.perf_counter()
        u = self.predict(params, test.u0, test.times)
        seconds = time.perf_counter() - start
        return {
            **metrics.field_errors(u, test.u, deviation=self._deviation, channels=self.data.problem.channels),
            **self._over_time(u, test),
            **self._pdebench(u, test),
            **self._between_times(params),
            **self._stability(params, test),
            "evaluation_seconds": round(seconds, 2),
        }

    def _test(self) -> Trajectories:
        if self.data.test is None:
            raise ValueError("the test set was not loaded; this task evaluates on validation data only")
        return self.data.test

    def _over_time(self, u: np.ndarray, test: Trajectories) -> dict[str, list[float]]:
        if test.times.ndim != 1:
            return {}
        over_time = metrics.rmse_over_time(u / self._deviation, test.u / self._deviation)
        return {
            "rmse_in_deviations_over_time": [float(f"{value:.4g}") for value in over_time],
            "times": [float(f"{t:.6g}") for t in test.times],
        }

    def _pdebench(self, u: np.ndarray, test: Trajectories) -> dict[str, Any]:
        # PDEBench's highest band is empty on coarser grids.
        if len(test.grid) != 1 or test.grid[0] < 2 * pdebench_metrics.BANDS["high"][0]:
            return {}
        return {"pdebench": pdebench_metrics.pdebench_errors(u, test.u, length=self.data.problem.length)}

    def _between_times(self, params: Params) -> dict[str, float]:
        """Error half-way between the times of the training data, for models that answer there."""
        if self.between is None or interface.unanswerable(self.model, 0.75 * self._test().times[..., :1]) is not None:
            return {}
        unseen = self.between()
        u = self.predict(params, unseen.u0, unseen.times)
        return {
            "rmse_between_times": metrics.rmse(u, unseen.u),
            "rmse_in_deviations_between_times": metrics.rmse(u / self._deviation, unseen.u / self._deviation),
        }

    def _stability(self, params: Params, test: Trajectories) -> dict[str, float]:
        """Certified growth of an input error and growth measured at the first state; nothing without a rule."""
        if uncertifiable(self.model) is not None or test.times.ndim != 1:
            return {}
        # Ten times show the largest growth, the last one among them; the power iteration that measures it takes longer
        # than all else in an evaluation. Large grids have fewer.
        most = int(np.clip(10 * 1024 // np.prod(test.grid), 5, 10))
        times = test.times[:: -math.ceil(len(test.times) / most)][::-1]
        certified = prediction.lipschitz(self.model, self.transform, params, times, test.grid)
        apply_fn = prediction.physical(interface.reaching(self.model, times), self.transform)
        measured = measured_gain(apply_fn, params, jnp.asarray(test.u0[0]), jnp.asarray(times))
        return {
            "certified_lipschitz": float(certified.max()),
            "measured_gain": float(measured.max()),
            "certificate_ratio": float((certified / measured).max()),
        }

    def figures(self, params: Params, split: str) -> Iterator[tuple[str, Any]]:
        """Name and figure of truth, prediction and error of the first trajectory."""
        from ctfno_jax.plotting import fields as plots

        some = self._test() if split == "test" else self.data.validation
        first = some.select(slice(1))
        u = self.predict(params, first.u0, first.times)
        problem = self.data.problem
        figure = plots.trajectory(
            first.u[0], u[0], np.atleast_2d(first.times)[0], channels=problem.channels, domain=problem.domain,
            title=f"{problem.name}, first {split} trajectory",
        )  # fmt: skip
        yield "trajectory", figure

    def _check_network(self) -> None:
        """Raises for a network that does not fit the data, before anything is trained."""
        u0, times = self.arrays.u0[:1], self.arrays.times[:1]
        out, _ = jax.eval_shape(self._training_model.init_with_output, jax.random.key(0), u0, times)
        if out.shape[-1] != self.arrays.u.shape[-1]:
            raise ConfigError(
                f"the data have {self.arrays.u.shape[-1]} output channels, but the network answers {out.shape[-1]}; "
                "set out_channels"
            )
        # A model that cannot answer on the grid of the test set says so now, not after the training.
        full = jax.eval_shape(
            self.transform.encode, jnp.zeros((1, *self.data.train.grid, self.data.train.u0.shape[-1]))
        )
        variables = jax.eval_shape(self._training_model.init, jax.random.key(0), u0, times)
        jax.eval_shape(self.model.apply, variables, full, times)


def check_settings(problem: problems.FieldProblem, model: nn.Module, settings: FieldSettings) -> None:
    """Raises for what follows from problem, model and settings alone: data may take half an hour to generate."""
    symmetries = {
        "sign_flips": problem.odd,
        "reflections": problem.reflection is not None,
        "translations": problem.periodic,
    }
    for name, there in symmetries.items():
        if getattr(settings, name) and not there:
            raise ConfigError(f"{problem.name} does not have the symmetry of {name}; remove it")
    if settings.transform != "none":
        name = f"transform={settings.transform}"
        if settings.transform == "odd_extension" and problem.walls is None:
            raise ConfigError(f"{problem.name} has no walls with known values for {name}; remove it")
        if settings.train_grid < 8:
            raise ConfigError(f"{name} has train_grid points: set it to 8 or more, got {settings.train_grid}")
        if not problem.periodic and (settings.sign_flips or settings.reflections):
            raise ConfigError(f"{name} fixes the walls: no sign_flips, no reflections")
    if settings.train_times:
        interface.resampled(model, settings.train_times)
    if settings.train_times and settings.window:
        raise ConfigError("train_times and window are for different models; remove one of them")


def _check_fit(train: Trajectories, model: nn.Module, settings: FieldSettings) -> None:
    """Raises for settings that do not fit the training data."""
    if settings.batch_size > len(train):
        raise ConfigError(f"batch_size={settings.batch_size} exceeds the {len(train)} training trajectories; lower it")
    num_times = settings.train_times or train.num_times
    for name in ("times_per_step", "window"):
        if getattr(settings, name) > num_times:
            raise ConfigError(f"{name}={getattr(settings, name)} exceeds the {num_times} times of the data; 0 is all")
    problem = interface.unanswerable(model, train.times)
    if problem is not None:
        raise ConfigError(f"the model does not fit the times of the data: {problem}")
    if settings.window:
        batching.check_window(train.times)
    if (settings.window or settings.random_starts) and train.u.shape[-1] > train.u0.shape[-1]:
        raise ConfigError(
            f"solutions of {train.u.shape[-1]} channels cannot be initial states of {train.u0.shape[-1]}: "
            "no window, no random_starts"
        )


def _fit_transform(data: FieldDataset, settings: FieldSettings) -> Transform:
    train, problem = data.train, data.problem
    # Channels that a symmetry in use turns round have mean zero.
    odd = [settings.sign_flips] * len(problem.channels)
    if settings.reflections and not settings.sign_flips and problem.reflection is not None:
        odd = [sign < 0 for sign in problem.reflection]
    fit = functools.partial(
        normalization.fit, shared=settings.shared_normalization, centred=tuple(odd) if any(odd) else None
    )
    if settings.transform == "none":
        return fit(train.u0, train.u)
    own: Transform = Resampling(settings.train_grid, periodic=problem.periodic)
    if settings.transform == "odd_extension":
        walls = problem.walls
        assert walls is not None
        own = OddExtension(walls.left, walls.right, walls.right_slip, num_points=settings.train_grid)
    u0, u = (np.asarray(a) for a in (own.encode(train.u0), own.encode_solution(train.u)))
    return Chain((own, fit(u0, u)))


def _coarse(trajectories: Trajectories, settings: FieldSettings) -> Trajectories:
    return trajectories.coarsen(settings.train_grid) if settings.train_grid else trajectories


def _for_training(train: Trajectories, settings: FieldSettings) -> Trajectories:
    """The training set on the grid and at the times of the training."""
    # A transform takes fields of any grid to its own.
    train = _coarse(train, settings) if settings.transform == "none" else train
    return train.thin(settings.train_times) if settings.train_times else train


def _training_model(model: nn.Module, settings: FieldSettings, times: np.ndarray) -> nn.Module:
    """The model as a training step calls it: only as many steps, or times, as a batch can ask for."""
    if settings.train_times:
        return interface.resampled(model, settings.train_times)
    return interface.reaching(model, times[..., : settings.window] if settings.window else times)


def dataset_of_arrays(
    name: str, train: Trajectories, validation: Trajectories, test: Trajectories | None, *, source: str,
    periodic: bool = True,
) -> FieldDataset:  # fmt: skip
    """A data set of a user's own trajectories, of which nothing is known but their shapes."""
    channels = train.u.shape[-1]
    names = ("u",) if channels == 1 else tuple(f"channel_{i}" for i in range(channels))
    problem = problems.FieldProblem(
        name=name, generate=None, channels=names, final_time=float(train.times.max()), num_times=train.num_times,
        periodic=periodic,
    )  # fmt: skip
    return FieldDataset(problem, train, validation, test, info={}, source=source)
