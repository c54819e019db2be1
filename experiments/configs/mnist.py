"""mnist: ``python -m experiments.images --dataset=mnist --data_dir=...``; budget 25 minutes of one core per cell."""

from experiments.configs import classifiers

CELLS = {
    "tests": {"noises": [50.0, 100.0], "epsilons": [30.0, 50.0], "certified_radius": 0.3},
    "fno": {"width": 32, "num_blocks": 8, "padding": 3 / 28},
    "cnn": {"width": 32, "kernels": [7, 7, 3, 3, 3]},
    "anode": {"width": 64, "augmented": 5},
    "weight_decay": 1e-6,
}

DEFAULT = classifiers.default(**CELLS)
QUICK = {model: {"steps": 100, "eval_every": 50, "attacked_images": 200} for model in DEFAULT}
# A hundred epochs of 234 batches for the Fourier classifiers, thirty for the CNN, twenty for the ANODE.
PAPER = classifiers.paper(**CELLS, steps=(23400, 7000, 4700))
