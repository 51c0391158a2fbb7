"""LayerNormLSTM, LayerNormGRU and their cells, against loops over single vectors written from the formulas."""

# ruff: noqa: E402  (what needs PyTorch is imported when it is known to be there)
import copy
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch_recurrent_loop import loop

import evenorm.torch as et

X, H = 5, 7
KINDS = {"lstm": et.LayerNormLSTM, "gru": et.LayerNormGRU}
CELLS = {"lstm": et.LayerNormLSTMCell, "gru": et.LayerNormGRUCell}
TORCH = {et.LayerNormLSTM: nn.LSTM, et.LayerNormGRU: nn.GRU, et.LayerNormLSTMCell: nn.LSTMCell}
TORCH[et.LayerNormGRUCell] = nn.GRUCell


def both(function):
    return pytest.mark.parametrize("kind", KINDS)(function)


def made(kind, *args, seed=0, dtype=torch.float64, **kwargs):
    """A module whose gains and biases are not 1 and 0, so that each of them is seen."""
    torch.manual_seed(seed)
    module = KINDS[kind](*args, dtype=dtype, **kwargs)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.add_(0.3 * torch.randn_like(parameter) if not name.startswith("weight") else 0)
    return module


def parts_of(state):
    return list(state) if isinstance(state, tuple) else [state]


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


OPTIONS = [
    {},
    {"bias": False},
    {"num_layers": 3, "batch_first": True},
    {"bidirectional": True, "eps": 0.1},
    {"num_layers": 2, "bidirectional": True},
]


@both
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_matches_plain_loop_with_gradients(kind, options):
    module = made(kind, X, H, **options)
    x = torch.randn(4, 3, X, dtype=torch.float64, requires_grad=True)  # steps, batch, columns
    layers = module.num_layers * (1 + module.bidirectional)
    states = [torch.randn(layers, 3, H, dtype=torch.float64, requires_grad=True) for _ in range(1 + (kind == "lstm"))]
    given = x.transpose(0, 1) if module.batch_first else x
    output, end = module(given, tuple(states) if kind == "lstm" else states[0])
    output = output.transpose(0, 1) if module.batch_first else output
    expected, expected_end = loop(module, x.unbind(1), states)
    close(output, torch.stack(expected, 1))
    for part, expected_part in zip(parts_of(end), expected_end, strict=True):
        close(part, expected_part)

    leaves = [x, *states, *module.parameters()]
    weight = torch.randn_like(output)
    last = [torch.randn_like(part) for part in parts_of(end)]

    def gradients(out, ends):
        total = (out * weight).sum() + sum((a * b).sum() for a, b in zip(ends, last, strict=True))
        return torch.autograd.grad(total, leaves)

    for ours, theirs in zip(
        gradients(output, parts_of(end)), gradients(torch.stack(expected, 1), expected_end), strict=True
    ):
        close(ours, theirs, 1e-11)


def test_projection_matches_plain_loop():
    module = made("lstm", X, H, proj_size=3, num_layers=2, bidirectional=True)
    x = torch.randn(4, 3, X, dtype=torch.float64)
    output, (h, c) = module(x)
    expected, (expected_h, expected_c) = loop(module, x.unbind(1))
    close(output, torch.stack(expected, 1))
    close(h, expected_h)
    close(c, expected_c)


@both
@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_packed_is_each_sequence_alone(kind, enforce_sorted, bidirectional):
    lengths = [6, 4, 4, 1] if enforce_sorted else [4, 1, 6, 4]
    module = made(kind, X, H, num_layers=2, bidirectional=bidirectional)
    sequences = [torch.randn(n, X, dtype=torch.float64, requires_grad=True) for n in lengths]
    layers = module.num_layers * (1 + bidirectional)
    states = [torch.randn(layers, len(lengths), H, dtype=torch.float64) for _ in range(1 + (kind == "lstm"))]
    packed = pack_sequence(sequences, enforce_sorted=enforce_sorted)
    output, end = module(packed, tuple(states) if kind == "lstm" else states[0])
    padded, out_lengths = pad_packed_sequence(output)
    assert out_lengths.tolist() == lengths
    expected, expected_end = loop(module, sequences, states)
    for number, rows in enumerate(expected):
        close(padded[: lengths[number], number], rows)
    for part, expected_part in zip(parts_of(end), expected_end, strict=True):
        close(part, expected_part)
    ours = torch.autograd.grad(padded.square().sum(), [*sequences, *module.parameters()])
    theirs = torch.autograd.grad(sum(rows.square().sum() for rows in expected), [*sequences, *module.parameters()])
    for a, b in zip(ours, theirs, strict=True):
        close(a, b, 1e-11)


