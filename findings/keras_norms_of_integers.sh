#!/bin/sh
# Keras computes the layer norm of integers correctly, and then cuts the result off to integers.
#
# Keras 3.15.1, on JAX and on TensorFlow alike. LayerNormalization and GroupNormalization cast the normalised rows to
# x's type, and then return them as float32: of [1, 2, 3, 250], they leave [0, 0, 0, 1] instead of [-0.59, -0.58, -0.57,
# 1.73]. RMSNormalization returns integers. BatchNormalization is right. evenorm refuses integers.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet keras==3.15.1 jax==0.10.2 numpy==2.4.6
cat >"$folder/check.py" <<'END'
import keras
import numpy as np

x = np.array([[1, 2, 3, 250]], np.int32)
layers = keras.layers
for layer in (layers.LayerNormalization(), layers.GroupNormalization(groups=1), layers.RMSNormalization()):
    for rows in (x, x.astype(np.float32)):
        y = np.asarray(layer(rows))
        print(f"{type(layer).__name__} of {rows.dtype}: {y.dtype} {[round(value, 2) for value in y[0].tolist()]}")
END
export KERAS_BACKEND=jax
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
LayerNormalization of int32: float32 [0.0, 0.0, 0.0, 1.0]
LayerNormalization of float32: float32 [-0.59, -0.58, -0.57, 1.73]
GroupNormalization of int32: float32 [0.0, 0.0, 0.0, 1.0]
GroupNormalization of float32: float32 [-0.59, -0.58, -0.57, 1.73]
RMSNormalization of int32: int32 [0, 0, 0, 1]
RMSNormalization of float32: float32 [0.01, 0.02, 0.02, 2.0]
END
