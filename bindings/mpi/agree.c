/* Agreeing: compare, reduce to an envelope, solve on rank 0, send the offsets, prove and take them everywhere.
 *
 *     all        one reduction of a few numbers: versions, counts, prints     the same programs: no second reduction
 *     all -> 0   sizes, ends and alignments at their largest                 16 bytes an allocation
 *     0          solves
 *     0 -> all   what came of it, and the offsets                            8 bytes an allocation
 *     all        prove them for their own program; one reduction of statuses and checksums
 *
 * Four messages that a rank waits for, whatever the number of allocations: on a busy machine it is waiting that costs. A window is
 * made after that, if there is none that is large enough. */
#include <string.h>
#include <time.h>

#include "inside.h"

/* Reduced with MPI_MIN, each as itself and as its complement: smallest and largest in one message. Every version of the agreement
 * begins with this message, at this length, and PROTOCOL first. */
enum { PROTOCOL, FAILED, COUNT, NAMES, ALL, EXACT, MEMORY, LIVE, SUMMARY };

typedef struct mpi_summary {
    uint64_t low[SUMMARY], high[SUMMARY]; /* high: complements while it travels */
} mpi_summary;

/* What rank 0 found: numbers before the offsets, in one message. */
enum { STATUS, PEAK, BOUND, ALIGNMENT, CHECKSUM, SOLVE_NS };
_Static_assert((int)SOLVE_NS < (int)MPI_PROGRAM_HEAD, "the head has room");

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- Comparing -------------------------------------------------------------------------------------- */

static berth_status compare_programs(const berth_mpi *job, const mpi_program *p, berth_status own,
                                     uint64_t live, mpi_summary *s)
{
    mpi_summary mine;
    uint64_t *v = mine.low;
    memset(v, 0, sizeof mine.low);
    for (size_t i = 0; own == BERTH_OK && i < p->count; i++) {
        const uint64_t name = mpi_print_name(job->plan, p, i);
        v[NAMES] = mpi_mix(v[NAMES], name);
        v[ALL] = mpi_mix(v[ALL], mpi_print_all(p, i, name));
    }
    v[PROTOCOL] = BERTH_MPI_PROTOCOL;
    v[FAILED] = own ? (uint64_t)job->rank : (uint64_t)job->ranks;
    v[COUNT] = p->count;
    v[EXACT] = job->options.exact;
    v[MEMORY] = job->options.memory != NULL;
    v[LIVE] = live;
    for (int k = 0; k < SUMMARY; k++)
        mine.high[k] = ~v[k];
    berth_status status =
        mpi_check(MPI_Allreduce(&mine, s, 2 * SUMMARY, MPI_UINT64_T, MPI_MIN, job->comm), "compare programs");
    for (int k = 0; k < SUMMARY; k++)
        s->high[k] = ~s->high[k];
    return status;
}

static bool summary_differs(const mpi_summary *s, int k)
{
    return s->low[k] != s->high[k];
}

/* BERTH_OK: one program. */
static berth_status judge_programs(const berth_mpi *job, const mpi_program *p, berth_status own,
                                   const mpi_summary *s)
{
    if (summary_differs(s, PROTOCOL))
        return mpi_tell_difference(job, p, s->low[PROTOCOL], false);
    if (s->low[FAILED] < (uint64_t)job->ranks)
        return mpi_share_failure(job, own, (int)s->low[FAILED]);
    if (summary_differs(s, MEMORY))
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "some ranks bring memory for the window and some do not; do so on all or on none");
    if (summary_differs(s, COUNT) || summary_differs(s, NAMES))
        return mpi_tell_difference(job, p, 0, false);
    if (s->high[EXACT] && summary_differs(s, ALL))
        return mpi_tell_difference(job, p, 0, true);
    return BERTH_OK;
}

/* ---- Reducing and solving --------------------------------------------------------------------------- */

/* The larger of each, as MPI asks for it. */
static void widen(void *from, void *into, int *count, MPI_Datatype *type)
{
    const mpi_allocation *one = from;
    mpi_allocation *all = into;
    (void)type;
    for (int i = 0; i < *count; i++) {
        all[i].size_bytes = one[i].size_bytes > all[i].size_bytes ? one[i].size_bytes : all[i].size_bytes;
        all[i].end = one[i].end > all[i].end ? one[i].end : all[i].end;
        all[i].alignment = one[i].alignment > all[i].alignment ? one[i].alignment : all[i].alignment;
    }
}

