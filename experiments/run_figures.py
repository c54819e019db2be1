"""Figures from trained runs. A run is looked for in the folder where experiments.reproduce leaves it."""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from ctfno_jax import metrics
from ctfno_jax.certify import observed_lipschitz
from ctfno_jax.data import problems
from ctfno_jax.data.series import Series, SeriesDataset
from ctfno_jax.data.trajectories import FieldDataset, Trajectories
from ctfno_jax.plotting import series as plots
from ctfno_jax.plotting import suite
from ctfno_jax.predict import Predictor, load_predictor
from ctfno_jax.tasks.series import inputs_of, solved, with_noise
from ctfno_jax.training.checkpoint import CheckpointError
from ctfno_jax.training.workdir import read_json
from experiments import catalog, configs, reproduce
from experiments.cells import Cell

TRAJECTORIES = ("square", "sawtooth", "stiff", "spiral")
# The spiral is followed for this many observation steps beyond the training times.
_FURTHER_STEPS = 500

# Numbers that a figure shows and no row holds, by model or panel.
Numbers = dict[str, dict[str, float | None]]


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained run.

    Attributes:
      predictor: its best state.
      data: the data section of its config.
    """

    predictor: Predictor
    data: dict[str, Any]


def load(cell: Cell, runs: Path) -> Run | None:
    """The run of a cell; None if there is none, which is named together with the command that trains it."""
    folder = reproduce.trained(cell, runs)
    if not folder.is_dir():
        print(f"left out: no run in {folder}; train it with {cell.command} --workdir={folder}")
        return None
    try:
        predictor = load_predictor(folder)
    except CheckpointError as error:
        print(f"left out: {error}")
        return None
    config = read_json(folder / "config.json", "train the run again")
    if config["preset"] != cell.preset or config["data"]["data_file"]:
        source = config["data"]["data_file"] or "generated data"
        print(f"left out: {folder} is a run of preset {config['preset']} on {source}, not of preset {cell.preset}")
        return None
    return Run(predictor, config["data"])


def heatmaps(runs: Path, preset: str, sample: int) -> Figure | None:
    """One test trajectory of every equation, answered by CTFNO: one row of panels for each channel."""
    panels = []
    for dataset in (*catalog.EQUATIONS, "reaction"):
        run = load(Cell(configs.experiment(dataset), dataset, "ctfno", preset), runs)
        if run is None:
            continue
        one = trajectory(dataset, run.data, sample)
        u = run.predictor(one.u0, one.times)
        problem = problems.problem(dataset)
        assert isinstance(problem, problems.FieldProblem)
        for i, channel in enumerate(problem.channels):
            label = dataset if len(problem.channels) == 1 else f"{dataset}, {channel}"
            panels.append(suite.Panel(label, one.u[0, ..., i], u[0, ..., i], one.times, problem.domain))
    return suite.heatmap_rows(panels) if panels else None


def trajectory(dataset: str, data: dict[str, Any], sample: int) -> Trajectories:
    """One trajectory of the test set that a run was evaluated on."""
    _check_sample(sample, data["num_test"], dataset)
    # Test samples come first and do not depend on the number of others.
    loaded = problems.load_dataset(
        dataset, num_train=1, num_validation=0, num_test=sample + 1, seed=data["data_seed"], **data["data_options"]
    )
    assert isinstance(loaded, FieldDataset)
    assert loaded.test is not None
    return loaded.test.select(slice(sample, sample + 1))


def load_test(dataset: str, data: dict[str, Any], **options: Any) -> Series:
    """The test set that a run was evaluated on, with some options changed."""
    sizes = {name: data[name] for name in ("num_train", "num_validation", "num_test")}
    loaded = problems.load_dataset(dataset, **sizes, seed=data["data_seed"], **{**data["data_options"], **options})
    assert isinstance(loaded, SeriesDataset)
    assert loaded.test is not None
    return loaded.test


def _check_sample(sample: int, count: int, dataset: str) -> None:
    if sample >= count:
        raise ValueError(f"--sample must be below {count}, the number of test samples of {dataset}, got {sample}")


def _all_models(dataset: str, preset: str, runs: Path) -> dict[str, Run]:
    found = {model: load(Cell("synthetic", dataset, model, preset), runs) for model in catalog.DE_MODELS}
    return {model: run for model, run in found.items() if run is not None}


def trajectories(runs: Path, preset: str, sample: int) -> Figure | None:
    """One test series of every data set with the forecasts of all models."""
    rows = {}
    for dataset in TRAJECTORIES:
        found = _all_models(dataset, preset, runs)
        if not found:
            continue
        test = load_test(dataset, next(iter(found.values())).data)
        _check_sample(sample, len(test), dataset)
        one = test.select(slice(sample, sample + 1))
        rows[dataset] = (one, {model: run.predictor(inputs_of(one), one.times) for model, run in found.items()})
    return plots.grid_of_forecasts(rows) if rows else None


def spiral_extrapolation(runs: Path, preset: str, sample: int) -> tuple[Figure, Numbers] | None:
    """Forecasts of all models beyond their training times, with their errors there."""
    found = _all_models("spiral", preset, runs)
    if not found:
        return None
    run = next(iter(found.values()))
    near = load_test("spiral", run.data)
    _check_sample(sample, len(near), "spiral")
    num_points = near.observed.shape[1] + near.values.shape[1]
    step, trained_until = float(near.times[0]), float(near.times[-1])
    num_points += _FURTHER_STEPS
    far = load_test("spiral", run.data, num_points=num_points, final_time=step * num_points)
    forecasts = {model: run.predictor(inputs_of(far), far.times) for model, run in found.items()}
    beyond = far.times > trained_until + step / 2
    numbers = {
        model: {"rmse_within": _rmse(u, far.values, ~beyond), "rmse_beyond": _rmse(u, far.values, beyond)}
        for model, u in forecasts.items()
    }
    one = slice(sample, sample + 1)
    figure = plots.extrapolations(
        far.select(one), {model: u[one] for model, u in forecasts.items()}, trained_until=trained_until
    )
    return figure, numbers


def _rmse(u: np.ndarray, values: np.ndarray, part: np.ndarray) -> float | None:
    """Error at some of the times over the series that a solver has answered; None if it has answered none."""
    answered = solved(u[:, part])
    return metrics.rmse(u[answered][:, part], values[answered][:, part]) if answered.any() else None


def noise(runs: Path, preset: str, sample: int, size: float) -> tuple[Figure, Numbers] | None:
    """CTFNO with and without a bound on noisy observations, with the measured and the certified change."""
    panels, numbers = [], {}
    for cell in catalog.cells("noise", num_seeds=1):
        run = load(dataclasses.replace(cell, preset=preset), runs)
        if run is None:
            continue
        test = load_test(cell.dataset, run.data)
        _check_sample(sample, len(test), cell.dataset)
        bound = cell.overrides.get("stability_bound")
        label = f"{cell.dataset}, {'no bound' if bound is None else f'M = {bound:g}'}"
        panel, numbers[label] = _noisy(run.predictor, test, label, sample, size)
        panels.append(panel)
    return (plots.noise_panels(panels), numbers) if panels else None


def _noisy(
    predictor: Predictor, test: Series, label: str, sample: int, size: float
) -> tuple[plots.NoisyPanel, dict[str, float | None]]:
    model: Any = predictor.model  # an ObservedCTFNO: that is what cells of ctfno on series hold
    disturbed = with_noise(test, size)
    error = disturbed.observed - test.observed
    clean, noisy = (predictor(inputs_of(some), test.times) for some in (test, disturbed))
    norms = np.maximum(np.sqrt(np.sum(np.square(error), axis=(1, 2))), np.finfo(np.float32).tiny)
    change = float((np.sqrt(np.sum(np.square(noisy - clean), axis=2)) / norms[:, None]).max())
    bound = float(observed_lipschitz(model, predictor.params, jnp.asarray(test.times[::10])).max())
    numbers: dict[str, float | None] = {
        "noise": size, "rmse_without": metrics.rmse(clean, test.values), "rmse_with": metrics.rmse(noisy, test.values),
        "largest_change": change, "certified_change": bound,
    }  # fmt: skip
    title = f"{label}: change at most {change:.2g} x noise, certified {bound:.3g} x"
    one = test.select(slice(sample, sample + 1))
    return plots.NoisyPanel(title, one, error[sample], clean[sample], noisy[sample]), numbers
