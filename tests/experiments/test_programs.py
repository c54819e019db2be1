"""The programs as a user runs them: end to end, and one line for every mistake."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from absl import flags
from helpers import prediction

from ctfno_jax.training import checkpoint
from experiments import common, files, run_folder
from experiments import predict as predict_program
from experiments.configs import pde as presets

ROOT = Path(__file__).parents[2]

TINY = [
    "--preset=quick",
    "--width=8",
    "--modes=6",
    "--heads=2",
    "--time_width=8",
    "--time_features=4",
    "--num_train=24",
    "--num_validation=4",
    "--num_test=3",
    "--data_option=num_points=32",
    "--data_option=num_times=5",
    "--train_grid=16",
    "--steps=4",
    "--steps_per_call=2",
    "--eval_every=2",
    "--batch_size=8",
]

# After a failed read, what is left of it reports to an event loop that is closed by then; nobody waits for it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="module")
def program(cache, tmp_path_factory):
    """Runs ``python -m experiments.<name>`` as a user with one device does."""

    data = str(tmp_path_factory.mktemp("data"))

    def run(name, *arguments):
        environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "NPROC", "CTFNO_DATA_DIR")}
        environment |= {"JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}
        environment |= {"CTFNO_CACHE_DIR": data}
        command = [sys.executable, "-m", f"experiments.{name}", *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)

    return run


@pytest.fixture(scope="module")
def trained(program, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("programs") / "run"
    return workdir, program("pde", *TINY, f"--workdir={workdir}")


def _assert_one_line_error(done, *words):
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]


# --- what works -----------------------------------------------------------------------------------------------


def test_training_ends_with_a_table_and_leaves_a_result(trained):
    workdir, done = trained
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "test RMSE" in done.stdout
    assert (workdir / "result.json").is_file()


def test_a_trained_run_is_queried_end_to_end(program, trained, tmp_path):
    states = np.random.default_rng(0).normal(size=(2, 20)).astype(np.float32)
    np.save(tmp_path / "u0.npy", states)
    output = tmp_path / "new" / "u.npz"
    done = program("predict", f"--workdir={trained[0]}", f"--input={tmp_path / 'u0.npy'}", "--times=0.5,0.1,9",
                   f"--output={output}")  # fmt: skip
    assert done.returncode == 0, done.stderr
    with np.load(output) as found:
        assert found["u"].shape == (2, 3, 20, 1)
        np.testing.assert_allclose(found["times"], [0.5, 0.1, 9.0], rtol=1e-6)
        np.testing.assert_array_equal(found["u0"][..., 0], states)
        assert np.all(np.isfinite(found["u"]))
    assert "beyond the training horizon of 2.5" in done.stdout
    assert output.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


# --- mistakes, as a user sees them ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--width=10", "--heads=4"], ["width=10 must be divisible by heads=4"]),
        (["--modes=40"], ["modes (40,) do not fit a grid of (16,) points"]),
    ],
)
def test_settings_that_cannot_be_are_one_line(program, tmp_path, arguments, words):
    _assert_one_line_error(program("pde", *TINY, *arguments, f"--workdir={tmp_path / 'run'}"), *words)
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_foreign_workdir_is_one_line_that_names_the_difference(program, trained):
    before = (trained[0] / "result.json").read_bytes()
    done = program("pde", *TINY, "--num_test=4", f"--workdir={trained[0]}")
    assert (trained[0] / "result.json").read_bytes() == before
    _assert_one_line_error(done, "belongs to another config", "dataset.num_test is 3 there and 4 here")


@pytest.mark.parametrize(
    ("argument", "words"),
    [("--dataset=heet", ["--dataset", "heet", "heat"]), ("--wdith=3", ["Unknown command line flag 'wdith'", "width"])],
)
def test_flags_that_are_not_there_are_refused_with_what_is(program, argument, words):
    done = program("pde", argument)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_damaged_checkpoints_are_one_line(program, trained, tmp_path):
    copy = tmp_path / "run"
    for path in (p for p in trained[0].rglob("*") if p.is_file()):
        target = copy / path.relative_to(trained[0])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    for folder in (p for p in (copy / "checkpoints").iterdir() if p.is_dir()):
        largest = max((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
        largest.write_bytes(largest.read_bytes()[:40])
    np.save(tmp_path / "u0.npy", np.zeros((1, 16)))
    done = program("predict", f"--workdir={copy}", f"--input={tmp_path / 'u0.npy'}", "--times=1",
                   f"--output={tmp_path / 'u.npz'}")  # fmt: skip
    _assert_one_line_error(done, "no intact checkpoint")
    assert not (tmp_path / "u.npz").exists()


# --- the same without a new process for each ------------------------------------------------------------------


@pytest.fixture
def query(trained, tmp_path, monkeypatch):
    """Calls the prediction program's main with flags of its own, and gives back what it wrote."""

    def run(array=None, **changes):
        if array is not None:
            np.save(tmp_path / "u0.npy", array)
        given = {"workdir": trained[0], "input": tmp_path / "u0.npy", "times": "0.5", "output": tmp_path / "u.npz"}
        return prediction.predict(monkeypatch, **{**given, **changes})

    return run


