"""Calls that the processes of a group make together, and the all-gather of their messages. Knows nothing of norms."""

from __future__ import annotations

import contextlib
import datetime
import json
import threading
import time
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

# An exchange is of frames: a head, and as much of the message as there is room for. gloo ends a process that is sent
# more than it expects, so all processes must find the same size of a frame, even if they are about to do different
# things: they take it from what they did together before.
_ALIKE = 4  # numbers of float64 that all heads have alike: kind, what must agree, the number of the call, rows
_HEAD = _ALIKE + 2  # and: this process's columns, and the cuts that its message is made for
_COLUMNS, _CUTS = _ALIKE, _ALIKE + 1
_MAKING, _PASS, _FAILED = 1.0, 2.0, 3.0  # kinds
MOST_COLUMNS = 2**48
_FIRST = 256  # numbers of a frame where nothing tells how long it will be, and of one with words
_REMEMBERED = 16  # passes
_EXPLANATION_SECONDS = 2.0  # what a process waits for the words of all others once an exchange has failed

# PyTorch is renaming it.
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


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


class _History:
    """What the processes of one group have done together. All but `cuts` is the same in all of them, as
    long as exchanges succeed."""

    def __init__(self) -> None:
        self.calls = 0
        self.failed_exchanges = 0
        self.cuts: dict[int, list[int]] = {}  # by this process's columns: the last ones of all
        self._last = 0.0  # what was agreed on in the last pass
        self._followers: dict[float, deque[int]] = {}

    def frame_size(self) -> int:
        """Numbers of the next frame: of the largest message that followed passes such as the last one."""
        return max(self._followers.get(self._last, (_FIRST,)))

    def add_pass(self, mark: float, numbers: int) -> None:
        self._followers.setdefault(self._last, deque(maxlen=_REMEMBERED)).append(_HEAD + numbers)
        self._last = mark


_histories: weakref.WeakKeyDictionary[dist.ProcessGroup, _History] = weakref.WeakKeyDictionary()


def _mark(words: str) -> float:
    return float(zlib.crc32(words.encode()))


