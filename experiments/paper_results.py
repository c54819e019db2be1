"""Numbers printed in the paper, for comparison: test RMSE in physical units, and parameter counts as printed."""

# experiment -> data set -> model -> metrics
PAPER: dict[str, dict[str, dict[str, dict[str, float]]]] = {
    "pde": {"heat": {"ctfno": {"rmse": 0.026e-2, "num_params": 2.38 * 2**20}}},
}


def paper_result(experiment: str, dataset: str, model: str) -> dict[str, float] | None:
    """What the paper prints for one cell, or None."""
    return PAPER.get(experiment, {}).get(dataset, {}).get(model)
