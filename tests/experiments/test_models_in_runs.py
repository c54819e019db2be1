"""Every model in a whole run: trained, interrupted, resumed, queried; and what a run refuses."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import flags
from helpers import compiled, prediction, small_runs

from ctfno_jax import config as config_lib
from ctfno_jax import metrics, predict
from ctfno_jax.data import frames, normalization, pdebench, registry
from ctfno_jax.data.alignment import Aligned
from ctfno_jax.models import registry as models
from ctfno_jax.training import checkpoint, loop
from experiments import ablation, cells, common, field_result, field_run, files
from experiments.configs import pde as presets

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def one_device(tmp_path_factory):
    """One device and compiled programs kept: what is tested here does not depend on devices, and runs come in pairs."""
    with pytest.MonkeyPatch.context() as patch, compiled.kept_in(tmp_path_factory.mktemp("compiled")):
        patch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
        patch.setenv("CTFNO_CACHE_DIR", str(tmp_path_factory.mktemp("data")))
        patch.delenv("CTFNO_DATA_DIR", raising=False)
        patch.setattr(files, "write_figure", lambda path, figure: None)  # pictures are looked at elsewhere, and slow
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder and the result of a run of a model; each is made once."""
    done = {}

    def run(model):
        if model not in done:
            workdir = tmp_path_factory.mktemp("runs") / model
            done[model] = workdir, field_run.run(small_runs.config(model), workdir)
        return done[model]

    return run


def _heat():
    return registry.load_dataset("heat", num_train=20, num_validation=4, num_test=4, num_points=32, num_times=5)


def _checkpoints(workdir):
    with checkpoint.CheckpointStore(workdir / "checkpoints", keep_latest=3) as store:
        return {step: store._read(step) for step in store.steps()}


# --- every model ----------------------------------------------------------------------------------------------


def test_the_table_above_has_every_model():
    kinds = {small_runs.name_of(kind) for kind in small_runs.FIELDS}
    assert kinds | {presets.AT_ONCE} == set(models.model_names())  # which is CTFNO under another name


# Whole runs are mostly compilation: the kinds of models that differ in the harness always, the others with -m slow.
QUICK_KINDS = ("fno_rnn", "pod_deeponet")
EACH_MODEL = [pytest.param(m, marks=[] if m in QUICK_KINDS else pytest.mark.slow) for m in small_runs.FIELDS]


@pytest.mark.parametrize("model", EACH_MODEL)
def test_every_model_is_trained_and_answers_as_its_result_says(finished, model):
    workdir, result = finished(model)
    assert (result["model"], result["steps"]) == (small_runs.name_of(model), 4)
    states = _checkpoints(workdir)
    assert sorted(states) == [2, 4]
    moved = [name for name in states[2].arrays if name.startswith("params/params/")
             and not np.array_equal(states[2].arrays[name], states[4].arrays[name])]  # fmt: skip
    assert moved
    predictor, test = predict.load_predictor(workdir), _heat().test
    u = predictor(test.u0, test.times)
    assert u.shape == test.u.shape
    assert metrics.rmse(u, test.u) == pytest.approx(result["metrics"]["rmse"], rel=1e-6)
    assert result["num_params"] == sum(np.size(a) for a in jax.tree.leaves(predictor.params["params"]))
    assert predictor.description["final_time"] == 2.5


@pytest.mark.parametrize(("reflections", "translations"), [(True, False), (True, True), (False, False)])
def test_the_basis_is_of_the_solutions_and_their_images_in_place(reflections, translations):
    config = small_runs.config("pod_deeponet", frame="", reflections=reflections, translations=translations)
    u = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2, 8, 1)), jnp.float32)
    found = np.asarray(field_run._with_reflections(config, u))
    expected = u if translations or not reflections else np.concatenate([u, u[:, :, -np.arange(8)]])
    np.testing.assert_array_equal(found, expected)


