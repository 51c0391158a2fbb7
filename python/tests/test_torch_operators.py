"""The operators as PyTorch sees them: schemas, fake tensors, compilers, export, modes; the same bits everywhere."""

import copy
import io
import itertools
import pickle

import pytest
import torch
import torch.nn.functional as F
import torch.nn.utils.parametrize
import torch.nn.utils.prune
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch_cases import DTYPES, EXTENSION, NAMES, assert_same_bits, bits, case, outputs

import evenorm.torch

OPS = torch.ops.evenorm


def operator_calls(dtype=torch.float32):
    x, r, dy = (torch.randn(3, 4, 6, dtype=torch.float64).to(dtype) for _ in range(3))
    w, b = torch.randn(4, 6).to(dtype), torch.randn(4, 6).to(dtype)
    all_three, some = [True] * 3, [False, True, False]
    return {
        "layer_norm": [(x, [4, 6], w, b, 1e-3), (x, [6], None, None, 1e-3), (x.mT, [6, 4], w.mT, b.mT, 1e-3)],
        "rms_norm": [(x, [4, 6], w, 1e-3), (x, [6], None, 1e-3), (x.mT, [6, 4], w.mT, 1e-3)],
        "add_layer_norm": [(x, r, [4, 6], w, b, 1e-3, 0.5), (x.mT, r.mT, [4], None, None, 1e-3, 1.0)],
        "add_rms_norm": [(x, r, [4, 6], w, 1e-3, 0.5), (x.mT, r.mT, [4], None, 1e-3, 1.0)],
        "layer_norm_backward": [
            (dy, x, [4, 6], w, dtype, 1e-3, all_three), (dy, x, [6], None, None, 1e-3, some),
            (dy, x, [4, 6], w, torch.float32, 1e-3, all_three, r),
        ],
        "rms_norm_backward": [(dy, x, [4, 6], w, 1e-3, [True] * 2), (dy, x, [6], None, 1e-3, [True, False], r)],
    }  # fmt: skip


@pytest.mark.parametrize("name", operator_calls())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_opcheck(name, dtype):
    for arguments in operator_calls(dtype)[name]:
        leaves = tuple(a.detach().clone().requires_grad_() if isinstance(a, torch.Tensor) else a for a in arguments)
        tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
        torch.library.opcheck(getattr(OPS, name).default, leaves, test_utils=tests)
        torch.library.opcheck(getattr(OPS, name).default, arguments)


@pytest.mark.parametrize("name", operator_calls())
def test_shapes_and_strides_of_fake_and_meta_tensors(name):
    for arguments in operator_calls()[name]:
        real = outputs(getattr(OPS, name)(*arguments))
        meta = outputs(getattr(OPS, name)(*(a.to("meta") if isinstance(a, torch.Tensor) else a for a in arguments)))
        with FakeTensorMode() as mode:
            lent = (mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments)
            fake = outputs(getattr(OPS, name)(*lent))
        for r, m, f in zip(real, meta, fake, strict=True):
            for other in (m, f):
                assert (r.shape, r.dtype, r.stride()) == (other.shape, other.dtype, other.stride())


def test_the_schemas_are_the_same_either_way():
    from evenorm.torch import _operators

    source = "evenorm/torch/_fallback.py"
    fallback = (_operators.importlib.resources.files("evenorm.torch") / "_fallback.py").read_text()
    for name in operator_calls():
        schema = str(getattr(OPS, name).default._schema)
        compact = "".join(fallback.split()).replace('""', "")
        short = schema.removeprefix("evenorm::").replace("1.0000000000000001e-05", "1e-5")
        short = short.replace("residual_scale=1.", "residual_scale=1.0")
        assert "".join(short.split()) in compact, f"{source} has another schema of {name}: {short}"


def compilations():
    for name in NAMES:
        for dtype in DTYPES:
            yield from ((name, "eager", dtype), (name, "aot_eager", dtype))
        if "plain" not in name:  # Inductor takes seconds
            yield name, "inductor", torch.float32


@pytest.mark.parametrize("name, backend, dtype", list(compilations()), ids=str)
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


