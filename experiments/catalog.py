"""The cells of every table of the paper, with the CPU minutes that each may take."""

import dataclasses
from typing import Any

from ctfno_jax.data import problems
from experiments import configs
from experiments.cells import Cell
from experiments.configs import mujoco, physionet

TABLES = (
    "pde", "ablation", "synthetic", "de_on_fields", "noise", "vibration", "effect_of_bound", "data_efficiency",
    "universality", "mujoco", "physionet", "activity", "mnist", "cifar10", "resolution", "image_bounds",
)  # fmt: skip

EQUATIONS = ("heat", "burgers", "diffusion_sorption", "navier_stokes")
SURROGATES = ("ctfno", "ctfno_semigroup", "ctfno_odd", "fno_rnn", "fno_2d", "deeponet", "pod_deeponet")
PEERS = ("neuraloperator_fno",)  # networks of other libraries, see experiments/peers
ABLATIONS = ("ctfno", "ablation_input", "ablation_lifted", "ablation_features")
DYNAMICS = ("square", "sawtooth", "stiff", "spiral", "reaction")
DE_MODELS = ("ctfno", "node", "anode", "neural_flow", "neural_laplace")
VIBRATION = ("ctfno", "node", "anode", "sonode", "hbnode", "ghbnode")

LATENT_MODELS = ("ctfno", "ctfno_wide", "rnn_vae", "ode_rnn", "latent_ode_rnn", "latent_ode", "neural_flow")
# A correction of the interpolated observations; there is nothing to interpolate where the future is asked for.
LATENT_CORRECTION = "ctfno_wide_linear"
# Human Activity without windows of one person in two parts.
NEW_PERSON = {"data_options": {"split": "person"}}
# Shares of the points of a series that a model sees; baselines have the first and the last.
OBSERVED = (0.1, 0.2, 0.3, 0.5)

IMAGES = ("mnist", "cifar10")
CLASSIFIERS = ("cnn", "anode", "fno", "fno_weight_decay", "fno_stabilized", "fno_certified")
# Bounds of the paper's figure on CIFAR-10.
IMAGE_BOUNDS: tuple[float | None, ...] = (0.4, 0.8, 1.2, 2.4, 5.0, None)

# Waveforms of the paper's figure on noise, and its bound.
NOISY = ("sine", "sawtooth")
NOISE_BOUND = 1.0

# Bounds whose effect the paper's figure shows, and the shares of the training set of its box plots.
BOUNDS: tuple[float | None, ...] = (0.3, 0.6, 1.2, 2.5, 5.0, 10.0, None)
RULES = ("rows", "rows_and_columns")
SHARES = (5, 20, 100)
EFFICIENCY_BOUNDS: tuple[float | None, ...] = (None, 1.2, 2.5)

# Sizes that show how the error falls as the network grows: one of them varies, the other is the largest.
SIZES = (4, 8, 16, 32)

# Minutes of one CPU core that a cell of the default preset may take.
BUDGETS = {"heat": 5, "burgers": 8, "diffusion_sorption": 5, "navier_stokes": 15, "reaction": 5, "plane_vibration": 3,
    "mujoco": 5, "physionet": 5, "activity": 5, "mnist": 25, "cifar10": 70}  # fmt: skip
_DYNAMICS_BUDGET = 5
_SHORT = 1  # cells of figures


def minutes(cell: Cell) -> float:
    """The budget of a cell."""
    if cell.preset != "default":
        return _SHORT
    return BUDGETS.get(cell.dataset, _DYNAMICS_BUDGET)


def cells(table: str, num_seeds: int = 3) -> list[Cell]:
    """All cells of a table, seed by seed. Baselines on Navier-Stokes have one seed."""
    named = _named(table)
    return [
        Cell(experiment, dataset, model, preset, seed, overrides)
        for seed in range(num_seeds)
        for experiment, dataset, model, preset, overrides in named
        if not (seed and dataset == "navier_stokes" and not model.startswith("ctfno"))
    ]


