"""LayerNormLSTM, LayerNormGRU and their cells, against loops over single vectors that follow the formulas, and types
under autocast against torch.nn."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch_recurrent_loop import loop

import evenorm.torch as et
from evenorm.torch import _recurrent_steps

X, H = 5, 7
KINDS = {"lstm": et.LayerNormLSTM, "gru": et.LayerNormGRU}
CELLS = {"lstm": et.LayerNormLSTMCell, "gru": et.LayerNormGRUCell}
TORCH = {et.LayerNormLSTM: nn.LSTM, et.LayerNormGRU: nn.GRU, et.LayerNormLSTMCell: nn.LSTMCell}
TORCH[et.LayerNormGRUCell] = nn.GRUCell
both = pytest.mark.parametrize("kind", KINDS)


def made(kind, *args, seed=0, dtype=torch.float64, **kwargs):
    """A module whose gains and biases are not 1 and 0, so that each of them affects the result."""
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


def states_of(module, batch, **options):
    """Random parts of the initial state."""
    layers = module.num_layers * (1 + module.bidirectional)
    sizes = [module.proj_size or H] + [H] * (module.mode == "LSTM")
    return [torch.randn(layers, batch, size, dtype=torch.float64, **options) for size in sizes]


def as_state(module, parts):
    return tuple(parts) if module.mode == "LSTM" else parts[0]


@pytest.mark.parametrize(
    "kind, options",
    [(kind, options) for kind in KINDS for options in OPTIONS]
    + [("lstm", {"proj_size": 3, "num_layers": 2, "bidirectional": True})],
    ids=str,
)
def test_matches_plain_loop_with_gradients(kind, options):
    module = made(kind, X, H, **options)
    x = torch.randn(4, 3, X, dtype=torch.float64, requires_grad=True)  # steps, batch, columns
    states = states_of(module, 3, requires_grad=True)
    output, end = module(x.transpose(0, 1) if module.batch_first else x, as_state(module, states))
    output = output.transpose(0, 1) if module.batch_first else output
    sequences, expected_end = loop(module, x.unbind(1), states)
    expected = torch.stack(sequences, 1)
    close(output, expected)
    close(parts_of(end), expected_end)

    leaves = [x, *states, *module.parameters()]
    ours, theirs = (
        torch.autograd.grad(out.square().sum() + sum(part.sin().sum() for part in ends), leaves)
        for out, ends in ((output, parts_of(end)), (expected, expected_end))
    )
    close(ours, theirs, 1e-11)


@both
@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_packed_sequences_match_each_sequence_alone(kind, enforce_sorted, bidirectional):
    lengths = [6, 4, 4, 1] if enforce_sorted else [4, 1, 6, 4]
    module = made(kind, X, H, num_layers=2, bidirectional=bidirectional)
    sequences = [torch.randn(n, X, dtype=torch.float64, requires_grad=True) for n in lengths]
    states = states_of(module, len(lengths))
    packed = pack_sequence(sequences, enforce_sorted=enforce_sorted)
    output, end = module(packed, as_state(module, states))
    padded, out_lengths = pad_packed_sequence(output)
    assert out_lengths.tolist() == lengths
    expected, expected_end = loop(module, sequences, states)
    for number, rows in enumerate(expected):
        close(padded[: lengths[number], number], rows)
    close(parts_of(end), expected_end)
    leaves = [*sequences, *module.parameters()]
    ours = torch.autograd.grad(padded.square().sum(), leaves)
    close(ours, torch.autograd.grad(sum(rows.square().sum() for rows in expected), leaves), 1e-11)


@both
def test_unbatched_input_matches_a_batch_of_one(kind):
    module = made(kind, X, H, num_layers=2, batch_first=True)
    x, states = torch.randn(4, X, dtype=torch.float64), states_of(module, 1)
    output, end = module(x, as_state(module, [part.squeeze(1) for part in states]))
    expected, expected_end = module(x.unsqueeze(0), as_state(module, states))
    assert torch.equal(output, expected.squeeze(0))
    close(parts_of(end), [part.squeeze(1) for part in parts_of(expected_end)], 0)


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
    close(parts_of(state), [part[0] for part in parts_of(end)])


@both
def test_dropout_between_layers_only(kind):
    """If all is dropped, the second layer's input is 0 for any x, but its own output is complete."""
    module = made(kind, X, H, num_layers=2, dropout=1.0)
    x = torch.randn(4, 3, X, dtype=torch.float64)
    y, other = module(x)[0], module(x.roll(1, 0) + 1)[0]
    assert torch.equal(y, other) and (y != 0).all()
    module.eval()
    assert not torch.equal(module(x)[0], module(x + 1)[0])


