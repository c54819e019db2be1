"""Lines of every table: our numbers from the rows of finished cells, the paper's beside them."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from ctfno_jax.config import ConfigError
from ctfno_jax.data import problems
from ctfno_jax.tasks.series import NOISES
from ctfno_jax.training.workdir import read_json
from experiments import catalog, linear_forecast, paper_results, rows
from experiments.cells import Cell
from experiments.rows import Row

# Tables with a column for each data set.
OVERVIEWS = ("pde", "ablation", "synthetic", "de_on_fields")

_METRICS = {"rmse": "RMSE", "nrmse": "relative L2 error", "mse": "MSE"}
SEEDS = "mean over seeds ± half the range"
MISSING = "-"

Lines = list[list[str]]
# Title, and lines of which the first is the heading.
Block = tuple[str, Lines]
# Heading of a column, and its text for the rows of one cell.
Column = tuple[str, Callable[[list[Row]], str]]


class Results:
    """The rows in a folder, read when a table asks for them."""

    def __init__(self, folder: Path) -> None:
        self._read = functools.cache(lambda experiment: rows.read_all(folder, experiment))

    def of(self, cell: Cell) -> list[Row]:
        """The rows of all seeds of a cell."""
        return rows.select(
            self._read(cell.experiment), dataset=cell.dataset, model=cell.model, preset=cell.preset,
            overrides=dict(cell.overrides),
        )  # fmt: skip


# --- numbers ----------------------------------------------------------------------------------------------------------


def spread(values: Sequence[float], scale: float = 100.0) -> str:
    """Mean and half the range, to four digits of the mean, times ``scale``."""
    if not values:
        return MISSING
    mean = scale * float(np.mean(values))
    digits = max(0, 3 - int(np.floor(np.log10(mean)))) if mean > 0 else 4
    half_range = f" ± {scale * (max(values) - min(values)) / 2:.{digits}f}" if len(values) > 1 else ""
    return f"{mean:.{digits}f}{half_range}"


def paired_difference(some: list[Row], others: list[Row], metric: str, scale: float = 100.0) -> str:
    """Mean difference of a metric between rows of equal seeds, with its 95% interval by Student's t."""
    before = {row["seed"]: row["metrics"][metric] for row in others}
    values = [scale * (row["metrics"][metric] - before[row["seed"]]) for row in some if row["seed"] in before]
    if len(values) < 2:
        return MISSING
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):+.2f} ± {half:.2f}"


def median(values: Sequence[float], scale: float = 100.0) -> str:
    """Median times ``scale``, to four digits."""
    return spread([float(np.median(values))], scale) if values else MISSING


def published(value: float | None, scale: float = 100.0) -> str:
    """A number of the paper as it is printed there."""
    return MISSING if value is None else f"{scale * value:.5g}"


def ratio(ours: float | None, other: float | None) -> str:
    """Quotient of two numbers."""
    if ours is None or not other:
        return MISSING
    return f"{ours / other:.2f}" if ours >= 0.1 * other else f"{ours / other:.1g}"


def compared(some: list[Row], metric: str) -> list[float]:
    """The errors that stand beside the paper's."""
    for row in some:
        if metric not in row["metrics"]:
            raise ConfigError(f"the row of `{row['command']}` has no {metric}; remove it and run its cell again")
    return [row["metrics"][metric] for row in some]


def ratio_to(ours: Sequence[float], other: float | None) -> str:
    """Quotient of the mean of our numbers and another one."""
    return ratio(float(np.mean(ours)) if ours else None, other)


def values_of(some: list[Row], metric: str) -> list[float]:
    return [row["metrics"][metric] for row in some if metric in row["metrics"]]


def _error(metric: str) -> Callable[[list[Row]], str]:
    return lambda some: spread(values_of(some, metric))


def growth(metric: str) -> Callable[[list[Row]], str]:
    """Text of the mean of a metric, to three digits."""
    return lambda some: f"{np.mean(values):.3g}" if (values := values_of(some, metric)) else MISSING


def _parameters(some: list[Row]) -> str:
    return "/".join(f"{count:,}" for count in sorted({row["num_params"] for row in some})) or MISSING


def _minutes(some: list[Row]) -> str:
    return f"{np.mean([row['cpu_seconds'] for row in some]) / 60:.1f}" if some else MISSING


# --- tables over several data sets ------------------------------------------------------------------------------------


