"""The frame that a run is learned in, from its config."""

import dataclasses

import pytest

from ctfno_jax import predict
from ctfno_jax.config import DatasetConfig, ExperimentConfig, TrainConfig
from ctfno_jax.data import equations
from ctfno_jax.data.alignment import Aligned
from ctfno_jax.data.frames import FlowFrame
from ctfno_jax.data.mirrored import Mirrored


def _frame(dataset: str, frame: str, **options):
    return predict.frame_of(
        ExperimentConfig(dataset=DatasetConfig(dataset, data_options=options), train=TrainConfig(frame=frame))
    )


@pytest.mark.parametrize("kind", ["comoving", "particles", "acoustic"])
@pytest.mark.parametrize("law", ["kinematic", "dynamic"])
def test_frames_of_flows_have_the_domain_and_the_friction_of_the_data(kind, law):
    assert _frame("navier_stokes", kind, viscous_law=law) == FlowFrame(kind, 2.0, law)
    assert _frame("navier_stokes", kind) == FlowFrame(kind, 2.0, "kinematic")
    assert _frame("navier_stokes", kind, eta=0.3, zeta=0.02) == FlowFrame(kind, 2.0, viscosity=4 / 3 * 0.3 + 0.02)


def test_states_are_on_the_labels_of_the_training():
    config = ExperimentConfig(dataset=DatasetConfig("navier_stokes"), train=TrainConfig(frame="states", train_grid=64))
    assert predict.frame_of(config) == FlowFrame("states", 2.0, num_labels=64)


def test_fields_are_aligned_as_their_reflection_wants_it():
    assert _frame("heat", "aligned") == Aligned(odd=False)
    assert _frame("burgers", "aligned") == Aligned(odd=True)
    assert _frame("navier_stokes", "aligned") == Aligned(odd=False)


def test_flows_are_aligned_on_particles():
    assert _frame("navier_stokes", "aligned_particles", viscous_law="dynamic") == Aligned(
        FlowFrame("particles", 2.0, "dynamic")
    )


def test_frames_with_a_grid_of_their_own_have_that_of_the_training():
    def of(dataset, frame):
        train = TrainConfig(frame=frame, train_grid=48)
        return predict.frame_of(ExperimentConfig(dataset=DatasetConfig(dataset), train=train))

    walls = equations.EQUATIONS["diffusion_sorption"].walls
    assert of("diffusion_sorption", "mirrored") == Mirrored(walls, 48)
    diffusing = of("diffusion_sorption", "diffusing")
    # Retardation is 3.57 at a quarter, and the period is twice the domain.
    assert diffusing.diffusivity == pytest.approx(5e-4 / 3.57 / 4, rel=1e-3)
    assert dataclasses.replace(diffusing, diffusivity=None) == Mirrored(walls, 48)


def test_without_a_name_there_is_no_frame():
    assert _frame("navier_stokes", "") is None
