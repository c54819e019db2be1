"""What a run refuses, and when: before data are made, if it can be known then."""

import dataclasses

import jax
import numpy as np
import pytest
from helpers import small_runs

from ctfno_jax import config as config_lib
from ctfno_jax.data import frames
from ctfno_jax.models import registry
from experiments import field_checks, field_run
from experiments.configs import pde


@pytest.fixture(scope="module", autouse=True)
def one_device(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
        patch.setenv("CTFNO_CACHE_DIR", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture
def no_data(monkeypatch):
    """The run must not come as far as its data."""
    monkeypatch.setattr(field_run, "load", lambda *_: pytest.fail("data were made"))


def _on(dataset: str, model: str = "ctfno", **changes) -> config_lib.ExperimentConfig:
    config = small_runs.config(model, **changes)
    return dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, dataset=dataset))


@pytest.mark.parametrize(
    ("dataset", "change", "message"),
    [
        ("burgers", {"sign_flips": True}, "burgers does not have the symmetry of sign_flips; remove it"),
        ("navier_stokes", {"sign_flips": True}, "navier_stokes does not have the symmetry of sign_flips; remove it"),
        ("diffusion_sorption", {"translations": True}, "diffusion_sorption does not have the symmetry of translations"),
        ("diffusion_sorption", {"reflections": True}, "diffusion_sorption does not have the symmetry of reflections"),
        ("burgers", {"frame": "acoustic"}, "burgers does not have the symmetry of frame=acoustic; remove it"),
        ("burgers", {"frame": "mirrored", "train_grid": 16}, "burgers has no walls for frame=mirrored; remove it"),
        ("heat", {"frame": "comoving"}, "heat does not have the symmetry of frame=comoving; remove it"),
        ("diffusion_sorption", {"frame": "aligned"}, "diffusion_sorption does not have the symmetry of frame=aligned"),
    ],
)
@pytest.mark.usefixtures("no_data")
def test_symmetries_that_an_equation_lacks_are_refused(tmp_path, dataset, change, message):
    with pytest.raises(config_lib.ConfigError, match=message):
        field_run.run(_on(dataset, **change), tmp_path / "run")


@pytest.mark.parametrize(
    ("model", "fields"),
    [("fno_2d", {}), ("pod_deeponet", {}), ("pod_deeponet", {"basis": "space_time"})],
)
@pytest.mark.usefixtures("no_data")
def test_models_bound_to_shared_times_are_refused_in_a_frame_without_them(tmp_path, model, fields):
    config = small_runs.config(
        model, model_fields={**small_runs.FIELDS[model], "out_channels": 3, **fields}, frame="acoustic"
    )
    config = dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, dataset="navier_stokes"))
    with pytest.raises(config_lib.ConfigError, match=rf"times of its own, which {model} cannot answer; use frame=part"):
        field_run.run(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": "lion"}, "unknown optimizer 'lion'"),
        ({"schedule": "linear"}, "unknown schedule 'linear'"),
        ({"loss": "l1"}, "unknown loss 'l1'"),
        ({"weight_decay": 0.1}, "weight_decay=0.1 needs optimizer adamw"),
        ({"train_times": 5}, "train_times is for fno_2d; ctfno reads single times"),
    ],
)
@pytest.mark.usefixtures("no_data")
def test_settings_that_cannot_be_obeyed_are_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        field_run.run(small_runs.config("ctfno", **change), tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.usefixtures("no_data")
def test_a_window_is_for_models_that_step_through_time(tmp_path):
    config = small_runs.config("ctfno", window=3, shared_normalization=True)
    with pytest.raises(config_lib.ConfigError, match="window=3 is for models that step through time; ctfno does not"):
        field_run.run(config, tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


STEPPING = {**small_runs.FIELDS["ctfno"], "horizon": 0.5, "start": "state", "rise_time": 0.1}


@pytest.mark.parametrize(
    ("model", "fields", "change", "message"),
    [
        ("ctfno", STEPPING, {}, "horizon=0.5 is trained by single steps: set window to their number"),
        ("ctfno", STEPPING, {"window": 1}, "set window to their number, and times_per_step=0"),
        ("fno_rnn", {}, {"random_starts": 0.5}, "a window of fno_rnn starts from any frame anyway; remove random_sta"),
        ("fno_rnn", {}, {"random_splits": 0.5}, "random_splits=0.5 cuts the steps of a horizon: it needs one"),
        (
            "ctfno",
            STEPPING,
            {"window": 1, "times_per_step": 0, "random_splits": 0.5},
            "needs one, and window of 2",
        ),
    ],
)
@pytest.mark.usefixtures("no_data")
def test_steps_and_windows_belong_together(tmp_path, model, fields, change, message):
    fields = {**small_runs.FIELDS[model], **fields}
    config = small_runs.config(model, model_fields=fields, shared_normalization=True, **change)
    with pytest.raises(config_lib.ConfigError, match=message):
        field_run.run(config, tmp_path / "run")


def test_a_window_longer_than_the_data_is_refused(tmp_path):
    with pytest.raises(config_lib.ConfigError, match="window=6 exceeds the 5 times of the data"):
        field_run.run(small_runs.config("fno_rnn", window=6), tmp_path / "run")


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("fno_rnn", {"time_step": 0.3}),
        ("fno_rnn", {"num_times": 4}),
        ("fno_rnn", {"time_step": 0.25, "num_times": 10}),  # on the grid, but a step of the window is another one
        ("fno_2d", {"final_time": 2.0}),
        ("fno_2d", {"num_times": 4}),
        ("pod_deeponet", {"basis": "space_time", "num_times": 4}),
    ],
)
def test_a_model_of_other_times_than_the_data_is_refused(tmp_path, model, fields):
    config = small_runs.config(model, model_fields={**small_runs.FIELDS[model], **fields})
    with pytest.raises(config_lib.ConfigError, match="does not fit the times of the data"):
        field_run.run(config, tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


def _flow(model: str, **changes):
    """The settings of Navier-Stokes with changes of single ones, of the run or of the model."""
    config = pde.pde_config("navier_stokes", model, "default", 0)
    of_model = {k: v for k, v in changes.items() if k in ("start", "rise_time", "viscosity_unit", "horizon")}
    fields = {**config.model.model_fields, **of_model}
    settings = {k: v for k, v in changes.items() if k not in of_model}
    return config_lib.replace_fields(config, {**settings, "model_fields": fields})


SOUND = {"start": "sound", "rise_time": 0.1, "viscosity_unit": frames.VISCOSITY_UNIT}


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        (pde.AT_ONCE, SOUND, "start=sound and frame=states go together, got start=sound and frame=acoustic"),
        (pde.AT_ONCE, {**SOUND, "frame": ""}, "go together, got start=sound and frame=none"),
        (pde.AT_ONCE, {"start": "state", "rise_time": 0.1}, "in the acoustic frame solutions are no states"),
        ("ctfno", {"start": "state", "viscosity_unit": None}, "go together, got start=state and frame=states"),
        ("ctfno", {"viscosity_unit": 1.0}, "viscosity in units of 0.03125, but viscosity_unit=1.0"),
    ],
)
def test_a_start_and_a_frame_that_do_not_fit_are_refused(model, changes, message):
    config = _flow(model, **changes)
    with pytest.raises(config_lib.ConfigError, match=message):
        field_checks.check_settings(config, registry.build_model(model, **config.model.model_fields))


