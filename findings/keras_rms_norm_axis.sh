#!/bin/sh
# Keras' RMSNormalization over another axis than the last multiplies by its scale along the last axis.
#
# Keras 3.15.1 on JAX and TensorFlow. RMSNormalization(axis=1) of (1, 4, 4) normalises over axis 1 and has one scale for
# each index of it. The scale is not reshaped before the product, so it belongs to axis 2. If the two axes differ in
# length, the call fails. LayerNormalization(axis=1) multiplies along axis 1, and so does evenorm.rms_norm(x, axis=1,
# weight=scale).
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet keras==3.15.1 jax==0.10.2 numpy==2.4.6
cat >"$folder/check.py" <<'END'
import keras
import numpy as np

scale = np.array([1, 10, 100, 1000], np.float32)
x = np.where(np.eye(4), -1, 1).astype(np.float32)[None]  # every root mean square is 1
norm = keras.layers.RMSNormalization(axis=1)
norm.build(x.shape)
norm.set_weights([scale])
y = np.abs(np.asarray(norm(x)))[0]
for name, expected in (("axis 1", scale[:, None]), ("axis 2", scale)):
    print(f"multiplied along {name}: {np.allclose(y, np.broadcast_to(expected, (4, 4)))}")
END
export KERAS_BACKEND=jax
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
multiplied along axis 1: False
multiplied along axis 2: True
END
