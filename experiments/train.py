"""Trains CTFNO on fields of your own: ``python -m experiments.train --data=mine.npz``.

The file holds the arrays u0 (batch, *space, channels), times (time,) or (batch, time), and u (batch, time, *space,
out_channels), with one to three space axes; numpy.savez writes it. Modes, width and time scale are chosen by the
shapes; any setting can be given instead. Query the run with experiments.predict, examine it with experiments.audit.
"""

from pathlib import Path

from absl import flags

from ctfno_jax import results
from ctfno_jax.fit import fingerprint
from ctfno_jax.training import run as training
from ctfno_jax.training.workdir import Workdir
from experiments import cells, own_data, program

FLAGS = flags.FLAGS


def main() -> None:
    config, everything, row = own_data.from_flags(FLAGS)
    print(own_data.facts(everything, config), flush=True)
    default = Path("runs") / config.experiment / config.dataset / config.model / f"seed{config.seed}"
    described = {**config.to_dict(), "evaluate": FLAGS.evaluate, "arrays": fingerprint(everything)}
    with Workdir(FLAGS.workdir or default, described, resume=FLAGS.resume) as folder:
        result = folder.result
        if result is None:
            task = own_data.task(config, everything)
            cells.announce(task, config.model)
            (trained,) = training.train(
                task, optimizer=config.optimizer, config=config.train, seeds=[config.seed], workdirs=[folder],
                parallel=FLAGS.parallel, tensorboard=FLAGS.tensorboard,
            )  # fmt: skip
            result = results.finish(task, trained, folder, row, split=FLAGS.evaluate)
        else:
            print(f"{folder.path} has finished already; nothing to do")
        print("\n" + results.summary(result, own_data.LABELS) + f"\nfiles in {folder.path}")


if __name__ == "__main__":
    own_data.define_flags()
    program.run(main, __doc__ or "", own_data.flag_help)
