"""Calls of XLA's handlers in libevenorm_jax.so, with their derivatives. Arguments are checked before, in _norms.py.

Gradients come from the backward handler. Forward mode and second derivatives differentiate a composed formula.
"""

import ctypes
import functools
import pathlib
from typing import Any, NamedTuple

try:
    import jax
except ImportError as error:
    raise ImportError("evenorm.jax needs JAX, which is not installed: pip install 'jax>=0.6.2'") from error
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

if jax.__version_info__ < (0, 6, 2):
    raise ImportError(f"evenorm.jax needs JAX 0.6.2 or later, but this is JAX {jax.__version__}")
_path = pathlib.Path(__file__).parent / "libevenorm_jax.so"
if not _path.exists():
    raise ImportError(
        "this build of evenorm has no evenorm.jax, because it found no headers of jaxlib: "
        "install evenorm with pip install --no-build-isolation where jaxlib is installed"
    )
_library = ctypes.CDLL(str(_path))
for _name in ("evenorm_jax_forward", "evenorm_jax_backward"):
    jax.ffi.register_ffi_target(_name, jax.ffi.pycapsule(_library[_name]), platform="cpu")
    # Under a shard_map over some of a mesh's axes, XLA's partitioner aborts at targets without a partitioning. No axis of
    # a call is marked as a batch, so XLA still gathers arrays that are sharded instead of splitting the call.
    jax.ffi.register_ffi_target_as_batch_partitionable(_name)


class Norm(NamedTuple):
    """What a call needs besides its arrays. The axes are negative, so that vmap's axes in front do not change them."""

    rms: bool
    axes: tuple[int, ...]
    eps: float
    zero_centered: bool
    dtype: np.dtype[Any]  # of y
    rank: int  # of x, without vmap's axes