@both
def test_packed_of_equal_lengths_is_padded(kind):
    module = made(kind, X, H, num_layers=2, bidirectional=True, batch_first=True, dtype=torch.float32)
    x = torch.randn(3, 4, X)
    output, end = module(x)
    packed, packed_end = module(pack_padded_sequence(x, [4, 4, 4], batch_first=True))
    assert torch.equal(output, pad_packed_sequence(packed, batch_first=True)[0])
    for a, b in zip(parts_of(end), parts_of(packed_end), strict=True):
        assert torch.equal(a, b)


@both
def test_unbatched_is_a_batch_of_one(kind):
    module = made(kind, X, H, num_layers=2, batch_first=True)
    x = torch.randn(4, X, dtype=torch.float64)
    states = tuple(torch.randn(2, H, dtype=torch.float64) for _ in range(1 + (kind == "lstm")))
    output, end = module(x, states if kind == "lstm" else states[0])
    batch = tuple(part.unsqueeze(1) for part in states)
    expected, expected_end = module(x.unsqueeze(0), batch if kind == "lstm" else batch[0])
    assert torch.equal(output, expected.squeeze(0))
    for a, b in zip(parts_of(end), parts_of(expected_end), strict=True):
        assert torch.equal(a, b.squeeze(1))


@both
@pytest.mark.parametrize("bias", [True, False])
def test_cell_is_one_step(kind, bias):
    module = made(kind, X, H, bias=bias, eps=1e-3)
    cell = CELLS[kind](X, H, bias=bias, eps=1e-3, dtype=torch.float64)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in module.state_dict().items()})
    x = torch.randn(4, 3, X, dtype=torch.float64)
    state, one = None, None
    for t in range(4):
        state = cell(x[t], state)
        one = cell(x[t, 0], one)
        close(parts_of(one)[0], parts_of(state)[0][0])
    _, end = module(x)
    for a, b in zip(parts_of(state), parts_of(end), strict=True):
        close(a, b[0])


@both
def test_gradcheck(kind):
    module = made(kind, 2, 3, bidirectional=True)
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: module(x)[0], (x, *module.parameters()))


@both
def test_dropout_between_layers_only(kind):
    torch.manual_seed(3)
    module = KINDS[kind](X, 64, num_layers=2, dropout=0.25)
    x = torch.randn(6, 50, X)
    seen = []
    original = torch.nn.functional.dropout

    def spy(rows, p, training):
        result = original(rows, p, training)
        seen.append((rows, result, p, training))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "dropout", spy)
        first, _ = module(x)
        second, _ = module(x)
        module.eval()
        third, _ = module(x)
    assert len(seen) == 3  # once a call: between the two layers, not after the last
    assert not torch.equal(first, second)
    rows, result, p, _ = seen[0]
    assert p == 0.25
    kept = result != 0
    # 19,200 draws: within 5 standard deviations, 0.0156, of 3/4.
    assert abs(kept.float().mean().item() - 0.75) < 0.0157
    close(result[kept], rows[kept] / 0.75, 1e-6)
    assert (first != 0).all() and not seen[2][3]
    assert torch.equal(third, module(x)[0])


@both
def test_dropout_of_one_cuts_the_layers_apart(kind):
    module = made(kind, X, H, num_layers=2, dropout=1.0)
    x = torch.randn(4, 3, X, dtype=torch.float64)
    assert torch.equal(module(x)[0], module(x.roll(1, 0) + 1)[0])


