// The operators that run, by libtorch's own observers.
#include "operators.h"

#include <cstring>

#include <ATen/record_function.h>

namespace
{

thread_local const char *outermost = nullptr;
thread_local unsigned depth = 0;

at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

// What autograd's engine calls an operator of the backward pass has this before its name.
constexpr char engine[] = "autograd::engine::evaluate_function: ";

// libtorch calls begin and end of one operator as a pair, also where we came or went in between.
std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction &function)
{
    if (depth++ == 0)
        outermost = function.name();
    return nullptr;
}

void operator_ends(const at::RecordFunction &, at::ObserverContext *)
{
    if (depth != 0 && --depth == 0)
        outermost = nullptr;
}

} // namespace

void operators_watch()
{
    if (handle == at::INVALID_CALLBACK_HANDLE)
        handle = at::addGlobalCallback(
            at::RecordFunctionCallback(operator_begins, operator_ends)
                .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

void operators_unwatch()
{
    if (handle != at::INVALID_CALLBACK_HANDLE)
        at::removeCallback(handle);
    handle = at::INVALID_CALLBACK_HANDLE;
}

const char *operators_here()
{
    const bool is_engines = outermost && std::strncmp(outermost, engine, sizeof engine - 1) == 0;
    return is_engines ? outermost + sizeof engine - 1 : outermost;
}