def _grid(table: str) -> tuple[list[str], list[str], dict[tuple[str, str], Cell]]:
    """Models and data sets of a table in order, those of the paper included, and the cells that have settings."""
    cells = {(cell.model, cell.dataset): cell for cell in catalog.cells(table, num_seeds=1)}
    paper = paper_results.TABLES[table]
    models = list(dict.fromkeys([*(model for model, _ in cells), *paper["rows"]]))
    if table == "pde":  # some data sets lack a model, whose place is not last
        models = [*sorted(models, key=catalog.SURROGATES.index), *catalog.PEERS]
        peers = [(peer, dataset) for peer in catalog.PEERS for dataset in paper["columns"]]
        cells |= {(peer, dataset): Cell("peers", dataset, peer) for peer, dataset in peers}
    datasets = list(dict.fromkeys([*(dataset for _, dataset in cells), *paper["columns"]]))
    return models, datasets, cells


def overview(table: str, found: Results) -> Block:
    """All data sets and models in one table."""
    models, datasets, cells = _grid(table)
    lines = [["model", *(text for dataset in datasets for text in (dataset, "paper"))]]
    for model in models:
        line = [model]
        for dataset in datasets:
            some = found.of(cells[model, dataset]) if (model, dataset) in cells else []
            line += [
                spread(compared(some, paper_results.metric(dataset))),
                published(paper_results.number(table, model, dataset)),
            ]
        lines.append(line)
    other = [f"{d}: {_METRICS[paper_results.metric(d)]}" for d in datasets if paper_results.metric(d) != "rmse"]
    return f"Test RMSE x 1e-2{''.join(f' ({text})' for text in other)}, {SEEDS}", lines


def details(table: str, found: Results) -> list[Block]:
    """One table for each data set, with all errors, sizes and times."""
    models, datasets, cells = _grid(table)
    blocks = []
    for dataset in datasets:
        there = {
            model: found.of(cells[model, dataset]) if (model, dataset) in cells else []
            for model in models
            if (model, dataset) in cells or paper_results.number(table, model, dataset) is not None
        }
        columns = _columns(dataset, [row for some in there.values() for row in some])
        lines = [["model", "ours", "paper", "ratio", *(name for name, _ in columns), *SIZES]]
        for model, some in there.items():
            lines.append([
                model, *_beside(some, dataset, paper_results.number(table, model, dataset)),
                *(text(some) for _, text in columns), *sizes_of(some, dataset, model),
            ])  # fmt: skip
        facts = _facts([row for some in there.values() for row in some]) + _augmentation(there)
        blocks.append((f"{dataset}: test {_METRICS[paper_results.metric(dataset)]} x 1e-2, {SEEDS}{facts}", lines))
    return blocks


SIZES = ("parameters", "paper's", "CPU minutes", "seeds")


def sizes_of(some: list[Row], dataset: str, model: str) -> list[str]:
    paper = paper_results.printed_num_params(dataset, model)
    return [_parameters(some), paper or MISSING, _minutes(some), str(len(some))]


def _beside(some: list[Row], dataset: str, paper: float | None) -> list[str]:
    """Our error, the paper's, and their ratio."""
    ours = compared(some, paper_results.metric(dataset))
    return [spread(ours), published(paper), ratio_to(ours, paper)]


def _columns(dataset: str, some: list[Row]) -> list[Column]:
    """Errors besides the one that is compared; those of single channels and models only where rows have them."""
    problem = problems.problem(dataset)
    columns: list[Column] = [] if paper_results.metric(dataset) == "nrmse" else [("relative L2", _error("nrmse"))]
    if isinstance(problem, problems.FieldProblem):
        if len(problem.channels) > 1:
            columns.append(("z-scored RMSE", _error("rmse_in_deviations")))
            columns += [(f"of {name}", _error(f"rmse_in_deviations_{name}")) for name in problem.channels]
            columns.append(("z-scored between times", _error("rmse_in_deviations_between_times")))
        else:
            columns.append(("between times", _error("rmse_between_times")))
    elif not isinstance(problem, problems.ImageProblem) and problem.features > 1:
        columns += [(f"RMSE of {name}", _error(f"rmse_{name}")) for name in problem.components]
    if values_of(some, "function_evaluations"):
        columns.append(("vector field evaluations", growth("function_evaluations")))
    return columns


