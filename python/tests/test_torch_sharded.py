"""Norms over processes by torch.distributed over gloo. Cuts at multiples of 1024 columns give the bits of the whole
norm, other cuts keep its error bounds. Also torch.compile, checkpoints, and errors when processes disagree."""

import copy
import math
import os
import pickle
import signal
import time

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from distributed_processes import outcomes, run
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import evenorm.torch
import evenorm.torch.distributed as sharded
from evenorm.torch import _sharded_group

torch.manual_seed(1)


def own_columns(x, columns, rank):
    return x.split(list(columns), dim=-1)[rank].clone()


def rows_like(kind, columns, dtype):
    x = torch.randn(6, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(columns))
    x = {"normal": x, "mean 1e6": x + 1e6, "near overflow": x * torch.finfo(dtype).max / 8, "tiny": x * 1e-38}[kind]
    x[2] = 0.1
    return x.to(dtype)


# --- both passes, against one process


def passes(rms, x, weight, bias, dy, norms):
    """Returns y and all gradients. norms are layer norm of (x, weight, bias) and RMS norm of (x, weight)."""
    leaves = [t.clone().requires_grad_() for t in (x, weight, bias) if t is not None]
    y = norms[rms](*leaves)
    y.backward(dy)
    return [y.detach(), *(leaf.grad for leaf in leaves)]


WHOLE = (
    lambda x, w, b: evenorm.torch.layer_norm(x, x.shape[-1:], w, b),
    lambda x, w: evenorm.torch.rms_norm(x, x.shape[-1:], w, 1e-5),
)
SHARDED = (sharded.sharded_layer_norm, lambda x, w: sharded.sharded_rms_norm(x, w, 1e-5))


def inputs_of(kind, columns, dtype, rms):
    generator = torch.Generator().manual_seed(7)
    x = rows_like(kind, columns, dtype)
    weight = (1 + torch.randn(columns, generator=generator) / 4).to(dtype)
    bias = None if rms else torch.randn(columns, generator=generator).to(dtype)
    return x, weight, bias, torch.randn(x.shape, generator=generator).to(dtype)


def in_cases(rank, cases):
    found = []
    for columns, kind, dtype, rms in cases:
        whole = inputs_of(kind, sum(columns), dtype, rms)
        found.append(passes(rms, *(None if t is None else own_columns(t, columns, rank) for t in whole), SHARDED))
    return found


def whole_passes(columns, kind, dtype, rms):
    return passes(rms, *inputs_of(kind, sum(columns), dtype, rms), WHOLE)


def joined(results):
    return [torch.cat(parts, dim=-1) for parts in zip(*results, strict=True)]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_cuts_at_blocks_have_the_bits_of_the_whole(size):
    columns = {1: (3000,), 2: (2048, 1000), 3: (1024, 0, 4096), 4: (0, 4096, 1024, 77)}[size]
    cases = [
        (columns, kind, dtype, rms)
        for dtype in (torch.float32, torch.bfloat16)
        for kind in ("normal", "mean 1e6", "near overflow", "tiny")
        for rms in (False, True)
    ] + [(columns, "normal", torch.float64, rms) for rms in (False, True)]
    found = run(in_cases, size, cases)
    for i, case in enumerate(cases):
        for ours, theirs in zip(joined([of_rank[i] for of_rank in found]), whole_passes(*case), strict=True):
            assert torch.equal(ours, theirs), case


