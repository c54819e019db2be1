"""Properties of a problem, for each kind of data: fields, series, partly observed series, images."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ctfno_jax.data import equations
from ctfno_jax.data.images import ImageDataset
from ctfno_jax.data.masked_series import MaskedDataset
from ctfno_jax.data.series import SeriesDataset


@dataclasses.dataclass(frozen=True)
class Walls:
    """Dirichlet boundary values that all solutions share, see :class:`ctfno_jax.transforms.odd_extension.OddExtension`.

    Attributes:
      left: value one cell before the first grid point.
      right: value one cell and ``right_slip`` lengths of the domain beyond the last grid point.
      right_slip: shift of the right boundary. The Robin condition ``u + slip u_x = right`` one cell beyond the last
        point is, to first order, ``u = right`` at that distance.
    """

    left: float
    right: float
    right_slip: float = 0.0


@dataclasses.dataclass(frozen=True)
class FieldProblem:
    """An equation and its distribution of initial states.

    Attributes:
      name: name of the problem.
      generate: generator, see :mod:`ctfno_jax.data.equations`; None for data of the user's own.
      domain: ends of the space interval.
      channels: names of the channels.
      final_time: last query time.
      num_times: number of query times, equispaced, time zero excluded.
      reflection: sign of each channel under x -> -x if that maps solutions to solutions, else None.
      odd: u -> -u maps solutions to solutions.
      periodic: the boundary conditions are periodic, so translations map solutions to solutions.
      walls: boundary values that all solutions share, or None.
      chunk: samples per piece of the cache; 0 for no cache, where generating is faster than reading.
      num_train: default number of training trajectories.
      num_validation: default number of validation trajectories.
      num_test: default number of test trajectories.
      rate: time derivative ``(u, **constants) -> u_t`` of a state, see :mod:`ctfno_jax.solvers.rates`; None if unknown.
    """

    name: str
    generate: equations.Generator | None = None
    domain: tuple[float, float] = (0.0, 1.0)
    channels: tuple[str, ...] = ("u",)
    final_time: float = 1.0
    num_times: int = 1
    reflection: tuple[float, ...] | None = None
    odd: bool = False
    periodic: bool = True
    walls: Walls | None = None
    chunk: int = 0
    num_train: int = 400
    num_validation: int = 100
    num_test: int = 100
    rate: Callable[..., np.ndarray] | None = None

    @property
    def kind(self) -> Literal["fields"]:
        return "fields"

    @property
    def length(self) -> float:
        """Length of the space interval."""
        return self.domain[1] - self.domain[0]

    def constants(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options of the generator that are constants of the equation, as keyword arguments of ``rate``."""
        known = {} if self.rate is None else inspect.signature(self.rate).parameters
        return {name: value for name, value in options.items() if name in known}


@dataclasses.dataclass(frozen=True)
class SeriesProblem:
    """A family of trajectories, or a record, of vector-valued series.

    Attributes:
      name: name of the problem.
      load: function that returns the data set. Of a generated family: ``(num_train=, num_validation=, num_test=, seed=,
        with_test=, progress=, **options)``; of a record: ``(path, seed=, with_test=, **options)``.
      features: number of components.
      components: names of the components.
      generated: the data are generated; else they are read from a record.
      num_train: default number of training series; 0 for a record, which its options divide.
      num_validation: default number of validation series; 0 for a record.
      num_test: default number of test series; 0 for a record.
    """

    name: str
    load: Callable[..., SeriesDataset]
    features: int
    components: tuple[str, ...]
    generated: bool = True
    num_train: int = 800
    num_validation: int = 100
    num_test: int = 100

    @property
    def kind(self) -> Literal["series"]:
        return "series"


@dataclasses.dataclass(frozen=True)
class LatentProblem:
    """Irregular, partly observed, multivariate series.

    Attributes:
      name: name of the problem.
      load: ``(path, seed=, with_test=, progress=, **options) -> MaskedDataset``.
      features: number of features; 0 if the file of the data set decides.
      components: names of the features.
      find_file: ``(data_dir) -> path`` of the file or folder that is read; None if the data are generated.
      num_train: 0, as the next two: options divide the data.
      num_validation: 0.
      num_test: 0.
    """

    name: str
    load: Callable[..., MaskedDataset]
    features: int
    components: tuple[str, ...]
    find_file: Callable[[str | Path | None], Path] | None = None
    num_train: int = 0
    num_validation: int = 0
    num_test: int = 0

    @property
    def kind(self) -> Literal["latent"]:
        return "latent"

    @property
    def generated(self) -> bool:
        return self.find_file is None


@dataclasses.dataclass(frozen=True)
class ImageProblem:
    """Labelled images with an official test set.

    Attributes:
      name: name of the problem.
      load: ``(data_dir, seed=, with_test=, progress=, num_train=, num_validation=, num_test=, **options) ->
        ImageDataset``.
      find_file: ``(data_dir) -> path`` of the file or folder that is read.
      image_size: height and width.
      channels: number of channels.
      num_classes: number of classes.
      num_train: default number of training images, all that are not in the validation set.
      num_validation: default number of validation images, drawn from the official training set.
      num_test: default number of test images, the official test set.
    """

    name: str
    load: Callable[..., ImageDataset]
    find_file: Callable[[str | Path | None], Path]
    image_size: tuple[int, int]
    channels: int
    num_classes: int
    num_train: int
    num_validation: int
    num_test: int

    @property
    def kind(self) -> Literal["images"]:
        return "images"

    @property
    def generated(self) -> bool:
        return False


Problem = FieldProblem | SeriesProblem | LatentProblem | ImageProblem
