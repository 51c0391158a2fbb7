"""Calls that the processes of a group make together, and the all-gather of their messages. Independent of norms."""

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

# An exchange gathers frames: a head, and as much of the message as fits. gloo aborts a process that receives more than
# it expects. So all processes must choose the same frame size, even if they are about to make different calls. They
# derive it from the calls that they have made together.
_ALIKE = 4  # float64 numbers that are equal in all heads: kind, hash of the description, number of the call, rows
_HEAD = _ALIKE + 2  # two more: this process's columns, and a hash of the cuts that its message was made for
_COLUMNS, _CUTS = _ALIKE, _ALIKE + 1
_MAKING, _PASS, _FAILED = 1.0, 2.0, 3.0  # kinds
MOST_COLUMNS = 2**48
_FIRST = 256  # numbers of a frame before the history has a size, and of a frame with a description
_REMEMBERED = 16  # passes
_EXPLANATION_SECONDS = 2.0  # how long a process waits for the descriptions of all others after a failed exchange

# PyTorch is renaming this function.
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


class DisagreementError(ValueError):
    """The arguments of a group's processes do not fit together. Each process raises it and reports the difference."""


def group_or_default(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError("there is no process group: call torch.distributed.init_process_group first")
    if group is None:
        group = dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):  # GroupMember.NON_GROUP_MEMBER
        raise ValueError("this process is not a member of group")
    return group


def group_of(name: str) -> dist.ProcessGroup:
    found: dist.ProcessGroup = getattr(distributed_c10d, "_resolve_process_group")(name)  # noqa: B009
    return found


class _History:
    """The calls that the processes of one group have made together. All members except `cuts` are the same in all
    processes as long as exchanges succeed."""

    def __init__(self) -> None:
        self.calls = 0
        self.failed_exchanges = 0
        self.cuts: dict[int, list[int]] = {}  # by this process's columns: the last known columns of all processes
        self._last = 0.0  # hash of the last pass's description
        self._followers: dict[float, deque[int]] = {}

    def frame_size(self) -> int:
        """Numbers in the next frame: those of the largest message that followed passes like the last one."""
        return max(self._followers.get(self._last, (_FIRST,)))

    def add_pass(self, description_hash: float, numbers: int) -> None:
        self._followers.setdefault(self._last, deque(maxlen=_REMEMBERED)).append(_HEAD + numbers)
        self._last = description_hash


_histories: weakref.WeakKeyDictionary[dist.ProcessGroup, _History] = weakref.WeakKeyDictionary()


def _hash(text: str) -> float:
    return float(zlib.crc32(text.encode()))


