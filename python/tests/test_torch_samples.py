"""PyTorch's own samples of its norms, run by evenorm.torch for every type, and the arguments that PyTorch refuses."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db
from torch_cases import DTYPES

import evenorm.torch

OURS = {"nn.functional.layer_norm": evenorm.torch.layer_norm, "nn.functional.rms_norm": evenorm.torch.rms_norm}
OPS = {op.name: op for op in op_db if op.name in OURS}


def points():
    for name, op in OPS.items():
        for dtype in sorted(op.supported_dtypes("cpu"), key=str):
            yield pytest.param(name, dtype, id=f"{name.rsplit('.', 1)[1]}-{dtype}")


def test_there_are_samples_of_both():
    assert set(OPS) == set(OURS)
    assert all(set(DTYPES) <= op.supported_dtypes("cpu") for op in OPS.values())


def tolerance(dtype):
    return {torch.float64: 1e-12, torch.float32: 2e-6, torch.complex64: 2e-6, torch.complex128: 1e-12}.get(dtype, 1e-2)


@pytest.mark.parametrize("name, dtype", list(points()))
def test_samples(name, dtype):
    op, ours = OPS[name], OURS[name]
    count = 0
    for sample in op.sample_inputs("cpu", dtype, requires_grad=dtype in op.supported_backward_dtypes("cpu")):
        count += 1
        theirs = op.op(sample.input, *sample.args, **sample.kwargs)
        found = ours(sample.input, *sample.args, **sample.kwargs)
        assert found.dtype == theirs.dtype and found.shape == theirs.shape
        assert found.stride() == theirs.stride() or not found.numel()
        assert found.requires_grad == theirs.requires_grad
        torch.testing.assert_close(found, theirs, rtol=tolerance(dtype), atol=tolerance(dtype))
        leaves = [t for t in (sample.input, *sample.args, *sample.kwargs.values())
                  if isinstance(t, torch.Tensor) and t.requires_grad]  # fmt: skip
        if not leaves:
            continue
        seed = torch.randn_like(theirs)
        for f, t in zip(torch.autograd.grad(found, leaves, seed), torch.autograd.grad(theirs, leaves, seed),
                        strict=True):  # fmt: skip
            assert f.dtype == t.dtype
            torch.testing.assert_close(f, t, rtol=20 * tolerance(dtype), atol=20 * tolerance(dtype))
    assert count


x = torch.randn(3, 5)
REFUSED = {
    "another trailing shape": lambda f: f(x, (4,)),
    "more axes than x": lambda f: f(x, (2, 3, 5)),
    "no axes": lambda f: f(x, ()),
    "a weight of another shape": lambda f: f(x, (5,), torch.ones(4)),
    "a weight of more axes than x": lambda f: f(x, (5,), torch.ones(1, 1, 5)),
    "whole numbers": lambda f: f(x.long(), (5,)),
    "an array": lambda f: f(x.numpy(), (5,)),
    "a weight that is a list": lambda f: f(x, (5,), [1.0] * 5),
    "a shape that is a number": lambda f: f(x, 5),
    "a weight elsewhere": lambda f: f(x, (5,), torch.ones(5, device="meta")),
    "eps that is a word": lambda f: f(x, (5,), eps="small"),
}
ONLY_LAYER = {
    "eps that is none": lambda f: f(x, (5,), eps=None),
    "a bias of another shape": lambda f: f(x, (5,), torch.ones(5), torch.ones(4)),
    "a weight of another type": lambda f: f(x, (5,), torch.ones(5, dtype=torch.bfloat16), torch.ones(5)),
    "parameters of another type": lambda f: f(x.double(), (5,), torch.ones(5), torch.ones(5)),
    "parameters of two types": lambda f: f(x.bfloat16(), (5,), torch.ones(5), torch.ones(5).bfloat16()),
}


@pytest.mark.parametrize("name, why", [(name, why) for name in OURS for why in (*REFUSED, *ONLY_LAYER)
                                       if "layer" in name or why in REFUSED])  # fmt: skip
def test_refusals_match_pytorchs(name, why):
    call = {**REFUSED, **ONLY_LAYER}[why]
    with pytest.raises(Exception) as theirs:
        call(OPS[name].op)
    with pytest.raises(theirs.type) as ours:
        call(OURS[name])
    assert str(ours.value) == str(theirs.value)


ACCEPTED = {
    "eps below 0": lambda f: f(x, (5,), eps=-0.01),
    "eps that is not a number": lambda f: f(x, (5,), eps=float("nan")),
    "infinite eps": lambda f: f(x, (5,), eps=float("inf")),
    "whole eps": lambda f: f(x, (5,), eps=1),
    "a list for the shape": lambda f: f(x, [5]),
    "a torch.Size": lambda f: f(x, x.shape),
    "no columns": lambda f: f(torch.ones(3, 0), (0,)),
    "no rows": lambda f: f(torch.ones(0, 3), (3,), torch.ones(3)),
    "one axis": lambda f: f(x[0], (5,)),
    "a parameter": lambda f: f(torch.nn.Parameter(x), (5,)),
    "a negated view": lambda f: f(torch.conj(x + 1j * x).imag, (5,)),
}


@pytest.mark.parametrize("function", OURS)
@pytest.mark.parametrize("why", ACCEPTED)
def test_what_pytorch_accepts_is_accepted(why, function):
    theirs = ACCEPTED[why](OPS[function].op)
    torch.testing.assert_close(ACCEPTED[why](OURS[function]), theirs, equal_nan=True)


@pytest.mark.parametrize("x_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("weight_dtype", DTYPES, ids=str)
def test_mixtures_of_types(x_dtype, weight_dtype):
    """Mixtures that PyTorch accepts give results of the same type; the others are refused."""
    x, weight = torch.randn(4, 6).to(x_dtype), torch.randn(6).to(weight_dtype)
    pairs = ((weight,), (None, weight), *((weight, weight.to(dtype)) for dtype in DTYPES))
    for name, ours in OURS.items():
        theirs = OPS[name].op
        for arguments in pairs if "layer" in name else pairs[:1]:
            try:
                expected = theirs(x, (6,), *arguments)
            except RuntimeError:
                with pytest.raises(RuntimeError):
                    ours(x, (6,), *arguments)
            else:
                torch.testing.assert_close(ours(x, (6,), *arguments), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_default_eps_of_rms_norm(dtype):
    x = (torch.randn(3, 8) * 1e-4).to(dtype)
    eps = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
    for function in (evenorm.torch.rms_norm, torch.compile(evenorm.torch.rms_norm, backend="eager")):
        assert torch.equal(function(x, (8,)), evenorm.torch.rms_norm(x, (8,), eps=eps))
    torch.testing.assert_close(evenorm.torch.rms_norm(x, (8,)), F.rms_norm(x, (8,)))
