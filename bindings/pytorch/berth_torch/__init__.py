"""Berth under PyTorch: figures for CPU tensors, and runs that take their memory from one planned block.

    import berth_torch                      # from here on CPU tensors come from Berth

    with berth_torch.record() as plan:      # one run is recorded and planned
        y = model(x)
    with berth_torch.replay(plan):          # later runs take their memory from one block
        y = model(x)
    print(berth_torch.memory_summary())

    model.forward = berth_torch.planned(model.forward)  # or: all of it by itself, a plan for each shape

Importing it installs the pool; enable() chooses another stack. See README.md of the binding.
"""
from ._library import BerthError, __version__
from ._memory import (_dump_snapshot, describe, empty_cache, leaks, max_memory_allocated, max_memory_reserved, memory_allocated,
                      memory_reserved, memory_snapshot, memory_stats, memory_summary, reset_peak, reset_peak_memory_stats, scope,
                      scopes, stats, trim)
from ._planned import cached, planned
from ._plans import Plan, Report, Verdict, abandon, record, replay, validate
from ._stack import disable, enable, enable_from_environment
from ._trace import trace

__all__ = ["BerthError", "Plan", "Report", "Verdict", "__version__", "_dump_snapshot", "abandon", "cached", "describe", "disable",
           "empty_cache", "enable", "leaks", "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved",
           "memory_snapshot", "memory_stats", "memory_summary", "planned", "record", "replay", "reset_peak",
           "reset_peak_memory_stats", "scope", "scopes", "stats", "trace", "trim", "validate"]

enable_from_environment()
