#!/bin/sh
# TensorFlow on a CPU: the mean of 4096 float16 elements of 300 is infinite, while tf.nn.moments gives 300.
#
# tensorflow-cpu 2.21.0. tf.reduce_mean sums float16 in float16, and so do tf.math.reduce_variance and reduce_std, which
# are infinite, too. tf.nn.moments computes in float32 and rounds at the end. So a norm composed of tf.reduce_mean is
# NaN where one composed of tf.nn.moments is right. bfloat16 is right in all of them. evenorm sums in float64.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
cat >"$folder/check.py" <<'END'
import tensorflow as tf

for dtype in (tf.float16, tf.bfloat16):
    x = tf.cast(tf.constant([[298.0, 302.0] * 2048]), dtype)
    mean, variance = (float(value[0]) for value in tf.nn.moments(x, [1]))
    print(f"{dtype.name}: tf.nn.moments {mean}, {variance};", end=" ")
    print(f"tf.reduce_mean {float(tf.reduce_mean(x, 1)[0])}, reduce_variance {float(tf.math.reduce_variance(x, 1)[0])}")
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
float16: tf.nn.moments 300.0, 4.0; tf.reduce_mean inf, reduce_variance inf
bfloat16: tf.nn.moments 300.0, 4.0; tf.reduce_mean 300.0, reduce_variance 4.0
END