def test_any_cuts_keep_the_bounds_and_repeat_the_bits():
    columns = (1, 700, 0, 999)
    cases = [(columns, "mean 1e6", torch.float32, False), (columns, "normal", torch.bfloat16, True)]
    found = run(in_cases, 4, cases * 10)
    for of_rank in found:
        for i, results in enumerate(of_rank):
            assert all(torch.equal(a, b) for a, b in zip(results, of_rank[i % 2], strict=True))
    for i, case in enumerate(cases):
        x, weight, bias, _ = (None if t is None else t.double() for t in inputs_of(case[1], sum(columns), *case[2:]))
        y = joined([of_rank[i] for of_rank in found])[0].double()
        exact = WHOLE[case[3]](*(t for t in (x, weight, bias) if t is not None))
        unit = torch.finfo(case[2]).eps / 2
        magnitude = exact.abs().amax(-1, keepdim=True) + (0 if bias is None else bias.abs().max())
        assert ((y - exact).abs() <= 6 * unit * magnitude).all(), case


# --- torch.compile, modules and their checkpoints


def compiled_and_eager(rank):
    torch.manual_seed(rank)
    norm, rms = sharded.ShardedLayerNorm(40), sharded.ShardedRMSNorm(40)

    def model(x):
        return rms(torch.nn.functional.gelu(norm(x * 2)))

    x = torch.randn(5, 40)
    for parameter in (*norm.parameters(), *rms.parameters()):
        torch.nn.init.normal_(parameter)
    assert torch.equal(norm(x), sharded.sharded_layer_norm(x, norm.weight, norm.bias))
    assert torch.equal(rms(x), sharded.sharded_rms_norm(x, rms.weight))
    found = []
    for function in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        leaf = x.clone().requires_grad_()
        norm.zero_grad(), rms.zero_grad()
        y = function(leaf)
        y.square().sum().backward()
        found.append([y.detach(), leaf.grad, norm.weight.grad.clone(), norm.bias.grad.clone(), rms.weight.grad.clone()])
    return found


def test_torch_compile_without_graph_breaks():
    for eager, compiled in run(compiled_and_eager, 2, timeout=120, group_timeout=100):
        assert all(torch.equal(a, b) for a, b in zip(eager, compiled, strict=True))


def through_checkpoints(rank, folder):
    columns = (3, 0, 5)
    whole = torch.nn.LayerNorm(8)
    with torch.no_grad():
        whole.weight.copy_(torch.arange(8.0))
        whole.bias.copy_(-torch.arange(8.0))
    norm = sharded.ShardedLayerNorm(columns[rank])
    sharded.load_whole_state_dict(norm, whole.state_dict())
    assert torch.equal(norm.weight, whole.weight.split(columns)[rank])
    joined_state = sharded.join_state_dict(norm)
    assert all(torch.equal(joined_state[name], value) for name, value in whole.state_dict().items())
    dcp.save({"norm": joined_state}, checkpoint_id=folder)
    read = {"norm": torch.nn.LayerNorm(8).state_dict()}
    dcp.load(read, checkpoint_id=folder)
    torch.nn.LayerNorm(8).load_state_dict(read["norm"])
    other = sharded.ShardedLayerNorm(columns[rank])
    sharded.load_whole_state_dict(other, read["norm"])
    with pytest.raises(ValueError, match=r"weight has shape \(7,\), but rows have 8 columns"):
        sharded.load_whole_state_dict(other, {"weight": torch.ones(7)})
    x = torch.randn(2, columns[rank])
    for same in (copy.deepcopy(norm), pickle.loads(pickle.dumps(norm))):
        assert torch.equal(same(x), norm(x)) and same.group is norm.group
        assert columns[rank] == 0 or same.weight.data_ptr() != norm.weight.data_ptr()
    return torch.equal(other.bias, norm.bias), repr(norm)


def test_checkpoints_are_those_of_torch_nn(tmp_path):
    found = run(through_checkpoints, 3, str(tmp_path))
    assert all(equal for equal, _ in found)
    assert found[0][1] == "ShardedLayerNorm(3 of 8, eps=1e-05, elementwise_affine=True)"