@pytest.mark.parametrize("first", [np.array([0.2, 0.4]), np.tile([0.2, 0.4], (5, 1))])
def test_frames_further_apart_than_the_horizon_are_refused(first):
    config = _flow("ctfno")
    module = registry.build_model("ctfno", **config.model.model_fields)
    with pytest.raises(
        config_lib.ConfigError, match=r"horizon=0.12 is shorter than the time between frames, 0\.2, for 100%"
    ):
        field_checks.check_fit(config, module, np.array([0.2, 0.4]), first, 3)


@pytest.mark.parametrize(
    ("dataset", "changes", "message"),
    [
        ("navier_stokes", {}, "solutions of navier_stokes leave the range of their initial state: no keeps_range"),
        ("diffusion_sorption", {}, "solutions of diffusion_sorption leave the range of their initial state"),
        ("heat", {}, "set shared_normalization, and no frame; got shared_normalization=False, frame=none"),
        ("heat", {"shared_normalization": True, "frame": "aligned"}, "got shared_normalization=True, frame=aligned"),
    ],
)
@pytest.mark.usefixtures("no_data")
def test_a_range_is_kept_only_where_it_can_be(tmp_path, dataset, changes, message):
    fields = {**small_runs.FIELDS["ctfno"], "keeps_range": True, "coordinates": True}
    with pytest.raises(config_lib.ConfigError, match=message):
        field_run.run(_on(dataset, model_fields=fields, **changes), tmp_path / "run")


@pytest.mark.usefixtures("no_data")
def test_a_field_with_ends_needs_a_frame_or_coordinates(tmp_path):
    with pytest.raises(config_lib.ConfigError, match="has ends, and without coordinates ctfno cannot tell them"):
        field_run.run(_on("diffusion_sorption"), tmp_path / "run")


@pytest.mark.usefixtures("no_data")
def test_steps_of_one_length_are_pointed_to_states_by_the_clock(tmp_path):
    config = pde.pde_config("navier_stokes", "fno_rnn", "default", 0)
    with pytest.raises(config_lib.ConfigError, match="which fno_rnn cannot answer; use frame=clocked_states"):
        field_run.run(config_lib.replace_fields(config, {"frame": "states"}), tmp_path / "run")
    dynamic = config_lib.replace_fields(config, {"data_options": {"viscous_law": "dynamic"}})
    with pytest.raises(ValueError, match="a kinematic viscosity above zero tells the speed of sound"):
        field_run.run(dynamic, tmp_path / "run")


def test_other_channels_than_those_of_the_data_are_refused(tmp_path):
    fields = {**small_runs.FIELDS["ctfno"], "out_channels": 2}
    with pytest.raises(config_lib.ConfigError, match="the data have 1 channels, but out_channels=2"):
        field_run.run(small_runs.config("ctfno", model_fields=fields), tmp_path / "run")
