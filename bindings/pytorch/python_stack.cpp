// Reads Python's frames through the stable C interface, found at run time: without Python in the process this
// library needs none, and it serves any version from 3.9 on.
#include "python_stack.h"

#include <cstdint>
#include <dlfcn.h>
#include <mutex>
#include <string>
#include <unordered_set>

namespace
{

// Python objects are opaque here.
using object = void *;

struct python {
    int (*is_initialized)();
    object (*this_thread)();
    int (*ensure)();
    void (*release)(int);
    object (*get_frame)();
    object (*frame_code)(object);
    object (*frame_back)(object);
    int (*frame_line)(object);
    object (*get_attribute)(object, const char *);
    const char *(*to_utf8)(object, intptr_t *);
    void (*decrement)(object);
    void (*take_error)(object *, object *, object *);
    void (*give_error)(object, object, object);
    int (*is_finalizing)(); // nullptr: an old interpreter that does not tell
    bool complete;
};

template <typename Function> bool find(Function &function, const char *name)
{
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
}

const python &interpreter()
{
    static const python found = [] {
        python p{};
        p.complete = find(p.is_initialized, "Py_IsInitialized") &&
                     find(p.this_thread, "PyGILState_GetThisThreadState") &&
                     find(p.ensure, "PyGILState_Ensure") && find(p.release, "PyGILState_Release") &&
                     find(p.get_frame, "PyEval_GetFrame") && find(p.frame_code, "PyFrame_GetCode") &&
                     find(p.frame_back, "PyFrame_GetBack") && find(p.frame_line, "PyFrame_GetLineNumber") &&
                     find(p.get_attribute, "PyObject_GetAttrString") &&
                     find(p.to_utf8, "PyUnicode_AsUTF8AndSize") && find(p.decrement, "Py_DecRef") &&
                     find(p.take_error, "PyErr_Fetch") && find(p.give_error, "PyErr_Restore");
        find(p.is_finalizing, "Py_IsFinalizing") || find(p.is_finalizing, "_Py_IsFinalizing");
        return p;
    }();
    return found;
}

std::string attribute(const python &p, object code, const char *name)
{
    object value = p.get_attribute(code, name);
    const char *words = value ? p.to_utf8(value, nullptr) : nullptr;
    std::string text = words ? words : "";
    if (value)
        p.decrement(value);
    return text;
}

std::vector<python_frame> read_frames(const python &p, unsigned most)
{
    std::vector<python_frame> frames;
    object frame = p.get_frame(); // borrowed; the ones behind it are ours
    bool ours = false;
    for (unsigned i = 0; frame && i < most; i++) {
        object code = p.frame_code(frame);
        frames.push_back(
            {attribute(p, code, "co_filename"), attribute(p, code, "co_name"), p.frame_line(frame)});
        p.decrement(code);
        object back = p.frame_back(frame);
        if (ours)
            p.decrement(frame);
        frame = back;
        ours = true;
    }
    if (frame && ours)
        p.decrement(frame);
    return frames;
}

} // namespace

std::vector<python_frame> berth_torch_python_frames(unsigned most)
{
    const python &p = interpreter();
    // A thread that Python does not know (an intra-op worker) has no frames, and must not wait for the GIL.
    if (!p.complete || !p.is_initialized() || !p.this_thread())
        return {};
    // Nor may it ask an interpreter that is going away, which would end the thread.
    if (p.is_finalizing && p.is_finalizing())
        return {};
    int state = p.ensure();
    object type = nullptr, value = nullptr, trace = nullptr;
    p.take_error(&type, &value, &trace); // an error that is on its way is not ours to lose
    std::vector<python_frame> frames = read_frames(p, most);
    p.give_error(type, value, trace);
    p.release(state);
    return frames;
}

const char *berth_torch_python_stack(unsigned frames)
{
    std::string text;
    for (const python_frame &f : berth_torch_python_frames(frames)) {
        text += text.empty() ? "" : " < ";
        text += f.file.substr(f.file.rfind('/') + 1) + ":" + std::to_string(f.line) + " " + f.function;
    }
    if (text.empty())
        return nullptr;
    static std::mutex lock;
    static auto *const interned = new std::unordered_set<std::string>; // labels live as long as the process
    const std::lock_guard<std::mutex> guard(lock);
    return interned->insert(std::move(text)).first->c_str();
}