def sequence_parallel_gradients(rank):
    x = torch.randn(6, 12, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    norm = evenorm.torch.LayerNorm(12, dtype=torch.float64)
    norm(x[rank * 3 : rank * 3 + 3]).square().sum().backward()
    sharded.sum_sequence_parallel_gradients(norm)
    whole = evenorm.torch.LayerNorm(12, dtype=torch.float64)
    whole(x).square().sum().backward()
    return [(a.grad - b.grad).abs().max().item() for a, b in zip(norm.parameters(), whole.parameters(), strict=True)]


def test_gradients_of_split_rows_are_summed():
    for differences in run(sequence_parallel_gradients, 2):
        assert max(differences) < 1e-12


# --- DTensors with sharded columns


def through_dtensors(rank, mesh_shape, placements, rms):
    mesh = init_device_mesh("cpu", mesh_shape)
    x, weight, bias, dy = inputs_of("normal", 2101, torch.float64, rms)
    leaf = distribute_tensor(x.view(2, 3, -1), mesh, placements).requires_grad_()
    whole = [Replicate()] * len(placements)
    parameters = [distribute_tensor(t, mesh, whole).requires_grad_() for t in (weight, bias) if t is not None]
    y = (evenorm.torch.rms_norm if rms else evenorm.torch.layer_norm)(leaf, (2101,), *parameters, eps=1e-5)
    assert isinstance(y, DTensor) and list(y.placements) == list(placements)
    y.backward(distribute_tensor(dy.view(2, 3, -1), mesh, placements))
    return [t.full_tensor() for t in (y.detach(), leaf.grad, *(p.grad for p in parameters))]


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("mesh, placements", [((2,), (Shard(2),)), ((2, 2), (Shard(0), Shard(2)))], ids=str)
def test_dtensors_with_sharded_columns_stay_sharded(mesh, placements, rms):
    size = torch.Size(mesh).numel()
    expected = whole_passes((2101,), "normal", torch.float64, rms)
    for found in run(through_dtensors, size, mesh, placements, rms, group_timeout=40):
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours.view_as(theirs), theirs, rtol=1e-12, atol=1e-12)


# --- what is sent


def exchanges_of_passes(rank):
    """Runs rounds of passes. Returns the sizes of each pass's exchanges in float64 numbers."""
    sizes, all_gather = [], _sharded_group.all_gather

    def counted(into, message, group):
        sizes[-1].append(message.numel())
        return all_gather(into, message, group=group)

    _sharded_group.all_gather = counted
    for rows in (300, 300, 300, 2, 2, 300, 300, 4096, 4096, 4096):
        x = torch.ones(rows, 1024, requires_grad=True)
        sizes.append([])
        y = sharded.sharded_layer_norm(x)
        sizes.append([])
        y.sum().backward()
    return sizes


def test_repeated_passes_take_one_exchange_each():
    found = run(exchanges_of_passes, 2)
    assert found[0] == found[1], "gloo aborts a process that receives more than it expects"
    rounds = list(zip(found[0][::2], found[0][1::2], strict=True))
    assert rounds[0] == ([256, 256, 600 - 250], [256, 600 - 250])  # a head has 6 numbers; at first cuts are not known
    assert rounds[1] == ([256, 600 - 250], [606])
    assert rounds[2] == rounds[6] == ([606], [606])
    assert rounds[4] == ([606], [606]), "as large as the messages before"
    assert rounds[9] == ([6 + 2 * 4096], [6 + 2 * 4096])


def cut_in_turn(rank):
    generator = torch.Generator().manual_seed(3)
    wrong = []
    for step, columns in enumerate([(5, 5), (6, 5), (5, 5), (5, 0), (1024, 1024), (1024, 2048), (6, 5)] * 2):
        x = torch.randn(1 + step % 3, sum(columns), generator=generator)
        norm = sharded.ShardedLayerNorm(columns[rank])
        expected = own_columns(torch.nn.functional.layer_norm(x, x.shape[1:]), columns, rank)
        own = own_columns(x, columns, rank)
        for y in (norm(own), sharded.sharded_layer_norm(own)):
            if norm.columns != columns or not torch.allclose(y, expected, atol=1e-5):
                wrong.append((step, columns))
    return wrong


