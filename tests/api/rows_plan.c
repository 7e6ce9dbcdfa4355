/* Rows of problem.h, problem_file.h, plan.h and replay.h. */
#include <string.h>

#include "api.h"

/* ---- Problems ---------------------------------------------------------------------------------------- */

static berth_stop stop_soon(void *context, const berth_progress *progress)
{
    (void)context;
    return progress->steps > 1000 ? BERTH_STOP_STEPS : BERTH_STOP_DONE;
}

static const berth_solve_options *pick_solve(void)
{
    static berth_solve_options options;
    static const char *const words[] = {NULL, "", "no such solver"};
    if (api_pick(2))
        return NULL;
    options = (berth_solve_options){.struct_size = api_struct_size(sizeof options), .solver = PICK(words)};
    options.effort = (berth_effort)(api_bool() ? INT32_MAX : 0);
    options.without = PICK(words);
    options.step_budget = 1000;
    options.progress = stop_soon;
    return &options;
}

/* NULL, or two buffers of which the first is as odd as can be. */
static const berth_problem *pick_problem(void)
{
    static const berth_gap gaps[] = {{2, 1}, {INT64_MIN, INT64_MAX}};
    static berth_problem_buffer buffers[2];
    static berth_problem problem;
    static const int64_t times[] = {1, INT64_MIN, INT64_MAX};
    static const uint64_t offsets[] = {BERTH_NO_OFFSET, BERTH_NO_OFFSET - 1};
    static const uint32_t alignments[] = {0, 3, UINT32_MAX};
    if (api_pick(2))
        return NULL;
    buffers[0] = (berth_problem_buffer){.lower = PICK(times), .upper = PICK(times), .size_bytes = api_size()};
    buffers[0].fixed_offset = PICK(offsets);
    buffers[0].gap_first = api_bool() ? UINT32_MAX : 0;
    buffers[0].gap_count = api_bool() ? 2 : 0;
    buffers[1] =
        (berth_problem_buffer){.lower = 0, .upper = 5, .size_bytes = 7, .fixed_offset = BERTH_NO_OFFSET};
    problem = (berth_problem){.struct_size = api_struct_size(sizeof problem)};
    problem.buffers = api_bool() ? buffers : NULL;
    problem.buffer_count = problem.buffers ? api_pick(3) : api_size();
    problem.gaps = api_bool() ? gaps : NULL;
    problem.gap_count = 2;
    problem.alignment = PICK(alignments);
    return &problem;
}

ROW(berth_problem_validate)
{
    api_answer(berth_problem_validate(pick_problem()));
}

ROW(berth_problem_fingerprint)
{
    uint64_t fingerprint;
    api_answer(berth_problem_fingerprint(pick_problem(), api_bool() ? &fingerprint : NULL));
}

ROW(berth_problem_max_live)
{
    uint64_t bytes;
    int64_t when;
    api_answer(berth_problem_max_live(pick_problem(), api_bool() ? &bytes : NULL, api_bool() ? &when : NULL));
}

ROW(berth_problem_live)
{
    size_t indices[2], count;
    bool place = api_bool();
    api_answer(berth_problem_live(pick_problem(), api_bool() ? INT64_MIN : 1, place ? indices : NULL,
                                  place ? 2 : 5, api_bool() ? &count : NULL));
}

ROW(berth_solve)
{
    uint64_t offsets[2];
    berth_certificate certificate = {.struct_size = api_bool() ? sizeof certificate : 1};
    const berth_solve_options quick = {
        .struct_size = sizeof quick, .step_budget = 1000, .progress = stop_soon};
    const berth_problem *problem = pick_problem();
    api_answer(berth_solve(problem, problem ? &quick : pick_solve(), api_bool() ? offsets : NULL,
                           api_bool() ? &certificate : NULL));
}

ROW(berth_solver_name)
{
    (void)berth_solver_name(api_size());
}

ROW(berth_solver_about)
{
    (void)berth_solver_about(api_size());
}