@pytest.mark.parametrize("num_points", [16, 25, 40])
def test_queries_on_any_grid_that_carries_the_modes(query, num_points):
    found = query(np.cos(2 * np.pi * np.arange(num_points) / num_points), times="0:2:3")
    assert found["u"].shape == (1, 3, num_points, 1)
    np.testing.assert_allclose(found["times"], [0.0, 1.0, 2.0], rtol=1e-6)


def test_all_forms_of_one_state_give_one_answer(query):
    state = np.random.default_rng(1).normal(size=16)
    answers = [query(array)["u"] for array in (state, state[None], state[:, None], state[None, :, None])]
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


@pytest.mark.parametrize(
    ("array", "changes", "message"),
    [
        (np.zeros((1, 16)), {"input": None}, "--input is missing"),
        (np.zeros((1, 16)), {"times": None}, "--times is missing"),
        (np.zeros((1, 16)), {"times": "0.1;2"}, "--times must look like .* got '0.1;2'"),
        (np.zeros((1, 16)), {"times": "0:1"}, "--times must look like .* got '0:1'"),
        (np.zeros((1, 16)), {"times": "0:1:0"}, "--times must look like .* got '0:1:0'"),
        (np.zeros((1, 16)), {"times": "-1,2"}, "times must be finite and >= 0, got -1"),
        (np.zeros((1, 16)), {"times": "nan"}, "times must be finite and >= 0, got nan"),
        (np.zeros((1, 16)), {"output": "u.csv"}, r"--output must end in \.npz, got u\.csv"),
        (np.zeros((1, 16)), {"input": "/nowhere/u0.npy"}, "there is no file /nowhere/u0.npy"),
        (np.zeros((1, 16)), {"workdir": "/nowhere/run"}, "/nowhere/run holds no trained run"),
        (np.zeros((1, 16, 3)), {}, r"initial states .* 1 channels, got shape \(1, 16, 3\)"),
        (np.zeros((1, 2, 16, 1)), {}, r"with 1 space axes and 1 channels, got shape \(1, 2, 16, 1\)"),
        (np.zeros((1, 16), complex), {}, "u0 must be an array of real numbers, got dtype complex128"),
        (np.full((1, 16), "x"), {}, "u0 must be an array of real numbers, got dtype <U1"),
        (np.full((1, 16), np.nan), {}, "u0 contains values that are not finite"),
        (np.zeros((1, 8)), {}, r"modes \(6,\) do not fit a grid of \(8,\) points"),
        (np.zeros((0, 16)), {}, r"u0 must have shape .* got \(0, 16, 1\)"),
    ],
)
def test_mistakes_in_a_query_are_errors_of_the_user(query, tmp_path, array, changes, message):
    with pytest.raises(common.USER_ERRORS, match=message) as caught:
        query(array, **changes)
    assert "\n" not in common._one_line(caught.value)
    assert not (tmp_path / "u.npz").exists()


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_computed(query, tmp_path, monkeypatch):
    monkeypatch.setattr(predict_program, "load_predictor", lambda workdir: pytest.fail("loaded a run"))
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match=r"cannot make the directory .*file/inner: Not a directory"):
        query(np.zeros((1, 16)), output=tmp_path / "file" / "inner" / "u.npz")


@pytest.mark.parametrize("kind", ["pickle", "truncated", "text", "empty", "archive", "folder"])
def test_files_that_are_not_one_plain_array_are_refused(tmp_path, kind):
    path = tmp_path / "u0.npy"
    if kind == "pickle":
        np.save(path, np.asarray([{"a": 1}], object))
    elif kind == "truncated":
        np.save(path, np.zeros((3, 50)))
        path.write_bytes(path.read_bytes()[:-20])
    elif kind == "text":
        path.write_text("0.1 0.2")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "archive":
        with open(path, "wb") as file:
            np.savez(file, a=np.zeros(2))
    else:
        path.mkdir()
    with pytest.raises(ValueError, match=r"u0\.npy") as caught:
        files.read_array(path)
    assert "\n" not in common._one_line(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"), [("0.1,0.37,2", [0.1, 0.37, 2.0]), ("1:3:5", [1, 1.5, 2, 2.5, 3]), ("2:9:1", [2]), ("3", [3])]
)
def test_times_are_read_as_a_list_or_as_an_even_grid_with_both_ends(text, expected):
    np.testing.assert_allclose(predict_program.parse_times(text), expected, rtol=1e-12)


# --- the training program's flags -----------------------------------------------------------------------------