def test_errors_count_what_they_are_outside_of_the_frame():
    """In units of the deviations there: for an aligned field, whose values stay what they are, all count one."""
    train, frame = _heat().train, Aligned()
    statistics = normalization.fit(frame.enter(train))
    np.testing.assert_allclose(field_run._weights(frame, train, statistics), np.ones((16, 1)), rtol=1e-5)
    assert field_run._weights(None, train, statistics) is None


def test_an_aligned_model_moves_with_its_field(finished):
    workdir, _ = finished("pod_deeponet")
    predictor, test = predict.load_predictor(workdir), _heat().test
    moved = predictor(np.roll(test.u0, 5, axis=1), test.times)
    np.testing.assert_allclose(moved, np.roll(predictor(test.u0, test.times), 5, axis=2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [pytest.param(m, marks=[] if m in QUICK_KINDS else pytest.mark.slow) for m in small_runs.FIELDS if m != "ctfno"],
)
def test_every_kind_of_model_is_resumed_to_bitwise_the_same_end(finished, tmp_path, monkeypatch, capsys, model):
    def interrupt(state, report):
        if report.step == 3:  # one step after the last checkpoint
            raise KeyboardInterrupt

    original = loop.fit
    with monkeypatch.context() as patch:
        patch.setattr(loop, "fit", lambda *a, hooks, **k: original(*a, hooks=[*hooks, interrupt], **k))
        with pytest.raises(KeyboardInterrupt):
            field_run.run(small_runs.config(model), tmp_path / "run")
    result = field_run.run(small_runs.config(model), tmp_path / "run", resume=True)
    assert "resumed at step 2" in capsys.readouterr().out
    ours, theirs = (_checkpoints(workdir)[4].arrays for workdir in (tmp_path / "run", finished(model)[0]))
    assert set(ours) == set(theirs)
    for name, array in theirs.items():
        assert ours[name].tobytes() == array.tobytes(), name
    assert result["metrics"]["rmse"] == finished(model)[1]["metrics"]["rmse"]


# --- constants of a model -------------------------------------------------------------------------------------


def test_constants_come_from_training_data_only(finished):
    predictor = predict.load_predictor(finished("pod_deeponet")[0])
    train = Aligned().enter(_heat().train)
    snapshots = predictor.normalization.outputs.normalize(train.u).reshape(-1, 32).astype(np.float64)
    constants = predictor.params["constants"]["pod"]
    np.testing.assert_allclose(constants["mean"][:, 0], snapshots.mean(0), atol=1e-5)
    # The modes span what the leading singular vectors of the centred training solutions span.
    _, _, rows = np.linalg.svd(snapshots - snapshots.mean(0), full_matrices=False)
    modes, _ = np.linalg.qr(np.asarray(constants["basis"])[:, 0].astype(np.float64))
    np.testing.assert_allclose(modes @ modes.T, rows[:7].T @ rows[:7], atol=1e-4)


@pytest.mark.parametrize("of", ["params", "average"])
def test_constants_are_the_same_in_every_checkpoint(finished, of):
    workdir, _ = finished("pod_deeponet")
    config = small_runs.config("pod_deeponet")
    module = models.build_model("pod_deeponet", **config.model.model_fields)
    train = Aligned().enter(_heat().train)
    statistics = predict.load_predictor(workdir).normalization
    made = module.initialize_from_data({}, None, train.times, statistics.outputs.normalize(train.u))
    for step, state in _checkpoints(workdir).items():
        for name in ("mean", "basis"):
            saved = state.arrays[f"{of}/constants/pod/{name}"]
            np.testing.assert_array_equal(saved, made["constants"]["pod"][name], err_msg=f"{name} at step {step}")


# --- times that a model does not know -------------------------------------------------------------------------

ANYTIME = (
    "ctfno",
    "ctfno_in_steps",
    "deeponet",
    "pod_deeponet",
    "ablation_input",
    "ablation_lifted",
    "ablation_features",
)


@pytest.mark.parametrize("model", EACH_MODEL)
def test_errors_between_times_are_there_for_models_that_have_them(finished, model):
    scores = finished(model)[1]["metrics"]
    assert ("rmse_between_times" in scores) == (model in ANYTIME)
    assert ("rmse_in_deviations_between_times" in scores) == (model in ANYTIME)
    assert ("certified_lipschitz" in scores) == (model in ("ctfno", "ctfno_in_steps"))


@pytest.mark.slow
def test_errors_at_and_between_times_are_in_the_same_deviations(finished):
    scores = finished("ablation_features")[1]["metrics"]  # with statistics shared by inputs and outputs
    at, between = (scores[f"rmse{where}"] / scores[f"rmse_in_deviations{where}"] for where in ("", "_between_times"))
    assert between == pytest.approx(at, rel=1e-5)


@pytest.mark.parametrize("model", ["fno_rnn", "fno_2d"])
def test_models_on_a_grid_of_times_refuse_others(finished, model):
    predictor = predict.load_predictor(finished(model)[0])
    u0 = _heat().test.u0
    for times in ([0.5, 0.6], [3.0], np.asarray([[0.5], [1.0], [1.1], [2.0]])):
        with pytest.raises(ValueError, match=rf"{model} answers only at multiples of 0\.5 .*up to 2\.5, got") as caught:
            predictor(u0, times)
        assert "\n" not in str(caught.value)
    own = predictor(u0, np.asarray([[0.5, 2.5], [1.0, 1.0], [2.0, 0.5], [1.5, 1.5]]))
    np.testing.assert_allclose(own[2:3, :1], predictor(u0[2:3], [2.0]), atol=1e-5)


def _query(workdir, tmp_path):
    np.save(tmp_path / "u0.npy", _heat().test.u0)
    command = [sys.executable, "-m", "experiments.predict", f"--workdir={workdir}", f"--input={tmp_path / 'u0.npy'}",
               "--times=0.5,0.75", f"--output={tmp_path / 'u.npz'}"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled")}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def test_the_prediction_program_refuses_them_in_one_line(finished, tmp_path):
    done = _query(finished("fno_rnn")[0], tmp_path)
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if line.strip()] == [
        "error: fno_rnn answers only at multiples of 0.5 up to 2.5, got 0.75; train ctfno for other times"
    ]
    assert not (tmp_path / "u.npz").exists()


@pytest.mark.slow
def test_the_prediction_program_answers_with_ctfno(finished, tmp_path):
    done = _query(finished("ctfno")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "u.npz") as found:
        assert found["u"].shape == (4, 2, 32, 1)


# --- files of data, several channels --------------------------------------------------------------------------


@pytest.fixture
def training_flags(monkeypatch):
    """Gives the training programs these flags, without a new process."""

    def parse(*arguments, names=(*presets.SURROGATES, presets.AT_ONCE, *presets.ABLATIONS)):
        values = flags.FlagValues()
        with monkeypatch.context() as patch:
            for kind in ("string", "boolean", "integer", "float", "enum", "multi_string"):
                define = getattr(flags, f"DEFINE_{kind}")
                patch.setattr(
                    common.flags, f"DEFINE_{kind}", lambda *a, define=define, **k: define(*a, flag_values=values, **k)
                )
            common.define_training_flags(tuple(presets.PROBLEMS), names)
        for module in (common, cells, ablation):
            monkeypatch.setattr(module, "FLAGS", values)
        values(["program", *arguments])

    return parse


SIZES = ["--width=4", "--modes=4", "--depth=1", "--num_train=20", "--num_validation=4", "--num_test=3",
         "--train_grid=16", "--steps=2", "--steps_per_call=1", "--eval_every=1", "--batch_size=8",
         "--times_per_step=2"]  # fmt: skip
FLOW = ["--dataset=navier_stokes", "--model=ctfno_at_once", *SIZES, "--heads=2", "--time_width=4", "--time_features=4"]


@pytest.fixture(scope="module")
def flow_file(tmp_path_factory):
    """Smooth fields of three very different scales in the layout of PDEBench: 24 samples, 11 instants, 32 points."""
    path = tmp_path_factory.mktemp("pdebench") / pdebench.FILES["navier_stokes"]
    rng = np.random.default_rng(0)
    x = 2 * np.pi * np.arange(32) / 32
    with h5py.File(path, "w") as file:
        for name, scale, mean in (("density", 0.1, 5.0), ("pressure", 30.0, 100.0), ("Vx", 1.0, 0.0)):
            phase = rng.uniform(0, 2 * np.pi, (24, 1, 1)) + 0.3 * np.arange(11)[:, None]
            file[name] = (mean + scale * np.sin(x + phase)).astype(np.float32)
        file["t-coordinate"] = 0.1 * np.arange(12, dtype=np.float32)
    return path


def _check_frame(predictor, flow_file):
    """A flow that drifts is predicted as the same flow, drifting."""
    test = pdebench.read("navier_stokes", flow_file, [0, 1])
    velocity = np.array([0.4, -1.1])
    u = predictor(test.u0, test.times)
    drifting = predictor(frames.boost(test.u0, velocity), test.times)
    expected = frames.translate(frames.boost(u, velocity), -velocity[:, None] * test.times, 2.0)
    np.testing.assert_allclose(drifting, expected, rtol=1e-3, atol=1e-2)
    for refused in (lambda: predictor.lipschitz(test.times), lambda: predictor.apply(None, test.u0, test.times)):
        with pytest.raises(ValueError, match=r"a run in the [a-z]* frame has no"):
            refused()


@pytest.mark.slow
def test_a_run_reads_a_file_of_pdebench_and_reports_channel_by_channel(
    training_flags, flow_file, tmp_path, monkeypatch, capsys
):
    workdir = tmp_path / "run"
    given = [*FLOW, f"--workdir={workdir}", f"--data_dir={flow_file.parent}"]
    training_flags(*given)
    cells.run_cell(presets.pde_config)
    result = json.loads((workdir / "result.json").read_text())
    assert result["source"] == flow_file.name
    assert f"navier_stokes, {flow_file.name}: " in capsys.readouterr().out
    _check_channels(result["metrics"], workdir, flow_file)

    _check_frame(predict.load_predictor(workdir), flow_file)

    # The model reads four channels in its frame; the states that it is asked about have three.
    u0 = pdebench.read("navier_stokes", flow_file, [0, 1]).u0
    np.save(tmp_path / "u0.npy", u0)
    asked = {"workdir": workdir, "input": tmp_path / "u0.npy", "times": "0.05,0.3", "output": tmp_path / "u.npz"}
    found = prediction.predict(monkeypatch, **asked)
    assert found["u"].shape == (2, 2, 32, 3)
    np.testing.assert_array_equal(found["u0"], u0)

    # The folder is not part of the config: a file that has moved is still the same run.
    assert config_lib.ExperimentConfig.load(workdir / "config.json").dataset.data_file == flow_file.name
    (workdir / "result.json").unlink()
    training_flags(*given[:-1], "--resume")
    with pytest.raises(config_lib.ConfigError, match=rf"belongs to another config .*data_file is '{flow_file.name}'"):
        cells.run_cell(presets.pde_config)
    config = config_lib.ExperimentConfig.load(workdir / "config.json")
    with pytest.raises(config_lib.ConfigError, match=f"the config reads {flow_file.name}, but None was given"):
        field_run.run(config, workdir, resume=True)


def test_a_flow_is_learned_in_steps_stopped_resumed_and_asked_for(training_flags, flow_file, tmp_path, monkeypatch):
    """In the frame of states, on labels and at times of its own; frames of the file are more than half a turn apart."""
    workdir = tmp_path / "run"
    given = [*FLOW, "--model=ctfno", "--times_per_step=0", "--horizon=1.5", f"--data_dir={flow_file.parent}"]
    training_flags(*given, f"--workdir={workdir}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(field_result, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cells.run_cell(presets.pde_config)
    training_flags(*given, f"--workdir={workdir}", "--resume")
    cells.run_cell(presets.pde_config)
    result = json.loads((workdir / "result.json").read_text())
    assert "certified_lipschitz" not in result["metrics"]
    predictor = predict.load_predictor(workdir)
    assert predictor.normalization == normalization.identity(5, 3)
    _check_frame(predictor, flow_file)
    test = pdebench.read("navier_stokes", flow_file, [0, 1])
    far = predictor(test.u0, np.array([0.5, 30.0], np.float32))  # more steps than any training needed
    assert far.shape == (2, 2, 32, 3)
    assert np.isfinite(far).all()
    mass = lambda u: u[..., 0].sum(axis=-1)  # noqa: E731
    np.testing.assert_allclose(mass(far), np.repeat(mass(test.u0)[:, None], 2, axis=1), rtol=1e-4)

    # What a frame shows is part of what a network has learned.
    monkeypatch.setattr(frames, "VERSION", frames.VERSION + 1)
    with pytest.raises(checkpoint.CheckpointError, match="trained in an older form of the states frame"):
        predict.load_predictor(workdir)


# --- frames with a grid of their own --------------------------------------------------------------------------


def _on_own_grid(dataset: str, model: str, frame: str, **options):
    config = small_runs.config(model, frame=frame, train_grid=16)
    data = {"num_points": 32, "num_times": 5, **options}
    return dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, dataset=dataset, data_options=data))


