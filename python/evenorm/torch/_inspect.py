"""inspect(): measures a model's norms on the caller's own inputs: accuracy, dependence on the batch, and time.

Hooks measure each norm while its input and output are alive, so no activations are kept. convert()'s trials decide what
a module computes; the reference is that formula in float64.
"""

import copy
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map

from evenorm._inspection import InspectedNorm, Inspection

from ._convert import bypassed, check_model, class_name, is_evenorms, swap
from ._functions import has_overrides, is_supported
from ._look_alikes import EACH, FIRST, GROUPS, LAST, PER_LENGTH, PLAIN, UNUSED, ZERO_CENTRED, Recipe
from ._probe import Place, random_states

MOST_ELEMENTS = 2**20  # of the rows that are compared at once, which bounds the memory for float64
FEW_ROWS = 8  # computed alone
TIMED_RUNS, TIMED_SECONDS = 10, 1.0  # at most


def inspect(model: nn.Module, /, *inputs: Any, **kwargs: Any) -> Inspection:
    """Run a model on your own inputs and measure each of its norms: accuracy, batch dependence and time.

    The model runs as it is, without gradients: once to measure, and then for about a second to time. Afterwards its
    buffers, attributes, submodules, hooks and modes, PyTorch's random states and the inputs are as before, except
    parameters and objects that forward changes in place, such as a list that grows. Norms that are not modules are not
    found.

    Args:
        model: any module, converted or not. What torch.compile returned runs uncompiled.
        *inputs, **kwargs: what you call the model with.

    Returns:
        An Inspection. print() shows it as a table; json() returns it as JSON text. `norms` has an InspectedNorm for each
        module that is or looks like a norm, with the largest error first:

        - name, cls and formula, or the reason why `convert` leaves the module;
        - rows (added up over calls), columns, and the types of x, the weight and y;
        - mean_over_std, x_over_std: the largest |mean|/std and |x|/std of a row. std is what the norm divides by: the root
          of var + eps, or of the mean of squares + eps. Large ones cost digits;
        - error, evenorm_error: the largest error of the module, and of evenorm's norm on the same x, against the formula
          in float64. The unit is u (|weight| max|xhat| + |bias|): u is half the epsilon of y's type (2^-24 for float32),
          and the maximum is over the row. Rows that are not finite do not count. A y beyond the range of its type is
          infinitely wrong. The errors of float64 norms include those of the reference, a few u;
        - same_bits_alone: False if one of 8 rows (group norms: samples) has other bits when the module computes it alone;
        - seconds, share: the time in a forward pass, and its share of the pass. They are meaningful on the CPU only.

    Raises:
        TypeError: model is not a torch.nn.Module, or the inputs cannot be copied.
        ValueError: a parameter has no shape yet.

    Example:
        >>> import torch, evenorm.torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8))
        >>> norm = evenorm.torch.inspect(model, torch.ones(2, 3, 4)).norms[0]
        >>> norm.formula, norm.rows, norm.columns, norm.types
        ('layer_norm(x, weight, bias, eps=1e-05)', 6, 8, 'f32')
        >>> norm.evenorm_error < 4
        True
    """
    check_model(model)
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(value):
            raise ValueError(f"{name} has no shape yet: call the model once before inspecting it")
    settled: Any = {}
    named = model.named_modules()
    found = [(name, one, type(one) if is_evenorms(one) else swap(one, settled)) for name, one in named]
    norms = [_Norm(name, module, new) for name, module, new in found if new is not None]
    _run(model, inputs, kwargs, norms, _Norm.measure_calls)
    spent: list[float] = []
    while not spent or (len(spent) < TIMED_RUNS and sum(spent) < TIMED_SECONDS):
        spent.append(_run(model, inputs, kwargs, norms, _Norm.time_calls))
    reports = sorted((norm.finished(spent) for norm in norms), key=lambda one: -(one.error or 0.0))
    notes = tuple(bypassed(model, {one.name for one in reports}))
    return Inspection(tuple(reports), statistics.mean(spent), notes)


def _run(model: nn.Module, inputs: Any, kwargs: Any, norms: "list[_Norm]", hook: "Callable[[_Norm], None]") -> float:
    """Runs the model with hooks on its norms, and returns the seconds that it took."""
    detached = tree_map(lambda value: value.detach() if isinstance(value, Tensor) else value, (inputs, kwargs))
    try:
        args, options = copy.deepcopy(detached)
    except Exception as error:
        raise TypeError(f"inputs should be such that copy.deepcopy() can copy them: {error}") from error
    with ExitStack() as stack:
        for context in (torch.no_grad(), random_states(), _restored(model), torch.compiler.set_stance("force_eager")):
            stack.enter_context(context)
        for norm in norms:
            stack.callback(norm.remove_hooks)
            hook(norm)
        start = time.perf_counter()
        model(*args, **options)
        return time.perf_counter() - start


@contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Restores all modules' attributes and dictionaries, and the tensors that a forward pass may change in place."""
    modules: list[Any] = list(model.modules())
    values = [value for module in modules for value in vars(module).values()]
    homes = (*map(vars, modules), *(value for value in values if isinstance(value, dict)))  # of parameters, hooks, ...
    before = [(home, dict(home)) for home in homes]
    renormalised = [module.weight for module in modules if getattr(module, "max_norm", None) is not None]
    tensors = (*model.buffers(), *renormalised, *(value for value in values if isinstance(value, Tensor)))
    kept = [(tensor, tensor.clone()) for tensor in tensors]
    try:
        yield
    finally:
        for home, saved in before:
            home.clear()
            home.update(saved)
        for tensor, values_before in kept:
            if not torch.equal(tensor, values_before):  # batch norm does not change the version
                with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
                    tensor.copy_(values_before)


class _Norm:
    """A norm of the model, with hooks that measure or time its calls."""

    def __init__(self, name: str, module: nn.Module, new: type[nn.Module] | str) -> None:
        self.module, self.report = module, InspectedNorm(name, class_name(module))
        self.hooks, self.seconds, self.started = list[Any](), list[float](), list[float]()
        self.recipe = new if isinstance(new, str) else _recipe(module, new)
        if isinstance(new, str) or isinstance(self.recipe, str):
            self.report.reason = str(self.recipe)
            return
        self.report.formula = str(replace(self.recipe, eps=self.recipe.eps_of(module), eps_name=None))
        self.ours = object.__new__(new)  # the norm that convert() would make of the module
        self.ours.__dict__ = vars(module)

    def finished(self, spent: list[float]) -> InspectedNorm:
        if self.report.rows == 0 and self.report.reason is None:
            none = "no call of it was completed" if self.started else "it was not called"
            self.report.reason = "its x had no elements" if self.report.calls else none
        self.report.seconds = statistics.mean(self.seconds)
        self.report.share = sum(self.seconds) / sum(spent)
        return self.report

    # The module's own hooks may change x and y. These hooks are between them and forward. A script has none.

    def measure_calls(self) -> None:
        if not isinstance(self.module, torch.jit.ScriptModule):
            self.hooks.append(self.module.register_forward_hook(self._measure, prepend=True, with_kwargs=True))

    def time_calls(self) -> None:
        def add_time() -> None:
            self.seconds[-1] += time.perf_counter() - self.started.pop()

        self.seconds.append(0.0)
        if not isinstance(self.module, torch.jit.ScriptModule):
            start = self.module.register_forward_pre_hook(lambda *_: self.started.append(time.perf_counter()))
            self.hooks += start, self.module.register_forward_hook(lambda *_: add_time(), prepend=True)

    def remove_hooks(self) -> None:
        while self.hooks:
            self.hooks.pop().remove()

    def _measure(self, module: nn.Module, args: Any, kwargs: Any, y: Any) -> None:
        report, given = self.report, (*args, *kwargs.values())
        report.calls += 1
        if isinstance(self.recipe, str):
            return
        if isinstance(given[0], Tensor) and given[0].numel() == 0:
            return
        place = _place(self.recipe, module, given[0]) if len(given) == 1 else None
        if place is None or torch._C._functorch.is_functorch_wrapped_tensor(given[0]):
            report.reason = "it was called with an x or with arguments that convert leaves to its own forward"
        else:
            self._compare(self.recipe, place, given[0], y)

    def _compare(self, recipe: Recipe, place: Place, x: Tensor, y: Tensor) -> None:
        report, weight = self.report, recipe.tensors(self.module)[0]
        types = [str(t.dtype)[6:].replace("float", "f") for t in (x, weight, y) if t is not None]
        report.types = "/".join(types if len(set(types)) > 1 else types[:1])
        report.rows, report.columns = report.rows + place.count, place.cols
        found = _figures(recipe, self.module, place, x, (y, type(self.ours).forward(self.ours, x)))
        for name, value in zip(("mean_over_std", "x_over_std", "error", "evenorm_error"), found, strict=True):
            setattr(report, name, max(value, getattr(report, name) or 0.0))
        if report.same_bits_alone is not False:
            report.same_bits_alone = _same_alone(self.module, place, x, y)


def _recipe(module: nn.Module, cls: Any) -> Recipe | str:
    """Returns what the module computes if convert() would give it the class cls, or why it is not measured."""
    if hasattr(cls, "evenorm_recipe"):
        return cls.evenorm_recipe  # type: ignore[no-any-return]
    norm: Any = module
    if getattr(norm, "_dim", None) not in (None, -1, (-1,)):
        return f"rows along dim={norm._dim} are not measured"
    kind = "rms" if isinstance(norm, nn.RMSNorm) else "layer" if isinstance(norm, nn.LayerNorm) else "group"
    weight, bias = (None if getattr(norm, name, None) is None else name for name in ("weight", "bias"))
    cols = None if kind == "group" else math.prod(norm.normalized_shape)
    form = ZERO_CENTRED if getattr(norm, "_zero_centered", False) else PLAIN
    return Recipe(kind, weight, bias, "", norm.eps, form=form, groups=getattr(norm, "num_groups", EACH), cols=cols)


