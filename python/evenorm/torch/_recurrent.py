"""LayerNormLSTM, LayerNormGRU and their cells: torch.nn's, with the layer norms of Ba, Kiros and Hinton (2016).

This file has the public classes. _recurrent_base.py has the modules' common code, _recurrent_steps.py the arithmetic.
"""

from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ._recurrent_base import LayerNormCell, LayerNormRNN, pair, single
from ._recurrent_steps import Weights, gru_input, gru_step, lstm_input, lstm_step


class LayerNormLSTM(LayerNormRNN):
    r"""torch.nn.LSTM with layer normalisation: equations 20 to 22 of Ba, Kiros and Hinton (2016),
    https://arxiv.org/abs/1607.06450.

    With LN(a; g, b) = g * (a - mean(a)) / sqrt(var(a) + eps) + b over all of a vector, each step of a layer computes

        (i, f, g, o) = LN(W_ih x_t; gain_ih, bias_ih) + LN(W_hh h_(t-1); gain_hh, bias_hh)
        c_t = sigmoid(f) * c_(t-1) + sigmoid(i) * tanh(g)
        h_t = sigmoid(o) * tanh(LN(c_t; gain_c, bias_c))

    The paper's b is bias_ih + bias_hh. LN(W_ih x_t) is computed once for the whole sequence.

    Args: the arguments of torch.nn.LSTM, proj_size included (h_t = W_hr h_t), and
        eps: added to every variance. Default: 1e-5.

    Shapes, results and errors are those of torch.nn.LSTM.

    Attributes: those of torch.nn.LSTM. The biases are initialised to 0 and added after the norms. Each layer and
        direction also has gain_ih_l[k] and gain_hh_l[k] of shape (4 hidden_size), and gain_c_l[k] and bias_c_l[k] of
        shape (hidden_size). With bias=False no norm has a bias.

    Example:
        >>> import torch, evenorm.torch
        >>> lstm = evenorm.torch.LayerNormLSTM(10, 20, num_layers=2, batch_first=True)
        >>> output, (h, c) = lstm(torch.randn(3, 5, 10))
        >>> output.shape, h.shape, c.shape
        (torch.Size([3, 5, 20]), torch.Size([2, 3, 20]), torch.Size([2, 3, 20]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
        *,
        eps: float = 1e-5,
    ) -> None:
        sizes = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size)
        super().__init__("LSTM", *sizes, device, dtype, eps=eps)

    def forward(
        self, input: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Any, tuple[Tensor, Tensor]]:
        output, (h, c) = self.run(input, pair(hx))
        return output, (h, c)


class LayerNormGRU(LayerNormRNN):
    r"""torch.nn.GRU with layer normalisation: the appendix of Ba, Kiros and Hinton (2016),
    https://arxiv.org/abs/1607.06450.

    With LN as in LayerNormLSTM, each step of a layer computes

        (r, z) = LN(W_i(rz) x_t; gain, bias) + LN(W_h(rz) h_(t-1); gain, bias)
        n = tanh(LN(W_in x_t; gain, bias) + sigmoid(r) * LN(W_hn h_(t-1); gain, bias))
        h_t = (1 - sigmoid(z)) * n + sigmoid(z) * h_(t-1)

    Both gates are normalised together, over 2 hidden_size values, and the candidate n separately. z is the weight of
    the old state, as in torch.nn.GRU; in the paper it is the weight of the new one.

    Args: the arguments of torch.nn.GRU, and
        eps: added to every variance. Default: 1e-5.

    Shapes, results and errors are those of torch.nn.GRU.

    Attributes: those of torch.nn.GRU. The biases are initialised to 0 and added after the norms. Each layer and
        direction also has gain_ih_l[k] and gain_hh_l[k] of shape (3 hidden_size), for r, z and n. With bias=False no
        norm has a bias.

    Example:
        >>> import torch, evenorm.torch
        >>> gru = evenorm.torch.LayerNormGRU(10, 20, bidirectional=True)
        >>> output, h = gru(torch.randn(5, 3, 10))
        >>> output.shape, h.shape
        (torch.Size([5, 3, 40]), torch.Size([2, 3, 20]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        eps: float = 1e-5,
    ) -> None:
        sizes = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0)
        super().__init__("GRU", *sizes, device, dtype, eps=eps)

    def forward(self, input: Tensor | PackedSequence, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        output, (h,) = self.run(input, single(hx))
        return output, h


class LayerNormLSTMCell(LayerNormCell):
    r"""torch.nn.LSTMCell with layer normalisation: one step of LayerNormLSTM.

    Args: the arguments of torch.nn.LSTMCell, and
        eps: added to every variance. Default: 1e-5.

    Shapes, results and errors are those of torch.nn.LSTMCell. The cell also has gain_ih and gain_hh of shape
    (4 hidden_size), and gain_c and bias_c of shape (hidden_size).

    Example:
        >>> import torch, evenorm.torch
        >>> cell = evenorm.torch.LayerNormLSTMCell(10, 20)
        >>> h, c = cell(torch.randn(3, 10))
        >>> h.shape, c.shape
        (torch.Size([3, 20]), torch.Size([3, 20]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        eps: float = 1e-5,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype, eps)
        self.add("gain_c", hidden_size)
        self.add("bias_c", hidden_size if bias else None)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        state = self.state(input, pair(hx), 2)
        w = Weights.of(self)
        h, c = lstm_step(lstm_input(input, w, self.eps), state, w, self.eps)
        return h, c


class LayerNormGRUCell(LayerNormCell):
    r"""torch.nn.GRUCell with layer normalisation: one step of LayerNormGRU.

    Args: the arguments of torch.nn.GRUCell, and
        eps: added to every variance. Default: 1e-5.

    Shapes, results and errors are those of torch.nn.GRUCell. The cell also has gain_ih and gain_hh of shape
    (3 hidden_size).

    Example:
        >>> import torch, evenorm.torch
        >>> cell = evenorm.torch.LayerNormGRUCell(10, 20)
        >>> cell(torch.randn(3, 10)).shape
        torch.Size([3, 20])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        eps: float = 1e-5,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype, eps)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        state = self.state(input, single(hx), 1)
        w = Weights.of(self)
        (h,) = gru_step(gru_input(input, w, self.eps), state, w, self.eps)
        return h