class Call:
    """One call, of rows of which this process has some columns. `what` must agree, and the number of rows."""

    def __init__(self, group: dist.ProcessGroup, rows: int, columns: int, **what: Any):
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self._group, self._columns = group, columns
        self._history = _histories.setdefault(group, _History())
        self._history.calls += 1
        words = json.dumps(what, default=str)
        self._alike = [_mark(words), float(self._history.calls), float(rows)]
        self._words = {**json.loads(words), "rows": rows, "call": self._history.calls}

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """What is raised within, all other processes are told: they wait for this one."""
        try:
            yield
        except Exception as error:
            self.tell(error)
            raise

    def tell(self, error: Exception) -> None:
        """All other processes that this one has failed."""
        if self.size > 1:
            with contextlib.suppress(Exception):
                self._gather(_frame(self._history.frame_size(), [_FAILED, *self._alike]))
                self._gather_words({"failed": str(error)})

    def columns_of_all(self) -> list[int]:
        """One exchange."""
        if self.size == 1:
            return [self._columns]
        return self._columns_in(self._exchange(_MAKING, []))

    def gather(self, message_of: Callable[[list[int]], Tensor]) -> tuple[Tensor, list[int]]:
        """The messages, (rows, numbers) of float64, of all processes along the first axis, and the columns of each.

        message_of(columns): this process's. One exchange where passes follow each other as before; one more where the
        message is longer than those, and one more where the cuts are others than this process's columns had before.
        """
        if self.size == 1:
            return message_of([self._columns]), [self._columns]
        history = self._history
        room = history.frame_size() - _HEAD
        message, cuts = torch.empty(0, 1), history.cuts.get(self._columns)
        for is_last in (False, True):
            with self.telling():
                if cuts is not None:
                    message = message_of(cuts)
            flat = message.reshape(-1)
            frames = self._exchange(
                _PASS, [] if cuts is None else [float(self._columns), _mark(str(cuts))], flat[:room]
            )
            columns = self._columns_in(frames)
            others = (frames[:, _CUTS] != _mark(str(columns))).nonzero().flatten().tolist()
            if not others:
                break
            if is_last:
                raise DisagreementError(f"process {others[0]} of the group has sent a message made for other columns")
            cuts = columns  # a message was made for other ones, or for none
        history.cuts[self._columns] = columns
        messages = frames[:, _HEAD : _HEAD + flat.numel()]
        if flat.numel() > room:
            messages = torch.cat([messages, self._gather(flat[None, room:])], dim=1)
        history.add_pass(self._alike[0], message.numel())
        return messages.reshape(-1, message.shape[1]).contiguous(), columns

    def _exchange(self, kind: float, own: list[float], numbers: Tensor | None = None) -> Tensor:
        own = own or [float(self._columns), 0.0]
        frame = _frame(self._history.frame_size(), [kind, *self._alike, *own], numbers)
        frames = self._gather(frame)
        if not torch.equal(frames[:, :_ALIKE], frame[:, :_ALIKE].expand(self.size, _ALIKE)):
            raise self._disagreement()
        return frames

    def _columns_in(self, frames: Tensor) -> list[int]:
        columns = frames[:, _COLUMNS].tolist()
        for rank, n in enumerate(columns):
            if not (0 <= n <= MOST_COLUMNS and n == int(n)):
                raise DisagreementError(
                    f"process {rank} of the group has sent a message of {n} columns, but it should be of 0 to 2^48"
                )
        return [int(n) for n in columns]

    def _gather(self, message: Tensor) -> Tensor:
        """(1, n) of each process to (processes, n)."""
        gathered = message.new_empty((self.size, message.shape[1]))
        try:
            all_gather(gathered, message, group=self._group)
        except RuntimeError as error:
            raise self._explained(error) from error
        if not torch.equal(gathered[self.rank].view(torch.int64), message[0].view(torch.int64)):
            raise DisagreementError(
                f"the all-gather has brought something else to the place of process {self.rank} of the group than this"
                " process has sent"
            )
        return gathered

    def _gather_words(self, words: dict[str, Any]) -> dict[int, dict[str, Any]]:
        room = _FIRST * 8
        told = json.dumps(words).encode()
        if len(told) > room:  # a long text of a failure
            words = {name: str(word)[: room // 8] for name, word in words.items()}
            told = json.dumps(words).encode()
        numbers = torch.frombuffer(bytearray(told.ljust(room)), dtype=torch.float64)
        return {
            rank: _words_of(rank, bytes(frame.view(torch.uint8).tolist()))
            for rank, frame in enumerate(self._gather(numbers[None]))
        }

    def _disagreement(self) -> DisagreementError:
        """What all processes find out together when they have seen that they do not make the same call."""
        words = self._gather_words(self._words)
        for rank, word in words.items():
            if "failed" in word:
                return DisagreementError(f"process {rank} of the group has failed: {_printable(word['failed'])}")
        return DisagreementError(_difference(words) or "the processes are in different calls")

    def _explained(self, error: Exception) -> Exception:
        """Why an exchange has failed, as far as the processes' store knows: they leave word there of what they were
        at."""
        self._history.failed_exchanges += 1
        words = {self.rank: self._words, **self._words_in_store()}
        silent = [str(rank) for rank in range(self.size) if rank not in words]
        difference = _difference(words)
        if difference:
            return DisagreementError(difference)
        said = f"; no word from process {', '.join(silent)} of the group" if silent else ""
        at = ", ".join(f"{name} {value}" for name, value in self._words.items())
        return RuntimeError(
            f"the processes' exchange failed ({_printable(error)}){said}; at: {at}, columns {self._columns}"
        )

    def _words_in_store(self) -> dict[int, dict[str, Any]]:
        """Of other processes, as far as they come in time. The store may be in the one that has died, or hangs: what asks
        it is not waited for."""
        found: dict[int, dict[str, Any]] = {}
        place, words = f"evenorm/{self._group.group_name}/{self._history.failed_exchanges}", json.dumps(self._words)

        def ask() -> None:
            end = time.monotonic() + _EXPLANATION_SECONDS
            with contextlib.suppress(RuntimeError):
                store = dist.distributed_c10d._get_default_store()
                store.set(f"{place}/{self.rank}", words)
                for rank in range(self.size):
                    if rank != self.rank:
                        with contextlib.suppress(RuntimeError, DisagreementError):
                            key, left = f"{place}/{rank}", max(0.01, end - time.monotonic())
                            store.wait([key], datetime.timedelta(seconds=left))
                            found[rank] = _words_of(rank, store.get(key))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(_EXPLANATION_SECONDS + 0.5)
        return dict(found)


@contextlib.contextmanager
def refusals_told(group: dist.ProcessGroup) -> Iterator[None]:
    """What is raised within, before a call has begun, all other processes are told: they are in theirs. It counts."""
    try:
        yield
    except Exception as error:
        Call(group, 0, 0).tell(error)
        raise


def _frame(size: int, head: list[float], numbers: Tensor | None = None) -> Tensor:
    frame = torch.zeros((1, size), dtype=torch.float64, device="cpu")
    frame[0, : len(head)] = torch.tensor(head, dtype=torch.float64, device="cpu")
    if numbers is not None:
        frame[0, _HEAD : _HEAD + numbers.numel()] = numbers
    return frame


def _words_of(rank: int, sent: bytes) -> dict[str, Any]:
    """What another process says of its call."""
    words = None
    with contextlib.suppress(ValueError, RecursionError):
        words = json.loads(sent)
    if not isinstance(words, dict):
        raise DisagreementError(f"process {rank} of the group has sent words that are no JSON object")
    return words


def _printable(value: object) -> str:
    """On one line, whatever another process has sent."""
    return "".join(c if c.isprintable() else "?" for c in str(value))


def _difference(words: dict[int, dict[str, Any]]) -> str:
    first, *others = sorted(words)
    for name in words[first]:
        for rank in others:
            mine, other = words[first][name], words[rank].get(name)
            if mine != other:
                text = f"{name} is {mine} in process {first} of the group, but {other} in process {rank}"
                return _printable(text)
    return ""