def test_cuts_that_change_between_calls():
    assert run(cut_in_turn, 2) == [[], []]


# --- processes that disagree


def disagreeing(rank, what):
    arguments = {"x": torch.ones(4, 8), "eps": 1e-5}
    if "before" in what:
        for rows in (500, 4, 4, 4):
            sharded.sharded_layer_norm(torch.ones(rows, 8))
    if rank == 1:
        changed = {"rows": torch.ones(5, 8), "dtype": torch.ones(4, 8).double()}
        changed |= {"agreed before": torch.ones(6, 8), "agreed before, short": torch.ones(500, 8)}
        arguments["x"] = changed.get(what, arguments["x"])
        if what == "eps":
            arguments["eps"] = 1e-3
    sharded.sharded_layer_norm(**arguments)


@pytest.mark.parametrize(
    "what, text",
    [
        ("rows", "rows is 4 in process 0 of the group, but 5 in process 1"),
        ("dtype", "dtype is torch.float32 in process 0 of the group, but torch.float64 in process 1"),
        ("eps", "eps is 1e-05 in process 0 of the group, but 0.001 in process 1"),
        ("agreed before", "rows is 4 in process 0 of the group, but 6 in process 1"),
        ("agreed before, short", "rows is 4 in process 0 of the group, but 500 in process 1"),
    ],
)
def test_every_process_reports_the_difference(what, text):
    for outcome in outcomes(disagreeing, 3, what, timeout=40, group_timeout=10):
        assert f"DisagreementError: {text}" in outcome.error, str(outcome)


def with_a_message_spoiled(rank, gather, at, value, rows):
    """Returns each process's error if one gathered message of process 1 is changed on the way."""
    gathers, all_gather = [], _sharded_group.all_gather

    def spoiled(gathered, message, group):
        all_gather(gathered, message, group=group)
        if len(gathers) == gather:
            gathered[1, at] = value
        gathers.append(at)

    _sharded_group.all_gather = spoiled
    with pytest.raises(ValueError) as error:
        sharded.sharded_layer_norm(torch.ones(rows[rank], 8, dtype=torch.float64))
    return str(error.value)


@pytest.mark.parametrize(
    "gather, at, value, rows, text",
    [
        (0, _sharded_group._COLUMNS, -1.0, (4, 4), "process 1 of the group has sent a message of -1.0 columns, but"),
        (0, _sharded_group._COLUMNS, 0.5, (4, 4), "process 1 of the group has sent a message of 0.5 columns, but"),
        (0, _sharded_group._COLUMNS, math.nan, (4, 4), "process 1 of the group has sent a message of nan columns, but"),
        (0, _sharded_group._COLUMNS, math.inf, (4, 4), "process 1 of the group has sent a message of inf columns, but"),
        (1, _sharded_group._CUTS, 7.0, (4, 4), "process 1 of the group has sent a message made for other columns"),
        (1, _sharded_group._HEAD + 2, -1.0, (4, 4), "process 1 has sent a message whose sum of squares of row 0 is -1"),
        (1, 0, math.nan, (4, 5), "process 1 of the group has sent a description that is not a JSON object"),
    ],
)
def test_invalid_messages_are_refused(gather, at, value, rows, text):
    first, second = run(with_a_message_spoiled, 2, gather, at, value, rows)
    assert first.startswith(text)
    assert second.startswith("the all-gather returned another message for process 1 of the group")


def test_descriptions_of_others():
    for sent in (b"\xff", b"", b"7", b"[" * 100000, b'"a"'):
        with pytest.raises(ValueError, match="process 3 of the group has sent a description that is not a JSON object"):
            _sharded_group._decode(3, sent)
    descriptions = {0: {"a\nb": "\x1b[2J"}, 1: {"a\nb": "x\u2028y"}}
    assert _sharded_group._difference(descriptions) == "a?b is ?[2J in process 0 of the group, but x?y in process 1"


