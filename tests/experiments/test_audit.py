"""The audit of a run: numbers that the library gives by hand, sentences where there are none, and what is refused."""

import json
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import flags
from helpers import compiled, parameters, small_runs, small_series
from matplotlib.figure import Figure

from ctfno_jax import audit, predict
from ctfno_jax.certify import measured_gain
from ctfno_jax.data import normalization, registry
from ctfno_jax.plotting import audit as plots
from ctfno_jax.solvers import rates
from experiments import audit as program
from experiments import field_run, files

# Of the data's times 0.5, 1, ... 2.5, those whose half is one of them too.
TIMES = [1.0, 2.0]
# Another viscosity than the default: the residual must be of the equation that the data are solutions of.
OPTIONS = {"num_points": 32, "num_times": 5, "viscosity": 5e-3}


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, compiled.kept_in(tmp_path_factory.mktemp("compiled")):
        patch.delenv("CTFNO_DATA_DIR", raising=False)
        patch.setattr(files, "write_figure", _write_nothing)
        yield


def _write_nothing(path, figure):
    """Pictures are looked at elsewhere, and slow."""
    assert isinstance(figure, Figure)


@pytest.fixture(scope="module")
def data():
    return registry.load_fields("heat", num_train=20, num_validation=4, num_test=4, **OPTIONS)


def _predictor(model, data, **changes):
    """A run of a model with random parameters: what it can be asked does not depend on its training."""
    settings = small_runs.config(model, data_options=OPTIONS, **changes)
    module = predict.model_of(settings)
    statistics = normalization.fit(data.train, shared=settings.train.shared_normalization)
    params = parameters.random_parameters(module, data.train.u0[:1], data.train.times[:1], scale=0.3)
    description = predict.describe_run(settings, statistics, data.train.u0.shape, data.train.times, data.train.u0.shape)
    return predict.Predictor(module, params, statistics, 1, description)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """Of a CTFNO that was trained for two steps."""
    folder = tmp_path_factory.mktemp("runs") / "ctfno"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
        short = {"steps": 2, "steps_per_call": 2, "eval_every": 2}
        field_run.run(small_runs.config("ctfno", data_options=OPTIONS, **short), folder)
    return folder


@pytest.fixture(scope="module")
def trained(workdir):
    return predict.load_predictor(workdir)


@pytest.fixture(scope="module")
def result(trained, data):
    return program.audit_run(trained, data.test)


def _medians(by_time):
    """Medians over samples, for one array of samples at each time."""
    return [np.median(some) for some in by_time]


# --- numbers ------------------------------------------------------------------------------------------------------


def test_the_result_says_what_was_looked_at(result):
    keys = "dataset model preset seed num_samples times error identity semigroup derivative residual certified measured"
    assert sorted(result) == sorted(keys.split())
    stated = [result[name] for name in ("dataset", "model", "preset", "seed", "num_samples", "times")]
    assert stated == ["heat", "ctfno", "quick", 0, 4, TIMES]
    assert json.loads(json.dumps(result)) == result
    for name in ("error", "semigroup", "derivative", "residual", "certified", "measured"):
        assert len(result[name]) == len(TIMES)
        assert np.all(np.isfinite(result[name]))


def test_numbers_are_medians_of_defects_by_hand(result, trained, data):
    u0, at = data.test.u0, [1, 3]
    assert result["identity"] == pytest.approx(np.median(audit.identity_defect(trained, u0)), rel=1e-5)
    errors = [audit.relative_norm(trained(u0, [t])[:, 0] - data.test.u[:, i], data.test.u[:, i])
              for t, i in zip(TIMES, at, strict=True)]  # fmt: skip
    np.testing.assert_allclose(result["error"], _medians(errors), rtol=1e-3)
    halves = [audit.semigroup_defect(trained, u0, t / 2, t / 2) for t in TIMES]
    np.testing.assert_allclose(result["semigroup"], _medians(halves), rtol=1e-3)


