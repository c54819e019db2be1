"""Lines of the tables of classifiers: accuracies as they are, with noise, under attack, proven, and on finer images."""

import functools

from experiments import catalog, paper_results
from experiments.cells import Cell
from experiments.table_lines import SEEDS, SIZES, Block, Lines, Results, published, sizes_of, spread, values_of


def images(table: str, found: Results) -> list[Block]:
    """All classifiers of a data set: accuracies as they are, with noise and proven; then under attack."""
    cells = catalog.cells(table, num_seeds=1)
    columns = paper_results.TABLES[table]["columns"]
    attacked = [column for column in columns if column.startswith(("fgsm", "pgd"))]
    sizes = [column.removeprefix("fgsm_") for column in attacked if column.startswith("fgsm")]
    stronger = [f"{attack}_{size}" for attack in ("pgd_quarter", "apgd") for size in sizes]
    radius = cells[0].config().settings["certified_radius"]
    clean = _accuracies(cells, found, [column for column in columns if column not in attacked], ["certified"])
    clean[0] += SIZES
    for line, cell in zip(clean[1:], cells, strict=True):
        line += sizes_of(found.of(cell), table, cell.model)
    return [
        (
            f"{table}: test accuracy in percent, {SEEDS}; standard deviations of the noise in grey levels; certified "
            f"within an L2 radius of {radius:.3g}",
            clean,
        ),
        (
            f"{table}, attacked: test accuracy in percent, {SEEDS}; changes of pixels in grey levels; PGD with 10 "
            "steps of 2, or a quarter of its size; APGD with 50 steps on what the other attacks of its size left",
            _accuracies(cells, found, attacked, stronger),
        ),
    ]


def _accuracies(cells: list[Cell], found: Results, columns: list[str], own: list[str]) -> Lines:
    """One line for each model: columns of the paper, each beside its number, and columns of our own."""
    head = [text for column in columns for text in (_image_label(column), "paper")]
    lines = [["model", *head, *map(_image_label, own)]]
    for cell in cells:
        some, line = found.of(cell), [cell.model]
        for column in columns:
            ours = values_of(some, paper_results.image_metric(column))
            line += [spread(ours), published(paper_results.number(cell.dataset, cell.model, column))]
        lines.append([*line, *(spread(values_of(some, paper_results.image_metric(column))) for column in own)])
    return lines


def _image_label(column: str) -> str:
    name, _, size = column.rpartition("_")
    labels = {"gaussian": "noise", "fgsm": "FGSM", "pgd": "PGD", "pgd_quarter": "PGD, quarter", "apgd": "APGD"}
    return f"{labels[name]} {size}" if name else column


def resolution(found: Results) -> Block:
    """The stabilised classifier on images with more pixels than it was trained on."""
    factors = ("x2", "x4", "x8")
    lines = [["data", "original", "paper", *(t for f in factors for t in (f"{f} bilinear", f"{f} Fourier", "paper"))]]
    for cell in catalog.cells("resolution", num_seeds=1):
        some = found.of(cell)
        number = functools.partial(paper_results.number, "resolution", cell.dataset)
        line = [cell.dataset, spread(values_of(some, "accuracy")), published(number("original"))]
        for factor in factors:
            line += [spread(values_of(some, f"accuracy_{factor}_{method}")) for method in ("bilinear", "fourier")]
            line.append(published(number(factor)))
        lines.append(line)
    return f"fno_stabilized on finer images: test accuracy in percent, {SEEDS}", lines


def image_bounds(found: Results) -> Block:
    """Accuracies of a classifier for several bounds M."""
    metrics = ("accuracy", "pgd_5", "apgd_5", "certified_accuracy")
    lines = [["M", "clean", "PGD 5", "APGD 5", "certified", "seeds"]]
    for cell in catalog.cells("image_bounds", num_seeds=1):
        some, bound = found.of(cell), cell.config().network.network_fields["stability_bound"]
        lines.append(
            ["none" if bound is None else f"{bound:g}", *(spread(values_of(some, m)) for m in metrics), str(len(some))]
        )
    return f"cifar10, fno_stabilized: test accuracy in percent, {SEEDS}", lines