@both
def test_weights_match_torch_nn(kind):
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

    def data(output):
        return output.data if packed else output

    expected = data(module(x)[0])
    fresh = KINDS[kind](X, H, num_layers=2, bidirectional=True, eps=1e-2)
    fresh.load_state_dict(module.state_dict())
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), fresh):
        assert torch.equal(data(other(x)[0]), expected) and repr(other) == repr(module)
    doubled = {name: 2 * value for name, value in module.named_parameters()}
    called = torch.func.functional_call(module, doubled, (x,))[0]
    fresh.load_state_dict(doubled)
    assert torch.equal(data(called), data(fresh(x)[0]))
    assert data(fresh.double()(x.to(torch.float64))[0]).dtype == torch.float64


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
    packed = pack_padded_sequence(x, [4, 2, 1])
    cases = [
        (TypeError, "input should be a Tensor or a PackedSequence, got: list", lambda: module([1.0])),
        (ValueError, "input to be 2D or 3D, got 4D", lambda: module(x[None])),
        (RuntimeError, f"input_size {X}, got {X + 1}", lambda: module(torch.randn(4, 3, X + 1))),
        (ValueError, "weights' type torch.float32, got torch.float64", lambda: module(x.double())),
        (RuntimeError, rf"hx.* of shape \(2, 3, {H}\).*, got \(1, 3, {H}\)", lambda: module(x, two(1, 3, H))),
        (RuntimeError, "hx to be 3D, as input is, got 2D", lambda: module(x, two(2, H))),
        (RuntimeError, rf"hx.* of shape \(2, 3, {H}\)", lambda: module(packed, two(2, 4, H))),
        (TypeError, "hx should be a", lambda: module(x, [1])),
        (TypeError, "eps should be of type float, got: str", lambda: cls(X, H, eps="1")),
        (ValueError, "eps should be at least 0, got: -1", lambda: cls(X, H, eps=-1)),
        (ValueError, "eps should be at least 0, got: nan", lambda: cls(X, H, eps=float("nan"))),
        (ValueError, "input to be 1D or 2D, got 3D", lambda: cell(X, H)(x)),
        (RuntimeError, f"input_size {X}, got 2", lambda: cell(X, H)(torch.zeros(3, 2))),
        (RuntimeError, rf"hx.* of shape \(3, {H}\), got \(2, {H}\)", lambda: cell(X, H)(x[0], two(2, H))),
        (TypeError, "hx should be a", lambda: cell(X, H)(x[0], 3)),
        (TypeError, "eps should be of type float", lambda: cell(X, H, eps=None)),
    ]
    for error, message, call in cases:
        with pytest.raises(error, match=message):
            call()


@both
def test_norms_are_computed_by_evenorm(kind, monkeypatch):
    """The input is normalised once for all steps, the state in each step."""
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


# --- under autocast, the types of results are those of torch.nn


def results(module, x, state):
    output, end = module(x, state)
    return [output.data if isinstance(output, PackedSequence) else output, *parts_of(end)]


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch.nn.LSTM needs oneDNN for these types")
@pytest.mark.parametrize(
    "kind, options",
    [(kind, options) for kind in KINDS for options in ({}, {"num_layers": 2, "bidirectional": True})]
    + [("lstm", {"proj_size": 3})],
    ids=str,
)
@pytest.mark.parametrize("layout", ["batch", "no batch", "packed"])
@pytest.mark.parametrize("of_weights", [torch.float32, torch.bfloat16])
@pytest.mark.filterwarnings("ignore")  # PyTorch warns that projections have no fast kernel
def test_types_under_autocast_match_torch_nn(kind, options, layout, of_weights):
    half, wide = torch.bfloat16, torch.float32
    sizes = [options.get("proj_size", H), H][: 2 if kind == "lstm" else 1]
    layers = 4 if "num_layers" in options else 1
    leading = (layers,) if layout == "no batch" else (layers, 3)
    ours, theirs = (cls(X, H, **options, dtype=of_weights) for cls in (KINDS[kind], TORCH[KINDS[kind]]))
    for of_x in [half, wide] if torch.ops.mkldnn._is_mkldnn_bf16_supported() else [wide]:
        x = torch.randn(4, X, dtype=of_x) if layout == "no batch" else torch.randn(4, 3, X, dtype=of_x)
        x = pack_padded_sequence(x, [4, 2, 1]) if layout == "packed" else x
        for of_state in (None, wide, half):
            parts = tuple(torch.zeros(*leading, size, dtype=of_state) for size in sizes)
            state = None if of_state is None else parts if kind == "lstm" else parts[0]
            with torch.autocast("cpu", half):
                found = results(ours, x, state)
                try:
                    expected = results(theirs, x, state)
                except RuntimeError as error:
                    # PyTorch reports bfloat16 support, but oneDNN has no kernel for it on this CPU.
                    assert "could not create a primitive" in str(error)
                    pytest.skip(f"torch.nn's own module fails on this CPU: {str(error).splitlines()[0]}")
            assert [(t.dtype, t.shape) for t in found] == [(t.dtype, t.shape) for t in expected], (of_x, of_state)


@both
def test_float64_stays_float64_under_autocast(kind):
    with torch.autocast("cpu", torch.bfloat16):
        found = results(KINDS[kind](X, H, dtype=torch.float64), torch.randn(4, 3, X, dtype=torch.float64), None)
    assert {t.dtype for t in found} == {torch.float64}


@both
def test_cells_under_autocast(kind):
    """16-bit parameters with a float32 state, which torch.nn's cells accept too."""
    for dtype in (torch.float32, torch.bfloat16):
        ours, theirs = (cls(X, H, dtype=dtype) for cls in (CELLS[kind], TORCH[CELLS[kind]]))
        for of_x in (torch.float32, torch.bfloat16):
            with torch.autocast("cpu", torch.bfloat16):
                found, expected = (parts_of(cell(torch.randn(3, X, dtype=of_x))) for cell in (ours, theirs))
            assert [t.dtype for t in found] == [t.dtype for t in expected]