def test_compiled_for_any_shape():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    norm = evenorm.torch.LayerNorm(24)
    compiled = torch.compile(norm, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (1, 2, 7, 1000):
        x = torch.randn(rows, 24, requires_grad=True)
        assert_same_bits(norm(x), compiled(x))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3


def test_compiled_autograd():
    if not EXTENSION:
        pytest.skip("of the extension's nodes")
    torch._dynamo.reset()
    x = torch.randn(4, 24, requires_grad=True)
    r = torch.randn(4, 24, requires_grad=True)
    norm = evenorm.torch.RMSNorm(24)

    def loss():
        y, s = evenorm.torch.add_layer_norm(norm(x), r, (24,), residual_scale=0.5)
        return (y * s).sum()

    plain = torch.autograd.grad(loss(), (x, r, norm.weight))
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
        loss().backward()
    for found, exact in zip((x.grad, r.grad, norm.weight.grad), plain, strict=True):
        assert torch.equal(found, exact)


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


def test_traced():
    block = Block().eval()
    x = torch.randn(3, 16)
    with torch.no_grad():
        assert_same_bits(block(x), torch.jit.trace(block, x)(x))


def test_symbolically_traced():
    block, x = Block(), torch.randn(3, 16)

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, torch.nn.LayerNorm | torch.nn.RMSNorm) or super().is_leaf_module(module, name)

    graph = Tracer().trace(block)
    assert_same_bits(block(x), torch.fx.GraphModule(block, graph)(x))


def test_autocast_leaves_it_alone():
    x = torch.randn(3, 16)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            for ours, theirs in ((evenorm.torch.LayerNorm(16), torch.nn.LayerNorm(16)),
                                 (evenorm.torch.RMSNorm(16), torch.nn.RMSNorm(16))):  # fmt: skip
                for lent in (x, x.to(dtype)):
                    assert ours(lent).dtype == theirs(lent).dtype == lent.dtype


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
    """A subclass with a rule of its own for PyTorch's function."""

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
    parameters = (torch.ones(16), torch.zeros(16))
    nested = torch.nested.nested_tensor([torch.randn(2, 16), torch.randn(3, 16)], layout=torch.strided)
    for part, one in zip(evenorm.torch.layer_norm(nested, (16,), *parameters).unbind(), nested.unbind(), strict=True):
        torch.testing.assert_close(part, torch.nn.functional.layer_norm(one, (16,)))


class Wrapped(torch.Tensor):
    """A tensor around another, with rules for some of PyTorch's operators, and none for flattening it."""

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


