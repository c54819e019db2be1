"""The prediction program without a new process."""

from pathlib import Path

import numpy as np
from absl import flags

from experiments import predict as program


def predict(monkeypatch, **given) -> dict[str, np.ndarray]:
    """Calls its main with flags of its own, and gives back what it wrote."""
    values = flags.FlagValues()
    for name, value in given.items():
        flags.DEFINE_string(name, None if value is None else str(value), "", flag_values=values)
    values.mark_as_parsed()
    monkeypatch.setattr(program, "FLAGS", values)
    program.main()
    with np.load(Path(given["output"])) as found:
        return dict(found)