class Call:
    """One call, on rows of which this process has some columns. `description` and `rows` must be equal everywhere."""

    def __init__(self, group: dist.ProcessGroup, rows: int, columns: int, **description: Any):
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self._group, self._columns = group, columns
        self._history = _histories.setdefault(group, _History())
        self._history.calls += 1
        text = json.dumps(description, default=str)
        self._alike = [_hash(text), float(self._history.calls), float(rows)]
        self._description = {**json.loads(text), "rows": rows, "call": self._history.calls}

    @contextlib.contextmanager
    def reporting_failure(self) -> Iterator[None]:
        """Reports an exception raised inside to all other processes, which wait for this one."""
        try:
            yield
        except Exception as error:
            self.report(error)
            raise

    def report(self, error: Exception) -> None:
        """Reports to all other processes that this one has failed."""
        if self.size > 1:
            with contextlib.suppress(Exception):
                self._gather(_frame(self._history.frame_size(), [_FAILED, *self._alike]))
                self._gather_descriptions({"failed": str(error)})

    def columns_of_all(self) -> list[int]:
        """Returns the columns of each process, by one exchange."""
        if self.size == 1:
            return [self._columns]
        return self._columns_in(self._exchange(_MAKING, []))

    def gather(self, message_of: Callable[[list[int]], Tensor]) -> tuple[Tensor, list[int]]:
        """Gathers the messages of all processes. Returns them along the first axis, and the columns of each process.

        message_of(columns) makes this process's message, (rows, numbers) of float64. A call takes one exchange if
        passes follow each other as they did before. It takes one more if the message does not fit into the frame, and
        one more if the cuts are not those that this process remembers for its columns.
        """
        if self.size == 1:
            return message_of([self._columns]), [self._columns]
        history = self._history
        room = history.frame_size() - _HEAD
        message, cuts = torch.empty(0, 1), history.cuts.get(self._columns)
        for is_last in (False, True):
            with self.reporting_failure():
                if cuts is not None:
                    message = message_of(cuts)
            flat = message.reshape(-1)
            frames = self._exchange(
                _PASS, [] if cuts is None else [float(self._columns), _hash(str(cuts))], flat[:room]
            )
            columns = self._columns_in(frames)
            others = (frames[:, _CUTS] != _hash(str(columns))).nonzero().flatten().tolist()
            if not others:
                break
            if is_last:
                raise DisagreementError(f"process {others[0]} of the group has sent a message made for other columns")
            cuts = columns  # some message was not made for these columns
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
        """Gathers a (1, n) message of each process to (processes, n)."""
        gathered = message.new_empty((self.size, message.shape[1]))
        try:
            all_gather(gathered, message, group=self._group)
        except RuntimeError as error:
            raise self._explained(error) from error
        if not torch.equal(gathered[self.rank].view(torch.int64), message[0].view(torch.int64)):
            raise DisagreementError(
                f"the all-gather returned another message for process {self.rank} of the group than this process has"
                " sent"
            )
        return gathered

    def _gather_descriptions(self, description: dict[str, Any]) -> dict[int, dict[str, Any]]:
        room = _FIRST * 8
        encoded = json.dumps(description).encode()
        if len(encoded) > room:  # the text of an error may be long
            description = {name: str(value)[: room // 8] for name, value in description.items()}
            encoded = json.dumps(description).encode()
        numbers = torch.frombuffer(bytearray(encoded.ljust(room)), dtype=torch.float64)
        return {
            rank: _decode(rank, bytes(frame.view(torch.uint8).tolist()))
            for rank, frame in enumerate(self._gather(numbers[None]))
        }

    def _disagreement(self) -> DisagreementError:
        """Finds out, together with all other processes, how their calls differ."""
        descriptions = self._gather_descriptions(self._description)
        for rank, description in descriptions.items():
            if "failed" in description:
                return DisagreementError(f"process {rank} of the group has failed: {_printable(description['failed'])}")
        return DisagreementError(_difference(descriptions) or "the processes are making different calls")

    def _explained(self, error: Exception) -> Exception:
        """Explains a failed exchange by the descriptions of their calls that processes put into their store."""
        self._history.failed_exchanges += 1
        descriptions = {self.rank: self._description, **self._descriptions_in_store()}
        silent = [str(rank) for rank in range(self.size) if rank not in descriptions]
        difference = _difference(descriptions)
        if difference:
            return DisagreementError(difference)
        missing = f"; no answer from process {', '.join(silent)} of the group" if silent else ""
        call = ", ".join(f"{name} {value}" for name, value in self._description.items())
        return RuntimeError(
            f"the processes' exchange failed ({_printable(error)}){missing}; in the call: {call}, columns"
            f" {self._columns}"
        )

    def _descriptions_in_store(self) -> dict[int, dict[str, Any]]:
        """The descriptions of other processes that arrive in time. The process with the store may have died or hang, so
        a thread asks it, which is abandoned if it takes too long."""
        found: dict[int, dict[str, Any]] = {}
        place = f"evenorm/{self._group.group_name}/{self._history.failed_exchanges}"
        description = json.dumps(self._description)

        def ask() -> None:
            end = time.monotonic() + _EXPLANATION_SECONDS
            with contextlib.suppress(RuntimeError):
                store = dist.distributed_c10d._get_default_store()
                store.set(f"{place}/{self.rank}", description)
                for rank in range(self.size):
                    if rank != self.rank:
                        with contextlib.suppress(RuntimeError, DisagreementError):
                            key, left = f"{place}/{rank}", max(0.01, end - time.monotonic())
                            store.wait([key], datetime.timedelta(seconds=left))
                            found[rank] = _decode(rank, store.get(key))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(_EXPLANATION_SECONDS + 0.5)
        return dict(found)


@contextlib.contextmanager
def reporting_refusals(group: dist.ProcessGroup) -> Iterator[None]:
    """Reports an exception raised inside, before a call has begun, to all other processes, which are in their calls.
    The report counts as a call of its own."""
    try:
        yield
    except Exception as error:
        Call(group, 0, 0).report(error)
        raise


def _frame(size: int, head: list[float], numbers: Tensor | None = None) -> Tensor:
    frame = torch.zeros((1, size), dtype=torch.float64, device="cpu")
    frame[0, : len(head)] = torch.tensor(head, dtype=torch.float64, device="cpu")
    if numbers is not None:
        frame[0, _HEAD : _HEAD + numbers.numel()] = numbers
    return frame


def _decode(rank: int, sent: bytes) -> dict[str, Any]:
    """The description of another process's call."""
    description = None
    with contextlib.suppress(ValueError, RecursionError):
        description = json.loads(sent)
    if not isinstance(description, dict):
        raise DisagreementError(f"process {rank} of the group has sent a description that is not a JSON object")
    return description


def _printable(value: object) -> str:
    """Text on one line, whatever another process has sent."""
    return "".join(c if c.isprintable() else "?" for c in str(value))


def _difference(descriptions: dict[int, dict[str, Any]]) -> str:
    first, *others = sorted(descriptions)
    for name in descriptions[first]:
        for rank in others:
            mine, other = descriptions[first][name], descriptions[rank].get(name)
            if mine != other:
                text = f"{name} is {mine} in process {first} of the group, but {other} in process {rank}"
                return _printable(text)
    return ""