class Known(torch.Tensor):
    """A subclass with rules for PyTorch's functions alone."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        known = (F.layer_norm, F.rms_norm, torch.Tensor.add, torch.Tensor.mul, torch.Tensor.__rmul__)
        if function not in known and "__get__" not in str(function) and function is not torch.Tensor.dim:
            return NotImplemented
        return super().__torch_function__(function, types, args, kwargs or {})


@pytest.mark.parametrize("kind", [Wrapped, lambda t: t.as_subclass(Known)], ids=["Wrapped", "Known"])
@pytest.mark.parametrize("places", [(0,), (0, 1), (1,)], ids=str)
def test_subclasses_that_know_pytorchs_functions_alone(kind, places):
    x, weight, bias = torch.randn(3, 16), torch.randn(16), torch.randn(16)

    def lent(*tensors):
        return [kind(t) if i in places else t for i, t in enumerate(tensors)]

    with torch.no_grad():
        calls = [
            (evenorm.torch.layer_norm, F.layer_norm, (*lent(x, weight), bias)),
            (evenorm.torch.rms_norm, F.rms_norm, (*lent(x, weight), 1e-5)),
        ]
        for ours, theirs, (t, *rest) in calls:
            y, exact = ours(t, (16,), *rest), theirs(t, (16,), *rest)
            assert type(y) is type(exact) is not torch.Tensor
            with torch._C.DisableTorchFunctionSubclass():
                assert_same_bits(getattr(y, "held", y), getattr(exact, "held", exact))


def test_a_residual_that_knows_pytorchs_functions_alone():
    x, residual = torch.randn(3, 16), torch.randn(3, 16)
    with torch.no_grad():
        for function in (evenorm.torch.add_layer_norm, evenorm.torch.add_rms_norm):
            y, s = function(x, Wrapped(residual), (16,), residual_scale=0.5)
            assert type(y) is type(s) is Wrapped
            assert_same_bits(s.held, x + 0.5 * residual)
            torch.testing.assert_close(y.held, function(x, residual, (16,), residual_scale=0.5)[0])


def test_functional_and_fake_tensors_keep_evenorms(monkeypatch):
    from torch.fx.experimental.proxy_tensor import make_fx

    def norm(x):
        return evenorm.torch.layer_norm(x, (16,)) + 1

    for mode in ("real", "fake", "symbolic"):
        for function in (norm, torch.func.functionalize(norm)):
            graph = make_fx(function, tracing_mode=mode)(torch.randn(3, 16)).graph
            assert "evenorm.layer_norm.default" in [str(node.target) for node in graph.nodes], mode
    monkeypatch.setattr(F, "layer_norm", None)  # not called
    with FakeTensorMode() as fakes, FunctionalTensorMode():
        assert norm(FunctionalTensor.to_functional(fakes.from_tensor(torch.ones(3, 16)))).shape == (3, 16)


def test_distributed_tensors_keep_their_rules():
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
        x = torch.randn(4, 16)
        shards = distribute_tensor(x, mesh, [Shard(0)])
        y = evenorm.torch.layer_norm(shards, (16,))
        assert y.placements == shards.placements
        torch.testing.assert_close(y.to_local(), torch.nn.functional.layer_norm(shards.to_local(), (16,)))
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("ours, theirs", [(evenorm.torch.LayerNorm, torch.nn.LayerNorm),
                                          (evenorm.torch.RMSNorm, torch.nn.RMSNorm)])  # fmt: skip
def test_modules_are_pytorchs(ours, theirs):
    options = [dict(), dict(eps=1e-3), dict(elementwise_affine=False), dict(dtype=torch.bfloat16), dict(device="meta")]
    options += [dict(bias=False)] if ours is evenorm.torch.LayerNorm else []
    for shape in (16, (16,), [3, 16], torch.Size((2, 3))):
        for option in options:
            a, b = ours(shape, **option), theirs(shape, **option)
            assert isinstance(a, theirs) and repr(a) == repr(b)
            assert a.state_dict().keys() == b.state_dict().keys()
            assert a.__constants__ == b.__constants__ and a.normalized_shape == b.normalized_shape
            if option.get("device") != "meta":
                b.load_state_dict(a.state_dict(), strict=True)
                a.load_state_dict(b.state_dict(), strict=True)
    module = ours(16)
    torch.nn.init.normal_(module.weight)
    x = torch.randn(3, 16)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(other) is ours
        assert_same_bits(module(x), other(x))
    for bad in ("16", 16.5):
        with pytest.raises(TypeError) as expected:
            theirs(bad)
        with pytest.raises(TypeError) as found:
            ours(bad)
        assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("kind", ["LayerNorm", "RMSNorm"])
def test_modules_have_their_parameters_wherever_pytorchs_have(kind):
    """Where a module's weight is no entry of its _parameters, or another one than before."""
    ours, theirs = getattr(evenorm.torch, kind), getattr(torch.nn, kind)
    x, w = torch.randn(5, 8), torch.rand(8) + 1

    class Doubled(torch.nn.Module):
        def forward(self, weight):
            return 2 * weight

    def doubled(norm):
        return torch.nn.utils.parametrize.register_parametrization(norm, "weight", Doubled())

    def attribute(norm):
        del norm.weight
        norm.weight = w
        return norm

    def replaced(norm):
        norm.weight = torch.nn.Parameter(w)
        return norm

    def pruned(norm):
        return torch.nn.utils.prune.custom_from_mask(norm, "weight", (torch.arange(8) % 2).float())

    for change in (doubled, attribute, replaced, pruned):
        torch.testing.assert_close(change(ours(8))(x), change(theirs(8))(x))
    called = torch.func.functional_call(ours(8), {"weight": w}, (x,))
    torch.testing.assert_close(called, torch.func.functional_call(theirs(8), {"weight": w}, (x,)))
    without = ours(8)
    del without.weight
    with pytest.raises(AttributeError, match="no attribute 'weight'"):
        without(x)


def test_hooks_and_keywords():
    norm = evenorm.torch.LayerNorm(4)
    seen = []
    norm.register_forward_pre_hook(lambda m, args: seen.append("pre"))
    norm.register_forward_hook(lambda m, args, out: seen.append("post"))
    norm.register_full_backward_hook(lambda m, gi, go: seen.append("backward"))
    norm(input=torch.randn(2, 4, requires_grad=True)).sum().backward()
    assert seen == ["pre", "post", "backward"]
    evenorm.torch.RMSNorm(4)(x=torch.randn(2, 4))


def test_info():
    info = evenorm.torch.info()
    assert info["torch"] == torch.__version__
    assert (info["operators"], bool(info["reason"])) in (("C++", False), ("Python", True))


