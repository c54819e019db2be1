"""Trains a model of low-dimensional dynamics: ``python -m experiments.synthetic --dataset=spiral --model=ctfno``."""

from experiments import cells, program

DATASETS = ("square", "sawtooth", "stiff", "spiral", "sine", "reaction")

if __name__ == "__main__":
    program.define_training_flags(DATASETS)
    program.run(lambda: cells.run_from_flags("synthetic"), __doc__ or "", program.training_help)
