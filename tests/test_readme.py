"""What the README shows runs as it stands."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def names(tmp_path_factory) -> dict:
    """What the Python blocks of the README define, run one after the other as one script."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 3
    script = tmp_path_factory.mktemp("readme") / "example.py"
    script.write_text("\n".join(blocks))
    return runpy.run_path(str(script))


def test_the_trained_example_predicts_times_between_its_own(names):
    truth = names["u0"][:3, None] * np.exp(-np.array([0.77, 0.123]))[:, None, None]
    assert names["prediction"].shape == (3, 2, 64, 1)
    error = np.linalg.norm(names["prediction"] - truth) / np.linalg.norm(truth)
    assert error < 0.1


def test_the_certificate_of_the_example_holds(names):
    a, b = np.asarray(names["u0"][:1]), np.asarray(names["u0"][5:6])
    change = names["predictor"](a, [0.5, 1.0]) - names["predictor"](b, [0.5, 1.0])
    growth = np.linalg.norm(change, axis=(2, 3))[0] / np.linalg.norm(a - b)
    assert np.all(growth <= names["physical"])
    scale = names["predictor"].transform.gain((64,))
    np.testing.assert_allclose(names["physical"], names["bound"] * scale, rtol=1e-5)


def test_it_works_inside_other_modules(names):
    expected = (32, 10, 64, 1)
    assert names["linen"].shape == expected
    assert names["in_nnx"].shape == expected


def test_the_equation_stands_in_the_readme_and_in_one_file_of_ops():
    equation = "IFFT( phi(t, xi) R(xi) FFT(v)(xi) )"
    assert equation in (ROOT / "README.md").read_text()
    files = [path.name for path in (ROOT / "ctfno_jax").rglob("*.py") if equation in path.read_text()]
    assert files == ["time_modulated_fourier.py"]


def test_the_readme_is_short_and_its_links_exist():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 160
    for page in [ROOT / "README.md", ROOT / "BUILD.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / link).exists() or link.startswith("http"), f"{page.name} links to {link}"
