"""Trains a surrogate of a partial differential equation: ``python -m experiments.pde --dataset=heat --model=ctfno``."""

from experiments import cells, program

DATASETS = ("heat", "burgers", "diffusion_sorption", "navier_stokes", "reaction")

if __name__ == "__main__":
    program.define_training_flags(DATASETS)
    program.run(lambda: cells.run_from_flags("pde"), __doc__ or "", program.training_help)