def with_one_that_goes(rank, how):
    """Returns the error of each call and its seconds. Later calls also report a process that has died."""
    x = torch.ones(4, 8)
    sharded.sharded_layer_norm(x)
    if rank == 2 and how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 2:
        time.sleep(10)
    if how == "hangs, and the store with it":
        dist.distributed_c10d._get_default_store = lambda: time.sleep(60)
    found = []
    for _ in range(3 if how == "dies" else 1):
        began = time.monotonic()
        with pytest.raises(RuntimeError) as error:
            sharded.sharded_layer_norm(x)
        found.append((str(error.value), time.monotonic() - began))
        time.sleep(rank / 4)  # processes are not in step
    return found


@pytest.mark.parametrize("how", ["dies", "hangs", "hangs, and the store with it"])
def test_the_others_fail_in_time(how):
    for outcome in outcomes(with_one_that_goes, 3, how, timeout=40, group_timeout=5)[:2]:
        assert not outcome.error, outcome.error
        for text, seconds in outcome.result:
            assert "the processes' exchange failed" in text and "no answer from process" in text, text
            silent = text.split("no answer from process")[1].split(" of")[0]
            assert "2" in silent and (how != "dies" or silent == " 2")
            assert seconds < 12


REFUSED = {  # calls that only process 1 makes: (the call, its error's type, part of its text)
    "shape": (lambda f, x: f(x, torch.ones(7)), "ValueError", "weight has shape (7,), but x has 8 columns in this"),
    "dtype": (lambda f, x: f(x.int()), "TypeError", "x has dtype torch.int32"),
    "no axes": (lambda f, x: f(torch.ones(())), "ValueError", "x has no axes"),
    "negative eps": (lambda f, x: f(x, eps=-1), "ValueError", "eps is -1.0, but it should be finite and at least 0"),
    "NaN": (lambda f, x: f(x, eps=math.nan), "ValueError", "eps is nan"),
    "meta": (lambda f, x: f(x.to("meta")), "ValueError", "x is on meta"),
    "meta weight": (lambda f, x: f(x, torch.ones(8, device="meta")), "ValueError", "weight is on meta"),
    "sparse": (lambda f, x: f(x.to_sparse()), "ValueError", "x is on torch.sparse_coo"),
    "list": (lambda f, x: f(x.tolist()), "TypeError", "x is a list, but it should be a tensor"),
    "text": (lambda f, x: f(x, eps="a"), "TypeError", "eps is 'a', but it should be a number"),
    "none": (lambda f, x: f(x, eps=None), "TypeError", "eps is None, but it should be a number"),
    "large": (lambda f, x: f(x, eps=10**400), "OverflowError", "int too large to convert to float"),
    "nested": (lambda f, x: f(torch.nested.nested_tensor([x], layout=torch.strided)), "TypeError", "x is nested"),
    "vmap": (lambda f, x: torch.func.vmap(f)(x), "NotImplementedError", "torch.func's transforms"),
    "jvp": (lambda f, x: torch.func.jvp(f, (x,), (x,)), "NotImplementedError", "forward-mode"),
    "module": (lambda f, x: sharded.ShardedLayerNorm(-1), "ValueError", "local_columns is -1"),
    "columns": (lambda f, x: sharded.ShardedLayerNorm(10**400, 1e-5, False), "ValueError", "it should be 0 to 2^48"),
    "module's eps": (lambda f, x: sharded.ShardedRMSNorm(8, 10**400), "OverflowError", "int too large to convert"),
    "parameters": (lambda f, x: sharded.ShardedRMSNorm(8, dtype=torch.int32), "RuntimeError", "floating"),
    "compiled": (lambda f, x: torch.compile(f, backend="eager")(x, torch.ones(7)), "ValueError", "weight has shape"),
}