ROW(berth_phase_name)
{
    (void)berth_phase_name(api_size());
}

ROW(berth_phase_about)
{
    (void)berth_phase_about(api_size());
}

ROW(berth_problem_check)
{
    uint64_t offsets[2] = {api_bool() ? UINT64_MAX : 0, 0};
    berth_verdict verdict = {.struct_size = api_bool() ? sizeof verdict : 0};
    api_answer(
        berth_problem_check(pick_problem(), api_bool() ? offsets : NULL, api_bool() ? &verdict : NULL));
}

/* ---- Problem files ----------------------------------------------------------------------------------- */

static berth_problem_file *pick_file(void)
{
    static const char text[] = "id,lower,upper,size\na,0,3,16\nb,1,4,32\n";
    berth_problem_file *file = NULL;
    if (api_bool())
        api_check(berth_problem_file_parse(text, sizeof text - 1, &file) == BERTH_OK, "a good file");
    return file;
}

ROW(berth_problem_file_read)
{
    GIVES(berth_problem_file_read(api_path(), OUT(file)), berth_problem_file_destroy(api_out.file));
}

ROW(berth_problem_file_parse)
{
    static const char *const texts[] = {"", "\xff", "id,lower,upper,size\n", "id\n1,,,"};
    const char *text = api_bool() ? PICK(texts) : NULL;
    GIVES(berth_problem_file_parse(text, text ? strlen(text) : api_size(), OUT(file)),
          berth_problem_file_destroy(api_out.file));
}

ROW(berth_problem_file_destroy)
{
    berth_problem_file_destroy(pick_file());
}

ROW(berth_problem_file_problem)
{
    berth_problem_file *file = pick_file();
    api_check((berth_problem_file_problem(file) != NULL) == (file != NULL), "a file has a problem");
    berth_problem_file_destroy(file);
}

ROW(berth_problem_file_solve)
{
    berth_problem_file *file = pick_file();
    static const uint32_t alignments[] = {0, 3, 64, UINT32_MAX};
    uint64_t offsets[2];
    berth_certificate certificate = {.struct_size = api_bool() ? sizeof certificate : 0};
    api_answer(berth_problem_file_solve(file, api_size(), PICK(alignments), pick_solve(),
                                        api_bool() ? offsets : NULL, api_bool() ? &certificate : NULL));
    berth_problem_file_destroy(file);
}

ROW(berth_problem_file_offsets)
{
    berth_problem_file *file = pick_file();
    (void)berth_problem_file_offsets(file);
    berth_problem_file_destroy(file);
}

ROW(berth_problem_file_id)
{
    berth_problem_file *file = pick_file();
    bool place = api_bool();
    (void)berth_problem_file_id(file, api_size(), place ? api_memory : NULL,
                                place ? api_pick(9) : api_size());
    berth_problem_file_destroy(file);
}

ROW(berth_problem_file_label)
{
    berth_problem_file *file = pick_file();
    bool place = api_bool();
    (void)berth_problem_file_label(file, api_size(), place ? api_memory : NULL,
                                   place ? api_pick(9) : api_size());
    berth_problem_file_destroy(file);
}

ROW(berth_problem_file_line)
{
    berth_problem_file *file = pick_file();
    (void)berth_problem_file_line(file, api_size());
    berth_problem_file_destroy(file);
}

ROW(berth_problem_file_notice)
{
    berth_problem_file *file = pick_file();
    (void)berth_problem_file_notice(file, api_size());
    berth_problem_file_destroy(file);
}

ROW(berth_problem_file_write)
{
    berth_problem_file *file = pick_file();
    uint64_t offsets[2] = {UINT64_MAX, 3};
    api_answer(berth_problem_file_write(file, api_bool() ? offsets : NULL, api_path()));
    berth_problem_file_destroy(file);
}

ROW(berth_problem_file_convert)
{
    berth_problem_file *file = pick_file();
    api_answer(berth_problem_file_convert(file, api_path()));
    berth_problem_file_destroy(file);
}

