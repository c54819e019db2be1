"""Settings of the host for every program: compilation cache, memory allocator and cores."""

import ctypes
import logging as standard_logging
import os
import sys
import warnings
from pathlib import Path

import jax
import platformdirs
from absl import logging

# glibc's mallopt: no separate mappings, never give memory back, grow in large pieces, one arena.
_MALLOC_OPTIONS = ((-4, 0), (-1, -1), (-2, 2**28), (-8, 1))
_MADV_HUGEPAGE = 14
_PAGE = 2**21


def set_up() -> None:
    """Called once by every program, before the first computation."""
    # Backends that were looked for and not found, and every phase of every checkpoint, are not news.
    logging.set_verbosity(logging.ERROR)
    _stay_on_cores()
    _silence_closed_loops()
    _keep_memory()
    _cache_compilations()


def cores() -> list[int]:
    """Processor cores that this process may use; a machine may have more."""
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _stay_on_cores() -> None:
    """Keeps to the cores that ``CTFNO_CORES`` names, so that programs side by side do not disturb each other."""
    named = os.environ.get("CTFNO_CORES")
    if named and sys.platform == "linux":
        os.sched_setaffinity(0, {int(core) for core in named.split(",")})


def _silence_closed_loops() -> None:
    """A checkpoint that cannot be read leaves callbacks behind whose late complaint would bury the error message."""
    standard_logging.getLogger("asyncio").setLevel(standard_logging.CRITICAL)
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited", category=RuntimeWarning)
    previous = sys.unraisablehook

    def hook(unraisable) -> None:
        if not (isinstance(unraisable.exc_value, RuntimeError) and "Event loop is closed" in str(unraisable.exc_value)):
            previous(unraisable)

    sys.unraisablehook = hook


def _keep_memory() -> None:
    """Large buffers stay with the process between calls.

    The default allocator maps each one anew, and touching fresh pages for the first time costs more than the
    arithmetic done on them.
    """
    if sys.platform != "linux" or os.environ.get("CTFNO_KEEP_MEMORY") == "0":
        return
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return  # not glibc: nothing to tune
    for option, value in _MALLOC_OPTIONS:
        libc.mallopt(option, value)
    _use_huge_pages(libc)


def _use_huge_pages(libc: ctypes.CDLL) -> None:
    """Asks for pages of 2 MiB in the memory that the process will use: a tenth of the time of large arrays.

    The heap is extended once by half of the machine's memory, which takes address space only, and its future pages are
    marked. A kernel that refuses either leaves things as they were.
    """
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    libc.malloc.argtypes, libc.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
    libc.free.argtypes, libc.free.restype = (ctypes.c_void_p,), None
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    address = libc.malloc(size)
    if not address:
        return
    start = -(-address // _PAGE) * _PAGE
    libc.madvise(start, address + size - start, _MADV_HUGEPAGE)
    libc.free(address)


def _cache_compilations() -> None:
    """Compiled programs are kept on disk: a second start takes seconds instead of compiling again."""
    default = platformdirs.user_cache_path("ctfno_jax") / "compiled"
    directory = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(default))
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a read-only home only means compiling every time
    jax.config.update("jax_compilation_cache_dir", directory)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
