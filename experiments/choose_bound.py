"""``--stability_bound=auto``: M by a short search on the validation set.

Every candidate is trained for a tenth of the steps, and the one with the smallest validation error is taken for the
run; of two within a hundredth of each other the smaller, whose certificate is the tighter one. What was tried is
printed, and kept in ``bound_search.json`` in the folder of the run, which a second start reads.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ctfno_jax import predict
from ctfno_jax.config import ConfigError, ExperimentConfig, replace_fields
from ctfno_jax.models import registry as models
from ctfno_jax.training import checkpoint, loop
from experiments import files

CANDIDATES: tuple[float | None, ...] = (0.3, 0.6, 1.2, 2.5, 5.0, 10.0, None)
_FRACTION = 0.1
_TIE = 1.01

# Folder of runs whose M was searched for.
VARIANT = "M_auto"

# Trains a run into a folder and returns its result.
Train = Callable[[ExperimentConfig, Path], dict[str, Any]]


def with_bound(config: ExperimentConfig, bound: float | None) -> ExperimentConfig:
    """The config with another M; without one, there is no rule either."""
    fields = {**config.model.model_fields, "stability_bound": bound}
    if bound is None:
        fields.pop("stability_rule", None)
    return replace_fields(config, {"model_fields": fields})


def with_same_bound(config: ExperimentConfig, chosen: ExperimentConfig) -> ExperimentConfig:
    """The config with the M of another."""
    bound = chosen.model.model_fields["stability_bound"]
    assert bound is None or isinstance(bound, float)
    return with_bound(config, bound)


def choose(config: ExperimentConfig, workdir: Path, train: Train) -> ExperimentConfig:
    """The config with the M that the search finds."""
    if "stability_bound" not in models.hyper_parameters(config.model.model, series=predict.is_series(config)):
        raise ConfigError(f"model {config.model.model} has no stability_bound to choose; remove --stability_bound")
    path = workdir / "bound_search.json"
    if path.exists():
        chosen = json.loads(path.read_text())["chosen"]
        print(f"stability_bound={_name(chosen)}, as {path} says")
        return with_bound(config, chosen)
    steps = _short(config)
    print(f"stability_bound=auto: {len(CANDIDATES)} candidates, {steps} steps each", flush=True)
    errors = {}
    for bound in CANDIDATES:
        candidate = replace_fields(with_bound(config, bound), {"steps": steps, "eval_every": steps})
        try:
            result = train(candidate, workdir / "bound_search" / f"M_{_name(bound)}")
            errors[bound] = float(result["metrics"][checkpoint.METRIC])
        except loop.TrainingDiverged:
            errors[bound] = math.inf
        print(f"  M = {_name(bound):<5} validation {errors[bound]:.4e}", flush=True)
    chosen = best(errors)
    print(f"stability_bound={_name(chosen)} is taken", flush=True)
    # JSON has no infinity: a training that diverged has no error.
    tried = [
        {"stability_bound": bound, checkpoint.METRIC: error if math.isfinite(error) else None}
        for bound, error in errors.items()
    ]
    files.write_json(path, {"chosen": chosen, "steps": steps, "tried": tried})
    return with_bound(config, chosen)


def best(errors: dict[float | None, float]) -> float | None:
    """The smallest M whose error is within a hundredth of the least."""
    least = min((error for error in errors.values() if math.isfinite(error)), default=math.inf)
    if not math.isfinite(least):
        raise ConfigError("none of the candidates for stability_bound has a finite validation error; lower the rate")
    return min((b for b, e in errors.items() if e <= _TIE * least), key=lambda b: math.inf if b is None else b)


def _short(config: ExperimentConfig) -> int:
    calls = max(1, round(_FRACTION * config.train.steps / config.train.steps_per_call))
    return calls * config.train.steps_per_call


def _name(bound: float | None) -> str:
    return "none" if bound is None else f"{bound:g}"
