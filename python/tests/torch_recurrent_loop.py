"""The formulas of the normalised recurrent layers on one vector in float64, in plain loops: no linear, no layer_norm,
no batch, nothing of evenorm but a module's options and parameters."""

import torch


def norm(a, gain, bias, eps):
    n = a.shape[0]
    mean = sum(a[k] for k in range(n)) / n
    var = sum((a[k] - mean) * (a[k] - mean) for k in range(n)) / n
    y = gain * (a - mean) / (var + eps) ** 0.5
    return y if bias is None else y + bias


def sigmoid(a):
    return 1 / (1 + torch.exp(-a))


def lstm_vector(x, state, p, eps):
    h, c = state
    a = norm(p["weight_ih"] @ x, p["gain_ih"], p.get("bias_ih"), eps)
    a = a + norm(p["weight_hh"] @ h, p["gain_hh"], p.get("bias_hh"), eps)
    n = c.shape[0]
    i, f, g, o = a[:n], a[n : 2 * n], a[2 * n : 3 * n], a[3 * n :]
    c = sigmoid(f) * c + sigmoid(i) * torch.tanh(g)
    h = sigmoid(o) * torch.tanh(norm(c, p["gain_c"], p.get("bias_c"), eps))
    return (p["weight_hr"] @ h if "weight_hr" in p else h), c


def gru_vector(x, state, p, eps):
    (h,) = state
    n = h.shape[0]

    def part(a, which, rows):
        bias = p[f"bias_{which}"][rows] if f"bias_{which}" in p else None
        return norm(a[rows], p[f"gain_{which}"][rows], bias, eps)

    a, b, gates, new = p["weight_ih"] @ x, p["weight_hh"] @ h, slice(0, 2 * n), slice(2 * n, 3 * n)
    both_gates = part(a, "ih", gates) + part(b, "hh", gates)
    r, z = sigmoid(both_gates[:n]), sigmoid(both_gates[n:])
    candidate = torch.tanh(part(a, "ih", new) + r * part(b, "hh", new))
    return ((1 - z) * candidate + z * h,)


def loop(module, sequences, states=None):
    """Each sequence by itself through all layers: its outputs, and its last states, by layer and direction."""
    vector = lstm_vector if module.mode == "LSTM" else gru_vector
    sizes = [module.proj_size or module.hidden_size] + [module.hidden_size] * (vector is lstm_vector)
    results = []
    for number, rows in enumerate(sequences):
        ends = []
        for layer in range(module.num_layers):
            directions = []
            for suffix in ["", "_reverse"][: 1 + module.bidirectional]:
                end = f"_l{layer}{suffix}"
                p = {k.removesuffix(end): v for k, v in module.named_parameters() if k.endswith(end)}
                index = len(ends)
                state = [torch.zeros(size, dtype=torch.float64) for size in sizes]
                state = state if states is None else [part[index, number] for part in states]
                out = []
                for x in reversed(rows) if suffix else rows:
                    state = vector(x, state, p, module.eps)
                    out.append(state[0])
                directions.append(out[::-1] if suffix else out)
                ends.append(state)
            rows = [torch.cat(step) for step in zip(*directions, strict=True)]
        results.append((torch.stack(rows), ends))
    outputs = [output for output, _ in results]
    count = len(results[0][1])
    parts = [
        torch.stack([torch.stack([ends[k][j] for _, ends in results]) for k in range(count)]) for j in range(len(sizes))
    ]
    return outputs, parts
