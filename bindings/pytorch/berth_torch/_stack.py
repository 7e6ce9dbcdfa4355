"""Which stack of allocators serves CPU tensors: enable, disable, and what the environment asks for."""
import os
import re
from typing import Optional, Union

from ._library import BerthError, _check, _install, _Options, _uninstall

_OVERFLOW = 5
_SOURCES = {"pool": 0, "system": 1}
_UNITS = {"": 1, "k": 10, "m": 20, "g": 30, "t": 40}


def _bytes(value):
    """A size in bytes: a number, or text such as "2GB", "512M", "1.5 GiB"; units are powers of 1024."""
    if value is None:
        return 0
    size = value
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?\s*", str(value).lower())
        if not match:
            raise ValueError(f"{value!r} is no size: write bytes, or for instance 512M or 2GB")
        number, unit = match.groups()
        size = float(number) * (1 << _UNITS[unit] if unit else 1)
    if not 0 <= size < 2**62 - 1:
        raise ValueError(f"{value!r} is no size: write bytes from 0 (no limit) on")
    if 0 < size < 1:  # a share, or gigabytes: as a whole number of bytes it would be no limit at all
        raise ValueError(f"{value!r} is less than a byte: write bytes, or for instance 512M or 0.5G")
    return int(size)


def enable(source: str = "pool", *, tracking: bool = False, stack_depth: int = 0, python_stacks: int = 0,
           guard: bool = False, compacting: bool = False, limit: Optional[Union[int, float, str]] = None,
           keep_idle: bool = False) -> None:
    """Makes Berth PyTorch's CPU allocator, or puts another stack in place; tensors that live keep theirs.

    source        "pool", or "system" for the C heap
    tracking      every live block is known, for leaks(); with stack_depth C frames and python_stacks Python
                  frames each
    guard         red zones and a quarantine: finds writes past the end and after the free
    compacting    the pool saves memory before page faults
    limit         bytes that CPU tensors may take together, those that live already too; a number, or text
                  as "2GB"; above it allocations fail and say why; what lies idle goes back first
    keep_idle     idle memory stays; else it goes back to the system after ten seconds in which no tensor came or went
    """
    if source not in _SOURCES:
        raise ValueError(f"source is {source!r}, not one of {', '.join(_SOURCES)}")
    for name, count in (("stack_depth", stack_depth), ("python_stacks", python_stacks)):
        if not isinstance(count, int) or not 0 <= count <= 32:
            raise ValueError(f"{name} is {count!r}: a number of frames from 0 to 32")
    for name, flag in (("tracking", tracking), ("guard", guard), ("compacting", compacting), ("keep_idle", keep_idle)):
        if isinstance(flag, str):  # "no" would be true
            raise TypeError(f"{name} is {flag!r}: True or False")
    status = _install(_Options(source=_SOURCES[source], tracking=bool(tracking or stack_depth or python_stacks),
                               stack_depth=stack_depth, python_stacks=python_stacks, guard=bool(guard),
                               compacting=bool(compacting), limit_bytes=_bytes(limit), keeps_idle=bool(keep_idle)))
    if status == _OVERFLOW:
        raise BerthError("64 different stacks were made in this process, and tensors may live in each: use one of them again")
    _check(status)


def disable() -> None:
    """New tensors come from PyTorch's own allocator again; those from Berth stay valid."""
    _uninstall()


_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


def _flag(name, text):
    if text.lower() in _YES + _NO:
        return text.lower() in _YES
    raise ValueError(f"BERTH_TORCH has {name}={text}: write 1 or 0")


def _number(name, text):
    if not text.isdigit():
        raise ValueError(f"BERTH_TORCH has {name}={text}: write a number")
    return int(text)


_SETTINGS = {"source": lambda name, text: text, "tracking": _flag, "stack_depth": _number, "python_stacks": _number,
             "guard": _flag, "compacting": _flag, "keep_idle": _flag, "limit": lambda name, text: _bytes(text)}


def enable_from_environment() -> None:
    """BERTH_TORCH=limit=2GB,tracking=True: the arguments of enable(), with commas between."""
    settings = {}
    for part in filter(None, os.environ.get("BERTH_TORCH", "").replace(" ", "").split(",")):
        name, _, text = part.partition("=")
        if name not in _SETTINGS:
            raise ValueError(f"BERTH_TORCH names {name!r}; known are {', '.join(_SETTINGS)}")
        settings[name] = _SETTINGS[name](name, text)
    enable(**settings)