@pytest.mark.parametrize(("model", "frame"), [("ctfno", "diffusing"), ("fno_rnn", "mirrored")])
def test_fields_between_walls_are_learned_mirrored(tmp_path, model, frame):
    # Frames of the small FNO-RNN are half a unit apart.
    config = _on_own_grid("diffusion_sorption", model, frame, final_time=2.5)
    result = field_run.run(config, tmp_path / "run")
    predictor = predict.load_predictor(tmp_path / "run")
    assert (predictor.in_channels, predictor.state_channels) == (3, 1)
    test = registry.load_dataset(
        "diffusion_sorption", num_train=20, num_validation=4, num_test=4, **config.dataset.data_options
    ).test
    u = predictor(test.u0, test.times)
    assert metrics.rmse(u, test.u) == pytest.approx(result["metrics"]["rmse"], rel=1e-5)
    np.testing.assert_allclose(predictor.apply(predictor.params, jnp.asarray(test.u0), test.times), u, atol=1e-5)
    finer = predictor(np.repeat(test.u0, 2, axis=1), test.times)
    # The network has answered on the same points; but the walls, a cell away from the ends, have come nearer.
    np.testing.assert_allclose((finer[:, :, ::2] + finer[:, :, 1::2])[:, :, 8:24] / 2, u[:, :, 8:24], atol=0.05)
    assert ("certified_lipschitz" in result["metrics"]) == (model == "ctfno")


