"""Effect of the stability bound M on errors, growth of errors and singular values."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

# Line style and label of each rule.
_RULES = {"rows": ("o-", "rows"), "rows_and_columns": ("s--", "rows and columns")}
_COLOURS = ("C0", "C1")

# Values of all seeds by bound; None is no bound.
ByBound = Mapping[float | None, list[float]]


def effect_of_bound(curves: Mapping[str, Mapping[str, ByBound]], *, title: str) -> Figure:
    """Errors on training and test set, and certified and measured growth, against M.

    Args:
      curves: values of all seeds by bound, by rule and by name (``training error``, ``test error``, ``certified``,
        ``measured``).
      title: of the figure.
    """
    bounds = sorted({b for names in curves.values() for values in names.values() for b in values}, key=_order)
    figure = Figure(figsize=(11, 4), layout="constrained")
    figure.suptitle(title, fontsize=11)
    panels = ((("training error", "test error"), "MSE"), (("certified", "measured"), "growth of an L2 error"))
    for axis, (names, label) in zip(figure.subplots(1, 2), panels, strict=True):
        for rule, by_name in curves.items():
            style, rule_name = _RULES[rule]
            for colour, name in zip(_COLOURS, names, strict=True):
                there = [b for b in bounds if by_name[name].get(b)]
                positions = [bounds.index(b) for b in there]
                values = [by_name[name][b] for b in there]
                means = [float(np.mean(v)) for v in values]
                axis.plot(positions, means, style, color=colour, ms=4, label=f"{name}, {rule_name}")
                axis.fill_between(
                    positions, [min(v) for v in values], [max(v) for v in values], color=colour, alpha=0.12
                )
        axis.set_yscale("log")
        axis.set_xticks(range(len(bounds)), ["none" if b is None else f"{b:g}" for b in bounds])
        axis.set_xlabel("bound M")
        axis.set_ylabel(label)
        axis.grid(alpha=0.3, which="both")
        axis.legend(fontsize=8)
    return figure


def _order(bound: float | None) -> float:
    return np.inf if bound is None else bound


def singular_values(values: Mapping[str, Mapping[float | None, np.ndarray]]) -> Figure:
    """Singular values of trained weights, the largest first: a panel for each kind of matrix, a curve for each M."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    for axis, (kind, by_bound) in zip(figure.subplots(1, len(values), squeeze=False)[0], values.items(), strict=True):
        for bound, some in sorted(by_bound.items(), key=lambda pair: _order(pair[0])):
            ordered = np.sort(np.ravel(some))[::-1]
            name = "no bound" if bound is None else f"M = {bound:g}"
            axis.plot(np.linspace(0, 100, len(ordered)), ordered, label=f"{name}: largest {ordered[0]:.2g}")
        axis.set_title(kind, fontsize=10)
        axis.set_xlabel("percent of all singular values")
        axis.set_ylabel("singular value")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=9)
    return figure
