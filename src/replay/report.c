/* The report of a replay: noting deviations, and the text for people. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "replay/replay.h"

void berth__report_note(berth_report *r, berth_deviation_reason reason, uint64_t id, uint64_t expected,
                        uint64_t got, const char *label)
{
    size_t at = r->deviation_count++;
    if (at >= BERTH_REPORT_DEVIATIONS)
        return;
    berth_deviation *d = &r->deviations[at];
    d->reason = reason;
    d->id = id;
    d->expected = expected;
    d->got = got;
    snprintf(d->label, sizeof d->label, "%s", label ? label : "");
}

void berth__report_give(const berth_report *r, berth_report *out)
{
    if (!out)
        return;
    size_t struct_size = out->struct_size;
    memcpy(out, r, struct_size < sizeof *r ? struct_size : sizeof *r);
    if (struct_size >= sizeof struct_size)
        out->struct_size = struct_size;
}

void berth__report_give_held(berth__planned *planned, berth_report *out)
{
    uint64_t held_bytes = 0, straggler_bytes = 0;
    if (!out)
        return;
    berth__blocks_held(planned, &held_bytes, &straggler_bytes);
    BERTH_DCHECK(straggler_bytes <= held_bytes, "[R5] what is live in blocks lies in them");
    if (out->struct_size >= offsetof(berth_report, held_bytes) + sizeof held_bytes)
        out->held_bytes = held_bytes;
    if (out->struct_size >= offsetof(berth_report, straggler_bytes) + sizeof straggler_bytes)
        out->straggler_bytes = straggler_bytes;
}

void berth__difference_give(const berth_difference *d, berth_difference *out)
{
    if (!out)
        return;
    size_t struct_size = out->struct_size;
    memcpy(out, d, struct_size < sizeof *d ? struct_size : sizeof *d);
    if (struct_size >= sizeof struct_size)
        out->struct_size = struct_size;
}

const char *berth_deviation_words(berth_deviation_reason reason)
{
    switch (reason) {
    case BERTH_DEVIATION_NONE:
        return "as planned";
    case BERTH_DEVIATION_SIZE:
        return "not the planned size";
    case BERTH_DEVIATION_ALIGNMENT:
        return "a stricter alignment than planned";
    case BERTH_DEVIATION_HELD:
        return "its place is held by an allocation freed later than planned";
    case BERTH_DEVIATION_PAST_END:
        return "past the end of the plan";
    case BERTH_DEVIATION_BAD_FREE:
        return "a free of what is not live";
    case BERTH_DEVIATION_STRAGGLER:
        return "still live at the end of the scope";
    case BERTH_DEVIATION_EARLY_FREE:
        return "freed earlier than planned";
    case BERTH_DEVIATION_LABEL:
        return "another label than planned";
    case BERTH_DEVIATION_MISSING:
        return "not asked for before the scope ended";
    }
    return "unknown";
}

/* A text that grows while there is room and counts on when there is none. */
typedef struct text {
    char *at;
    size_t room;
    size_t length;
} text;

static void BERTH_PRINTF(2, 3) add(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t left = t->length < t->room ? t->room - t->length : 0;
    int n = vsnprintf(left ? t->at + t->length : NULL, left, format, args);
    va_end(args);
    t->length += n > 0 ? (size_t)n : 0;
}

static void add_deviation(text *t, const berth_deviation *d)
{
    unsigned long long id = d->id, expected = d->expected, got = d->got;
    add(t, "  allocation %llu%s%s%s: %s", id, d->label[0] ? " (" : "", d->label, d->label[0] ? ")" : "",
        berth_deviation_words(d->reason));
    switch (d->reason) {
    case BERTH_DEVIATION_SIZE:
        add(t, ": expected %llu bytes, got %llu", expected, got);
        break;
    case BERTH_DEVIATION_ALIGNMENT:
        add(t, ": expected %llu, got %llu", expected, got);
        break;
    case BERTH_DEVIATION_HELD:
        add(t, ": by allocation %llu", got);
        break;
    case BERTH_DEVIATION_PAST_END:
        add(t, ": the plan has %llu allocations, got %llu bytes", expected, got);
        break;
    case BERTH_DEVIATION_BAD_FREE:
        add(t, ": at offset %llu", got);
        break;
    case BERTH_DEVIATION_STRAGGLER:
        add(t, ": planned to be freed before allocation %llu", expected);
        break;
    case BERTH_DEVIATION_EARLY_FREE:
        add(t, ": before allocation %llu, planned before %llu", got, expected);
        break;
    case BERTH_DEVIATION_LABEL:
        add(t, ": %llu bytes", got);
        break;
    case BERTH_DEVIATION_MISSING:
        add(t, ": the plan has %llu allocations", expected);
        break;
    case BERTH_DEVIATION_NONE:
        break;
    }
    add(t, "\n");
}

size_t berth_report_text(const berth_report *r, char *out, size_t room)
{
    text t = {out, out ? room : 0, 0};
    if (t.room)
        out[0] = '\0';
    if (!r || r->struct_size < offsetof(berth_report, displaced))
        return 0;
    berth_report full = BERTH_REPORT_INIT; /* an older caller's lacks the last figures */
    memcpy(&full, r, r->struct_size < sizeof full ? r->struct_size : sizeof full);
    r = &full;
    if (r->status)
        add(&t, "not replayed: %s\n", berth_status_words(r->status));
    add(&t, "%llu of %llu planned allocations served from the plan%s%s\n", (unsigned long long)r->from_plan,
        (unsigned long long)r->planned, r->strict ? ", strict" : "", r->stale ? ", stale plan" : "");
    add(&t,
        "%llu by fallback, %llu outside the plan as expected, %llu refused, %llu bad frees, %llu still "
        "live\n",
        (unsigned long long)r->by_fallback, (unsigned long long)r->outside_plan,
        (unsigned long long)r->refused, (unsigned long long)r->bad_frees, (unsigned long long)r->stragglers);
    add(&t, "peak %llu bytes: block %llu + fallback %llu; %llu live at once",
        (unsigned long long)r->peak_with_plan_bytes, (unsigned long long)r->block_bytes,
        (unsigned long long)r->fallback_bytes, (unsigned long long)r->peak_without_plan_bytes);
    if (r->separate_bytes)
        add(&t, ", %llu if nothing were reused", (unsigned long long)r->separate_bytes);
    add(&t, "\n");
    if (r->displaced || r->straggler_bytes)
        add(&t, "%llu displaced; %llu bytes outlive their scopes, %llu are held in blocks\n",
            (unsigned long long)r->displaced, (unsigned long long)r->straggler_bytes,
            (unsigned long long)r->held_bytes);
    size_t kept = r->deviation_count < BERTH_REPORT_DEVIATIONS ? r->deviation_count : BERTH_REPORT_DEVIATIONS;
    for (size_t i = 0; i < kept; i++)
        add_deviation(&t, &r->deviations[i]);
    if (r->deviation_count > kept)
        add(&t, "  and %zu more\n", r->deviation_count - kept);
    return t.length;
}
