"""How much of a flow a trained field model is: ``python -m experiments.audit --workdir=runs/pde/heat/ctfno/seed0``.

Prints and draws, for the first test states of the run: the defect of the identity at t = 0; the defect of the
semigroup, two steps of t/2 against one of t; the time derivative by differentiation against differences, and against
what the equation says about the predicted state; the certified growth of an input error beside the measured one. What a
model cannot be asked is said, not guessed.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from absl import flags

from ctfno_jax import audit
from ctfno_jax.certify import measured_gain
from ctfno_jax.data import fields, registry
from ctfno_jax.plotting import audit as plots
from ctfno_jax.predict import Predictor, is_series, load_predictor, unanswerable
from ctfno_jax.solvers import rates
from experiments import common, field_run, files

FLAGS = flags.FLAGS

# Differences of the solution over this part of the horizon, to both sides.
_STEP = 1e-3
_NUM_TIMES = 12
# Options of the generators that are constants of the equation.
_CONSTANTS = ("viscosity", "rate", "eta", "zeta", "viscous_law")


def main() -> None:
    if not FLAGS.workdir:
        raise ValueError("--workdir is missing; name the folder of a trained run")
    workdir = Path(FLAGS.workdir)
    output = Path(FLAGS.output) if FLAGS.output else workdir / "audit.json"
    if output.suffix != ".json":
        raise ValueError(f"--output must end in .json, got {output}")
    predictor = load_predictor(workdir)
    config = predictor.config
    if is_series(config):
        raise ValueError(f"{workdir} is a run on series ({config.dataset.dataset}); the audit is for fields")
    data_file = registry.find_data_file(config.dataset.dataset, FLAGS.data_dir) if config.dataset.data_file else None
    if FLAGS.data_dir and data_file is None:
        print(f"note: {config.dataset.dataset} is generated; nothing is read from --data_dir")
    data = field_run.load(config, data_file)
    result = audit_run(predictor, data.test.select(slice(FLAGS.num_samples)))
    files.make_directory(output.parent)
    files.write_json(output, result)
    figure = plots.audit(result, title=f"{result['dataset']}: {result['model']}, as a flow")
    files.write_figure(output.with_suffix(".png"), figure)
    print(summary(result))
    print(f"{output} and {output.with_suffix('.png')}")


def audit_run(predictor: Predictor, test: fields.Trajectories) -> dict[str, Any]:
    """All defects as medians over the samples, at some of the times of the data; a sentence where there is none."""
    config = predictor.config
    model: Any = predictor.model
    if getattr(model, "adjoint", "direct") != "direct":
        # The other ways to differentiate a solver go backwards only.
        predictor = dataclasses.replace(predictor, model=model.clone(adjoint="direct"))
    times = _times(test.times)
    if not len(times):
        raise ValueError(f"the audit needs two times of the data or more, got {len(test.times)}")
    u0 = test.u0
    result: dict[str, Any] = {
        "dataset": config.dataset.dataset,
        "model": config.model.model,
        "preset": config.preset,
        "seed": config.seed,
        "num_samples": len(u0),
        "times": _rounded(times),
        "error": _rounded([_median(predictor(u0, [t])[:, 0], test.u[:, i]) for t, i in _positions(test.times, times)]),
        "identity": _try(lambda: float(np.median(audit.identity_defect(predictor, u0)))),
        "semigroup": _try(lambda: _rounded([_halves(predictor, u0, t) for t in times])),
    }
    result |= _derivatives(predictor, u0, times)
    result |= _growth(predictor, u0, times)
    return result


def _times(data_times: np.ndarray) -> np.ndarray:
    """Even numbers of steps, spread over the times of the data: half of each is one of those times too."""
    even = data_times[1::2]
    return even[:: max(1, len(even) // _NUM_TIMES)].astype(np.float64)


def _positions(data_times: np.ndarray, times: np.ndarray) -> list[tuple[float, int]]:
    return [(float(t), int(np.argmin(np.abs(data_times - t)))) for t in times]


def _median(u: np.ndarray, reference: np.ndarray) -> float:
    return float(np.median(audit.relative_norm(u - reference, reference)))


def _halves(predictor: Predictor, u0: np.ndarray, t: float) -> float:
    """Two steps of half the time against one."""
    return float(np.median(audit.semigroup_defect(predictor, u0, t / 2, t / 2)))


def _try(compute: Any) -> Any:
    """The number, or the sentence that says why the model has none."""
    try:
        return compute()
    except ValueError as error:
        return " ".join(str(error).split())


def _derivatives(predictor: Predictor, u0: np.ndarray, times: np.ndarray) -> dict[str, Any]:
    """The time derivative in two ways, and against the equation at the predicted state."""
    config = predictor.config
    step = _STEP * float(times[-1])
    problem = unanswerable(predictor.model, times + step)
    if problem is not None:
        return {"derivative": problem, "residual": problem}
    differences = audit.finite_difference(predictor, u0, times, step)
    result: dict[str, Any] = {}
    if not predictor.transformable:
        rate = differences
        result["derivative"] = f"a run in the {config.train.frame} frame is differentiated by differences only"
    else:
        rate = audit.time_derivative(
            predictor.apply, predictor.params, jnp.asarray(u0, jnp.float32), jnp.asarray(times)
        )
        result["derivative"] = _rounded([_median(differences[:, i], rate[:, i]) for i in range(len(times))])
    known = rates.RATES.get(config.dataset.dataset)
    if known is None:
        result["residual"] = f"the equation of {config.dataset.dataset} is not known here"
        return result
    if config.dataset.data_file:
        result["residual"] = f"the constants behind {config.dataset.data_file} are not known here"
        return result
    u = predictor(u0, times)
    options = {k: v for k, v in config.dataset.data_options.items() if k in _CONSTANTS}
    expected = known(u, **options)
    result["residual"] = _rounded([_median(rate[:, i], expected[:, i]) for i in range(len(times))])
    return result


def _growth(predictor: Predictor, u0: np.ndarray, times: np.ndarray) -> dict[str, Any]:
    """Certified and measured growth of an error in the initial state."""
    config = predictor.config
    if not predictor.transformable:
        nothing = f"a run in the {config.train.frame} frame has neither: the frame depends on the state"
        return {"certified": nothing, "measured": nothing}
    certified = _try(lambda: _rounded(predictor.lipschitz(times)))
    state = jnp.asarray(u0[0], jnp.float32)
    measured = _try(lambda: _rounded(measured_gain(predictor.apply, predictor.params, state, jnp.asarray(times))))
    return {"certified": certified, "measured": measured}


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def summary(result: dict[str, Any]) -> str:
    """The table: one line for each time, and sentences for what there is no number of."""
    columns = ("error", "semigroup", "derivative", "residual", "certified", "measured")
    there = [name for name in columns if isinstance(result[name], list)]
    identity = result["identity"]
    lines = [
        "",
        f"{result['dataset']}: {result['model']}, {result['num_samples']} test states, medians of relative L2 norms",
        f"identity at t = 0: {identity if isinstance(identity, str) else f'{identity:.3e}'}",
        "",
        "".join([f"{'t':>9}", *[f"{name:>12}" for name in there]]),
    ]
    for i, t in enumerate(result["times"]):
        lines.append("".join([f"{t:>9.4g}", *[f"{result[name][i]:>12.3e}" for name in there]]))
    lines += ["", *[f"{name}: {result[name]}" for name in columns if name not in there]]
    lines += [
        "error: of the solution. semigroup: two steps of t/2 against one of t. derivative: differences against",
        "differentiation. residual: time derivative against the equation at the predicted state. certified, measured:",
        "growth of an L2 error in the initial state.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    flags.DEFINE_string("workdir", None, "folder of a trained run")
    flags.DEFINE_string("data_dir", None, "folder of the file that the run was trained on, if it was")
    flags.DEFINE_integer("num_samples", 20, "test states to look at", lower_bound=1)
    flags.DEFINE_string(
        "output", None, ".json file to write, with a figure beside it; audit.json of the run by default"
    )
    common.run_program(main)
