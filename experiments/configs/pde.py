"""Settings of ``python -m experiments.pde``: every equation with every surrogate, and reaction for ``synthetic``.

default: tuned for two CPU cores. All models of an equation get about the same time there: five minutes, and ten for
Navier-Stokes. How many steps that is depends on the model, see ``_STEPS``. Symmetries of an equation are used by every
model that does not have them built in.
quick: proves the pipeline in about a minute, on fewer, coarser trajectories.
paper: the paper's own sizes and schedules, for a GPU: all times and points in every step, thousands of epochs.
"""

import dataclasses
from typing import Any

from ctfno_jax.config import OWN_GRID, DatasetConfig, ExperimentConfig, ModelConfig, OptimizerConfig, TrainConfig
from ctfno_jax.data.frames import VISCOSITY_UNIT
from experiments.configs.problems import PROBLEMS, REACTION, Problem

SURROGATES = ("ctfno", "fno_rnn", "fno_2d", "deeponet", "pod_deeponet")
AT_ONCE = "ctfno_at_once"  # CTFNO as in the paper, where the default composes it with itself
DYNAMICAL = ("node", "anode", "neural_flow", "neural_laplace")
ABLATIONS = ("ablation_input", "ablation_lifted", "ablation_features")

# Steps of the default preset, to fill the budget of each equation on two CPU cores; ablations take those of CTFNO where
# it answers at once.
_STEPS: dict[str, dict[str, int]] = {
    "heat": {
        "ctfno": 4000, "fno_rnn": 1000, "fno_2d": 900, "deeponet": 2500, "pod_deeponet": 12000, "neural_flow": 500,
        "neural_laplace": 900,
    },
    "reaction": {
        "ctfno": 6000, "fno_2d": 1500, "node": 3500, "anode": 3000, "neural_flow": 3000, "neural_laplace": 4000,
    },
    "burgers": {
        "ctfno": 3500, AT_ONCE: 4500, "fno_rnn": 1300, "fno_2d": 800, "deeponet": 2300, "pod_deeponet": 24000,
    },
    "diffusion_sorption": {"ctfno": 6000, "fno_rnn": 1400, "fno_2d": 1000, "deeponet": 15000, "pod_deeponet": 45000},
    "navier_stokes": {
        "ctfno": 6000, AT_ONCE: 7000, "fno_rnn": 4500, "fno_2d": 2000, "deeponet": 4000, "pod_deeponet": 22000,
    },
}  # fmt: skip

# Frames of flows (ctfno_jax.data.frames). CTFNO takes times of its own for every flow; so could DeepONet, but its trunk
# would have to be evaluated for every flow anew. Steps of FNO-RNN are all of one length.
_FLOW_FRAMES = {
    "ctfno": "states",
    AT_ONCE: "acoustic",
    "fno_rnn": "clocked_states",
    "fno_2d": "particles",
    "deeponet": "aligned_particles",
    "pod_deeponet": "aligned_particles",
}

# Frames of fields between walls (ctfno_jax.data.mirrored). What diffusion would do is subtracted, but for FNO-RNN,
# which feeds solutions back.
_WALL_FRAMES = {
    "ctfno": "diffusing",
    "fno_rnn": "mirrored",
    "fno_2d": "diffusing",
    "deeponet": "diffusing",
    "pod_deeponet": "diffusing",
}

# All settings of one cell but its data.
Settings = tuple[ModelConfig, OptimizerConfig, TrainConfig]


def _operator_fields(problem: Problem) -> dict[str, Any]:
    """Fields shared by the models that read single times, about as large as the paper's CTFNO."""
    return {
        "out_channels": problem.channels, "width": 64, "modes": [problem.modes], "depth": problem.depth,
        "time_features": 128, "time_scale": 20.0 if problem.flow else problem.frames_per_unit,
        "coordinates": not problem.seen_periodic,
    }  # fmt: skip


def _ctfno_at_once(problem: Problem) -> dict[str, Any]:
    padding = {} if problem.seen_periodic else {"padding": 0.125}
    return {**_operator_fields(problem), **padding, "heads": 4, "time_width": 512}


def _ctfno(problem: Problem) -> dict[str, Any]:
    """At once; or in steps, each from a state that it only adds to: twenty on Burgers, up to fifty of a fast flow."""
    fields = _ctfno_at_once(problem)
    if not problem.composed:
        return fields
    if problem.flow:
        # In turns of sound; the fastest flows make about an eighth of one from frame to frame.
        marching = {"start": "sound", "viscosity_unit": VISCOSITY_UNIT, "horizon": 0.12, "max_steps": 64}
    else:
        # The equation has a maximum principle. A network has none: waves larger than those of the training can grow.
        marching = {"start": "state", "horizon": problem.final_time / 20, "max_steps": 20, "keeps_range": True}
    return {**fields, **marching, "rise_time": marching["horizon"] / 10}


