"""Networks of low-dimensional dynamics, shared by the tables of square, sawtooth, sine, stiff and spiral.

The default settings start every model from what it can know: the published Neural ODE puts the last observed point one
step late, the published Neural Flow is trained on an evidence bound; here neither, unless asked for
(``--late_start``, ``--loss=elbo``).
"""

CTFNO = {
    "network": "series_ctfno", "grid_points": 16, "width": 16, "modes": [4], "depth": 3, "heads": 1, "time_width": 32,
    "time_features": 16,
}  # fmt: skip
NODE = {"network": "series_neural_ode", "augmented": 0}
ANODE = {"network": "series_neural_ode", "augmented": 1}
# Two coupling layers of two coordinates, as published, cannot turn by a right angle: eight coordinates can.
NEURAL_FLOW = {"network": "series_neural_flow", "latent": 8}
NEURAL_LAPLACE = {"network": "series_neural_laplace"}

TRAINING = {"learning_rate": 5e-3, "batch_size": 120, "eval_every": 500, "keep_checkpoints": 1}
QUICK = {"steps": 300, "eval_every": 100}

# The published settings: a thousand epochs of batches of 120 at a constant rate.
PUBLISHED = {
    "schedule": "constant", "learning_rate": 1e-3, "batch_size": 120, "times_per_step": 0, "eval_every": 100,
    "keep_checkpoints": 1,
}  # fmt: skip
PUBLISHED_NODE = {
    **PUBLISHED,
    "network": "series_neural_ode",
    "late_start": True,
    "solver": "euler",
    "stepping": "queries",
}
