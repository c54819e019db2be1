"""Trains a surrogate of a partial differential equation: ``python -m experiments.pde --dataset=heat --model=ctfno``."""

from experiments import cells

if __name__ == "__main__":
    cells.main("pde", __doc__ or "")
