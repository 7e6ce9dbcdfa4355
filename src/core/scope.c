/* Named scopes: the thread's innermost label. */
#include "berth/scope.h"

#include "base/base.h"

static _Thread_local berth_scope *innermost;

void berth_scope_begin(berth_scope *scope, const char *label)
{
    scope->label = label;
    scope->outer = innermost;
    innermost = scope;
}

static bool is_open(const berth_scope *scope)
{
    for (const berth_scope *s = innermost; s; s = s->outer)
        if (s == scope)
            return true;
    return false;
}

void berth_scope_end(berth_scope *scope)
{
    if (!scope)
        return;
    if (innermost != scope) {
        bool open = is_open(scope);
        berth__log(BERTH_LOG_WARNING, "scope %s ends %s", scope->label ? scope->label : "without a label",
                   open ? "before the scopes inside it" : "on a thread that it did not begin on, or twice");
        if (!open)
            return;
    }
    innermost = scope->outer;
}

const char *berth_scope_label(void)
{
    return innermost ? innermost->label : NULL;
}
