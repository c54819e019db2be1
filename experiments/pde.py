"""Trains a surrogate of a partial differential equation: ``python -m experiments.pde --dataset=heat``."""

import json
from pathlib import Path

from absl import flags

from ctfno_jax.data import registry as data_registry
from ctfno_jax.models import registry as model_registry
from experiments import common, field_run, files
from experiments.configs import pde as presets

FLAGS = flags.FLAGS


def main() -> None:
    config = common.config_from_flags(presets.pde_config)
    row = None
    if FLAGS.results_dir:
        if config != presets.pde_config(FLAGS.dataset, FLAGS.model, FLAGS.preset, FLAGS.seed):
            raise ValueError("rows in --results_dir are of presets as they are; remove the overrides or --results_dir")
        row = field_run.row_path(FLAGS.results_dir, config)
    if row is not None and row.exists():
        print(f"{row} is there already; nothing to do")
        print(field_run.summary(json.loads(row.read_text()), row.parent))
        return
    if FLAGS.data_dir:
        print(f"note: {config.dataset.dataset} is generated; nothing is read from --data_dir")
    workdir = Path(FLAGS.workdir) if FLAGS.workdir else field_run.default_workdir(config)
    result = field_run.run(config, workdir, resume=FLAGS.resume, parallel=FLAGS.parallel, tensorboard=FLAGS.tensorboard)
    if row is not None:
        files.write_json(row, result)
    print(field_run.summary(result, workdir))


if __name__ == "__main__":
    common.define_training_flags(data_registry.dataset_names(), model_registry.model_names())
    common.run_program(main)
