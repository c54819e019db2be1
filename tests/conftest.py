"""Settings that must be there before JAX is imported."""

import gc
import os
from importlib import metadata

# Eight virtual devices on a machine with few cores wait for each other forever unless there are threads for all.
# Tests compile hundreds of tiny programs and run each once: optimising them would take most of the time.
_FLAGS = [
    "--xla_force_host_platform_device_count=8",
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
]
if metadata.version("jaxlib").startswith("0.10."):
    # Halves the time to compile. XLA aborts at flags that it does not know, so other versions do without.
    _FLAGS += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *_FLAGS])
os.environ["NPROC"] = "32"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["MPLBACKEND"] = "Agg"
# Otherwise the path of every frame of every expected exception is compared with those of JAX.
os.environ["JAX_TRACEBACK_FILTERING"] = "off"
# Tracing makes many small objects that live on: looking for garbage among them is a tenth of the time.
gc.set_threshold(100_000, 50, 50)
# Files of the person who runs the tests are read by the slow tests that ask for them, and by no others.
if "CTFNO_DATA_DIR" in os.environ:
    os.environ["CTFNO_TEST_DATA_DIR"] = os.environ.pop("CTFNO_DATA_DIR")

import jaxtyping
import pytest

# The axes that annotations promise are checked in the modules whose arguments are always arrays.
jaxtyping.install_import_hook(
    [
        "ctfno_jax.data.batching",
        "ctfno_jax.ops.gershgorin",
        "ctfno_jax.ops.time_features",
        "ctfno_jax.ops.time_modulated_fourier",
        "ctfno_jax.solvers",
    ],
    "beartype.beartype",
)


@pytest.fixture
def real_data_dir() -> str:
    """The folder that ``CTFNO_DATA_DIR`` named when the tests began."""
    if "CTFNO_TEST_DATA_DIR" not in os.environ:
        pytest.skip("CTFNO_DATA_DIR names no folder with the official files")
    return os.environ["CTFNO_TEST_DATA_DIR"]


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Generated data of the tests are kept in a folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CTFNO_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
