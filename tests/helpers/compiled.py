"""Compiled programs that are kept for a while, for tests that would compile the same ones again and again."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache


@contextlib.contextmanager
def kept_in(directory: Path) -> Iterator[None]:
    """Programs are kept in a folder, however small they are; afterwards everything is as it was."""
    options = {
        "jax_compilation_cache_dir": str(directory),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": 0,
    }
    before = {name: getattr(jax.config, name) for name in options}
    try:
        _update(options)
        yield
    finally:
        _update(before)


def _update(options: dict[str, object]) -> None:
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
