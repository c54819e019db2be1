"""The equations of ``python -m experiments.pde``, and what the settings of a model depend on."""

import dataclasses

from ctfno_jax.config import DatasetConfig


@dataclasses.dataclass(frozen=True)
class Problem:
    """What the settings of a model depend on.

    Attributes:
      data: the data set.
      channels: fields.
      num_times: query times, equally spaced up to ``final_time``.
      periodic: the models need no coordinates, and commute with translations then.
      augmentation: symmetries for models that do not have them built in.
      train_grid: points in training; 0 for all. A periodic smooth field means the same to a Fourier layer on every
        grid.
      modes: frequencies that the models keep which read single times.
      depth: their layers; with fewer modes there may be more of them, with about as many parameters.
      pod: basis of POD-DeepONet and its number of modes. Coefficients of snapshots separate into branch and trunk where
        each wave decays by itself, as in heat; elsewhere whole trajectories are better. In single precision, seven of
        those of diffusion-sorption are independent, which depend on one number only.
      aligned: DeepONets see periodic fields in one place, or else moved about at random.
      flow: learned in a frame of its own, see ``pde``.
      walled: learned as a periodic field on both sides of its walls, see ``pde``.
      composed: CTFNO answers short times and is composed with itself for longer ones: what a nonlinear equation does in
        a short time is simpler, and every part of a trajectory is an example of it.
    """

    data: DatasetConfig
    channels: int
    num_times: int
    final_time: float
    periodic: bool
    augmentation: dict[str, bool]
    train_grid: int = 256
    modes: int = 64
    depth: int = 2
    pod: tuple[str, int] = ("space_time", 128)
    aligned: bool = True
    flow: bool = False
    walled: bool = False
    composed: bool = False

    @property
    def frames_per_unit(self) -> float:
        """Multiplies t to give the number of the frame, in frames of fifty; the time that models read."""
        return 50 / self.final_time

    @property
    def seen_periodic(self) -> bool:
        """What the models see is periodic, and has a mark of the place if they need one."""
        return self.periodic or self.walled


REACTION = Problem(
    DatasetConfig("reaction"), 1, 50, 1.0, True, {"reflections": True}, train_grid=0, modes=32, aligned=False
)
PROBLEMS = {
    "heat": Problem(
        DatasetConfig("heat"),
        1,
        50,
        2.5,
        True,
        {"reflections": True, "sign_flips": True},
        pod=("snapshots", 64),
        aligned=False,
    ),
    "burgers": Problem(DatasetConfig("burgers"), 1, 200, 1.0, True, {"reflections": True}, composed=True),
    "diffusion_sorption": Problem(
        DatasetConfig("diffusion_sorption"),
        1,
        50,
        500.0,
        False,
        {},
        train_grid=128,  # from one wall to the other and back: 63 sines show what diffusion leaves
        pod=("space_time", 7),
        walled=True,
    ),
    "navier_stokes": Problem(
        DatasetConfig("navier_stokes", num_train=700, num_test=200),
        3,
        50,
        1.0,
        True,
        {"reflections": True},
        train_grid=128,  # friction leaves little above 48 waves round the domain
        modes=48,
        depth=3,
        pod=("space_time", 64),
        flow=True,
        composed=True,
    ),
}
