/* What the verbs that answer questions about a recording have in common: what was asked, and the history that they look at. */
#ifndef BERTH_CLI_ASKING_H
#define BERTH_CLI_ASKING_H

#include "cli/changes.h"
#include "cli/json.h"
#include "cli/model.h"
#include "cli/options.h"

typedef struct asking {
    const char *verb;
    const char *input;       /* as named */
    const char *device_name; /* NULL: the one with the largest peak, or about refusals one that has some */
    uint64_t limit_bytes;    /* 0: not given */
    uint64_t alignment;      /* 0: not given, set by asking_begin */
    double budget_seconds;   /* for all plans together; 0: not given */
    bool json;
    bool about_refusals;     /* a history that tells of nothing but these is one to answer about */
    cli_model_options model; /* how a model is read */

    format_history h;
    bool is_model; /* whose lives end with the last use */
    uint16_t device;
    double plan_seconds; /* of processor time that plans may still take */
} asking;

/* The options that all of them have: --limit, --align, --budget, --device, --json, and those of models. */
enum { ASKING_OPTIONS = 9 };
void asking_options(asking *a, struct cli_option options[ASKING_OPTIONS]);

/* Reads the history and chooses the device. CLI_OK, and asking_end is due; or the exit code after a complaint. */
int asking_begin(asking *a);
void asking_end(asking *a);

/* Makes lives, or complains. CLI_OK, and lives_finish is due; or the exit code. */
int asking_lives(const asking *a, const lives_request *request, lives *l);
const char *asking_device(const asking *a);
/* A history's time as the file has it. */
int64_t asking_time(const asking *a, uint64_t time_ns);
/* "event 812, 1.23 s" or "time 7". */
enum { ASKING_WHEN_ROOM = 64 };
const char *asking_when(const asking *a, uint32_t event, uint64_t time_ns, char text[ASKING_WHEN_ROOM]);

/* The first facts of every answer: format, version, input, device. */
void asking_json(const asking *a, cli_json *json, const char *format);
/* The facts of a change, inside an item. */
void asking_json_change(cli_json *json, const lives *l, const changes_one *one);
/* What is to be known of when blocks could go. */
const char *asking_use_words(const asking *a);
/* What a plan of so many bytes, or the bound alone, says of the limit: "yes", "no", "unknown". */
const char *asking_fits(const asking *a, bool is_planned, uint64_t planned_bytes, uint64_t bound_bytes);

#endif