def _ablation(problem: Problem) -> dict[str, Any]:
    return {**_operator_fields(problem), "time_channels": 64}


def _ablation_input(problem: Problem) -> dict[str, Any]:
    fields = {k: v for k, v in _operator_fields(problem).items() if k != "time_features"}
    return {**fields, "time_scale": 1 / problem.final_time}  # a channel of the order of one


def _fno_rnn(problem: Problem) -> dict[str, Any]:
    return {
        "out_channels": problem.channels, "coordinates": not problem.seen_periodic, "residual": True,
        "num_times": problem.num_times, "time_step": problem.final_time / problem.num_times,
    }  # fmt: skip


def _fno_2d(problem: Problem) -> dict[str, Any]:
    modes = {} if problem.modes >= 48 else {"modes": [problem.modes, 16]}
    return {
        **modes,
        "out_channels": problem.channels, "coordinates": not problem.seen_periodic, "time_padding": 0.12,
        "num_times": problem.num_times, "final_time": problem.final_time,
    }  # fmt: skip


def _sensors(problem: Problem) -> dict[str, Any]:
    """DeepONets read u0 at all its points, which are 1024 if a frame does not say otherwise."""
    return {"num_sensors": problem.train_grid} if problem.walled else {}


def _deeponet(problem: Problem) -> dict[str, Any]:
    return {
        **_sensors(problem),
        "out_channels": problem.channels, "periodic": problem.seen_periodic, "time_scale": 1 / problem.final_time,
    }  # fmt: skip


def _pod_deeponet(problem: Problem) -> dict[str, Any]:
    basis, num_modes = problem.pod
    return {
        **_sensors(problem),
        "out_channels": problem.channels, "num_times": problem.num_times, "final_time": problem.final_time,
        "time_scale": 1 / problem.final_time, "basis": basis, "num_modes": num_modes,
    }  # fmt: skip


def _dynamical(problem: Problem) -> dict[str, Any]:
    return {"out_channels": problem.channels}


def _node(problem: Problem) -> dict[str, Any]:
    """A quarter of the paper's width: on a CPU, many more steps of larger batches are worth more.

    Constant steps, because fields at the beginning of a training are rough, and adaptive ones follow them closely.
    """
    return {
        "out_channels": problem.channels, "width": 256, "solver": "heun", "stepping": "constant", "step_size": 0.05,
    }  # fmt: skip


def _anode(problem: Problem) -> dict[str, Any]:
    return {**_node(problem), "augmented": 100}


def _neural_laplace(problem: Problem) -> dict[str, Any]:
    return {"out_channels": problem.channels, "time_scale": problem.frames_per_unit}


_FIELDS = {
    "ctfno": _ctfno,
    AT_ONCE: _ctfno_at_once,
    "node": _node,
    "anode": _anode,
    "neural_flow": _dynamical,
    "neural_laplace": _neural_laplace,
    "fno_rnn": _fno_rnn,
    "fno_2d": _fno_2d,
    "deeponet": _deeponet,
    "pod_deeponet": _pod_deeponet,
    "ablation_input": _ablation_input,
    "ablation_lifted": _ablation,
    "ablation_features": _ablation,
}


def _like(problem: Problem, model: str) -> str:
    """The model whose training a model shares: ablations are trained as CTFNO is where it answers at once."""
    if model in ABLATIONS:
        return AT_ONCE if problem.composed else "ctfno"
    return model


