"""Trains the FNO of the ``neuraloperator`` package on exported trajectories; ``python -m experiments.peers`` starts it.

It needs torch, neuraloperator and numpy, and nothing of this repository. The network has four layers and reads the
query time as a constant input channel. Batches, schedule, loss and augmentation are those of CTFNO: 20 trajectories,
each at two random times of its own, Adam with a one-cycle schedule, mean squared error of normalised fields.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version

import numpy as np
import torch
from neuralop.models import FNO

BATCH, TIMES = 20, 2
# Samples and times that are answered at once.
CHUNK = 200


def network(data: Mapping[str, np.ndarray]) -> torch.nn.Module:
    """64 frequencies on each side as CTFNO has; between walls also the coordinate, and padding."""
    channels = data["train_u"].shape[-1]
    periodic = bool(data["periodic"])
    return FNO(
        n_modes=(128,), in_channels=channels + 1, out_channels=channels, hidden_channels=64, n_layers=4,
        positional_embedding=None if periodic else "grid", domain_padding=None if periodic else 0.125,
    )  # fmt: skip


def with_time(u0: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """States (batch, points, channels) and their times (batch, time) as inputs (batch * time, channels + 1, points)."""
    batch, points, channels = u0.shape
    state = u0.transpose(1, 2)[:, None].expand(batch, t.shape[1], channels, points)
    clock = t[:, :, None, None].expand(batch, t.shape[1], 1, points)
    return torch.cat([state, clock], dim=2).flatten(0, 1)


class Batches:
    """Random batches of normalised trajectories, with the symmetries that the data have."""

    def __init__(self, data: Mapping[str, np.ndarray], mean: np.ndarray, std: np.ndarray, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.u0 = torch.from_numpy((data["train_u0"] - mean) / std)
        self.u = torch.from_numpy((data["train_u"] - mean) / std)
        self.times = torch.from_numpy(data["times"] / data["times"].max())
        self.reflection = torch.from_numpy(data["reflection"]) if len(data["reflection"]) else None
        self.odd = bool(data["odd"])

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        while True:
            order = self.random.permutation(len(self.u0))
            for start in range(0, len(order) - BATCH + 1, BATCH):
                index = torch.from_numpy(order[start : start + BATCH])
                chosen = self.strata()
                u0, u = self.u0[index], self.u[index[:, None], chosen]
                if self.odd:
                    sign = torch.from_numpy(self.random.choice(np.float32([-1, 1]), BATCH))
                    u0, u = u0 * sign[:, None, None], u * sign[:, None, None, None]
                if self.reflection is not None:
                    flip = torch.from_numpy(self.random.random(BATCH) < 0.5)
                    u0, u = self.reflect(u0, flip), self.reflect(u, flip)
                yield u0, self.times[chosen], u

    def strata(self) -> torch.Tensor:
        """Indices of the query times of every trajectory, one from each part of the time axis."""
        ends = np.linspace(0, len(self.times), TIMES + 1).round().astype(int)
        return torch.from_numpy(self.random.integers(ends[:-1], ends[1:], (BATCH, TIMES)))

    def reflect(self, u: torch.Tensor, flip: torch.Tensor) -> torch.Tensor:
        """x -> -x on the periodic grid, where the first point stays, for the chosen samples."""
        mirrored = torch.roll(torch.flip(u, dims=(-2,)), 1, dims=-2) * self.reflection
        return torch.where(flip.reshape(-1, *(1,) * (u.ndim - 1)), mirrored, u)


def predict(model: torch.nn.Module, u0: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Normalised solutions (batch, time, points, channels)."""
    several = max(1, CHUNK // len(times))
    with torch.no_grad():
        parts = [
            model(with_time(some, torch.from_numpy(times).expand(len(some), -1))).numpy()
            for some in torch.from_numpy(u0).split(several)
        ]
    u = np.concatenate(parts).reshape(len(u0), len(times), u0.shape[-1], u0.shape[1])
    return np.ascontiguousarray(u.transpose(0, 1, 3, 2))


def train_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, ...]) -> float:
    """One update; returns the loss before it."""
    u0, t, u = batch
    optimizer.zero_grad()
    answer = model(with_time(u0, t)).reshape(BATCH, TIMES, u.shape[-1], u.shape[-2]).transpose(2, 3)
    loss = torch.mean((answer - u) ** 2)
    loss.backward()
    optimizer.step()
    return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="trajectories, as experiments.peers exports them")
    parser.add_argument("--output", required=True, help="predictions (.npz); a .json beside it describes the run")
    parser.add_argument("--learning_rate", type=float, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    with np.load(args.data, allow_pickle=False) as archive:
        data = dict(archive)
    # Statistics of initial states and solutions together: the network may then learn a small change of its input.
    both = np.concatenate([data["train_u0"][:, None], data["train_u"]], axis=1)
    mean, std = both.mean(axis=(0, 1, 2)), both.std(axis=(0, 1, 2))
    model = network(data)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    # To zero at the end, as the schedule of our runs.
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, args.learning_rate, total_steps=args.steps, final_div_factor=1e4, cycle_momentum=False
    )
    start, cpu_start = time.perf_counter(), time.process_time()
    batches = iter(Batches(data, mean, std, args.seed))
    fastest = math.inf
    for step in range(args.steps):
        began = time.perf_counter()
        loss = train_step(model, optimizer, next(batches))
        schedule.step()
        fastest = min(fastest, time.perf_counter() - began)
        if (step + 1) % 100 == 0 or step + 1 == args.steps:
            print(f"step {step + 1}/{args.steps}, loss {loss:.3e}", flush=True)
    summary = {
        "num_params": sum(p.numel() * (2 if p.is_complex() else 1) for p in model.parameters()),
        "train_seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(time.process_time() - cpu_start, 1),
        "step_seconds": fastest,
        "versions": {name: version(name) for name in ("torch", "neuraloperator", "numpy")},
    }  # fmt: skip
    answers = {}
    for part in ("validation", "test", "between"):
        if f"{part}_u0" in data:
            t = np.float32(data[f"{part}_times"] / data["times"].max())
            answers[part] = predict(model, (data[f"{part}_u0"] - mean) / std, t) * std + mean
    np.savez(args.output, **answers)
    with open(args.output + ".json", "w") as stream:
        json.dump(summary, stream)


if __name__ == "__main__":
    main()