@pytest.fixture
def config_from(monkeypatch):
    """The config that the training program makes of these flags."""

    def parse(*arguments):
        values = flags.FlagValues()
        for name in ("string", "boolean", "integer", "float", "enum", "multi_string"):
            define = getattr(flags, f"DEFINE_{name}")
            monkeypatch.setattr(
                common.flags, f"DEFINE_{name}", lambda *a, define=define, **k: define(*a, flag_values=values, **k)
            )
        common.define_training_flags(tuple(presets.PROBLEMS), presets.SURROGATES)
        monkeypatch.undo()
        monkeypatch.setattr(common, "FLAGS", values)
        values(["pde", *arguments])
        return common.config_from_flags(presets.pde_config, values.model)

    return parse


def test_flags_override_the_preset_in_every_section(config_from):
    config = config_from(*TINY, "--learning_rate=0.5", "--seed=3", "--nocoordinates", "--stability_bound=2")
    assert (config.preset, config.seed, config.dataset.num_train, config.train.steps) == ("quick", 3, 24, 4)
    assert config.dataset.data_options == {"num_points": 32, "num_times": 5}
    assert config.optimizer.learning_rate == 0.5
    fields = config.model.model_fields
    assert (fields["width"], fields["modes"], fields["coordinates"], fields["stability_bound"]) == (8, [6], False, 2.0)


def test_without_flags_the_config_is_the_preset(config_from):
    assert config_from("--preset=quick") == presets.pde_config("heat", "ctfno", "quick", 0)


@pytest.mark.parametrize("preset", common.PRESETS)
@pytest.mark.parametrize("model", presets.SURROGATES)
def test_every_preset_passes_the_rules_and_survives_json(config_from, model, preset):
    config = config_from(f"--preset={preset}", f"--model={model}")
    assert (config.model.model, config.preset) == (model, preset)
    assert type(config).from_json(config.to_json()) == config


def test_a_field_of_another_model_is_refused(config_from):
    with pytest.raises(ValueError, match="model deeponet has no field heads; remove --heads"):
        config_from("--model=deeponet", "--heads=2")
    assert config_from("--model=fno_2d", "--modes=9,4").model.model_fields["modes"] == [9, 4]


def test_none_takes_a_bound_off_again(config_from):
    assert config_from("--preset=paper", "--stability_bound=none").model.model_fields["stability_bound"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stability_bound=-1"], r"stability_bound must be positive, or None for no bound, got -1\.0"),
        (["--stability_bound=big"], "--stability_bound cannot be 'big': expected"),
        (["--modes=a,b"], "--modes cannot be 'a,b': expected"),
        (["--modes=1,2,3,4"], "modes must name one to three space axes"),
        (["--batch_size=1000"], "batch_size=1000 exceeds the 380 training trajectories"),
        (["--data_option=viscosity"], "--data_option must be name=value, got 'viscosity'"),
        (["--kernel=sparse"], "kernel must be one of dense, block_diagonal, got 'sparse'"),
        (["--steps=150"], "steps=150 must be a multiple of steps_per_call=100"),
        (["--random_starts=0.5"], "random_starts and window make initial states of solutions"),
        (["--model=fno_2d", "--modes=9"], "modes must be 2 long, for x and t"),
        (["--model=pod_deeponet", "--basis=wavelets"], "basis must be one of snapshots, space_time, got 'wavelets'"),
    ],
)
def test_flags_out_of_range_are_refused_before_any_data_are_made(config_from, arguments, message):
    with pytest.raises(ValueError, match=message):
        config_from("--preset=quick", *arguments)


def test_errors_of_the_machine_name_the_file():
    error = PermissionError(13, "Permission denied", "/some/file")
    assert common._one_line(error) == "/some/file: Permission denied"
    assert common._one_line(ValueError("a\n  b")) == "a b"
    assert common._one_line(checkpoint.CheckpointError("")) == "CheckpointError"


def test_a_file_is_there_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a" / "x.json"
    files.write_json(path, {"a": 1})

    def half_written():
        with files.replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        half_written()
    assert path.read_text() == '{\n  "a": 1\n}\n'
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]


def test_a_row_that_is_there_already_is_not_made_again(program, trained, tmp_path):
    row = run_folder.row_path(tmp_path / "rows", presets.pde_config("heat", "ctfno", "quick", 0))
    files.write_text(row, (trained[0] / "result.json").read_text())
    done = program("pde", "--preset=quick", f"--workdir={tmp_path / 'other'}", f"--results_dir={tmp_path / 'rows'}")
    assert done.returncode == 0, done.stderr
    assert "nothing to do" in done.stdout
    assert not (tmp_path / "other").exists()


def test_an_overridden_run_is_not_filed_as_a_row_of_its_preset(program, tmp_path):
    done = program("pde", "--preset=quick", "--steps=200", f"--results_dir={tmp_path / 'rows'}")
    _assert_one_line_error(done, "rows in --results_dir are of presets as they are")
    assert not (tmp_path / "rows").exists()


def test_a_setting_that_the_schedule_does_not_read_is_refused(program, tmp_path):
    done = program("pde", *TINY, "--decay_steps=7", f"--workdir={tmp_path / 'run'}")
    _assert_one_line_error(done, "schedule one_cycle does not read decay_steps; remove --decay_steps")
    assert not (tmp_path / "run").exists()
