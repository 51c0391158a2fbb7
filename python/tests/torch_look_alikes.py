"""Modules as people write them: those that are layer or RMS norms under other names, and those that only look so.

NORMS maps each to the formula it should be swapped for; OTHERS each to a part of the reason why it must be left.
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


class GammaBeta(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma, self.beta = ones(), zeros()

    def forward(self, features):
        return F.layer_norm(features, features.shape[-1:], self.gamma, self.beta, 1e-12)


class GainBias(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain, self.bias, self.epsilon = ones(), zeros(), 1e-3

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred * (centred.pow(2).mean(-1, keepdim=True) + self.epsilon).rsqrt() * self.gain + self.bias


class ConstantBeta(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = ones()
        self.register_buffer("beta", torch.zeros(C))

    def forward(self, x):
        return F.layer_norm(x, (C,), self.gamma, self.beta)


class ZeroCentred(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.eps = zeros(), 1e-6

    def forward(self, x):
        wide = x.float()
        return (wide * (wide.pow(2).mean(-1, keepdim=True) + self.eps).rsqrt() * (1 + self.weight.float())).type_as(x)


class LayerNorm1P(nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, self.weight + 1, self.bias, self.eps)


class TwoAxesNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.g, self.eps = ones(4, 6), 1e-6

    def forward(self, x):
        return x / (x.square().mean((-2, -1), keepdim=True) + self.eps).sqrt() * self.g


class NoWeightNorm(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class NarrowRMSNorm(nn.Module):
    """Sums in x's own type: a norm in float32 and float64 alone."""

    def __init__(self):
        super().__init__()
        self.weight, self.eps = ones(), 1e-6

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class PlainSubclass(nn.LayerNorm):
    pass


NORMS = {
    ScaleShift: "layer_norm(x, scale, shift, eps=eps)",
    GammaBeta: "layer_norm(x, gamma, beta, eps=1e-12)",
    GainBias: "layer_norm(x, gain, bias, eps=epsilon)",
    ConstantBeta: "layer_norm(x, gamma, beta, eps=1e-05)",
    ZeroCentred: "rms_norm(x, 1 + weight, eps=eps)",
    lambda: LayerNorm1P(C): "layer_norm(x, 1 + weight, bias, eps=eps)",
    TwoAxesNorm: "rms_norm(x, g, eps=eps)",
    NoWeightNorm: "rms_norm(x, eps=1e-06)",
    NarrowRMSNorm: "rms_norm(x, weight, eps=eps)",
    lambda: PlainSubclass(C): "layer_norm(x, weight, bias, eps=eps)",
}


class Unbiased(ScaleShift):
    def forward(self, x):
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.scale * (x - mean) / (std + self.eps) + self.shift


class EpsOutside(ScaleShift):
    def forward(self, x):
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True, unbiased=False)
        return self.scale * (x - mean) / (std + self.eps) + self.shift


class Clamped(NarrowRMSNorm):
    def forward(self, x):
        return x / x.pow(2).mean(-1, keepdim=True).clamp(min=self.eps).sqrt() * self.weight


class LengthOne(NarrowRMSNorm):
    def forward(self, x):
        return x / (x.pow(2).sum(-1, keepdim=True) + self.eps).sqrt() * self.weight


class OtherEps(NarrowRMSNorm):
    """An eps that no attribute tells and nobody uses."""

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 3e-4) * self.weight


class Careless(ScaleShift):
    """E[x^2] - E[x]^2: far from 0 nothing is left of the variance."""

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = (x.square().mean(-1, keepdim=True) - mean.square()).clamp(min=0)
        return self.scale * (x - mean) / torch.sqrt(var + self.eps) + self.shift


class Detached(NarrowRMSNorm):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps).detach() * self.weight


class Frozen(NarrowRMSNorm):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)


class Gated(NarrowRMSNorm):
    def forward(self, x, gate=None):
        y = super().forward(x)
        return y if gate is None else y * F.silu(gate)


class SelfGated(NarrowRMSNorm):
    def forward(self, x):
        return super().forward(x) * torch.sigmoid(x)


class WithDropout(NarrowRMSNorm):
    def forward(self, x):
        return F.dropout(super().forward(x), 0.1, self.training)


class TrainingOnly(NarrowRMSNorm):
    def forward(self, x):
        return super().forward(x) if self.training else x * self.weight


class GradientsOnly(NarrowRMSNorm):
    def forward(self, x):
        return super().forward(x) if torch.is_grad_enabled() else x * self.weight


class Clipped(NarrowRMSNorm):
    """The same but for rows with an outlier."""

    def forward(self, x):
        return super().forward(x.clamp(-1e3, 1e3))


class HalfInside(NarrowRMSNorm):
    def forward(self, x):
        return super().forward(x.bfloat16()).to(x.dtype)


class TwoOutputs(NarrowRMSNorm):
    def forward(self, x):
        return super().forward(x), x


class ScaleNorm(nn.Module):
    """One gain for all: on rows of one element it would be an RMS norm."""

    def __init__(self):
        super().__init__()
        self.g, self.eps = ones(1), 1e-5

    def forward(self, x):
        return x / x.norm(dim=-1, keepdim=True).clamp(min=self.eps) * self.g


class LayerScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = ones()

    def forward(self, x):
        return x * self.gamma


class FilmNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.shift, self.temperature = ones(), zeros(), ones(1)

    def forward(self, x):
        return F.layer_norm(x, (C,), self.scale, self.shift) / self.temperature


class RunningNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = ones(), zeros()
        self.register_buffer("running_mean", torch.zeros(C))

    def forward(self, x):
        return (x - self.running_mean) * self.weight + self.bias


class CallNorm(NarrowRMSNorm):
    def __call__(self, x):
        return super().__call__(x) + 1


OTHERS = {
    Unbiased: "on random input it differs",
    EpsOutside: "on random input it differs",
    Clamped: "on random input it differs",
    LengthOne: "on random input it differs",
    OtherEps: "on random input it differs",
    Careless: "on random input it differs",
    Detached: "its gradients are not",
    Frozen: "its output has no gradient",
    Gated: "its forward takes (x, gate), not one tensor alone",
    SelfGated: "on random input it differs",
    WithDropout: "on random input it differs",
    TrainingOnly: "on random input it differs",
    GradientsOnly: "on large input it differs",
    Clipped: "on random input it differs",
    HalfInside: "on random input it differs",
    TwoOutputs: "its forward returns tuple, not a tensor",
    ScaleNorm: "not of one shape of 2 to 1048576 elements",
    LayerScale: "on random input it differs",
    FilmNorm: "its tensors (scale, shift, temperature) are not weight and bias",
    RunningNorm: "its tensors (weight, bias, running_mean) are not weight and bias",
    CallNorm: "its forward or __call__ is not that of its class",
}