def _facts(some: list[Row]) -> str:
    """Facts about the data that limit the errors."""
    data = some[0]["data"] if some else {}
    texts = {
        "least_rmse": lambda value: f"; no forecast can have less than {100 * value:.4g}",
        "spikes_in_test": lambda value: f"; {value:.0f} test values lie within a jump",
    }
    return "".join(text(data[name]) for name, text in texts.items() if name in data)


def noise(found: Results) -> Block:
    """Errors of CTFNO with noise on its observations, with and without a bound."""
    columns: list[Column] = [("no noise", _error("rmse"))]
    columns += [(f"noise {size:g}", _error(f"rmse_noise_{size:g}")) for size in NOISES]
    columns += [("certified growth", growth("certified_lipschitz")), ("measured growth", growth("measured_gain"))]
    lines = [["waveform", "bound", *(name for name, _ in columns), "seeds"]]
    for cell in catalog.cells("noise", num_seeds=1):
        some = found.of(cell)
        bound = _bound(cell.overrides.get("stability_bound"))
        lines.append([cell.dataset, bound, *(text(some) for _, text in columns), str(len(some))])
    return f"CTFNO on noisy observations: test RMSE x 1e-2, {SEEDS}", lines


_SYMMETRIES = {"sign_flips": "sign flips", "reflections": "reflections", "translations": "translations"}


def _augmentation(there: Mapping[str, list[Row]]) -> str:
    """The symmetries that models were trained with, and by which models where not by all."""
    present = {model: some for model, some in there.items() if some}
    texts = []
    for setting, label in _SYMMETRIES.items():
        models = [model for model, some in present.items() if some[0]["config"]["settings"].get(setting)]
        if models:
            texts.append(label if len(models) == len(present) else f"{label} ({', '.join(models)})")
    return f"; trained with {', '.join(texts)}" if texts else ""


# --- tables of one data set -------------------------------------------------------------------------------------------


def _vibration_cells(preset: str) -> list[tuple[str, Cell]]:
    """Labels and cells of one preset, and those of linear regression, which the paper does not have."""
    cells = [cell for cell in catalog.cells("vibration", num_seeds=1) if cell.preset == preset]
    if preset == "default":
        cells += [Cell("vibration", cells[0].dataset, model) for model in linear_forecast.MODELS]
    return [(", ".join(filter(None, [cell.model, cell.variant])), cell) for cell in cells]


def _vibration_paper(cell: Cell) -> float | None:
    """The paper's number is for its own protocol, and its model has a bound."""
    if cell.preset != "paper" or cell.overrides:
        return None
    return paper_results.number("vibration", cell.model, cell.dataset)


_AT_LEAST = "the paper gives its SONODE and HBNODE as at least 2.5"


def vibration(found: Results) -> Block:
    """Errors of all models on plane vibration, under the published protocol and under ours."""
    lines = [["model", "published protocol", "paper", "ratio", "default settings"]]
    published_cells, ours = dict(_vibration_cells("paper")), dict(_vibration_cells("default"))
    for label, cell in ours.items():
        there = published_cells.get(label)
        beside = [MISSING] * 3
        if there is not None:
            beside = _beside(found.of(there), cell.dataset, _vibration_paper(there))
        lines.append([label, *beside, spread(compared(found.of(cell), paper_results.metric(cell.dataset)))])
    return f"plane_vibration: test MSE x 1e-2, {SEEDS}; {_AT_LEAST}", lines


def vibration_details(found: Results) -> list[Block]:
    """The same with training errors, growth, sizes and times, one table for each protocol."""
    columns: list[Column] = [
        ("training MSE", _error("train_mse")), ("certified growth", growth("certified_lipschitz")),
        ("measured growth", growth("measured_gain")),
    ]  # fmt: skip
    blocks = []
    for preset, title in (("paper", f"published protocol; {_AT_LEAST}"), ("default", "default settings")):
        lines = [["model", "ours", "paper", "ratio", *(name for name, _ in columns), *SIZES]]
        for label, cell in _vibration_cells(preset):
            some = found.of(cell)
            line = [label, *_beside(some, cell.dataset, _vibration_paper(cell)), *(text(some) for _, text in columns)]
            lines.append([*line, *sizes_of(some, cell.dataset, cell.model)])
        blocks.append((f"plane_vibration: test MSE x 1e-2, {SEEDS}, {title}", lines))
    return blocks


