"""Properties of a trained field model as a flow: ``python -m experiments.audit --workdir=runs/pde/heat/ctfno/seed0``.

Prints and draws, for the first test states of the run: the defect of the identity at t = 0; the semigroup defect, two
steps of t/2 against one of t; the time derivative by differentiation against finite differences, and against the
equation at the predicted state; the certified growth of an input error beside the measured one. Where a model has no
such number, a sentence says why.
"""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from absl import flags

from ctfno_jax import audit, files
from ctfno_jax.certify import measured_gain
from ctfno_jax.config import ExperimentConfig, from_dict
from ctfno_jax.data import problems
from ctfno_jax.data.trajectories import FieldDataset, Trajectories
from ctfno_jax.fit import fingerprint
from ctfno_jax.models import interface
from ctfno_jax.plotting import audit as plots
from ctfno_jax.predict import Predictor, load_predictor
from ctfno_jax.training.workdir import read_json
from experiments import configs, own_data, program

FLAGS = flags.FLAGS

# Step of the finite differences, as a fraction of the last time.
_STEP = 1e-3
_NUM_TIMES = 12


def main() -> None:
    if not FLAGS.workdir:
        raise ValueError("--workdir is missing; name the folder of a trained run")
    workdir = Path(FLAGS.workdir)
    output = Path(FLAGS.output) if FLAGS.output else workdir / "audit.json"
    if output.suffix != ".json":
        raise ValueError(f"--output must end in .json, got {output}")
    predictor = load_predictor(workdir)
    if predictor.is_series:
        raise ValueError(f"{workdir} is a run on series ({predictor.description['title']}); the audit is for fields")
    config, states = evaluation_states(workdir, FLAGS.data_dir)
    result = audit_run(predictor, config, states.select(slice(FLAGS.num_samples)))
    files.write_json(output, result)
    figure = plots.audit(result, title=f"{result['dataset']}: {result['model']}, as a flow")
    files.write_figure(output.with_suffix(".png"), figure)
    print(summary(result))
    print(f"{output} and {output.with_suffix('.png')}")


def evaluation_states(workdir: Path, data_dir: str | None) -> tuple[ExperimentConfig, Trajectories]:
    """Config of a run and the trajectories it is evaluated on, from its ``config.json``."""
    saved = read_json(workdir / "config.json", "train the run again")
    if saved.get("experiment") == "fit":
        raise ValueError(f"{workdir} was trained by fit, which keeps no data; the audit needs the data of the run")
    evaluate, arrays = saved.pop("evaluate"), saved.pop("arrays", None)
    config = from_dict(ExperimentConfig, saved)
    if config.experiment == own_data.EXPERIMENT:
        everything = own_data.read(config.data.data_file)
        if fingerprint(everything) != arrays:
            raise ValueError(f"{config.data.data_file} has changed since the run was trained on it; train it again")
        data = own_data.dataset(config, everything)
    else:
        # A trial must not see the test set.
        parts = problems.PARTS if evaluate == "test" else ("train", "validation")
        data = configs.TASKS[config.task].from_config(config, data_dir=data_dir, parts=parts).data
        assert isinstance(data, FieldDataset)
        expected = config.data.data_file or "generated"
        if data.source != expected:
            raise ValueError(
                f"the run was trained on {expected} data, found {data.source}; correct --data_dir or CTFNO_DATA_DIR"
            )
    states = data.test if evaluate == "test" else data.validation
    assert states is not None
    return config, states


def audit_run(predictor: Predictor, config: ExperimentConfig, test: Trajectories) -> dict[str, Any]:
    """All defects as medians over the samples, at some of the times of the data; a sentence where there is none."""
    # Adjoints of ODE solvers differentiate in reverse mode only, unless they are direct.
    model = interface.forward_differentiable(predictor.model)
    predictor = Predictor(model, predictor.params, predictor.transform, predictor.description)
    if test.times.ndim != 1:
        raise ValueError(f"the audit needs times that all trajectories share, got times of shape {test.times.shape}")
    times = _times(test.times)
    if not len(times):
        raise ValueError(f"the audit needs two times of the data or more, got {len(test.times)}")
    u0 = test.u0
    result: dict[str, Any] = {
        "dataset": config.dataset,
        "model": config.model,
        "preset": config.preset,
        "seed": config.seed,
        "num_samples": len(u0),
        "times": _rounded(times),
        "error": _rounded([_median(predictor(u0, [t])[:, 0], test.u[:, i]) for t, i in _positions(test.times, times)]),
        "identity": _try(lambda: float(np.median(audit.identity_defect(predictor, u0)))),
        "semigroup": _try(lambda: _rounded([_halves(predictor, u0, t) for t in times])),
    }
    result |= _derivatives(predictor, config, u0, times)
    result |= _growth(predictor, u0, times)
    return result


def _times(data_times: np.ndarray) -> np.ndarray:
    """Even numbers of steps, spread over the times of the data: half of each is one of those times too."""
    even = np.sort(data_times[data_times > 0])[1::2]
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


def _derivatives(
    predictor: Predictor, config: ExperimentConfig, u0: np.ndarray, times: np.ndarray
) -> dict[str, Any]:  # fmt: skip
    """The time derivative in two ways, and against the equation at the predicted state."""
    step = _STEP * float(times[-1])
    problem = interface.unanswerable(predictor.model, times + step)
    if problem is not None:
        return {"derivative": problem, "residual": problem}
    differences = audit.finite_difference(predictor, u0, times, step)
    rate = audit.time_derivative(predictor.apply, predictor.params, jnp.asarray(u0, jnp.float32), jnp.asarray(times))
    defect = _rounded([_median(differences[:, i], rate[:, i]) for i in range(len(times))])
    return {"derivative": defect, "residual": _try(lambda: _residual(predictor, config, u0, times, rate))}


def _residual(
    predictor: Predictor, config: ExperimentConfig, u0: np.ndarray, times: np.ndarray, rate: np.ndarray
) -> list[float]:  # fmt: skip
    if config.data.data_file:
        raise ValueError(f"the equation of {Path(config.data.data_file).name} and its constants are not known here")
    problem = problems.problem(config.dataset)
    assert isinstance(problem, problems.FieldProblem)
    if problem.rate is None:
        raise ValueError(f"the equation of {config.dataset} is not known here")
    expected = problem.rate(predictor(u0, times), **problem.constants(config.data.data_options))
    return _rounded([_median(rate[:, i], expected[:, i]) for i in range(len(times))])


def _growth(predictor: Predictor, u0: np.ndarray, times: np.ndarray) -> dict[str, Any]:
    """Certified and measured growth of an error in the initial state."""
    certified = _try(lambda: _rounded(predictor.lipschitz(times, grid=u0.shape[1:-1])))
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
        "error: of the solution. semigroup: two steps of t/2 against one of t. derivative: finite differences against",
        "differentiation. residual: time derivative against the equation at the predicted state. certified, measured:",
        "growth of an L2 error in the initial state.",
    ]
    return "\n".join(lines)


def define_flags() -> None:
    flags.DEFINE_string("workdir", None, "folder of a trained run")
    flags.DEFINE_string("data_dir", None, "folder of the file that the run was trained on, if it was")
    flags.DEFINE_integer("num_samples", 20, "number of test states", lower_bound=1)
    flags.DEFINE_string(
        "output", None, ".json file to write, with a figure beside it; audit.json of the run by default"
    )


if __name__ == "__main__":
    define_flags()
    program.run(main, __doc__ or "")
