"""Training evenorm's modules over several processes: DistributedDataParallel, FSDP2, tensor and sequence parallelism,
DTensors. Real processes over gloo compute the same as one process with the whole batch.
"""

import collections
import functools

import pytest
import torch
import torch.nn.functional as F
from distributed_processes import run
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import parallel as tp
from torch.distributed.tensor.debug import CommDebugMode
from torch_cases import outputs

import evenorm.torch

SIZE = 2  # processes
STEPS = 50
TOKENS, LENGTH, WIDTH, HEADS, LAYERS, BATCH = 11, 6, 16, 4, 2, 8
LIMITS = {"timeout": 300, "group_timeout": 120}  # seconds, for a busy machine
CLOSE = 1e-5  # relative tolerance of all losses; float64 differs by about 1e-12
OURS, THEIRS = (evenorm.torch.LayerNorm, evenorm.torch.RMSNorm), (nn.LayerNorm, nn.RMSNorm)


class Attention(nn.Module):
    def __init__(self, rms_norm):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.query_norm, self.key_norm = rms_norm(WIDTH // HEADS), rms_norm(WIDTH // HEADS)

    def forward(self, x):
        def heads(t):  # the heads of this process
            return t.view(*t.shape[:2], -1, WIDTH // HEADS)

        q, k, v = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        q, k = self.query_norm(q), self.key_norm(k)
        mixed = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.out(mixed.transpose(1, 2).flatten(2))


def perceptron():
    layers = {"up": nn.Linear(WIDTH, 4 * WIDTH), "activation": nn.GELU(), "down": nn.Linear(4 * WIDTH, WIDTH)}
    return nn.Sequential(collections.OrderedDict(layers))


class Block(nn.Module):
    def __init__(self, layer_norm, rms_norm):
        super().__init__()
        self.first, self.attention = layer_norm(WIDTH), Attention(rms_norm)
        self.second, self.perceptron = rms_norm(WIDTH), perceptron()

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.perceptron(self.second(x))


class Network(nn.Module):
    def __init__(self, layer_norm, rms_norm):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block(layer_norm, rms_norm) for _ in range(LAYERS))
        self.norm, self.head = layer_norm(WIDTH), nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def network(norms=OURS, seed=0):
    torch.manual_seed(seed)
    made = Network(*norms).double()
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, THEIRS):
                for parameter in module.parameters():
                    parameter += 0.2 * torch.randn_like(parameter)
    return made


def converted(made):
    found = evenorm.torch.convert(made)
    assert len(found.replaced) == 4 * LAYERS + 1 and not found.left
    return made


def batch():
    torch.manual_seed(1)
    tokens = torch.randint(TOKENS, (BATCH, LENGTH))
    return tokens, tokens.sort(dim=1).values


