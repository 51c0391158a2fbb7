"""Trains a small network in two processes, each with half of every batch, with layer norm, batch norm and synchronised
batch norm. Prints the difference from one process with the whole batch, and the bytes that are sent.

Layer norm uses one row at a time, so the split changes nothing. Batch norm takes its statistics from half of the batch,
so it trains another network. Synchronised batch norm takes them from both halves and needs two exchanges for each norm
in each step. The example defines it, because torch.nn.SyncBatchNorm refuses tensors on the CPU. Everything is float64,
over gloo. Gradients are averaged explicitly, so that every exchange is counted.
"""

import argparse
import collections
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import evenorm.torch
import torch
import torch.distributed
import torch.multiprocessing
from torch import Tensor, nn

PROCESSES = 2
INPUTS, WIDTH, CLASSES, BLOCKS = 16, 64, 5, 3
BATCH = 32  # rows of all processes together
sent: collections.Counter[str] = collections.Counter()  # this process's exchanges and bytes, by purpose


def all_reduce(tensor: Tensor, purpose: str) -> Tensor:
    """Sums a tensor over all processes, in place. A single process keeps its values."""
    if torch.distributed.is_initialized():
        sent[f"exchanges of {purpose}"] += 1
        sent[f"bytes of {purpose}"] += tensor.numel() * tensor.element_size()
        torch.distributed.all_reduce(tensor)
    return tensor


class BatchNormOfAll(torch.autograd.Function):
    """Batch norm of rows in several processes; x is rows by columns. Each pass needs one exchange."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rows = x.new_tensor([x.shape[0]])
        sums = all_reduce(torch.cat([x.sum(0), x.square().sum(0), rows]), "norms")
        count = sums[-1]
        mean, mean_of_squares = (sums[:-1] / count).chunk(2)
        variance = mean_of_squares - mean.square()  # cancels if the mean is large; good enough in float64
        rstd = (variance + eps).rsqrt()
        z = (x - mean) * rstd
        ctx.save_for_backward(z, weight, rstd, count)
        ctx.mark_non_differentiable(mean, variance, count)
        return z * weight + bias, mean, variance, count

    @staticmethod
    def backward(ctx: Any, dy: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        z, weight, rstd, count = ctx.saved_tensors
        dweight, dbias = (dy * z).sum(0), dy.sum(0)  # over this process's rows; averaged later
        along_z, along_one = (all_reduce(torch.cat([dweight, dbias]), "norms") / count).chunk(2)
        return (dy - along_one - z * along_z) * (rstd * weight), dweight, dbias, None


class SynchronisedBatchNorm(nn.BatchNorm1d):
    """torch.nn.BatchNorm1d whose statistics in training are those of all processes' rows."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        y, mean, variance, count = BatchNormOfAll.apply(x, self.weight, self.bias, self.eps)
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * count / (count - 1), self.momentum)
            self.num_batches_tracked += 1
        return y


NORMS = {
    "layer norm": evenorm.torch.LayerNorm,
    "batch norm": nn.BatchNorm1d,
    "synchronised batch norm": SynchronisedBatchNorm,
}


def network(norm: type[nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(INPUTS, WIDTH)]
    for _ in range(BLOCKS):
        layers += [norm(WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES)).double()


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Points around one centre per class, the same in every process."""
    centres = torch.randn(CLASSES, INPUTS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    generator = torch.Generator().manual_seed(1000 + step)
    classes = torch.randint(CLASSES, (BATCH,), generator=generator)
    return centres[classes] + torch.randn(BATCH, INPUTS, generator=generator, dtype=torch.float64), classes


def average_gradients(model: nn.Module) -> None:
    parameters = list(model.parameters())
    whole = all_reduce(torch.cat([p.grad.flatten() for p in parameters]), "gradients") / PROCESSES
    for p, grad in zip(parameters, whole.split([p.numel() for p in parameters]), strict=True):
        p.grad = grad.view_as(p)


def state(model: nn.Module) -> dict[str, Tensor]:
    """The weights as one row, and the model's outputs for rows that it was not trained on."""
    model.eval()
    with torch.no_grad():
        found = {"weights": nn.utils.parameters_to_vector(model.parameters()), "outputs": model(batch(-1)[0])}
    model.train()
    return found


def train(norm: type[nn.Module], rank: int | None, steps: int) -> dict[int, dict[str, Tensor]]:
    """The states after one step and after all steps. Without a rank, the process has whole batches."""
    model = network(norm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    states = {}
    for step in range(1, steps + 1):
        x, classes = batch(step)
        if rank is not None:
            x, classes = x.chunk(PROCESSES)[rank], classes.chunk(PROCESSES)[rank]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), classes).backward()
        if rank is not None:
            average_gradients(model)
        optimizer.step()
        if step in (1, steps):
            states[step] = state(model)
    return states


def work(rank: int, folder: str, steps: int) -> None:
    """Trains with each norm in one process, and saves the states and the counts of bytes to the folder."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # both processes are on this machine
    store = torch.distributed.FileStore(f"{folder}/store", PROCESSES)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=PROCESSES)
    found = {}
    for name, norm in NORMS.items():
        sent.clear()
        states = train(norm, rank, steps)
        found[name] = {"states": states, "sent": {what: count // steps for what, count in sent.items()}}
    torch.save(found, f"{folder}/{rank}")
    torch.distributed.destroy_process_group()


def apart(a: Tensor, b: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    return float((a - b).abs().max() / b.abs().max())


def report(steps: int) -> dict[str, Any]:
    """Everything that is printed, as plain data."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (folder, steps), nprocs=PROCESSES)
        ranks = [torch.load(Path(folder) / str(rank)) for rank in range(PROCESSES)]
    found = []
    for name, norm in NORMS.items():
        whole = train(nn.BatchNorm1d if norm is SynchronisedBatchNorm else norm, None, steps)
        first, second = (rank[name]["states"] for rank in ranks)
        differences = [
            {
                "steps": step,
                "weights": apart(first[step]["weights"], alone["weights"]),
                "outputs": apart(first[step]["outputs"], alone["outputs"]),
                "between_processes": apart(first[step]["outputs"], second[step]["outputs"]),
            }
            for step, alone in whole.items()
        ]
        found.append({"norm": name, "sent_each_step": ranks[0][name]["sent"], "differences": differences})
    return {"processes": PROCESSES, "batch": BATCH, "steps": steps, "norms": found}


def show(found: dict[str, Any]) -> None:
    always = found["norms"][0]["sent_each_step"]
    print(f"{found['processes']} processes, each with half of every batch of {found['batch']} rows, in float64.")
    print("Differences are relative to the largest value: from one process with the whole batch, and of one process's")
    print("outputs from the other's. Exchanges and bytes are those of each process in one step; the gradients' are")
    print(f"{always['exchanges of gradients']} and {always['bytes of gradients']:,}.\n")
    print("| norm | steps | weights differ | outputs differ | processes differ | exchanges of norms | bytes of norms |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for one in found["norms"]:
        counts = [f"{one['sent_each_step'].get(f'{what} of norms', 0):,}" for what in ("exchanges", "bytes")]
        for row in one["differences"]:
            differences = [row["weights"], row["outputs"], row["between_processes"]]
            cells = [one["norm"], str(row["steps"]), *(f"{d:.1e}" if d else "0" for d in differences), *counts]
            print(f"| {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="steps of training (default: 20)")
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of the table")
    options = parser.parse_args()
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    found = report(options.steps)
    print(json.dumps(found)) if options.json else show(found)


if __name__ == "__main__":
    main()