def _named(table: str) -> list[tuple[str, str, str, str, dict[str, Any]]]:
    if table == "pde":
        return [("pde", d, m, "default", {}) for d in EQUATIONS for m in SURROGATES if m in configs.models(d)]
    if table == "ablation":
        return [("pde", d, m, "default", {}) for d in ("heat", "burgers") for m in ABLATIONS]
    if table == "synthetic":
        return [("synthetic", d, m, "default", {}) for d in DYNAMICS for m in DE_MODELS]
    if table == "noise":
        bounds = ({}, {"stability_bound": NOISE_BOUND})
        return [("synthetic", d, "ctfno", "default", overrides) for d in NOISY for overrides in bounds]
    if table == "de_on_fields":
        pairs = [("synthetic", "reaction"), ("pde", "heat")]
        return [
            (e, d, m, "default", {}) for e, d in pairs for m in ("neural_flow", "neural_laplace", "fno_2d", "ctfno")
        ]
    if table == "vibration":
        models = [*((m, {}) for m in VIBRATION), ("ctfno", {"stability_bound": None})]
        return [("vibration", "plane_vibration", m, preset, o) for preset in ("default", "paper") for m, o in models]
    if table == "effect_of_bound":
        return [("vibration", "plane_vibration", "ctfno", "paper", o) for o in bound_overrides()]
    if table == "data_efficiency":
        return [("pde", "heat", "ctfno", "default", o) for o in efficiency_overrides()]
    if table == "universality":
        pairs = dict.fromkeys([*((w, SIZES[-1]) for w in SIZES), *((SIZES[-1], m) for m in SIZES)])
        return [("pde", "heat", "ctfno", "quick", {"width": w, "modes": [m]}) for w, m in pairs]
    if table == "mujoco":
        return [
            ("timeseries", table, model, "default", {"task": task, "observed": share, **mujoco.of(model, task, share)})
            for task in ("interpolation", "prediction")
            for share in OBSERVED
            for model in (*LATENT_MODELS[:2], LATENT_CORRECTION, *LATENT_MODELS[2:])
            if model.startswith("ctfno") or share in (OBSERVED[0], OBSERVED[-1])
            if task == "interpolation" or model != LATENT_CORRECTION
        ]
    if table == "physionet":
        return [
            ("timeseries", table, model, "default", {"task": task, **physionet.of(model, task)})
            for task in ("interpolation", "prediction")
            for model in LATENT_MODELS
        ]
    if table == "activity":
        every = [("timeseries", table, model, "default", {}) for model in LATENT_MODELS]
        return every + [("timeseries", table, model, "default", NEW_PERSON) for model in LATENT_MODELS[:2]]
    if table in IMAGES:
        return [("images", table, model, "default", {}) for model in CLASSIFIERS]
    if table == "resolution":
        return [("images", dataset, "fno_stabilized", "default", {}) for dataset in IMAGES]
    if table == "image_bounds":
        return [("images", "cifar10", "fno_stabilized", "default", o) for o in image_bound_overrides()]
    raise ValueError(f"unknown table {table!r}; known are {', '.join(TABLES)}")


def reference(cell: Cell, model: str) -> Cell:
    """The place of a model without training beside a cell: that of its data, whatever its training."""
    of_data = {name: value for name, value in cell.overrides.items() if name in ("task", "observed", "data_options")}
    return dataclasses.replace(cell, model=model, overrides=of_data)


def bound_overrides() -> list[dict[str, Any]]:
    """Settings of the cells that show the effect of the bound M under both rules."""
    bounded = [{"stability_bound": b, "stability_rule": r} for r in RULES for b in BOUNDS if b is not None]
    return [*bounded, {"stability_bound": None}]


def image_bound_overrides() -> list[dict[str, Any]]:
    """Settings of the cells that show the effect of the bound M on a classifier; 1.2 is that of the preset."""
    return [{} if bound == 1.2 else {"stability_bound": bound} for bound in IMAGE_BOUNDS]


def efficiency_overrides() -> list[dict[str, Any]]:
    """Settings of the cells with a share of the training trajectories, with and without a bound."""
    num_train = problems.problem("heat").num_train
    return [
        {
            **({} if share == 100 else {"num_train": num_train * share // 100}),
            **({} if bound is None else {"stability_bound": bound}),
        }
        for bound in EFFICIENCY_BOUNDS
        for share in SHARES
    ]


def efficiency(cell: Cell) -> tuple[int, float | None]:
    """Number of training trajectories and bound of such a cell."""
    config = cell.config()
    bound: Any = config.network.network_fields["stability_bound"]
    return config.data.num_train, bound