/* On rank 0 the program becomes the envelope's. */
static berth_status reduce_program(const berth_mpi *job, mpi_program *p)
{
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Op largest = MPI_OP_NULL;
    const void *from = job->rank == 0 ? MPI_IN_PLACE : p->all;
    int code = MPI_Type_contiguous((int)sizeof *p->all, MPI_BYTE, &type);
    code = code == MPI_SUCCESS ? MPI_Type_commit(&type) : code;
    code = code == MPI_SUCCESS ? MPI_Op_create(widen, 1, &largest) : code;
    if (code == MPI_SUCCESS)
        code = MPI_Reduce(from, job->rank == 0 ? p->all : NULL, (int)p->count, type, largest, 0, job->comm);
    if (largest != MPI_OP_NULL)
        MPI_Op_free(&largest);
    if (type != MPI_DATATYPE_NULL)
        MPI_Type_free(&type);
    return mpi_check(code, "reduce the programs to an envelope");
}

static uint64_t checksum_of(const mpi_program *p, uint64_t peak_bytes)
{
    uint64_t sum = mpi_mix(p->count, peak_bytes);
    for (size_t i = 0; i < p->count; i++)
        sum = mpi_mix(sum, p->offsets[i]);
    return sum;
}

/* Offsets of the envelope, by allocation, and what is known of them. */
static berth_status solve_envelope(const berth_mpi *job, mpi_program *p)
{
    berth_certificate certificate = BERTH_CERTIFICATE_INIT;
    berth_allocator *host = job->options.host;
    berth_problem_buffer *buffers = NULL;
    berth_problem problem = BERTH_PROBLEM_INIT;
    berth_status status =
        berth_allocate(host, (p->count + 1) * sizeof *buffers, BERTH_ALIGNMENT, NULL, (void **)&buffers);
    if (status)
        return status;
    p->head[ALIGNMENT] = 1;
    for (size_t i = 0; i < p->count; i++) {
        if (p->all[i].end == UINT32_MAX)
            continue;
        const uint32_t alignment = (uint32_t)1 << p->all[i].alignment;
        buffers[problem.buffer_count++] = (berth_problem_buffer){.lower = (int64_t)i,
                                                                 .upper = p->all[i].end,
                                                                 .size_bytes = p->all[i].size_bytes,
                                                                 .fixed_offset = BERTH_NO_OFFSET,
                                                                 .alignment = alignment};
        p->head[ALIGNMENT] = alignment > p->head[ALIGNMENT] ? alignment : p->head[ALIGNMENT];
    }
    problem.buffers = buffers;
    const uint64_t began = now_ns();
    status = berth_solve(&problem, job->options.solve, p->offsets, &certificate);
    p->head[SOLVE_NS] = now_ns() - began;
    for (size_t i = p->count, n = problem.buffer_count; i-- > 0;) /* apart again, from the end */
        p->offsets[i] = p->all[i].end == UINT32_MAX ? BERTH_NO_OFFSET : p->offsets[--n];
    p->head[PEAK] = certificate.peak_bytes;
    p->head[BOUND] = certificate.lower_bound_bytes;
    p->head[CHECKSUM] = checksum_of(p, certificate.peak_bytes);
    berth_deallocate(host, buffers, 0, NULL);
    return status;
}

static berth_status solve_and_send(const berth_mpi *job, mpi_program *p)
{
    berth_status own = job->rank == 0 ? solve_envelope(job, p) : BERTH_OK;
    p->head[STATUS] = job->rank == 0 ? (uint64_t)own : 0;
    berth_status status = mpi_check(
        MPI_Bcast(p->head, (int)(MPI_PROGRAM_HEAD + p->count), MPI_UINT64_T, 0, job->comm), "send the plan");
    return !status && p->head[STATUS] ? mpi_share_failure(job, own, 0) : status;
}

/* ---- Taking ----------------------------------------------------------------------------------------- */

/* One message: whether all could take the plan, whether all have the same, which rank has most live, and how long the slowest
 * rank took: the others wait for it, and that is no part of agreeing. */
