"""Seconds from the start of a program until a validation error is reached: imports, data, compilation and training.

Every target has a run of its own, with a schedule of a length for it. The run is stopped as soon as its validation
error is at the target. The first start compiles everything; the second finds the compiled programs on disk.
"""

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ctfno_jax import files
from ctfno_jax.config import ConfigError
from experiments.cells import Cell

# Validation errors on heat, the first that of the paper's table, and the settings of the run for each.
TARGETS: tuple[tuple[float, Mapping[str, Any]], ...] = (
    (2.6e-4, {"modes": [48], "train_grid": 128, "steps": 800, "eval_every": 100}),
    # Evaluations take time as well, so there are few of them.
    (1e-4, {"steps": 3000, "eval_every": 200}),
)
# Seconds between two looks at a run.
_PAUSE = 0.05


def measure(targets: tuple[tuple[float, Mapping[str, Any]], ...] = TARGETS) -> dict[str, Any]:
    """Wall and CPU seconds to every target, with an empty cache of compiled programs and then with a filled one."""
    found = []
    for target, settings in targets:
        cell = Cell("pde", "heat", "ctfno", overrides={"data_seed": 0, **settings})
        with tempfile.TemporaryDirectory() as folder:
            starts = {name: reach(cell, target, Path(folder), name) for name in ("cold", "warm")}
        found.append({"target": target, "command": cell.command, **starts})
        print(f"{target:g}: {starts['cold']['seconds']:.0f} s, {starts['warm']['seconds']:.0f} s when started again")
    return {"targets": found}


def reach(cell: Cell, target: float, folder: Path, name: str) -> dict[str, float]:
    """Trains a cell until its validation error is at most ``target``.

    Args:
      cell: what to train.
      target: the validation error.
      folder: keeps the compiled programs.
      name: of the run in that folder.

    Returns:
      Wall and CPU seconds of the process, and the step at which it was stopped.
    """
    run, log = folder / name, folder / f"{name}.log"
    arguments = [*shlex.split(cell.command)[1:], f"--workdir={run}", "--evaluate=validation"]
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled")}
    start = time.monotonic()
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=stream, stderr=subprocess.STDOUT, env=environment
        )
    ended, status, usage = 0, 0, None
    try:
        while (step := _reached(run / "metrics.jsonl", target)) is None and not ended:
            # Not by poll, which forgets the CPU time of the process.
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            time.sleep(_PAUSE)
        seconds = time.monotonic() - start
    finally:
        if not ended:
            process.kill()
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if step is None:
        lines = log.read_text().strip().splitlines() or ["no output"]
        raise ConfigError(f"{cell.command} ended before its validation error was {target:g}: {lines[-1]}")
    assert usage is not None
    return {"seconds": round(seconds, 1), "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1), "step": step}


def _reached(path: Path, target: float) -> int | None:
    """The first step whose validation error is at the target; None if there is none yet."""
    reached = (v["step"] for v in files.read_json_lines(path) if v.get("validation_rmse", float("inf")) <= target)
    return next(reached, None)
