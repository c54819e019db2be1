"""Figures of the dynamics suite, from trained runs in ``runs/synthetic``; what is not there is named and left out."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np

from ctfno_jax.certify import observed_lipschitz
from ctfno_jax.config import ConfigError
from ctfno_jax.data import series, synthetic
from ctfno_jax.models.latent import ObservedCTFNO
from ctfno_jax.plotting import series as plots
from ctfno_jax.predict import Predictor, load_predictor
from ctfno_jax.training.checkpoint import CheckpointError
from experiments import series_run
from experiments.configs import synthetic as presets

# Data sets of the figure of learned trajectories, and of the one with noise.
LEARNED = ("square", "sawtooth", "stiff", "spiral")
NOISY = ("sine", "sawtooth")
# Steps of a tenth beyond the training that the spiral is followed for.
_FURTHER_STEPS = 500

# What a figure is about, by model or panel.
Numbers = dict[str, dict[str, float]]


def _load(runs: Path, dataset: str, model: str) -> Predictor | None:
    try:
        return load_predictor(runs / "synthetic" / dataset / model / "seed0")
    except (CheckpointError, ConfigError) as error:
        print(f"left out: {error}")
        return None


def learned_trajectories(runs: Path, sample: int) -> plots.Figure | None:
    """One test series of every data set with the forecasts of all models."""
    rows = {}
    for dataset in LEARNED:
        found = {model: _load(runs, dataset, model) for model in presets.MODELS}
        predictors = {model: predictor for model, predictor in found.items() if predictor is not None}
        if not predictors:
            continue
        test = series_run.load(next(iter(predictors.values())).config).test.select(slice(sample, sample + 1))
        if not len(test):
            raise ValueError(f"--sample={sample} is beyond the test set of {dataset}")
        inputs = test.inputs(with_times=not test.regular)
        rows[dataset] = (test, {model: predictor(inputs, test.times) for model, predictor in predictors.items()})
    return plots.grid_of_forecasts(rows) if rows else None


def spiral_extrapolation(runs: Path, sample: int) -> tuple[plots.Figure, Numbers] | None:
    """Every model followed far beyond the times of its training, with its error there."""
    found = {model: _load(runs, "spiral", model) for model in presets.MODELS}
    predictors = {model: predictor for model, predictor in found.items() if predictor is not None}
    if not predictors:
        return None
    config = next(iter(predictors.values())).config
    d, options = config.dataset, dict(config.dataset.data_options)
    if options:
        raise ValueError(f"the spiral of the figure has no options, but the run in {runs} has {options}")
    num_points = 200 + _FURTHER_STEPS
    far = synthetic.load_series(
        "spiral", num_train=d.num_train, num_validation=d.num_validation, num_test=d.num_test, seed=d.data_seed,
        num_points=num_points, final_time=0.1 * num_points,
    ).test  # fmt: skip
    forecasts = {model: predictor(far.inputs(with_times=False), far.times) for model, predictor in predictors.items()}
    beyond = far.times > 10.05
    numbers: Numbers = {}
    for model, values in forecasts.items():
        inside, outside = (
            float(np.sqrt(np.mean(np.square(values - far.values)[:, part]))) for part in (~beyond, beyond)
        )
        print(f"spiral, {model}: RMSE {inside:.3e} within the training, {outside:.3e} beyond it")
        numbers[model] = {"rmse_within": inside, "rmse_beyond": outside}
    one = far.select(slice(sample, sample + 1))
    shown = {m: v[sample : sample + 1] for m, v in forecasts.items()}
    return plots.extrapolations(one, shown, trained_until=10.0), numbers


def noisy_observations(runs: Path, sample: int, noise: float, seed: int = 0) -> tuple[plots.Figure, Numbers] | None:
    """CTFNO with and without stabilisation under noise on what it sees, with measured and certified change."""
    panels, numbers = [], {}
    for dataset in NOISY:
        for model, label in (("ctfno", "plain"), ("ctfno_stable", "stabilised")):
            predictor = _load(runs, dataset, model)
            if predictor is None or not isinstance(predictor.model, ObservedCTFNO):
                continue
            test = series_run.load(predictor.config).test
            name = f"{dataset}, {label}"
            panel, numbers[name] = _noisy_panel(predictor, test, name, sample, noise, seed)
            panels.append(panel)
    return (plots.noise_panels(panels), numbers) if panels else None


def _noisy_panel(
    predictor: Predictor, test: series.Series, label: str, sample: int, noise: float, seed: int
) -> tuple[plots.NoisyPanel, dict[str, float]]:
    model = predictor.model
    assert isinstance(model, ObservedCTFNO)
    error = noise * np.random.default_rng(seed).standard_normal(test.observed.shape).astype(np.float32)
    clean, noisy = (predictor(test.observed + e, test.times) for e in (0.0 * error, error))
    size = np.sqrt(np.sum(error**2, axis=(1, 2)))
    change = np.sqrt(np.sum(np.square(noisy - clean), axis=2)) / size[:, None]
    bound = observed_lipschitz(model, predictor.params, jnp.asarray(test.times[::10]))
    rmse = lambda values: float(np.sqrt(np.mean(np.square(values - test.values))))  # noqa: E731
    print(
        f"{label}: noise {noise:g}; RMSE {rmse(clean):.3e} without and {rmse(noisy):.3e} with it; the forecast changes "
        f"by at most {change.max():.3g} times the noise, certified {bound.max():.3g} times"
    )
    numbers = {
        "noise": noise, "rmse_without": rmse(clean), "rmse_with": rmse(noisy), "largest_change": float(change.max()),
        "certified_change": float(bound.max()),
    }  # fmt: skip
    panel = plots.NoisyPanel(
        f"{label}\nchange at most {change.max():.2g} x noise, certified {bound.max():.3g}",
        test.select(slice(sample, sample + 1)), error[sample], clean[sample], noisy[sample],
    )  # fmt: skip
    return panel, numbers
