"""Layer norm and RMS norm of PyTorch tensors. Decides which calls evenorm handles and which PyTorch's functions do."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.compiler import is_compiling
from torch.fx import Proxy
from torch.nn.parameter import is_lazy
from torch.overrides import has_torch_function
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from . import _dtensors, _sharded_dtensors
from ._operators import eager, native, operators
from ._tracing import is_recorded, record, run_while_tracing, sizes_of

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_HALVES = (torch.bfloat16, torch.float16)
_NORM_DEVICES = ("cpu", "meta")


def _has_rules(t: Tensor) -> bool:
    """True if t's class has rules for PyTorch's operators, as DTensor has. While compiling, only wrappers count."""
    if is_compiling():
        _dtensors.have_rules()  # registers them: Dynamo does not treat DTensors as wrappers, so the operators get them
        return is_traceable_wrapper_subclass(t)
    if _dtensors.is_dtensor(t):
        return not _dtensors.have_rules()
    if is_traceable_wrapper_subclass(t):
        return True
    if type(t).__torch_dispatch__ is Tensor.__torch_dispatch__:
        return False
    return not isinstance(t, (FakeTensor, FunctionalTensor))


def is_supported(t: object) -> TypeGuard[Tensor]:
    return (
        isinstance(t, Tensor)
        and t.device.type in _NORM_DEVICES
        and t.layout == torch.strided
        and t.dtype in _DTYPES
        and not t.is_nested
        and (is_compiling() or not is_lazy(t))
        and not _has_rules(t)
    )


def _override(cls: type[Tensor]) -> Any:
    return getattr(cls.__torch_function__, "__func__", cls.__torch_function__)


_NO_OVERRIDES = (_override(Tensor), torch._C._disabled_torch_function_impl)


def past_overrides(question: Callable[..., Any]) -> Callable[..., Any]:
    """Runs `question` without __torch_function__ of subclasses, which may refuse even to give a tensor's shape."""

    @functools.wraps(question)
    def asked(*arguments: Any) -> Any:
        if is_compiling():
            return question(*arguments)
        with torch._C.DisableTorchFunctionSubclass():
            return question(*arguments)

    return asked


def has_overrides(*tensors: object) -> bool:
    """True if the class of any of the tensors has its own __torch_function__."""
    return (
        not is_compiling()
        and has_torch_function(tensors)
        and any(isinstance(t, Tensor) and _override(type(t)) not in _NO_OVERRIDES for t in tensors)
    )


@run_while_tracing
def _has_derivatives() -> bool:
    """False where the operators lack derivatives that are taken."""
    return native is not None or eager.has_derivatives()  # type: ignore[no-any-return]


@past_overrides
def is_norm(x: object, normalized_shape: object, eps: object, *parameters: object) -> bool:
    """True if evenorm handles the call. The same conditions as in C++, for tensors that are not plain."""
    if not isinstance(normalized_shape, Sequence) or not isinstance(eps, (float, int)):
        return False
    if not is_supported(x):
        return False
    axes, sizes = len(normalized_shape), sizes_of(x)
    shape = tuple(normalized_shape)
    if not 0 < axes <= len(sizes) <= 64 or not all(isinstance(size, (int, torch.SymInt)) for size in shape):
        return False
    if not is_shape(sizes[-axes:], shape) or any(_is_size(size, 0) for size in shape):
        return False
    fits = all(
        p is None
        or (is_supported(p) and p.device == x.device and (is_shape(p.shape, shape) or broadcasts_to(p.shape, sizes)))
        for p in parameters
    )
    return fits and 0 <= eps <= sys.float_info.max


def is_shape(shape: Sequence[int], other: Sequence[int]) -> bool:
    """True if they are equal. Asks for the lengths first, because comparing symbolic sizes adds guards."""
    return len(shape) == len(other) and all(_is_size(n, size) for n, size in zip(shape, other, strict=True))


def broadcasts_to(shape: Sequence[int], to: Sequence[int]) -> bool:
    return len(shape) == len(to) and all(_is_size(n, size) or _is_size(n, 1) for n, size in zip(shape, to, strict=True))


def _is_size(n: int, size: int) -> bool:
    """n == size, but False if that depends on data while the call is compiled."""
    if not is_compiling():
        return n == size
    from torch.fx.experimental.symbolic_shapes import guard_or_false  # imports sympy, which takes a second

    return guard_or_false(n == size)


