"""Figures of CPU tensors under Berth's names and PyTorch's, scopes, leaks, and a snapshot in PyTorch's own format."""
import contextlib
import ctypes
import os
import pickle
import re
import threading
from typing import Any, Dict, List, Optional, Set, Union

import torch

from ._library import (BerthError, _allocator, _block_fn, _check, _leak_fn, _labels, _Scope, _scope_begin, _scope_end, _scope_fn,
                       _scope_peak, _size, _snapshot, _Stats, _stats_clear, _stats_get, _tracker, _trim, _visit_leaks,
                       _visit_planned, _visit_scopes)


def stats() -> Dict[str, Any]:
    """The figures of CPU tensors as a dictionary: bytes_in_use, max_bytes_in_use, num_allocs and more."""
    figures = _Stats()
    _check(_stats_get(_allocator(), figures))
    return figures.as_dict()


def _only_the_cpu(device: Any) -> None:
    """For those who come from torch.cuda and name a device, as its functions let one do."""
    if device is not None and torch.device(device).type != "cpu":
        raise ValueError(f"berth has the tensors of the CPU, not of {device!r}")


def memory_allocated(device: Any = None) -> int:
    """Bytes of CPU tensors that live now."""
    _only_the_cpu(device)
    return stats()["bytes_in_use"]


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes of CPU tensors that lived at one time, since the start or reset_peak_memory_stats()."""
    _only_the_cpu(device)
    return stats()["max_bytes_in_use"]


def memory_reserved(device: Any = None) -> int:
    """Bytes that Berth holds for CPU tensors, live and idle."""
    _only_the_cpu(device)
    return stats()["bytes_reserved"]


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that Berth held at one time."""
    _only_the_cpu(device)
    return stats()["max_bytes_reserved"]


def reset_peak() -> None:
    """Counts to 0, peaks to what is in use now."""
    _check(_stats_clear(_allocator()))


def reset_peak_memory_stats(device: Any = None) -> None:
    """PyTorch's name for reset_peak()."""
    _only_the_cpu(device)
    reset_peak()


def empty_cache() -> None:
    """PyTorch's name for trim()."""
    trim()


def memory_stats(device: Any = None) -> Dict[str, Any]:
    """The figures under the names of torch.cuda.memory_stats, as far as there is something to say on a CPU.

    Numbers of blocks (allocation, active, segment, inactive_split) are counted here: a walk over what lives. What a name with
    "allocated" counts begins anew with reset_peak_memory_stats(). Numbers of blocks have no peak.
    """
    _only_the_cpu(device)
    figures, found = stats(), _counted(memory_snapshot())
    found.update({
        "allocated_bytes.all.current": figures["bytes_in_use"], "allocated_bytes.all.peak": figures["max_bytes_in_use"],
        "allocated_bytes.all.allocated": figures["total_bytes"],
        "reserved_bytes.all.current": figures["bytes_reserved"], "reserved_bytes.all.peak": figures["max_bytes_reserved"],
        "allocation.all.current": _count_live(), "allocation.all.allocated": figures["num_allocs"],
        "num_ooms": figures["num_failures"], "num_alloc_retries": figures["num_retries"]})
    return found


def _counted(snapshot):
    """What the segments and blocks of a snapshot are together, as PyTorch counts: free space beside live blocks is split off."""
    active = [block for segment in snapshot for block in segment["blocks"] if block["state"] != "inactive"]
    split = [block for segment in snapshot if segment["active_size"] for block in segment["blocks"] if block["state"] == "inactive"]
    return {"segment.all.current": len(snapshot),
            "active.all.current": len(active), "active_bytes.all.current": sum(block["size"] for block in active),
            "inactive_split.all.current": len(split), "inactive_split_bytes.all.current": sum(block["size"] for block in split)}


