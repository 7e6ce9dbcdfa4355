// Python's call stack, where a Python interpreter runs in this process.
#pragma once

#include <string>
#include <vector>

struct python_frame {
    std::string file, function; // the file as Python has it, with its path
    int line;
};

// The innermost `most` Python frames of the calling thread, the innermost first; none if there is no interpreter or
// nothing runs in it on this thread. Takes the GIL.
std::vector<python_frame> berth_torch_python_frames(unsigned most);

// The same as "file:line function < ...", interned for the life of the process; nullptr if there are none.
const char *berth_torch_python_stack(unsigned frames);
