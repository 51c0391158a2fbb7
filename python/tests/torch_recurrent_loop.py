"""The formulas of the normalised recurrent layers, in loops over single vectors in float64. From evenorm they use
only a module's options and parameters."""

import torch
from torch import sigmoid, tanh


def norm(a, gain, bias, eps):
    y = gain * (a - a.mean()) / (a.var(unbiased=False) + eps).sqrt()
    return y if bias is None else y + bias


def lstm_vector(x, state, p, eps):
    h, c = state
    a = norm(p["weight_ih"] @ x, p["gain_ih"], p.get("bias_ih"), eps)
    a = a + norm(p["weight_hh"] @ h, p["gain_hh"], p.get("bias_hh"), eps)
    i, f, g, o = a.chunk(4)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h = sigmoid(o) * tanh(norm(c, p["gain_c"], p.get("bias_c"), eps))
    return (p["weight_hr"] @ h if "weight_hr" in p else h), c


def gru_vector(x, state, p, eps):
    (h,) = state
    n = h.shape[0]

    def part(a, which, rows):
        bias = p[f"bias_{which}"][rows] if f"bias_{which}" in p else None
        return norm(a[rows], p[f"gain_{which}"][rows], bias, eps)

    a, b, gates, new = p["weight_ih"] @ x, p["weight_hh"] @ h, slice(0, 2 * n), slice(2 * n, 3 * n)
    r, z = sigmoid(part(a, "ih", gates) + part(b, "hh", gates)).chunk(2)
    candidate = tanh(part(a, "ih", new) + r * part(b, "hh", new))
    return ((1 - z) * candidate + z * h,)


def loop(module, sequences, states):
    """Runs each sequence alone through all layers. Returns its outputs, and its last states by layer and direction."""
    vector = lstm_vector if module.mode == "LSTM" else gru_vector
    outputs, ends = [], []
    for number, rows in enumerate(sequences):
        ends.append([])
        for layer in range(module.num_layers):
            directions = []
            for suffix in ["", "_reverse"][: 1 + module.bidirectional]:
                end = f"_l{layer}{suffix}"
                p = {k.removesuffix(end): v for k, v in module.named_parameters() if k.endswith(end)}
                state = [part[len(ends[number]), number] for part in states]
                out = []
                for x in reversed(rows) if suffix else rows:
                    state = vector(x, state, p, module.eps)
                    out.append(state[0])
                directions.append(out[::-1] if suffix else out)
                ends[number].append(state)
            rows = [torch.cat(step) for step in zip(*directions, strict=True)]
        outputs.append(torch.stack(rows))
    parts = range(len(states))
    return outputs, [torch.stack([torch.stack([end[j] for end in one]) for one in ends], 1) for j in parts]
