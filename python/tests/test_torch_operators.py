"""The operators in PyTorch: schemas, fake tensors, compilers, export and modes, with the same bits everywhere."""

import copy
import io
import itertools
import pickle
import re

import pytest
import torch
import torch.nn.functional as F
import torch.nn.utils.parametrize
import torch.nn.utils.prune
from torch._inductor.utils import run_and_get_code
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode
from torch_cases import DTYPES, NAMES, assert_same_bits, case, outputs
from torch_look_alikes import C, ZeroCentred, made, randomised

import evenorm.torch
from evenorm.torch import _inductor

OPS = torch.ops.evenorm
FUSED = (evenorm.torch.add_layer_norm, evenorm.torch.add_rms_norm)


def operator_calls(dtype=torch.float32):
    x, r, dy = (torch.randn(3, 4, 6, dtype=torch.float64).to(dtype) for _ in range(3))
    w, b = torch.randn(4, 6).to(dtype), torch.randn(4, 6).to(dtype)
    all_three, some = [True] * 3, [False, True, False]
    return {
        "layer_norm": [(x, [4, 6], w, b, 1e-3), (x, [6], None, None, 1e-3), (x.mT, [6, 4], w.mT, b.mT, 1e-3)],
        "rms_norm": [(x, [4, 6], w, b, 1e-3), (x, [6], None, None, 1e-3), (x.mT, [6, 4], w.mT, None, 1e-3)],
        "add_layer_norm": [(x, r, [4, 6], w, b, 1e-3, 0.5), (x.mT, r.mT, [4], None, None, 1e-3, 1.0)],
        "add_rms_norm": [(x, r, [4, 6], w, b, 1e-3, 0.5), (x.mT, r.mT, [4], None, None, 1e-3, 1.0)],
        "group_norm": [(x, 2, w[:, 0], b[:, 0], 1e-3), (x.mT, 3, None, None, 1e-3)],
        "layer_norm_backward": [
            (dy, x, [4, 6], w, dtype, 1e-3, all_three), (dy, x, [6], None, None, 1e-3, some),
            (dy, x, [4, 6], w, torch.float32, 1e-3, all_three, r),
        ],
        "rms_norm_backward": [
            (dy, x, [4, 6], w, dtype, 1e-3, all_three), (dy, x, [6], None, None, 1e-3, [True, False, False], r),
        ],
    }  # fmt: skip


@pytest.mark.parametrize("name", operator_calls())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_opcheck(name, dtype):
    operator = getattr(OPS, name).default
    options = [argument.name for argument in operator._schema.arguments if argument.kwarg_only]
    for given in operator_calls(dtype)[name]:
        arguments = given[: len(given) - len(options)]
        named = dict(zip(options, given[len(arguments) :], strict=True))
        leaves = tuple(a.detach().clone().requires_grad_() if isinstance(a, torch.Tensor) else a for a in arguments)
        torch.library.opcheck(operator, leaves, named)
        torch.library.opcheck(operator, arguments, named)


COMPILATIONS = [(name, backend, dtype) for name in NAMES for backend in ("eager", "aot_eager") for dtype in DTYPES]
COMPILATIONS += [(name, "inductor", torch.float32) for name in NAMES if "plain" not in name]  # slow: seconds each


@pytest.mark.parametrize("name, backend, dtype", COMPILATIONS, ids=str)
def test_compiled_has_the_bits_of_eager(name, backend, dtype):
    torch._dynamo.reset()
    c = case(name, dtype, (5, 40))
    compiled = torch.compile(c.function, fullgraph=True, backend=backend, dynamic=False)
    seeds = [torch.randn(5, 40, dtype=torch.float64).to(dtype) for _ in outputs(c.function(*c.tensors))]
    eager, found = c.function(*c.tensors), compiled(*c.tensors)
    assert_same_bits(eager, found)
    assert_same_bits(
        torch.autograd.grad(outputs(eager), c.tensors, seeds), torch.autograd.grad(outputs(found), c.tensors, seeds)
    )


def test_inductor_calls_the_eager_entries():
    """Also with what they refuse: function modes, and types that only the operators take."""
    torch._dynamo.reset()
    x, module, wide = torch.randn(5, 8), evenorm.torch.LayerNorm(8), torch.rand(8, dtype=torch.float64)

    def norms(x):
        return module(x) * 2, torch.ops.evenorm.layer_norm(x, [8], weight=wide) * 2

    compiled = torch.compile(norms, fullgraph=True)
    found, (code, *_) = run_and_get_code(torch.no_grad(compiled), x)
    assert code.count("evenorm.torch._inductor.layer_norm(") == 2
    with torch.device("cpu"), torch.no_grad():
        for results in (found, compiled(x)):
            assert all(map(torch.equal, results, norms(x)))


