"""Functions that record themselves: planned, and cached for those who have a key of their own."""
import collections
import functools
import hashlib
import inspect
import os
import threading
import warnings
from typing import Any, List, Optional

import torch

from ._library import BerthError, _run_current
from ._plans import Plan, record, replay

_SETTLED = 3  # so many runs alike that leave the plan: the program has settled elsewhere


class _Kept:
    """A plan under a key, and how its last runs went."""

    __slots__ = ("plan", "runs", "strange", "alike", "warned")

    def __init__(self, plan=None):
        self.plan, self.runs, self.strange, self.alike, self.warned = plan, 0, None, 0, False

    def note(self, report) -> bool:
        """Whether the plan should be made anew: tensors outlive the run that the plan has freed in it, or the last runs
        all left the plan in the same way."""
        strange = (report.by_fallback, report.fallback_bytes, report.stragglers)
        if not report.by_fallback and not report.stragglers:  # fallback_bytes alone: an output, which is planned to be outside
            self.strange, self.alike = None, 0
            return False
        self.alike = self.alike + 1 if strange == self.strange else 1
        self.strange = strange
        if report.stragglers and not self.warned:
            self.warned = True
            warnings.warn(f"berth: {report.stragglers} tensors outlive the run that was recorded without keeping them; it is "
                          "recorded again with them outside the plan", RuntimeWarning, stacklevel=4)
            return True
        return self.alike >= _SETTLED


def _key_of(value) -> Any:
    """What a run's allocations may depend on: of tensors the shape, the type and whether they want gradients."""
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.dtype, value.device.type, value.requires_grad, value.is_contiguous())
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(_key_of, value))
    if isinstance(value, dict):
        return tuple(sorted((str(name), _key_of(each)) for name, each in value.items()))
    if isinstance(value, (int, float, str, bool, bytes, type(None))):
        return value
    return type(value).__qualname__


class _Scope:
    """One run under a key: a warm-up, a recording, or a replay."""

    def __init__(self, owner, key):
        self._owner, self._key, self._inner, self._within = owner, key, None, False

    def __enter__(self):
        self._within = _run_current()[0] != 0  # of a run that is open already: it is a part of that one
        self._inner = None if self._within else self._owner._begin(self._key)
        try:
            return self._inner.__enter__() if self._inner else None
        except BaseException:  # an interrupt after the other has begun
            if self._inner is not None:
                self._inner._abandon_own()
            raise

    def __exit__(self, error, *rest):
        inner, self._inner = self._inner, None
        if inner is None:
            if not self._within:
                self._owner._warmed(self._key)
            return False
        result = inner.__exit__(error, *rest)
        if error is None:
            self._owner._ended(self._key, inner)
        return result