def test_rates_are_compared_with_differences_and_with_the_equation_of_the_data(result, trained, data):
    rate = audit.time_derivative(trained.apply, trained.params, jnp.asarray(data.test.u0), jnp.asarray(TIMES))
    differences = audit.finite_difference(trained, data.test.u0, np.asarray(TIMES), 2e-3)
    both = [audit.relative_norm(differences[:, i] - rate[:, i], rate[:, i]) for i in range(2)]
    # What is left is rounding of the differences, which another program may round otherwise.
    assert max(result["derivative"]) < 1e-2
    np.testing.assert_allclose(result["derivative"], _medians(both), atol=1e-3)
    expected = rates.heat(trained(data.test.u0, TIMES), viscosity=OPTIONS["viscosity"])
    residual = [audit.relative_norm(rate[:, i] - expected[:, i], expected[:, i]) for i in range(2)]
    np.testing.assert_allclose(result["residual"], _medians(residual), rtol=1e-3)


def test_growth_is_certified_above_what_is_measured_at_the_first_state(result, trained, data):
    np.testing.assert_allclose(result["certified"], trained.lipschitz(TIMES), rtol=1e-3)
    measured = measured_gain(trained.apply, trained.params, jnp.asarray(data.test.u0[0]), jnp.asarray(TIMES))
    np.testing.assert_allclose(result["measured"], measured, rtol=1e-3)
    assert np.all(np.asarray(result["certified"]) >= result["measured"])


@pytest.mark.parametrize(
    ("num_times", "expected"), [(2, [2]), (5, [2, 4]), (8, [2, 4, 6, 8]), (50, list(range(2, 51, 4)))]
)
def test_times_are_even_numbers_of_steps(num_times, expected):
    step = 0.05
    found = program._times(step * np.arange(1, num_times + 1).astype(np.float32))
    np.testing.assert_allclose(found, step * np.asarray(expected), rtol=1e-6)


@pytest.fixture
def without_growth(monkeypatch):
    """The growth of errors is not asked for: compiling it takes longer than all the rest."""
    monkeypatch.setattr(program, "_growth", lambda *_: dict.fromkeys(("certified", "measured"), "not asked here"))


# --- sentences ----------------------------------------------------------------------------------------------------


def test_a_model_on_a_grid_of_times_has_no_derivative(data):
    found = program.audit_run(_predictor("fno_rnn", data), data.test)
    for name in ("derivative", "residual"):
        assert re.match(r"fno_rnn answers only at multiples of 0\.5 up to 2\.5, got 1\.002", found[name])
    assert found["identity"] == pytest.approx(0, abs=1e-5)  # no step is no change, up to the normalisation
    assert max(found["semigroup"]) < 1e-4  # steps are steps, wherever they start
    assert found["certified"].startswith("only CTFNO has a certificate, got ")
    assert min(found["measured"]) > 0


def test_an_inverse_transform_has_no_answer_at_time_zero(data, without_growth):
    found = program.audit_run(_predictor("neural_laplace", data), data.test)
    assert found["identity"] == (
        "the inverse transform needs positive times; leave out t=0, where the solution is known"
    )
    assert all(len(found[name]) == 2 for name in ("semigroup", "derivative", "residual"))
    text = program.summary(found)
    assert f"identity at t = 0: {found['identity']}" in text
    assert "certified: not asked here" in text


def test_in_a_frame_there_are_differences_only(data):
    aligned = _predictor("deeponet", data, frame="aligned", translations=False, sign_flips=False)
    found = program.audit_run(aligned, data.test)
    assert found["derivative"] == "a run in the aligned frame is differentiated by differences only"
    assert (
        found["certified"]
        == found["measured"]
        == ("a run in the aligned frame has neither: the frame depends on the state")
    )
    differences = audit.finite_difference(aligned, data.test.u0, np.asarray(TIMES), 2e-3)
    expected = rates.heat(aligned(data.test.u0, TIMES), viscosity=OPTIONS["viscosity"])
    by_hand = [audit.relative_norm(differences[:, i] - expected[:, i], expected[:, i]) for i in range(2)]
    np.testing.assert_allclose(found["residual"], _medians(by_hand), rtol=1e-3)


