"""Plans, and the scopes that record, validate and replay them.

A scope is the calling thread's, and must be left whatever happens in between: an interrupt may come at any line here. So
whatever an entry has done is written down in the entry before the next thing is done, and taking it back can be done twice.
"""
import asyncio
import ctypes
import gc
import os
import tempfile
import threading
from typing import Any, Dict, List, Optional

from ._library import (_OK, _MISMATCH, BerthError, _allocator, _begin, _Certificate, _check, _Difference, _handle, _plan_certificate,
                       _plan_count, _plan_create, _plan_load, _plan_release, _plan_retain, _plan_save, _plan_total, _record_end,
                       _replay_end, _Report, _report_text, _run_current, _RunOptions, _validate_end)


class Plan:
    """A recorded run and the place of each of its allocations in one block. It can be copied, pickled and saved."""

    def __init__(self):
        self._handle = _handle()
        _check(_plan_create(ctypes.byref(self._handle)))

    def __del__(self):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle and _plan_release:
            _plan_release(handle)

    def __len__(self) -> int:
        return _plan_count(self._handle)

    @property
    def certificate(self) -> Dict[str, Any]:
        """peak_bytes, lower_bound_bytes, proven_optimal and how that is known."""
        figures = _Certificate()
        _check(_plan_certificate(self._handle, figures))
        return figures.as_dict()

    @property
    def peak_bytes(self) -> int:
        return _plan_total(self._handle)

    @property
    def lower_bound_bytes(self) -> int:
        return self.certificate["lower_bound_bytes"]

    def save(self, path) -> None:
        """Writes the plan to a file, as `berth plan` and load() read it."""
        _check(_plan_save(self._handle, os.fsencode(path)), os.fspath(path))

    @classmethod
    def load(cls, path) -> "Plan":
        plan = cls()
        _check(_plan_load(plan._handle, os.fsencode(path)), os.fspath(path))
        return plan

    def __copy__(self) -> "Plan":
        other = Plan.__new__(Plan)
        other._handle = _handle(_plan_retain(self._handle))
        return other

    def __deepcopy__(self, _) -> "Plan":
        return _from_bytes(_to_bytes(self))

    def __reduce__(self):
        return _from_bytes, (_to_bytes(self),)

    def __repr__(self) -> str:
        return f"<berth plan: {len(self)} allocations in {self.peak_bytes} bytes>"


def _to_bytes(plan) -> Optional[bytes]:
    if len(plan) == 0:
        return None  # nothing is recorded in it yet
    with tempfile.TemporaryDirectory(prefix="berth-") as folder:
        path = os.path.join(folder, "plan.csv")
        plan.save(path)
        with open(path, "rb") as file:
            return file.read()


def _from_bytes(data: Optional[bytes]) -> Plan:
    if data is None:
        return Plan()
    with tempfile.TemporaryDirectory(prefix="berth-") as folder:
        path = os.path.join(folder, "plan.csv")
        with open(path, "wb") as file:
            file.write(data)
        return Plan.load(path)


# ---- The collector ---------------------------------------------------------------------------------------------

class _Collector:
    """Python's cyclic collector is off while any scope of any thread is open: it frees tensors whenever it likes, in one
    run here and in another there. No lock, since an interrupt could come while it is held; each step is whole by itself."""

    def __init__(self):
        self._holders, self._was_on = set(), False

    def hold(self, entry):
        self._holders.add(id(entry))
        if gc.isenabled():
            self._was_on = True
            gc.disable()

    def let_go(self, entry):
        self._holders.discard(id(entry))
        if not self._holders and self._was_on:
            gc.enable()
            self._was_on = False


_collector = _Collector()
_here = threading.local()  # .entries: the open entries of this thread, innermost last


def _entries() -> list:
    try:
        return _here.entries
    except AttributeError:
        _here.entries = []
        return _here.entries


# ---- Scopes ----------------------------------------------------------------------------------------------------

class _Entry:
    """One time that a scope was entered: what was done for it, so that it can be taken back, also twice."""

    __slots__ = ("allocator", "owner", "result", "turn", "began")

    def __init__(self, owner, result):
        self.allocator, self.owner, self.result, self.turn, self.began = _allocator(), owner, result, None, False

    def is_open(self) -> bool:
        return self.began and _run_current()[1] == self.allocator

    def take_back(self):
        """Ends what is open, without an error of its own."""
        if self.is_open():
            self.owner._end(self)
        self.began = False
        if self.turn:
            self.turn.cancel()
        _collector.let_go(self)
        entries = _entries()
        if entries and entries[-1] is self:
            entries.pop()
        elif self in entries:
            entries.remove(self)


class _Turn:
    """Whether a coroutine gave way to others inside a scope, whose tensors were then taken for its own."""

    def __init__(self, loop):
        self.passed = False
        self._handle = loop.call_soon(self._pass)

    def _pass(self):
        self.passed = True

    def cancel(self):
        self._handle.cancel()


def _turn() -> Optional[_Turn]:
    loop = asyncio._get_running_loop()  # does not raise where there is none: this is part of every run
    return None if loop is None else _Turn(loop)


