"""The audit of a run: numbers that the library gives by hand, sentences where there are none, and what is refused."""

import json
import re

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import compiled, prediction, small_runs
from helpers.parameters import random_parameters
from matplotlib.figure import Figure

from ctfno_jax import Predictor, audit, files, load_predictor
from ctfno_jax.certify import measured_gain
from ctfno_jax.plotting import audit as plots
from ctfno_jax.solvers import rates
from ctfno_jax.tasks.fields import FieldTask
from ctfno_jax.training import run
from ctfno_jax.training.workdir import Workdir
from experiments import audit as program
from experiments import configs

# Of the data's times 0.5, 1, ... 2.5, those whose half is one of them too.
TIMES = [1.0, 2.0]
# Another viscosity than the default: the residual must be of the equation that the data are solutions of.
OPTIONS = {"num_points": 32, "num_times": 5, "final_time": 2.5, "viscosity": 5e-3}
CONFIG = configs.cell(
    "pde", "heat", "ctfno", "quick", 0,
    overrides={
        **small_runs.CTFNO, "data_options": OPTIONS, "num_train": 16, "num_validation": 4, "num_test": 3, "steps": 2,
        "steps_per_call": 2, "eval_every": 2, "batch_size": 8, "times_per_step": 2, "train_grid": 0, "optimizer": "sgd",
        "clip_norm": 0.0, "average_decay": 0.0,
    },
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def cheap(tmp_path_factory):
    with (
        pytest.MonkeyPatch.context() as patch,
        prediction.one_device(),
        compiled.kept_in(tmp_path_factory.mktemp("compiled")),
    ):
        patch.setattr(files, "write_figure", _write_nothing)
        yield


def _write_nothing(path, figure):
    """Pictures are looked at elsewhere, and slow."""
    assert isinstance(figure, Figure)


def _train(folder, evaluate):
    """Leaves a trained run with the config of an experiment."""
    task = FieldTask.from_config(CONFIG)
    with Workdir(folder, {**CONFIG.to_dict(), "evaluate": evaluate}) as workdir:
        run.train(task, optimizer=CONFIG.optimizer, config=CONFIG.train, workdirs=[workdir], show_progress=False)
    return folder


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """Of a CTFNO that was trained for two steps."""
    return _train(tmp_path_factory.mktemp("runs") / "ctfno", "test")


@pytest.fixture(scope="module")
def data(workdir):
    """The test trajectories."""
    return small_runs.dataset("heat", viscosity=5e-3).test


@pytest.fixture(scope="module")
def trained(workdir):
    return load_predictor(workdir)


@pytest.fixture(scope="module")
def result(trained, data):
    return program.audit_run(trained, CONFIG, data)


def _predictor(network, **fields):
    """A run of a network with random parameters: what it can be asked does not depend on its training."""
    task = small_runs.task(network, data=small_runs.dataset("heat", viscosity=5e-3), fields=fields)
    params = random_parameters(task.model, task.arrays.u0[:1], task.arrays.times[:1], scale=0.3)
    return Predictor(task.model, params, task.transform, task.facts())


def _medians(by_time):
    """Medians over samples, for one array of samples at each time."""
    return [np.median(some) for some in by_time]


# --- numbers ------------------------------------------------------------------------------------------------------


def test_the_result_says_what_was_looked_at(result):
    keys = "dataset model preset seed num_samples times error identity semigroup derivative residual certified measured"
    assert sorted(result) == sorted(keys.split())
    stated = [result[name] for name in ("dataset", "model", "preset", "seed", "num_samples", "times")]
    assert stated == ["heat", "ctfno", "quick", 0, 3, TIMES]
    assert json.loads(json.dumps(result)) == result
    for name in ("error", "semigroup", "derivative", "residual", "certified", "measured"):
        assert len(result[name]) == len(TIMES)
        assert np.all(np.isfinite(result[name]))


def test_numbers_are_medians_of_defects_by_hand(result, trained, data):
    u0, at = data.u0, [1, 3]
    assert result["identity"] == pytest.approx(np.median(audit.identity_defect(trained, u0)), rel=1e-5)
    errors = [audit.relative_norm(trained(u0, [t])[:, 0] - data.u[:, i], data.u[:, i])
              for t, i in zip(TIMES, at, strict=True)]  # fmt: skip
    np.testing.assert_allclose(result["error"], _medians(errors), rtol=1e-3)
    halves = [audit.semigroup_defect(trained, u0, t / 2, t / 2) for t in TIMES]
    np.testing.assert_allclose(result["semigroup"], _medians(halves), rtol=1e-3)


def test_rates_are_compared_with_differences_and_with_the_equation_of_the_data(result, trained, data):
    rate = audit.time_derivative(trained.apply, trained.params, jnp.asarray(data.u0), jnp.asarray(TIMES))
    differences = audit.finite_difference(trained, data.u0, np.asarray(TIMES), 2e-3)
    both = [audit.relative_norm(differences[:, i] - rate[:, i], rate[:, i]) for i in range(2)]
    # What is left is rounding of the differences, which another program may round otherwise.
    assert max(result["derivative"]) < 1e-2
    np.testing.assert_allclose(result["derivative"], _medians(both), atol=1e-3)
    expected = rates.heat(trained(data.u0, TIMES), viscosity=OPTIONS["viscosity"])
    residual = [audit.relative_norm(rate[:, i] - expected[:, i], expected[:, i]) for i in range(2)]
    np.testing.assert_allclose(result["residual"], _medians(residual), rtol=1e-3)


def test_growth_is_certified_above_what_is_measured_at_the_first_state(result, trained, data):
    np.testing.assert_allclose(result["certified"], trained.lipschitz(TIMES), rtol=1e-3)
    measured = measured_gain(trained.apply, trained.params, jnp.asarray(data.u0[0]), jnp.asarray(TIMES))
    np.testing.assert_allclose(result["measured"], measured, rtol=1e-3)
    assert np.all(np.asarray(result["certified"]) >= result["measured"])


@pytest.mark.parametrize(
    ("num_times", "expected"), [(2, [2]), (5, [2, 4]), (8, [2, 4, 6, 8]), (50, list(range(2, 51, 4)))]
)
def test_times_are_even_numbers_of_steps(num_times, expected):
    """In whatever order the data have them, and without the initial time."""
    step = 0.05
    found = program._times(step * np.arange(num_times, -1, -1).astype(np.float32))
    np.testing.assert_allclose(found, step * np.asarray(expected), rtol=1e-6)


# --- sentences ----------------------------------------------------------------------------------------------------


@pytest.fixture
def without_growth(monkeypatch):
    """The growth of errors is not asked for: compiling it takes longer than all the rest."""
    monkeypatch.setattr(program, "_growth", lambda *_: dict.fromkeys(("certified", "measured"), "not asked here"))


def test_a_model_on_a_grid_of_times_has_no_derivative(data, monkeypatch):
    monkeypatch.setattr(program, "measured_gain", lambda *_: np.asarray([1.0, 2.0]))
    found = program.audit_run(_predictor("fno_rnn"), CONFIG, data)
    for name in ("derivative", "residual"):
        assert re.match(r"fno_rnn answers only at multiples of 0\.5 up to 2\.5, got 1\.002", found[name])
    assert found["identity"] == pytest.approx(0, abs=1e-5)  # no step is no change, up to the normalisation
    assert max(found["semigroup"]) < 1e-4  # steps are steps, wherever they start
    assert re.match(
        "only CTFNO, and Residual or Semigroup around it, have a certificate, got FNORNN", found["certified"]
    )
    assert found["measured"] == [1.0, 2.0]


def test_a_transform_has_no_answer_at_time_zero(data, without_growth):
    found = program.audit_run(_predictor("neural_laplace"), CONFIG, data)
    assert found["identity"] == (
        "the inverse transform needs positive times; leave out t=0, where the solution is known"
    )
    assert all(len(found[name]) == 2 for name in ("semigroup", "derivative", "residual"))
    text = program.summary(found)
    assert f"identity at t = 0: {found['identity']}" in text
    assert "certified: not asked here" in text


@pytest.mark.slow
def test_a_solver_that_goes_backwards_only_is_differentiated_directly(data, without_growth):
    """The last time and those beside it are reached in as many constant steps."""
    node = _predictor("neural_ode", step_size=0.8, adjoint="checkpoints")
    assert node.model.adjoint == "checkpoints"
    found = program.audit_run(node, CONFIG, data)
    assert max(found["derivative"]) < 0.01
    assert found["identity"] < 1e-5


def test_data_from_a_file_have_no_known_constants(trained, data):
    config = configs.cell("pde", "heat", "ctfno", "quick", data_file="folder/heat.hdf5")
    with pytest.raises(ValueError, match=r"the equation of heat\.hdf5 and its constants are not known here"):
        program._residual(trained, config, data.u0, np.asarray(TIMES), data.u)


# --- the table and the figure -------------------------------------------------------------------------------------


def test_the_summary_has_every_number_in_its_column(result):
    lines = program.summary(result).splitlines()
    assert lines[1] == "heat: ctfno, 3 test states, medians of relative L2 norms"
    assert lines[2] == f"identity at t = 0: {result['identity']:.3e}"
    columns = lines[4].split()
    assert columns == ["t", "error", "semigroup", "derivative", "residual", "certified", "measured"]
    for i, line in enumerate(lines[5:7]):
        cells = dict(zip(columns, map(float, line.split()), strict=True))
        assert cells["t"] == TIMES[i]
        for name in columns[1:]:
            assert cells[name] == pytest.approx(result[name][i], rel=1e-3)


def _made_up(**changes):
    numbers = {name: [0.1, 0.2] for name in ("error", "semigroup", "derivative", "residual", "certified", "measured")}
    return {"times": TIMES, "identity": 0.05, "dataset": "heat", "model": "x", "num_samples": 3, **numbers, **changes}


def test_what_has_no_number_is_a_sentence_below_the_table():
    text = program.summary(_made_up(derivative="no derivative here", certified="no certificate here"))
    assert text.splitlines()[4].split() == ["t", "error", "semigroup", "residual", "measured"]
    assert "derivative: no derivative here" in text
    assert "certified: no certificate here" in text


def test_lists_are_drawn_and_sentences_are_not():
    figure = plots.audit(
        _made_up(error=[0.3, 0.4], certified="none", derivative="none", residual="none"), title="a flow"
    )
    solution, rate, growth = figure.axes
    assert figure.get_suptitle() == "a flow"
    error, semigroup, identity = solution.lines
    np.testing.assert_array_equal(error.get_ydata(), [0.3, 0.4])
    np.testing.assert_array_equal(semigroup.get_xdata(), TIMES)
    np.testing.assert_array_equal(identity.get_ydata(), [0.05, 0.05])
    assert not rate.lines
    assert len(rate.texts) == 1
    assert len(growth.lines) == 1
    assert len(plots.audit(_made_up(identity="none"), title="").axes[0].lines) == 2


# --- the program --------------------------------------------------------------------------------------------------


@pytest.fixture
def call(monkeypatch):
    """Calls its main with flags of its own."""

    def run(workdir, **flags):
        given = {"workdir": workdir, **flags}
        prediction.call(monkeypatch, program, *[f"--{name}={value}" for name, value in given.items() if value])

    return run


def test_the_program_writes_what_it_prints(call, workdir, data, monkeypatch, tmp_path, capsys):
    looked_at = []
    monkeypatch.setattr(program, "audit_run", lambda *args: looked_at.append(args) or _made_up())
    call(workdir, output=tmp_path / "new" / "a.json", num_samples=2)
    ((_, config, states),) = looked_at
    assert config == CONFIG
    np.testing.assert_array_equal(states.u0, data.u0[:2])
    np.testing.assert_array_equal(states.u, data.u[:2])
    assert json.loads((tmp_path / "new" / "a.json").read_text()) == _made_up()
    text = capsys.readouterr().out
    assert program.summary(_made_up()) in text
    assert f"{tmp_path / 'new' / 'a.json'} and {tmp_path / 'new' / 'a.png'}" in text


def test_without_an_output_the_audit_stays_with_its_run(call, workdir, monkeypatch):
    monkeypatch.setattr(program, "audit_run", lambda *_: _made_up())
    call(workdir)
    assert json.loads((workdir / "audit.json").read_text()) == _made_up()


def _with_config(folder, **changes):
    """A folder with the config of the run and nothing else."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG.to_dict(), "evaluate": "test", **changes}))
    return folder


def test_a_trial_is_audited_on_validation_data(tmp_path):
    _, states = program.evaluation_states(_with_config(tmp_path / "trial", evaluate="validation"), None)
    np.testing.assert_array_equal(states.u0, small_runs.dataset("heat", viscosity=5e-3).validation.u0)


def test_other_data_than_those_of_the_run_are_refused(tmp_path):
    of_file = _with_config(tmp_path / "run", data={**CONFIG.to_dict()["data"], "data_file": "heat.hdf5"})
    with pytest.raises(
        ValueError, match=r"was trained on heat\.hdf5 data, found generated; correct --data_dir or CTFNO"
    ):
        program.evaluation_states(of_file, None)


def test_a_run_of_fit_has_no_data_to_audit(tmp_path):
    folder = _with_config(tmp_path / "run", experiment="fit")
    with pytest.raises(ValueError, match=r"run was trained by fit, which keeps no data; the audit needs the data"):
        program.evaluation_states(folder, None)


def test_a_run_on_series_is_refused(call, monkeypatch):
    about = {"task": "series", "title": "sine"}
    monkeypatch.setattr(program, "load_predictor", lambda workdir: Predictor(None, None, None, about))
    with pytest.raises(ValueError, match=r"some/run is a run on series \(sine\); the audit is for fields"):
        call("some/run")


def test_a_missing_run_is_refused(call, tmp_path):
    with pytest.raises(ValueError, match="--workdir is missing; name the folder of a trained run"):
        call(None)
    with pytest.raises(RuntimeError, match=r"nowhere holds no trained run: there is no .*nowhere/checkpoints"):
        call(tmp_path / "nowhere")


def test_another_kind_of_output_is_refused_and_not_written(call, workdir, tmp_path):
    with pytest.raises(ValueError, match=r"--output must end in \.json, got .*a\.txt"):
        call(workdir, output=tmp_path / "a.txt")
    assert not list(tmp_path.iterdir())
