"""Trains a model of the plane vibration record: ``python -m experiments.vibration --data_dir=... --model=ctfno``.

Cells of CTFNO differ by ``--stability_bound``, a number or none, and ``--stability_rule``; each has rows of its own.
Several seeds train at once with ``--num_seeds``.
"""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from absl import flags

from ctfno_jax import metrics, predict
from ctfno_jax.certify import singular_values
from ctfno_jax.config import ExperimentConfig
from ctfno_jax.data import plane_vibration, series
from ctfno_jax.models.latent import ObservedCTFNO
from experiments import choose_bound, common, files, result_row, run_folder, series_run
from experiments.configs import vibration as presets

FLAGS = flags.FLAGS


def scores(predictor: predict.Predictor, data: series.SeriesDataset) -> dict[str, Any]:
    """Squared errors as published, also of the training set, and singular values of the trained weights."""
    some = {}
    for name, part in (("mse", data.test), ("train_mse", data.train), ("validation_mse", data.validation)):
        values = predictor(part.inputs(with_times=not part.regular), part.times)
        some[name] = metrics.rmse(values, part.values) ** 2
    if isinstance(predictor.model, ObservedCTFNO) and data.test.times.ndim == 1:
        operator = {"params": predictor.params["params"]["operator"]}
        kernels, pointwise = singular_values(predictor.model.operator, operator, jnp.asarray(data.test.times))
        # Each is the mean over the query times of one singular value of one matrix.
        some["singular_values"] = {
            name: [float(f"{value:.4g}") for value in np.sort(values.mean(axis=0).ravel())[::-1]]
            for name, values in (("kernels", kernels), ("pointwise", pointwise))
        }
    return some


def _cell(dataset: str, model: str, preset: str, seed: int):
    """The cell with the bound and the rule of the flags, which are a part of its name."""
    if model != "ctfno":
        return presets.vibration_config(dataset, model, preset, seed)
    bound: float | None = presets.BOUND
    if FLAGS.stability_bound is not None and not common.bound_is_auto():
        try:
            bound = None if FLAGS.stability_bound.lower() == "none" else float(FLAGS.stability_bound)
        except ValueError as error:
            raise ValueError(
                f"--stability_bound must be a number, none or auto, got {FLAGS.stability_bound!r}"
            ) from error
    return presets.vibration_config(dataset, model, preset, seed, bound, FLAGS.stability_rule or "rows")


def main() -> None:
    seeds = range(FLAGS.seed, FLAGS.seed + FLAGS.num_seeds)
    if FLAGS.workdir and len(seeds) > 1:
        raise ValueError("--workdir is the folder of one run; leave it out, or --num_seeds")
    common.refuse_row_of_auto()
    configs, workdirs, rows = [], [], []
    for seed in seeds:
        config = common.config_from_flags(
            lambda d, m, p, _, seed=seed: _cell(d, m, p, seed), FLAGS.model, plane_vibration.FILE
        )
        variant, row = choose_bound.VARIANT if common.bound_is_auto() else presets.variant(config), None
        if FLAGS.results_dir:
            if config != _cell(FLAGS.dataset, FLAGS.model, FLAGS.preset, seed):
                raise ValueError(
                    "rows in --results_dir are of presets as they are, but for the bound and its rule; remove the "
                    "other overrides or --results_dir"
                )
            row = run_folder.row_path(FLAGS.results_dir, config, variant)
            if row.exists():
                print(f"{row} is there already; nothing to do")
                print(summary(json.loads(row.read_text()), row.parent))
                continue
        configs.append(config)
        rows.append(row)
        folder = "_".join(filter(None, [variant, "" if FLAGS.preset == "default" else FLAGS.preset]))
        workdirs.append(Path(FLAGS.workdir) if FLAGS.workdir else run_folder.default_workdir(config, folder))
    if not configs:
        return
    plane_vibration.find_file(FLAGS.data_dir)  # a missing one is told before any folder is made
    if common.bound_is_auto():
        chosen = choose_bound.choose(configs[0], workdirs[0], lambda c, w: _train([c], [w], resume=True)[0])
        configs = [choose_bound.with_same_bound(config, chosen) for config in configs]
    results = _train(configs, workdirs, resume=FLAGS.resume)
    stability = presets.stability_of(configs[0])
    for result, row, workdir in zip(results, rows, workdirs, strict=True):
        if row is not None:
            files.write_json(row, {**result, **stability})
        print(summary(result, workdir))


def _train(configs: list[ExperimentConfig], workdirs: list[Path], *, resume: bool) -> list[dict[str, Any]]:
    return series_run.run(
        configs, workdirs, resume=resume, parallel=FLAGS.parallel, tensorboard=FLAGS.tensorboard,
        data_dir=FLAGS.data_dir, more_scores=scores,
    )  # fmt: skip


def summary(result: dict[str, Any], workdir: Path) -> str:
    """The table that ends a run."""
    rows = (("test MSE", "mse"), ("validation MSE", "validation_mse"), ("training MSE", "train_mse"))
    lines = result_row.summary_lines(result, rows, unit="mse")
    return "\n".join(["", *lines, f"files in {workdir}"])


if __name__ == "__main__":
    common.define_training_flags((plane_vibration.NAME,), presets.MODELS)
    flags.DEFINE_integer("num_seeds", 1, "seeds of a cell that are trained at once", lower_bound=1)
    common.run_program(main)
