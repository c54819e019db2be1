"""A learned flow against the properties of flows, over time."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

_DEFECTS = {
    "error": ("o-", "error of the solution"),
    "semigroup": ("s--", "two steps of t/2 against one of t"),
}
_RATES = {
    "derivative": ("o-", "differences against differentiation"),
    "residual": ("s--", "derivative against the equation"),
}
_GROWTH = {
    "certified": ("o-", "certified: no error grows more"),
    "measured": ("s--", "measured: this much was found"),
}


def audit(result: Mapping[str, Any], *, title: str) -> Figure:
    """Three panels: the solution, its time derivative, and the growth of errors.

    Args:
      result: lists over ``times`` by name, or sentences, which are not drawn, and the number or sentence ``identity``.
      title: of the figure.
    """
    figure = Figure(figsize=(12.5, 3.6), layout="constrained")
    figure.suptitle(title, fontsize=11)
    panels = ((_DEFECTS, "relative L2 norm"), (_RATES, "relative L2 norm"), (_GROWTH, "growth of an L2 error"))
    for axis, (curves, label) in zip(figure.subplots(1, 3), panels, strict=True):
        drawn = False
        for i, (name, (style, text)) in enumerate(curves.items()):
            if isinstance(result[name], str):
                continue
            axis.semilogy(result["times"], result[name], style, ms=3.5, color=f"C{i}", label=text)
            drawn = True
        if curves is _DEFECTS and not isinstance(result["identity"], str):
            axis.axhline(result["identity"], color="0.5", linestyle=":", label="identity at t = 0")
        axis.set_xlabel("t")
        axis.set_ylabel(label)
        if drawn:
            axis.grid(alpha=0.3, which="both")
            axis.legend(fontsize=8)
        else:
            axis.text(0.5, 0.5, "no answer from this model", ha="center", transform=axis.transAxes)
    return figure