def _train(dataset: str, problem: Problem, model: str) -> TrainConfig:
    """What one step of a model reads, so that it takes a fraction of a second on two CPU cores."""
    like = _like(problem, model)
    train = TrainConfig(
        steps=_STEPS[dataset][like], batch_size=20, times_per_step=5,
        train_grid=problem.train_grid, loss="mse",
    )  # fmt: skip
    if like == "ctfno" and dataset == "heat":
        return train  # linear, and learned to 1e-4 as it is
    frame = ""
    if problem.flow or problem.walled:
        frame = (_FLOW_FRAMES if problem.flow else _WALL_FRAMES)[like]
    # States of one scale can be fed back.
    shared = (problem.periodic and not frame and dataset != "reaction") or (
        like in ("fno_rnn", "node", "anode", "neural_flow") and not problem.flow
    )
    train = dataclasses.replace(train, shared_normalization=shared, frame=frame, **problem.augmentation)
    if like == "ctfno" and problem.composed:
        # As many answers in a step as at once, through two steps of each trajectory from any frame. The beginning of a
        # flow is its hardest part.
        train = dataclasses.replace(train, batch_size=50, times_per_step=0, window=2, random_starts=0.9)
        if problem.flow:
            # From frame to frame a fast flow makes most of a step, and would learn steps of no other length.
            train = dataclasses.replace(train, random_starts=0.6, random_splits=0.5)
        return train
    if like == "fno_rnn":
        return dataclasses.replace(train, times_per_step=0, window=4)
    if like == "fno_2d":
        return dataclasses.replace(train, batch_size=8, times_per_step=0, train_times=50)
    if like in DYNAMICAL:
        # They know no space: fields are moved about. An equation is solved up to the last of its times anyway.
        if like in ("node", "anode"):
            train = dataclasses.replace(train, batch_size=50, times_per_step=0, eval_every=100)
        return dataclasses.replace(train, train_grid=0, translations=problem.periodic)
    if like in ("deeponet", "pod_deeponet"):
        # They read u0 at all its points, and are not equivariant by themselves.
        train = dataclasses.replace(train, batch_size=50, times_per_step=2 if like == "deeponet" else 10)
        if problem.walled:
            return train
        train = dataclasses.replace(train, train_grid=0)
        if problem.flow:
            return train
        if not problem.aligned:
            return dataclasses.replace(train, translations=True)
        return dataclasses.replace(train, frame="aligned")
    # Later frames as initial states made equations harder to fit than they made the data richer.
    return train


def _default(dataset: str, problem: Problem, model: str) -> Settings:
    # Shallow stacks bear a higher rate than deep ones and rollouts, but not where waves steepen: at once, the loss of
    # Navier-Stokes rises again in the warm-up then. In steps from sound there is less to learn.
    shallow = model == "ctfno" or model in ABLATIONS
    rate = 3e-3 if shallow and dataset in ("heat", "diffusion_sorption") else 1e-3
    if model in ("ctfno", "fno_2d") and problem.flow:
        rate = 2e-3
    # Clipped at one, like the others, a training on Burgers lost in a hundred steps what it had learned in a thousand.
    clip = 0.01 if model == "ctfno" and problem.composed and not problem.flow else 1.0
    return (
        ModelConfig(model, _FIELDS[model](problem)),
        OptimizerConfig(learning_rate=rate, schedule="one_cycle", clip_norm=clip),
        _train(dataset, problem, model),
    )


# Sizes that any pipeline can be tried with.
_QUICK_FIELDS: dict[str, dict[str, Any]] = {
    "ctfno": {"width": 32, "modes": [32], "time_width": 128, "time_features": 64},
    AT_ONCE: {"width": 32, "modes": [32], "time_width": 128, "time_features": 64},
    "fno_rnn": {"width": 16, "modes": [16], "head_width": 32},
    "fno_2d": {"width": 16, "modes": [16, 8], "head_width": 32},
    "deeponet": {"width": 64, "depth": 2, "num_sensors": 256},
    "pod_deeponet": {"width": 64, "depth": 2, "num_modes": 32, "num_sensors": 256},
    "node": {"width": 64, "depth": 2},
    "anode": {"width": 64, "depth": 2, "augmented": 10},
    "neural_flow": {"num_layers": 4, "width": 32},
    "neural_laplace": {"latent": 16, "encoder_width": 16},
    "ablation_input": {"width": 32, "modes": [32]},
    "ablation_lifted": {"width": 32, "modes": [32], "time_channels": 32},
    "ablation_features": {"width": 32, "modes": [32], "time_channels": 32},
}
_QUICK_STEPS = {"fno_rnn": 200, "fno_2d": 200, "node": 200, "anode": 200, "neural_flow": 300, "neural_laplace": 300}


def _quick(dataset: str, problem: Problem, model: str) -> Settings:
    model_config, optimizer, train = _default(dataset, problem, model)
    fields = {**model_config.model_fields, **_QUICK_FIELDS[model]}
    if "num_modes" in fields:
        fields["num_modes"] = min(fields["num_modes"], problem.pod[1])
    train = dataclasses.replace(
        train, steps=_QUICK_STEPS.get(model, 1000), train_grid=min(train.train_grid, 128), eval_every=100
    )
    if train.frame in OWN_GRID and "num_sensors" in fields:
        fields["num_sensors"] = train.train_grid
    return ModelConfig(model, fields), optimizer, train