static berth_status compare_taken(berth_mpi *job, berth_status own, uint64_t checksum)
{
    enum { FIRST_FAILED, DRIVER, SUM, NOT_SUM, NOT_TAKE_NS, NUMBERS };
    const uint64_t none = (uint64_t)job->ranks, me = (uint64_t)job->rank;
    const bool drives = job->info.own_max_live_bytes == job->info.driver_max_live_bytes;
    uint64_t mine[NUMBERS] = {own ? me : none, drives ? me : none, checksum, ~checksum, ~job->info.take_ns};
    uint64_t all[NUMBERS] = {0};
    berth_status status =
        mpi_check(MPI_Allreduce(mine, all, NUMBERS, MPI_UINT64_T, MPI_MIN, job->comm), "compare plans");
    if (status)
        return status;
    if (all[FIRST_FAILED] < none)
        return mpi_share_failure(job, own, (int)all[FIRST_FAILED]);
    job->info.driver = (int)all[DRIVER];
    job->info.slowest_take_ns = ~all[NOT_TAKE_NS];
    if (all[SUM] == ~all[NOT_SUM])
        return BERTH_OK;
    return berth_fail(BERTH_INTERNAL,
                      "the ranks' plans have other checksums, %016llx and %016llx; messages were damaged",
                      (unsigned long long)all[SUM], (unsigned long long)~all[NOT_SUM]);
}

static berth_status take_plan(berth_mpi *job, const mpi_program *p)
{
    const uint64_t began = now_ns();
    berth_status status = berth_plan_place(job->plan, p->offsets, p->count);
    job->info.take_ns = now_ns() - began;
    status = compare_taken(job, status, checksum_of(p, p->head[PEAK]));
    return status ? status : mpi_window_make(job, p->head[PEAK], p->head[ALIGNMENT]);
}

static void note(berth_mpi *job, const mpi_program *p, bool reduced)
{
    berth_mpi_info *info = &job->info;
    info->allocations = p->count;
    info->window_bytes = job->window_bytes;
    info->peak_bytes = p->head[PEAK];
    info->lower_bound_bytes = p->head[BOUND];
    info->checksum = p->head[CHECKSUM];
    info->reduced = reduced;
    info->solve_ns = p->head[SOLVE_NS];
    info->sent_bytes = p->count * ((reduced ? sizeof *p->all : 0) + sizeof *p->offsets);
}

static berth_status agree_on(berth_mpi *job, mpi_program *p, berth_status own)
{
    mpi_summary summary;
    const uint64_t own_bytes = own ? 0 : mpi_max_live(p);
    berth_status status = compare_programs(job, p, own, own_bytes, &summary);
    if (!status)
        status = judge_programs(job, p, own, &summary);
    if (status || own) /* own: told by the others too, unless they are damaged */
        return status ? status : own;
    const bool reduced = summary_differs(&summary, ALL);
    job->info.own_max_live_bytes = own_bytes;
    job->info.driver_max_live_bytes = summary.high[LIVE];
    if (reduced)
        status = reduce_program(job, p);
    if (!status)
        status = solve_and_send(job, p);
    if (!status)
        status = take_plan(job, p);
    if (!status)
        note(job, p, reduced);
    return status;
}

/* Without what rank 0 solved and the slowest rank took. Clocks of several processes: never below zero. */
static uint64_t agree_time(uint64_t whole_ns, const berth_mpi_info *info)
{
    const uint64_t rest_ns = info->solve_ns + info->slowest_take_ns;
    return whole_ns > rest_ns ? whole_ns - rest_ns : 0;
}

berth_status berth_mpi_agree(berth_mpi *job)
{
    if (!job)
        return berth_fail(BERTH_INVALID_ARGUMENT, "there is no job to agree for");
    const uint64_t began = now_ns();
    mpi_program program = {0};
    job->agreed = false;
    berth_status own = mpi_vacate(job);
    if (!own)
        own = mpi_program_read(job->plan, &program);
    berth_status status = agree_on(job, &program, own);
    mpi_program_finish(&program);
    job->agreed = !status;
    if (!status)
        job->info.agree_ns = agree_time(now_ns() - began, &job->info);
    return status;
}
