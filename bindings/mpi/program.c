/* A rank's program: as arrays for reductions, as numbers for comparisons, and in words where it differs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <berth/version.h>

#include "inside.h"

berth_status mpi_program_read(const berth_plan *plan, mpi_program *out)
{
    const size_t count = berth_plan_count(plan);
    memset(out, 0, sizeof *out);
    out->all = malloc((count + 1) * sizeof *out->all);
    out->head = calloc(count + MPI_PROGRAM_HEAD, sizeof *out->head);
    if (!out->all || !out->head)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to agree on %zu allocations", count);
    out->offsets = out->head + MPI_PROGRAM_HEAD;
    for (size_t i = 0; i < count; i++) {
        berth_plan_allocation a = BERTH_PLAN_ALLOCATION_INIT;
        berth_status status = berth_plan_get(plan, i, &a);
        if (status)
            return status;
        out->all[i].size_bytes = a.size_bytes;
        out->all[i].end = a.freed_at == BERTH_NEVER_FREED ? UINT32_MAX : (uint32_t)a.freed_at;
        out->all[i].alignment = (uint32_t)__builtin_ctzll(a.alignment ? a.alignment : 1);
    }
    out->count = count;
    return BERTH_OK;
}

void mpi_program_finish(mpi_program *p)
{
    free(p->all);
    free(p->head);
    memset(p, 0, sizeof *p);
}

/* One round of a multiplicative hash: programs are compared with each other, not with an enemy's. */
uint64_t mpi_mix(uint64_t print, uint64_t value)
{
    print = (print ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return print ^ print >> 29;
}

/* Eight bytes at a time. */
static uint64_t print_text(const char *text)
{
    size_t length = text ? strlen(text) : 0;
    uint64_t print = mpi_mix(UINT64_C(0xcbf29ce484222325), length);
    for (uint64_t word; length > 0; text += sizeof word) {
        const size_t some = length < sizeof word ? length : sizeof word;
        word = 0;
        memcpy(&word, text, some);
        print = mpi_mix(print, word);
        length -= some;
    }
    return print;
}

static const char *label_of(const berth_plan *plan, size_t id)
{
    berth_plan_allocation a = BERTH_PLAN_ALLOCATION_INIT;
    return berth_plan_get(plan, id, &a) == BERTH_OK ? a.label : NULL;
}

uint64_t mpi_print_name(const berth_plan *plan, const mpi_program *p, size_t id)
{
    return mpi_mix(print_text(label_of(plan, id)), p->all[id].end == UINT32_MAX);
}

uint64_t mpi_print_all(const mpi_program *p, size_t id, uint64_t name)
{
    return mpi_mix(mpi_mix(name, p->all[id].size_bytes),
                   (uint64_t)p->all[id].end << 8 | p->all[id].alignment);
}

uint64_t mpi_max_live(const mpi_program *p)
{
    /* frees by the allocation before which they come; without memory for that the answer is a guess from above */
    uint64_t *freed = calloc(p->count + 2, sizeof *freed), live = 0, most = 0;
    for (size_t i = 0; i < p->count; i++) {
        /* first: frees may come before an allocation that outlives the run, too */
        live -= freed ? freed[i] : 0;
        if (p->all[i].end == UINT32_MAX)
            continue;
        live += p->all[i].size_bytes;
        most = live > most ? live : most;
        if (freed)
            freed[p->all[i].end] += p->all[i].size_bytes;
    }
    free(freed);
    return most;
}

/* ---- The first difference --------------------------------------------------------------------------- */

enum { DESCRIPTION_ROOM = 192, VERSION_ROOM = 32 };

typedef struct description {
    char version[VERSION_ROOM];
    char words[DESCRIPTION_ROOM];
    uint64_t protocol;
} description;

static void describe(const berth_mpi *job, const mpi_program *p, uint64_t id, description *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->version, sizeof out->version, "%s", berth_version());
    out->protocol = BERTH_MPI_PROTOCOL;
    if (id >= p->count) {
        snprintf(out->words, sizeof out->words, "no such allocation (there are %zu)", p->count);
        return;
    }
    const char *label = label_of(job->plan, id);
    char end[32] = "outlives the run";
    if (p->all[id].end != UINT32_MAX)
        snprintf(end, sizeof end, "freed at %u", p->all[id].end);
    snprintf(out->words, sizeof out->words, "%.64s%s%llu bytes, alignment %u, %s", label ? label : "",
             label ? ", " : "", (unsigned long long)p->all[id].size_bytes, 1u << p->all[id].alignment, end);
}

