"""Berth under PyTorch: figures for CPU tensors, and forward passes that run from one planned block.

    import berth_torch                      # from here on CPU tensors come from Berth

    with berth_torch.record() as plan:      # one run is recorded and planned
        model(x)
    with berth_torch.replay(plan):          # later runs take their memory from one block
        model(x)
    print(berth_torch.stats())

Importing it installs the pool; enable() chooses another stack. See README.md beside this file.
"""
import contextlib
import ctypes
import gc
import os

import torch  # noqa: F401  (libtorch must be in the process first)

__all__ = ["BerthError", "Plan", "cached", "describe", "disable", "enable", "leaks", "max_memory_allocated",
           "memory_allocated", "record", "replay", "reset_peak", "scope", "scopes", "stats", "trim", "validate"]

_OK, _MISMATCH = 0, 13


def _load():
    here = os.path.dirname(os.path.abspath(__file__))
    named = os.environ.get("BERTH_TORCH_LIBRARY")
    for path in [named] if named else [os.path.join(here, "libberth_torch.so"), "libberth_torch.so"]:
        try:
            return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            reason = error
    raise ImportError(f"libberth_torch.so was not found beside {__file__} or in the system's places ({reason}); "
                      "build it with ./dev build, or name it in BERTH_TORCH_LIBRARY")


_lib = _load()


class BerthError(RuntimeError):
    """A call that Berth refused, in its words."""


class _Struct(ctypes.Structure):
    """A struct of Berth's that begins with its own size."""

    def __init__(self, **values):
        super().__init__(struct_size=ctypes.sizeof(self), **values)

    def as_dict(self):
        def plain(value):
            return value.decode(errors="replace") if isinstance(value, bytes) else value
        return {name: plain(getattr(self, name)) for name, _ in self._fields_ if name != "struct_size"}


_u64, _size, _text = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_char


class _Options(_Struct):
    _fields_ = [("struct_size", _size), ("source", ctypes.c_int32), ("tracking", ctypes.c_uint32),
                ("stack_depth", ctypes.c_uint32), ("python_stacks", ctypes.c_uint32), ("guard", ctypes.c_uint32),
                ("compacting", ctypes.c_uint32), ("limit_bytes", _u64)]


class _Stats(_Struct):
    _fields_ = [("struct_size", _size)] + [(name, _u64) for name in (
        "num_allocs", "bytes_in_use", "max_bytes_in_use", "max_alloc_size", "bytes_limit", "total_bytes",
        "bytes_reserved", "max_bytes_reserved", "num_failures", "num_retries", "largest_free_bytes")] + [
            ("fragmentation", ctypes.c_double)]


class _Certificate(_Struct):
    _fields_ = [("struct_size", _size), ("lower_bound_bytes", _u64), ("max_live_bytes", _u64), ("peak_bytes", _u64),
                ("naive_bytes", _u64), ("binding_time", ctypes.c_int64), ("binding_buffers", _size),
                ("proven_optimal", ctypes.c_bool), ("fits", ctypes.c_int), ("stopped_by", ctypes.c_int),
                ("steps", _u64), ("seed", _u64), ("fingerprint", _u64), ("solver", _text * 32)]


class _Deviation(ctypes.Structure):
    _fields_ = [("reason", ctypes.c_int), ("id", _u64), ("expected", _u64), ("got", _u64), ("label", _text * 48)]


class _Report(_Struct):
    _fields_ = [("struct_size", _size), ("status", ctypes.c_int), ("strict", ctypes.c_bool), ("stale", ctypes.c_bool)] + [
        (name, _u64) for name in ("planned", "from_plan", "by_fallback", "outside_plan", "refused", "bad_frees",
                                  "stragglers", "block_bytes", "fallback_bytes", "peak_with_plan_bytes",
                                  "peak_without_plan_bytes")] + [
            ("deviation_count", _size), ("deviations", _Deviation * 8)] + [
                (name, _u64) for name in ("displaced", "early_frees", "held_bytes", "straggler_bytes")]


class _RunOptions(_Struct):
    _fields_ = [("struct_size", _size), ("plan", ctypes.c_void_p), ("strict", ctypes.c_bool), ("fingerprint", _u64),
                ("stream", ctypes.c_void_p), ("solve", ctypes.c_void_p)]


class _Difference(_Struct):
    _fields_ = [("struct_size", _size), ("status", ctypes.c_int), ("id", _u64), ("label", _text * 48),
                ("expected", _u64), ("got", _u64), ("words", _text * 192)]