ROW(berth_problem_file_match)
{
    berth_problem_file *file = pick_file(), *plan = pick_file();
    uint64_t offsets[2];
    api_answer(berth_problem_file_match(file, plan, api_bool() ? offsets : NULL));
    berth_problem_file_destroy(file);
    berth_problem_file_destroy(plan);
}

static size_t no_text(void *context, size_t buffer, char *text, size_t room)
{
    (void)context, (void)buffer;
    if (room)
        text[0] = '\0';
    return 0;
}

ROW(berth_problem_write)
{
    uint64_t offsets[2] = {UINT64_MAX, 3};
    static const berth_problem empty = {.struct_size = sizeof empty};
    const berth_problem *problem = api_bool() ? &empty : NULL;
    api_answer(berth_problem_write(problem, api_bool() ? no_text : NULL, api_bool() ? no_text : NULL, NULL,
                                   api_bool() ? offsets : NULL, api_path()));
}

/* ---- Plans ------------------------------------------------------------------------------------------- */

static berth_plan *some_plan(void)
{
    return api_bool() ? api_plan : NULL;
}

ROW(berth_plan_create)
{
    GIVES(berth_plan_create(OUT(plan)), berth_plan_release(api_out.plan));
}

ROW(berth_plan_retain)
{
    berth_plan *plan = some_plan();
    api_check(berth_plan_retain(plan) == plan, "retain answers its argument");
    berth_plan_release(plan);
}

ROW(berth_plan_release)
{
    berth_plan_release(NULL);
}

ROW(berth_plan_clear)
{
    api_answer(berth_plan_clear(some_plan()));
}

ROW(berth_plan_set)
{
    static const uint64_t alignments[] = {0, 3, 64, UINT64_MAX}, times[] = {0, 1, 2, UINT64_MAX};
    berth_plan_allocation one = {
        api_struct_size(sizeof one), api_size(), PICK(alignments), PICK(times), 3, NULL};
    bool place = api_bool();
    /* More allocations than there are cannot be told. */
    api_answer(
        berth_plan_set(some_plan(), place ? &one : NULL, place ? api_pick(2) : api_size(), pick_solve()));
}

ROW(berth_plan_solve)
{
    api_answer(berth_plan_solve(some_plan(), pick_solve()));
}

ROW(berth_plan_place)
{
    uint64_t offsets[4] = {0, 4096, BERTH_NO_OFFSET, 12345};
    bool place = api_bool();
    api_answer(berth_plan_place(some_plan(), place ? offsets : NULL, place ? api_pick(5) : api_size()));
}

ROW(berth_plan_count)
{
    (void)berth_plan_count(some_plan());
}

ROW(berth_plan_get)
{
    berth_plan_allocation one = {.struct_size = api_struct_size(sizeof one)};
    api_answer(berth_plan_get(some_plan(), api_size(), api_bool() ? &one : NULL));
}

ROW(berth_plan_total_bytes)
{
    (void)berth_plan_total_bytes(some_plan());
}

ROW(berth_plan_fingerprint)
{
    (void)berth_plan_fingerprint(some_plan());
}

ROW(berth_plan_certificate)
{
    berth_certificate certificate = {.struct_size = api_struct_size(sizeof certificate)};
    api_answer(berth_plan_certificate(some_plan(), api_bool() ? &certificate : NULL));
}

ROW(berth_plan_memory_bytes)
{
    (void)berth_plan_memory_bytes(some_plan());
}

ROW(berth_plan_join)
{
    berth_plan *other = NULL;
    api_answer(berth_plan_create(&other));
    berth_plan *parts[2] = {some_plan(), some_plan()};
    bool place = api_bool();
    api_answer(berth_plan_join(api_bool() ? other : some_plan(), place ? parts : NULL,
                               place ? api_pick(3) : api_size(), pick_solve()));
    berth_plan_release(other);
}

ROW(berth_plan_compare)
{
    berth_plan_fit fit = {.struct_size = api_struct_size(sizeof fit)};
    api_answer(berth_plan_compare(some_plan(), some_plan(), api_bool() ? &fit : NULL));
}

