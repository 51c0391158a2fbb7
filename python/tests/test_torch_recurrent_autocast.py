"""The types of LayerNormLSTM's and LayerNormGRU's results under autocast match torch.nn's."""

import pytest
import torch
from test_torch_recurrent import CELLS, KINDS, TORCH, H, X, both, parts_of
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


def results(module, x, state):
    output, end = module(x, state)
    return [output.data if isinstance(output, nn.utils.rnn.PackedSequence) else output, *parts_of(end)]


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
    leading = (
        (4 if "num_layers" in options else 1,) if layout == "no batch" else (4 if "num_layers" in options else 1, 3)
    )
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
