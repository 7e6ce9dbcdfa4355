/* Named scopes: who is allocating. The innermost one labels every request that brings no label of its own. */
#ifndef BERTH_SCOPE_H
#define BERTH_SCOPE_H

#include "berth/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Storage of the caller's, usually on the stack; its fields are private. */
typedef struct berth_scope {
    const char *label;
    struct berth_scope *outer;
} berth_scope;

/* Makes `label` the calling thread's innermost until berth_scope_end, which must come on the same thread in
 * reverse order; one that is out of order is logged and ends the scopes inside it too. `label` is kept by
 * reference. `scope` must stay where it is. */
BERTH_API void berth_scope_begin(berth_scope *scope, const char *label);
BERTH_API void berth_scope_end(berth_scope *scope);

/* The calling thread's innermost label, NULL if there is none. */
BERTH_API const char *berth_scope_label(void);

#ifdef __cplusplus
}
#endif
#endif
