"""Optax chains from a config."""

import optax

from ctfno_jax.config import OptimizerConfig

OPTIMIZERS = ("adam", "adamw", "adamax", "sgd")
# Schedules, with the settings that each of them reads.
SCHEDULES = {
    "constant": (),
    "step": ("decay_factor", "decay_steps", "final_fraction"),
    "cosine": ("final_fraction",),
    "one_cycle": ("warmup_fraction", "final_fraction"),
    "exponential": ("decay_factor", "final_fraction"),
}


def schedule(config: OptimizerConfig, num_steps: int) -> optax.Schedule:
    """Learning rate at each step."""
    peak = config.learning_rate
    if config.schedule == "constant" or (config.schedule in ("step", "exponential") and config.decay_factor == 1):
        return optax.constant_schedule(peak)
    floor = peak * config.final_fraction
    if config.schedule == "step":
        return optax.exponential_decay(peak, config.decay_steps, config.decay_factor, staircase=True, end_value=floor)
    if config.schedule == "exponential":
        return optax.exponential_decay(peak, 1, config.decay_factor, end_value=floor)
    if config.schedule == "cosine":
        return optax.cosine_decay_schedule(peak, num_steps, alpha=config.final_fraction)
    if config.schedule == "one_cycle":
        warmup = max(1, round(config.warmup_fraction * num_steps))
        return optax.warmup_cosine_decay_schedule(peak / 25, peak, warmup, max(warmup + 1, num_steps), end_value=floor)
    raise ValueError(f"unknown schedule {config.schedule!r}; known are {', '.join(SCHEDULES)}")


def optimizer(config: OptimizerConfig, num_steps: int) -> optax.GradientTransformation:
    """Clipping, if any, and the optimizer with its schedule."""
    rate = schedule(config, num_steps)
    if config.weight_decay and config.optimizer != "adamw":
        raise ValueError(f"weight_decay={config.weight_decay} needs optimizer adamw, got {config.optimizer}")
    if config.optimizer == "adam":
        update = optax.adam(rate)
    elif config.optimizer == "adamw":
        update = optax.adamw(rate, weight_decay=config.weight_decay)
    elif config.optimizer == "adamax":
        update = optax.adamax(rate)
    elif config.optimizer == "sgd":
        update = optax.sgd(rate)
    else:
        raise ValueError(f"unknown optimizer {config.optimizer!r}; known are {', '.join(OPTIMIZERS)}")
    if not config.clip_norm:
        return update
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), update)
