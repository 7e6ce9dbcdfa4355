"""Functions that record themselves: planned, and cached for those who have a key of their own."""
import collections
import contextlib
import functools
import hashlib
import inspect
import os
import sys
import threading
import types
import warnings
import weakref
from typing import Any, List, Optional, Tuple, Union

import torch

from ._library import BerthError, _run_current
from ._plans import Plan, record, replay

_SETTLED = 3  # so many runs alike that leave the plan: the program has settled elsewhere


class _Kept:
    """A plan under a key, and how its last runs went."""

    __slots__ = ("plan", "replay", "runs", "strange", "alike", "warned")

    def __init__(self, plan=None):
        self.runs, self.warned = 0, False
        self.strange: Optional[Tuple[int, int, int]] = None
        self.take(plan)

    def take(self, plan) -> None:
        self.plan, self.replay, self.strange, self.alike = plan, None if plan is None else replay(plan), None, 0

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


def _instance(value) -> Any:
    try:
        return _Instance(value)
    except TypeError:  # a class with __slots__ and no place for weak references
        return type(value).__qualname__


class _Instance:
    """A module, or what a method is called on: it is told apart from others by identity, in files by what it is made of."""

    __slots__ = ("_reference", "_training", "_hash")

    def __init__(self, instance):
        self._reference, self._training = weakref.ref(instance), getattr(instance, "training", None)
        self._hash = id(instance)

    def __eq__(self, other):
        mine = self._reference()
        return isinstance(other, _Instance) and mine is not None and mine is other._reference() and \
            self._training == other._training

    def __hash__(self):
        return self._hash

    def __repr__(self):
        return f"{_made_of(self._reference())} {self._training}"


def _made_of(thing) -> str:
    """What a function or an instance is, in words that another process finds again."""
    if isinstance(thing, torch.nn.Module):
        shapes = [(name, _shape_of(each), each.dtype) for name, each in thing.state_dict(keep_vars=True).items()
                  if isinstance(each, torch.Tensor)]
        return f"{type(thing).__module__}.{type(thing).__qualname__} {shapes}"
    owner = getattr(thing, "__self__", None)
    name = getattr(thing, "__qualname__", None) or type(thing).__qualname__
    return f"{getattr(thing, '__module__', '')}.{name}" + (f" of {_made_of(owner)}" if isinstance(owner, torch.nn.Module) else "")


def _shape_of(tensor) -> Any:
    """Nested tensors, and parameters of a lazy module before its first run, have none to tell."""
    try:
        return tuple(tensor.shape)
    except RuntimeError:
        return None


def _key_of(value) -> Any:
    """What a run's allocations may depend on: of tensors the shape, the type and whether they want gradients. Of a float
    its type alone: a learning rate or a temperature differs in every run and changes no size."""
    if isinstance(value, torch.Tensor):
        lies = value.is_contiguous() if value.layout is torch.strided else str(value.layout)
        return (_shape_of(value), value.dtype, value.device.type, value.requires_grad, lies)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(_key_of, value))
    if isinstance(value, dict):
        # By the name's type too: 1 and "1" are two. By name alone otherwise: keys of values cannot be compared.
        pairs = [((type(name).__name__, str(name)), _key_of(each)) for name, each in value.items()]
        return tuple(sorted(pairs, key=lambda pair: pair[0]))
    if isinstance(value, (bool, int)):  # True is no 1
        return (type(value).__name__, int(value))
    if isinstance(value, (str, bytes, type(None), torch.dtype)):
        return value
    if isinstance(value, torch.nn.Module):
        return _Instance(value)
    shape = getattr(value, "shape", None)  # of NumPy's arrays and others that become tensors
    if isinstance(shape, tuple) and all(isinstance(each, int) for each in shape):
        return (type(value).__qualname__, shape, str(getattr(value, "dtype", "")))
    return type(value).__qualname__


def _has_instance(key) -> bool:
    return isinstance(key, _Instance) or isinstance(key, tuple) and any(map(_has_instance, key))