@past_overrides
def has_parameter_types(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> bool:
    """True if weight and bias have one type that PyTorch's layer norm allows: x's, or float32 with a 16-bit x."""
    dtypes = {p.dtype for p in (weight, bias) if p is not None}
    return not dtypes or (
        len(dtypes) == 1 and (x.dtype in dtypes or (torch.float32 in dtypes and x.element_size() == 2))
    )


@past_overrides
def _dtype(t: Tensor) -> Any:
    return t.dtype


def one_plus(weight: Tensor, wide: torch.dtype) -> Tensor:
    """The gamma of a zero-centred weight, in a type that holds small weights better than 16 bits do."""
    return weight.to(wide) + 1


def gamma_and_beta(rms: bool, x: Any, weight: Any, bias: Any) -> tuple[Any, Any]:
    """1 + weight and bias, in the type that evenorm computes in. What PyTorch's function refuses, it still refuses."""
    if weight is None:
        raise ValueError("weight is None, but zero_centered needs one")
    given = (x, weight) if bias is None else (x, weight, bias)
    if not all(isinstance(t, Tensor) for t in given):
        return weight, bias
    if not rms and not has_parameter_types(x, weight, bias):
        return one_plus(weight, _dtype(weight)), bias
    wide = functools.reduce(torch.promote_types, {_dtype(t) for t in given}, torch.float32)
    return one_plus(weight, wide), None if bias is None else bias.to(wide)


def by_pytorch(norm: Callable[..., Tensor], x: Any, gamma: Any, zero_centered: bool) -> Tensor:
    """norm(x), in float32 for a zero-centred weight: few devices have norms of a 16-bit x with float32 parameters."""
    if zero_centered and isinstance(x, Tensor) and _dtype(x) in _HALVES and _dtype(gamma) == torch.float32:
        return norm(x.float()).to(_dtype(x))
    return norm(x)


@past_overrides
def _default_eps(x: Tensor) -> float:
    return torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps


@past_overrides
def _can_add(x: Tensor, residual: Tensor) -> bool:
    return is_supported(residual) and is_shape(residual.shape, x.shape) and residual.device == x.device


def call(operator: Any, *arguments: Any, **options: Any) -> Any:
    """Calls the operator; returns NotImplemented if a class's __torch_function__ refuses it.

    Options that are None are left out, since torch.export.draft_export cannot take them. Classes refuse with exceptions
    of any type. If the error has another cause, PyTorch's own function raises it again.
    """
    given = {name: option for name, option in options.items() if option is not None}
    if is_compiling() or not has_torch_function((*arguments, *given.values())):
        return operator(*arguments, **given)
    try:
        return operator(*arguments, **given)
    except Exception:
        return NotImplemented


def _accepts(rms: bool, x: Any, shape: Any, weight: Any, bias: Any, eps: Any) -> bool:
    """True if evenorm normalises x. RMS norm has a default eps, and its parameters may have any type."""
    if not is_norm(x, shape, 0.0 if rms and eps is None else eps, weight, bias):
        return False
    return rms or has_parameter_types(x, weight, bias)


@past_overrides
def _has_shape_of(bias: Tensor, weight: Tensor | None, shape: Sequence[int]) -> bool:
    return is_shape(bias.shape, shape if weight is None else weight.shape)


def _of_one_shape(weight: Any, bias: Any, shape: Sequence[int]) -> tuple[Any, Any]:
    """Gives bias the shape of weight, and both that of their product if they broadcast to x along other axes.

    16-bit parameters become float32 then, so that their gradients are rounded once.
    """
    if bias is None or _has_shape_of(bias, weight, shape):
        return weight, bias
    both = (bias.new_ones(()) if weight is None else weight, bias)
    wide = (p.float() if p.dtype in _HALVES else p for p in both)
    return torch.broadcast_tensors(*wide)


def _pytorchs(rms: bool, shape: Sequence[int], weight: Any, bias: Any, eps: Any, x: Tensor) -> Tensor:
    if not rms:
        return F.layer_norm(x, shape, weight, bias, eps)
    y = F.rms_norm(x, shape, weight, eps)
    return y if bias is None else (y + bias).to(y.dtype)


def evenorms(rms: bool, x: Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float | None) -> Any:
    """Normalises by evenorm's operator or by the sharded norm. NotImplemented for what PyTorch's function should take."""
    if not _accepts(rms, x, shape, weight, bias, eps):
        return NotImplemented
    number: Any = _default_eps(x) if rms and eps is None else eps
    if not _has_derivatives():
        return eager.composed_norm(rms, x, shape, weight, bias, number)
    axis = _sharded_dtensors.mesh_axis_of_columns(x, shape, weight, bias)
    if axis is not None:
        return _sharded_dtensors.norm(x, weight, bias, number, rms, axis)
    weight, bias = _of_one_shape(weight, bias, shape)
    operator = operators.rms_norm if rms else operators.layer_norm
    return call(operator, x, shape, weight=weight, bias=bias, eps=number)


def _norm(rms: bool, x: Tensor, shape: Any, weight: Any, bias: Any, eps: Any, zero_centered: bool) -> Tensor:
    """Normalises what the eager entries do not take. weight and bias are those of `gamma_and_beta` if zero_centered."""
    if is_recorded(x, weight, bias, zero_centered=zero_centered):
        options = dict(weight=weight, bias=bias, eps=eps, zero_centered=zero_centered)
        return record(rms_norm if rms else layer_norm, x, shape, **options)  # type: ignore[no-any-return]
    y = evenorms(rms, x, shape, weight, bias, eps)
    pytorchs = functools.partial(_pytorchs, rms, shape, weight, bias, eps)
    return by_pytorch(pytorchs, x, weight, zero_centered) if y is NotImplemented else y


def _along(norm: Callable[..., Any], dim: Any, shape: Sequence[int], *tensors: Tensor, **options: Any) -> Any:
    """Calls norm(*tensors, shape) with the axes `dim` of tensors last, and moves the axes of its results back."""
    axes = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(axes) != len(shape):
        raise ValueError(f"dim has {len(axes)} axes ({dim}), but normalized_shape has {len(shape)} ({tuple(shape)})")
    last = tuple(range(-len(axes), 0))
    results = norm(*(t.movedim(axes, last) if isinstance(t, (Tensor, Proxy)) else t for t in tensors), shape, **options)
    if isinstance(results, (Tensor, Proxy)):
        return results.movedim(last, axes)
    return tuple(result.movedim(last, axes) for result in results)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    dim: int | Sequence[int] | None = None,
    zero_centered: bool = False,
) -> Tensor:
    """Layer norm over the trailing axes: torch.nn.functional.layer_norm, more accurate and faster on CPUs.

    Args:
        input: a tensor whose shape ends in `normalized_shape`; float32, float64, bfloat16 or float16; any strides.
        normalized_shape: the sizes of the axes to normalise together.
        weight, bias: tensors of input's type, or float32 with a 16-bit input. Their shape is `normalized_shape`, or has
            as many axes as input, each as long as input's or 1. None: 1 and 0.
        eps: added to the (biased) variance.
        dim: the axes to normalise together, instead of the trailing ones. `normalized_shape` has their sizes. The result
            is then contiguous with these axes last: for images and dim=1, channels-last.
        zero_centered: multiply by 1 + weight, in float32, or in float64 if a parameter or input is. Without a weight, a
            ValueError. Gradients of 16-bit parameters are rounded to float32 first.

    Returns:
        A tensor of input's shape and type: contiguous, or of input's strides if weight has its axes. A row has
        the same bits in any batch, for any number of threads, in eager, compiled and exported code.

    PyTorch's own function handles all other arguments and raises its own errors; see docs/python.md.

    >>> layer_norm(torch.tensor([[4.0, 2.0, 8.0]]), (3,))
    tensor([[-0.2673, -1.0690,  1.3363]])
    """
    if dim is not None:
        options = dict(weight=weight, bias=bias, eps=eps, zero_centered=zero_centered)
        return _along(layer_norm, dim, normalized_shape, input, **options)  # type: ignore[no-any-return]
    if zero_centered:
        weight, bias = gamma_and_beta(False, input, weight, bias)
    if not is_compiling():
        y = eager.layer_norm(input, normalized_shape, weight, bias, eps)
        if y is not NotImplemented:
            return y  # type: ignore[no-any-return]
    return _norm(False, input, normalized_shape, weight, bias, eps, zero_centered)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    bias: Tensor | None = None,
    dim: int | Sequence[int] | None = None,
    zero_centered: bool = False,
) -> Tensor:
    """RMS norm over the trailing axes: torch.nn.functional.rms_norm in one pass, and more accurate.

    Args:
        input, normalized_shape, dim, zero_centered: as in `layer_norm`.
        weight, bias: tensors of the shapes that `layer_norm` takes and of any type that input may have. None: 1 and 0.
        eps: added to the mean of squares. None: the machine epsilon of float64 for a float64 input, else of float32.

    Returns:
        A tensor of input's shape and type, rounded once.

    >>> rms_norm(torch.tensor([[3.0, 4.0]]), (2,), eps=0.0)
    tensor([[0.8485, 1.1314]])
    """
    if dim is not None:
        options = dict(weight=weight, bias=bias, eps=eps, zero_centered=zero_centered)
        return _along(rms_norm, dim, normalized_shape, input, **options)  # type: ignore[no-any-return]
    if zero_centered:
        weight, bias = gamma_and_beta(True, input, weight, bias)
    if not is_compiling():
        y = eager.rms_norm(input, normalized_shape, weight, bias, eps)
        if y is not NotImplemented:
            return y  # type: ignore[no-any-return]
    return _norm(True, input, normalized_shape, weight, bias, eps, zero_centered)