@both
def test_weights_are_torch_nn_s(kind):
    for options in ({}, {"bias": False}, {"num_layers": 2, "bidirectional": True}):
        cls, base = KINDS[kind], TORCH[KINDS[kind]]
        torch.manual_seed(5)
        ours = cls(X, H, **options)
        torch.manual_seed(5)
        theirs = base(X, H, **options)
        for name, value in theirs.state_dict().items():
            mine = ours.state_dict()[name]
            assert torch.equal(mine, torch.zeros_like(value) if name.startswith("bias") else value)
        result = ours.load_state_dict(theirs.state_dict(), strict=False)
        assert not result.unexpected_keys
        assert all(name.startswith(("gain", "bias_c")) for name in result.missing_keys)
        assert all((value == 1).all() for name, value in ours.state_dict().items() if name.startswith("gain"))
        assert {id(p) for p in ours.parameters()} == {id(p) for weights in ours.all_weights for p in weights}
        assert repr(ours) == f"LayerNorm{theirs!r}"


@both
@pytest.mark.parametrize("packed", [True, False])
def test_copies_and_state_dict(kind, packed):
    module = made(kind, X, H, num_layers=2, bidirectional=True, eps=1e-2, dtype=torch.float32)
    x = torch.randn(4, 3, X)
    x = pack_padded_sequence(x, [4, 3, 1]) if packed else x

    def run(m):
        return m(x)[0].data if packed else m(x)[0]

    expected = run(module)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(run(other), expected)
        assert repr(other) == repr(module)
    fresh = KINDS[kind](X, H, num_layers=2, bidirectional=True, eps=1e-2)
    fresh.load_state_dict(module.state_dict())
    assert torch.equal(run(fresh), expected)
    doubled = {name: 2 * value for name, value in module.named_parameters()}
    called = torch.func.functional_call(module, doubled, (x,))[0]
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.mul_(2)
    assert torch.equal(called.data if packed else called, run(fresh))
    wide = fresh.double()(x.double() if not packed else x.to(torch.float64))[0]
    assert (wide.data if packed else wide).dtype == torch.float64