class _Leak(ctypes.Structure):
    _fields_ = [("struct_size", _size), ("address", ctypes.c_void_p), ("size_bytes", _u64), ("allocation_id", _u64),
                ("label", ctypes.c_char_p), ("stack", ctypes.POINTER(ctypes.c_void_p)),
                ("stack_depth", ctypes.c_uint32)]


class _Scope(ctypes.Structure):
    _fields_ = [("label", ctypes.c_char_p), ("outer", ctypes.c_void_p), ("entry_bytes", ctypes.c_int64),
                ("outer_peak_bytes", ctypes.c_int64), ("peak_bytes", _u64)]


class _ScopeFigures(ctypes.Structure):
    _fields_ = [("struct_size", _size), ("label", ctypes.c_char_p), ("thread", ctypes.c_uint32),
                ("bytes_in_use", _u64), ("max_bytes_in_use", _u64), ("num_scopes", _u64), ("max_scope_bytes", _u64)]


class _Error(ctypes.Structure):
    _fields_ = [("struct_size", _size), ("status", ctypes.c_int), ("driver_code", ctypes.c_int64),
                ("driver_words", _text * 128), ("message", _text * 512)]


# Short calls that take locks keep the GIL: os.fork() has it too, so that none of them is under way in the child.
_quick = ctypes.PyDLL(_lib._name)
_QUICK = ("berth_scope_begin", "berth_scope_end", "berth_replay_begin", "berth_replay_end", "berth_record_begin",
          "berth_validate_begin", "berth_stats_get")


def _function(name, result, *arguments):
    function = getattr(_quick if name in _QUICK else _lib, name)
    function.restype, function.argtypes = result, arguments
    return function


_handle, _status = ctypes.c_void_p, ctypes.c_int
_install = _function("berth_torch_install", _status, ctypes.POINTER(_Options))
_uninstall = _function("berth_torch_uninstall", None)
_allocator = _function("berth_torch_allocator", _handle)
_tracker = _function("berth_torch_tracker", _handle)
_last_error = _function("berth_last_error", ctypes.POINTER(_Error))
_status_words = _function("berth_status_words", ctypes.c_char_p, _status)
_stats_get = _function("berth_stats_get", _status, _handle, ctypes.POINTER(_Stats))
_stats_clear = _function("berth_stats_clear", _status, _handle)
_trim = _function("berth_trim", _status, _handle, _size, ctypes.POINTER(_size))
_plan_create = _function("berth_plan_create", _status, ctypes.POINTER(_handle))
_plan_release = _function("berth_plan_release", None, _handle)
_plan_count = _function("berth_plan_count", _size, _handle)
_plan_total = _function("berth_plan_total_bytes", _u64, _handle)
_plan_certificate = _function("berth_plan_certificate", _status, _handle, ctypes.POINTER(_Certificate))
_plan_save = _function("berth_plan_save", _status, _handle, ctypes.c_char_p)
_plan_load = _function("berth_plan_load", _status, _handle, ctypes.c_char_p)
_begin = {kind: _function(f"berth_{kind}_begin", _status, _handle, ctypes.POINTER(_RunOptions))
          for kind in ("record", "validate", "replay")}
_record_end = _function("berth_record_end", _status, _handle)
_validate_end = _function("berth_validate_end", _status, _handle, ctypes.POINTER(_Difference))
_replay_end = _function("berth_replay_end", _status, _handle, ctypes.POINTER(_Report))
_report_text = _function("berth_report_text", _size, ctypes.POINTER(_Report), ctypes.c_char_p, _size)
_scope_begin = _function("berth_scope_begin", None, ctypes.POINTER(_Scope), ctypes.c_char_p)
_scope_end = _function("berth_scope_end", None, ctypes.POINTER(_Scope))
_scope_peak = _function("berth_scope_peak_bytes", _u64, ctypes.POINTER(_Scope))
_leak_fn = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.POINTER(_Leak))
_visit_leaks = _function("berth_tracking_visit_leaks", _status, _handle, _leak_fn, ctypes.c_void_p)
_scope_fn = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.POINTER(_ScopeFigures))
_visit_scopes = _function("berth_scope_visit", _status, _scope_fn, ctypes.c_void_p)


def _check(status):
    if status != _OK:
        error = _last_error().contents
        words = error.message.decode(errors="replace") if error.status == status else ""
        raise BerthError(words or _status_words(status).decode())


# ---- The stack ----------------------------------------------------------------------------------------------