def _quick_data(dataset: str, problem: Problem, model: str) -> DatasetConfig:
    """Fewer and coarser trajectories where they have to be solved for first."""
    fixed_grid = ("deeponet", "pod_deeponet", *DYNAMICAL)
    options: dict[str, Any] = {"num_points": 256} if model in fixed_grid and dataset == "heat" else {}
    if dataset in ("heat", "reaction"):
        return dataclasses.replace(problem.data, data_options=options)
    return dataclasses.replace(
        problem.data, num_train=120, num_validation=20, num_test=20, data_options={"num_points": 256}
    )


def _paper(dataset: str, problem: Problem, model: str) -> Settings:
    """2000 epochs of batches of 20 on the relative L2 error, as the released code does; 20,000 of 50 for DeepONets."""
    if model in DYNAMICAL:
        return _paper_dynamical(problem, model)
    epochs, batch = (20_000, 50) if "deeponet" in model else (2000, 20)
    per_epoch = problem.data.num_train // batch
    optimizer = OptimizerConfig(
        learning_rate=1e-3, schedule="step", decay_factor=0.8, decay_steps=100 * per_epoch, clip_norm=0.0
    )
    train = TrainConfig(
        steps=epochs * per_epoch, batch_size=batch, times_per_step=0, train_grid=0, loss="relative_l2",
    )  # fmt: skip
    # One size for all equations but reaction, whose grid bears no more; no frames, and all times at once.
    size = {"modes": 32 if dataset == "reaction" else 64, "depth": 2}
    problem = dataclasses.replace(problem, **size, flow=False, walled=False, composed=False)
    fields = dict(_FIELDS[model](problem))
    if model == "ctfno":
        fields |= {"coordinates": True, "padding": 1 / 64, "stability_bound": 10.0}
    elif model in ("fno_rnn", "fno_2d", *ABLATIONS):
        fields["coordinates"] = True
    if model == "fno_rnn":
        fields["residual"] = False
        train = dataclasses.replace(train, shared_normalization=True)
    elif model == "fno_2d":
        fields["time_padding"] = 0.0
    elif "deeponet" in model:
        if model == "pod_deeponet" and problem.periodic:
            fields |= {"basis": "snapshots", "num_modes": 64}
        optimizer = OptimizerConfig(learning_rate=1e-3, schedule="constant", clip_norm=0.0)
        train = dataclasses.replace(train, loss="mse")
    return ModelConfig(model, fields), optimizer, train


def _paper_dynamical(problem: Problem, model: str) -> Settings:
    """Batches of 120 at rates of their own; decayed for the flow only."""
    epochs = 1000 if model == "neural_laplace" else 2000
    per_epoch = (problem.data.num_train - problem.data.num_validation) // 120
    rate = 1e-5 if model in ("node", "anode") else 1e-3
    if model == "neural_flow":
        decay = {"decay_factor": 0.8, "decay_steps": 200 * per_epoch}
        optimizer = OptimizerConfig(learning_rate=rate, schedule="step", clip_norm=0.0, **decay)
    else:
        optimizer = OptimizerConfig(learning_rate=rate, schedule="constant", clip_norm=0.0)
    train = TrainConfig(
        steps=epochs * per_epoch, batch_size=120, times_per_step=0, train_grid=0, loss="mse",
        shared_normalization=model != "neural_laplace", steps_per_call=per_epoch, eval_every=20 * per_epoch,
    )  # fmt: skip
    fields: dict[str, Any] = {"out_channels": problem.channels}
    if model == "anode":
        fields["augmented"] = 100
    return ModelConfig(model, fields), optimizer, train


def cells(dataset: str) -> tuple[str, ...]:
    """The models that there are settings for."""
    return (*_STEPS[dataset], *(ABLATIONS if dataset != "reaction" else ()))


def pde_config(dataset: str, model: str, preset: str, seed: int, experiment: str = "pde") -> ExperimentConfig:
    """The config of one cell."""
    problems = {**PROBLEMS, "reaction": REACTION}
    if dataset not in problems:
        raise ValueError(f"unknown dataset {dataset!r}; known are {', '.join(problems)}")
    if model not in cells(dataset):
        raise ValueError(f"there is no cell {dataset} with {model}; models are {', '.join(cells(dataset))}")
    if model == AT_ONCE and preset == "paper":
        raise ValueError(
            f"in the paper CTFNO answers at once: preset=paper is for ctfno, {AT_ONCE} has quick and default"
        )
    presets = {"quick": _quick, "default": _default, "paper": _paper}
    if preset not in presets:
        raise ValueError(f"unknown preset {preset!r}; known are {', '.join(presets)}")
    problem = problems[dataset]
    data = _quick_data(dataset, problem, model) if preset == "quick" else problem.data
    return ExperimentConfig(experiment, preset, seed, data, *presets[preset](dataset, problem, model))