def with_one_that_raises(rank):
    """Returns what each step of a loop that continues after errors raises."""
    x, raised = torch.ones(4, 8), []
    for name in REFUSED:
        for refused in (rank == 1, False):
            try:
                y = REFUSED[name][0](sharded.sharded_layer_norm, x) if refused else sharded.sharded_layer_norm(x)
                raised.append("" if not y.any() else "wrong")
            except (ValueError, TypeError, RuntimeError, OverflowError) as error:
                raised.append(f"{type(error).__name__}: {error}")
    return raised


def test_the_error_of_one_process_is_raised_in_all_others():
    found = run(with_one_that_raises, 3, timeout=120)
    assert found[0] == found[2]
    for i, (name, (_, kind, text)) in enumerate(REFUSED.items()):
        own, others = found[1][2 * i], found[0][2 * i]
        assert own.startswith(f"{kind}: ") and text in own, (name, own)
        assert others == f"DisagreementError: process 1 of the group has failed: {own.removeprefix(f'{kind}: ')}", name
        assert found[0][2 * i + 1] == found[1][2 * i + 1] == "", f"all processes are in step after {name}"


def with_a_call_interrupted(rank):
    """One process leaves a call without informing the others, and continues."""
    raised, gather = [], _sharded_group.Call.gather
    for step in range(3):
        _sharded_group.Call.gather = interrupted if rank == 1 and step == 1 else gather
        try:
            sharded.sharded_layer_norm(torch.ones(4, 8))
        except (KeyboardInterrupt, sharded.DisagreementError) as error:
            raised.append(str(error))
        except RuntimeError:
            raised.append("time is up")
    return raised


def interrupted(*_):
    raise KeyboardInterrupt("interrupted")


def test_an_interrupted_call_is_not_matched_by_the_next_one():
    text = "call is 2 in process 0 of the group, but 3 in process 1"
    found = run(with_a_call_interrupted, 2, group_timeout=5, timeout=30)
    assert found == [[text, "time is up"], ["interrupted", text]]


def dead_code(rank):
    def unused_in_one(x):
        y = sharded.sharded_layer_norm(x)
        return (y * 2).sum() if rank == 0 else x + 1

    with torch.no_grad():
        for function in (unused_in_one, lambda x: (sharded.sharded_layer_norm(x) * 2).sum()):
            torch.compile(function)(torch.ones(4, 8 if rank == 0 else 0))
    return True


def test_torch_compile_keeps_norms_whose_results_are_not_needed():
    assert run(dead_code, 2, timeout=120) == [True, True]


def small_cases(rank):
    x = torch.randn(2, 4, requires_grad=True)
    (dx,) = torch.autograd.grad(sharded.sharded_layer_norm(x).square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="only first-order"):
        dx.sum().backward()
    sharded.ShardedRMSNorm(4)(torch.inference_mode()(torch.randn)(2, 4)).sum().backward()  # saves a copy of x
    with torch.device("meta"):
        assert sharded.ShardedLayerNorm(8).weight.device.type == "meta"
    norm = sharded.ShardedLayerNorm(0 if rank == 0 else 8)
    x = torch.ones(2, norm.local_columns)
    norm(x)
    with pytest.raises(ValueError, match="0 columns in all"):
        sharded.sharded_layer_norm(torch.ones(2, 0))
    assert norm(x).shape == x.shape  # the refused call has no effect
    assert sharded.ShardedRMSNorm(4, eps=1 if rank == 0 else 1.0).eps == 1
    with pytest.raises(ValueError, match="local_columns is 0 in all processes"):
        sharded.ShardedLayerNorm(0)
    with pytest.raises(ValueError, match="not a member"):
        sharded.sharded_layer_norm(x, group=dist.GroupMember.NON_GROUP_MEMBER)


def test_small_cases():
    run(small_cases, 2)
    with pytest.raises(RuntimeError, match="there is no process group"):
        sharded.sharded_layer_norm(torch.ones(2, 3))