def _broadcast(input: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """Expands both to the shape of their sum, so that the sum is rounded once for any shapes."""
    if not isinstance(residual, Tensor) or _need_no_expansion(input, residual):
        return input, residual
    expanded = call(torch.broadcast_tensors, input, residual)
    return (input, residual) if expanded is NotImplemented else expanded


@past_overrides
def _need_no_expansion(a: Tensor, b: Tensor) -> bool:
    """True for equal shapes, and for nested tensors, which are left to PyTorch: they may not have a shape."""
    return a.is_nested or b.is_nested or is_shape(a.shape, b.shape)


def _add_norm(
    rms: bool, x: Any, residual: Any, shape: Any, weight: Any, bias: Any, eps: Any, scale: float, zero_centered: bool
) -> tuple[Tensor, Tensor]:
    """Like `_norm`, for the sum of x and a residual."""
    if is_recorded(x, residual, weight, bias, zero_centered=zero_centered):
        options = dict(weight=weight, bias=bias, eps=eps, residual_scale=scale, zero_centered=zero_centered)
        return record(add_rms_norm if rms else add_layer_norm, x, residual, shape, **options)  # type: ignore[no-any-return]
    if isinstance(scale, int):
        float(scale)  # raises OverflowError for an int that no float holds, as PyTorch's functions do for eps
    x, residual = _broadcast(x, residual)
    if _has_derivatives() and _accepts(rms, x, shape, weight, bias, eps) and _can_add(x, residual):
        number: Any = _default_eps(x) if rms and eps is None else eps
        weight, bias = _of_one_shape(weight, bias, shape)
        operator = operators.add_rms_norm if rms else operators.add_layer_norm
        both = call(operator, x, residual, shape, weight=weight, bias=bias, eps=number, residual_scale=scale)
        if both is not NotImplemented:
            return both  # type: ignore[no-any-return]
    s = (x + scale * residual).to(_dtype(x))
    return _norm(rms, s, shape, weight, bias, eps, zero_centered), s


def add_layer_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    residual_scale: float = 1.0,
    *,
    dim: int | Sequence[int] | None = None,
    zero_centered: bool = False,
) -> tuple[Tensor, Tensor]:
    """Layer norm of s = input + residual_scale * residual, in one pass forward and backward. Returns the norm and s.

    Args:
        residual: a tensor of any type that input may have. Its shape broadcasts with input's, as in input + residual.
        residual_scale: a finite number.
        input, normalized_shape, weight, bias, eps, dim, zero_centered: as in `layer_norm`.

    Returns:
        (layer_norm(s), s), both contiguous and of input's type. s is rounded once, before it is normalised.

    >>> y, s = add_layer_norm(torch.tensor([4.0, 2.0, 8.0]), torch.tensor([0.0, 2.0, -4.0]), (3,))
    >>> s
    tensor([4., 4., 4.])
    >>> y
    tensor([0., 0., 0.])
    """
    if dim is not None:
        input, residual = _broadcast(input, residual)
        options = dict(weight=weight, bias=bias, eps=eps, residual_scale=residual_scale, zero_centered=zero_centered)
        return _along(add_layer_norm, dim, normalized_shape, input, residual, **options)  # type: ignore[no-any-return]
    if zero_centered:
        weight, bias = gamma_and_beta(False, input, weight, bias)
    if not is_compiling():
        both = eager.add_layer_norm(input, residual, normalized_shape, weight, bias, eps, residual_scale)
        if both is not NotImplemented:
            return both  # type: ignore[no-any-return]
    return _add_norm(False, input, residual, normalized_shape, weight, bias, eps, residual_scale, zero_centered)


