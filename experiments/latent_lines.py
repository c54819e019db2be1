"""Lines of the tables of partly observed series."""

import dataclasses

from experiments import catalog, latent_references, paper_results
from experiments.cells import Cell
from experiments.table_lines import SEEDS, Block, Results, compared, published, spread


def latent(table: str, found: Results) -> Block:
    """All models and tasks of a data set of partly observed series; references are no models."""
    cells = catalog.cells(table, num_seeds=1)
    columns = list(dict.fromkeys(_latent_column(cell) for cell in cells))
    by_place = {(cell.model, _latent_column(cell)): cell for cell in cells}
    first = {column: cell for cell in reversed(cells) for column in [_latent_column(cell)]}
    lines = [["model", *(text for column in columns for text in (column.replace("_", " "), "paper"))]]
    notes: set[str] = set()
    references = [name for cell in cells for name in latent_references.OF_TASK[str(cell.config().settings["task"])]]
    for model in dict.fromkeys([*references, *(cell.model for cell in cells)]):
        line = [model]
        for column in columns:
            cell = by_place.get((model, column), dataclasses.replace(first[column], model=model))
            metric, some = paper_results.metric(cell.dataset), found.of(cell)
            # A source has a note where the data are not the official ones.
            notes |= {row["source"] for row in some if "(" in row["source"]}
            line += [
                spread(compared(some, metric), _LATENT_SCALES[metric]),
                published(paper_results.number(table, model, column), _LATENT_SCALES[metric]),
            ]
        lines.append(line)
    unit = "accuracy in percent" if paper_results.metric(table) == "accuracy" else "test MSE x 1e-3"
    return "; ".join([f"{table}: {unit}, {SEEDS}", *(f"data: {note}" for note in sorted(notes))]), lines


_LATENT_SCALES = {"mse": 1e3, "accuracy": 100.0}


def _latent_column(cell: Cell) -> str:
    settings = cell.config().settings
    return paper_results.latent_column(cell.dataset, str(settings["task"]), float(str(settings["observed"])))
