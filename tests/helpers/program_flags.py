"""Flags of the programs without a new process for each."""

import functools
import types
from typing import Any

from absl import flags

from experiments import cells, configs, program, reproduce, tune

OWN_FLAGS = {"reproduce": reproduce, "tune": tune}


def _definitions(values: flags.FlagValues) -> types.SimpleNamespace:
    """The module ``absl.flags`` with definitions that go into other values than the global ones."""
    made = {name: getattr(flags, name) for name in dir(flags)}
    made |= {n: functools.partial(f, flag_values=values) for n, f in made.items() if n.startswith("DEFINE_")}
    return types.SimpleNamespace(**made)


def define(monkeypatch: Any, experiment: str = "pde") -> flags.FlagValues:
    """Defines the flags of a training program, or those of reproduce or tune, as if nothing else had been defined."""
    values = flags.FlagValues()
    for module in (program, cells, *OWN_FLAGS.values()):
        monkeypatch.setattr(module, "FLAGS", values)
        monkeypatch.setattr(module, "flags", _definitions(values))
    if experiment in OWN_FLAGS:
        OWN_FLAGS[experiment].define_flags()
    else:
        program.define_training_flags(configs.EXPERIMENTS[experiment])
    return values


def parse(monkeypatch: Any, *arguments: Any, experiment: str = "pde") -> flags.FlagValues:
    """Gives a program these flags."""
    values = define(monkeypatch, experiment)
    values(["program", *map(str, arguments)])
    return values
