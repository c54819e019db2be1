"""Trains a model of low-dimensional dynamics: ``python -m experiments.synthetic --dataset=spiral --model=ctfno``."""

from experiments import cells

if __name__ == "__main__":
    cells.main("synthetic", __doc__ or "")