def apply(norm: Norm, x: jax.Array | None, weight: jax.Array | None, bias: jax.Array | None) -> jax.Array:
    """The norm of x, of x's shape and norm's type."""
    arrays = (x, weight, bias)
    # Under shard_map, each array is marked as varying over all mesh axes over which one of them varies. So the gradient
    # of a weight that all devices share is summed over the devices.
    axes = frozenset().union(*(_varying(a) for a in arrays if a is not None))
    cast = functools.partial(jax.lax.pcast, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary
    return _compiled(
        norm, *(a if a is None or _varying(a) == axes else cast(a, tuple(axes - _varying(a))) for a in arrays)
    )


def _varying(array):
    aval = jax.typeof(array)
    return aval.manual_axis_type.varying if hasattr(aval, "manual_axis_type") else aval.vma  # since JAX 0.10, or before


def _call(handler, norm, types, arrays, *dy):
    inputs = (*dy, *arrays)[:3]  # x, weight and bias, or dy, x and weight
    return jax.ffi.ffi_call(handler, types)(
        *jax.tree.leaves(inputs),
        rms=norm.rms,
        zero_centered=norm.zero_centered,
        has_weight=arrays[1] is not None,
        has_bias=arrays[2] is not None,
        eps=np.float64(norm.eps),
        axes=np.array(norm.axes, np.int64),
        rank=np.int64(norm.rank),
    )


# --- Three primitives: y, its tangent, and the gradients, which are the tangent's transpose. Their operands are the leaves
# of their arguments. `arrays` are x, weight and bias; None stands for an absent array and for a tangent of zeros. vmap adds
# an axis in front of every operand, of size 1 if all samples share the operand.


def _primitive(name, compute, sample, composed):
    """A new primitive. `sample` gives the types of one sample's results; `composed` computes what is differentiated."""
    primitive = Primitive(name)
    primitive.multiple_results = True

    def types(*operands, norm, tree):
        count = len(operands[0].shape) - norm.rank
        batch = jnp.broadcast_shapes(*(a.shape[:count] for a in operands))
        made = sample(norm, *jax.tree.unflatten(tree, operands))
        return [a.update(shape=(*batch, *a.shape[count:]), weak_type=False) for a in made if a is not None]

    def evaluate(function, *operands, norm, tree):
        made = types(*map(jax.typeof, operands), norm=norm, tree=tree)
        return function(norm, made, *jax.tree.unflatten(tree, operands))

    def differentiate(operands, tangents, **parameters):
        tangents = [None if isinstance(t, ad.Zero) else t for t in tangents]
        made = _jvp(functools.partial(evaluate, composed, **parameters), operands, tangents)
        return primitive.bind(*operands, **parameters), made

    def batch(operands, axes, **parameters):
        moved = [a[None] if axis is None else jnp.moveaxis(a, axis, 0) for a, axis in zip(operands, axes, strict=True)]
        made = primitive.bind(*moved, **parameters)
        return made, [0] * len(made)

    primitive.def_impl(functools.partial(evaluate, compute))
    primitive.def_abstract_eval(types)
    mlir.register_lowering(primitive, mlir.lower_fun(functools.partial(evaluate, compute)))
    ad.primitive_jvps[primitive] = differentiate
    batching.primitive_batchers[primitive] = batch
    return primitive


def _bind(primitive, norm, *arguments):
    operands, tree = jax.tree.flatten(arguments)
    return primitive.bind(*operands, norm=norm, tree=tree)


def _jvp(function, primals, tangents):
    """The tangents of a function's results. None stands for absent primals and tangents."""
    varied = [p if t is not None else None for p, t in zip(primals, tangents, strict=True)]
    merged = lambda *varied: function(*(p if v is None else v for p, v in zip(primals, varied, strict=True)))  # noqa: E731
    return jax.jvp(merged, varied, list(tangents))[1]


def _tangent(norm, _, arrays, tangents):
    pairs = [(a, t) if t is None else jnp.broadcast_arrays(a, t) for a, t in zip(arrays, tangents, strict=True)]
    return [_jvp(functools.partial(_formula, norm), *zip(*pairs, strict=True))]


def _gradients(norm, types, arrays, dy):
    shapes = iter(types)
    arrays = [a if a is None else jnp.broadcast_to(a, next(shapes).shape) for a in arrays]
    found = jax.vjp(functools.partial(_formula, norm), *arrays)[1](jnp.broadcast_to(dy, arrays[0].shape))
    return jax.tree.leaves(found)


def _formula(norm, x, weight, bias):
    """y in operations of JAX, to be differentiated. A large mean and large or small elements do no harm."""
    x = x.astype(float)  # float32 without jax_enable_x64
    mean = functools.partial(jnp.mean, axis=norm.axes, keepdims=True)
    if not norm.rms:
        x = x - mean(x)
        x = x - mean(x)  # the rounding of the first mean
    root = norm.eps**0.5
    scale = jnp.maximum(jnp.abs(jax.lax.stop_gradient(x)).max(norm.axes, keepdims=True), root)
    scale = jnp.where(scale > 0, scale, 1)
    x = x / scale
    variance = mean(x * x) + (root / scale) ** 2
    y = x * jnp.where(variance == 0, 0, jax.lax.rsqrt(jnp.where(variance == 0, 1, variance)))  # NaN stays
    others = [axis for axis in range(-norm.rank, 0) if axis not in norm.axes]
    if weight is not None:
        y = y * jnp.expand_dims(weight.astype(float) + float(norm.zero_centered), others)
    if bias is not None:
        y = y + jnp.expand_dims(bias.astype(float), others)
    return y.astype(norm.dtype)


def _y_type(norm, arrays, *_):
    return [arrays[0].update(dtype=norm.dtype)]


_y_p = _primitive("evenorm_y", functools.partial(_call, "evenorm_jax_forward"), _y_type, None)
_tangent_p = _primitive("evenorm_tangent", _tangent, _y_type, _tangent)
_gradients_p = _primitive(
    "evenorm_gradients", functools.partial(_call, "evenorm_jax_backward"), lambda norm, arrays, dy: arrays, _gradients
)


def _differentiate_y(operands, tangents, *, norm, tree):
    (arrays,) = jax.tree.unflatten(tree, operands)
    (tangents,) = jax.tree.unflatten(tree, [None if isinstance(t, ad.Zero) else t for t in tangents])
    return _y_p.bind(*operands, norm=norm, tree=tree), _bind(_tangent_p, norm, arrays, tangents)


def _transpose_tangent(dys, *operands, norm, tree):
    if isinstance(dys[0], ad.Zero):
        return [None] * len(operands)
    arrays, tangents = jax.tree.unflatten(tree, operands)
    found = jax.tree.unflatten(jax.tree.structure(arrays), _bind(_gradients_p, norm, arrays, dys[0]))
    wanted = [_summed(g, t) for g, t in zip(found, tangents, strict=True) if t is not None]
    return [None] * (len(operands) - len(wanted)) + wanted


def _summed(gradient, tangent):
    """The gradient of a tangent, summed over the samples that share it. None for a tangent that is a constant."""
    if not ad.is_undefined_primal(tangent):
        return None
    shared = [i for i, n in enumerate(tangent.aval.shape) if n != gradient.shape[i]]
    return gradient.sum(shared, keepdims=True) if shared else gradient


ad.primitive_jvps[_y_p] = _differentiate_y
ad.primitive_transposes[_tangent_p] = _transpose_tangent
# For eager calls, which take a quarter of the time.
_compiled = jax.jit(lambda norm, *arrays: _bind(_y_p, norm, arrays)[0], static_argnums=0, inline=True)
