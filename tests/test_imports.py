"""Who may import whom and know what: one way only, and nothing heavy before it is needed."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("ctfno_jax", "experiments")

# Rows may import lower rows; within a row, only the same package.
ROWS = (
    ("experiments",),
    ("ctfno_jax.fit",),
    ("ctfno_jax.results",),
    ("ctfno_jax.classify",),
    ("ctfno_jax.predict",),
    ("ctfno_jax.tasks",),
    (
        "ctfno_jax.training",
        "ctfno_jax.certify",
        "ctfno_jax.certify_classifier",
        "ctfno_jax.audit",
        "ctfno_jax.attacks",
        "ctfno_jax.plotting",
    ),
    ("ctfno_jax.models", "ctfno_jax.data", "ctfno_jax.transforms"),
    ("ctfno_jax.solvers", "ctfno_jax.pdebench_metrics"),
    ("ctfno_jax.ops", "ctfno_jax.metrics"),
    ("ctfno_jax.types", "ctfno_jax.config", "ctfno_jax.files", "ctfno_jax._version"),
)
ROW_OF = {name: index for index, row in enumerate(ROWS) for name in row}


def _modules():
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(_modules())


def _imports(path):
    """Full names of all that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(name if name in MODULES else node.module for name in names)
    return found


def _unit(module):
    """The part that a module belongs to: its row's entry."""
    parts = module.split(".")
    return parts[0] if parts[0] != "ctfno_jax" else ".".join(parts[:2])


OWN = {name: {i for i in _imports(path) if i.split(".")[0] in PACKAGES} for name, path in MODULES.items()}


def test_every_module_has_a_place_in_the_order():
    assert {_unit(name) for name in MODULES} - {"ctfno_jax"} == set(ROW_OF)


@pytest.mark.parametrize("module", [name for name in MODULES if name != "ctfno_jax"])
def test_a_module_imports_only_what_stands_lower(module):
    unit = _unit(module)
    wrong = {
        name
        for name in OWN[module]
        if _unit(name) != unit and (name == "ctfno_jax" or ROW_OF[_unit(name)] <= ROW_OF[unit])
    }
    assert not wrong


def test_nothing_in_the_library_imports_the_experiments():
    assert not [name for name in MODULES if name.startswith("ctfno_jax")
                and any(i.split(".")[0] == "experiments" for i in OWN[name])]  # fmt: skip


def _imported_by(package):
    return {_unit(i) for name in MODULES if _unit(name) == package for i in OWN[name]} - {package}


def test_training_knows_neither_models_nor_data():
    below = {"ctfno_jax.types", "ctfno_jax.config", "ctfno_jax.files"}
    assert _imported_by("ctfno_jax.training") <= below


def test_operations_know_only_types():
    assert _imported_by("ctfno_jax.ops") <= {"ctfno_jax.types"}


def test_models_know_no_data_and_data_know_no_models():
    assert not _imported_by("ctfno_jax.models") & {"ctfno_jax.data", "ctfno_jax.solvers"}
    assert "ctfno_jax.models" not in _imported_by("ctfno_jax.data")


def test_only_plotting_and_the_experiments_import_matplotlib():
    users = {_unit(name) for name, path in MODULES.items()
             if any(i.split(".")[0] == "matplotlib" for i in _imports(path))}  # fmt: skip
    assert users <= {"ctfno_jax.plotting", "experiments"}
    assert "ctfno_jax.plotting" in users


def test_importing_the_library_imports_nothing_heavy():
    heavy = ("matplotlib", "orbax", "tensorflow_datasets", "tensorflow", "h5py")
    code = f"import sys, ctfno_jax; print([m for m in {heavy!r} if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_public_names_are_all_there():
    import ctfno_jax

    assert all(hasattr(ctfno_jax, name) for name in ctfno_jax.__all__)


# --- who may know what ------------------------------------------------------------------------------------------------

# Names of equations and data sets that are no ordinary words; sine, square and stiff are.
NAMES = (
    r"heat|burgers|diffusion_sorption|sorption|navier|stokes|reaction|spiral|sawtooth|vibration|van der pol|oscillator|"
    r"pdebench|mujoco|hopper|physionet|human activity|mnist|cifar\w*|f-?16"
)
GENERIC = ("config", "models", "training", "transforms", "certify", "predict")


@pytest.mark.parametrize("module", [name for name in MODULES if name.split(".")[1:2] and name.split(".")[1] in GENERIC])
def test_what_is_generic_names_no_equation_and_no_data_set(module):
    text = MODULES[module].read_text().lower().replace("_", " ")
    assert re.findall(rf"\b({NAMES.replace('_', ' ')})\b", text) == []


def _probes(path):
    """Lines that ask an object whether it has an attribute."""
    calls = [
        n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    ]
    return [n.lineno for n in calls if n.func.id == "hasattr" or (n.func.id == "getattr" and len(n.args) > 2)]


def test_only_the_interface_of_models_asks_what_a_model_has():
    found = {name: _probes(path) for name, path in MODULES.items()}
    assert found.pop("ctfno_jax.models.interface")
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize("program", ["pde", "synthetic", "vibration", "train"])
def test_a_training_program_is_short(program):
    assert len(MODULES[f"experiments.{program}"].read_text().splitlines()) < 60
