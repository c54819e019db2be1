"""One cell of a table, from the flags of a training program: skipped if its row is there, trained otherwise."""

import functools
import json
from pathlib import Path
from typing import Any

from absl import flags

from ctfno_jax.config import ExperimentConfig
from ctfno_jax.data import registry
from experiments import choose_bound, common, field_result, field_run, files, run_folder

FLAGS = flags.FLAGS


def run_cell(preset_config: common.PresetConfig, model: str | None = None) -> None:
    """Trains the cell that the flags describe, with another model than ``--model`` if one is given."""
    model = FLAGS.model if model is None else model
    assert model is not None
    data_file = registry.find_data_file(FLAGS.dataset, FLAGS.data_dir)
    config = common.config_from_flags(preset_config, model, data_file.name if data_file else "")
    row = None
    common.refuse_row_of_auto()
    if FLAGS.results_dir:
        if data_file is not None:
            raise ValueError(
                f"rows in --results_dir are of generated data, but {data_file} would be read; leave out --results_dir, "
                "or --data_dir and CTFNO_DATA_DIR"
            )
        if config != preset_config(FLAGS.dataset, model, FLAGS.preset, FLAGS.seed):
            raise ValueError("rows in --results_dir are of presets as they are; remove the overrides or --results_dir")
        row = run_folder.row_path(FLAGS.results_dir, config)
    if row is not None and row.exists():
        print(f"{row} is there already; nothing to do")
        print(field_result.summary(json.loads(row.read_text()), row.parent))
        return
    if FLAGS.data_dir and data_file is None:
        print(f"note: {config.dataset.dataset} is generated; nothing is read from --data_dir")
    variant = choose_bound.VARIANT if common.bound_is_auto() else ""
    workdir = Path(FLAGS.workdir) if FLAGS.workdir else run_folder.default_workdir(config, variant)

    def train(some: ExperimentConfig, folder: Path, *, resume: bool) -> dict[str, Any]:
        return field_run.run(
            some, folder, resume=resume, parallel=FLAGS.parallel, tensorboard=FLAGS.tensorboard, data_file=data_file
        )

    if common.bound_is_auto():
        config = choose_bound.choose(config, workdir, functools.partial(train, resume=True))
    result = train(config, workdir, resume=FLAGS.resume)
    if row is not None:
        files.write_json(row, result)
    print(field_result.summary(result, workdir))