def test_inductor_lets_results_take_the_memory_of_x(monkeypatch):
    """Only if nothing else reads x, if x has all of its memory, and in versions of PyTorch that were tested."""
    norm, rms, wide = evenorm.torch.LayerNorm(8), evenorm.torch.RMSNorm(8), torch.rand(8, dtype=torch.float64)

    def four(x):
        twice = x.cumsum(0)  # one of its norms is the last
        view = (x * 2).view(20, 8).cumsum(0).view(x.shape)
        return norm(x * 3), OPS.layer_norm(x * 4, [8], weight=wide), norm(twice), rms(twice), norm(view)

    def none(x):
        result, part, weight = x.cumsum(1), torch.cat([x * 2, x]).cumsum(0)[:4], x.view(160).cumsum(0)
        transposed = evenorm.torch.rms_norm((x * 3).mT, (5,))
        return norm(x), result, norm(result), norm(part), transposed, OPS.rms_norm(weight, [160], weight=weight)

    x = torch.randn(4, 5, 8)
    for function, count, is_tested in ((four, 4, True), (none, 0, True), (four, 0, False)):
        monkeypatch.setattr(_inductor, "IS_TESTED", is_tested)
        torch._dynamo.reset()
        with torch._inductor.config.patch(force_disable_caches=True):
            found, (code, *_) = run_and_get_code(torch.no_grad(torch.compile(function, fullgraph=True)), x)
        assert code.count("_norm_(") == count
        with torch.no_grad():
            assert_same_bits(function(x), found)


