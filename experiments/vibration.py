"""Trains a model of the plane vibration record: ``python -m experiments.vibration --data_dir=... --model=ctfno``."""

from experiments import cells

if __name__ == "__main__":
    cells.main("vibration", __doc__ or "")
