"""Training a small Transformer with tensor-parallel sharded norms in two processes, queries and keys normalised across
all heads among them: the losses of one process that has everything."""

import distributed_processes
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import evenorm.torch
import evenorm.torch.distributed as sharded

TOKENS, LENGTH, WIDTH, HEADS, LAYERS, BATCH, STEPS = 11, 6, 24, 4, 2, 8, 50


class CopyIn(torch.autograd.Function):
    """A tensor that all processes have, used by each for its part: gradients are summed."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        dy = dy.contiguous()
        dist.all_reduce(dy)
        return dy


class SumOut(torch.autograd.Function):
    """The sum of all processes' terms."""

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, dy):
        return dy


def gathered(x, columns):
    parts = [x.new_empty((*x.shape[:-1], n)) for n in columns]
    for rank, part in enumerate(parts):
        if rank == dist.get_rank():
            part.copy_(x)
        dist.broadcast(part, rank)
    return torch.cat(parts, dim=-1)


class Own(torch.autograd.Function):
    """This process's columns of a tensor that all have."""

    @staticmethod
    def forward(ctx, x, columns):
        ctx.columns = columns
        return x.split(columns, dim=-1)[dist.get_rank()].clone()

    @staticmethod
    def backward(ctx, dy):
        return gathered(dy.contiguous(), ctx.columns), None


class Gather(torch.autograd.Function):
    """All processes' columns."""

    @staticmethod
    def forward(ctx, x, columns):
        ctx.columns = columns
        return gathered(x.contiguous(), columns)

    @staticmethod
    def backward(ctx, dy):
        return dy.split(ctx.columns, dim=-1)[dist.get_rank()].clone(), None


class Block(nn.Module):
    """columns: how many of the stream's each process normalises; heads: how many of the attention's it has."""

    def __init__(self, norm, query_key_norm, columns, heads, parallel):
        super().__init__()
        own, self.columns, self.heads, self.parallel = heads * (WIDTH // HEADS), columns, heads, parallel
        self.norm = norm(columns[dist.get_rank()] if parallel else WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, own, bias=False) for _ in range(3))
        self.query_norm, self.key_norm = query_key_norm(own), query_key_norm(own)
        self.out = nn.Linear(own, WIDTH, bias=False)

    def forward(self, x):
        if self.parallel:
            h = CopyIn.apply(Gather.apply(self.norm(Own.apply(x, self.columns)), self.columns))
        else:
            h = self.norm(x)
        q, k, v = self.query_norm(self.query(h)), self.key_norm(self.key(h)), self.value(h)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        mixed = self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + (SumOut.apply(mixed) if self.parallel else mixed)


class Network(nn.Module):
    def __init__(self, norm, query_key_norm, columns=(), heads=HEADS, parallel=False):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block(norm, query_key_norm, columns, heads, parallel) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def whole_network():
    torch.manual_seed(0)
    return Network(evenorm.torch.LayerNorm, evenorm.torch.RMSNorm).double()


def cut(name, value, columns, heads):
    """This process's part of a parameter of the whole."""
    if name.startswith("blocks."):
        kind = name.split(".")[2]
        if kind == "norm":
            return value.split(columns)[dist.get_rank()]
        own = [n * (WIDTH // HEADS) for n in heads]
        return value.split(own, dim=1 if kind == "out" else 0)[dist.get_rank()]
    return value


def train(model):
    torch.manual_seed(1)
    tokens = torch.randint(TOKENS, (BATCH, LENGTH))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.sort(dim=1).values.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_in_parallel(rank, columns, heads):
    model = Network(
        sharded.ShardedLayerNorm,
        lambda own: sharded.ShardedRMSNorm(own),
        columns,
        heads[rank],
        parallel=True,
    ).double()
    whole = whole_network().state_dict()
    model.load_state_dict({name: cut(name, value, columns, heads).clone() for name, value in whole.items()})
    return train(model)


def test_two_processes_follow_one():
    expected = train(whole_network())
    assert expected[-1] < 0.7 * expected[0]
    found = distributed_processes.run(train_in_parallel, 2, (7, WIDTH - 7), (1, 3), timeout=120, group_timeout=60)
    assert found[0] == found[1]
    for ours, theirs in zip(found[0], expected, strict=True):
        assert abs(ours - theirs) <= 1e-5 * abs(theirs)
