"""A trace of CPU tensors, for berth view, show, what-if and explain-oom."""
import ctypes
import os
from typing import Optional, Union

from ._library import BerthError, _check, _function, _status

_BUSY = 11

# They take locks: with the GIL, so that os.fork() does not come in between.
_begin = _function("berth_torch_trace_begin", _status, ctypes.c_char_p, ctypes.c_uint32)
_end = _function("berth_torch_trace_end", _status)


class trace:
    """Writes every allocation and free of CPU tensors to a file while it is open.

        with berth_torch.trace("step.trace"):
            train_step()

    or start() and stop(). What is left open ends with the process. Tensors that live already stand at the begin, labelled
    "before the trace"; others have the name of the scope in which they were made, or of the operator that made them, and up
    to python_stacks Python frames. One at a time in a process. Forked workers are not in it.
    """

    path: str
    _pid: Optional[int]  # the process that started it; None: it is not open

    def __init__(self, path: Union[str, "os.PathLike[str]"], *, python_stacks: int = 16):
        if not isinstance(python_stacks, int) or not 0 <= python_stacks <= 32:
            raise ValueError(f"python_stacks is {python_stacks!r}: a number of frames from 0 to 32")
        path = os.fspath(path)
        if not path:
            raise ValueError("the trace needs a path")
        self.path = os.path.abspath(os.fsdecode(path))  # the program may change its folder
        self._frames, self._pid = python_stacks, None

    def start(self) -> "trace":
        """Begins the file, in the place of what is there."""
        status = _begin(os.fsencode(self.path), self._frames)
        if status == _BUSY:
            raise BerthError(f"{self.path}: another trace is being written in this process: stop that one first")
        _check(status, self.path)
        self._pid = os.getpid()
        return self

    def stop(self) -> None:
        """Completes the file. In a forked child nothing is left to do: the trace is its parent's."""
        pid, self._pid = self._pid, None
        if pid is None:
            raise BerthError(f"{self.path}: this trace is not being written")
        if pid == os.getpid():
            _check(_end(), self.path)

    def __enter__(self) -> "trace":
        return self.start()

    def __exit__(self, *_) -> bool:
        self.stop()
        return False
