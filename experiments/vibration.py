"""Trains a model of the plane vibration record: ``python -m experiments.vibration --data_dir=... --model=ctfno``."""

from experiments import cells, program

DATASETS = ("plane_vibration",)

if __name__ == "__main__":
    program.define_training_flags(DATASETS)
    program.run(lambda: cells.run_from_flags("vibration"), __doc__ or "", program.training_help)
