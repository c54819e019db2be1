"""Lines of the tables of partly observed series."""

from collections.abc import Callable

import numpy as np

from experiments import catalog, latent_references, paper_results
from experiments.cells import Cell
from experiments.rows import Row
from experiments.table_lines import (
    MISSING,
    SEEDS,
    SIZES,
    Block,
    Column,
    Lines,
    Results,
    compared,
    growth,
    published,
    ratio_to,
    sizes_of,
    spread,
    values_of,
)

_SCALES = {"mse": 1e3, "accuracy": 100.0}
_UNITS = {"mse": "test MSE x 1e-3", "accuracy": "accuracy in percent"}


def latent(table: str, found: Results) -> list[Block]:
    """All models of a data set of partly observed series, and numbers of other publications.

    Tasks with several columns each have a table of their own: one with all of them would be too wide to read.
    """
    cells = catalog.cells(table, num_seeds=1)
    tasks: dict[str, list[Cell]] = {}
    for cell in cells:
        tasks.setdefault(_task(cell), []).append(cell)
    if len(tasks) in (1, len(_columns(cells))):
        return [_errors(table, cells, found, lambda cell: _label(_column(cell))), *_elsewhere(table)]
    return [*(_errors(f"{table}, {task}", some, found, _share) for task, some in tasks.items()), *_elsewhere(table)]


def _errors(name: str, cells: list[Cell], found: Results, label: Callable[[Cell], str]) -> Block:
    """Errors of some cells of a data set, one line for each model and two columns for each task and share."""
    table, columns = cells[0].dataset, _columns(cells)
    by_place = {(cell.model, _column(cell)): cell for cell in cells}
    metric = paper_results.metric(table)
    lines = [["model", *(text for first in columns.values() for text in (label(first), "paper"))]]
    notes: set[str] = set()
    references = [reference for cell in cells for reference in latent_references.OF_TASK[_task(cell)]]
    for model in dict.fromkeys([*references, *(cell.model for cell in cells)]):
        line = [model]
        for column, first in columns.items():
            some = found.of(by_place.get((model, column), catalog.reference(first, model)))
            # A source has a note where the data are not the official ones.
            notes |= {row["source"] for row in some if "(" in row["source"]}
            line += [
                spread(compared(some, metric), _SCALES[metric]),
                published(paper_results.number(table, model, column), _SCALES[metric]),
            ]
        lines.append(line)
    return "; ".join([f"{name}: {_UNITS[metric]}, {SEEDS}", *(f"data: {note}" for note in sorted(notes))]), lines


def details(table: str, found: Results) -> list[Block]:
    """One table for each task, with all errors, growth, epochs, sizes and times of the trained models."""
    cells = catalog.cells(table, num_seeds=1)
    metric = paper_results.metric(table)
    scale = _SCALES[metric]
    columns: list[Column] = []
    if metric == "mse":
        columns += [
            ("pooled", lambda some: spread(values_of(some, "mse_pooled"), scale)),
            ("of the mean forecast", lambda some: spread(values_of(some, "mse_of_mean"), scale)),
        ]
    columns += [
        ("certified growth", growth("certified_lipschitz")), ("measured growth", growth("measured_gain")),
        ("epochs", _epochs),
    ]  # fmt: skip
    blocks = []
    for column in _columns(cells):
        lines = [["model", "ours", "paper", "ratio", *(name for name, _ in columns), *SIZES]]
        for cell in cells:
            if _column(cell) != column:
                continue
            some, paper = found.of(cell), paper_results.number(table, cell.model, column)
            ours = compared(some, metric)
            line = [cell.model, spread(ours, scale), published(paper, scale), ratio_to(ours, paper)]
            lines.append([*line, *(text(some) for _, text in columns), *sizes_of(some, table, cell.model)])
        blocks.append((f"{table}, {_label(column)}: {_UNITS[metric]}, {SEEDS}", lines))
    return blocks


def _elsewhere(table: str) -> list[Block]:
    others = paper_results.ELSEWHERE.get(table)
    if others is None:
        return []
    head = ["source", *map(_label, paper_results.TABLES[table]["columns"])]
    lines: Lines = [head, *([source, *(published(v, 1.0) for v in values)] for source, values in others.items())]
    return [(f"{table}: other publications, {_UNITS[paper_results.metric(table)]}", lines)]


def _columns(cells: list[Cell]) -> dict[str, Cell]:
    """The columns of a table in order, with the first cell of each."""
    found: dict[str, Cell] = {}
    for cell in cells:
        found.setdefault(_column(cell), cell)
    return found


def _column(cell: Cell) -> str:
    return paper_results.latent_column(cell.dataset, cell.config())


def _task(cell: Cell) -> str:
    return str(cell.config().settings["task"])


def _share(cell: Cell) -> str:
    """Label of the share of points that a model sees."""
    return f"{100 * float(str(cell.config().settings['observed'])):g}%"


def _label(column: str) -> str:
    return column.replace("_", " ")


def _epochs(some: list[Row]) -> str:
    """Passes through the training series."""
    if not some:
        return MISSING
    made = [row["steps"] * row["config"]["settings"]["batch_size"] / row["data"]["train"] for row in some]
    return f"{np.mean(made):.0f}"
