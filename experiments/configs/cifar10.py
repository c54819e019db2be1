"""cifar10: ``python -m experiments.images --dataset=cifar10 --data_dir=...``; budget 70 minutes of one CPU core."""

from experiments.configs import classifiers

CELLS = {
    "tests": {"noises": [15.0, 20.0], "epsilons": [2.0, 5.0], "certified_radius": 36 / 255},
    "fno": {"width": 64, "num_blocks": 16, "padding": 0.125},
    "cnn": {"width": 64, "kernels": [7, 3, 3, 3, 3]},
    "anode": {"width": 64, "augmented": 10},
    "weight_decay": 1e-4,
}

DEFAULT = classifiers.default(**CELLS)
QUICK = {model: {"steps": 100, "eval_every": 50, "attacked_images": 200} for model in DEFAULT}
# A hundred epochs of 195 batches for the Fourier classifiers, thirty for the CNN, twenty for the ANODE.
PAPER = classifiers.paper(**CELLS, steps=(19500, 5900, 3900))
