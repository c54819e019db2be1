"""Lines of the tables of times, from what experiments.timing has measured."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ctfno_jax.config import ConfigError
from ctfno_jax.training.workdir import read_json
from experiments import catalog, paper_results
from experiments.table_lines import MISSING, Block, published, ratio

_PARTS = ("training", "inference")
_FORMS = {"ours": "CTFNO", "rfft": "CTFNO, fourier_method=fft", "obvious": "direct transcription"}


def _epoch_timing(made: Mapping[str, Any], *, table: str, title: str) -> Block:
    ours = made.get("models", {})
    paper = {
        model: {part: paper_results.number(table, model, part) for part in _PARTS}
        for model in paper_results.TABLES[table]["rows"]
    }
    lines = [["model", *(t for p in _PARTS for t in (f"{p} s", "paper s", f"{p} / ctfno", "paper / ctfno"))]]
    for model in dict.fromkeys([*ours, *paper]):
        line = [model]
        for part in _PARTS:
            here, there = _part(ours, model, part), _part(paper, model, part)
            line += [
                MISSING if here is None else f"{here:.2f}", published(there, 1.0),
                ratio(here, _part(ours, "ctfno", part)), ratio(there, _part(paper, "ctfno", part)),
            ]  # fmt: skip
        lines.append(line)
    return f"{title}; ours {_where(made)}, the paper's on an RTX 3090", lines


def _heat_timing(made: Mapping[str, Any]) -> Block:
    size = "400 training and 100 test trajectories, 50 times, 1024 points, batches of 20"
    return _epoch_timing(made, table="timing_heat", title=f"heat: seconds per epoch, {size}")


def _mujoco_timing(made: Mapping[str, Any]) -> Block:
    size = (
        f", {made['num_train']} training and {made['num_test']} test series at 100 times, batches of 50" if made else ""
    )
    return _epoch_timing(made, table="timing_mujoco", title=f"mujoco: seconds per epoch{size}")


def _dynamics_timing(made: Mapping[str, Any], *, title: str, models: Sequence[str]) -> Block:
    ours = made.get("models", {})
    lines = [["model", "training ms", "/ ctfno", "inference ms", "/ ctfno", "vector field evaluations"]]
    for model in models:
        line = [model]
        for part in _PARTS:
            here = _part(ours, model, part)
            line += [MISSING if here is None else f"{1e3 * here:.1f}", ratio(here, _part(ours, "ctfno", part))]
        calls = _part(ours, model, "function_evaluations")
        lines.append([*line, MISSING if calls is None else f"{calls:.0f}"])
    size = f" of {made['batch_size']} series" if made else ""
    return f"{title}: one step and one forecast{size}, {_where(made)}", lines


def _operator_timing(made: Mapping[str, Any]) -> Block:
    lines = [["samples x times x points", "form", "forward ms", "/ CTFNO", "forward and backward ms", "/ CTFNO"]]
    for result in made.get("sizes", []):
        ours = result["seconds"]["ours"]
        for form, label in _FORMS.items():
            seconds = result["seconds"][form]
            texts = [(f"{1e3 * seconds[p]:.1f}", ratio(seconds[p], ours[p])) for p in ("forward", "forward_backward")]
            lines.append([" x ".join(map(str, result["size"])), label, *(text for pair in texts for text in pair)])
    return f"CTFNO of width 64 on random fields, {_where(made)}", lines


def _accuracy_timing(made: Mapping[str, Any]) -> Block:
    lines = [["validation RMSE", "seconds", "CPU s", "step", "seconds when started again", "CPU s"]]
    for found in made.get("targets", []):
        cold, warm = found["cold"], found["warm"]
        times = [f"{start[name]:.0f}" for start in (cold, warm) for name in ("seconds", "cpu_seconds")]
        lines.append([f"{found['target']:g}", *times[:2], str(cold["step"]), *times[2:]])
    return f"heat: from the start of the program to a validation error, {_where(made)}", lines


def _peer_timing(made: Mapping[str, Any]) -> Block:
    ours = made.get("models", {})
    lines = [["model", "training ms", "/ ctfno", "parameters"]]
    for model in ("ctfno", *catalog.PEERS):
        here, count = _part(ours, model, "training"), _part(ours, model, "num_params")
        texts = [MISSING, MISSING, MISSING]
        if here is not None:
            texts = [f"{1e3 * here:.0f}", ratio(here, _part(ours, "ctfno", "training")), f"{count:,}"]
        lines.append([model, *texts])
    return f"heat: one training step of 20 trajectories at two times each on 256 points, {_where(made)}", lines


def _image_timing(made: Mapping[str, Any]) -> Block:
    labels = {"ours": "FNOClassifier", "obvious": "direct transcription", "obvious in parts": "the same in parts"}
    lines = [["data", "form", "training ms", "/ FNOClassifier", "parameters"]]
    for dataset, found in made.get("datasets", {}).items():
        seconds = found["seconds"]
        lines += [
            [dataset, label, f"{1e3 * seconds[form]:.0f}", ratio(seconds[form], seconds["ours"]),
                f"{found['num_params']:,}"]
            for form, label in labels.items()
        ]  # fmt: skip
    size = f" of {made['batch_size']} images, in parts of {made['images_per_pass']}" if made else ""
    return f"classifiers: one training step{size}, {_where(made)}", lines


# Title and lines from what experiments.timing has measured; from nothing if it was not run.
TIMINGS: dict[str, Callable[[Mapping[str, Any]], Block]] = {
    "heat": _heat_timing,
    "dynamics": functools.partial(_dynamics_timing, title="spiral", models=catalog.DE_MODELS),
    "vibration": functools.partial(
        _dynamics_timing, title="plane vibration, published protocol", models=catalog.VIBRATION
    ),
    "mujoco": _mujoco_timing,
    "images": _image_timing,
    "peer": _peer_timing,
    "operator": _operator_timing,
    "time_to_accuracy": _accuracy_timing,
}


def timing(folder: Path) -> list[Block]:
    """Measurements of experiments.timing in a folder."""
    blocks = []
    for name, block in TIMINGS.items():
        path = folder / f"{name}.json"
        remedy = f"remove it and run python -m experiments.timing --measure={name} --results_dir={folder.parent}"
        made = read_json(path, remedy) if path.exists() else {}
        try:
            title, lines = block(made)
        except (KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path} is not what experiments.timing writes ({error!r}); {remedy}") from error
        if len(lines) > 1:
            blocks.append((title, lines))
    return blocks


def _part(numbers: Mapping[str, Any], model: str, part: str) -> float | None:
    return numbers.get(model, {}).get(part)


def _where(made: Mapping[str, Any]) -> str:
    """The device, and how many cores a processor had if that was noted."""
    if not made:
        return "not measured yet"
    kinds = {device.partition(":")[::2] for device in made["devices"]}
    names = sorted(platform.upper() if kind in ("", platform) else kind for platform, kind in kinds)
    cores = f" with {made['cores']} cores" if "cores" in made else ""
    return f"on {', '.join(names)}{cores}"
