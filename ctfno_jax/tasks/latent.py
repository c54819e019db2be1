"""Learning irregular, partly observed series: observations and query times to values, or classes, at these times."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from ctfno_jax.certify import latent_lipschitz, measured_gain
from ctfno_jax.config import ConfigError, ExperimentConfig, at_least, fraction, from_dict
from ctfno_jax.data import batching, problems
from ctfno_jax.data.masked_series import MaskedDataset, Observations, Part
from ctfno_jax.models import interface, latent, registry
from ctfno_jax.models.dynamics import GridDynamics
from ctfno_jax.tasks import masked_metrics
from ctfno_jax.training import latent_losses as losses
from ctfno_jax.training.task import Buckets
from ctfno_jax.transforms.masked_normalization import MaskedNormalization
from ctfno_jax.types import Key, Params

LOSSES = ("squared_error", "squared_error_per_feature", "published_bound", "evidence_bound", "cross_entropy")
# Losses that need the distribution of the latent state.
_OF_POSTERIOR = ("published_bound", "evidence_bound")
# Series that are evaluated in one call.
_SERIES_PER_CALL = 250
_CERTIFIED_TIMES = 20


@dataclasses.dataclass(frozen=True)
class LatentSettings:
    """Settings of the data, of one training step and of the objective."""

    task: str = "interpolation"  # interpolation, prediction, classification
    observed: float = 1.0  # share of the points of a series that a model sees
    batch_size: int = 50  # series per step, over all devices
    times_per_step: int = 0  # random query times per step; 0 for all
    own_times: bool = False  # stratified query times for every series, also where all share a grid of times
    lengths: tuple[int, ...] | None = None  # steps that series are padded to, one compilation each; the longest if none
    loss: str = "squared_error"  # or squared_error_per_feature, published_bound, evidence_bound, cross_entropy
    num_draws: int = 1  # of the latent state in training
    test_draws: int = 3  # of the latent state in evaluations
    observation_std: float = 0.01  # of values in the likelihood of the bounds
    kl_wait: int = 10  # epochs without the divergence in the bounds
    kl_rate: float = 0.99  # its weight is 1 - kl_rate^(epoch - kl_wait)

    def __post_init__(self) -> None:
        at_least(self, batch_size=1, times_per_step=0, num_draws=1, test_draws=1, kl_wait=0)
        fraction(self, "observed", "kl_rate")
        if self.own_times and not self.times_per_step:
            raise ConfigError("own_times draws times_per_step times for each series; set it to 1 or more")
        if self.loss not in LOSSES:
            raise ConfigError(f"unknown loss {self.loss!r}; known are {', '.join(LOSSES)}")
        if (self.task == "classification") != (self.loss == "cross_entropy"):
            raise ConfigError(f"task={self.task} cannot have loss={self.loss}; classification has cross_entropy")
        if self.loss not in _OF_POSTERIOR:
            for name in ("observation_std", "kl_wait", "kl_rate"):
                if getattr(self, name) != getattr(LatentSettings, name):
                    raise ConfigError(f"loss={self.loss} does not read {name}; remove it")
        if not self.observation_std > 0:
            raise ConfigError(f"observation_std must be positive, got {self.observation_std}")
        if any(length < 1 for length in self.lengths or ()):
            raise ConfigError(f"lengths must be positive, got {self.lengths}")


class LatentArrays(NamedTuple):
    """Series on the device, padded to one length."""

    observed: Float[Array, "samples steps inputs"]
    times: Float[Array, " time"] | Float[Array, "samples time"]
    values: Float[Array, "samples time features"]
    mask: Float[Array, "samples time features"]
    labels: Int[Array, "samples time"] | None


class LatentBatch(NamedTuple):
    """One training batch.

    ``weights`` are those of each value in the published mean over all times of its series, of which the batch may hold
    some. The KL weight depends on the epoch.
    """

    observed: Float[Array, "batch steps inputs"]
    times: Float[Array, " time"] | Float[Array, "batch time"]
    values: Float[Array, "batch time features"]
    mask: Float[Array, "batch time features"]
    weights: Float[Array, "batch time features"]
    labels: Int[Array, "batch time"] | None
    kl_weight: Float[Array, ""]


class LatentTask:
    """Training and evaluation of a latent model.

    Attributes:
      data: the three sets of series, in the units of the network; the test set may be None.
      model: a module ``(observations, times) -> values`` or scores of classes.
      settings: what a step reads, and the objective.
      transform: between real units and those of the network, for predictions.
    """

    kind = "latent"
    metric = "validation_error"
    labels = (
        ("MSE", "mse"), ("MSE over all observed values", "mse_pooled"), ("MSE of the mean forecast", "mse_of_mean"),
        ("accuracy", "accuracy"),
    )  # fmt: skip

    def __init__(self, data: MaskedDataset, model: nn.Module, settings: LatentSettings) -> None:
        check_settings(model, settings)
        if settings.task != data.task:
            raise ConfigError(f"the data are for {data.task}, the settings for {settings.task}")
        self.data, self.model, self.settings = data, model, settings
        self.transform = MaskedNormalization(
            data.offset, data.scale, data.time_unit, data.time_offset, decodes=data.task != "classification"
        )
        parts = [_arrays(part) for part in _by_length(data.train, settings)]
        self._samples = [len(part.observed) for part in parts]
        self.arrays: Any = parts[0] if len(parts) == 1 else Buckets(parts, _order(self._samples))
        self._first = parts[0]
        self._draw = jax.jit(self._draws, static_argnames="count")
        self._check_network()

    @classmethod
    def from_config(
        cls, config: ExperimentConfig, *, data_dir: str | Path | None = None, parts: Sequence[str] = problems.PARTS,
        progress: Any = None,
    ) -> "LatentTask":  # fmt: skip
        """The task of a cell; settings that contradict each other are refused before data are read."""
        settings = from_dict(LatentSettings, config.settings, "settings")
        model = registry.build_model(config.network.network, **config.network.network_fields)
        check_settings(model, settings)
        return cls(cls.load(config, data_dir=data_dir, parts=parts, progress=progress), model, settings)

    @staticmethod
    def load(
        config: ExperimentConfig, *, data_dir: str | Path | None = None, parts: Sequence[str] = problems.PARTS,
        progress: Any = None,
    ) -> MaskedDataset:  # fmt: skip
        """The data of a cell."""
        settings = from_dict(LatentSettings, config.settings, "settings")
        options: dict[str, Any] = {"task": settings.task, **config.data.data_options}
        if "observed" in problems.option_names(config.dataset):
            options["observed"] = settings.observed
        elif settings.observed != 1:
            raise ConfigError(f"{config.dataset} is observed as it is; remove observed={settings.observed:g}")
        data = problems.load_dataset(
            config.dataset, parts=parts, data_dir=data_dir, progress=progress, seed=config.data.data_seed,
            **options,
        )  # fmt: skip
        assert isinstance(data, MaskedDataset)
        return data

    def _check_network(self) -> None:
        features = self.data.num_classes or len(self.data.features)
        out = jax.eval_shape(self.model.init_with_output, jax.random.key(0), *self._example())[0]
        if out.shape[-1] != features:
            raise ConfigError(
                f"{self.data.name} has {features} features or classes, but the network answers {out.shape[-1]}; set "
                "out_features or num_classes"
            )
        problem = interface.unanswerable(self.model, np.asarray(self._first.times[..., :1]))
        if problem is not None:
            raise ConfigError(f"the model does not fit the times of the data: {problem}")

    # --- what training needs --------------------------------------------------------------------------------------

    def _example(self) -> tuple[Any, Any]:
        times = self._first.times
        return self._first.observed[:1], times[:1] if times.ndim == 1 else times[:1, :1]

    def init(self, key: Key) -> Params:
        return jax.jit(self.model.init)(key, *self._example())

    def sample(self, arrays: LatentArrays, key: Key, step: Any, shard: Any, num_shards: int) -> LatentBatch:
        settings, num_samples = self.settings, len(arrays.observed)
        if settings.batch_size % num_shards:
            raise ConfigError(
                f"batch_size={settings.batch_size} cannot be divided among {num_shards} devices; use a multiple of "
                f"{num_shards}, or fewer devices"
            )
        local = settings.batch_size // num_shards
        mine = lambda values: jax.lax.dynamic_slice_in_dim(values, shard * local, local)  # noqa: E731
        order_key, step_key = jax.random.split(key)
        observed_key, time_key = jax.random.split(jax.random.fold_in(step_key, step))
        index = mine(batching.epoch_indices(order_key, step, num_samples, settings.batch_size))
        observed = arrays.observed[index]
        if self.data.subsample:
            scores = mine(jax.random.uniform(observed_key, (settings.batch_size, observed.shape[1])))
            features = len(self.data.features)
            observed = _take(observed, _some(scores, observed[..., 1 + features :], self.data.subsample))
        mask = arrays.mask[index]
        labels = None if arrays.labels is None else arrays.labels[index]
        asked = (arrays.values[index], mask, losses.published_weights(mask, settings.times_per_step), labels)
        times = arrays.times if arrays.times.ndim == 1 else arrays.times[index]
        if settings.times_per_step and times.ndim == 1 and not settings.own_times:
            chosen = jax.random.choice(time_key, len(times), (settings.times_per_step,), replace=False)
            times, asked = times[chosen], tuple(None if a is None else a[:, chosen] for a in asked)
        elif settings.times_per_step and times.ndim == 1:
            chosen = mine(batching.strata(time_key, settings.batch_size, settings.times_per_step, len(times)))
            times, asked = times[chosen], tuple(None if a is None else _take(a, chosen) for a in asked)
        elif settings.times_per_step:
            scores = mine(jax.random.uniform(time_key, (settings.batch_size, times.shape[1])))
            chosen = _some(scores, mask, settings.times_per_step)
            times = jnp.take_along_axis(times, chosen, axis=1)
            asked = tuple(None if a is None else _take(a, chosen) for a in asked)
        epoch = step // max(1, sum(self._samples) // settings.batch_size)
        weight = losses.kl_weight(epoch, settings.kl_wait, settings.kl_rate)
        return LatentBatch(observed, times, *asked, kl_weight=weight)  # type: ignore[arg-type]

    def loss(self, params: Params, batch: LatentBatch, key: Key) -> Any:
        settings = self.settings
        keys = jax.random.split(key, settings.num_draws)
        found = self._posterior(params, batch.observed, batch.times, keys, method="decoded")
        values, mean, std, logits = found
        if settings.loss == "cross_entropy":
            return losses.cross_entropy(logits, batch.labels)  # type: ignore[arg-type]
        if settings.loss == "squared_error":
            return losses.squared_error(values, batch.values, batch.mask)
        if settings.loss == "squared_error_per_feature":
            return losses.weighted_squared_error(values, batch.values, batch.weights)
        kl = losses.divergence(mean[0], std[0])
        if settings.loss == "evidence_bound":
            return losses.evidence_bound(
                values, batch.values, batch.mask, kl, settings.observation_std, batch.kl_weight
            )
        likelihood = losses.log_likelihood(values, batch.values, batch.mask, settings.observation_std)
        return losses.published_bound(likelihood, kl, batch.kl_weight)

    def _posterior(self, params: Params, observed: Any, times: Any, keys: Any, method: str = "posterior") -> Any:
        """Prediction with a leading axis of draws; a model without a latent distribution has one draw."""
        if not interface.has_posterior(self.model):
            answer: Any = self.model.apply(params, observed, times)
            values, logits = (None, answer[None]) if self.data.num_classes else (answer[None], None)
            return values, None, None, logits
        draw = lambda key: self.model.apply(params, observed, times, key, method=method)  # noqa: E731
        if len(keys) == 1:  # an axis of length one would cost as much again
            return jax.tree.map(lambda leaf: leaf[None], draw(keys[0]))
        return jax.vmap(draw)(keys)

    def describe(self) -> dict[str, Any]:
        return {**self.facts(), "model": registry.to_dict(self.model)}

    def facts(self) -> dict[str, Any]:
        """Facts about the training data that a predictor keeps, as JSON values."""
        observed = self.data.train.observed
        packed = self._real(observed)
        seen = observed.valid
        return {
            "task": self.kind,
            "transform": self.transform.to_dict(),
            "input_shape": [int(n) for n in self._first.observed.shape[1:]],
            "grid": [int(self._first.observed.shape[1])],
            "in_channels": packed.shape[-1],
            "out_channels": self.data.num_classes or len(self.data.features),
            "final_time": float(self.data.train.target.times.max() * self.data.time_unit + self.data.time_offset),
            "range": [[float(v) for v in bound] for bound in (packed[seen].min(0), packed[seen].max(0))],
            "title": self.data.name,
            "channels": list(self.data.features),
        }

    def _real(self, observed: Observations) -> np.ndarray:
        """Packed observations in real units."""
        values = observed.values * np.asarray(self.data.scale) + np.asarray(self.data.offset)
        values = np.where(observed.mask > 0, values, 0)
        times = observed.times[..., None] * self.data.time_unit + self.data.time_offset
        return np.concatenate([times, values, observed.mask], axis=-1).astype(np.float32)

    # --- evaluation -----------------------------------------------------------------------------------------------

    def evaluate(self, params: Params, split: str) -> dict[str, Any]:
        if split == "validation":
            values = self.predict(params, self.data.validation)
            found = masked_metrics.scores(values, self.data.validation)
            error = found["mse"] if "mse" in found else 1 - found["accuracy"]
            if self.data.task != "classification":
                found |= self._noise(values)
            return {self.metric: error, **{f"validation_{name}": value for name, value in found.items()}}
        if self.data.test is None:
            raise ValueError("the test set was not loaded; this task evaluates on validation data only")
        start = time.perf_counter()
        found = masked_metrics.scores(self.predict(params, self.data.test), self.data.test)
        seconds = round(time.perf_counter() - start, 3)
        return {**found, **self._stability(params, self.data.test), "evaluation_seconds": seconds}

    def _noise(self, values: np.ndarray) -> dict[str, float]:
        """Standard deviation of each feature's noise on validation data, in the unit of the feature."""
        noise = masked_metrics.unexplained(values, self.data.validation) * np.asarray(self.data.scale)
        return {f"noise_{name}": float(value) for name, value in zip(self.data.features, noise, strict=True)}

    def predict(self, params: Params, part: Part) -> Float[np.ndarray, "draws batch time outputs"]:
        """Draws of the answers at the targets of a part, in the units of the network."""
        packed, found, piece = part.observed.packed(), [], min(_SERIES_PER_CALL, len(part))
        for i in range(0, len(part), piece):
            rows = np.minimum(np.arange(i, i + piece), len(part) - 1)  # the last one fills the last call
            answer = self._draw(params, packed[rows], part.target.times[rows], count=self.settings.test_draws)
            found.append(np.asarray(answer)[:, : len(part) - i])
        return np.concatenate(found, axis=1)

    def _stability(self, params: Params, part: Part) -> dict[str, float]:
        """Certified and measured growth of an error in the latent state, up to the largest query time."""
        if not (isinstance(self.model, latent.LatentModel) and isinstance(self.model.dynamics, GridDynamics)):
            return {}
        times = np.linspace(0, part.target.times.max(), _CERTIFIED_TIMES, dtype=np.float32)
        certified = latent_lipschitz(self.model, params, jnp.asarray(times))
        z0, _ = latent.encode(self.model, params, jnp.asarray(part.observed.packed()[:1]))
        model = self.model
        measured = measured_gain(lambda p, z, t: latent.evolve(model, p, z, t), params, z0[0], jnp.asarray(times))
        return {
            "certified_lipschitz": float(certified.max()), "measured_gain": float(measured.max()),
            "certificate_ratio": float((certified / measured).max()),
        }  # fmt: skip

    def _draws(self, params: Params, observed: Any, times: Any, count: int) -> Any:
        values, _, _, logits = self._posterior(params, observed, times, jax.random.split(jax.random.key(0), count))
        return values if logits is None else logits

    def figures(self, params: Params, split: str) -> Iterator[tuple[str, Any]]:
        """Name and figure of three series with their forecasts or classes, in real units."""
        from ctfno_jax.plotting import latent as plots

        part = self.data.validation if split == "validation" else self.data.test
        if part is None:
            return
        some = part.select(slice(3))
        draws = self.predict(params, some)
        title = f"{self.data.name}, {self.data.task}, first {split} series"
        if self.data.num_classes:
            chances = np.asarray(jax.nn.softmax(draws, axis=-1)).mean(0)
            yield "series", plots.classes(some, chances, self.data, title=title)
            return
        noise = masked_metrics.unexplained(self.predict(params, self.data.validation), self.data.validation)
        scale = np.asarray(self.data.scale)
        mean, std = draws.mean(0) * scale + np.asarray(self.data.offset), np.hypot(draws.std(0), noise) * scale
        yield "series", plots.forecasts(some, mean, std, self.data, title=title)


