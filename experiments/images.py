"""Trains a classifier of images and tests it with noise and attacks.

python -m experiments.images --dataset=mnist --model=fno_stabilized --data_dir=...
"""

from experiments import cells

if __name__ == "__main__":
    cells.main("images", __doc__ or "")
