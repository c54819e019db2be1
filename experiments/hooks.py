"""What a training run leaves behind while it goes on: lines of metrics, checkpoints, events."""

from pathlib import Path
from typing import Any

from ctfno_jax.config import ConfigError
from ctfno_jax.training import checkpoint, loop
from ctfno_jax.training import step as step_lib
from experiments import files


def metrics_hook(workdir: Path) -> loop.Hook:
    """One line of ``metrics.jsonl`` for every call."""

    def hook(state: step_lib.TrainState, report: loop.Report) -> None:
        del state
        values = {"step": report.step, "loss": report.loss, "seconds": round(report.train_seconds, 3)}
        files.append_json_line(workdir / "metrics.jsonl", {**values, **(report.metrics or {})})

    return hook


def checkpoint_hook(store: checkpoint.CheckpointStore, description: dict[str, Any]) -> loop.Hook:
    """A checkpoint after every evaluation."""

    def hook(state: step_lib.TrainState, report: loop.Report) -> None:
        if report.metrics is not None:
            store.save(report.step, state, {**description, "train_seconds": report.train_seconds}, report.metrics)

    return hook


def tensorboard_hook(workdir: Path) -> loop.Hook:
    """Loss and validation errors as TensorBoard events."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ConfigError("--tensorboard needs the tensorboard extra: pip install -e '.[tensorboard]'") from error
    writer = SummaryWriter(str(workdir / "tensorboard"))

    def hook(state: step_lib.TrainState, report: loop.Report) -> None:
        del state
        for name, value in {"loss": report.loss, **(report.metrics or {})}.items():
            writer.add_scalar(name, value, report.step)
        writer.flush()

    return hook