def part(rank):
    return [t[rank * BATCH // SIZE : (rank + 1) * BATCH // SIZE] for t in batch()]


OPTIMIZERS = {
    "sgd": functools.partial(torch.optim.SGD, lr=0.3, momentum=0.9),
    "adam": functools.partial(torch.optim.Adam, lr=0.01),
}


def train(model, tokens, targets, optimizer):
    """Returns the loss before each step."""
    steps = OPTIMIZERS[optimizer](model.parameters())
    losses = []
    for _ in range(STEPS):
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        steps.step()
        steps.zero_grad()
        losses.append(loss.item())
    return losses


def weights(model):
    whole = {name: t.full_tensor() if hasattr(t, "full_tensor") else t for name, t in model.named_parameters()}
    return {name: t.detach() for name, t in whole.items()}


def train_alone(rank, optimizer):
    model = network()
    return train(model, *batch(), optimizer), weights(model)


@functools.cache
def alone(optimizer):
    return run(train_alone, 1, optimizer, **LIMITS)[0]


def forbid_pytorchs_norms():
    """Makes every norm that is not evenorm's fail in this process."""
    F.layer_norm = F.rms_norm = None


def collectives(function, *arguments):
    """Calls the function. Returns how many operations of each kind moved tensors between processes, and its result."""

    with CommDebugMode() as seen:
        result = function(*arguments)
    return {str(kind).rsplit(".", 1)[-1].rstrip("')>"): count for kind, count in seen.get_comm_counts().items()}, result


def assert_trained_alike(results, optimizer):
    expected, expected_weights = alone(optimizer)
    assert expected[-1] < 0.5 * expected[0]
    mean_losses = [sum(losses) / len(losses) for losses in zip(*(losses for losses, _ in results), strict=True)]
    assert mean_losses == pytest.approx(expected, rel=CLOSE)
    for _, found in results:
        assert found.keys() == expected_weights.keys()
        for name, weight in found.items():
            torch.testing.assert_close(weight, expected_weights[name], rtol=CLOSE, atol=1e-9, msg=name)
            assert torch.equal(weight, results[0][1][name]), name  # the same on all ranks


NORMS = pytest.mark.parametrize("norms, optimizer", [(OURS, "sgd"), (THEIRS, "adam")], ids=["modules", "converted"])


# --- DistributedDataParallel: each process has all weights and part of the batch


def data_parallel(rank, norms, optimizer):
    forbid_pytorchs_norms()
    model = network(norms, seed=rank)  # rank 0's weights are sent to all
    model = nn.parallel.DistributedDataParallel(model if norms == OURS else converted(model))
    return train(model, *part(rank), optimizer), weights(model.module)


# --- FSDP2: each process has part of all weights, gathered block by block, and part of the batch


def fully_sharded(rank, norms, optimizer):
    forbid_pytorchs_norms()
    model, mesh = network(norms), init_device_mesh("cpu", (SIZE,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if norms == THEIRS:
        converted(model)
    assert all(isinstance(t, DTensor) and t.to_local().numel() < t.numel() for t in model.parameters() if len(t) > 1)
    return train(model, *part(rank), optimizer), weights(model)


@NORMS
@pytest.mark.parametrize("way", [data_parallel, fully_sharded])
def test_parts_of_the_batch(way, norms, optimizer):
    assert_trained_alike(run(way, SIZE, norms, optimizer, **LIMITS), optimizer)


# --- tensor and sequence parallelism: matrices are split by columns and rows, x between them along the sequence


def plan():

    sequence = Shard(1)
    gathered = {"input_layouts": (sequence,), "desired_input_layouts": (Replicate(),)}
    block = {
        "first": tp.SequenceParallel(),
        "attention": tp.PrepareModuleInput(**gathered),
        "attention.query": tp.ColwiseParallel(),
        "attention.key": tp.ColwiseParallel(),
        "attention.value": tp.ColwiseParallel(),
        "attention.query_norm": tp.SequenceParallel(sequence_dim=2, use_local_output=True),  # along heads
        "attention.key_norm": tp.SequenceParallel(sequence_dim=2, use_local_output=True),
        "attention.out": tp.RowwiseParallel(output_layouts=sequence, use_local_output=False),
        "second": tp.SequenceParallel(),
        "perceptron": tp.PrepareModuleInput(**gathered),
        "perceptron.up": tp.ColwiseParallel(),
        "perceptron.down": tp.RowwiseParallel(output_layouts=sequence, use_local_output=False),
    }
    whole = {
        "embedding": tp.RowwiseParallel(input_layouts=Replicate(), output_layouts=sequence, use_local_output=False),
        "norm": tp.SequenceParallel(),
        "head": tp.ColwiseParallel(input_layouts=sequence, output_layouts=Replicate()),
    }
    return whole | {f"blocks.{i}.{name}": style for i in range(LAYERS) for name, style in block.items()}


def tensor_parallel(rank, norms, optimizer):
    forbid_pytorchs_norms()
    model = tp.parallelize_module(network(norms), init_device_mesh("cpu", (SIZE,)), plan())
    if norms == THEIRS:
        converted(model)
    moved, _ = collectives(model, batch()[0])
    return train(model, *batch(), optimizer), weights(model), moved


@NORMS
def test_tensor_parallel(norms, optimizer):
    results = run(tensor_parallel, SIZE, norms, optimizer, **LIMITS)
    assert_trained_alike([result[:2] for result in results], optimizer)
    # Each attention and perceptron gathers x and scatters its result. Embedding and head do the rest, norms nothing.
    for _, _, moved in results:
        assert moved == {"all_gather_into_tensor": 2 * LAYERS + 2, "reduce_scatter_tensor": 2 * LAYERS + 1}


# --- DTensors: rows are normalised where they are


SHAPE = (5, 7, WIDTH)  # the number of processes divides no axis of rows
FUNCTIONS = {
    "layer_norm": lambda x, r, w, b: evenorm.torch.layer_norm(x, (WIDTH,), w, b),
    "rms_norm": lambda x, r, w, b: evenorm.torch.rms_norm(x, (WIDTH,), w),
    "add_layer_norm": lambda x, r, w, b: evenorm.torch.add_layer_norm(x, r, (WIDTH,), w, b, residual_scale=0.5),
    "add_rms_norm": lambda x, r, w, b: evenorm.torch.add_rms_norm(x, r, (WIDTH,), w, residual_scale=0.5),
}


def rows_and_parameters():
    torch.manual_seed(2)
    return [torch.randn(shape, dtype=torch.float64) for shape in (SHAPE, SHAPE, (WIDTH,), (WIDTH,))]


def whole(name):
    """Returns the results and all gradients for plain tensors."""
    leaves = [t.requires_grad_() for t in rows_and_parameters()]
    y = outputs(FUNCTIONS[name](*leaves))
    sum((t * t.cos()).sum() for t in y).backward()
    return [t.detach() for t in y], [t.grad for t in leaves]


def lent(placements):
    """Returns the tensors of rows_and_parameters as DTensors."""
    mesh = init_device_mesh("cpu", (SIZE,))
    pairs = zip(rows_and_parameters(), placements, strict=True)
    return [distribute_tensor(t, mesh, [where]).requires_grad_() for t, where in pairs]


def sharded(rank, axis):
    """For each function: its gathered results and gradients, their placements, and what moved before gathering."""
    found = {}
    for name, function in FUNCTIONS.items():
        leaves = lent([Shard(axis), Shard(axis), Replicate(), Replicate()])
        moved, y = collectives(function, *leaves)
        loss = sum((t * t.cos()).sum() for t in outputs(y))
        moved_back, _ = collectives(loss.backward)
        grads = [t.grad for t in leaves]
        where = [None if t is None else str(*t.placements) for t in (*outputs(y), *grads)]
        found[name] = (
            [t.full_tensor().detach() for t in outputs(y)],
            [None if t is None else t.full_tensor() for t in grads],
            where,
            (moved, moved_back),
        )
    return found


@pytest.mark.parametrize("axis", [0, 1])
def test_sharded_rows_stay_where_they_are(axis):
    for found in run(sharded, SIZE, axis, **LIMITS):
        assert found.keys() == FUNCTIONS.keys()
        for name, (y, grads, where, moved) in found.items():
            expected, expected_grads = whole(name)
            torch.testing.assert_close(y, expected, rtol=0, atol=0)
            torch.testing.assert_close(grads, expected_grads, rtol=1e-12, atol=1e-12)
            assert moved == ({}, {}), name
            assert set(where) - {None} == {f"S({axis})", "P(sum)"}, name


def test_sharded_columns_are_gathered_for_a_sum():
    """test_torch_sharded.py tests norms of sharded columns."""
    for found in run(sharded, SIZE, 2, **LIMITS):
        y, _, where, (moved, _) = found["add_layer_norm"]
        torch.testing.assert_close(y, whole("add_layer_norm")[0], rtol=0, atol=0)
        assert where[0] == "R" and moved.keys() == {"all_gather_into_tensor"}


def different_calls(rank):
    """Calls that differ only in lists of axes and of wanted gradients: DTensor caches a decision for each."""
    mesh, (x, _, weight, _) = init_device_mesh("cpu", (SIZE,)), rows_and_parameters()
    shards, whole_weight = distribute_tensor(x, mesh, [Shard(1)]), distribute_tensor(weight, mesh, [Replicate()])
    norm = evenorm.torch.layer_norm
    pairs = [(norm(shards, shape).full_tensor(), norm(x, shape)) for shape in (SHAPE[2:], SHAPE[1:], SHAPE)]
    for wanted in ((True, False), (False, True), (True, True)):
        gradients = []
        for tensors in ((shards, whole_weight), (x, weight)):
            leaves = [t.detach().requires_grad_(asked) for t, asked in zip(tensors, wanted, strict=True)]
            norm(leaves[0], SHAPE[2:], leaves[1]).sin().sum().backward()
            gradients.append([t.grad for t in leaves if t.requires_grad])
        pairs += [(a.full_tensor(), b) for a, b in zip(*gradients, strict=True)]
    return pairs


def test_calls_that_differ_only_in_lists():
    for pairs in run(different_calls, SIZE, **LIMITS):
        for found, expected in pairs:
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def compiled(rank):
    function = torch.compile(FUNCTIONS["add_layer_norm"], backend="aot_eager", fullgraph=True)
    y = function(*lent([Shard(1), Shard(1), Replicate(), Replicate()]))
    return [t.full_tensor().detach() for t in y]


def test_compiled_sharded_rows():
    for found in run(compiled, SIZE, **LIMITS):
        torch.testing.assert_close(found, whole("add_layer_norm")[0], rtol=0, atol=0)
