"""Whether a module computes a norm: its own forward beside evenorm's, on random rows with random parameters.

Names and classes prove nothing: zero-centred, gated, unbiased and low-precision variants share them. Knows modules and
recipes only; changes neither the module nor PyTorch's random state.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ._look_alikes import BIASES, WEIGHTS, Recipe, Types

Pass = tuple[nn.Module, Tensor, Tensor]  # a module, its x and its y

EPS = (1e-5, 1e-6, 1e-12, 1e-8, None, 0.0, 1e-3)
HALVES = (torch.bfloat16, torch.float16)
TYPES: tuple[Types, ...] = (
    (torch.float32, torch.float32),
    (torch.float64, torch.float64),
    *((half, half) for half in HALVES),
    *((half, torch.float32) for half in HALVES),
)
FREE_COLS = (5, 64)  # tried where no parameter says how long a row is

# Each row is scale * (mean + normal): one of every size at which some eps above is seen, or a clamp in its place; far
# from zero, where layer norm and RMS norm, and exact and careless sums, part.
ROWS = torch.tensor(
    [
        *((1, 0), (1, 0), (1, 3), (1, 100), (1, -40), (1e3, 0), (1e4, 0), (0.3, 0)),
        *((3e-2, 0), (1e-2, 0), (3e-3, 0), (1e-3, 1), (1e-4, 0), (3e-6, 0), (0, 0)),
    ],
    dtype=torch.float64,
)


@dataclass(frozen=True)
class Outcome:
    """How far apart old and new were, and how far they might be; or what else parted them."""

    ratio: float  # of the largest difference to what rounding explains there
    difference: float
    error: str = ""

    @property
    def agreed(self) -> bool:
        return self.ratio <= 1 and not self.error


def settle(module: nn.Module, recipe: Recipe) -> Recipe | str:
    """The recipe that the module computes, with the types for which it does; or why there is none."""
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autocast("cpu", enabled=False))
        single = (torch.float32, None if recipe.weight is None else torch.float32)
        outcomes = []
        for one in _recipes(module, recipe):
            outcome = _compare(module, one, single)
            if outcome.agreed:
                return _with_types(module, one)
            outcomes.append((outcome, one))
            if outcome.error:
                return outcome.error
    best, nearest = min(outcomes, key=lambda pair: pair[0].ratio)
    return f"on random input it differs by {best.difference:.2g} from the nearest norm, {nearest}"


def _recipes(module: nn.Module, recipe: Recipe) -> Iterator[Recipe]:
    """The kinds, eps and weights to try; eps that the module has as an attribute come first."""
    named = [
        (value, name)
        for name, value in vars(module).items()
        if "eps" in name.lower() and (value is None or (isinstance(value, float | int) and not isinstance(value, bool)))
    ]
    for eps, name in (*named, *((value, None) for value in EPS)):
        for kind in ("rms", "layer"):
            if (kind == "rms" and recipe.bias is not None) or (kind == "layer" and eps is None):
                continue
            for zero_centred in (False, True) if recipe.weight is not None else (False,):
                yield replace(recipe, kind=kind, eps=eps, eps_name=name, zero_centred=zero_centred)


def _with_types(module: nn.Module, recipe: Recipe) -> Recipe | str:
    weight = recipe.tensors(module)[0]
    own = weight.dtype if weight is not None else None
    outcomes = {}
    for x_type, weight_type in TYPES:
        if weight is None and weight_type is not x_type:
            continue
        pair = (x_type, None if weight is None else weight_type)
        outcomes[pair] = _compare(module, recipe, pair)
    agreed = frozenset(pair for pair, outcome in outcomes.items() if outcome.agreed)
    mine = (own or torch.float32, own)
    if mine not in agreed:
        how = outcomes[mine].error or f"by {outcomes[mine].difference:.2g}" if mine in outcomes else "not tried"
        return f"it is {recipe} in float32, but not in {str(mine[0])[6:]}: {how}"
    return replace(recipe, types=agreed)


def _compare(module: nn.Module, recipe: Recipe, types: Types) -> Outcome:
    """The worst of training and evaluation, and of each length of rows where none is given."""
    shape = recipe.shape(module)
    shapes = [(cols,) for cols in FREE_COLS] if shape is None else [shape]
    worst = Outcome(0, 0)
    for shape in shapes:
        for training in (True, False):
            try:
                outcome = _compare_once(module, recipe, types, shape, training)
            except Exception as error:  # whatever a stranger's forward raises
                return Outcome(math.inf, math.inf, f"it raised {type(error).__name__} when tried: {error}"[:200])
            if outcome.error or not outcome.ratio <= worst.ratio:
                worst = outcome
            if not worst.agreed:
                return worst
    return worst


def _compare_once(module: nn.Module, recipe: Recipe, types: Types, shape: tuple[int, ...], training: bool) -> Outcome:
    generator = torch.Generator().manual_seed(7)
    rows = _rows(shape, generator).to(types[0])
    old, new = (_probe(module, types[1], torch.Generator().manual_seed(8), training) for _ in range(2))
    x_old, x_new = (rows.clone().requires_grad_() for _ in range(2))
    y_old, y_new = type(module).forward(old, x_old), recipe.compute(new, x_new)
    if not isinstance(y_old, Tensor):
        return Outcome(math.inf, math.inf, f"its forward returns {type(y_old).__name__}, not a tensor")
    if y_old.shape != y_new.shape or y_old.dtype != y_new.dtype:
        mine, ours = (f"{tuple(y.shape)} {str(y.dtype)[6:]}" for y in (y_old, y_new))
        return Outcome(math.inf, math.inf, f"its output is {mine} where the norm's is {ours}")
    value, slope = _allowed(recipe, new, rows, shape)
    outcome = _outcome(y_old, y_new, value)
    if not outcome.agreed:
        return outcome
    # Rows of small numbers have gradients as large, which f16 cannot hold.
    dy = torch.randn(y_old.shape, generator=generator, dtype=torch.float64) * _row_max(rows, shape).clamp(max=1)
    gradients = _gradients(recipe, (old, x_old, y_old), (new, x_new, y_new), dy.to(y_old.dtype), slope)
    return outcome if gradients.agreed else gradients


def _gradients(recipe: Recipe, old: Pass, new: Pass, dy: Tensor, slope: Tensor) -> Outcome:
    """How far the gradients of x and of the parameters are apart."""
    if not old[2].requires_grad:
        return Outcome(math.inf, math.inf, "its output has no gradient")
    names = [name for name in (recipe.weight, recipe.bias) if name in old[0]._parameters]
    (dx_old, *rest_old), (dx_new, *rest_new) = (
        torch.autograd.grad(y, [x, *(getattr(module, name) for name in names)], dy, allow_unused=True)
        for module, x, y in (old, new)
    )
    shape = tuple(recipe.shape(old[0]) or dy.shape[-1:])
    worst = _outcome(dx_old, dx_new, slope * _row_max(dx_new, shape))
    # PyTorch's own layer norm adds up the rows of a bf16 weight's gradient in bf16: 5 % off over these 15, where the
    # formula is not.
    summed = torch.tensor(0.25) if dy.dtype in HALVES else slope.amax()
    for g_old, g_new in zip(rest_old, rest_new, strict=True):
        bound = summed * g_new.detach().double().abs().amax()
        worst = max(worst, _outcome(g_old, g_new, bound), key=lambda one: one.ratio)
    return worst if worst.agreed else replace(worst, error=f"its values are those of {recipe}, its gradients are not")


def _rows(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    count = len(ROWS)
    x = torch.randn((count, *shape), generator=generator, dtype=torch.float64)
    scale, mean = ROWS.reshape(count, 2, *(1 for _ in shape)).unbind(1)
    return (scale * (mean + x)).reshape(3, count // 3, *shape)


def _probe(module: nn.Module, dtype: torch.dtype | None, generator: torch.Generator, training: bool) -> nn.Module:
    """A module of the same class and attributes with random tensors, without hooks; the module's own are not touched.
    Its weight is neither about 0 nor about 1, so that w, 1 + w and none at all are told apart."""

    def random(name: str, old: Tensor | None) -> Tensor | None:
        if old is None or dtype is None:
            return None
        value = torch.randn(old.shape, generator=generator, dtype=torch.float64) * 0.25
        return (value + 0.5 if name in WEIGHTS else value - 0.5 if name in BIASES else value).to(dtype)

    made = object.__new__(type(module))
    parameters = {name: random(name, old) for name, old in module._parameters.items()}
    own = {
        "_parameters": {name: None if new is None else nn.Parameter(new) for name, new in parameters.items()},
        "_buffers": {name: random(name, old) for name, old in module._buffers.items()},
        "training": training,
    }
    made.__dict__ = {**vars(module), **own}
    return made


def _allowed(recipe: Recipe, module: nn.Module, x: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """By how much two honest computations of the norm may differ: of each value, and of gradients beside the largest.

    Both may sum in f32, where a mean far from 0 costs a row its condition, max|x| / std; and in half types each of a
    few steps may round: 16 u of f32 and 4 u of the type for values, twice that for gradients.
    """
    axes = tuple(range(-len(shape), 0))
    wide = x.detach().double()
    eps = recipe.eps if recipe.eps_name is None else getattr(module, recipe.eps_name)
    eps = torch.finfo(torch.float64 if x.dtype is torch.float64 else torch.float32).eps if eps is None else eps
    mean = wide.mean(axes, keepdim=True) if recipe.kind == "layer" else torch.zeros(())
    rstd = ((wide - mean).square().mean(axes, keepdim=True) + eps).rsqrt()
    condition = 1 + wide.abs().amax(axes, keepdim=True) * rstd if recipe.kind == "layer" else torch.ones(())
    weight, bias = (None if t is None else t.detach().double() for t in recipe.tensors(module))
    gamma = torch.ones(()) if weight is None else (weight + recipe.zero_centred).abs()
    beta = torch.zeros(()) if bias is None else bias.abs()
    xhat = ((wide - mean) * rstd).abs()
    single, half = 2.0**-24, torch.finfo(x.dtype).eps / 2 if x.dtype in HALVES else 0.0
    value = 16 * single * condition * (gamma * xhat.amax(axes, keepdim=True) + beta) + 4 * half * (gamma * xhat + beta)
    if x.dtype is torch.float16:
        value = value + torch.finfo(x.dtype).smallest_normal * 2 * half
    return value, 32 * single * condition + 8 * half


def _row_max(gradient: Tensor, shape: tuple[int, ...]) -> Tensor:
    return gradient.detach().double().abs().amax(tuple(range(-len(shape), 0)), keepdim=True)


def _outcome(old: Tensor | None, new: Tensor, allowed: Tensor) -> Outcome:
    if old is None:
        return Outcome(math.inf, math.inf)
    old, new = old.detach().double(), new.detach().double()
    same = (old == new) | (old.isnan() & new.isnan())
    difference = torch.where(same, 0.0, (old - new).abs())
    ratio = torch.where(same, 0.0, difference / allowed).nan_to_num(nan=math.inf)
    where = int(ratio.flatten().argmax())
    return Outcome(float(ratio.flatten()[where]), float(difference.flatten()[where].nan_to_num(nan=math.inf)))
