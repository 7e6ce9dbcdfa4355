/* Runs the table: every row with every combination of its arguments; `--list` names the rows. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "scale.h"

/* ---- Rows and combinations ------------------------------------------------------------------------- */

static api_row *rows;
static const char *row_name;
static uint64_t number, rest, combinations;
static bool row_failed;
static int failures;

void api_add(api_row *row)
{
    row->next = rows;
    rows = row;
}

size_t api_pick(size_t count)
{
    size_t choice = (size_t)(rest % count);
    rest /= count;
    combinations *= count;
    return choice;
}

void api_check(bool holds, const char *what)
{
    if (holds || row_failed)
        return;
    row_failed = true;
    failures++;
    const berth_error *error = berth_last_error();
    fprintf(stderr, "%s, combination %" PRIu64 ": %s (last error: %s, %s)\n", row_name, number, what,
            berth_status_name(error->status), error->message);
}

void api_answer(berth_status status)
{
    api_check((int)status >= BERTH_OK && status <= BERTH_INTERNAL, "the answer is no status");
    api_check(status != BERTH_INTERNAL, "nothing inside may break");
    if (status == BERTH_INVALID_ARGUMENT)
        api_check(berth_last_error()->status == status && berth_last_error()->message[0],
                  "a refusal without words");
}

/* ---- Things ---------------------------------------------------------------------------------------- */

_Alignas(64) char api_memory[256];
api_result api_out;
bool api_out_given;
char api_poison;

berth_allocator *api_cache, *api_planned, *api_system;
berth_device api_virtual;
berth_plan *api_plan;
berth_plan_cache *api_plan_cache;

enum { ALLOCATORS = 16, BLOCK_BYTES = 200 };
static berth_allocator *allocators[ALLOCATORS]; /* the first is NULL */
static void *blocks[ALLOCATORS];
static berth_stream *streams[3];
static berth_event *events[3];
static _Alignas(4096) char region[1 << 16];

static void must(berth_status status)
{
    if (status == BERTH_OK)
        return;
    fprintf(stderr, "%s: cannot make what the rows need: %s\n", row_name, berth_last_error()->message);
    exit(1);
}

static void things_wrap(berth_allocator **at)
{
    berth_retry_options retry = BERTH_RETRY_OPTIONS_INIT;
    retry.deadline_ns = 0;
    berth_tracking_options tracking = BERTH_TRACKING_OPTIONS_INIT;
    tracking.track_sizes = true;
    berth_budget *budget;
    must(berth_budget_create(1 << 20, &budget));
    must(berth_limit_create(api_system, budget, &at[0]));
    berth_budget_release(budget);
    must(berth_guard_create(api_system, NULL, &at[1]));
    must(berth_retry_create(api_system, &retry, &at[2]));
    must(berth_tracking_create(api_system, &tracking, &at[3]));
    must(berth_explain_create(api_system, &at[4]));
    must(berth_scope_meter_create(api_system, &at[5]));
}

static void things_make(void)
{
    must(berth_virtual_create(&api_virtual));
    must(berth_cpu_allocator_create(NULL, &api_system));
    must(berth_host_cache_create(NULL, &api_cache));
    must(berth_plan_create(&api_plan));
    must(berth_planned_create(api_system, api_plan, &api_planned));
    must(berth_plan_cache_create(1 << 20, &api_plan_cache));
    berth_pool_options pool = {sizeof pool, .device = api_virtual, .reserve_bytes = 1 << 20};
    must(berth_pool_create(NULL, &allocators[1]));
    must(berth_pool_create(&pool, &allocators[2]));
    must(berth_fixed_allocator_create(region, sizeof region, &allocators[3]));
    must(berth_dry_run_allocator_create(1 << 20, &allocators[4]));
    must(berth_mapped_allocator_create(NULL, &allocators[5]));
    allocators[6] = berth_allocator_retain(api_cache);
    allocators[7] = berth_allocator_retain(api_planned);
    things_wrap(&allocators[8]);
    allocators[14] = berth_allocator_retain(api_system);
    berth_malloc_family family = {sizeof family, "heap", malloc, free, NULL, NULL};
    must(berth_adapter_create(&family, &allocators[15]));
    for (size_t i = 1; i < ALLOCATORS; i++)
        must(berth_allocate(allocators[i], BLOCK_BYTES, 64, NULL, &blocks[i]));
    must(berth_stream_create(berth_device_cpu(), &streams[1]));
    must(berth_stream_create(api_virtual, &streams[2]));
    must(berth_event_create(berth_device_cpu(), &events[1]));
    must(berth_event_create(api_virtual, &events[2]));
}