ROW(berth_plan_save)
{
    api_answer(berth_plan_save(some_plan(), api_path()));
}

ROW(berth_plan_load)
{
    api_answer(berth_plan_load(some_plan(), api_path()));
}

ROW(berth_plan_cache_create)
{
    GIVES(berth_plan_cache_create(api_size(), OUT(plan_cache)), berth_plan_cache_destroy(api_out.plan_cache));
}

ROW(berth_plan_cache_destroy)
{
    berth_plan_cache_destroy(NULL);
}

struct key {
    const void *at;
    size_t bytes;
};

/* No key with any length, or a key of 0 to 3 bytes; the length of one cannot be told. */
static struct key pick_key(void)
{
    bool place = api_bool();
    return (struct key){place ? api_memory + 1 : NULL, place ? api_pick(4) : api_size()};
}

static berth_plan_cache *some_cache(void)
{
    return api_bool() ? api_plan_cache : NULL;
}

ROW(berth_plan_cache_get)
{
    struct key key = pick_key();
    GIVES(berth_plan_cache_get(some_cache(), key.at, key.bytes, OUT(plan)), berth_plan_release(api_out.plan));
}

ROW(berth_plan_cache_put)
{
    struct key key = pick_key();
    api_answer(berth_plan_cache_put(some_cache(), key.at, key.bytes, some_plan()));
}

ROW(berth_plan_cache_remove)
{
    struct key key = pick_key();
    api_answer(berth_plan_cache_remove(some_cache(), key.at, key.bytes));
}

ROW(berth_plan_cache_stats_get)
{
    berth_plan_cache_stats stats = {.struct_size = api_struct_size(sizeof stats)};
    api_answer(berth_plan_cache_stats_get(some_cache(), api_bool() ? &stats : NULL));
}

/* ---- Runs -------------------------------------------------------------------------------------------- */

static berth_allocator *some_planned(void)
{
    berth_allocator *choices[] = {NULL, api_planned, api_system};
    return PICK(choices);
}

static const berth_run_options *pick_run(void)
{
    static berth_run_options options;
    if (api_pick(2))
        return NULL;
    options = (berth_run_options){.struct_size = api_struct_size(sizeof options), .plan = some_plan()};
    options.strict = api_bool();
    options.fingerprint = api_bool() ? UINT64_MAX : 0;
    options.solve = pick_solve();
    return &options;
}

static void end_runs(void)
{
    berth_record_end(api_planned);
    berth_validate_end(api_planned, NULL);
    berth_replay_end(api_planned, NULL);
    berth_cached_end(api_planned, NULL);
    api_check(berth_run_current() == NULL, "every run has ended");
}

ROW(berth_planned_create)
{
    GIVES(berth_planned_create(api_allocator(), some_plan(), OUT(allocator)),
          berth_allocator_release(api_out.allocator));
}

ROW(berth_planned_set_plan)
{
    api_answer(berth_planned_set_plan(some_planned(), some_plan()));
}

ROW(berth_planned_plan)
{
    berth_plan_release(berth_planned_plan(some_planned())); /* retained for the caller */
}

static bool see_planned(void *context, const berth_block *block)
{
    (void)context;
    return block->size_bytes != 0;
}

ROW(berth_planned_visit)
{
    api_answer(berth_planned_visit(some_planned(), api_bool() ? see_planned : NULL, NULL));
}

ROW(berth_record_begin)
{
    api_answer(berth_record_begin(some_planned(), pick_run()));
    end_runs();
}

ROW(berth_record_end)
{
    api_answer(berth_record_end(some_planned()));
}

ROW(berth_validate_begin)
{
    api_answer(berth_validate_begin(some_planned(), pick_run()));
    end_runs();
}

ROW(berth_validate_end)
{
    berth_difference first = {.struct_size = api_struct_size(sizeof first)};
    if (api_bool())
        berth_validate_begin(api_planned, NULL);
    api_answer(berth_validate_end(some_planned(), api_bool() ? &first : NULL));
    end_runs();
}

