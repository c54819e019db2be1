"""Where time enters: ``python -m experiments.ablation --dataset=heat`` trains the three ablations of CTFNO in turn.

The settings are those of CTFNO in ``experiments.pde`` where it answers at once (``ctfno`` on heat, ``ctfno_at_once`` on
Burgers), whose row stands beside theirs in the table.
"""

import functools

from absl import flags

from experiments import cells, common
from experiments.configs import pde as presets

FLAGS = flags.FLAGS


def main() -> None:
    config = functools.partial(presets.pde_config, experiment="ablation")
    chosen = presets.ABLATIONS if FLAGS.model == "all" else (FLAGS.model,)
    if FLAGS.workdir and len(chosen) > 1:
        raise ValueError("--workdir is the folder of one run; choose one with --model, or leave it out")
    for model in chosen:
        cells.run_cell(config, model)


if __name__ == "__main__":
    common.define_training_flags(tuple(presets.PROBLEMS), ("all", *presets.ABLATIONS))
    common.run_program(main)