@both
def test_compiled_exported_and_traced(kind):
    module = made(kind, X, H, num_layers=2, bidirectional=True, dtype=torch.float32)
    x = torch.randn(4, 3, X)
    expected = module(x)[0]
    torch._dynamo.reset()
    assert torch.equal(torch.compile(module, backend="eager", fullgraph=True)(x)[0], expected)
    assert torch.equal(torch.export.export(module, (x,)).module()(x)[0], expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(torch.jit.trace(module, (x,))(x)[0], expected)


@both
def test_half_types_and_autocast(kind):
    module = made(kind, X, 32, num_layers=2, dtype=torch.float32)
    x = torch.randn(6, 3, X)
    expected = module(x)[0]
    half = copy.deepcopy(module).bfloat16()(x.bfloat16())[0]
    assert half.dtype == torch.bfloat16
    assert (half.float() - expected).square().mean().sqrt() < 0.02
    with torch.autocast("cpu", torch.bfloat16):
        cast = module(x)[0]
    assert 0 < (cast.float() - expected).square().mean().sqrt() < 0.02


@both
def test_meta_device(kind):
    module = KINDS[kind](X, H, bidirectional=True, device="meta")
    x = torch.randn(4, 3, X, device="meta")
    for given in (x, pack_padded_sequence(x, [4, 2, 1])):
        output, end = module(given)
        assert (output if given is x else output.data).device.type == "meta"
        assert all(part.shape == (2, 3, H) for part in parts_of(end))


@both
def test_no_batch_and_no_steps(kind):
    module = KINDS[kind](X, H)
    assert module(torch.randn(4, 0, X))[0].shape == (4, 0, H)
    with pytest.raises(RuntimeError, match="sequence length to be larger than 0"):
        module(torch.randn(0, 3, X))


@both
def test_wrong_arguments(kind):
    cls, cell = KINDS[kind], CELLS[kind]
    two = (lambda *shape: (torch.zeros(*shape), torch.zeros(*shape))) if kind == "lstm" else torch.zeros
    module = cls(X, H, num_layers=2)
    x = torch.randn(4, 3, X)
    cases = [
        (TypeError, "input should be a Tensor or a PackedSequence, got: list", lambda: module([1.0])),
        (ValueError, "input to be 2D or 3D, got 4D", lambda: module(x[None])),
        (RuntimeError, f"input_size {X}, got {X + 1}", lambda: module(torch.randn(4, 3, X + 1))),
        (ValueError, "weights' type torch.float32, got torch.float64", lambda: module(x.double())),
        (RuntimeError, rf"hx.* of shape \(2, 3, {H}\).*, got \(1, 3, {H}\)", lambda: module(x, two(1, 3, H))),
        (RuntimeError, "hx to be 3D, as input is, got 2D", lambda: module(x, two(2, H))),
        (
            RuntimeError,
            rf"hx.* of shape \(2, 3, {H}\)",
            lambda: module(pack_padded_sequence(x, [4, 2, 1]), two(2, 4, H)),
        ),
        (TypeError, "hx should be a", lambda: module(x, [1])),
        (TypeError, "eps should be of type float, got: str", lambda: cls(X, H, eps="1")),
        (ValueError, "eps should be at least 0, got: -1", lambda: cls(X, H, eps=-1)),
        (ValueError, "eps should be at least 0, got: nan", lambda: cls(X, H, eps=float("nan"))),
        (ValueError, "hidden_size must be greater than zero", lambda: cls(X, 0)),
        (ValueError, "dropout should be a number in range", lambda: cls(X, H, dropout=2)),
        (TypeError, "bias should be of type bool", lambda: cls(X, H, bias=1)),
        (ValueError, "input to be 1D or 2D, got 3D", lambda: cell(X, H)(x)),
        (RuntimeError, f"input_size {X}, got 2", lambda: cell(X, H)(torch.zeros(3, 2))),
        (RuntimeError, rf"hx.* of shape \(3, {H}\), got \(2, {H}\)", lambda: cell(X, H)(x[0], two(2, H))),
        (TypeError, "hx should be a", lambda: cell(X, H)(x[0], 3)),
        (TypeError, "eps should be of type float", lambda: cell(X, H, eps=None)),
    ]
    for error, message, call in cases:
        with pytest.raises(error, match=message):
            call()
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last"):
        cls(X, H, dropout=0.5)


@both
def test_norms_are_evenorm_s(kind, monkeypatch):
    """The input's norms once for all steps, the state's in each."""
    from evenorm.torch import _recurrent_steps

    rows = []
    original = _recurrent_steps.layer_norm

    def spy(x, *args):
        rows.append(x.shape[0])
        return original(x, *args)

    monkeypatch.setattr(_recurrent_steps, "layer_norm", spy)
    KINDS[kind](X, H)(torch.randn(9, 3, X))
    per_step = 2  # projection and cell state; gates and candidate
    assert rows.count(27) == (1 if kind == "lstm" else 2)
    assert rows.count(3) == 9 * per_step


@both
def test_learns_to_add_marked_numbers(kind):
    """Sequences of 2 to 12 pairs (number, mark): the sum of the two marked numbers. Always answering the mean leaves
    an error of 1/6."""
    torch.manual_seed(11)
    torch.set_num_threads(1)
    rnn, head = KINDS[kind](2, 32, batch_first=True), nn.Linear(32, 1)
    optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=1e-2)

    def batch(size):
        lengths = torch.randint(2, 13, (size,))
        x = torch.rand(size, 12, 2)
        x[..., 1] = 0
        for number, length in enumerate(lengths.tolist()):
            x[number, torch.randperm(length)[:2], 1] = 1
        return pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False), (x[..., 0] * x[..., 1]).sum(1)

    def error(size):
        x, target = batch(size)
        _, end = rnn(x)
        return (head(parts_of(end)[0][0]).squeeze(1) - target).square().mean()

    for _ in range(250):
        optimizer.zero_grad()
        error(64).backward()
        optimizer.step()
    with torch.no_grad(), warnings.catch_warnings():
        assert error(1000).item() < 0.01
