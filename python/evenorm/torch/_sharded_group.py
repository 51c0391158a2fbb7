"""What the processes of a group agree on, and the all-gather of their messages. Knows nothing of norms."""

from __future__ import annotations

import datetime
import json
import weakref
import zlib
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# The first exchange of a pass has one size, whatever the pass: gloo ends a process that is sent more than it expects.
# What it cannot hold is sent in a second one, once all have seen that they are in the same pass.
_FRAME = 256  # numbers of float64: what is in it, whose, and 254 of the message; or a card
_CARD, _DATA = 1.0, 2.0
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


class Agreement:
    """What all processes of a group have said alike, but for their columns."""

    def __init__(self, group: dist.ProcessGroup, card: str, columns: list[int]):
        self.group = group
        self.columns = columns
        self.rank = dist.get_rank(group)
        self._card = card
        self._mark = float(zlib.crc32(card[: card.rindex('"columns"')].encode()))

    def gather(self, message: Tensor) -> Tensor:
        """The messages, (rows, numbers) of float64, of all processes along the first axis."""
        size = len(self.columns)
        if size == 1:
            return message
        flat = message.reshape(-1)
        frames = _gather(_frame(_DATA, self._mark, flat[: _FRAME - 2]), self.group, self._card)
        if not bool(((frames[:, 0] == _DATA) & (frames[:, 1] == self._mark)).all()):
            raise _disagreement(self.group, self._card)
        parts = [frames[:, 2 : 2 + flat.numel()]]
        if flat.numel() > _FRAME - 2:
            parts.append(_gather(flat[_FRAME - 2 :].view(1, -1), self.group, self._card))
        return torch.cat(parts, dim=1).view(-1, message.shape[1])


# By group: what its processes have agreed on already.
_agreed: weakref.WeakKeyDictionary[dist.ProcessGroup, dict[str, Agreement]] = weakref.WeakKeyDictionary()


def agree(group: dist.ProcessGroup, columns: int, **what: Any) -> Agreement:
    """At the first call with these one exchange of a fixed size, then none.

    Raises:
        DisagreementError: the processes differ in `what`; each of them raises it.
    """
    known = _agreed.setdefault(group, {})
    card = json.dumps({**what, "columns": columns}, default=str)  # columns last: all before it must agree
    if card not in known:
        known[card] = Agreement(group, card, _ask_all(group, card))
    return known[card]


def _frame(kind: float, mark: float, numbers: Tensor) -> Tensor:
    frame = torch.zeros((1, _FRAME), dtype=torch.float64)
    frame[0, 0], frame[0, 1] = kind, mark
    frame[0, 2 : 2 + numbers.numel()] = numbers
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


def _gather_cards(group: dist.ProcessGroup, card: str) -> tuple[bool, dict[int, dict[str, Any]]]:
    """Whether all processes have sent cards, and those of them that have."""
    told = card.encode().ljust((_FRAME - 2) * 8, b"\0")
    frames = _gather(_frame(_CARD, 0, torch.frombuffer(bytearray(told), dtype=torch.float64)), group, card)
    cards = {
        rank: json.loads(bytes(frame[2:].view(torch.uint8).tolist()).rstrip(b"\0"))
        for rank, frame in enumerate(frames)
        if frame[0] == _CARD
    }
    return len(cards) == len(frames), cards


def _ask_all(group: dist.ProcessGroup, card: str) -> list[int]:
    if dist.get_world_size(group) == 1:
        return [json.loads(card)["columns"]]
    all_have_asked, cards = _gather_cards(group, card)
    if not all_have_asked:
        raise _disagreement(group, card)
    difference = _difference(cards)
    if difference:
        raise DisagreementError(difference)
    return [cards[rank]["columns"] for rank in range(len(cards))]


def _disagreement(group: dist.ProcessGroup, card: str) -> DisagreementError:
    """What all processes find out together when one of them has seen that they are not in the same pass."""
    _, cards = _gather_cards(group, card)
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
