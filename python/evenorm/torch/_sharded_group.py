"""What the processes of a group agree on, and the all-gather of their messages. Knows nothing of norms."""

from __future__ import annotations

import datetime
import json
import weakref
import zlib
from collections import deque
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

# An exchange is of frames: a kind, a number, and what they hold. gloo ends a process that is sent more than it expects,
# so all processes must find the same size of a frame, even if they are about to do different things: they take it from
# what they did together before.
_HEAD = 2  # numbers of float64
_CARD, _DATA = (
    1.0,
    2.0,
)  # kinds; the numbers: how many bytes a card has, 0 where it is too long; what has been agreed on
_FIRST = 256  # numbers of a frame where nothing tells how long it will be; room for any card
_LEAST = 40  # room for most cards
_REMEMBERED = 16  # passes
_EXPLANATION_SECONDS = 2  # what a process waits for the others' words once an exchange has failed


class DisagreementError(ValueError):
    """The processes of a group were given what does not fit together. Each of them is told what, and what each has."""


def group_or_default(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError("there is no process group: call torch.distributed.init_process_group first")
    if group is None:
        group = dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):  # GroupMember.NON_GROUP_MEMBER
        raise ValueError("group is one that this process is no member of")
    return group


def group_of(name: str) -> dist.ProcessGroup:
    found: dist.ProcessGroup = getattr(distributed_c10d, "_resolve_process_group")(name)  # noqa: B009
    return found


class Agreement:
    """What all processes of a group have said alike, but for their columns."""

    def __init__(self, card: str, columns: list[int], rank: int):
        self.card, self.columns, self.rank = card, columns, rank
        self.mark = float(zlib.crc32(f"{card[: card.rindex('columns')]}{columns}".encode()))


class _History:
    """What the processes of one group have agreed on and sent: the same in all of them."""

    def __init__(self) -> None:
        self.agreed: dict[str, Agreement] = {}
        self._last = 0.0  # the agreement of the last pass
        self._followers: dict[float, deque[int]] = {}

    def frame_size(self) -> int:
        """Numbers of the next frame: of the largest message that followed passes such as the last one."""
        return max(self._followers.get(self._last, (_FIRST,)))

    def add_pass(self, mark: float, numbers: int) -> None:
        size = max(_HEAD + numbers, _LEAST)
        self._followers.setdefault(self._last, deque(maxlen=_REMEMBERED)).append(size)
        self._last = mark


_histories: weakref.WeakKeyDictionary[dist.ProcessGroup, _History] = weakref.WeakKeyDictionary()


def _history(group: dist.ProcessGroup) -> _History:
    return _histories.setdefault(group, _History())


def agree(group: dist.ProcessGroup, columns: int, **what: Any) -> Agreement:
    """At the first call with these an exchange or two, of sizes that do not hang on them, then none.

    Raises:
        DisagreementError: the processes differ in `what`; each of them raises it.
    """
    agreed = _history(group).agreed
    card = json.dumps({**what, "columns": columns}, default=str)  # columns last: all before it must agree
    if card not in agreed:
        agreed[card] = Agreement(card, _ask_all(group, card), dist.get_rank(group))
    return agreed[card]


def gather(group: dist.ProcessGroup, agreement: Agreement, message: Tensor) -> Tensor:
    """The messages, (rows, numbers) of float64, of all processes along the first axis.

    One exchange where passes follow each other as before, else two at most.
    """
    if len(agreement.columns) == 1:
        return message
    flat, history = message.reshape(-1), _history(group)
    numbers, size = flat.numel(), history.frame_size()
    frame = _frame(size, _DATA, agreement.mark, flat[: size - _HEAD])
    frames = _gather(frame, group, agreement.card)
    if not torch.equal(frames[:, :_HEAD], frame[:, :_HEAD].expand(len(frames), _HEAD)):
        raise _disagreement(group, agreement.card)
    messages = frames[:, _HEAD : _HEAD + numbers]
    if numbers > size - _HEAD:
        messages = torch.cat([messages, _gather(flat[None, size - _HEAD :], group, agreement.card)], dim=1)
    history.add_pass(agreement.mark, numbers)
    return messages.reshape(-1, message.shape[1])