ROW(berth_replay_begin)
{
    api_answer(berth_replay_begin(some_planned(), pick_run()));
    end_runs();
}

ROW(berth_replay_end)
{
    berth_report report = {.struct_size = api_struct_size(sizeof report)};
    if (api_bool())
        berth_replay_begin(api_planned, NULL);
    api_answer(berth_replay_end(some_planned(), api_bool() ? &report : NULL));
    end_runs();
}

ROW(berth_report_text)
{
    berth_report report = {.struct_size = api_struct_size(sizeof report)};
    report.status = (berth_status)api_enum();
    report.deviation_count = api_size();
    for (size_t i = 0; i < BERTH_REPORT_DEVIATIONS; i++) {
        report.deviations[i].reason = (berth_deviation_reason)(i * 1000);
        memset(report.deviations[i].label, 'x', sizeof report.deviations[i].label);
    }
    bool place = api_bool();
    (void)berth_report_text(api_bool() ? &report : NULL, place ? api_memory : NULL,
                            place ? api_pick(40) : api_size());
}

ROW(berth_deviation_words)
{
    api_check(berth_deviation_words((berth_deviation_reason)api_enum()) != NULL, "every number has words");
}

ROW(berth_cached_begin)
{
    struct key key = pick_key();
    api_answer(berth_cached_begin(some_planned(), some_cache(), key.at, key.bytes, NULL));
    end_runs();
    api_answer(berth_cached_begin(api_planned, some_cache(), "key", 3, pick_run()));
    end_runs();
}

ROW(berth_cached_end)
{
    berth_report report = {.struct_size = api_struct_size(sizeof report)};
    if (api_bool())
        berth_cached_begin(api_planned, api_plan_cache, "key", 3, NULL);
    api_answer(berth_cached_end(some_planned(), api_bool() ? &report : NULL));
    end_runs();
}

ROW(berth_run_current)
{
    api_check(berth_run_current() == NULL, "no run has begun");
}

ROW(berth_run_allocate_slow)
{
    bool begun = api_bool() && berth_replay_begin(api_planned, NULL) == BERTH_OK;
    berth_run *run = begun && api_bool() ? berth_run_current() : NULL;
    void *p = berth_run_allocate_slow(run, api_size(), api_alignment());
    api_check(run || !p, "memory from no run");
    if (p)
        api_answer(berth_run_deallocate_slow(run, p));
    end_runs();
}

ROW(berth_run_deallocate_slow)
{
    bool begun = api_bool() && berth_replay_begin(api_planned, NULL) == BERTH_OK;
    berth_run *run = begun && api_bool() ? berth_run_current() : NULL;
    api_answer(berth_run_deallocate_slow(run, api_pointer(api_planned)));
    end_runs();
}

ROW(berth_run_guard_begin)
{
    berth_run_guard guard = berth_run_guard_begin(some_planned(), (berth_run_kind)api_enum(), NULL, NULL);
    berth_run_guard_end(&guard);
    end_runs();
}

ROW(berth_run_guard_end)
{
    berth_run_guard guard = {some_planned(), (berth_run_kind)api_enum(), NULL};
    berth_run_guard_end(api_bool() ? &guard : NULL);
}

ROW(berth_problem_file_words)
{
    static const char *const words[] = {
        NULL, "", "buffers 0 and 1 overlap", "buffer 99999999999999999999999", "buffers 0 and", "a buffer 0"};
    static const char csv[] = "id,lower,upper,size\na,0,1,8\nb,0,1,8\n";
    berth_problem_file *file = NULL;
    if (api_bool())
        (void)berth_problem_file_parse(csv, sizeof csv - 1, &file);
    char text[16];
    static const size_t rooms[] = {0, 1, sizeof text};
    (void)berth_problem_file_words(file, PICK(words), api_bool() ? text : NULL, PICK(rooms));
    berth_problem_file_destroy(file);
}
