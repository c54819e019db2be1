"""Trains a surrogate of a partial differential equation: ``python -m experiments.pde --dataset=heat --model=ctfno``."""

from experiments import cells, common
from experiments.configs import pde as presets


def main() -> None:
    cells.run_cell(presets.pde_config)


if __name__ == "__main__":
    common.define_training_flags(
        tuple(presets.PROBLEMS),
        (*presets.SURROGATES, presets.AT_ONCE, *presets.ABLATIONS, "neural_flow", "neural_laplace"),
    )
    common.run_program(main)