class planned:
    """Runs from one planned block: as a decorator, @planned or @planned(warm_up=2), or with planned(key) around a run.

    key       as a context manager: what tells runs apart. As a decorator it is made of the shapes, types and gradient modes
              of the arguments.
    warm_up   runs before the first is recorded, so that libraries have taken what they keep (default 1)
    most      so many plans are kept, the latest used (default 64)
    folder    plans are kept there too, for other processes and later starts

    A plan is made anew when runs settle elsewhere: an optimiser after its first step, or outputs that are kept. clear()
    forgets all plans.
    """

    def __init__(self, function=None, *, key: Any = None, warm_up: int = 1, most: int = 64, folder: Optional[str] = None):
        if function is not None and not callable(function):
            function, key = None, function
        self._function, self._own_key, self._warm_up, self._most, self._folder = function, key, warm_up, most, folder
        self._plans, self._open = collections.OrderedDict(), threading.local()
        if function is not None:
            if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or \
                    inspect.isasyncgenfunction(function):
                raise TypeError(f"{function!r} gives way to others in mid-run, whose tensors would be taken for its own: decorate "
                                "what it calls between two awaits or yields")
            functools.update_wrapper(self, function)

    def __getstate__(self):  # copied, pickled, saved with a module: with its plans, without what belongs to the process
        state = self.__dict__.copy()
        del state["_open"]
        state["_plans"] = [(key, kept.plan, kept.runs) for key, kept in list(self._plans.items())]
        return state

    def __setstate__(self, state):
        plans = state.pop("_plans")
        self.__dict__.update(state)
        self._plans, self._open = collections.OrderedDict(), threading.local()
        for key, plan, runs in plans:
            kept = self._plans[key] = _Kept(plan)
            kept.runs = runs

    # -- as a decorator

    def __call__(self, *args, **kwargs):
        if self._function is None:
            if len(args) == 1 and callable(args[0]) and not kwargs:  # @planned(warm_up=2)
                return planned(args[0], key=self._own_key, warm_up=self._warm_up, most=self._most, folder=self._folder)
            raise TypeError("planned(...) decorates a function, or is entered: with planned(key): ...")
        key = (self._own_key, torch.is_grad_enabled(), _key_of(args), _key_of(kwargs))
        with _Scope(self, key):
            return self._function(*args, **kwargs)

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    # -- as a context manager

    def __enter__(self):
        scope = _Scope(self, (self._own_key, torch.is_grad_enabled()))
        result = scope.__enter__()
        self._open.__dict__.setdefault("scopes", []).append(scope)
        return result

    def __exit__(self, *error):
        return self._open.scopes.pop().__exit__(*error)

    def clear(self) -> None:
        """Forgets every plan; those in the folder too."""
        keys, self._plans = list(self._plans), collections.OrderedDict()
        for key in keys:
            path = self._path(key)
            if path and os.path.exists(path):
                os.unlink(path)

    def __len__(self) -> int:
        return sum(kept.plan is not None for kept in list(self._plans.values()))

    def plans(self) -> List[Plan]:
        """The plans that there are now."""
        return [kept.plan for kept in list(self._plans.values()) if kept.plan is not None]

    # -- plans by key

    def _path(self, key) -> Optional[str]:
        if not self._folder:
            return None
        name = getattr(self._function, "__qualname__", "planned")
        digest = hashlib.sha256(repr((name, key, torch.__version__)).encode()).hexdigest()[:24]
        return os.path.join(self._folder, f"{digest}.plan.csv")

    def _find(self, key) -> _Kept:
        # Without a lock, which an interrupt on the way out would leave taken for ever: each step is whole by itself.
        kept = self._plans.get(key)
        if kept is None:
            kept = self._plans.setdefault(key, _Kept(self._load(key)))
        try:
            self._plans.move_to_end(key)
            while len(self._plans) > self._most:
                self._plans.popitem(last=False)
        except KeyError:  # another thread was quicker
            pass
        return kept

    def _load(self, key) -> Optional[Plan]:
        path = self._path(key)
        if not path or not os.path.exists(path):
            return None
        try:
            return Plan.load(path)
        except BerthError as error:  # another version's, or damaged: it is made anew
            warnings.warn(f"berth: a kept plan is not used: {error}", RuntimeWarning, stacklevel=5)
            return None

    def _begin(self, key):
        kept = self._find(key)
        if kept.plan is not None:
            return replay(kept.plan)
        return record() if kept.runs >= self._warm_up else None

    def _warmed(self, key):
        self._find(key).runs += 1

    def _ended(self, key, scope):
        kept = self._find(key)
        if isinstance(scope, record):
            kept.plan, kept.strange, kept.alike = scope._plan, None, 0
            path = self._path(key)
            if path:
                os.makedirs(self._folder, exist_ok=True)
                kept.plan.save(path)
        elif kept.note(scope.last):
            kept.plan = None  # the next run is recorded


_by_key = planned(warm_up=0)


def cached(key):
    """Records the first run under a key (input shape, batch size) and replays every later one: with cached(key) as report."""
    return _Scope(_by_key, key)
