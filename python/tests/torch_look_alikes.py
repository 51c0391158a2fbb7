"""Hand-written layer and RMS norms under other names, and modules that only look like norms.

NORMS maps names to a factory and the formula that replaces the norm. OTHERS maps names to a factory and a part of the
reason why the module is left.
"""

import torch
import torch.nn.functional as F
from torch import nn

C = 24


def ones(*shape):
    return nn.Parameter(torch.ones(*shape or (C,)))


def zeros(*shape):
    return nn.Parameter(torch.zeros(*shape or (C,)))


def randomised(module, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.3 + 0.5)
    return module


class ScaleShift(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.shift, self.eps = ones(), zeros(), 1e-6

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = x.var(-1, keepdim=True, unbiased=False)
        return self.scale * (x - mean) / torch.sqrt(var + self.eps) + self.shift


class EmptyNorm(nn.Module):
    pass


class PropertyNorm(nn.RMSNorm):
    forward = property(lambda module: module.extra_repr)


class Undifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()


class ZeroCentred(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.eps = zeros(), 1e-6

    def forward(self, x):
        wide = x.float()
        return (wide * (wide.pow(2).mean(-1, keepdim=True) + self.eps).rsqrt() * (1 + self.weight.float())).type_as(x)


class NoWeightNorm(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class NarrowRMSNorm(nn.Module):
    """Sums in x's own type, so it is an accurate norm only in float32 and float64."""

    def __init__(self):
        super().__init__()
        self.weight, self.eps = ones(), 1e-6

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Gated(NarrowRMSNorm):
    def forward(self, x, gate=None):
        return super().forward(x) if gate is None else super().forward(x) * F.silu(gate)


class PlainSubclass(nn.LayerNorm):
    def __init__(self, cols=C):
        super().__init__(cols)


def made(forward, cls=NarrowRMSNorm, **attributes):
    """A module of a new subclass of cls with this forward(self, x) and these attributes."""
    module = type("MadeNorm", (cls,), {"forward": forward})()
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


def of(forward, *arguments, **attributes):
    """A factory of such modules."""
    return lambda: made(forward, *arguments, **attributes)


def norm(m, x):
    return NarrowRMSNorm.forward(m, x)


def mean(x):
    return x.mean(-1, keepdim=True)


def squares(x):
    return mean(x.square())


def rms(x):
    return x.norm(dim=-1, keepdim=True) * x.shape[-1] ** -0.5


def var(x):
    return x.var(-1, unbiased=False, keepdim=True)


def layer_xhat(x, eps=1e-5):
    return (x - mean(x)) / torch.sqrt(var(x) + eps)


def rms_xhat(x, eps=1e-6):
    return x * torch.rsqrt(squares(x) + eps)


def gamma_beta():
    forward = lambda m, features: F.layer_norm(features, features.shape[-1:], m.gamma, m.beta, 1e-12)  # noqa: E731
    return made(forward, EmptyNorm, gamma=ones(), beta=zeros())


def constant_beta():
    module = made(lambda m, x: F.layer_norm(x, (C,), m.gamma, m.beta), EmptyNorm, gamma=ones())
    module.register_buffer("beta", torch.zeros(C))
    return module


def gain_bias(m, x):
    return layer_xhat(x, m.epsilon) * m.gain + m.bias


def zero_centred_layer(m, x):
    return F.layer_norm(x, m.normalized_shape, m.weight + 1, m.bias, m.eps)


def over_two_axes(m, x):
    return x / (x.square().mean((-2, -1), keepdim=True) + 1e-6).sqrt() * m.g


# Factories of norms, and the formulas that replace them.
NORMS = {
    "scale, shift": (ScaleShift, "layer_norm(x, scale, shift, eps=eps)"),
    "gamma, beta": (gamma_beta, "layer_norm(x, gamma, beta, eps=1e-12)"),
    "gain, bias": (
        lambda: made(gain_bias, EmptyNorm, gain=ones(), bias=zeros(), epsilon=1e-3),
        "layer_norm(x, gain, bias, eps=epsilon)"),
    "constant beta": (constant_beta, "layer_norm(x, gamma, beta, eps=1e-05)"),
    "zero-centred": (ZeroCentred, "rms_norm(x, 1 + weight, eps=eps)"),
    "zero-centred layer norm": (
        lambda: made(zero_centred_layer, PlainSubclass), "layer_norm(x, 1 + weight, bias, eps=eps)"),
    "two axes": (lambda: made(over_two_axes, EmptyNorm, g=ones(4, 6)), "rms_norm(x, g, eps=1e-06)"),
    "no weight": (NoWeightNorm, "rms_norm(x, eps=1e-06)"),
    "weight": (NarrowRMSNorm, "rms_norm(x, weight, eps=eps)"),
    "subclass": (PlainSubclass, "layer_norm(x, weight, bias, eps=eps)"),
    **{f"eps {eps}": (of(lambda m, x, eps=eps: rms_xhat(x, eps) * m.weight), f"rms_norm(x, weight, eps={eps:.3g})")
       for eps in (1e-10, 1e-9, 1e-7, 1.19e-7, 1e-4, 3e-4)},
    "machine epsilon": (of(lambda m, x: rms_xhat(x, 2.0**-23) * m.weight), "rms_norm(x, weight, eps=None)"),
    "weight first": (of(lambda m, x: m.weight * x * torch.rsqrt(squares(x) + 1e-6)), "rms_norm(x, weight, eps=eps)"),
    "RMS norm with bias": (
        of(lambda m, x: rms_xhat(x) * m.weight + m.bias, bias=zeros()), "rms_norm(x, weight, bias, eps=eps)"),
    "weight that is not used": (of(lambda m, x: rms_xhat(x)), "rms_norm(x, eps=eps)"),
    "one gain": (
        of(lambda m, x: x / rms(x) * m.weight, weight=ones(1)),
        "rms_norm(x, weight, eps=0.0), for rows of at least 2e-14"),
    "length 1, one gain": (
        of(lambda m, x: m.g * x / x.norm(dim=-1, keepdim=True).clamp(min=1e-5), EmptyNorm, g=ones(1)),
        "rms_norm(x, g / sqrt(n), eps=0.0), for rows of at least 2e-05"),
    "root of the length": (
        of(lambda m, x: F.normalize(x, dim=-1) * m.root, EmptyNorm, root=C**0.5),
        "rms_norm(x, eps=0.0), for rows of at least 2e-12"),
    "optional argument": (Gated, "rms_norm(x, weight, eps=eps)"),
    "identities": (of(lambda m, x: m.act(norm(m, x)), act=nn.Identity()), "rms_norm(x, weight, eps=eps)"),
}  # fmt: skip
# Formulas with something else in place of eps, which shows only on small rows.
CLAMPS = {
    f"{name}, eps {eps}": of(forward, eps=eps)
    for eps in (0.0, 1e-30, 1e-16, 1e-8, 1e-5)
    for name, forward in {
        "clamped mean of squares": lambda m, x: x * squares(x).clamp(min=m.eps).rsqrt() * m.weight,
        "clamped rms": lambda m, x: x / rms(x).clamp(min=m.eps) * m.weight,
        "eps beside the root": lambda m, x: x / (rms(x) + m.eps) * m.weight,
    }.items()
} | {
    "normalize": of(lambda m, x: F.normalize(x, dim=-1) * C**0.5 * m.weight),
    "smallest number": of(lambda m, x: x * squares(x).clamp(min=torch.finfo(x.dtype).tiny).rsqrt() * m.weight),
    "maximum": of(lambda m, x: x / torch.maximum(rms(x), torch.tensor(1e-10, dtype=x.dtype)) * m.weight),
    "where": of(lambda m, x: torch.where(squares(x) > 1e-14, x * squares(x).rsqrt(), x) * m.weight),
    "guarded against 0": of(lambda m, x: x / rms(x).masked_fill(rms(x) == 0, 1) * m.weight),
    "no NaN for zeros": of(lambda m, x: torch.nan_to_num(x / rms(x)) * m.weight),
    "clamped variance": of(lambda m, x: (x - mean(x)) * var(x).clamp(min=1e-12).rsqrt() * m.weight),
}


class Affine(nn.LayerNorm):
    def __init__(self):
        super().__init__(8)


def affine(weight, bias):
    return of(lambda m, x: F.layer_norm(x, m.normalized_shape, weight(m.weight), bias(m.bias), m.eps), Affine)


def same(value):
    return value


def without_outliers(x):
    return torch.where(x.square() > 36 * squares(x), 0, x)


def below(most):
    return of(lambda m, x: norm(m, x.clamp(-most, most)))


def under_autocast(m, x):
    """Uses matrix products, which autocast rounds."""
    products = F.linear(x * x, torch.full((1, x.shape[-1]), 1 / x.shape[-1], dtype=x.dtype))
    return x * torch.rsqrt(products + m.eps) * m.weight


def refusing(m, x):
    if not torch.isfinite(x).all():
        raise ValueError("not finite")
    return norm(m, x)


def for_images(m, x):
    batch, channels, height, width = x.shape
    if channels > 2:
        raise RuntimeError("more than 2 channels")
    return norm(m, x)


class CallNorm(NarrowRMSNorm):
    def __call__(self, x):
        return super().__call__(x) + 1


class RunningNorm(NarrowRMSNorm):
    def __init__(self):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(C))


class LayerScale(nn.Module):
    """Not called a norm, but with a weight of one axis."""

    def __init__(self):
        super().__init__()
        self.gamma = ones()

    def forward(self, x):
        return x * self.gamma


RANDOM, OUTLIERS, LARGE, PARAMETERS, BROKEN = (
    f"{where} differs"
    for where in ("on random input it", "on input with outliers it", "on large input it", "with large parameters it",
                  "on rows that are not finite it")
)  # fmt: skip
NEAREST = "from the nearest norm, "
WIDE = ones(64)  # rows long enough for outliers that ordinary rows do not reach
OTHERS = {
    # another formula
    "unbiased": (of(lambda m, x: (x - mean(x)) / (x.std(-1, keepdim=True) + m.eps) * m.weight), NEAREST + "layer_norm"),
    "eps outside": (of(lambda m, x: (x - mean(x)) / (var(x).sqrt() + m.eps) * m.weight), NEAREST + "layer_norm"),
    "eps outside, RMS": (of(lambda m, x: x / (rms(x) + 1e-4) * m.weight), NEAREST + "rms_norm"),
    "length 1": (of(lambda m, x: x / (x.pow(2).sum(-1, keepdim=True) + m.eps).sqrt() * m.weight), RANDOM),
    "E[x^2] - E[x]^2": (of(lambda m, x: (x - mean(x)) / (squares(x) - mean(x) ** 2 + m.eps).sqrt() * m.weight), RANDOM),
    "self-gated": (of(lambda m, x: norm(m, x) * torch.sigmoid(x)), RANDOM),
    "dropout": (of(lambda m, x: F.dropout(norm(m, x), 0.1, m.training)), RANDOM),
    "training only": (of(lambda m, x: norm(m, x) if m.training else x * m.weight), RANDOM),
    "clipped": (of(lambda m, x: norm(m, x.clamp(-1e3, 1e3))), RANDOM),
    "bfloat16 inside": (of(lambda m, x: norm(m, x.bfloat16()).to(x.dtype)), RANDOM),
    "no norm": (LayerScale, RANDOM),
    "batch norm": (of(lambda m, x: F.batch_norm(x, None, None, m.weight, training=True), weight=WIDE), RANDOM),
    "eps of the sum": (
        of(lambda m, x: x * (x.pow(2).sum(-1, keepdim=True) + 1e-5).rsqrt() * m.cols**0.5 * m.weight, num_groups=4, cols=768,
           weight=ones(768)), "with rows of 768 elements it differs"),
    # other gradients
    "no backward": (of(lambda m, x: Undifferentiable.apply(norm(m, x))), "it raised NotImplementedError when tried"),
    "detached": (of(lambda m, x: x * torch.rsqrt(squares(x) + m.eps).detach() * m.weight), "its gradients are not"),
    "straight through at 0": (
        of(lambda m, x: torch.where((x == 0).all(-1, keepdim=True), x * m.weight, norm(m, x))), "its gradients are not"),
    "no gradient": (of(torch.no_grad()(lambda m, x: norm(m, x))), "its output has no gradient"),
    "gradients only": (of(lambda m, x: norm(m, x) if torch.is_grad_enabled() else x * m.weight), LARGE),
    # bounds of x, and of what it may hold
    **{f"x below {most}": (below(most), LARGE) for most in (65504, 1e5, 1e8, 1e12)},
    "bounded mean of squares": (of(lambda m, x: x * torch.rsqrt(squares(x).clamp(max=1e31) + m.eps) * m.weight), LARGE),
    "bounded xhat": (of(lambda m, x: layer_xhat(x).clamp(-5, 5) * m.weight, weight=WIDE), OUTLIERS),
    "dropped xhat": (
        of(lambda m, x: layer_xhat(x).masked_fill(layer_xhat(x).abs() > 6, 0) * m.weight, weight=WIDE), OUTLIERS),
    "bounded tail": (of(lambda m, x: rms_xhat(x).clamp(min=-7) * m.weight, weight=WIDE), OUTLIERS),
    "squares of most": (
        of(lambda m, x: x * torch.rsqrt(squares(without_outliers(x)) + m.eps) * m.weight, weight=WIDE), OUTLIERS),
    "bounds that short rows do not reach": (
        of(lambda m, x: layer_xhat(x).clamp(-100, 100), EmptyNorm), OUTLIERS),
    "nan_to_num": (of(lambda m, x: norm(m, torch.nan_to_num(x))), BROKEN),
    "nan_to_num after": (of(lambda m, x: torch.nan_to_num(norm(m, x))), BROKEN),
    "no infinity": (of(lambda m, x: norm(m, torch.where(x.isinf(), 1.0, x))), BROKEN),
    "refuses": (of(refusing), "it raised ValueError when tried: not finite"),
    # parameters of other signs and sizes
    "|weight|": (affine(torch.abs, same), RANDOM),
    "relu(weight)": (affine(torch.relu, same), RANDOM),
    "weight of at most 2": (affine(lambda weight: weight.clamp(max=2), same), RANDOM),
    "bias of at most 3": (affine(same, lambda bias: bias.clamp(-3, 3)), RANDOM),
    "bounded weight": (of(lambda m, x: rms_xhat(x) * m.weight.clamp(-30, 30)), PARAMETERS),
    "bounded output": (of(lambda m, x: (rms_xhat(x) * m.weight).clamp(-65504, 65504)), PARAMETERS),
    # what is around x
    "autocast": (of(under_autocast), "it computes something else under autocast"),
    "inference": (
        of(lambda m, x: norm(m, x) * (2 if torch.is_inference_mode_enabled() else 1)), "something else under inference"),
    "contiguous": (of(lambda m, x: norm(m, x) * (1 if x.is_contiguous() else 2)), "where x is not contiguous"),
    # other tensors and arguments
    "gated": (of(lambda m, x, gate: norm(m, x) * gate), "its forward takes (x, gate), not a single tensor"),
    "no forward": (lambda: EmptyNorm(), "its class has no forward"),
    "property": (lambda: PropertyNorm(C), "its forward is not written in Python"),
    "images only": (of(for_images), "it raised RuntimeError when tried: more than 2 channels"),
    "two outputs": (of(lambda m, x: (norm(m, x), x)), "its forward returns tuple, not a tensor"),
    "wide rows": (
        of(lambda m, x: norm(m, x) * (2 if x.shape[-1] > 99 else 1), weight=ones(4096)), "with rows of 4096 elements it"),
    "outliers of wide rows": (
        of(lambda m, x: rms_xhat(x).clamp(-40, 40) * m.weight, weight=ones(4096)), "with rows of 4096 elements it"),
    "temperature": (of(norm, temperature=ones(1)), "its tensors (weight, temperature) are not weight and bias"),
    "running mean": (RunningNorm, "its tensors (weight, running_mean) are not weight and bias"),
    "own __call__": (CallNorm, "its forward or __call__ is not that of its class"),
}  # fmt: skip