def enable(source="pool", *, tracking=False, stack_depth=0, python_stacks=0, guard=False, compacting=False, limit=None):
    """Makes Berth PyTorch's CPU allocator, or puts another stack in place; tensors that live keep theirs.

    source        "pool", or "system" for the C heap
    tracking      every live block is known, for leaks(); with stack_depth C frames and python_stacks Python
                  frames each
    guard         red zones and a quarantine: finds writes past the end and after the free
    compacting    the pool saves memory before page faults
    limit         bytes that tensors may take together; above it allocations fail and say why
    """
    sources = {"pool": 0, "system": 1}
    if source not in sources:
        raise ValueError(f"source is {source!r}, not one of {', '.join(sources)}")
    _check(_install(_Options(source=sources[source], tracking=bool(tracking or stack_depth or python_stacks),
                             stack_depth=stack_depth, python_stacks=python_stacks, guard=bool(guard),
                             compacting=bool(compacting), limit_bytes=limit or 0)))


def disable():
    """New tensors come from PyTorch's own allocator again; those from Berth stay valid."""
    _uninstall()


# ---- Figures -------------------------------------------------------------------------------------------------

def stats():
    """The figures of CPU tensors as a dictionary: bytes_in_use, max_bytes_in_use, num_allocs and more."""
    figures = _Stats()
    _check(_stats_get(_allocator(), figures))
    return figures.as_dict()


def memory_allocated():
    return stats()["bytes_in_use"]


def max_memory_allocated():
    return stats()["max_bytes_in_use"]


def reset_peak():
    """Counts to 0, peaks to what is in use now."""
    _check(_stats_clear(_allocator()))


def trim():
    """Gives idle memory back to the system and returns how much."""
    released = _size()
    _check(_trim(_allocator(), 0, ctypes.byref(released)))
    return released.value


_labels = {}  # label -> bytes that live as long as the process: Berth keeps labels by reference


class scope(contextlib.ContextDecorator):
    """Names what is allocated inside; after the end, peak_bytes is what it took at most beyond the begin."""

    def __init__(self, name):
        self.name, self.peak_bytes, self._scope = name, None, None

    def _recreate_cm(self):  # as a decorator: each call has a scope of its own, also in threads and recursion
        return scope(self.name)

    def __enter__(self):
        if self._scope is not None:
            raise BerthError(f"the scope {self.name!r} is open already: make another one")
        self._scope = _Scope()
        _scope_begin(self._scope, _labels.setdefault(self.name, self.name.encode()))
        return self

    def __exit__(self, *_):
        ended, self._scope = self._scope, None
        _scope_end(ended)
        self.peak_bytes = _scope_peak(ended)
        return False


def scopes():
    """Figures of every scope name, of all threads together: a list of dictionaries."""
    found = []

    def visit(_, figures):
        f = figures.contents
        if f.thread == 0xffffffff:
            found.append({"label": f.label.decode(), "bytes_in_use": f.bytes_in_use,
                          "max_bytes_in_use": f.max_bytes_in_use, "max_scope_bytes": f.max_scope_bytes})
        return True

    _check(_visit_scopes(_scope_fn(visit), None))
    return found


def leaks():
    """Every live tensor block, oldest first: size, id, label (with python_stacks the Python frames) and C frames."""
    if not _tracker():
        raise BerthError("nothing is tracked: enable(tracking=True, python_stacks=4, stack_depth=8)")
    found = []

    def visit(_, leak):
        leak = leak.contents
        found.append({"bytes": leak.size_bytes, "id": leak.allocation_id,
                      "label": leak.label.decode(errors="replace") if leak.label else None,
                      "stack": [_symbol(leak.stack[i]) for i in range(leak.stack_depth)]})
        return True

    _check(_visit_leaks(_tracker(), _leak_fn(visit), None))
    return found


class _DlInfo(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p)]


_dladdr = ctypes.CDLL(None).dladdr
_dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_DlInfo)]


def _symbol(address):
    info = _DlInfo()
    if not address or not _dladdr(address, ctypes.byref(info)) or not info.file:
        return hex(address or 0)
    file = os.path.basename(info.file.decode(errors="replace"))
    return f"{file}: {info.name.decode(errors='replace')}" if info.name else f"{file}+{address - info.base:#x}"


def describe():
    """The figures as text."""
    return "\n".join(f"{name:20} {value}" for name, value in stats().items())


# ---- Record and replay ---------------------------------------------------------------------------------------

