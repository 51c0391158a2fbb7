"""Runs tests again with the operators registered in Python, as with a PyTorch that the build has no C++ operators for."""

import functools
import gc
import importlib
import os
import pathlib
import subprocess
import sys
import weakref

import pytest
import torch
from torch.autograd import forward_ad
from torch_cases import NATIVE, DispatchMode

import evenorm.torch

HERE = pathlib.Path(__file__).parent
NAMES = ("layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm", "layer_norm_backward", "rms_norm_backward")


def run_program(code, operators):
    environment = {**os.environ, "EVENORM_TORCH_OPERATORS": operators}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


@pytest.mark.skipif(not NATIVE, reason="these operators are already in use")
@pytest.mark.parametrize(
    "name", ["derivatives", "fallback", pytest.param("operators", marks=pytest.mark.slow), "samples"]
)
def test_without_cpp_operators(name):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / f"test_torch_{name}.py")]
    environment = {**os.environ, "EVENORM_TORCH_OPERATORS": "python"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=HERE.parent.parent)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-3000:]


def test_the_schemas_are_the_same():
    code = f"import torch, evenorm.torch; print(*[getattr(torch.ops.evenorm, n).default._schema for n in {NAMES}])"
    found, expected = (run_program(code, operators).stdout for operators in ("python", ""))
    assert found == expected and found.count("->") == len(NAMES)


def test_a_wrong_choice_is_reported():
    done = run_program("import evenorm.torch", "rust")
    assert done.returncode != 0
    assert "EVENORM_TORCH_OPERATORS is 'rust', but it should be 'c++' or 'python'" in done.stderr


def test_an_old_pytorch_is_refused():
    done = run_program("import torch; torch.__version__ = '2.9.1'; import evenorm.torch", "")
    assert "evenorm.torch needs PyTorch 2.10 or later, but this is PyTorch 2.9.1" in done.stderr


def test_another_pytorch_is_reported():
    code = "import torch; torch.__version__ = '2.99.1'; import evenorm.torch; print(evenorm.torch.info()['reason'])"
    done = run_program(code, "")
    assert "this is PyTorch 2.99.1, and this build has C++ operators for 2." in done.stdout, done.stderr


def test_importing_is_cheap():
    """Dynamo, sympy and ONNX take seconds together, and PyTorch imports them only when they are used."""
    code = "import sys, torch, evenorm.torch; print(*sorted({'sympy', 'torch._dynamo', 'torch.onnx'} & {*sys.modules}))"
    for operators in ("", "python"):
        assert run_program(code, operators).stdout.strip() == ""


# --- eager calls with the operators in Python: these tests run in test_without_cpp_operators()


eager = pytest.mark.skipif(NATIVE, reason="C++ operators are in use")


@pytest.fixture
def kernel_calls(monkeypatch):
    """A list that grows with each forward pass that comes through PyTorch's dispatcher."""
    core = importlib.import_module("evenorm._core")
    calls, write = [], core.write_norm
    monkeypatch.setattr(core, "write_norm", lambda *arguments: (calls.append(1), write(*arguments)))
    return calls


def operands(requires_grad=False):
    torch.manual_seed(0)
    return [torch.randn(5, 8, requires_grad=requires_grad)] + [
        torch.randn(8, requires_grad=requires_grad) for _ in range(2)
    ]


def norm(x, weight, bias):
    return evenorm.torch.layer_norm(x, (8,), weight, bias)


@eager
@pytest.mark.parametrize("requires_grad", [False, True])
def test_plain_tensors_bypass_the_dispatcher(kernel_calls, requires_grad):
    x, weight, bias = operands(requires_grad)
    y = norm(x, weight, bias)
    assert not kernel_calls and y.requires_grad == requires_grad
    assert torch.equal(y, torch.ops.evenorm.layer_norm(x, [8], weight, bias, eps=1e-5)) and kernel_calls


class FunctionMode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), keywords=None):
        return function(*arguments, **(keywords or {}))


@eager
@pytest.mark.parametrize("mode", [FunctionMode, DispatchMode])
def test_modes_see_the_operator(kernel_calls, mode):
    expected = norm(*operands())
    with mode():
        assert torch.equal(norm(*operands()), expected)
    assert len(kernel_calls) == 1