def test_bits_are_those_of_numpy():
    import numpy as np

    x, w, b = torch.randn(70, 100), torch.randn(100), torch.randn(100)
    y = evenorm.torch.layer_norm(x, (100,), w, b)
    assert bits(y) == evenorm.layer_norm(x.numpy(), 100, w.numpy(), b.numpy()).tobytes()
    leaf = x.clone().requires_grad_()
    dy = torch.randn(70, 100)
    evenorm.torch.layer_norm(leaf, (100,), w, b).backward(dy)
    assert (
        bits(leaf.grad) == np.asarray(evenorm.layer_norm_backward(dy.numpy(), x.numpy(), 100, w.numpy())[0]).tobytes()
    )


@pytest.mark.parametrize("shapes", [((1, 4), (4,)), ((3, 4), (1, 4)), ((4,), (3, 4)), ((2, 1, 4), (3, 1))], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_residual_of_another_shape_is_expanded(dtype, shapes):
    """The sum, rounded once, and its norm have the bits that they have of expanded tensors; so have gradients."""
    x, residual = (torch.randn(shape, generator=torch.Generator().manual_seed(7)).to(dtype) for shape in shapes)
    weight = torch.randn(4).to(dtype)
    for function in (evenorm.torch.add_layer_norm, evenorm.torch.add_rms_norm):
        given = [t.clone().requires_grad_() for t in (x, residual)]
        expanded = [t.clone().requires_grad_() for t in torch.broadcast_tensors(x, residual)]
        found = function(*given, (4,), weight, residual_scale=0.3)
        exact = function(*expanded, (4,), weight, residual_scale=0.3)
        for f, e in zip(found, exact, strict=True):
            assert_same_bits(f, e)
        torch.autograd.backward(found, [torch.ones_like(f) for f in found])
        torch.autograd.backward(exact, [torch.ones_like(e) for e in exact])
        for g, e in zip(given, expanded, strict=True):
            assert_same_bits(g.grad, e.grad.sum_to_size(g.shape))


class Refusing(torch.Tensor):
    """Knows some of PyTorch's functions, and no others, attributes among them."""

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
def test_what_a_class_refuses_is_pytorchs(error, place):
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
    """Of torch.nn's expanded weights, which know torch.nn.functional.layer_norm alone."""
    from torch.nn.utils._per_sample_grad import call_for_per_sample_grads

    x, found = torch.randn(5, 3, 8), []
    for norm in (evenorm.torch.LayerNorm(8), torch.nn.LayerNorm(8)):
        call_for_per_sample_grads(norm, batch_size=5)(x).square().sum().backward()
        found.append([norm.weight.grad_sample, norm.bias.grad_sample])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_converted_norm_hands_what_refuses_to_its_own_forward():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(16) + 0.5)

        def forward(self, x):
            return F.rms_norm(x, (16,), self.weight, 1e-6)

    model = torch.nn.Sequential(Scaled())
    assert len(evenorm.torch.convert(model).replaced) == 1
    x = torch.randn(3, 16)
    assert torch.equal(model(x.as_subclass(Refusing)), F.rms_norm(x, (16,), model[0].weight, 1e-6))


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5), (2, 3, 4, 5), (0, 3, 4, 5, 6)], ids=str)
def test_strides_of_an_rms_norm_with_its_channels_last(shape):
    x = torch.randn(shape).to(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)
    for weight in (None, torch.ones(shape[-1])):
        expected = F.rms_norm(x, shape[-1:], weight).stride()
        assert evenorm.torch.rms_norm(x, shape[-1:], weight).stride() == expected


def laid_out(shape):
    """Tensors of a shape, each laid out in memory in another way."""
    axes = list(range(len(shape)))
    yield torch.randn(shape)
    yield torch.randn(shape[::-1]).permute(axes[::-1])
    yield torch.randn([2 * size for size in shape])[tuple(slice(size) for size in shape)]
    yield torch.randn(()).expand(shape)
    if len(shape) > 1:
        yield torch.randn(*shape[:-2], shape[-1], shape[-2]).mT
        yield torch.randn(shape[1], shape[0], *shape[2:]).transpose(0, 1)
    if len(shape) == 4:
        yield torch.randn(shape).to(memory_format=torch.channels_last)


