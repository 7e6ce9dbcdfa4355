/* What the verbs that answer questions share. */
#include "cli/asking.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/history.h"
#include "cli/problem.h"
#include "cli/size.h"
#include "format/outputs.h"

enum { HOST_ALIGNMENT = 16, ALIGNMENT_MOST = 1 << 30, FORMAT_VERSION = 1 };

#define BUDGET_SECONDS 0.8 /* of processor time: with the rest, a million events take less than 3 */
/* Where there are more there is more time: what plans a million buffers would have but a first layout of ten million. */
#define BUDGET_EVENTS 1e6

void asking_options(asking *a, struct cli_option options[ASKING_OPTIONS])
{
    const struct cli_option all[ASKING_OPTIONS] = {
        {"--limit", NULL, CLI_SIZE, &a->limit_bytes},
        {"--align", NULL, CLI_SIZE, &a->alignment},
        {"--budget", NULL, CLI_SECONDS, &a->budget_seconds},
        {"--device", NULL, CLI_TEXT, &a->device_name},
        {"--json", NULL, CLI_FLAG, &a->json},
        CLI_MODEL_OPTIONS(a->model),
    };
    memcpy(options, all, sizeof all);
}

static bool refuses(const format_history *h, uint16_t device, uint16_t *first)
{
    bool found = false;
    for (uint32_t i = 0; i < h->moment_count; i++) {
        const format_moment *m = &h->moments[i];
        if (m->size_bytes && (device == FORMAT_ANY_DEVICE || m->device == device)) {
            if (first && !found)
                *first = m->device;
            found = true;
        }
    }
    return found;
}

/* Whoever asks why memory ran out means the device where it did, however little lives there. */
static int asking_choose(asking *a)
{
    uint16_t refusing = 0;
    bool any = a->about_refusals && !a->device_name && refuses(&a->h, FORMAT_ANY_DEVICE, &refusing);
    if (!any || (a->limit_bytes && a->h.block_count) || refuses(&a->h, format_main_device(&a->h), NULL))
        return cli_history_device(a->verb, &a->h, a->device_name, &a->device);
    a->device = refusing;
    if (a->h.block_count)
        fprintf(
            stderr,
            "berth %s: of several devices %s is taken, which refused an allocation; --device names another\n",
            a->verb, asking_device(a));
    return CLI_OK;
}

int asking_begin(asking *a)
{
    if (!a->input)
        a->input = cli_problem_unnamed();
    if (!a->input)
        return cli_misuse(a->verb,
                          "which file? Name a trace, a snapshot, a problem, a plan or a model, or - for the "
                          "standard input");
    if (a->alignment > ALIGNMENT_MOST)
        return cli_misuse(a->verb, "--align is at most 1G");
    a->is_model = cli_is_model(a->input);
    int code = cli_history_read(a->verb, a->input, &a->model, &a->h);
    if (code != CLI_OK)
        return code;
    code = asking_choose(a);
    bool has_answer = a->h.block_count || (a->about_refusals && refuses(&a->h, a->device, NULL));
    if (code == CLI_OK && !has_answer) {
        fprintf(stderr, "berth %s: %s has no block that was ever alive\n", a->verb, a->input);
        code = CLI_NO;
    }
    if (code != CLI_OK)
        format_history_finish(&a->h);
    if (!a->alignment)
        a->alignment = a->h.has_times ? HOST_ALIGNMENT : 1;
    a->plan_seconds = a->budget_seconds > 0              ? a->budget_seconds
                      : a->h.event_count > BUDGET_EVENTS ? BUDGET_SECONDS * a->h.event_count / BUDGET_EVENTS
                                                         : BUDGET_SECONDS;
    return code;
}

void asking_end(asking *a)
{
    format_history_finish(&a->h);
}

int asking_lives(const asking *a, const lives_request *request, lives *l)
{
    int code = CLI_OK;
    if (!lives_init(l, &a->h, a->device, (uint32_t)a->alignment, request)) {
        code = CLI_SURROUNDINGS;
        fprintf(stderr, "berth %s: no memory for the lives of %" PRIu32 " blocks\n", a->verb,
                a->h.block_count);
    } else if (l->is_too_large) {
        code = CLI_BAD_INPUT;
        fprintf(stderr, "berth %s: %s: its sizes add up to more than 63 bits\n", a->verb, a->input);
    }
    if (code != CLI_OK)
        lives_finish(l);
    l->knows_use = a->is_model;
    return code;
}

const char *asking_use_words(const asking *a)
{
    return a->is_model ? "Tensors live until their last use: none can go earlier."
                       : "When a block was last used is not recorded: whether it may go earlier is yours to "
                         "judge.";
}

const char *asking_device(const asking *a)
{
    return a->device ? format_history_words(&a->h, a->h.devices[a->device].name) : "host";
}

int64_t asking_time(const asking *a, uint64_t time_ns)
{
    return (int64_t)(time_ns + (uint64_t)a->h.zero);
}

const char *asking_when(const asking *a, uint32_t event, uint64_t time_ns, char text[ASKING_WHEN_ROOM])
{
    if (!a->h.has_times)
        snprintf(text, ASKING_WHEN_ROOM, "time %" PRId64, asking_time(a, time_ns));
    else
        snprintf(text, ASKING_WHEN_ROOM, "event %" PRIu32 ", %.3f s", event,
                 (double)(time_ns - a->h.first_ns) * 1e-9);
    return text;
}

void asking_json(const asking *a, cli_json *json, const char *format)
{
    cli_json_text(json, "format", format);
    cli_json_number(json, "version", FORMAT_VERSION);
    cli_json_text(json, "input", a->input);
    cli_json_text(json, "input_is", a->h.format);
    cli_json_text(json, "device", asking_device(a));
    cli_json_number(json, "events", a->h.event_count);
    cli_json_number(json, "alignment", a->alignment);
    if (a->limit_bytes)
        cli_json_number(json, "limit_bytes", a->limit_bytes);
    else
        cli_json_null(json, "limit_bytes");
}

static void json_bound(cli_json *json, const char *key, uint64_t bytes)
{
    if (bytes == UINT64_MAX)
        cli_json_null(json, key);
    else
        cli_json_number(json, key, bytes);
}

void asking_json_change(cli_json *json, const lives *l, const changes_one *one)
{
    char name[HOLDERS_NAME_ROOM], words[CHANGES_WORDS];
    cli_json_text(json, "change", changes_kind_word(one->change.kind));
    cli_json_text(json, "of", lives_name(l, one->change.group, name));
    cli_json_text(json, "by", lives_is_labelled(l, one->change.group) ? "label" : "site");
    cli_json_number(json, "blocks", lives_group_count(l, one->change.group));
    if (one->change.kind == LIVES_SHRINK || one->change.kind == LIVES_FREE_EARLY)
        cli_json_real(json, "scale", (double)one->change.scale / LIVES_WHOLE);
    else
        cli_json_null(json, "scale");
    cli_json_text(json, "words", changes_words(l, &one->change, words));
    cli_json_number(json, "bound_bytes", one->bound_bytes);
    json_bound(json, "planned_bytes", one->is_planned ? one->planned_bytes : UINT64_MAX);
    cli_json_number(json, "cost_bytes", one->cost_bytes);
}

const char *asking_fits(const asking *a, bool is_planned, uint64_t planned_bytes, uint64_t bound_bytes)
{
    if (!a->limit_bytes || (is_planned && planned_bytes <= a->limit_bytes))
        return "yes";
    return bound_bytes > a->limit_bytes ? "no" : "unknown";
}