def check_settings(model: nn.Module, settings: LatentSettings) -> None:
    """Raises for what follows from model and settings alone."""
    if interface.has_posterior(model):
        return
    if settings.loss in _OF_POSTERIOR:
        raise ConfigError(f"loss={settings.loss} needs a latent distribution; {type(model).__name__} has none")
    if settings.num_draws > 1 or settings.test_draws > 1:
        raise ConfigError(f"{type(model).__name__} has nothing to draw; set num_draws=1 and test_draws=1")


# --- arrays -----------------------------------------------------------------------------------------------------------


def _by_length(part: Part, settings: LatentSettings) -> list[Part]:
    """The series in groups of similar length; a group too small for a batch joins its neighbour."""
    size = settings.batch_size
    if len(part) < size:
        raise ConfigError(f"batch_size={size} exceeds the {len(part)} training series; lower it")
    steps = max(part.observed.steps, part.target.steps)
    needed = np.maximum(part.observed.num_valid, part.target.num_valid)
    groups, left = [], np.arange(len(part))
    for length in sorted({n for n in settings.lengths or () if n < steps}):
        fits = needed[left] <= length
        if fits.sum() >= size:
            groups.append(left[fits])
            left = left[~fits]
    if groups and len(left) < size:
        left = np.sort(np.concatenate([groups.pop(), left]))
    return [part.select(index) for index in (*groups, left)]