def test_compiled_for_any_shape():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    norm = evenorm.torch.LayerNorm(24)
    compiled = torch.compile(norm, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (1, 2, 7, 1000):
        x = torch.randn(rows, 24, requires_grad=True)
        assert_same_bits(norm(x), compiled(x))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = evenorm.torch.LayerNorm(16), evenorm.torch.RMSNorm(16)
        self.linear = torch.nn.Linear(16, 16)

    def forward(self, x):
        return self.second(x + self.linear(self.first(x)))


@pytest.mark.parametrize("strict", [False, True])
def test_exported_has_the_bits_of_eager(strict):
    block = Block().eval()
    x = torch.randn(3, 16)
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(block, (x,), dynamic_shapes={"x": {0: rows}}, strict=strict)
    targets = [str(node.target) for node in program.graph.nodes]
    assert "evenorm.layer_norm.default" in targets and "evenorm.rms_norm.default" in targets
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for count in (3, 2, 100):
        x = torch.randn(count, 16)
        assert_same_bits(block(x), loaded(x))


@pytest.mark.parametrize("kind", ["LayerNorm", "RMSNorm"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_leaves_it_alone(kind, dtype):
    with torch.autocast("cpu", dtype):
        for x in (torch.randn(3, 16), torch.randn(3, 16).to(dtype)):
            assert getattr(evenorm.torch, kind)(16)(x).dtype == getattr(torch.nn, kind)(16)(x).dtype == x.dtype


def test_modes():
    x = torch.randn(3, 16)
    norm = evenorm.torch.LayerNorm(16)
    plain = norm(x)
    assert_same_bits(plain, norm(x))
    with torch.inference_mode():
        assert norm(x).is_inference()
        assert_same_bits(plain, norm(x))
    with torch.device("cpu"):  # a torch function mode
        assert_same_bits(plain, norm(x))
    seen = []

    class Spy(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Spy():
        norm(x).sum().backward()
    assert "evenorm.layer_norm.default" in seen and "evenorm.layer_norm_backward.default" in seen
    with torch.device("meta"):
        assert evenorm.torch.LayerNorm(16)(torch.randn(3, 16)).device.type == "meta"


class Logged(torch.Tensor):
    """A subclass with its own rule for PyTorch's functions."""

    calls: list = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.calls.append(getattr(function, "__name__", str(function)))
        return super().__torch_function__(function, types, args, kwargs or {})


def test_subclasses():
    x = torch.randn(3, 16)
    y = evenorm.torch.LayerNorm(16)(x.as_subclass(Logged))
    assert isinstance(y, Logged) and Logged.calls
    assert_same_bits(evenorm.torch.layer_norm(x, (16,)), y.as_subclass(torch.Tensor))


class Wrapped(torch.Tensor):
    """A wrapper tensor with rules for some of PyTorch's operators, but none for flattening."""

    known = ("native_layer_norm.default", "add.Tensor", "mul.Tensor", "detach.default")
    known += ("pow.Tensor_Scalar", "mean.dim", "add.Scalar", "add_.Scalar", "rsqrt.default")  # PyTorch's rms_norm

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, strides=held.stride())

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if str(function).removeprefix("aten.") not in cls.known:
            return NotImplemented
        plain = torch.utils._pytree.tree_map_only(cls, lambda t: t.held, (args, kwargs or {}))
        return torch.utils._pytree.tree_map_only(torch.Tensor, cls, function(*plain[0], **plain[1]))


@pytest.mark.parametrize("places", [(0,), (0, 1), (1,)], ids=str)
def test_wrappers_with_rules_for_pytorchs_operators(places):
    x, weight, bias = torch.randn(3, 16), torch.randn(16), torch.randn(16)
    given = [Wrapped(t) if i in places else t for i, t in enumerate((x, weight))]
    with torch.no_grad():
        for name, rest in (("layer_norm", (bias,)), ("rms_norm", (1e-5,))):
            y, exact = (getattr(module, name)(given[0], (16,), given[1], *rest) for module in (evenorm.torch, F))
            assert type(y) is type(exact) is Wrapped
            assert_same_bits(y.held, exact.held)


def test_a_wrapped_residual():
    x, residual = torch.randn(3, 16), torch.randn(3, 16)
    with torch.no_grad():
        for function in FUSED:
            y, s = function(x, Wrapped(residual), (16,), residual_scale=0.5)
            assert_same_bits(s.held, x + 0.5 * residual)
            torch.testing.assert_close(y.held, function(x, residual, (16,), residual_scale=0.5)[0])


def test_functional_and_fake_tensors_use_the_operators(monkeypatch):
    from torch.fx.experimental.proxy_tensor import make_fx

    def norm(x):
        return evenorm.torch.layer_norm(x, (16,)) + 1

    for mode in ("real", "fake", "symbolic"):
        for function in (norm, torch.func.functionalize(norm)):
            graph = make_fx(function, tracing_mode=mode)(torch.randn(3, 16)).graph
            assert "evenorm.layer_norm.default" in [str(node.target) for node in graph.nodes], mode
    monkeypatch.setattr(F, "layer_norm", None)  # PyTorch's function must not be called
    with FakeTensorMode() as fakes, FunctionalTensorMode():
        assert norm(FunctionalTensor.to_functional(fakes.from_tensor(torch.ones(3, 16)))).shape == (3, 16)


@pytest.mark.parametrize("ours, theirs", [(evenorm.torch.LayerNorm, torch.nn.LayerNorm),
                                          (evenorm.torch.RMSNorm, torch.nn.RMSNorm)])  # fmt: skip
def test_modules_match_pytorchs(ours, theirs):
    options = [dict(), dict(eps=1e-3), dict(elementwise_affine=False), dict(dtype=torch.bfloat16), dict(device="meta")]
    options += [dict(bias=False)] if ours is evenorm.torch.LayerNorm else []
    for shape, option in itertools.product((16, (16,), [3, 16]), options):
        a, b = ours(shape, **option), theirs(shape, **option)
        assert isinstance(a, theirs) and repr(a) == repr(b) and a.state_dict().keys() == b.state_dict().keys()
    module = ours(16)
    torch.nn.init.normal_(module.weight)
    x = torch.randn(3, 16)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(other) is ours
        assert_same_bits(module(x), other(x))


class Doubled(torch.nn.Module):
    def forward(self, weight):
        return 2 * weight


def set_attribute(norm):
    del norm.weight
    norm.weight = torch.arange(8.0)


# Changes after which a module's weight is not in its _parameters, or is another tensor.
CHANGES = {
    "parametrized": lambda norm: torch.nn.utils.parametrize.register_parametrization(norm, "weight", Doubled()),
    "pruned": lambda norm: torch.nn.utils.prune.custom_from_mask(norm, "weight", (torch.arange(8) % 2).float()),
    "replaced": lambda norm: setattr(norm, "weight", torch.nn.Parameter(torch.arange(8.0))),
    "attribute": set_attribute,
}


@pytest.mark.parametrize("kind", ["LayerNorm", "RMSNorm"])
def test_modules_find_parameters_where_pytorchs_do(kind):
    x, results = torch.randn(5, 8), []
    for module in (evenorm.torch, torch.nn):
        make = getattr(module, kind)
        results.append([torch.func.functional_call(make(8), {"weight": torch.arange(8.0)}, (x,))])
        for change in CHANGES.values():
            norm = make(8)
            change(norm)
            results[-1].append(norm(x))
        without = make(8)
        del without.weight
        with pytest.raises(AttributeError, match="no attribute 'weight'"):
            without(x)
    torch.testing.assert_close(*results)


def test_keywords():
    x = torch.randn(2, 4)
    assert_same_bits(evenorm.torch.LayerNorm(4)(input=x), evenorm.torch.LayerNorm(4)(x))
    assert_same_bits(evenorm.torch.RMSNorm(4)(x=x), evenorm.torch.RMSNorm(4)(x))


def test_info():
    info = evenorm.torch.info()
    assert info["torch"] == torch.__version__
    assert (info["operators"], bool(info["reason"])) in (("C++", False), ("Python", True))


@pytest.mark.parametrize("shapes", [((1, 4), (4,)), ((3, 4), (1, 4)), ((4,), (3, 4)), ((2, 1, 4), (3, 1))], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_residual_of_another_shape_is_expanded(dtype, shapes):
    """The sum, its norm and the gradients have the bits that they have for expanded tensors."""
    x, residual = (torch.randn(shape, generator=torch.Generator().manual_seed(7)).to(dtype) for shape in shapes)
    weight = torch.randn(4).to(dtype)
    for function in FUSED:
        given = [t.clone().requires_grad_() for t in (x, residual)]
        expanded = [t.clone().requires_grad_() for t in torch.broadcast_tensors(x, residual)]
        found = function(*given, (4,), weight, residual_scale=0.3)
        exact = function(*expanded, (4,), weight, residual_scale=0.3)
        assert_same_bits(found, exact)
        for results in (found, exact):
            torch.autograd.backward(results, [torch.ones_like(t) for t in results])
        for g, e in zip(given, expanded, strict=True):
            assert_same_bits(g.grad, e.grad.sum_to_size(g.shape))


class Refusing(torch.Tensor):
    """A class that accepts some of PyTorch's functions and refuses all else, attributes included."""

    error: type[Exception] | None = RuntimeError
    known = (F.layer_norm, F.rms_norm, torch.Tensor.mul, torch.Tensor.__rmul__, torch.Tensor.add, torch.Tensor.to)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in cls.known:
            return super().__torch_function__(func, types, args, kwargs).as_subclass(torch.Tensor)
        if cls.error is None:
            return NotImplemented
        raise cls.error(f"cannot handle {func}")


@pytest.mark.parametrize("error", [None, RuntimeError, NotImplementedError, TypeError, KeyError], ids=str)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_tensors_of_classes_that_refuse_go_to_pytorch(error, place):
    cls = type("Refused", (Refusing,), {"error": error})
    x, weight, bias = torch.randn(3, 16), torch.randn(16), torch.randn(16)
    given = [t.as_subclass(cls) if i == place else t for i, t in enumerate((x, weight, bias))]
    layer = F.layer_norm(x, (16,), weight, bias)
    assert torch.equal(evenorm.torch.layer_norm(given[0], (16,), given[1], given[2]), layer)
    norm = evenorm.torch.LayerNorm(16)
    norm.weight = norm.bias = None
    norm._parameters.update(weight=given[1], bias=given[2])
    assert torch.equal(norm(given[0]), layer)
    if place < 2:
        assert torch.equal(evenorm.torch.rms_norm(given[0], (16,), given[1]), F.rms_norm(x, (16,), weight))
    residual = torch.randn(3, 16)
    for first, second in ((given[0], residual), (residual, given[0])):
        y, s = evenorm.torch.add_layer_norm(first, second, (16,), given[1], given[2])
        assert torch.equal(s, x + residual)
        torch.testing.assert_close(y, F.layer_norm(s, (16,), weight, bias))


def test_per_sample_gradients():
    """torch.nn's expanded weights support only torch.nn.functional.layer_norm."""
    from torch.nn.utils._per_sample_grad import call_for_per_sample_grads

    x, found = torch.randn(5, 3, 8), []
    for norm in (evenorm.torch.LayerNorm(8), torch.nn.LayerNorm(8)):
        call_for_per_sample_grads(norm, batch_size=5)(x).square().sum().backward()
        found.append([norm.weight.grad_sample, norm.bias.grad_sample])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_converted_norm_runs_its_own_forward_on_tensors_that_refuse():
    module = made(lambda m, x: F.rms_norm(x, (C,), m.weight, 1e-6))
    assert len(evenorm.torch.convert(module).replaced) == 1
    x = torch.randn(3, C)
    assert torch.equal(module(x.as_subclass(Refusing)), F.rms_norm(x, (C,), module.weight, 1e-6))


def laid_out(shape):
    """Tensors of one shape in different memory layouts."""
    axes = list(range(len(shape)))
    yield torch.randn(shape)
    yield torch.randn(shape[::-1]).permute(axes[::-1])
    yield torch.randn([2 * size for size in shape])[tuple(slice(size) for size in shape)]
    yield torch.randn(()).expand(shape)
    if len(shape) > 1:
        yield torch.randn(*shape[:-2], shape[-1], shape[-2]).mT
        yield torch.randn(shape[1], shape[0], *shape[2:]).transpose(0, 1)
    if len(shape) > 3:
        yield torch.randn(shape).to(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("axes", [1, 2])
def test_gradients_have_the_same_bits_in_any_layout(axes, name):
    shape = (4, 8, 6, 40)  # large enough for kept statistics
    weight = torch.randn(shape[-axes:], requires_grad=True)
    for x, dy in itertools.product(laid_out(shape), laid_out(shape)):
        gradients = []
        for one in (x, x.contiguous()):
            one.requires_grad_()
            y = getattr(evenorm.torch, name)(one, shape[-axes:], weight, eps=1e-5)
            gradients.append(torch.autograd.grad(y, (one, weight), dy if one is x else dy.contiguous()))
        assert_same_bits(*gradients)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_strides_match_pytorchs(rank, dtype, name):
    ours, theirs = getattr(evenorm.torch, name), getattr(F, name)
    for shape in itertools.product((0, 1, 3) if rank < 5 else (0, 3), repeat=rank):
        for x, axes in itertools.product(laid_out(shape), range(1, rank + 1)):
            normalized = shape[-axes:]
            if 0 in normalized:
                continue
            x = x.to(dtype)
            for weight in (None, torch.ones(normalized, dtype=dtype)):
                found, expected = ours(x, normalized, weight).stride(), theirs(x, normalized, weight).stride()
                on_meta = torch.empty_strided(shape, x.stride(), dtype=dtype, device="meta")
                meta = ours(on_meta, normalized, None if weight is None else weight.to("meta"))
                # Strides of axes with one element are arbitrary, and PyTorch's depend on how it computed the norm. On the
                # meta device, 2.10 finds others than on the CPU.
                matter = [axis for axis, size in enumerate(shape) if size != 1 or 0 in shape]
                exact = range(rank) if torch.__version__ >= "2.11" else matter
                assert [meta.stride(axis) for axis in exact] == [found[axis] for axis in exact], (shape, axes)
                assert [found[axis] for axis in matter] == [expected[axis] for axis in matter], (shape, axes)


@pytest.mark.parametrize("axes", [1, 2, 4])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_bits_do_not_depend_on_the_layout(name, axes):
    shape, norm = (2, 6, 4, 5), getattr(evenorm.torch, name)
    seed = torch.randn(shape)
    for x in laid_out(shape):
        leaf, dense = x.detach().requires_grad_(), x.detach().contiguous().requires_grad_()
        results = [norm(t, shape[-axes:]) for t in (leaf, dense)]
        assert_same_bits(*results)
        for result, given in zip(results, (seed.mT.contiguous().mT, seed), strict=True):
            result.backward(given)
        assert_same_bits(leaf.grad, dense.grad)
        for function in FUSED:
            assert_same_bits(function(x, seed, shape[-axes:]), function(x.contiguous(), seed, shape[-axes:]))


def test_strides_of_an_empty_rms_norm():
    assert evenorm.torch.RMSNorm(4)(torch.randn(0, 1, 4)).stride() == (4, 4, 1)
    x = torch.randn(0, 1, 4)
    compiled = torch.compile(evenorm.torch.RMSNorm(4), backend="aot_eager")
    assert compiled(x).stride() == (4, 4, 1)
    with FakeTensorMode() as mode:
        fake = OPS.rms_norm(mode.from_tensor(x), [4], mode.from_tensor(torch.ones(4)), None, eps=1e-5)
        assert fake.stride() == (4, 4, 1)


class Whole(int):
    """An int subclass."""


@pytest.mark.parametrize("kind", [int, Whole])
@pytest.mark.parametrize("function", [evenorm.torch.layer_norm, evenorm.torch.rms_norm, *FUSED])
def test_an_int_that_no_float_holds(function, kind):
    tensors = [torch.ones(2, 3)] * (2 if function in FUSED else 1)
    for name in ("eps", "residual_scale") if function in FUSED else ("eps",):
        with pytest.raises(OverflowError, match="^int too large to convert to float$"):
            function(*tensors, (3,), **{name: kind(-(10**400))})


NESTED = ("layer-strided", "layer-jagged", "rms-jagged")  # PyTorch's rms_norm refuses strided nested tensors


@pytest.mark.parametrize("kind, layout", [name.split("-") for name in NESTED])
def test_nested_tensors(kind, layout):
    parts = [torch.randn(2, 16), torch.randn(3, 16)]
    x = torch.nested.nested_tensor(parts, layout=getattr(torch, layout))
    parameters = (torch.rand(16), torch.rand(16)) if kind == "layer" else (torch.rand(16), 1e-5)
    norm, add_norm, exact = (
        getattr(m, f"{n}{kind}_norm") for m, n in ((evenorm.torch, ""), (evenorm.torch, "add_"), (F, ""))
    )
    y, s = add_norm(x, x * 0.5, (16,), *parameters, residual_scale=2.0)
    for a, b, c, part in zip(y.unbind(), s.unbind(), norm(x, (16,), *parameters).unbind(), parts, strict=True):
        assert_same_bits(b, part * 2)
        torch.testing.assert_close(a, exact(b, (16,), *parameters))
        torch.testing.assert_close(c, exact(part, (16,), *parameters))


def test_strided_nested_tensors_go_to_pytorchs_rms_norm(monkeypatch):
    x = torch.nested.nested_tensor([torch.randn(2, 16), torch.randn(3, 16)], layout=torch.strided)
    asked = []
    monkeypatch.setattr(F, "rms_norm", lambda *given: asked.append(given[0]))
    _, s = evenorm.torch.add_rms_norm(x, x, (16,), torch.rand(16))
    assert asked == [s]


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_freed_memory_is_an_error(name):
    weight = torch.ones(3)
    weight.untyped_storage().resize_(0)
    with pytest.raises((RuntimeError, TypeError), match="weight"):
        getattr(evenorm.torch, name)(torch.ones(2, 3), (3,), weight)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize(
    "x, shape, weight",
    [
        (torch.ones(2, 3), (3.0,), None),
        (torch.ones(2, 3), (2,), None),
        (torch.ones(2, 3), (3,), torch.nn.UninitializedParameter()),
        (torch.ones([1] * 64 + [3]), (3,), None),
    ],
    ids=["float", "other size", "uninitialised", "65 axes"],
)
def test_other_arguments_go_to_pytorch(name, x, shape, weight):
    def outcome(function):
        try:
            return function(x, shape, weight)
        except Exception as error:
            return type(error), str(error).split(" in <")[0]

    found, expected = outcome(getattr(evenorm.torch, name)), outcome(getattr(F, name))
    assert torch.equal(found, expected) if isinstance(expected, torch.Tensor) else found == expected


IMAGES = {"x": (2, 6, 3, 5), "residual": (2, 6, 3, 5), "weight": (6,), "bias": (6,)}


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dim_normalises_these_axes(name, dtype):
    """The bits of the norm of last axes, and gradients of each tensor, for channels first."""
    x, residual, weight, bias = (torch.randn(size).to(dtype).requires_grad_() for size in IMAGES.values())
    tensors = (x, residual) if name.startswith("add") else (x,)
    norm = getattr(evenorm.torch, name)

    def first(y):
        return y[0] if isinstance(y, tuple) else y

    def call(*tensors, **options):
        if "layer" in name:
            return first(norm(*tensors, (6,), weight, bias, **options))
        return first(norm(*tensors, (6,), weight, bias=bias, **options))

    for dim in (1, -3, (1,)):
        found, expected = call(*tensors, dim=dim), call(*(t.movedim(1, -1) for t in tensors)).movedim(-1, 1)
        assert torch.equal(found, expected)
        leaves = (*tensors, weight, bias)
        assert all(map(torch.equal, *(torch.autograd.grad(y.sin().sum(), leaves) for y in (found, expected))))


def test_dim_of_several_axes():
    x = torch.randn(2, 3, 4, 5)
    found = evenorm.torch.layer_norm(x, (5, 3), dim=(3, 1))
    assert torch.equal(found, evenorm.torch.layer_norm(x.permute(0, 2, 3, 1), (5, 3)).permute(0, 3, 1, 2))
    with pytest.raises(IndexError, match="out of range"):
        evenorm.torch.layer_norm(x, (3,), dim=4)
    with pytest.raises(RuntimeError, match="normalized_shape"):
        evenorm.torch.layer_norm(x, (4,), dim=1)
    for dim in (1, (), (0, 1, 2)):
        with pytest.raises(ValueError, match=r"dim has \d axes \(.*\), but normalized_shape has 2 \(\(5, 4\)\)"):
            evenorm.torch.add_rms_norm(x, x, (5, 4), dim=dim)


@pytest.mark.parametrize("kind", ["LayerNorm", "RMSNorm"])
def test_modules_with_dim_and_bias(kind):
    module = getattr(evenorm.torch, kind)(6, bias=True, dim=1)
    assert str(module).endswith("dim=1)") and [*module.state_dict()] == ["weight", "bias"]
    torch.nn.init.normal_(module.weight), torch.nn.init.normal_(module.bias)
    x = torch.randn(IMAGES["x"])
    norm = evenorm.torch.layer_norm if kind == "LayerNorm" else evenorm.torch.rms_norm
    expected = norm(x.movedim(1, -1), (6,), module.weight, bias=module.bias, eps=module.eps).movedim(-1, 1)
    assert torch.equal(module(x), expected)
    module.reset_parameters()
    assert not module.bias.any() and module.weight.eq(1).all()
    parametrize.register_parametrization(module, "bias", torch.nn.Identity())
    torch.nn.init.normal_(module.parametrizations.bias.original)
    assert torch.equal(module(x), norm(x, (6,), module.weight, bias=module.bias, eps=module.eps, dim=1))


def test_rms_norm_with_a_bias_rounds_once():
    """In evenorm. PyTorch's function, which takes complex numbers, is followed by an addition."""
    torch.manual_seed(0)  # other numbers may lie between bf16 values closer than float32 tells
    x, weight, bias = torch.randn(4, 64).bfloat16(), torch.randn(64), torch.randn(64)
    wide = F.rms_norm(x.double(), (64,), weight.double(), torch.finfo(torch.float32).eps) + bias.double()
    found = evenorm.torch.rms_norm(x, (64,), weight, bias=bias)
    assert found.dtype == torch.bfloat16 and torch.equal(found, wide.bfloat16())
    complex_x = torch.randn(4, 8, dtype=torch.complex64)
    plain = F.rms_norm(complex_x, (8,), None, 1e-5)
    assert torch.equal(evenorm.torch.rms_norm(complex_x, (8,), None, 1e-5, bias=torch.ones(8)), plain + 1)


# --- zero_centered


ZERO_CENTRED = {
    "LayerNorm": (lambda **options: evenorm.torch.LayerNorm(8, **options), (5, 8)),
    "RMSNorm": (lambda **options: evenorm.torch.RMSNorm(8, bias=True, dim=1, **options), (5, 8, 3)),
    "GroupNorm": (lambda **options: evenorm.torch.GroupNorm(2, 8, 1e-5, True, "cpu", **options), (5, 8, 3)),
    "InstanceNorm2d": (lambda **options: evenorm.torch.InstanceNorm2d(8, affine=True, **options), (5, 8, 3, 2)),
}


@pytest.mark.parametrize("cols", [1, 2, 7, 255, 1000])
@pytest.mark.parametrize("types", [*zip(DTYPES, DTYPES, strict=True), *((t, torch.float32) for t in DTYPES[1:3])])
@pytest.mark.parametrize("zero_centered", [False, True])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_bits_are_those_of_numpy(name, zero_centered, types, cols):
    x, dy = torch.randn(2, 5, cols, dtype=torch.float64).to(types[0])
    weight, bias = torch.randn(2, cols, dtype=torch.float64).to(types[1])
    leaves, options = (x.clone().requires_grad_(), weight.clone().requires_grad_()), {"zero_centered": zero_centered}
    y = getattr(evenorm.torch, name)(leaves[0], (cols,), leaves[1], bias=bias, **options)
    dx, expected = torch.empty_like(x), torch.empty_like(x)
    dweight = torch.empty(cols, dtype=torch.promote_types(types[0], torch.float32))
    getattr(evenorm, name)(x, cols, weight, bias=bias, out=expected, **options)
    out = (dx, dweight, None)[: 3 if name == "layer_norm" else 2]
    getattr(evenorm, f"{name}_backward")(dy, x, cols, weight, out=out, **options)
    assert_same_bits((y, *torch.autograd.grad(y, leaves, dy)), (expected, dx, dweight.to(types[1])))
    y, s = getattr(evenorm.torch, f"add_{name}")(x, dy, (cols,), weight, bias=bias, **options)
    assert_same_bits(y, getattr(evenorm.torch, name)(s, (cols,), weight, bias=bias, **options))


def test_zero_centred_gradients_of_16_bits_are_rounded_to_float32_first():
    dy, weight = torch.tensor([[1.0], [2.0**-8], [2.0**-30]]), torch.zeros(1).bfloat16().requires_grad_()
    evenorm.torch.rms_norm(torch.ones(3, 1), (1,), weight, 0.0, zero_centered=True).backward(dy)
    assert weight.grad == 1  # rounded once, it would be 1 + 2^-7


@pytest.mark.parametrize("make, shape", ZERO_CENTRED.values(), ids=ZERO_CENTRED)
def test_zero_centred_modules_start_at_0_and_train_in_bfloat16(make, shape):
    zero, plain, x = make(zero_centered=True).bfloat16(), make().bfloat16(), torch.randn(shape).bfloat16()
    assert str(zero).replace(", zero_centered=True", "") == str(plain) != str(zero)
    assert_same_bits((zero(x), zero.weight), (plain(x), torch.zeros(8).bfloat16()))
    for module in (zero, plain):
        optimizer = torch.optim.AdamW(module.parameters(), 1e-3, weight_decay=0)
        for _ in range(5):
            module(x).pow(3).sum().backward()
            optimizer.step()
    assert zero.weight.any() and plain.weight.eq(1).all()
    plain.float().load_state_dict(zero.state_dict())
    plain.weight.data += 1
    torch._dynamo.reset()
    compiled, exported = torch.compile(zero, fullgraph=True), torch.export.export(zero, (x,)).module()
    for module in (zero, copy.deepcopy(zero), pickle.loads(pickle.dumps(zero)), compiled, exported):
        assert_same_bits(module(x), plain(x))
    zero.reset_parameters()
    assert not zero.weight.any()


def test_checkpoints_of_gemma_load():
    gemma, norm, x = randomised(ZeroCentred()), evenorm.torch.RMSNorm(C, 1e-6, zero_centered=True), torch.randn(5, C)
    norm.load_state_dict(gemma.state_dict())
    torch.testing.assert_close(norm(x), gemma(x))
    assert evenorm.torch.inspect(norm, x).norms[0].error < 4 and evenorm.torch.convert(gemma).replaced
    assert_same_bits(norm(x), gemma(x))


def test_pytorchs_functions_compute_zero_centred_norms(monkeypatch):
    def strict(norm):  # as on CUDA
        return lambda x, n, weight, *rest: norm(x, n, weight, *rest) if weight.dtype == x.dtype else None

    for name in ("layer_norm", "rms_norm", "group_norm"):
        monkeypatch.setattr(F, name, strict(getattr(F, name)))
    x, w, options = torch.randn(5, 8, 3).bfloat16(), torch.randn(8).bfloat16(), {"eps": -1e-3, "zero_centered": True}
    rows, gamma, beta, eps = x.mT, 1 + w.float(), w.float(), -1e-3
    layer = F.layer_norm(rows.float(), (8,), gamma, beta, eps)
    for found, expected in (
        (evenorm.torch.layer_norm(rows, (8,), w, w, **options), layer),
        (evenorm.torch.add_layer_norm(rows, 0 * rows, (8,), w, w, **options)[0], layer),
        (evenorm.torch.rms_norm(rows, (8,), w, **options), F.rms_norm(rows.float(), (8,), gamma, eps)),
        (evenorm.torch.group_norm(x, 2, w, w, **options), F.group_norm(x.float(), 2, gamma, beta, eps)),
    ):
        assert torch.equal(found, expected.bfloat16())
    norm = evenorm.torch.InstanceNorm1d(8, affine=True, track_running_stats=True, zero_centered=True).bfloat16()
    norm.load_state_dict({"weight": w, "bias": w}, strict=False)
    expected = F.instance_norm(x.float(), None, None, gamma, beta)
    torch.testing.assert_close(norm(x).float(), expected, rtol=0.02, atol=0.05)


@pytest.mark.parametrize("types", ["bfloat16 bfloat16", "float32 float16", "float64 float64"])
def test_errors_of_zero_centred_norms_are_pytorchs(types):
    parameters = [torch.ones(3, dtype=getattr(torch, name)) for name in types.split()]
    for name, given in (("layer_norm", (torch.ones(2, 3), (3,))), ("group_norm", (torch.ones(2, 3, 4), 1))):
        with pytest.raises(RuntimeError) as error:
            getattr(F, name)(*given, *parameters)
        with pytest.raises(RuntimeError, match=re.escape(str(error.value))):
            getattr(evenorm.torch, name)(*given, *parameters, zero_centered=True)
    with pytest.raises(ValueError, match="^weight is None, but zero_centered needs one$"):
        evenorm.torch.InstanceNorm1d(2, zero_centered=True)(torch.ones(2, 2, 3))