def test_the_certificate_goes_through_a_frame_that_is_the_same_for_all_states(tmp_path):
    """No error grows by more, and the finest ripple, which the frame does not see, hardly counts."""
    field_run.run(_on_own_grid("diffusion_sorption", "ctfno", "diffusing", final_time=2.5), tmp_path / "run")
    predictor = predict.load_predictor(tmp_path / "run")
    rng, times = np.random.default_rng(0), np.array([0.3, 2.0], np.float32)
    u0, e = (rng.standard_normal((6, 32, 1)).astype(np.float32) for _ in range(2))
    grown = np.linalg.norm(predictor(u0 + e, times) - predictor(u0, times), axis=2)[..., 0]
    assert np.all(grown <= predictor.lipschitz(times) * np.linalg.norm(e, axis=1) * (1 + 1e-4))
    assert np.all(grown > 0)
    assert np.all(predictor.lipschitz(times, num_points=64) != predictor.lipschitz(times))


def _check_channels(scores, workdir, path):
    data = registry.load_dataset("navier_stokes", num_train=20, num_validation=4, num_test=3, data_file=path)
    names = ("density", "pressure", "velocity")
    by_channel = np.asarray([scores[f"rmse_{name}"] for name in names])
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(by_channel**2)), rel=1e-6)
    deviation = data.train.u.astype(np.float64).std((0, 1, 2))
    in_deviations = np.asarray([scores[f"rmse_in_deviations_{name}"] for name in names])
    np.testing.assert_allclose(in_deviations, by_channel / deviation, rtol=1e-4)
    assert scores["rmse_in_deviations"] == pytest.approx(np.sqrt(np.mean(in_deviations**2)), rel=1e-4)
    # The pressure is a hundred times the others: a metric that it does not rule is in deviations.
    predictor = predict.load_predictor(workdir)
    coarse = data.validation.coarsen(16)
    u = predictor(coarse.u0, coarse.times)
    assert scores[checkpoint.METRIC] == pytest.approx(metrics.rmse(u / deviation, coarse.u / deviation), rel=1e-3)
    assert predictor.normalization.inputs.mean[2] == 0  # turned round by the reflections in use