def _arrays(part: Part) -> LatentArrays:
    observed, target = part.observed.trimmed(), part.target.trimmed()
    shared = bool(np.all(target.times == target.times[:1]))
    labels = None if part.labels is None else jnp.asarray(part.labels[:, : target.steps])
    return LatentArrays(
        jnp.asarray(observed.packed()), jnp.asarray(target.times[0] if shared else target.times),
        jnp.asarray(target.values), jnp.asarray(target.mask), labels,
    )  # fmt: skip


def _order(samples: Sequence[int]) -> list[int]:
    """The groups in turn, each as often as its share of the series asks, spread evenly."""
    calls = np.maximum(1, np.round(20 * np.asarray(samples) / sum(samples)).astype(int))
    places = [((k + 0.5) / count, i) for i, count in enumerate(calls) for k in range(count)]
    return [i for _, i in sorted(places)]


def _some(
    scores: Float[Array, "batch steps"], mask: Float[Array, "batch steps features"], count: int
) -> Int[Array, "batch count"]:
    """Indices, in order of time, of the valid steps with the largest random scores; padding where there are too few."""
    valid = jnp.max(mask, axis=-1)
    _, index = jax.lax.top_k(jnp.where(valid > 0, scores, -1.0), min(count, scores.shape[1]))
    return jnp.sort(index, axis=-1)


def _take(values: Array, index: Int[Array, "batch count"]) -> Array:
    return jnp.take_along_axis(values, index.reshape(*index.shape, *[1] * (values.ndim - 2)), axis=1)