def strides_of_both(x, weight, axes):
    """Of layer norm and RMS norm by PyTorch, by evenorm, and by evenorm on the meta device."""
    on_meta = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
    meta_weight = None if weight is None else weight.to("meta")
    for name in ("layer_norm", "rms_norm"):
        ours, theirs = getattr(evenorm.torch, name), getattr(F, name)
        shape = x.shape[x.dim() - axes :]
        yield [
            theirs(x, shape, weight).stride(),
            ours(x, shape, weight).stride(),
            ours(on_meta, shape, meta_weight).stride(),
        ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_strides_are_pytorchs(rank, dtype):
    for shape in itertools.product((0, 1, 3), repeat=rank):
        for x in laid_out(shape):
            for axes in range(1, rank + 1):
                if 0 in shape[-axes:]:
                    continue
                for weight in (None, torch.ones(shape[-axes:], dtype=dtype)):
                    for strides in strides_of_both(x.to(dtype), weight, axes):
                        theirs, ours, meta = strides
                        assert meta == ours, (shape, axes, x.stride())
                        # An axis of one element has no step: PyTorch's strides of it depend on how it found the norm.
                        matter = [axis for axis, size in enumerate(shape) if size != 1 or 0 in shape]
                        assert [ours[axis] for axis in matter] == [theirs[axis] for axis in matter], (shape, axes)


def test_strides_of_an_empty_rms_norm():
    assert evenorm.torch.RMSNorm(4)(torch.randn(0, 1, 4)).stride() == (4, 4, 1)
    x = torch.randn(0, 1, 4)
    compiled = torch.compile(evenorm.torch.RMSNorm(4), backend="aot_eager")
    assert compiled(x).stride() == (4, 4, 1)
    with FakeTensorMode() as mode:
        fake = OPS.rms_norm(mode.from_tensor(x), [4], mode.from_tensor(torch.ones(4)), 1e-5)
        assert fake.stride() == (4, 4, 1)


FUSED = (evenorm.torch.add_layer_norm, evenorm.torch.add_rms_norm)


class Whole(int):
    """An int of another class."""


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("kind", [int, Whole])
@pytest.mark.parametrize("function", [evenorm.torch.layer_norm, evenorm.torch.rms_norm, *FUSED])
def test_an_int_that_no_float_holds(function, kind, sign):
    tensors = [torch.ones(2, 3)] * (2 if function in FUSED else 1)
    for name in ("eps", "residual_scale") if function in FUSED else ("eps",):
        with pytest.raises(OverflowError, match="^int too large to convert to float$"):
            function(*tensors, (3,), **{name: kind(sign * 10**400)})


def nested_terms(layout):
    """Parts, a nested tensor of them, and a residual; parameters."""
    parts = [torch.randn(2, 16), torch.randn(3, 16)]
    x = torch.nested.nested_tensor(parts, layout=layout)
    return parts, x, x * 0.5, torch.rand(16), torch.rand(16)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_layer_norm_of_a_sum_of_nested_tensors(layout):
    parts, x, residual, weight, bias = nested_terms(layout)
    y, s = evenorm.torch.add_layer_norm(x, residual, (16,), weight, bias, residual_scale=2.0)
    for a, b, part in zip(y.unbind(), s.unbind(), parts, strict=True):
        assert_same_bits(b, part * 2)
        torch.testing.assert_close(a, F.layer_norm(b, (16,), weight, bias))


def test_rms_norm_of_a_sum_of_nested_tensors():
    parts, x, residual, weight, _ = nested_terms(torch.jagged)
    y, s = evenorm.torch.add_rms_norm(x, residual, (16,), weight, 1e-5, residual_scale=2.0)
    for a, b, part in zip(y.unbind(), s.unbind(), parts, strict=True):
        assert_same_bits(b, part * 2)
        torch.testing.assert_close(a, F.rms_norm(b, (16,), weight, 1e-5))


def test_rms_norm_of_a_sum_of_strided_nested_tensors_is_pytorchs(monkeypatch):
    """PyTorch's rms_norm refuses them; it is asked all the same."""
    _, x, residual, weight, _ = nested_terms(torch.strided)
    asked = []
    monkeypatch.setattr(F, "rms_norm", lambda *given: asked.append(given[0]))
    _, s = evenorm.torch.add_rms_norm(x, residual, (16,), weight)
    assert asked[0] is s


def test_a_converted_norm_hands_nested_tensors_to_its_own_forward():
    class Subclass(torch.nn.LayerNorm):
        pass

    model = torch.nn.Sequential(Subclass(16))
    assert len(evenorm.torch.convert(model).replaced) == 1
    parts = [torch.randn(2, 16), torch.randn(3, 16)]
    x = torch.nested.nested_tensor(parts, layout=torch.strided)
    for part, one in zip(model(x).unbind(), parts, strict=True):
        torch.testing.assert_close(part, F.layer_norm(one, (16,)))