def _human(size):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1024


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The figures as a table for people, which is short already."""
    _only_the_cpu(device)
    figures = stats()
    rows = [("in use", figures["bytes_in_use"], figures["max_bytes_in_use"]),
            ("reserved", figures["bytes_reserved"], figures["max_bytes_reserved"])]
    lines = ["CPU tensors on Berth", f"{'':12}{'now':>14}{'at most':>14}"]
    lines += [f"{name:12}{_human(now):>14}{_human(peak):>14}" for name, now, peak in rows]
    lines.append(f"{'allocations':12}{figures['num_allocs']:>14}   failures {figures['num_failures']}")
    return "\n".join(lines)


def _frames(label: Optional[bytes]) -> List[Dict[str, Any]]:
    """A label as frames: that of python_stacks has "model.py:12 forward < train.py:3 step", any other is a name."""
    frames = []
    for part in label.decode(errors="replace").split(" < ") if label else ():
        match = re.fullmatch(r"(.*):([0-9]+) (.*)", part)
        frames.append({"filename": match[1], "line": int(match[2]), "name": match[3]} if match else
                      {"filename": "scope", "line": 0, "name": part})
    return frames


def memory_snapshot() -> List[Dict[str, Any]]:
    """What the pool holds, in the format of torch.cuda.memory_snapshot(): a list of segments with their blocks.

    torch.cuda._memory_viz reads it. With tracking and python_stacks, live blocks have frames: their label.
    """
    segments: Dict[int, List[Dict[str, Any]]] = {}
    states = {0: "active_allocated", 1: "active_pending_free", 2: "inactive"}

    def visit(_, block):
        b = block.contents
        segment = segments.setdefault(b.segment, [])
        entry = {"address": b.address or 0, "size": b.size_bytes, "state": states[b.state]}
        if b.state == 0:
            size, frames = b.requested_bytes or b.size_bytes, _frames(b.label)
            entry.update(requested_size=size, frames=frames)  # as PyTorch 2 has it; history is that of 1.13
            entry["history"] = [{"addr": b.address or 0, "real_size": size, "frames": frames}]
        segment.append(entry)
        return True

    _check(_snapshot(_allocator(), _block_fn(visit), None))
    found = []
    for blocks in segments.values():
        blocks.sort(key=lambda each: each["address"])
        live = sum(each["size"] for each in blocks if each["state"] == "active_allocated")
        active = sum(each["size"] for each in blocks if each["state"] != "inactive")
        found.append({"device": -1, "address": blocks[0]["address"], "total_size": sum(b["size"] for b in blocks),
                      "allocated_size": live, "active_size": active, "stream": 0, "segment_type": "large", "blocks": blocks})
    return found


def _dump_snapshot(filename: Union[str, "os.PathLike[str]"] = "dump_snapshot.pickle") -> None:
    """Writes memory_snapshot() to a file, as torch.cuda.memory._dump_snapshot() does: for berth view and top. What came and went
    is not in it: trace() writes that."""
    with open(filename, "wb") as file:
        pickle.dump({"segments": memory_snapshot(), "device_traces": []}, file)


def _visit_run_blocks(visit) -> Set[int]:
    """Calls it for each tensor that a replay placed; where the blocks of their plans begin."""
    blocks: Set[int] = set()

    def visit_planned(_, block):
        blocks.add(block.contents.segment)
        visit(block.contents)
        return True

    _check(_visit_planned(_allocator(), _block_fn(visit_planned), None))
    return blocks


def _is_plans(address, label, blocks) -> bool:
    """Whether a block is a plan's own, and nobody's tensor."""
    return address in blocks or label == b"planned block"  # the second: an idle one


def _count_live() -> int:
    """How many tensors live."""
    count = 0

    def visit_planned(_):
        nonlocal count
        count += 1

    def visit(_, block):
        nonlocal count
        b = block.contents
        count += b.state == 0 and not _is_plans(b.address, b.label, blocks)
        return True

    blocks = _visit_run_blocks(visit_planned)
    _check(_snapshot(_allocator(), _block_fn(visit), None))
    return count


def trim() -> int:
    """Gives idle memory back to the system and returns how much."""
    released = _size()
    _check(_trim(_allocator(), 0, ctypes.byref(released)))
    return released.value


class _Open(threading.local):
    """The scopes that Berth has of a thread, innermost last. It has them by address, so they stay until they have ended, whatever
    becomes of the object that began them."""

    def __init__(self):  # once in every thread
        self.scopes: List[_Scope] = []


_open = _Open()


def _end_left() -> None:
    """Ends innermost scopes of this thread that another one has left."""
    while _open.scopes and _open.scopes[-1].left:
        _scope_end(_open.scopes[-1])
        _open.scopes.pop()


class scope(contextlib.ContextDecorator):
    """Names what is allocated inside; after the end, peak_bytes is what it took at most beyond the begin."""

    name: str
    peak_bytes: Optional[int]  # None: the scope has not ended, or another thread has left it
    _scope: Optional[_Scope]

    def __init__(self, name: str):
        if not isinstance(name, str):
            raise TypeError(f"a scope's name is text, not {name!r}")
        self.name, self.peak_bytes, self._scope = name, None, None

    def _recreate_cm(self):  # as a decorator: each call has a scope of its own, also in threads and recursion
        return scope(self.name)

    def __enter__(self) -> "scope":
        if self._scope is not None:
            raise BerthError(f"the scope {self.name!r} is open already: make another one")
        _end_left()
        self._among = _open.scopes
        self._scope = _Scope()
        self._among.append(self._scope)
        _scope_begin(self._scope, _labels.setdefault(self.name, self.name.encode()))
        return self

    def __exit__(self, *_):
        ended, self._scope = self._scope, None
        _scope_end(ended)
        if self._among is not _open.scopes:  # a generator that was closed here: its own thread ends it with its next scope
            ended.left = True
            return False
        if ended in self._among:
            del self._among[self._among.index(ended):]  # those inside it have ended too
        _end_left()
        self.peak_bytes = _scope_peak(ended)
        return False


def scopes() -> List[Dict[str, Any]]:
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


def leaks() -> List[Dict[str, Any]]:
    """Every live tensor block, oldest first: size, id, label (with python_stacks the Python frames) and C frames.

    Tensors that a replay placed in its plan's block have a size only: a run in step keeps no more.
    """
    if not _tracker():
        raise BerthError("nothing is tracked: enable(tracking=True, python_stacks=4, stack_depth=8)")
    found: List[Dict[str, Any]] = []

    def visit_planned(b):
        found.append({"bytes": b.requested_bytes, "id": 0, "label": None, "stack": []})

    def visit(_, leak):
        leak = leak.contents
        if _is_plans(leak.address, leak.label, blocks):
            return True
        found.append({"bytes": leak.size_bytes, "id": leak.allocation_id,
                      "label": leak.label.decode(errors="replace") if leak.label else None,
                      "stack": [_symbol(leak.stack[i]) for i in range(leak.stack_depth)]})
        return True

    blocks = _visit_run_blocks(visit_planned)
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


def describe() -> str:
    """The figures as text."""
    return "\n".join(f"{name:20} {value}" for name, value in stats().items())
