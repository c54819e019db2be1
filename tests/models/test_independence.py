"""Model modules know arrays only: they name no equation and no data set, and probe each other in one file."""

import pathlib
import re

import pytest

import ctfno_jax.models

FILES = sorted(pathlib.Path(ctfno_jax.models.__file__).parent.glob("*.py"))
NAMES = (
    "heat", "burgers", "navier", "stokes", "sorption", "reaction", "spiral", "sawtooth", "stiff", "vibration", "mujoco",
    "hopper", "physionet", "mnist", "cifar", "pdebench",
)  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_model_names_an_equation_or_a_data_set(path):
    assert re.findall(rf"(?i){'|'.join(NAMES)}", path.read_text()) == []


def test_only_the_interface_asks_what_a_model_has():
    probing = re.compile(r"\bhasattr\(|\bgetattr\([^()]*,[^()]*,")
    assert [path.stem for path in FILES if probing.search(path.read_text())] == ["interface"]
