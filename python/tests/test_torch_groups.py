"""Norms whose weight and bias vary from row to row: group norm, instance norm, adaptive layer norm, broadcast weights."""

import pytest
import torch
import torch.nn.functional as F
from distributed_processes import run

import evenorm.torch

DTYPES = {torch.float32: 2e-5, torch.float64: 1e-10, torch.bfloat16: 0.05}
CPP = evenorm.torch.info()["operators"] == "C++"


def assert_close(found, expected, tolerance):
    assert found.shape == expected.shape and found.dtype == expected.dtype
    torch.testing.assert_close(found.double(), expected.double(), atol=tolerance, rtol=tolerance)


def images(shape, dtype, channels_last):
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.to(memory_format=formats[len(shape)]) if channels_last else x


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    "shape, channels_last",
    [
        *(((shape, False)) for shape in ((2, 8, 5, 7), (3, 8), (1, 8, 9), (2, 8, 3, 3, 3), (0, 8, 4))),
        *(((shape, True)) for shape in ((2, 8, 5, 7), (1, 8, 5, 7), (2, 8, 16, 17), (2, 8, 3, 3, 3))),
    ],
    ids=str,
)
def test_group_norm_is_pytorchs(shape, channels_last, affine, dtype):
    x = images(shape, dtype, channels_last)
    for groups in (1, 2, 8) if len(shape) > 2 else (1, 2):
        pytorchs, own = (
            module(groups, 8, affine=affine, dtype=dtype) for module in (torch.nn.GroupNorm, evenorm.torch.GroupNorm)
        )
        for parameter in pytorchs.parameters():
            torch.nn.init.normal_(parameter)
        own.load_state_dict(pytorchs.state_dict())
        results = []
        for module in (own, pytorchs):
            leaf = x.clone().requires_grad_()
            y = module(leaf)
            torch.manual_seed(1)
            grads = torch.autograd.grad(y, [leaf, *module.parameters()], torch.randn_like(y))
            results.append([y, *grads])
        for found, expected in zip(*results, strict=True):
            assert_close(found, expected, 30 * DTYPES[dtype])
            is_a_gradient = found is not results[0][0]  # in a batch of one, dx has another stride
            assert found.stride() == expected.stride() or not x.numel() or (is_a_gradient and shape[0] == 1)
        split = x.unflatten(1, (groups, -1))
        by_channel = torch.ones(1, *split.shape[1:3], *[1] * (x.dim() - 2), dtype=dtype)
        rows = evenorm.torch.layer_norm(split, split.shape[2:], by_channel) if x.numel() else split
        if not affine:
            assert torch.equal(results[0][0], rows.flatten(1, 2))  # the bits of layer norm


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_of_channels_last_images_have_the_bits_of_contiguous_ones(dtype):
    module = evenorm.torch.GroupNorm(4, 48, dtype=dtype)
    torch.nn.init.normal_(module.weight)
    torch.manual_seed(0)
    x, dy = torch.randn(2, 3, 48, 16, 36).to(dtype)
    dy[:, :7] = 0
    results = []
    for layout in (torch.contiguous_format, torch.channels_last):
        leaf = x.contiguous(memory_format=layout).requires_grad_()
        y = module(leaf)
        results.append(torch.autograd.grad(y, [leaf, *module.parameters()], dy.contiguous(memory_format=layout)))
    for found, expected in zip(*results, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_may_be_windows_of_one_tensor(dtype):
    torch.manual_seed(0)
    x = torch.randn(319).to(dtype).unfold(0, 256, 1)[None]
    dy = torch.zeros(319, dtype=dtype).unfold(0, 256, 1)[None]
    weight = torch.ones(64, dtype=dtype, requires_grad=True)
    for each in (x, x.contiguous()):
        y = evenorm.torch.group_norm(each, 64, weight)
        assert not torch.autograd.grad(y, weight, dy)[0].any()


def test_a_weight_that_is_no_tensor_is_refused_as_by_pytorch():
    with pytest.raises(TypeError, match="must be Tensor"):
        evenorm.torch.group_norm(torch.zeros(2, 6, 4), 3, 1.0)


@pytest.mark.parametrize("module", [evenorm.torch.LayerNorm(8), evenorm.torch.GroupNorm(2, 6)], ids=str)
def test_a_gradient_of_another_layout_has_the_same_bits(module):
    torch.manual_seed(0)
    x = torch.randn(3, 6, 5, 8).to(memory_format=torch.channels_last).requires_grad_()
    for dy in (torch.ones(()).expand(x.shape), torch.randn(1, 6, 1, 8).expand(x.shape), torch.randn(x.shape)):
        leaves, y = [x, *module.parameters()], module(x)
        layouts = (dy, dy.contiguous(), dy.contiguous(memory_format=torch.channels_last))
        results = [torch.autograd.grad(y, leaves, each, retain_graph=True) for each in layouts]
        for gradients in zip(*results, strict=True):
            assert all(torch.equal(gradients[0], each) for each in gradients[1:])


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_instance_norm_is_pytorchs(axes, affine):
    name = f"InstanceNorm{axes}d"
    pytorchs, own = getattr(torch.nn, name)(8, affine=affine), getattr(evenorm.torch, name)(8, affine=affine)
    x = images((2, 8, 5, 4, 3)[: 2 + axes], torch.float32, channels_last=False)
    transposed = x.transpose(1, -1).contiguous().transpose(1, -1)
    for given in (x, x[0], transposed, x.transpose(0, -1).contiguous().transpose(0, -1)):
        assert_close(own(given), pytorchs(given), 2e-5)
        assert own(given).stride() == pytorchs(given).stride()
    groups = (each.GroupNorm(2, 8)(transposed) for each in (evenorm.torch, torch.nn))
    assert next(groups).stride() == next(groups).stride()
    for module in (own, pytorchs):
        with pytest.raises(ValueError, match="more than 1 spatial element"):
            module(torch.randn(2, 8, *[1] * axes))
    running, expected = (getattr(at, name)(8, track_running_stats=True) for at in (evenorm.torch, torch.nn))
    assert torch.equal(running(x), expected(x)) and torch.equal(running.running_var, expected.running_var)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("parameters", ["", "weight", "bias", "weight bias"])
def test_layouts_have_the_same_bits(parameters, dtype):
    torch.manual_seed(0)
    named = {name: torch.randn(8) for name in parameters.split()}
    results = []
    for channels_last in (False, True):
        x = images((3, 8, 1, 257), dtype, channels_last).requires_grad_()
        y = evenorm.torch.group_norm(x, 2, **named)
        results.append([y, *torch.autograd.grad(y.float().pow(3).sum(), x)])
    assert all(torch.equal(*each) for each in zip(*results, strict=True))


def test_gradients_of_unlike_parameters_are_rounded_once():
    torch.manual_seed(0)
    x, dy = torch.randn(2, 256, 4, 64).bfloat16()
    weight, bias = torch.ones(64).bfloat16().requires_grad_(), torch.zeros(256, 1, 64).bfloat16()
    (found,) = torch.autograd.grad(evenorm.torch.layer_norm(x, (64,), weight, bias), weight, dy)
    expected = (dy.double() * F.layer_norm(x.double(), (64,))).sum((0, 1))
    torch.testing.assert_close(found.double(), expected, rtol=2.0**-8, atol=1e-4)


@pytest.mark.parametrize(
    "shape, channels_last", [((3, 2, 4), False), ((1, 2, 5, 6), True), ((1, 2, 3, 1), True)], ids=str
)
def test_results_may_be_changed_in_place(shape, channels_last):
    x, shift = images(shape, torch.float32, channels_last), torch.ones(2, *[1] * (len(shape) - 2), requires_grad=True)
    for module in (evenorm.torch.GroupNorm(1, 2), evenorm.torch.InstanceNorm1d(2)):
        given = x.flatten(2) if isinstance(module, evenorm.torch.InstanceNorm1d) else x
        with torch.no_grad():
            y = module(given)
        assert not y._is_view() and y.stride() == (given if given is x else given.contiguous()).stride()
        y += shift.flatten(1) if given is not x else shift
        module(given).detach_()
    y = evenorm.torch.group_norm(x, 2, shift.flatten())
    y *= 2
    pytorchs = F.group_norm(x.contiguous(), 2, shift.flatten())
    expected = torch.autograd.grad(pytorchs.mul(2).square().sum(), shift)[0]
    assert_close(torch.autograd.grad(y.square().sum(), shift)[0], expected, 1e-3)


@pytest.mark.parametrize("kind", ["to_sparse", "to_mkldnn", "int", "quantized", "cfloat"])
@pytest.mark.parametrize("name, arguments", [("GroupNorm", (1, 2)), ("InstanceNorm1d", (2,))])
def test_other_tensors_get_pytorchs_results_and_errors(name, arguments, kind):
    x = torch.randn(3, 2, 4)
    x = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8) if kind == "quantized" else getattr(x, kind)()
    results = []
    for library in (evenorm.torch, torch.nn):
        try:
            results.append(str(getattr(library, name)(*arguments)(x)))
        except (RuntimeError, NotImplementedError, ValueError) as error:
            results.append(str(error)[:60])
    assert results[0] == results[1]


