// Python's call stack as a label, where a Python interpreter runs in this process.
#pragma once

// The innermost `frames` Python frames of the calling thread as "file:line function < ...", interned for the
// life of the process; nullptr if there is no interpreter or nothing runs in it on this thread. Takes the
// GIL.
const char *berth_torch_python_stack(unsigned frames);
