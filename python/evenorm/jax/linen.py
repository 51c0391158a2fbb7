"""LayerNorm and RMSNorm for flax.linen: parameters, options and types of results are Flax's."""

from typing import Any

import flax.linen as nn
import jax
from flax.linen.dtypes import canonicalize_dtype

from ._flax import normalized_axes
from ._norms import layer_norm, rms_norm

__all__ = ["LayerNorm", "RMSNorm"]


class LayerNorm(nn.LayerNorm):
    """A flax.linen.LayerNorm that evenorm computes.

    Flax computes what evenorm does not support: masks, `axis_name`, and `feature_axes` other than `reduction_axes`.
    `use_fast_variance` and `force_float32_reductions` change nothing, because evenorm's accuracy does not depend on
    them.

    >>> import jax
    >>> x = jax.numpy.array([[1.0, 2], [1, 5]])
    >>> norm = LayerNorm(epsilon=0)
    >>> print(norm.apply(norm.init(jax.random.key(0), x), x))
    [[-1.  1.]
     [-1.  1.]]
    """

    @nn.compact
    def __call__(self, x: Any, *, mask: jax.Array | None = None) -> Any:
        axes = normalized_axes(self, x, mask)
        if axes is None:
            return super().__call__(x, mask=mask)
        shape = tuple(x.shape[axis] for axis in axes)
        scale = self.param("scale", self.scale_init, shape, self.param_dtype) if self.use_scale else None
        bias = self.param("bias", self.bias_init, shape, self.param_dtype) if self.use_bias else None
        dtype = canonicalize_dtype(x, scale, bias, dtype=self.dtype)
        return layer_norm(x, None, scale, bias, self.epsilon, axis=axes, dtype=dtype)


class RMSNorm(nn.RMSNorm):
    """A flax.linen.RMSNorm that evenorm computes, like `LayerNorm`.

    >>> import jax
    >>> x = jax.numpy.array([[3.0, 3], [-2, 2]])
    >>> norm = RMSNorm(epsilon=0)
    >>> print(norm.apply(norm.init(jax.random.key(0), x), x))
    [[ 1.  1.]
     [-1.  1.]]
    """

    @nn.compact
    def __call__(self, x: Any, *, mask: jax.Array | None = None) -> Any:
        axes = normalized_axes(self, x, mask)
        if axes is None:
            return super().__call__(x, mask=mask)
        shape = tuple(x.shape[axis] for axis in axes)
        scale = self.param("scale", self.scale_init, shape, self.param_dtype) if self.use_scale else None
        return rms_norm(x, None, scale, self.epsilon, axis=axes, dtype=canonicalize_dtype(x, scale, dtype=self.dtype))
