"""The folder of a run: whose it is, where it lies, and the state that an interrupted run left in it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ctfno_jax.config import ConfigError, ExperimentConfig, from_dict
from ctfno_jax.training import checkpoint
from ctfno_jax.training import step as step_lib
from experiments import files


def default_workdir(config: ExperimentConfig, variant: str = "") -> Path:
    """``runs/<experiment>/<dataset>/<model>/seed<k>``, with the variant of a cell before the seed."""
    model = Path("runs") / config.experiment / config.dataset.dataset / config.model.model
    return model / variant / f"seed{config.seed}"


def row_path(results_dir: str | Path, config: ExperimentConfig, variant: str = "") -> Path:
    """Where the row of a cell is kept; a cell may have variants."""
    parts = [config.dataset.dataset, config.model.model, config.preset, variant, f"seed{config.seed}"]
    return Path(results_dir) / config.experiment / f"{'-'.join(filter(None, parts))}.json"


def claim_workdir(workdir: Path, config: ExperimentConfig, *, resume: bool) -> dict[str, Any] | None:
    """Raises if the folder is not this run's to write in; returns its result if the run has finished already."""
    path = workdir / "config.json"
    started = (workdir / "checkpoints").exists()
    if started and not path.exists():
        raise ConfigError(f"{workdir} holds checkpoints without a config.json; choose another --workdir")
    if path.exists():
        existing = ExperimentConfig.load(path)
        if started and json.loads(existing.to_json()) != json.loads(config.to_json()):
            raise ConfigError(
                f"{workdir} belongs to another config ({_difference(existing, config)}); choose another --workdir"
            )
        if (workdir / "result.json").exists():
            return json.loads((workdir / "result.json").read_text())
        if started and not resume:
            raise ConfigError(f"{workdir} holds an unfinished run; go on with --resume, or choose another --workdir")
    files.make_directory(workdir)
    return None


def _difference(existing: ExperimentConfig, config: ExperimentConfig) -> str:
    there, here = _leaves(dataclasses.asdict(existing)), _leaves(dataclasses.asdict(config))
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    text = ", ".join(f"{name} is {there.get(name)!r} there and {here.get(name)!r} here" for name in names[:3])
    return text + (f", and {len(names) - 3} more" if len(names) > 3 else "")


def _leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves = {}
    for name, value in values.items():
        if isinstance(value, dict):
            leaves.update(_leaves(value, f"{prefix}{name}."))
        else:
            leaves[prefix + name] = list(value) if isinstance(value, tuple) else value
    return leaves


def restore(
    store: checkpoint.CheckpointStore, state: step_lib.TrainState, description: dict[str, Any]
) -> tuple[step_lib.TrainState, float]:
    """The last intact state and the seconds spent on it; the given ones if there is none yet."""
    last = store.restore_last()
    if last is None:
        return state, 0.0
    # Settings that are newer than the checkpoint have their defaults in it.
    there, here = (from_dict(ExperimentConfig, d["config"]).to_json() for d in (last.description, description))
    if there != here:
        raise ConfigError("the checkpoints in the workdir are of another config than its config.json")
    if last.description.get("frame_version") != description.get("frame_version"):
        raise ConfigError("the run began in an older form of its frame; choose another --workdir and begin again")
    restored = jax.tree.map(jnp.asarray, checkpoint.unflatten(last.arrays, state))
    return restored, float(last.description["train_seconds"])
