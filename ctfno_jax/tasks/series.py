"""Learning to forecast vectors: observed points and query times to the values there."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from ctfno_jax import metrics
from ctfno_jax.certify import measured_gain, observed_lipschitz, singular_values
from ctfno_jax.config import ConfigError, ExperimentConfig, at_least, from_dict
from ctfno_jax.data import batching, problems
from ctfno_jax.data.series import Series, SeriesDataset
from ctfno_jax.models import interface, registry
from ctfno_jax.models.observed import ObservedCTFNO
from ctfno_jax.tasks import prediction
from ctfno_jax.training import loop, losses
from ctfno_jax.transforms.normalization import ChannelStatistics, Normalization, channel_statistics
from ctfno_jax.types import Key, Params

# Losses that some models implement themselves; see models.interface.
OWN_LOSSES = ("elbo", "with_steps")
# Standard deviations of the noise that observations are tested with, in the units of the data.
NOISES = (0.1, 1.0)


@dataclasses.dataclass(frozen=True)
class SeriesSettings:
    """Settings of one training step."""

    batch_size: int = 120  # series per step, over all devices
    times_per_step: int = 0  # random query times per step; 0 for all
    loss: str = "mse"  # mse, rmse, relative_l2; elbo or with_steps for models that have it

    def __post_init__(self) -> None:
        at_least(self, batch_size=1, times_per_step=0)
        if self.loss not in OWN_LOSSES:
            losses.loss(self.loss)


class SeriesTask:
    """Training and evaluation of a forecast on series of observed vectors.

    Attributes:
      data: the three sets of series; the test set may be None.
      model: a module ``(observations, times) -> values``.
      settings: what a step reads.
      components: names of the features.
      transform: normalisation by the training set, where values are not of the order of one already.
    """

    kind = "series"
    metric = "validation_rmse"
    labels = (
        ("RMSE", "rmse"), ("RMSE of x", "rmse_x"), ("RMSE of y", "rmse_y"),
        ("RMSE of velocity", "rmse_velocity"), ("MSE", "mse"),
        ("training MSE", "train_mse"), ("relative L2 error", "nrmse"),
        *((f"RMSE with noise of {size:g}", f"rmse_noise_{size:g}") for size in NOISES),
    )  # fmt: skip

    def __init__(
        self, data: SeriesDataset, model: nn.Module, settings: SeriesSettings, *, components: Sequence[str] = ()
    ) -> None:
        check_settings(model, settings)
        _check_fit(data, model, settings)
        self.data, self.model, self.settings, self.components = data, model, settings, tuple(components)
        self.transform = _fit_normalization(data)
        self._evaluate = prediction.Evaluator(model, self.transform)
        self._sampling = batching.Sampling(batch_size=settings.batch_size, times_per_step=settings.times_per_step)
        self.arrays = batching.FieldArrays(
            u0=self.transform.encode(inputs_of(data.train)),
            times=jnp.asarray(data.train.times),
            u=self.transform.encode_solution(data.train.values),
        )
        out, _ = jax.eval_shape(model.init_with_output, jax.random.key(0), self.arrays.u0[:1], self.arrays.times[:1])
        if out.shape[-1] != data.train.features:
            raise ConfigError(
                f"{data.name} has {data.train.features} features, but the network answers {out.shape[-1]}; "
                "set out_features"
            )

    @classmethod
    def from_config(
        cls, config: ExperimentConfig, *, data_dir: str | Path | None = None, parts: Sequence[str] = problems.PARTS,
        progress: Any = None,
    ) -> "SeriesTask":  # fmt: skip
        """The task of a cell; settings that contradict each other are refused before data are made."""
        settings = from_dict(SeriesSettings, config.settings, "settings")
        model = registry.build_model(config.network.network, **config.network.network_fields)
        check_settings(model, settings)
        _check_clock(model, config.network.network, config.data.data_options.get("clock"))
        options: dict[str, Any] = {"seed": config.data.data_seed, **config.data.data_options}
        problem = problems.problem(config.dataset)
        assert isinstance(problem, problems.SeriesProblem)
        if problem.generated:
            options |= {
                "num_train": config.data.num_train, "num_validation": config.data.num_validation,
                "num_test": config.data.num_test,
            }  # fmt: skip
        data = problems.load_dataset(config.dataset, parts=parts, data_dir=data_dir, progress=progress, **options)
        assert isinstance(data, SeriesDataset)
        return cls(data, model, settings, components=problem.components)

    # --- what training needs --------------------------------------------------------------------------------------

    def init(self, key: Key) -> Params:
        return jax.jit(self.model.init)(key, self.arrays.u0[:1], self.arrays.times[:1])

    def sample(self, arrays: batching.FieldArrays, key: Key, step: Any, shard: Any, num_shards: int) -> batching.Batch:
        problem = interface.single_device(self.model) if num_shards > 1 else None
        if problem is not None:
            raise ConfigError(problem)
        return batching.sample(arrays, key, step, self._sampling, shard=shard, num_shards=num_shards)

    def loss(self, params: Params, batch: batching.Batch, key: Key) -> Any:
        name = self.settings.loss
        if name in OWN_LOSSES:
            method = interface.loss_method(self.model, name)
            keys = (key,) if name == "elbo" else ()
            return self.model.apply(params, batch.u0, batch.times, batch.target, *keys, method=method)
        values: Any = self.model.apply(params, batch.u0, batch.times)
        if interface.may_fail(self.model):
            # Where the solver ran out of steps there is nothing to learn from; the validation counts such series.
            values = jnp.where(jnp.isfinite(values), values, batch.target)
        return losses.loss(name)(values, batch.target)

    def evaluate(self, params: Params, split: str) -> dict[str, Any]:
        return self._on_validation(params) if split == "validation" else self._on_test(params)

    def describe(self) -> dict[str, Any]:
        return {**self.facts(), "model": registry.to_dict(self.model)}

    def facts(self) -> dict[str, Any]:
        """Facts about the training data that a predictor keeps, as JSON values."""
        train = self.data.train
        state = inputs_of(train).reshape(-1, self.arrays.u0.shape[-1])
        return {
            "task": self.kind,
            "transform": self.transform.to_dict(),
            "input_shape": [int(n) for n in self.arrays.u0.shape[1:]],
            "grid": [train.observed.shape[1]],
            "in_channels": state.shape[-1],
            "out_channels": train.features,
            "final_time": float(train.times.max()),
            "range": [[float(v) for v in bound] for bound in (state.min(0), state.max(0))],
            "title": self.data.name,
            "channels": list(self.components),
        }

    # --- evaluation -----------------------------------------------------------------------------------------------

    def predict(self, params: Params, inputs: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Values in the units of the data."""
        return self._evaluate(params, inputs, times)

    def _on_validation(self, params: Params) -> dict[str, float]:
        some = self.data.validation
        values = self.predict(params, inputs_of(some), some.times)
        answered = solved(values)
        if not answered.any():
            raise loop.TrainingDiverged("the solver answers none of the validation series; raise max_steps")
        error = metrics.rmse(values[answered], some.values[answered])
        return {self.metric: error, "validation_mse": error**2, "validation_unsolved": float(np.sum(~answered))}

    def _on_test(self, params: Params) -> dict[str, Any]:
        test = self._test()
        inputs = inputs_of(test)
        start = time.perf_counter()
        values = self.predict(params, inputs, test.times)
        seconds = time.perf_counter() - start
        message = unsolved_message(values, test.times)
        if message is not None:
            print(f"note: {message}")
        answered = solved(values)
        if not answered.any():
            raise ValueError(f"nothing to evaluate: {message}")
        train = self.predict(params, inputs_of(self.data.train), self.data.train.times)
        calls = interface.count_evaluations(self.model, params, self.transform.encode(inputs), jnp.asarray(test.times))
        return {
            **self._errors(values[answered], test.select(answered)),
            "train_mse": metrics.rmse(train[solved(train)], self.data.train.values[solved(train)]) ** 2,
            "unsolved": int(np.sum(~answered)),
            **({} if calls is None else {"function_evaluations": calls}),
            **self._with_noise(params, test),
            **self._stability(params, test),
            "evaluation_seconds": round(seconds, 3),
        }

    def _test(self) -> Series:
        if self.data.test is None:
            raise ValueError("the test set was not loaded; this task evaluates on validation data only")
        return self.data.test

    def _errors(self, values: np.ndarray, test: Series) -> dict[str, Any]:
        error = metrics.rmse(values, test.values)
        # The relative error is that of all series together: single ones may rest at zero.
        errors: dict[str, Any] = {
            "rmse": error, "mse": error**2, "nrmse": metrics.relative_error(values, test.values),
            "max_error": metrics.max_error(values, test.values),
        }  # fmt: skip
        if len(self.components) == 2:
            for i, name in enumerate(self.components):
                errors[f"rmse_{name}"] = metrics.rmse(values[..., i], test.values[..., i])
        if test.times.ndim == 1:
            over_time = metrics.rmse_over_time(values, test.values)
            errors["rmse_over_time"] = [float(f"{value:.4g}") for value in over_time]
            errors["times"] = [float(f"{t:.6g}") for t in test.times]
        return errors

    def _with_noise(self, params: Params, test: Series) -> dict[str, float]:
        """Errors of forecasts from noisy observations, over the series that a solver answers."""
        errors = {}
        for size in NOISES:
            values = self.predict(params, inputs_of(with_noise(test, size)), test.times)
            answered = solved(values)
            if answered.any():
                errors[f"rmse_noise_{size:g}"] = metrics.rmse(values[answered], test.values[answered])
        return errors

    def _stability(self, params: Params, test: Series) -> dict[str, Any]:
        """Certified and measured growth of an error in observed values, and singular values of the weights.

        Values are those that the model sees: in standard deviations of the training set, if it is normalised.
        """
        if not isinstance(self.model, ObservedCTFNO) or test.times.ndim != 1:
            return {}
        times = test.times[:: max(1, len(test.times) // 20)]
        certified = observed_lipschitz(self.model, params, jnp.asarray(times))
        first = self.transform.encode(inputs_of(test)[:1])[0]
        model, features = self.model, test.features

        def of_values(params: Params, values: Any, some_times: Any) -> Any:
            rest = jnp.broadcast_to(first[:, features:], (*values.shape[:2], first.shape[-1] - features))
            return model.apply(params, jnp.concatenate([values, rest], -1), some_times)

        measured = measured_gain(of_values, params, first[:, :features], jnp.asarray(times))
        kernels, pointwise = singular_values(
            model.operator, {"params": params["params"]["operator"]}, jnp.asarray(test.times[:8])
        )
        # Each is the mean over query times of one singular value of one matrix.
        return {
            "certified_lipschitz": float(certified.max()),
            "measured_gain": float(measured.max()),
            "certificate_ratio": float((certified / measured).max()),
            "singular_values": {
                name: [float(f"{value:.4g}") for value in np.sort(values.mean(axis=0).ravel())[::-1]]
                for name, values in (("kernels", kernels), ("pointwise", pointwise))
            },
        }

    def figures(self, params: Params, split: str) -> Iterator[tuple[str, Any]]:
        """Name and figure of the first series with its forecast."""
        from ctfno_jax.plotting import series as plots

        some = self._test() if split == "test" else self.data.validation
        values = self.predict(params, inputs_of(some)[:1], some.select(slice(1)).times)
        title = f"{self.data.name}, first {split} series"
        yield "series", plots.forecast(some.select(slice(1)), values, title=title)


def inputs_of(some: Series) -> np.ndarray:
    """Model inputs: observed points, with their times where series have times of their own."""
    return some.inputs(with_times=not some.regular)


def with_noise(some: Series, size: float) -> Series:
    """The same series with Gaussian noise of that standard deviation on the observed values, in the data's units."""
    noise = size * np.random.default_rng(0).standard_normal(some.observed.shape)
    return dataclasses.replace(some, observed=(some.observed + noise).astype(some.observed.dtype))


def solved(values: np.ndarray) -> np.ndarray:
    """Series that are answered at all times."""
    return np.all(np.isfinite(values), axis=(1, 2))


def unsolved_message(values: np.ndarray, times: np.ndarray) -> str | None:
    """Message that names the series without a solution; None if all are solved."""
    bad = np.flatnonzero(~solved(values))
    if not bad.size:
        return None
    first = bad[0]
    every = np.broadcast_to(times, values.shape[:2])
    missing = ~np.all(np.isfinite(values[first]), axis=-1)
    return (
        f"the solver ran out of steps in {bad.size} of {len(values)} series; the first is number {first}, from "
        f"t={every[first][missing].min():g} on. Errors are of the others; raise max_steps or the tolerances"
    )


def check_settings(model: nn.Module, settings: SeriesSettings) -> None:
    """Raises for what follows from model and settings alone."""
    if settings.loss in OWN_LOSSES:
        interface.loss_method(model, settings.loss)


def _check_clock(model: nn.Module, name: str, clock: Any) -> None:
    """Raises for a clock of the data on which a model cannot place its initial state."""
    if clock == "zero" and interface.from_last_observation(model):
        raise ConfigError(f"{name} starts at the last observation, time zero; remove the option clock=zero")
    if clock == "segment" and interface.follows_observations(model):
        raise ConfigError(
            f"{name} follows its equation from the last observation, whose time must be on the clock of the queries; "
            "use clock=forecast or clock=last"
        )


def _check_fit(data: SeriesDataset, model: nn.Module, settings: SeriesSettings) -> None:
    """Raises for settings that do not fit the training data."""
    num_times = data.train.times.shape[-1]
    if settings.batch_size > len(data.train):
        raise ConfigError(f"batch_size={settings.batch_size} exceeds the {len(data.train)} training series; lower it")
    if settings.times_per_step > num_times:
        raise ConfigError(
            f"times_per_step={settings.times_per_step} exceeds the {num_times} times of the data; 0 is all"
        )
    problem = interface.unanswerable(model, data.train.times)
    if problem is not None:
        raise ConfigError(f"the model does not fit the times of the data: {problem}")


def _fit_normalization(data: SeriesDataset) -> Normalization:
    """Statistics of all training values; times of observation, where they are inputs, stay as they are."""
    inputs, features = inputs_of(data.train).shape[-1], data.train.features
    if data.scaled:
        values = ChannelStatistics((0.0,) * features, (1.0,) * features)
    else:
        values = channel_statistics(np.concatenate([data.train.observed, data.train.values], axis=1))
    more = inputs - features
    return Normalization(ChannelStatistics(values.mean + (0.0,) * more, values.std + (1.0,) * more), values)
