"""Tasks on short series of a size for tests, one for every network of series."""

import functools
from typing import Any

from ctfno_jax.data import problems
from ctfno_jax.data.series import SeriesDataset
from ctfno_jax.models import registry
from ctfno_jax.tasks.series import SeriesSettings, SeriesTask

# The cheapest solver to compile, in a form that can be sharded.
EULER = {"solver": "euler", "stepping": "constant", "step_size": 0.5, "adjoint": "direct", "max_steps": 16}
RECURRENT = {"hidden": 3, "solver": "euler", "initial_scale": 0.2}
NETWORKS: dict[str, dict[str, Any]] = {
    "series_ctfno": {
        "grid_points": 6, "width": 4, "modes": [3], "depth": 1, "heads": 1, "time_width": 4, "time_features": 4,
    },
    "series_neural_ode": {"width": 5, "depth": 1, "augmented": 2, **EULER},
    "series_neural_flow": {"hidden": 5, "readout": 6, "width": 4, "depth": 1, "time_step": 0.5},
    "series_neural_laplace": {"encoder_width": 4, "width": 6, "depth": 1, "num_terms": 5},
    "recurrent_node": RECURRENT,
    "recurrent_anode": RECURRENT,
    "sonode": RECURRENT,
    "hbnode": RECURRENT,
    "ghbnode": RECURRENT,
}  # fmt: skip
SETTINGS = {
    name: {"loss": "with_steps"} for name in ("recurrent_node", "recurrent_anode", "sonode", "hbnode", "ghbnode")
}


@functools.cache
def dataset(name: str = "sine", **options: Any) -> SeriesDataset:
    """Sixteen training series of twelve points, seven of them observed."""
    sizes = {"num_train": 16, "num_validation": 4, "num_test": 5}
    options = {"num_points": 12, "num_observed": 7, "final_time": 6.0, **options}
    data = problems.load_dataset(name, **{**sizes, **options})
    assert isinstance(data, SeriesDataset)
    return data


def task(name: str, *, data: SeriesDataset | None = None, fields: Any = None, **settings: Any) -> SeriesTask:
    """The task of the small network of that name, with single settings replaced."""
    data = data or dataset()
    problem = problems.problem(data.name)
    assert isinstance(problem, problems.SeriesProblem)
    model = registry.build_model(name, **{"out_features": problem.features, **NETWORKS[name], **(fields or {})})
    chosen = {"batch_size": 8, **SETTINGS.get(name, {}), **settings}
    return SeriesTask(data, model, SeriesSettings(**chosen), components=problem.components)
