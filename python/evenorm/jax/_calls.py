"""Calls of XLA's handlers in libevenorm_jax.so, with their gradients. Arguments are checked before, in _norms.py."""

import ctypes
import functools
import pathlib
from typing import Any, NamedTuple

try:
    import jax
except ImportError as error:
    raise ImportError("evenorm.jax needs JAX, which is not installed: pip install 'jax>=0.6.2'") from error
import numpy as np

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


class Norm(NamedTuple):
    """What a call needs besides its arrays. The axes are negative, so that vmap's axes in front do not change them."""

    rms: bool
    axes: tuple[int, ...]
    eps: float
    zero_centered: bool
    dtype: np.dtype[Any]  # of y


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


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _apply(norm, x, weight, bias):
    y = jax.typeof(x).update(dtype=norm.dtype, weak_type=False)
    return _call("evenorm_jax_forward", [y], (x, weight, bias), (x, weight, bias), norm)[0]


def _apply_and_save(norm, x, weight, bias):
    return _apply(norm, x, weight, bias), (x, weight, bias)


def _gradients(norm, saved, dy):
    x, weight, _ = saved
    results = [jax.typeof(array) for array in saved if array is not None]
    made = iter(_call("evenorm_jax_backward", results, (dy, x, weight), saved, norm))
    return tuple(None if array is None else next(made) for array in saved)


_apply.defvjp(_apply_and_save, _gradients)
_compiled = jax.jit(_apply, static_argnums=0, inline=True)  # for eager calls, which take a quarter of the time


def _call(handler, results, inputs, arrays, norm):
    x, weight, bias = arrays
    return jax.ffi.ffi_call(handler, results, vmap_method="expand_dims")(
        *(array for array in inputs if array is not None),
        rms=norm.rms,
        zero_centered=norm.zero_centered,
        has_weight=weight is not None,
        has_bias=bias is not None,
        eps=np.float64(norm.eps),
        axes=np.array(norm.axes, np.int64),
        rank=np.int64(x.ndim),
    )