class _Scope:
    """One run under a key: a warm-up, a recording, or a replay."""

    def __init__(self, owner, key):
        self._owner, self._key, self._inner, self._within, self._report = owner, key, None, False, None

    def __enter__(self):
        self._within = _run_current()[0] != 0  # of a run that is open already: it is a part of that one
        self._inner = None if self._within else self._owner._begin(self._key)
        try:
            if self._inner is not None:
                self._report = self._inner.__enter__()
            return None if isinstance(self._inner, record) else self._report
        except BaseException:  # an interrupt after the other has begun
            self.abandon()
            raise

    def abandon(self):
        """Ends what an interrupt has left open: one that came before the first line of __exit__, or right after __enter__."""
        if self._inner is not None:
            self._inner._abandon_own()

    def __exit__(self, error, *rest):
        inner = self._inner
        if inner is None:
            if not self._within:
                self._owner._warmed(self._key)
            return False
        result = inner.__exit__(error, *rest)
        self._inner = None  # not before: abandon() must find it
        if error is None:
            self._owner._ended(self._key, self._report)
        return result


class planned:
    """Runs from one planned block: as a decorator, @planned or @planned(warm_up=2), or with planned(key) around a run.

    key       as a context manager: what tells runs apart. As a decorator it is made of the shapes, types and gradient modes
              of the arguments, and of whether the model trains.
    warm_up   runs before the first is recorded, so that libraries have taken what they keep (default 1)
    most      so many plans are kept, the latest used (default 64)
    folder    plans are kept there too, for other processes and later starts

    A plan is made anew when runs settle elsewhere: an optimiser after its first step, or outputs that are kept. clear()
    forgets all plans. planned(model) of a torch.nn.Module is a module around it, with the model's own attributes.
    """

    _serves = False  # whether any plan has served a second run, or it has been said that none does

    def __new__(cls, function=None, **options):
        # A module must stay one: as a part of another it has parameters that train, move and are saved.
        return _PlannedModule(function, **options) if isinstance(function, torch.nn.Module) else super().__new__(cls)

    def __init__(self, function: Any = None, *, key: Any = None, warm_up: int = 1, most: int = 64,
                 folder: Optional[Union[str, "os.PathLike[str]"]] = None):
        if function is not None and not callable(function) and not isinstance(function, classmethod):
            function, key = None, function
        if most < 1 or warm_up < 0:
            raise ValueError(f"most={most}, warm_up={warm_up}: at least one plan is kept, and no less than no run is for warming up")
        self._function, self._own_key, self._warm_up, self._most, self._folder = function, key, warm_up, most, folder
        self._plans: "collections.OrderedDict[Any, _Kept]" = collections.OrderedDict()
        self._open, self._is_method = threading.local(), False
        owner = getattr(function, "__self__", None)
        self._module = owner if isinstance(owner, torch.nn.Module) else None
        if function is not None:
            if isinstance(function, (staticmethod, classmethod)):
                raise TypeError("write @staticmethod or @classmethod above @planned, which plans a function")
            if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or \
                    inspect.isasyncgenfunction(function):
                raise TypeError(f"{function!r} gives way to others in mid-run, whose tensors would be taken for its own: decorate "
                                "what it calls between two awaits or yields")
            functools.update_wrapper(self, function, updated=())  # its attributes would cover ours

    def __reduce_ex__(self, protocol):
        name = self.__dict__.get("__qualname__")
        found = sys.modules.get(self.__dict__.get("__module__"))
        for part in name.split(".") if name else ():
            found = getattr(found, part, None)
        # A decorated function goes by its name, as it would undecorated.
        return name if name and found is self else super().__reduce_ex__(protocol)

    def __getstate__(self):  # copied, pickled, saved with a module: with its plans, without what belongs to the process
        state = self.__dict__.copy()
        del state["_open"]
        state["_plans"] = [(key, kept.plan, kept.runs) for key, kept in list(self._plans.items()) if not _has_instance(key)]
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
        trains = None if self._module is None else self._module.training
        own = (self._own_key, _instance(args[0]), _key_of(args[1:])) if self._is_method and args else \
            (self._own_key, trains, _key_of(args))
        scope = _Scope(self, (*own, torch.is_grad_enabled(), torch.is_autocast_cpu_enabled(), _key_of(kwargs)))
        try:
            with scope:
                return self._function(*args, **kwargs)
        finally:
            scope.abandon()

    def __set_name__(self, owner, name):
        self._is_method = True

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    def __bool__(self) -> bool:  # not whether there are plans yet
        return True

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
        self._plans = collections.OrderedDict()
        if self._folder and os.path.isdir(self._folder):
            for name in os.listdir(self._folder):
                if name.startswith(self._digest() + "-") and name.endswith(".plan.csv"):
                    with contextlib.suppress(FileNotFoundError):  # another process was quicker
                        os.unlink(os.path.join(self._folder, name))

    def __len__(self) -> int:
        return sum(kept.plan is not None for kept in list(self._plans.values()))

    def plans(self) -> List[Plan]:
        """The plans that there are now."""
        return [kept.plan for kept in list(self._plans.values()) if kept.plan is not None]

    # -- plans by key

    def _path(self, key) -> Optional[str]:
        if not self._folder:
            return None
        digest = hashlib.sha256(repr((key, torch.__version__)).encode()).hexdigest()[:16]
        return os.path.join(self._folder, f"{self._digest()}-{digest}.plan.csv")

    def _digest(self) -> str:
        """Of whose plans they are, since a folder may have those of several functions."""
        return hashlib.sha256(_made_of(self._function).encode()).hexdigest()[:16]

    def _find(self, key) -> _Kept:
        # Without a lock, which an interrupt on the way out would leave taken for ever: each step is whole by itself.
        kept = self._plans.get(key)
        if kept is None:
            kept = self._plans.setdefault(key, _Kept(self._load(key)))
        try:
            self._plans.move_to_end(key)
            while len(self._plans) > self._most:
                self._plans.popitem(last=False)
                self._warn_of_keys()
        except KeyError:  # another thread was quicker
            pass
        return kept

    def _warn_of_keys(self) -> None:
        """A key for each run, such as the number of the step among the arguments: it costs, and no plan is ever of use."""
        if not self._serves:
            self._serves = True
            warnings.warn(f"berth: the last {self._most} runs differ in their arguments, and none was replayed: keep counters and texts "
                          "out of them, or in an object", RuntimeWarning, stacklevel=6)

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
        if kept.replay is not None:
            self._serves = True
            return kept.replay
        return record() if kept.runs >= self._warm_up else None

    def _warmed(self, key):
        self._find(key).runs += 1

    def _ended(self, key, result):
        kept = self._find(key)
        if isinstance(result, Plan):  # it was recorded
            kept.take(result)
            self._save(key, result)
        elif kept.note(result):
            kept.take(None)  # the next run is recorded

    def _save(self, key, plan) -> None:
        path = self._path(key)
        if not path or not self._folder:
            return
        try:
            os.makedirs(self._folder, exist_ok=True)
            plan.save(path)
        except (BerthError, OSError) as error:  # no reason to end a run that went well
            warnings.warn(f"berth: a plan is not kept for later: {error}", RuntimeWarning, stacklevel=5)


class _PlannedModule(torch.nn.Module):
    """A module whose calls are planned."""

    def __init__(self, module, **options):
        super().__init__()
        self.module = module
        self.train(module.training)
        self._run = planned(module.__call__, **options)

    def forward(self, *args, **kwargs):
        return self._run(*args, **kwargs)

    def clear(self) -> None:
        """Forgets every plan; those in the folder too."""
        self._run.clear()

    def plans(self) -> List[Plan]:
        """The plans that there are now."""
        return self._run.plans()

    def __len__(self) -> int:
        return len(self._run)

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in ("module", "_modules", "_run"):  # not there yet
                raise
            return getattr(self.module, name)


_by_key = planned(warm_up=0)


def cached(key: Any) -> _Scope:
    """Records the first run under a key (input shape, batch size) and replays every later one: with cached(key) as report."""
    return _Scope(_by_key, key)
