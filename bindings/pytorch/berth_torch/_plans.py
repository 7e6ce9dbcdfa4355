"""Plans, and the scopes that record, validate and replay them.

A scope is the calling thread's, and must be left whatever happens in between: an interrupt may come at any line here. So
whatever an entry has done is written down in the entry before the next thing is done, and taking it back can be done twice.
"""
import asyncio
import ctypes
import gc
import multiprocessing.util
import os
import tempfile
import threading
from typing import Any, Dict, Generic, List, Literal, Optional, TypeVar, Union

from ._library import (_OK, _MISMATCH, BerthError, _allocator, _begin, _Certificate, _check, _Difference, _handle, _plan_certificate,
                       _plan_count, _plan_create, _plan_load, _plan_release, _plan_retain, _plan_save, _plan_total, _record_end,
                       _replay_end, _Report, _report_text, _run_current, _RunOptions, _validate_end)


_Path = Union[str, bytes, "os.PathLike[str]"]


class Plan:
    """A recorded run and the place of each of its allocations in one block. It can be copied, pickled and saved."""

    _options: Optional[Dict[bool, Any]] = None  # of scopes, by whether they are strict; made with the first of each

    def __init__(self):
        self._handle = _handle()
        _check(_plan_create(ctypes.byref(self._handle)))

    def _run_options(self, strict):
        """What Berth is given when a scope begins, and its address: a number is the quickest argument. Kept, since making it
        takes as long as entering."""
        kept = self._options
        if kept is None:
            kept = self._options = {}
        found = kept.get(strict)
        if found is None:
            options = _RunOptions(plan=self._handle, strict=strict)
            found = kept[strict] = options, ctypes.addressof(options)
        return found

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
        """The size of the block that a replay takes."""
        return _plan_total(self._handle)

    @property
    def lower_bound_bytes(self) -> int:
        """What no plan of this run can go below."""
        return self.certificate["lower_bound_bytes"]

    def save(self, path: _Path) -> None:
        """Writes the plan to a file, as `berth plan` and load() read it."""
        _check(_plan_save(self._handle, os.fsencode(path)), os.fsdecode(path))

    @classmethod
    def load(cls, path: _Path) -> "Plan":
        """Reads what save() wrote."""
        plan = cls()
        _check(_plan_load(plan._handle, os.fsencode(path)), os.fsdecode(path))
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
        self._holders.add(entry)
        if gc.isenabled():
            self._disable()

    def _disable(self):
        self._was_on = True
        gc.disable()
        self._was_on = True  # again: a thread that lets go in between takes the first for its own

    def let_go(self, entry):
        self._holders.discard(entry)
        while self._was_on and not self._holders:
            gc.enable()
            self._was_on = False  # not before: an interrupt in between would leave it off for good
            if self._holders or not gc.isenabled():  # another thread came meanwhile, and what it noted is overwritten
                self._disable()


_collector = _Collector()


class _Entries(list):
    """The open entries of one thread, innermost last."""

    def __del__(self):  # the thread is gone, with a generator suspended inside a scope: Berth has ended the scope
        for entry in self:
            _collector.let_go(entry)


class _Here(threading.local):
    def __init__(self):  # once in every thread
        self.entries = _Entries()


_here = _Here()


# ---- Scopes ----------------------------------------------------------------------------------------------------

class _Entry:
    """One time that a scope was entered: what was done for it, so that it can be taken back, also twice."""

    turn: Optional["_Turn"] = None
    began = False

    def __init__(self, owner, result, allocator):
        self.owner, self.result, self.allocator = owner, result, allocator

    def is_open(self) -> bool:
        return self.began and _run_current()[1] == self.allocator

    def take_back(self):
        """Ends what is open, without an error of its own."""
        if self.began:
            if self.is_open():
                self.owner._end(self)
            self.began = False
        if self.turn:
            self.turn.cancel()
        _collector.let_go(self)
        entries = _here.entries
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


_running_loop = asyncio._get_running_loop  # does not raise where there is none: this is part of every run


_Result = TypeVar("_Result")