def _frame(size: int, kind: float, number: float, numbers: Tensor) -> Tensor:
    frame = torch.zeros((1, size), dtype=torch.float64)
    frame[0, 0], frame[0, 1] = kind, number
    frame[0, _HEAD : _HEAD + numbers.numel()] = numbers
    return frame


def _gather(message: Tensor, group: dist.ProcessGroup, card: str) -> Tensor:
    """(1, n) of each process to (processes, n)."""
    gathered = message.new_empty((dist.get_world_size(group), message.shape[1]))
    try:
        _all_gather(gathered, message, group=group)
    except RuntimeError as error:
        raise _explained(group, card, error) from error
    return gathered


# PyTorch is renaming it.
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


def _gather_cards(group: dist.ProcessGroup, card: str, size: int) -> tuple[bool, dict[int, dict[str, Any]]]:
    """Whether all processes have sent cards, and those that there was room for."""
    told = card.encode()
    if len(told) > (size - _HEAD) * 8:
        told = b""
    numbers = torch.frombuffer(bytearray(told.ljust((size - _HEAD) * 8, b" ")), dtype=torch.float64)
    frames = _gather(_frame(size, _CARD, len(told), numbers), group, card)
    cards = {
        rank: json.loads(bytes(frame[_HEAD:].view(torch.uint8)[: int(frame[1])].tolist()))
        for rank, frame in enumerate(frames)
        if frame[0] == _CARD and frame[1] > 0
    }
    return bool((frames[:, 0] == _CARD).all()), cards


def _ask_all(group: dist.ProcessGroup, card: str) -> list[int]:
    size = dist.get_world_size(group)
    if size == 1:
        return [json.loads(card)["columns"]]
    all_have_asked, cards = _gather_cards(group, card, _history(group).frame_size())
    if not all_have_asked:
        raise _disagreement(group, card)
    if len(cards) != size:
        _, cards = _gather_cards(group, card, _FIRST)
    difference = _difference(cards)
    if difference:
        raise DisagreementError(difference)
    return [cards[rank]["columns"] for rank in range(size)]


def _disagreement(group: dist.ProcessGroup, card: str) -> DisagreementError:
    """What all processes find out together when one of them has seen that they are not in the same pass."""
    _, cards = _gather_cards(group, card, _FIRST)
    return DisagreementError(_difference(cards) or "the processes are in different passes")


def _difference(cards: dict[int, dict[str, Any]]) -> str:
    first, *others = sorted(cards)
    for name in cards[first]:
        for rank in others:
            mine, other = cards[first][name], cards[rank].get(name)
            if name != "columns" and mine != other:
                return f"{name} is {mine} in process {first} of the group, but {other} in process {rank}"
    return ""


def _explained(group: dist.ProcessGroup, card: str, error: Exception) -> Exception:
    """Why an exchange has failed, as far as the processes' store knows: they leave word there of what they were at."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    cards, silent = {rank: json.loads(card)}, []
    try:
        store = dist.distributed_c10d._get_default_store()
        store.set(f"evenorm/{group.group_name}/{rank}", card)
        for other in range(size):
            if other == rank:
                continue
            key = f"evenorm/{group.group_name}/{other}"
            try:
                store.wait([key], datetime.timedelta(seconds=_EXPLANATION_SECONDS))
                cards[other] = json.loads(store.get(key))
            except (RuntimeError, json.JSONDecodeError):
                silent.append(str(other))
    except RuntimeError:  # the store was in the process that has died
        silent = [str(other) for other in range(size) if other != rank]
    difference = _difference(cards)
    if difference:
        return DisagreementError(difference)
    said = f"; no word from process {', '.join(silent)} of the group" if silent else ""
    at = ", ".join(f"{name} {value}" for name, value in cards[rank].items())
    return RuntimeError(f"the processes' exchange failed ({error}){said}; at: {at}")
