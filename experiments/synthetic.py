"""Trains a model of low-dimensional dynamics, or of reaction: ``python -m experiments.synthetic --dataset=spiral``.

Several seeds of one series cell train at once with ``--num_seeds``: ``seed``, ``seed + 1`` and so on, each with files
and a row of its own.
"""

import json
from pathlib import Path
from typing import Any

from absl import flags

from ctfno_jax.config import ExperimentConfig
from experiments import cells, choose_bound, common, files, run_folder, series_result, series_run
from experiments.configs import synthetic as presets

FLAGS = flags.FLAGS


def main() -> None:
    if FLAGS.dataset == "reaction":
        if FLAGS.num_seeds != 1:
            raise ValueError("reaction trains one seed at a time; leave out --num_seeds")
        cells.run_cell(presets.synthetic_config)
        return
    seeds = range(FLAGS.seed, FLAGS.seed + FLAGS.num_seeds)
    if FLAGS.workdir and len(seeds) > 1:
        raise ValueError("--workdir is the folder of one run; leave it out, or --num_seeds")
    if FLAGS.data_dir:
        print(f"note: {FLAGS.dataset} is generated; nothing is read from --data_dir")
    common.refuse_row_of_auto()
    configs, workdirs, rows = [], [], []
    for seed in seeds:
        config = common.config_from_flags(
            lambda d, m, p, _, seed=seed: presets.synthetic_config(d, m, p, seed), FLAGS.model
        )
        row, variant = None, choose_bound.VARIANT if common.bound_is_auto() else ""
        if FLAGS.results_dir:
            if config != presets.synthetic_config(FLAGS.dataset, FLAGS.model, FLAGS.preset, seed):
                raise ValueError(
                    "rows in --results_dir are of presets as they are; remove the overrides or --results_dir"
                )
            row = run_folder.row_path(FLAGS.results_dir, config)
            if row.exists():
                print(f"{row} is there already; nothing to do")
                print(series_result.summary(json.loads(row.read_text()), row.parent))
                continue
        configs.append(config)
        rows.append(row)
        workdirs.append(Path(FLAGS.workdir) if FLAGS.workdir else run_folder.default_workdir(config, variant))
    if not configs:
        return
    if common.bound_is_auto():
        chosen = choose_bound.choose(configs[0], workdirs[0], lambda c, w: _train([c], [w], resume=True)[0])
        configs = [choose_bound.with_same_bound(config, chosen) for config in configs]
    results = _train(configs, workdirs, resume=FLAGS.resume)
    for result, row, workdir in zip(results, rows, workdirs, strict=True):
        if row is not None:
            files.write_json(row, result)
        print(series_result.summary(result, workdir))


def _train(configs: list[ExperimentConfig], workdirs: list[Path], *, resume: bool) -> list[dict[str, Any]]:
    return series_run.run(
        configs, workdirs, resume=resume, parallel=FLAGS.parallel, tensorboard=FLAGS.tensorboard,
    )  # fmt: skip


if __name__ == "__main__":
    common.define_training_flags(presets.DATASETS, (*presets.MODELS, "fno_2d"))
    flags.DEFINE_integer("num_seeds", 1, "seeds of a series cell that are trained at once", lower_bound=1)
    common.run_program(main)