class Plan:
    """A recorded run and the place of each of its allocations in one block."""

    def __init__(self):
        self._handle = _handle()
        _check(_plan_create(ctypes.byref(self._handle)))

    def __del__(self):
        if getattr(self, "_handle", None):
            _plan_release(self._handle)

    def __len__(self):
        return _plan_count(self._handle)

    @property
    def certificate(self):
        """peak_bytes, lower_bound_bytes, proven_optimal and how that is known."""
        figures = _Certificate()
        _check(_plan_certificate(self._handle, figures))
        return figures.as_dict()

    @property
    def peak_bytes(self):
        return _plan_total(self._handle)

    @property
    def lower_bound_bytes(self):
        return self.certificate["lower_bound_bytes"]

    def save(self, path):
        _check(_plan_save(self._handle, os.fsencode(path)))

    @classmethod
    def load(cls, path):
        plan = cls()
        _check(_plan_load(plan._handle, os.fsencode(path)))
        return plan

    def __repr__(self):
        return f"<berth plan: {len(self)} allocations in {self.peak_bytes} bytes>"


class _Run:
    """A scope of the calling thread. Entering and leaving it is part of every replayed run, hence no generators."""

    def __init__(self, plan, kind, strict=False):
        if not isinstance(plan, Plan):
            raise TypeError(f"expected a berth_torch.Plan, got {plan!r}")
        self._plan, self._options, self._begin = plan, _RunOptions(plan=plan._handle, strict=strict), _begin[kind]

    def __enter__(self):
        # The collector frees tensors whenever it likes, in one run here and in another there: not inside a scope.
        self._collects = gc.isenabled()
        gc.disable()
        self._allocator = _allocator()
        status = self._begin(self._allocator, self._options)
        if status != _OK:
            self._collect_again()
            _check(status)
        return self._result()

    def __exit__(self, error, *_):
        status = self._end(self._allocator)
        self._collect_again()
        if error is None:
            _check(status)
        return False

    def _collect_again(self):
        if self._collects:
            gc.enable()


class record(_Run):
    """Records this thread's tensor allocations and plans them when the block ends: with record() as plan."""

    def __init__(self, plan=None):
        super().__init__(Plan() if plan is None else plan, "record")

    def _result(self):
        return self._plan

    def _end(self, allocator):
        return _record_end(allocator)


class Report:
    """What a replay did, by name: report["from_plan"]; print it for people. Filled when the block ends."""

    def __init__(self):
        self._filled = _Report()

    def __getitem__(self, name):
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self._filled, name)

    def keys(self):
        return [name for name, _ in _Report._fields_ if name not in ("struct_size", "deviations")]

    def __str__(self):
        room = ctypes.create_string_buffer(4096)
        _report_text(self._filled, room, len(room))
        return room.value.decode(errors="replace")


class replay(_Run):
    """Serves this thread's tensor allocations from the plan's block: with replay(plan) as report.

    What does not follow the plan comes from the allocator below, and the report names it; strict makes it an error.
    """

    def __init__(self, plan, strict=False):
        super().__init__(plan, "replay", strict)

    def _result(self):
        self._report = Report()
        return self._report

    def _end(self, allocator):
        return _replay_end(allocator, self._report._filled)


class Verdict:
    """Whether a run followed its plan; if not, words says where it first differed."""

    same, words = None, ""

    def __bool__(self):
        return bool(self.same)


class validate(_Run):
    """Compares this thread's tensor allocations with the plan: with validate(plan) as verdict."""

    def __init__(self, plan):
        super().__init__(plan, "validate")

    def _result(self):
        self._verdict = Verdict()
        return self._verdict

    def _end(self, allocator):
        difference = _Difference()
        status = _validate_end(allocator, difference)
        self._verdict.same = status == _OK
        self._verdict.words = difference.words.decode(errors="replace")
        return _OK if status == _MISMATCH else status


_plans = {}


@contextlib.contextmanager
def cached(key):
    """Records the first run under a key (input shape, batch size) and replays every later one."""
    plan = _plans.get(key)
    if plan is None:
        with record() as plan:
            yield None
        _plans[key] = plan
    else:
        with replay(plan) as report:
            yield report


def _enable_from_environment():
    words = dict(part.split("=", 1) for part in os.environ.get("BERTH_TORCH", "").split(",") if "=" in part)
    source = words.pop("source", "pool")
    known = ("tracking", "stack_depth", "python_stacks", "guard", "compacting", "limit")
    unknown = [name for name in words if name not in known]
    if unknown:
        raise ValueError(f"BERTH_TORCH names {unknown[0]!r}; known are source, {', '.join(known)}")
    enable(source, **{name: int(value) for name, value in words.items()})


_enable_from_environment()