def test_a_data_set_without_files_is_generated_whatever_the_folder(training_flags, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(field_run, "run", lambda config, workdir, **_: {"config": config})
    monkeypatch.setattr(field_result, "summary", lambda result, workdir: result["config"].dataset.data_file)
    training_flags("--dataset=heat", *SIZES, f"--workdir={tmp_path}", f"--data_dir={tmp_path}")
    cells.run_cell(presets.pde_config)
    assert "note: heat is generated; nothing is read from --data_dir" in capsys.readouterr().out


def test_a_folder_without_the_file_says_where_it_comes_from(training_flags, tmp_path):
    training_flags(*FLOW, f"--workdir={tmp_path / 'run'}", f"--data_dir={tmp_path}")
    with pytest.raises(ValueError, match=r"is neither in .*doi:10\.18419/darus-2986; without --data_dir the data is"):
        cells.run_cell(presets.pde_config)
    assert not (tmp_path / "run").exists()


# --- the ablations --------------------------------------------------------------------------------------------

ABLATION_NAMES = ("all", *presets.ABLATIONS)


def test_all_ablations_do_not_fit_into_one_folder(training_flags, tmp_path):
    training_flags("--model=all", f"--workdir={tmp_path / 'run'}", names=ABLATION_NAMES)
    with pytest.raises(ValueError, match="--workdir is the folder of one run; choose one with --model, or leave it"):
        ablation.main()
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_one_ablation_is_trained(training_flags, tmp_path):
    training_flags("--model=ablation_input", f"--workdir={tmp_path / 'run'}", "--data_option=num_points=32",
                   "--data_option=num_times=5", *SIZES, names=ABLATION_NAMES)  # fmt: skip
    ablation.main()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["experiment"], result["model"], result["steps"]) == ("ablation", "ablation_input", 2)


def test_all_ablations_are_run_in_turn_each_in_its_own_folder(training_flags, monkeypatch):
    seen = []
    monkeypatch.setattr(field_run, "run", lambda config, workdir, **_: seen.append((config.model.model, workdir)))
    monkeypatch.setattr(field_result, "summary", lambda result, workdir: "")
    training_flags("--model=all", "--preset=quick", names=ABLATION_NAMES)
    ablation.main()
    assert seen == [(name, Path("runs/ablation/heat") / name / "seed0") for name in presets.ABLATIONS]