static uint64_t print_of(const berth_mpi *job, const mpi_program *p, size_t id, bool exact)
{
    const uint64_t name = mpi_print_name(job->plan, p, id);
    return exact ? mpi_print_all(p, id, name) : name;
}

/* The first allocation that is not as on rank 0, whose prints are `theirs`; UINT64_MAX: none. */
static uint64_t first_difference(const berth_mpi *job, const mpi_program *p, const uint64_t *theirs,
                                 uint64_t count, bool exact)
{
    uint64_t common = count < p->count ? count : p->count;
    for (uint64_t i = 0; i < common; i++)
        if (print_of(job, p, i, exact) != theirs[i])
            return i;
    return count == p->count ? UINT64_MAX : common;
}

/* Rank 0 sends its prints, everybody looks where they differ from its own; `*at` is the place, `*who` the first rank that has one. */
static berth_status find_difference(const berth_mpi *job, const mpi_program *p, bool exact, uint64_t *at,
                                    int *who)
{
    uint64_t count = p->count;
    berth_status status = mpi_check(MPI_Bcast(&count, 1, MPI_UINT64_T, 0, job->comm), "send a program");
    if (status)
        return status;
    uint64_t *prints = malloc((count + 1) * sizeof *prints);
    status = mpi_agree_status(job, prints ? BERTH_OK
                                          : berth_fail(BERTH_OUT_OF_HOST_MEMORY,
                                                       "no memory to compare %llu allocations",
                                                       (unsigned long long)count));
    if (!status && !prints)
        status = BERTH_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; !status && job->rank == 0 && i < count; i++)
        prints[i] = print_of(job, p, i, exact);
    if (!status)
        status = mpi_check(MPI_Bcast(prints, (int)count, MPI_UINT64_T, 0, job->comm), "send a program");
    if (!status) {
        *at = first_difference(job, p, prints, count, exact);
        const int mine = *at == UINT64_MAX ? job->ranks : job->rank;
        status = mpi_check(MPI_Allreduce(&mine, who, 1, MPI_INT, MPI_MIN, job->comm), "compare programs");
    }
    free(prints);
    return status;
}

/* The same words on every rank. */
static berth_status say_difference(const berth_mpi *job, const mpi_program *p, uint64_t at, int who)
{
    description here, there;
    berth_status status = mpi_check(MPI_Bcast(&at, 1, MPI_UINT64_T, who, job->comm), "send a difference");
    describe(job, p, at, &there);
    here = there;
    if (!status)
        status =
            mpi_check(MPI_Bcast(&there, (int)sizeof there, MPI_BYTE, who, job->comm), "send a difference");
    if (!status)
        status = mpi_check(MPI_Bcast(&here, (int)sizeof here, MPI_BYTE, 0, job->comm), "send a difference");
    if (status)
        return status;
    return berth_fail(BERTH_MISMATCH,
                      "rank %d (berth %s) runs another program than rank 0 (berth %s), first at allocation "
                      "%llu: %s; on rank 0 %s",
                      who, there.version, here.version, (unsigned long long)at, there.words, here.words);
}

static berth_status say_protocol(const berth_mpi *job, uint64_t lowest)
{
    description d;
    int mine = BERTH_MPI_PROTOCOL == lowest ? job->ranks : job->rank, who = 0;
    berth_status status =
        mpi_check(MPI_Allreduce(&mine, &who, 1, MPI_INT, MPI_MIN, job->comm), "compare versions");
    describe(job, &(mpi_program){0}, 0, &d);
    if (!status)
        status = mpi_check(MPI_Bcast(&d, (int)sizeof d, MPI_BYTE, who, job->comm), "send a version");
    if (status)
        return status;
    return berth_fail(BERTH_MISMATCH,
                      "rank %d (berth %s) speaks version %llu of the agreement, others %llu; run one version "
                      "of libberth_mpi everywhere",
                      who, d.version, (unsigned long long)d.protocol, (unsigned long long)lowest);
}

berth_status mpi_tell_difference(const berth_mpi *job, const mpi_program *p, uint64_t protocol_low,
                                 bool exact)
{
    if (protocol_low)
        return say_protocol(job, protocol_low);
    uint64_t at = UINT64_MAX;
    int who = 0;
    berth_status status = find_difference(job, p, exact, &at, &who);
    if (status)
        return status;
    if (who == job->ranks)
        return berth_fail(BERTH_INTERNAL, "programs with other fingerprints have no difference");
    return say_difference(job, p, at, who);
}
