"""Prints the paper's tables with our numbers beside the paper's: ``python -m experiments.tables --table=pde``.

Ours is the mean over the seeds that have a row, with half the range between the best and the worst of them. A number
that does not exist, ours or the paper's, is "-". ``--update`` writes the tables into README.md, BUILD.md and docs/*.md,
between the lines ``<!-- table: NAME -->`` and ``<!-- end table -->``.
"""

import re
from pathlib import Path

from absl import flags

from ctfno_jax import files
from ctfno_jax.config import ConfigError
from experiments import image_lines, latent_lines, paper_results, program, table_lines, timing_lines

FLAGS = flags.FLAGS

FORMATS = ("text", "markdown")
# NAME-details has a table of its own for each data set or task.
NAMES = (
    *(name for table in table_lines.OVERVIEWS for name in (table, f"{table}-details")),
    "noise", "vibration", "vibration-details", "effect_of_bound", "data_efficiency", "universality",
    *(name for table in paper_results.LATENT for name in (table, f"{table}-details")), *paper_results.IMAGES,
    "resolution", "image_bounds", "timing", "trials",
)  # fmt: skip

_BEGIN = re.compile(r"<!-- table: (.*?) -->")
_END = "<!-- end table -->"


def render(table: str, results_dir: str | Path, form: str = "text") -> str:
    """A table as text.

    Args:
      table: one of :data:`NAMES`.
      results_dir: folder with the rows.
      form: ``"text"`` with aligned columns, or ``"markdown"``.
    """
    if form not in FORMATS:
        raise ConfigError(f"unknown format {form!r}; known are {', '.join(FORMATS)}")
    gap = "\n\n" if form == "markdown" else "\n"
    return "\n\n".join(title + gap + layout(lines, form) for title, lines in _blocks(table, Path(results_dir)))


def _blocks(table: str, results_dir: Path) -> list[table_lines.Block]:
    if table not in NAMES:
        raise ConfigError(f"unknown table {table!r}; known are {', '.join(NAMES)}")
    if table == "timing":
        return timing_lines.timing(results_dir / "timing")
    if table == "trials":
        return table_lines.trials(results_dir / "trials")
    found = table_lines.Results(results_dir)
    single = {
        "noise": table_lines.noise,
        "vibration": table_lines.vibration,
        "effect_of_bound": table_lines.effect_of_bound,
        "data_efficiency": table_lines.data_efficiency,
        "universality": table_lines.universality,
        "resolution": image_lines.resolution,
        "image_bounds": image_lines.image_bounds,
    }
    if table in single:
        return [single[table](found)]
    if table == "vibration-details":
        return table_lines.vibration_details(found)
    if table in paper_results.LATENT:
        return latent_lines.latent(table, found)
    if table.removesuffix("-details") in paper_results.LATENT:
        return latent_lines.details(table.removesuffix("-details"), found)
    if table in paper_results.IMAGES:
        return image_lines.images(table, found)
    if table in table_lines.OVERVIEWS:
        return [table_lines.overview(table, found)]
    return table_lines.details(table.removesuffix("-details"), found)


def layout(lines: table_lines.Lines, form: str) -> str:
    """Lines as aligned text or as a Markdown table."""
    if form == "markdown":
        head, *body = ["| " + " | ".join(line) + " |" for line in lines]
        return "\n".join([head, "|---|" + "---:|" * (len(lines[0]) - 1), *body])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(t.rjust(w) for t, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    )


def documents(root: Path) -> list[Path]:
    """The files that may hold tables."""
    return [
        path for path in (root / "README.md", root / "BUILD.md", *sorted((root / "docs").glob("*.md"))) if path.exists()
    ]


def rewritten(path: Path, results_dir: str | Path) -> tuple[str, list[str]]:
    """The text of a file with its tables as the rows have them, and the names of the tables that differ."""
    lines = path.read_bytes().decode().split("\n")
    made, changed, i = [], [], 0
    while i < len(lines):
        made.append(lines[i])
        begin, i = _BEGIN.fullmatch(lines[i].strip()), i + 1
        if begin is None:
            continue
        name = begin[1]
        if name not in NAMES:
            raise ConfigError(f"{path}, line {i}: unknown table {name!r}; known are {', '.join(NAMES)}")
        markers = (j for j in range(i, len(lines)) if lines[j].strip() == _END or _BEGIN.fullmatch(lines[j].strip()))
        end = next(markers, None)
        if end is None or lines[end].strip() != _END:
            raise ConfigError(f"{path}, line {i}: table {name} has no end; add a line {_END}")
        block = ["", *render(name, results_dir, "markdown").split("\n"), ""]
        if lines[i:end] != block:
            changed.append(name)
        made += block
        i = end
    return "\n".join(made), changed


def stale(root: str | Path) -> list[str]:
    """Tables in the documents of a repository that differ from its rows, as ``"README.md: pde"``."""
    root = Path(root)
    return [
        f"{path.relative_to(root)}: {name}" for path in documents(root) for name in rewritten(path, root / "results")[1]
    ]


def update(root: str | Path, results_dir: str | Path) -> list[str]:
    """Writes the tables into the documents; returns those that have changed. Nothing is written if one is refused."""
    root = Path(root)
    texts = [(path, *rewritten(path, results_dir)) for path in documents(root)]
    for path, text, changed in texts:
        if changed:
            files.write_text(path, text)
    return [f"{path.relative_to(root)}: {name}" for path, _, changed in texts for name in changed]


def main() -> None:
    if not Path(FLAGS.results_dir).is_dir():
        raise ConfigError(f"there is no folder {FLAGS.results_dir}; --results_dir names the folder with the rows")
    if FLAGS.update:
        print("\n".join(update(".", FLAGS.results_dir)) or "all tables are up to date")
        return
    print(render(FLAGS.table, FLAGS.results_dir, FLAGS.format))


if __name__ == "__main__":
    flags.DEFINE_enum("table", "pde", NAMES, "which table")
    flags.DEFINE_enum("format", "text", FORMATS, "how to print")
    flags.DEFINE_string("results_dir", "results", "folder with the rows")
    flags.DEFINE_boolean("update", False, "write all tables into README.md, BUILD.md and docs/*.md")
    program.run(main, __doc__ or "")