@pytest.mark.slow
def test_a_solver_that_goes_backwards_only_is_differentiated_directly(data, without_growth):
    """The last time and those beside it are reached in as many constant steps."""
    fields = {**small_runs.FIELDS["node"], "step_size": 0.8, "adjoint": "checkpoints"}
    node = _predictor("node", data, model_fields=fields)
    assert node.model.adjoint == "checkpoints"
    found = program.audit_run(node, data.test)
    assert max(found["derivative"]) < 0.01
    assert found["identity"] < 1e-5


def test_data_from_a_file_have_no_known_constants(trained, data, without_growth):
    changed = {**trained.description, "config": json.loads(json.dumps(trained.description["config"]))}
    changed["config"]["dataset"]["data_file"] = "heat.hdf5"
    of_file = predict.Predictor(trained.model, trained.params, trained.normalization, 1, changed)
    found = program.audit_run(of_file, data.test)
    assert found["residual"] == "the constants behind heat.hdf5 are not known here"
    assert len(found["derivative"]) == len(found["error"]) == 2


# --- the table and the figure -------------------------------------------------------------------------------------


def test_the_summary_has_every_number_in_its_column(result):
    lines = program.summary(result).splitlines()
    assert lines[1] == "heat: ctfno, 4 test states, medians of relative L2 norms"
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
    assert [text.get_text() for text in rate.texts] == ["no answer from this model"]
    assert [line.get_label() for line in growth.lines] == ["measured: this much was found"]
    assert len(plots.audit(_made_up(identity="none"), title="").axes[0].lines) == 2


# --- the program --------------------------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch):
    """Calls its main with flags of its own."""

    def call(workdir, output=None, num_samples=20, data_dir=None):
        values = flags.FlagValues()
        for name, value in {"workdir": workdir, "output": output, "data_dir": data_dir}.items():
            flags.DEFINE_string(name, None if value is None else str(value), "", flag_values=values)
        flags.DEFINE_integer("num_samples", num_samples, "", flag_values=values)
        values.mark_as_parsed()
        monkeypatch.setattr(program, "FLAGS", values)
        program.main()

    return call


def test_the_program_writes_what_it_prints(run, workdir, tmp_path, data, trained, capsys):
    run(workdir, tmp_path / "new" / "a.json", num_samples=2)
    written = json.loads((tmp_path / "new" / "a.json").read_text())
    assert written == program.audit_run(trained, data.test.select(slice(2)))
    text = capsys.readouterr().out
    assert program.summary(written) in text
    assert f"{tmp_path / 'new' / 'a.json'} and {tmp_path / 'new' / 'a.png'}" in text


def test_without_an_output_the_audit_stays_with_its_run(run, workdir, result):
    run(workdir)
    assert json.loads((workdir / "audit.json").read_text()) == result


def test_a_run_on_series_is_refused(run, monkeypatch):
    stand_in = SimpleNamespace(config=small_series.config("ctfno"))
    monkeypatch.setattr(program, "load_predictor", lambda workdir: stand_in)
    with pytest.raises(ValueError, match=r"some/run is a run on series \(sine\); the audit is for fields"):
        run("some/run")


def test_a_missing_run_is_refused(run, tmp_path):
    with pytest.raises(ValueError, match="--workdir is missing; name the folder of a trained run"):
        run(None)
    with pytest.raises(RuntimeError, match=r"nowhere holds no trained run: there is no .*nowhere/checkpoints"):
        run(tmp_path / "nowhere")


def test_another_kind_of_output_is_refused_and_not_written(run, workdir, tmp_path, monkeypatch):
    monkeypatch.setattr(program, "audit_run", lambda *_: _made_up())
    with pytest.raises(ValueError, match=r"--output must end in \.json, got .*a\.txt"):
        run(workdir, tmp_path / "a.txt")
    assert not list(tmp_path.iterdir())