static void things_release(void)
{
    berth_virtual_run_all(api_virtual);
    for (size_t i = 1; i < ALLOCATORS; i++) {
        berth_deallocate(allocators[i], blocks[i], 0, NULL);
        berth_allocator_release(allocators[i]);
    }
    berth_allocator_release(api_cache);
    berth_allocator_release(api_planned);
    berth_allocator_release(api_system);
    berth_plan_release(api_plan);
    berth_plan_cache_destroy(api_plan_cache);
    for (size_t i = 1; i < 3; i++) {
        berth_event_destroy(events[i]);
        berth_stream_destroy(streams[i]);
    }
    berth_virtual_destroy(api_virtual);
}

/* ---- What arguments may be ------------------------------------------------------------------------- */

size_t api_size(void)
{
    static const size_t sizes[] = {0, 1, 63, (size_t)1 << 62, SIZE_MAX};
    return PICK(sizes);
}

size_t api_alignment(void)
{
    static const size_t alignments[] = {64, 0, 3, (size_t)1 << 63, SIZE_MAX};
    return PICK(alignments);
}

bool api_bool(void)
{
    return api_pick(2) == 1;
}

int32_t api_enum(void)
{
    static const int32_t values[] = {0, 1, 2, 3, 4, 5, -1, 17, 64, INT32_MAX, INT32_MIN};
    return PICK(values);
}

berth_device api_device(void)
{
    berth_device devices[] = {{0, 0},  {BERTH_DEVICE_CPU, 0},          {BERTH_DEVICE_CPU, INT32_MAX},
                              {-1, 0}, {INT32_MAX, INT32_MIN},         {BERTH_DEVICE_CPU, -1},
                              {64, 0}, {BERTH_DEVICE_CUDA, INT32_MAX}, {BERTH_DEVICE_VIRTUAL, INT32_MAX},
                              {5, -1}, {BERTH_DEVICE_HIP, -1},         api_virtual};
    return PICK(devices);
}

berth_allocator *api_allocator(void)
{
    return PICK(allocators);
}

void *api_pointer(berth_allocator *allocator)
{
    char *inside = NULL;
    for (size_t i = 1; i < ALLOCATORS; i++)
        if (allocators[i] == allocator)
            inside = (char *)blocks[i] + 1;
    /* Addresses as numbers: they are meant to be no objects. */
    char *pointers[] = {NULL,
                        (char *)1,
                        (char *)4096,
                        (char *)UINTPTR_MAX,
                        api_memory + 1,
                        api_memory + 64,
                        (char *)(UINTPTR_MAX - 4095),
                        inside};
    return PICK(pointers);
}

berth_stream *api_stream(void)
{
    return PICK(streams);
}

berth_event *api_event(void)
{
    return PICK(events);
}

size_t api_struct_size(size_t right)
{
    size_t sizes[] = {right, 0, 1, SIZE_MAX};
    return PICK(sizes);
}

const berth_request *api_request(void)
{
    static berth_request requests[] = {
        {sizeof(berth_request), BERTH_ZEROED | BERTH_NO_RETRY, NULL, "label"},
        {0, 0, NULL, NULL},
        {1, 0, NULL, NULL},
        {SIZE_MAX, UINT32_MAX & ~BERTH_ZEROED, NULL, ""},
    };
    return api_bool() ? &PICK(requests) : NULL;
}

const char *api_path(void)
{
    static const char *const paths[] = {NULL, "", "/", "/proc/not/there"};
    return PICK(paths);
}

/* ---- The run --------------------------------------------------------------------------------------- */

static void stay_silent(void *context, berth_log_level level, const char *line)
{
    (void)context, (void)level, (void)line;
}

/* Of many combinations the sanitizers see every 13th, of very many every 101st: primes beside the counts of choices, so that all
 * of them, and all pairs of them, still come. The plain build sees all. */
static uint64_t step_of(uint64_t total)
{
    if (SCALE == 1 || total <= 10000)
        return 1;
    return total > 100000 ? 101 : 13;
}

static void run_row(api_row *row)
{
    uint64_t total = 1;
    row_failed = false;
    row_name = row->name;
    printf("%s", row->name);
    fflush(stdout); /* whoever crashes is the last one named */
    things_make();
    for (number = 0; number < total && !row_failed; number += step_of(total)) {
        rest = number;
        combinations = 1;
        row->call();
        total = combinations > total ? combinations : total; /* a choice may open more */
    }
    things_release();
    printf(": %" PRIu64 "\n", number);
}

int main(int argc, char **argv)
{
    bool list = argc == 2 && strcmp(argv[1], "--list") == 0;
    berth_log_set(stay_silent, NULL, BERTH_LOG_DEBUG);
    for (api_row *row = rows; row; row = row->next) {
        if (list)
            puts(row->name);
        else if (argc == 1 || strcmp(argv[1], row->name) == 0)
            run_row(row);
    }
    return failures ? 1 : 0;
}