@eager
def test_transforms_and_traces_see_the_operator(kernel_calls):
    x, weight, bias = operands()
    vmapped = torch.vmap(lambda row: norm(row, weight, bias) + norm(x[0], weight, bias))(x)
    assert torch.equal(vmapped, norm(x, weight, bias) + norm(x[0], weight, bias)) and len(kernel_calls) >= 2
    with torch.no_grad():
        traced = torch.jit.trace(norm, (x, weight, bias))
    assert "evenorm::layer_norm" in str(traced.graph)


def tangent(function, x, along):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, along))).tangent


@eager
@pytest.mark.parametrize("compiled", [False, True])
def test_forward_mode(compiled):
    x, weight, bias = operands()
    along = torch.randn_like(x)
    expected = tangent(lambda x: torch.nn.functional.layer_norm(x, (8,), weight, bias), x, along)
    for transform in (tangent, lambda f, x, along: torch.func.jvp(f, (x,), (along,))[1]):
        derive = functools.partial(transform, lambda x: norm(x, weight, bias))
        found = (torch.compile(derive, backend="aot_eager") if compiled else derive)(x, along)
        torch.testing.assert_close(found, expected)


@eager
def test_operators_refuse_forward_mode():
    x, weight, bias = operands(requires_grad=True)
    refuses = functools.partial(pytest.raises, NotImplementedError, match=r"evenorm::layer_norm.* no forward mode")

    def operator(x):
        return torch.ops.evenorm.layer_norm(x, [8], weight, bias)

    with refuses():
        tangent(operator, x, x)
    for transform in (lambda f, x: torch.func.jvp(f, (x,), (x,)), lambda f, x: torch.func.vjp(f, x)):
        with refuses():
            transform(operator, x)
    y = norm(x, weight, bias)
    with refuses():  # forward over reverse
        tangent(lambda dy: torch.autograd.grad(y, x, dy)[0], torch.ones_like(y), torch.ones_like(y))


@eager
@pytest.mark.parametrize("call", [norm, lambda *given: torch.ops.evenorm.layer_norm(given[0], [8], *given[1:])])
def test_weight_is_kept_for_dx_alone(call):
    x, weight, bias = operands(requires_grad=True)
    y = call(x.detach(), weight, bias)
    (expected,) = torch.autograd.grad(y.sum(), weight, retain_graph=True)
    with torch.no_grad():
        weight.mul_(2)
    assert torch.equal(torch.autograd.grad(y.sum(), weight)[0], expected)


@eager
def test_other_layouts_take_the_dispatcher(kernel_calls):
    x, weight, bias = operands()
    expected = norm(x, weight, bias)
    others = [x.mT.contiguous().mT, torch._neg_view(-x), x.as_subclass(type("Own", (torch.Tensor,), {}))]
    for other in others:
        assert torch.equal(norm(other, weight, bias), expected)
    assert len(kernel_calls) == len(others)


@eager
def test_inference_mode_records_no_gradient():
    operands_that_do = operands(requires_grad=True)
    with torch.inference_mode(), torch.enable_grad():
        assert not norm(*operands_that_do).requires_grad
        assert not norm(operands_that_do[0] + 1, *operands_that_do[1:]).requires_grad


@eager
def test_a_shape_is_read_as_it_is_stored():
    class Shape(list):
        def __len__(self):
            raise KeyError

        def __iter__(self):
            return iter((5, 8))

    x, weight, bias = operands(requires_grad=True)
    y = evenorm.torch.layer_norm(x, Shape([8]), weight, bias)
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(y, norm(x, weight, bias)) and dx.shape == x.shape


@eager
def test_no_gradient_of_y_gives_none():
    class Stop(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return None

    x, weight, bias = operands(requires_grad=True)
    Stop.apply(norm(x, weight, bias)).sum().backward()
    assert x.grad is weight.grad is bias.grad is None


@eager
def test_results_are_released():
    x, weight, bias = operands(requires_grad=True)
    for _ in range(2):
        y, total = evenorm.torch.add_layer_norm(x, x.detach(), (8,), weight, bias)
        references = [weakref.ref(y), weakref.ref(total), weakref.ref(norm(y, weight, bias))]
        gc.disable()
        try:
            del y, total
            assert [reference() for reference in references] == [None] * 3
        finally:
            gc.enable()


@eager
def test_the_number_of_threads_changes_no_bit():
    x, before = torch.randn(4096, 256), torch.get_num_threads()
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(evenorm.torch.layer_norm(x, (256,)))
    torch.set_num_threads(before)
    assert torch.equal(*found)
