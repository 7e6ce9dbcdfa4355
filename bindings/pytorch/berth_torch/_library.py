"""libberth_torch.so and the structs and functions of Berth's that the other modules use."""
import ctypes
import os
from typing import Dict

import torch  # noqa: F401  (libtorch must be in the process first)

_OK, _MISMATCH = 0, 13


def _load():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    named = os.environ.get("BERTH_TORCH_LIBRARY")
    # Beside the module in a build, two folders up where it is installed, and where the system looks.
    places = [os.path.join(here, "libberth_torch.so"), os.path.join(here, "..", "..", "libberth_torch.so"), "libberth_torch.so"]
    for path in [named] if named else places:
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
                ("compacting", ctypes.c_uint32), ("limit_bytes", _u64), ("keeps_idle", ctypes.c_uint32)]


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
                (name, _u64) for name in ("displaced", "early_frees", "held_bytes", "straggler_bytes", "separate_bytes")]


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
    left = False  # by another thread, which could not end it


class _ScopeFigures(ctypes.Structure):
    _fields_ = [("struct_size", _size), ("label", ctypes.c_char_p), ("thread", ctypes.c_uint32),
                ("bytes_in_use", _u64), ("max_bytes_in_use", _u64), ("num_scopes", _u64), ("max_scope_bytes", _u64)]


class _Block(ctypes.Structure):
    _fields_ = [("struct_size", _size), ("address", ctypes.c_void_p), ("size_bytes", _u64), ("requested_bytes", _u64),
                ("allocation_id", _u64), ("segment", _u64), ("age_ns", _u64), ("label", ctypes.c_char_p),
                ("stream", ctypes.c_void_p), ("state", ctypes.c_int)]


class _Error(ctypes.Structure):
    _fields_ = [("struct_size", _size), ("status", ctypes.c_int), ("driver_code", ctypes.c_int64),
                ("driver_words", _text * 128), ("message", _text * 512)]


# Short calls that take locks keep the GIL: os.fork() has it too, so that none of them is under way in the child.
_quick = ctypes.PyDLL(_lib._name)
_QUICK = ("berth_scope_begin", "berth_scope_end", "berth_replay_begin", "berth_replay_end", "berth_record_begin",
          "berth_validate_begin", "berth_stats_get", "berth_torch_scope", "berth_torch_allocator", "berth_torch_trace_begin", "berth_torch_trace_end")


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
_begin = {kind: _function(f"berth_{kind}_begin", _status, _handle, _handle)  # the second: the address of _RunOptions
          for kind in ("record", "validate", "replay")}
_record_end = _function("berth_record_end", _status, _handle)
_validate_end = _function("berth_validate_end", _status, _handle, ctypes.POINTER(_Difference))
_replay_end = _function("berth_replay_end", _status, _handle, ctypes.POINTER(_Report))
_plan_retain = _function("berth_plan_retain", _handle, _handle)
_scope_of_thread = _function("berth_torch_scope", ctypes.c_int, ctypes.POINTER(_handle))
_block_fn = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.POINTER(_Block))
_snapshot = _function("berth_snapshot", _status, _handle, _block_fn, ctypes.c_void_p)
_visit_planned = _function("berth_planned_visit", _status, _handle, _block_fn, ctypes.c_void_p)
_report_text = _function("berth_report_text", _size, ctypes.POINTER(_Report), ctypes.c_char_p, _size)
_scope_begin = _function("berth_scope_begin", None, ctypes.POINTER(_Scope), ctypes.c_char_p)
_scope_end = _function("berth_scope_end", None, ctypes.POINTER(_Scope))
_scope_peak = _function("berth_scope_peak_bytes", _u64, ctypes.POINTER(_Scope))
_leak_fn = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.POINTER(_Leak))
_visit_leaks = _function("berth_tracking_visit_leaks", _status, _handle, _leak_fn, ctypes.c_void_p)
_scope_fn = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.POINTER(_ScopeFigures))
_visit_scopes = _function("berth_scope_visit", _status, _scope_fn, ctypes.c_void_p)


def _check(status, about=""):
    """Raises what Berth said; `about` names the file or thing that was asked for."""
    if status != _OK:
        error = _last_error().contents
        words = error.message.decode(errors="replace") if error.status == status else ""
        words = words or _status_words(status).decode()
        raise BerthError(f"{about}: {words}" if about and about not in words else words)


__version__: str = _function("berth_version", ctypes.c_char_p)().decode()
_labels: Dict[str, bytes] = {}  # label -> bytes that live as long as the process: Berth keeps labels by reference


def _run_current():
    """The kind of the scope that is open on this thread, and whose it is; (0, None) if none is."""
    allocator = _handle()
    return _scope_of_thread(ctypes.byref(allocator)), allocator.value