class _RunScope(Generic[_Result]):
    """A scope of the calling thread. One object may be entered many times, by many threads, one after the other on each."""

    _kind = ""

    def __init__(self, plan, strict=False):
        if not isinstance(plan, Plan):
            raise TypeError(f"expected a berth_torch.Plan, got {plan!r}")
        self._plan, self._begin = plan, _begin[self._kind]
        self._options, self._address = plan._run_options(bool(strict))

    def __reduce__(self):
        return type(self), (self._plan,)

    def _make_result(self) -> _Result:
        """What `as` gives."""
        raise NotImplementedError

    def _end(self, entry) -> int:
        """Ends it in Berth and fills the result; the status."""
        raise NotImplementedError

    # One function each to enter and to leave, since calls are a good part of what a run of a small model costs.
    def __enter__(self) -> _Result:
        allocator = _allocator()
        entry = _Entry(self, self._make_result(), allocator)
        try:
            entries = _here.entries
            nested = bool(entries)
            entries.append(entry)
            _collector.hold(entry)
            loop = _running_loop()
            if loop is not None:
                entry.turn = _Turn(loop)
            # Said before it is so: an interrupt right after the call must find it. is_open() asks Berth.
            entry.began = not nested
            status = self._begin(allocator, self._address)
            if status:
                entry.began = False
                _check(status)
            return entry.result
        except BaseException:
            entry.take_back()
            raise

    def __exit__(self, error, *_) -> Literal[False]:
        try:
            entries = _here.entries
            entry = entries[-1] if entries and entries[-1].owner is self else self._mine()
            if entry is None:
                raise BerthError("this scope is not open on this thread: it is left where it was entered; "
                                 "berth_torch.abandon() on that thread ends it")
            given_way = entry.turn is not None and entry.turn.passed
            status = self._end(entry)
            entry.began = False
            if entry is entries[-1] and entry.turn is None:  # take_back() as it nearly always is
                _collector.let_go(entry)
                entries.pop()
            else:
                entry.take_back()
        except BaseException:  # an interrupt: what is still open is ended. One that comes even before this: abandon()
            self._abandon_own()
            raise
        if error is None and (status or given_way):
            _check(status)
            raise BerthError("an await inside a berth scope let other tasks run, and their tensors were taken for this "
                             "run's: leave the scope before the await")
        return False

    def _abandon_own(self):
        """Ends what this thread has open of it, if anything."""
        entry = self._mine()
        if entry is not None:
            entry.take_back()

    def _mine(self) -> Optional[_Entry]:
        for entry in reversed(_here.entries):
            if entry.owner is self:
                return entry
        return None


def abandon() -> int:
    """Ends every scope that is open on this thread, such as those of a generator that another thread closed; returns how
    many. What they recorded or would have reported is lost."""
    count = 0
    for entry in reversed(list(_here.entries)):
        entry.take_back()
        count += 1
    kind, allocator = _run_current()
    if kind:  # begun from C
        (_record_end(allocator) if kind == 1 else _validate_end(allocator, None) if kind == 2 else _replay_end(allocator, None))
        count += 1
    return count


# A worker never comes back to the block in which it was forked (`for batch in loader` inside a recording), and what it does is no
# part of that run: else it would be recorded for as long as the worker lives, without a collector.
multiprocessing.util.register_after_fork(_collector, lambda _: abandon())


class record(_RunScope[Plan]):
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


class Report(_Report):
    """What a replay did: report.from_plan, or report["from_plan"]; print it for people. Filled when the block ends."""

    planned: int          # allocations in the plan
    from_plan: int        # of this run, in the plan's block
    by_fallback: int      # of this run, from the allocator below, because they are not as planned
    outside_plan: int     # of this run, planned to be outside: outputs
    stragglers: int       # in the block, and alive after the run
    fallback_bytes: int
    straggler_bytes: int
    block_bytes: int

    def keys(self) -> List[str]:
        """The names of its figures, so that dict(report) works."""
        return [name for name, _ in _Report._fields_ if name not in ("struct_size", "deviations")]

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    def __str__(self) -> str:
        room = ctypes.create_string_buffer(4096)
        _report_text(self, room, len(room))
        return room.value.decode(errors="replace")

    def __repr__(self) -> str:
        return (f"<berth report: {self.from_plan} of {self.planned} from the plan, {self.by_fallback} by fallback, "
                f"{self.stragglers} kept>")


_BLANK_REPORT = bytes(Report())
_new_report = Report.from_buffer_copy  # a third of the time of Report()


class replay(_RunScope[Report]):
    """Serves this thread's tensor allocations from the plan's block: with replay(plan) as report.

    What does not follow the plan comes from the allocator below, and the report names it; strict makes it an error.
    """

    _kind = "replay"

    def __init__(self, plan: Plan, strict: bool = False):
        super().__init__(plan, strict)

    def __reduce__(self):
        return type(self), (self._plan, self._options.strict)

    def _make_result(self) -> Report:
        return _new_report(_BLANK_REPORT)

    def _end(self, entry):
        return _replay_end(entry.allocator, entry.result)


class Verdict:
    """Whether a run followed its plan; if not, words says where it first differed."""

    same: Optional[bool] = None  # None: the run has not ended
    words: str = ""

    def __bool__(self) -> bool:
        return bool(self.same)

    def __repr__(self) -> str:
        return f"<berth verdict: {'the same' if self.same else self.words or 'not ended'}>"


class validate(_RunScope[Verdict]):
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