def add_rms_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    residual_scale: float = 1.0,
    *,
    bias: Tensor | None = None,
    dim: int | Sequence[int] | None = None,
    zero_centered: bool = False,
) -> tuple[Tensor, Tensor]:
    """RMS norm of s = input + residual_scale * residual, in one pass. See `add_layer_norm` and `rms_norm`.

    >>> y, s = add_rms_norm(torch.tensor([1.0, 5.0]), torch.tensor([2.0, -1.0]), (2,), eps=0.0)
    >>> s
    tensor([3., 4.])
    >>> y
    tensor([0.8485, 1.1314])
    """
    if dim is not None:
        input, residual = _broadcast(input, residual)
        options = dict(weight=weight, bias=bias, eps=eps, residual_scale=residual_scale, zero_centered=zero_centered)
        return _along(add_rms_norm, dim, normalized_shape, input, residual, **options)  # type: ignore[no-any-return]
    if zero_centered:
        weight, bias = gamma_and_beta(True, input, weight, bias)
    if not is_compiling():
        both = eager.add_rms_norm(input, residual, normalized_shape, weight, bias, eps, residual_scale)
        if both is not NotImplemented:
            return both  # type: ignore[no-any-return]
    return _add_norm(True, input, residual, normalized_shape, weight, bias, eps, residual_scale, zero_centered)