def _place(recipe: Recipe, module: Any, x: Any) -> Place | None:
    """Returns where the rows of x lie, or None if evenorm leaves such an x to the module's own forward."""
    if recipe.axes:
        found = recipe.axis(module, x)
    else:
        handled = is_supported(x) and x.device.type == "cpu" and not has_overrides(x, *recipe.tensors(module))
        found = (GROUPS if recipe.kind == "group" else LAST, "") if handled else None
    if found is None:
        return None
    sizes = tuple(x.shape)
    if found[0] == GROUPS:
        alone = hasattr(module, "_get_no_batch_dim") and x.dim() == module._get_no_batch_dim()  # of instance norm
        sizes = (1, *sizes) if alone else sizes
        return Place(GROUPS, sizes, math.prod(sizes[1:]) // recipe.groups_of(module, sizes[1]))
    cols = sizes[1] if found[0] == FIRST else math.prod(recipe.shape(module) or sizes[-1:])
    return Place(found[0], sizes if found[0] == FIRST else (x.numel() // cols, cols), cols)


def _figures(recipe: Recipe, module: nn.Module, place: Place, x: Tensor, results: tuple[Tensor, ...]) -> list[float]:
    """Returns the largest |mean|/std and |x|/std of x's rows, and the largest error of each result."""
    sample = replace(place, sizes=(1, *place.sizes[1:]))  # whose rows have the same parameters as those of the others
    given = (None if t is None or recipe.form == UNUSED else t.reshape(-1) for t in recipe.tensors(module))
    weight, bias = (None if t is None else sample.spread(t) for t in given)
    rows, ys = place.rows(x), [place.rows(y) for y in results]
    eps = recipe.eps_of(module)
    eps = torch.finfo(torch.promote_types(x.dtype, torch.float32)).eps if eps is None else eps
    worst = torch.zeros(2 + len(ys), dtype=torch.float64)
    step = max(1, MOST_ELEMENTS // place.cols)
    for at in (slice(start, start + step) for start in range(0, place.count, step)):
        part = rows[at].double()
        row = torch.arange(at.start, at.start + len(part)) % sample.count
        gamma = part.new_ones(()) if weight is None else weight[row].double() + (recipe.form == ZERO_CENTRED)
        gamma = gamma / math.sqrt(place.cols) if recipe.form == PER_LENGTH else gamma
        beta = part.new_zeros(()) if bias is None else bias[row].double()
        largest = part.abs().amax(1, keepdim=True).clamp(min=math.sqrt(eps))
        factor = torch.exp2(-torch.frexp(largest)[1].double().clamp(-1000, 1000))  # so that float64 does not overflow
        part = part * factor
        mean, xhat, rstd, counts = _normalised(recipe, part, factor, eps)
        exact, scale = xhat * gamma + beta, xhat.abs().amax(1, keepdim=True) * gamma.abs() + beta.abs()
        figures = [(mean * rstd).abs(), part.abs() * rstd]
        for y in ys:
            kind = torch.finfo(y.dtype)
            error = (y[at].double() - exact).abs() / (kind.eps / 2 * scale.clamp(min=kind.smallest_normal))
            figures.append(error.nan_to_num(nan=math.inf, posinf=math.inf))
        worst = torch.maximum(worst, torch.stack([figure.where(counts, 0.0).amax() for figure in figures]))
    return worst.tolist()


def _normalised(recipe: Recipe, x: Tensor, factor: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the rows' means, xhat and 1/std in float64, and which rows count. Rows were multiplied by `factor`."""
    mean, centred = x.mean(1, keepdim=True), x
    if recipe.kind != "rms":
        rest = (x - mean).mean(1, keepdim=True)  # what the mean lacks if x is float64
        mean, centred = mean + rest, x - mean - rest
    var = centred.square().mean(1, keepdim=True)
    var_eps = var + eps * factor * factor
    rstd = var_eps.rsqrt().where(var_eps > 0, 0.0)
    return mean, centred * rstd, rstd, var.isfinite() & (var.sqrt() >= recipe.least * factor)


def _same_alone(module: nn.Module, place: Place, x: Tensor, y: Tensor) -> bool | None:
    """Returns whether a few rows (of groups: samples) have y's bits if the module computes each alone."""
    of_row = next((k for k in range(1, x.dim() + 1) if math.prod(x.shape[-k:]) == place.cols), 1)
    axes = {LAST: range(x.dim() - of_row), FIRST: (0, *range(2, x.dim())), GROUPS: range(x.dim() == len(place.sizes))}
    count = math.prod(x.shape[axis] for axis in axes[place.axis])
    for index in torch.linspace(0, count - 1, min(count, FEW_ROWS)).long().tolist():
        cut = [slice(None)] * x.dim()
        for axis in axes[place.axis]:
            index, at = divmod(index, x.shape[axis])
            cut[axis] = slice(at, at + 1)
        alone = module.forward(x[tuple(cut)].clone())  # in x's memory format
        bits = [t.reshape(-1).contiguous().view(torch.uint8) for t in (alone, y[tuple(cut)])]
        if not torch.equal(*bits):
            return False
    return True