class _RunScope:
    """A scope of the calling thread. One object may be entered many times, by many threads, one after the other on each."""

    _kind = ""

    def __init__(self, plan, strict=False):
        if not isinstance(plan, Plan):
            raise TypeError(f"expected a berth_torch.Plan, got {plan!r}")
        self._plan, self._options, self._begin = plan, _RunOptions(plan=plan._handle, strict=strict), _begin[self._kind]
        self._pointer = ctypes.pointer(self._options)

    def __reduce__(self):
        return type(self), (self._plan,)

    def __enter__(self):
        entry = _Entry(self, self._make_result())
        try:
            entries = _entries()
            nested = bool(entries)
            entries.append(entry)
            _collector.hold(entry)
            entry.turn = _turn()
            # Said before it is so: an interrupt right after the call must find it. is_open() asks Berth.
            entry.began = not nested
            status = self._begin(entry.allocator, self._pointer)
            if status != _OK:
                entry.began = False
                _check(status)
            return entry.result
        except BaseException:
            entry.take_back()
            raise

    def __exit__(self, error, *_):
        try:
            return self._leave(self._mine(), error)
        except BaseException:  # an interrupt: what is still open is ended. One that comes even before this: abandon()
            entry = self._mine()
            if entry is not None:
                entry.take_back()
            raise

    def _leave(self, entry, error):
        if entry is None:
            raise BerthError("this scope is not open on this thread: it is left where it was entered; berth_torch.abandon() "
                             "on that thread ends it")
        given_way = entry.turn is not None and entry.turn.passed
        status = self._end(entry)
        entry.began = False
        entry.take_back()
        if error is None:
            _check(status)
            if given_way:
                raise BerthError("an await inside a berth scope let other tasks run, and their tensors were taken for this "
                                 "run's: leave the scope before the await")
        return False

    def _abandon_own(self):
        """Ends what this thread has open of it, if anything."""
        entry = self._mine()
        if entry is not None:
            entry.take_back()

    def _mine(self) -> Optional[_Entry]:
        for entry in reversed(_entries()):
            if entry.owner is self:
                return entry
        return None


def abandon() -> int:
    """Ends every scope that is open on this thread, such as those of a generator that another thread closed; returns how
    many. What they recorded or would have reported is lost."""
    count = 0
    for entry in reversed(list(_entries())):
        entry.take_back()
        count += 1
    kind, allocator = _run_current()
    if kind:  # begun from C
        (_record_end(allocator) if kind == 1 else _validate_end(allocator, None) if kind == 2 else _replay_end(allocator, None))
        count += 1
    return count


class record(_RunScope):
    """Records this thread's tensor allocations and plans them when the block ends: with record() as plan.

    Keep what the program keeps: y = model(x), so that the output is not planned as if it were dropped.
    """

    _kind = "record"

    def __init__(self, plan: Optional[Plan] = None):
        super().__init__(Plan() if plan is None else plan)

    def _make_result(self) -> Plan:
        return self._plan

    def _end(self, entry):
        return _record_end(entry.allocator)


class Report:
    """What a replay did: report.from_plan, or report["from_plan"]; print it for people. Filled when the block ends."""

    def __init__(self):
        self._filled = _Report()

    def __getitem__(self, name: str):
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self._filled, name)

    def __getattr__(self, name: str):
        if name.startswith("_") or name not in self.keys():
            raise AttributeError(name)
        return getattr(self._filled, name)

    def __dir__(self) -> List[str]:
        return [*super().__dir__(), *self.keys()]

    def keys(self) -> List[str]:
        return [name for name, _ in _Report._fields_ if name not in ("struct_size", "deviations")]

    def __str__(self) -> str:
        room = ctypes.create_string_buffer(4096)
        _report_text(self._filled, room, len(room))
        return room.value.decode(errors="replace")

    def __repr__(self) -> str:
        return (f"<berth report: {self.from_plan} of {self.planned} from the plan, {self.by_fallback} by fallback, "
                f"{self.stragglers} kept>")


class replay(_RunScope):
    """Serves this thread's tensor allocations from the plan's block: with replay(plan) as report.

    What does not follow the plan comes from the allocator below, and the report names it; strict makes it an error.
    """

    _kind = "replay"

    def __init__(self, plan: Plan, strict: bool = False):
        super().__init__(plan, strict)

    def __reduce__(self):
        return type(self), (self._plan, self._options.strict)

    def _make_result(self) -> Report:
        return Report()

    def _end(self, entry):
        self.last = entry.result
        return _replay_end(entry.allocator, entry.result._filled)


class Verdict:
    """Whether a run followed its plan; if not, words says where it first differed."""

    same, words = None, ""

    def __bool__(self) -> bool:
        return bool(self.same)

    def __repr__(self) -> str:
        return f"<berth verdict: {'the same' if self.same else self.words or 'not ended'}>"


class validate(_RunScope):
    """Compares this thread's tensor allocations with the plan: with validate(plan) as verdict."""

    _kind = "validate"

    def __init__(self, plan: Plan):
        super().__init__(plan)

    def _make_result(self) -> Verdict:
        return Verdict()

    def _end(self, entry):
        difference = _Difference()
        status = _validate_end(entry.allocator, difference)
        entry.result.same = status == _OK
        entry.result.words = difference.words.decode(errors="replace")
        return _OK if status == _MISMATCH else status