def test_group_norm_leaves_wrong_arguments_to_pytorch():
    x = torch.randn(2, 8, 3)
    for groups, weight, given in ((3, None, x), (2, torch.ones(7), x), (2, torch.ones(8, dtype=torch.float64), x)):
        with pytest.raises(RuntimeError) as pytorchs:
            F.group_norm(given, groups, weight)
        with pytest.raises(RuntimeError) as own:
            evenorm.torch.group_norm(given, groups, weight)
        assert str(own.value) == str(pytorchs.value)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        evenorm.torch.group_norm(torch.randn(1, 8), 8)


@pytest.mark.parametrize("weight_shape", [(3, 1, 7), (1, 5, 1), (3, 5, 7), (1, 1, 1), (7,), None], ids=str)
@pytest.mark.parametrize("bias_shape", [(3, 1, 7), (1, 5, 7), (7,), None], ids=str)
def test_broadcast_parameters(weight_shape, bias_shape):
    torch.manual_seed(0)
    x, weight, bias = (
        None if shape is None else torch.randn(shape, dtype=torch.float64, requires_grad=True)
        for shape in ((3, 5, 7), weight_shape, bias_shape)
    )
    expected = F.layer_norm(x, (7,)) * (1 if weight is None else weight) + (0 if bias is None else bias)
    found = evenorm.torch.layer_norm(x, (7,), weight, bias)
    leaves = [t for t in (x, weight, bias) if t is not None]
    dy = torch.randn_like(x)
    assert_close(found, expected, 1e-10)
    for one, other in zip(*(torch.autograd.grad(y, leaves, dy) for y in (found, expected)), strict=True):
        assert_close(one, other, 1e-10)


