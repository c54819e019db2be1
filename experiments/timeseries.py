"""Trains a latent model of irregular, partly observed series.

python -m experiments.timeseries --dataset=mujoco --task=interpolation --observed=0.1 --model=ctfno
"""

from experiments import cells

if __name__ == "__main__":
    cells.main("timeseries", __doc__ or "")