def effect_of_bound(found: Results) -> Block:
    """Errors and growth on plane vibration for every bound M and rule."""
    lines = [
        ["M", "rule", "test MSE", "paper", "against no bound", "training MSE", "certified growth", "measured growth",
            "seeds"]
    ]  # fmt: skip
    cells = catalog.cells("effect_of_bound", num_seeds=1)
    (unbounded,) = (found.of(cell) for cell in cells if cell.overrides["stability_bound"] is None)
    for cell in cells:
        some = found.of(cell)
        bound, rule = cell.overrides["stability_bound"], cell.overrides.get("stability_rule", MISSING)
        papers = (bound, rule) == (1.2, "rows")
        lines.append([
            "none" if bound is None else f"{bound:g}", rule.replace("_", " "), spread(values_of(some, "mse")),
            published(paper_results.number("vibration", cell.model, cell.dataset) if papers else None),
            MISSING if bound is None else paired_difference(some, unbounded, "mse"),
            spread(values_of(some, "train_mse")), _median_growth(some, "certified_lipschitz"),
            _median_growth(some, "measured_gain"), str(len(some)),
        ])  # fmt: skip
    return (
        f"plane_vibration, preset paper: effect of the bound M, MSE x 1e-2, {SEEDS}; differences of equal seeds with "
        "their 95% interval; medians of growth"
    ), lines


def _median_growth(some: list[Row], metric: str) -> str:
    return f"{np.median(values):.3g}" if (values := values_of(some, metric)) else MISSING


def data_efficiency(found: Results) -> Block:
    """Errors on heat for every number of training trajectories, with and without a bound."""
    cells = catalog.cells("data_efficiency", num_seeds=1)
    lines = [["training trajectories", *(text for b in catalog.EFFICIENCY_BOUNDS for text in (_bound(b), "seeds"))]]
    by_size = {catalog.efficiency(cell): cell for cell in cells}
    for num_train in dict.fromkeys(number for number, _ in by_size):
        line = [str(num_train)]
        for bound in catalog.EFFICIENCY_BOUNDS:
            some = found.of(by_size[num_train, bound])
            line += [median(compared(some, "rmse")), str(len(some))]
        lines.append(line)
    return "heat, CTFNO: test RMSE x 1e-2, medians over seeds", lines


def universality(found: Results) -> Block:
    """Errors on heat as width or the number of modes grows."""
    lines = [["width", "modes", "parameters", "test RMSE", "seeds"]]
    for cell in catalog.cells("universality", num_seeds=1):
        some = found.of(cell)
        sizes = [str(cell.overrides["width"]), str(cell.overrides["modes"][0])]
        lines.append([*sizes, _parameters(some), spread(compared(some, "rmse")), str(len(some))])
    return f"heat, CTFNO of preset quick: test RMSE x 1e-2, {SEEDS}", lines


def _bound(bound: float | None) -> str:
    return "no bound" if bound is None else f"M = {bound:g}"


# --- trials -----------------------------------------------------------------------------------------------------------


def by_error(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Trials with the best first; those that diverged have no error and are last."""
    return sorted(trials, key=lambda item: np.inf if item["validation"] is None else item["validation"])


def trials(folder: Path) -> list[Block]:
    """Trials of experiments.tune, one table for each data set."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        dataset, model = path.stem.split("-")
        found.setdefault(dataset, {})[model] = read_trials(path)
    head = ["model", "settings", "seed", "steps", "CPU s", "validation error"]
    if not found:
        return [("none yet", [head])]
    blocks = []
    for dataset, by_model in found.items():
        lines = [head]
        for model, some in by_model.items():
            for item in by_error(some):
                seconds = f"{item['cpu_seconds']:.0f}" if "cpu_seconds" in item else MISSING
                error = "diverged" if item["validation"] is None else spread([item["validation"]])
                lines.append([model, item["settings"], str(item["seed"]), str(item["steps"]), seconds, error])
        blocks.append((dataset, lines))
    return blocks


def read_trials(path: Path) -> list[dict[str, Any]]:
    """The trials in a file of experiments.tune; none if there is no file."""
    remedy = "remove it and run its trials again"
    found = read_json(path, remedy).get("trials") if path.exists() else []
    if not isinstance(found, list):
        raise ConfigError(f"{path} holds no trials; {remedy}")
    return found