def test_a_weight_along_normalised_axes():
    x, weight = torch.randn(5, 7), torch.randn(1, 7, requires_grad=True)
    found, expected = evenorm.torch.layer_norm(x, (5, 7), weight), F.layer_norm(x, (5, 7)) * weight
    assert_close(found, expected, 1e-5)
    assert_close(*(torch.autograd.grad(y.square().sum(), weight)[0] for y in (found, expected)), 1e-4)


def test_derivatives_of_any_order():
    inputs = [torch.randn(n, 3, 4, dtype=torch.float64, requires_grad=True) for n in (2, 2, 1)]

    def norm(x, scale, shift):
        return evenorm.torch.ada_layer_norm(x, scale[:, :1], shift[:, :1].expand(2, 1, 4))

    assert torch.autograd.gradcheck(norm, inputs, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(norm, inputs)


def test_adaptive_layer_norm():
    x, scale, shift = torch.randn(4, 6, 8), torch.randn(4, 1, 8), torch.randn(8)
    assert_close(evenorm.torch.ada_layer_norm(x, scale, shift), F.layer_norm(x, (8,)) * (1 + scale) + shift, 1e-5)
    short = x.bfloat16()
    nested = torch.nested.nested_tensor([short[0], short[1, :3]], layout=torch.jagged)
    for given, eps in ((short, 1e-5), (short, -1e-6), (short[..., :0], 1e-5), (nested, 1e-5)):  # not all are evenorm's
        wide = shift[: given.size(-1)]
        assert evenorm.torch.ada_layer_norm(given, wide, wide, eps).dtype == torch.bfloat16
    with pytest.raises(ValueError, match=r"shift has shape \(4, 8\), but it should have x's axes \(4, 6, 8\)"):
        evenorm.torch.ada_layer_norm(x, scale, torch.randn(4, 8))


def test_samples_of_vmap_have_the_bits_that_they_have_alone():
    x, weight, bias = torch.randn(4, 6, 8), torch.randn(4, 8), torch.randn(8)

    def norm(x, weight, bias):
        return evenorm.torch.layer_norm(x, (8,), weight, bias)

    found = torch.vmap(norm, in_dims=(0, 0, None))(x, weight, bias)
    assert all(torch.equal(found[i], norm(x[i], weight[i], bias)) for i in range(4))

    def loss(*given):
        return norm(*given).square().sum()

    gradients = torch.func.grad(loss, argnums=(0, 1, 2)) if CPP else None
    for own in (0, None) if CPP else ():
        of_all = torch.vmap(gradients, in_dims=(0, own, None))(x, weight if own == 0 else weight[0], bias)
        for i in range(4):
            alone = gradients(x[i], weight[i] if own == 0 else weight[0], bias)
            assert all(torch.equal(one[i], other) for one, other in zip(of_all, alone, strict=True))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(dynamic):
    torch._dynamo.reset()
    x, scale, shift = torch.randn(4, 6, 8), torch.randn(4, 1, 8), torch.randn(4, 1, 8)
    weight, bias = torch.randn(6), torch.randn(6)

    def norms(x, scale, shift, weight, bias):
        return evenorm.torch.ada_layer_norm(x, scale, shift), evenorm.torch.group_norm(x, 2, weight, bias)

    given = [t.requires_grad_() for t in (x, scale, shift, weight, bias)]
    compiled = torch.compile(norms, fullgraph=True, dynamic=dynamic)(*given)
    eager = norms(*given)
    assert all(map(torch.equal, compiled, eager))
    both = (torch.autograd.grad(sum(y.square().sum() for y in ys), given) for ys in (compiled, eager))
    for found, expected in zip(*both, strict=True):
        assert_close(found, expected, 1e-5)


def test_a_module_for_any_shape():
    torch._dynamo.reset()
    norm, x = evenorm.torch.GroupNorm(2, 4), torch.randn(2, 4, 5, 5).to(memory_format=torch.channels_last)
    compiled = torch.compile(norm, dynamic=True, fullgraph=True)(x)
    assert torch.equal(compiled, norm(x)) and compiled.stride() == norm(x).stride()
    assert torch.equal(torch.export.export(norm, (x,)).module()(x), norm(x))


def test_convert():
    model = torch.nn.Sequential(
        torch.nn.GroupNorm(2, 4), torch.nn.InstanceNorm2d(4), torch.nn.InstanceNorm2d(4, track_running_stats=True)
    )
    x = torch.randn(2, 4, 5, 5)
    before = model(x)
    report = evenorm.torch.convert(model)
    assert [one.new for one in report.replaced] == ["evenorm.torch.GroupNorm", "evenorm.torch.InstanceNorm2d"]
    assert [one.reason for one in report.left] == ["has running statistics"]
    assert_close(model(x), before, 1e-5)
    wide = type("OwnNorm", (torch.nn.GroupNorm,), {"forward": lambda self, x: torch.nn.GroupNorm.forward(self, x)})
    assert evenorm.torch.convert(wide(128, 128)).replaced  # a channel in each group


def norms_of_shards(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    x, weight, found = torch.randn(4, 5, 8), torch.randn(4, 1, 8), []
    for given in (weight, weight[:1]):  # one for each sample, and one for all
        leaves = [x.clone().requires_grad_(), given.clone().requires_grad_()]
        shards = [distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(given, mesh, [Replicate()])]
        whole, y = (evenorm.torch.layer_norm(t.requires_grad_(), (8,), w.requires_grad_()) for t, w in (leaves, shards))
        of_whole, of_shards = (torch.autograd.grad(y.square().sum(), ts) for y, ts in ((whole, leaves), (y, shards)))
        assert torch.equal(y.full_tensor(), whole)
        for one, other in zip(of_shards, of_whole, strict=True):
            torch.testing.assert_close(one.full_tensor(), other)
        found.append((str(y.placements), str(of_shards[1].placements)))
    return found


def test_sharded_samples_keep_their_parameters():
    sharded, summed = "(Shard(dim=0),)", "(Partial(sum),)"
    assert run(norms_of_shards, 2) == [[(sharded, sharded), (sharded, summed)]] * 2
