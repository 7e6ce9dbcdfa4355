/* The binding for MPI on real ranks: ranks MODE, by mpirun. Every check that fails ends the job. */
#include <berth/berth.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <berth_mpi.h>

enum { ROUNDS = 5, TENSORS = 4, WORDS = 512 };

static int rank, ranks;

#define CHECK(truth)                                                                               \
    do {                                                                                           \
        if (!(truth)) {                                                                            \
            fprintf(stderr, "%s:%d: rank %d: not so: %s (%s)\n", __FILE__, __LINE__, rank, #truth, \
                    berth_last_error()->message);                                                  \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)

/* ---- A program of four tensors --------------------------------------------------------------------- */

typedef struct step {
    const char *label;
    size_t bytes, alignment;
} step;

typedef struct tensors {
    unsigned char *at[TENSORS];
    uint64_t offset[TENSORS];
} tensors;

/* Sizes differ by rank, and so does which one is the largest. */
static void program_of(int who, step program[TENSORS])
{
    const size_t by_rank = 1000 * (size_t)who;
    program[0] = (step){"inbox", 8192 + by_rank, 64};
    program[1] = (step){"scratch", 65536 - by_rank, 64};
    program[2] = (step){"outbox", 8192 + by_rank, 64};
    program[3] = (step){"result", 4096, who % 2 ? 256 : 64};
}

static void *take(berth_allocator *a, const step *s)
{
    berth_request request = BERTH_REQUEST_INIT;
    void *p = NULL;
    request.label = s->label;
    CHECK(berth_allocate(a, s->bytes, s->alignment, &request, &p) == BERTH_OK);
    return p;
}

static void give(berth_allocator *a, void *p)
{
    CHECK(berth_deallocate(a, p, 0, NULL) == BERTH_OK);
}

/* Inbox, scratch and outbox; the scratch goes, the result comes into its place. Freed by the second half. */
static void first_half(berth_allocator *a, const step program[TENSORS], tensors *t)
{
    t->at[0] = take(a, &program[0]);
    t->at[1] = take(a, &program[1]);
    t->at[2] = take(a, &program[2]);
}

static void second_half(berth_allocator *a, const step program[TENSORS], tensors *t)
{
    give(a, t->at[1]);
    t->at[3] = take(a, &program[3]);
    give(a, t->at[2]);
    give(a, t->at[0]);
    give(a, t->at[3]);
}

static void record(berth_mpi *job, const step program[TENSORS])
{
    tensors t;
    CHECK(berth_mpi_record_begin(job) == BERTH_OK);
    first_half(berth_mpi_allocator(job), program, &t);
    second_half(berth_mpi_allocator(job), program, &t);
    CHECK(berth_mpi_record_end(job) == BERTH_OK);
}

/* What is the same everywhere. */
static void check_same(const void *data, size_t bytes)
{
    char theirs[WORDS];
    CHECK(bytes <= sizeof theirs);
    memcpy(theirs, data, bytes);
    MPI_Bcast(theirs, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    CHECK(memcmp(theirs, data, bytes) == 0);
}

/* ---- A ring by put into planned buffers ------------------------------------------------------------ */

static void fill(unsigned char *p, size_t bytes, int who, int round)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = (unsigned char)(i * 7 + (size_t)who * 31 + (size_t)round);
}

static void ring_round(berth_mpi *job, const step program[TENSORS], int round)
{
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    enum { SENT = 8192 };
    tensors t;
    MPI_Win window = berth_mpi_window(job);
    uint64_t inside = 0;
    CHECK(berth_mpi_replay_begin(job) == BERTH_OK);
    first_half(berth_mpi_allocator(job), program, &t);
    for (int k = 0; k < 3; k++)
        CHECK(berth_mpi_offset(job, t.at[k], &t.offset[k]) == BERTH_OK);
    CHECK(berth_mpi_offset(job, t.at[0] + 100, &inside) == BERTH_OK && inside == t.offset[0] + 100);
    check_same(t.offset, 3 * sizeof t.offset[0]);
    fill(t.at[2], SENT, rank, round);
    memset(t.at[0], 0, SENT);
    MPI_Win_fence(0, window); /* everybody has an inbox now */
    MPI_Put(t.at[2], SENT, MPI_BYTE, next, (MPI_Aint)t.offset[0], SENT, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < SENT; i++)
        CHECK(t.at[0][i] == (unsigned char)(i * 7 + before * 31 + round));
    unsigned char got[64];
    MPI_Get(got, sizeof got, MPI_BYTE, next, (MPI_Aint)t.offset[2], sizeof got, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < 64; i++)
        CHECK(got[i] == (unsigned char)(i * 7 + next * 31 + round));
    second_half(berth_mpi_allocator(job), program, &t);
    berth_report report = BERTH_REPORT_INIT;
    CHECK(berth_mpi_replay_end(job, &report) == BERTH_OK);
    CHECK(report.from_plan == TENSORS && report.by_fallback == 0 && report.outside_plan == 0);
}

static void check_info(const berth_mpi *job)
{
    berth_mpi_info info = BERTH_MPI_INFO_INIT;
    uint64_t live = 0;
    step program[TENSORS];
    CHECK(berth_mpi_info_get(job, &info) == BERTH_OK);
    program_of(rank, program);
    live = program[0].bytes + program[1].bytes + program[2].bytes;
    CHECK(info.rank == rank && info.ranks == ranks && info.allocations == TENSORS);
    CHECK(info.own_max_live_bytes == live);
    program_of(ranks - 1, program);
    CHECK(info.driver == ranks - 1);
    CHECK(info.take_ns > 0 && info.slowest_take_ns >= info.take_ns);
    check_same(&info.slowest_take_ns, sizeof info.slowest_take_ns);
    CHECK(info.driver_max_live_bytes == program[0].bytes + program[1].bytes + program[2].bytes);
    CHECK(info.peak_bytes >= info.lower_bound_bytes && info.lower_bound_bytes >= info.driver_max_live_bytes);
    CHECK(info.window_bytes == info.peak_bytes && info.reduced);
    check_same(&info.checksum, sizeof info.checksum);
}

static void ring(berth_allocator *memory, size_t alignment)
{
    berth_mpi *job = NULL;
    berth_mpi_options options = BERTH_MPI_OPTIONS_INIT;
    step program[TENSORS];
    program_of(rank, program);
    if (alignment)
        program[3].alignment = alignment;
    options.memory = memory;
    CHECK(berth_mpi_create(MPI_COMM_WORLD, &options, &job) == BERTH_OK);
    record(job, program);
    CHECK(berth_mpi_agree(job) == BERTH_OK);
    check_info(job);
    for (int round = 0; round < ROUNDS; round++)
        ring_round(job, program, round);
    /* a larger program: another window; and back in it a smaller one, which keeps it */
    program[1].bytes *= 2;
    record(job, program);
    CHECK(berth_mpi_replay_begin(job) == BERTH_NOT_READY);
    CHECK(berth_mpi_agree(job) == BERTH_OK);
    ring_round(job, program, ROUNDS);
    CHECK(berth_mpi_destroy(job) == BERTH_OK);
}

static void test_ring(void)
{
    berth_allocator *mapped = NULL;
    ring(NULL, 0);
    ring(NULL, 1 << 20); /* more than MPI aligns its memory to */
    CHECK(berth_mapped_allocator_create(NULL, &mapped) == BERTH_OK);
    ring(mapped, 0);
    berth_allocator_release(mapped);
}

/* ---- Another program on one rank ------------------------------------------------------------------- */

static void expect_refusal(berth_mpi *job, berth_status status, const char *part)
{
    char words[WORDS] = "", who[64];
    snprintf(who, sizeof who, "rank %d (berth %s)", ranks - 1, berth_version());
    CHECK(berth_mpi_agree(job) == status);
    snprintf(words, sizeof words, "%s", berth_last_error()->message);
    check_same(words, sizeof words);
    CHECK(strstr(words, who) && strstr(words, part));
    CHECK(berth_mpi_replay_begin(job) == BERTH_NOT_READY);
    if (rank == 0)
        printf("%s\n", words);
}

static berth_plan *plan_of(const step program[], size_t count, bool outlives)
{
    berth_plan *plan = NULL;
    berth_plan_allocation all[TENSORS + 1];
    for (size_t i = 0; i < count; i++) {
        all[i] = (berth_plan_allocation)BERTH_PLAN_ALLOCATION_INIT;
        all[i].size_bytes = program[i].bytes;
        all[i].alignment = program[i].alignment;
        all[i].freed_at = outlives && i == 1 ? BERTH_NEVER_FREED : i + 1;
        all[i].label = program[i].label;
    }
    CHECK(berth_plan_create(&plan) == BERTH_OK);
    CHECK(berth_plan_set(plan, all, count, NULL) == BERTH_OK);
    return plan;
}

static void set_program(berth_mpi *job, const step program[], size_t count, bool outlives)
{
    berth_plan *plan = plan_of(program, count, outlives);
    CHECK(berth_mpi_set_plan(job, plan) == BERTH_OK);
    berth_plan_release(plan);
}

/* The same allocations, of which one rank frees the first late: it has its place for so long on all. */
static void check_lives_that_differ(void)
{
    berth_mpi *job = NULL;
    berth_mpi_info info = BERTH_MPI_INFO_INIT;
    berth_plan *plan = NULL;
    berth_plan_allocation all[2];
    for (int i = 0; i < 2; i++) {
        all[i] = (berth_plan_allocation)BERTH_PLAN_ALLOCATION_INIT;
        all[i].size_bytes = 4096;
        all[i].alignment = 64;
        all[i].freed_at = rank == ranks - 1 ? 2 : (uint64_t)i + 1;
    }
    CHECK(berth_plan_create(&plan) == BERTH_OK && berth_plan_set(plan, all, 2, NULL) == BERTH_OK);
    CHECK(berth_mpi_create(MPI_COMM_WORLD, NULL, &job) == BERTH_OK);
    CHECK(berth_mpi_set_plan(job, plan) == BERTH_OK);
    CHECK(berth_mpi_agree(job) == BERTH_OK && berth_mpi_info_get(job, &info) == BERTH_OK);
    CHECK(info.reduced && info.peak_bytes == 8192 && info.driver == ranks - 1);
    CHECK(berth_mpi_destroy(job) == BERTH_OK);
    berth_plan_release(plan);
}

static void test_other(void)
{
    berth_mpi *job = NULL;
    berth_mpi_options options = BERTH_MPI_OPTIONS_INIT;
    const bool last = rank == ranks - 1;
    step program[TENSORS + 1], other[TENSORS + 1];
    program_of(0, program);
    program[TENSORS] = program[0];
    memcpy(other, program, sizeof other);
    options.exact = true;
    CHECK(berth_mpi_create(MPI_COMM_WORLD, &options, &job) == BERTH_OK);
    other[2].label = "gradient";
    set_program(job, last ? other : program, TENSORS, false);
    expect_refusal(job, BERTH_MISMATCH,
                   "first at allocation 2: gradient, 8192 bytes, alignment 64, freed at 3; on rank 0 outbox");
    set_program(job, program, last ? TENSORS + 1 : TENSORS, false);
    expect_refusal(job, BERTH_MISMATCH, "first at allocation 4: inbox, 8192 bytes");
    set_program(job, program, last ? TENSORS - 1 : TENSORS, false);
    expect_refusal(job, BERTH_MISMATCH, "no such allocation (there are 3); on rank 0 result");
    set_program(job, program, TENSORS, last);
    expect_refusal(job, BERTH_MISMATCH, "alignment 64, outlives the run; on rank 0 scratch");
    other[2] = program[2];
    other[3].bytes++;
    set_program(job, last ? other : program, TENSORS, false);
    expect_refusal(job, BERTH_MISMATCH,
                   "result, 4097 bytes, alignment 64, freed at 4; on rank 0 result, 4096 bytes");
    set_program(job, program, TENSORS, false);
    CHECK(berth_mpi_agree(job) == BERTH_OK); /* and after all that they can agree */
    CHECK(berth_mpi_destroy(job) == BERTH_OK);
    check_lives_that_differ();
}

/* ---- What is still in use -------------------------------------------------------------------------- */

static void test_busy(void)
{
    berth_mpi *job = NULL;
    step program[TENSORS];
    tensors t;
    const bool last = rank == ranks - 1;
    void *stranger = NULL;
    program_of(rank, program);
    CHECK(berth_mpi_create(MPI_COMM_WORLD, NULL, &job) == BERTH_OK);
    record(job, program);
    CHECK(berth_mpi_agree(job) == BERTH_OK);
    if (last)
        CHECK(berth_mpi_replay_begin(job) == BERTH_OK);
    expect_refusal(job, BERTH_BUSY, "a scope of the job is open");
    CHECK(berth_mpi_destroy(job) == BERTH_BUSY);
    if (last) {
        first_half(berth_mpi_allocator(job), program, &t);
        /* what is not planned is refused: it would have no place that others know */
        CHECK(berth_allocate(berth_mpi_allocator(job), 77, 64, NULL, &stranger) == BERTH_MISMATCH);
        CHECK(berth_mpi_replay_end(job, NULL) == BERTH_MISMATCH);
    }
    expect_refusal(job, BERTH_BUSY, "planned pointers are live");
    if (last)
        for (int k = 0; k < 3; k++)
            give(berth_mpi_allocator(job), t.at[k]);
    CHECK(berth_mpi_agree(job) == BERTH_OK);
    /* a recording that does not begin takes nothing away */
    CHECK(berth_mpi_replay_begin(job) == BERTH_OK);
    CHECK(berth_mpi_record_begin(job) == BERTH_BUSY);
    (void)berth_mpi_replay_end(job, NULL);
    ring_round(job, program, 0);
    CHECK(berth_mpi_destroy(job) == BERTH_OK);
}

/* A replay that goes past the job has no place in the window; the job's next one has. */
static void test_past_the_job(void)
{
    berth_mpi *job = NULL;
    step program[TENSORS];
    tensors t;
    program_of(rank, program);
    CHECK(berth_mpi_create(MPI_COMM_WORLD, NULL, &job) == BERTH_OK);
    record(job, program);
    CHECK(berth_mpi_agree(job) == BERTH_OK);
    berth_allocator *a = berth_mpi_allocator(job);
    uint64_t offset = 0;
    CHECK(berth_replay_begin(a, NULL) == BERTH_OK);
    first_half(a, program, &t);
    CHECK(berth_mpi_offset(job, t.at[0], &offset) == BERTH_NOT_FOUND);
    second_half(a, program, &t);
    CHECK(berth_replay_end(a, NULL) == BERTH_OK);
    ring_round(job, program, 0);
    CHECK(berth_mpi_destroy(job) == BERTH_OK);
}

static void check_groups_are_refused(void)
{
    MPI_Comm half = MPI_COMM_NULL, between = MPI_COMM_NULL;
    berth_mpi *job = NULL;
    const int side = rank % 2;
    CHECK(MPI_Comm_split(MPI_COMM_WORLD, side, rank, &half) == MPI_SUCCESS);
    CHECK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - side, 7, &between) == MPI_SUCCESS);
    CHECK(berth_mpi_create(between, NULL, &job) == BERTH_INVALID_ARGUMENT && !job);
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
}

/* ---- Arguments, and what is not ready -------------------------------------------------------------- */

/* A free just before an allocation that outlives the run counts as any other: the first and the last are never live together. Of
 * rank 0 both together are more than any other rank has at a time. */
static void check_live_beside_what_outlives(void)
{
    berth_mpi *job = NULL;
    berth_mpi_info info = BERTH_MPI_INFO_INIT;
    const size_t last = rank ? 6000 + (size_t)rank : 5000;
    const step program[] = {{"before", rank ? 1000 : 5000, 64}, {"stays", 64, 64}, {"after", last, 64}};
    CHECK(berth_mpi_create(MPI_COMM_WORLD, NULL, &job) == BERTH_OK);
    set_program(job, program, 3, true);
    CHECK(berth_mpi_agree(job) == BERTH_OK);
    CHECK(berth_mpi_info_get(job, &info) == BERTH_OK);
    CHECK(info.own_max_live_bytes == last);
    CHECK(info.driver == ranks - 1 && info.driver_max_live_bytes == 6000 + (uint64_t)ranks - 1);
    CHECK(berth_mpi_destroy(job) == BERTH_OK);
}

static void test_arguments(void)
{
    berth_mpi *job = NULL;
    berth_mpi_info info = BERTH_MPI_INFO_INIT;
    berth_mpi_options options = BERTH_MPI_OPTIONS_INIT;
    uint64_t offset = 0;
    int local = 0;
    CHECK(berth_mpi_create(MPI_COMM_WORLD, NULL, NULL) == BERTH_INVALID_ARGUMENT);
    CHECK(berth_mpi_create(MPI_COMM_NULL, NULL, &job) == BERTH_INVALID_ARGUMENT && !job);
    check_groups_are_refused();
    options.struct_size = rank == ranks - 1 ? 1 : sizeof options; /* one rank's mistake is told on all */
    CHECK(berth_mpi_create(MPI_COMM_WORLD, &options, &job) == BERTH_INVALID_ARGUMENT && !job);
    CHECK(berth_mpi_create(MPI_COMM_WORLD, NULL, &job) == BERTH_OK);
    CHECK(berth_mpi_window(job) == MPI_WIN_NULL && berth_mpi_window(NULL) == MPI_WIN_NULL);
    CHECK(berth_mpi_allocator(NULL) == NULL && berth_mpi_allocator(job));
    CHECK(berth_mpi_info_get(job, &info) == BERTH_NOT_READY && info.rank == rank && info.ranks == ranks);
    CHECK(berth_mpi_info_get(job, NULL) == BERTH_INVALID_ARGUMENT);
    CHECK(berth_mpi_replay_begin(job) == BERTH_NOT_READY);
    CHECK(berth_mpi_replay_end(job, NULL) == BERTH_NOT_FOUND);
    CHECK(berth_mpi_record_end(job) == BERTH_NOT_FOUND);
    CHECK(berth_mpi_set_plan(job, NULL) == BERTH_INVALID_ARGUMENT);
    CHECK(berth_mpi_offset(job, &local, &offset) == BERTH_NOT_FOUND);
    CHECK(berth_mpi_offset(job, &local, NULL) == BERTH_INVALID_ARGUMENT);
    CHECK(berth_mpi_agree(NULL) == BERTH_INVALID_ARGUMENT && berth_mpi_destroy(NULL) == BERTH_OK);
    CHECK(berth_mpi_record_begin(NULL) == BERTH_INVALID_ARGUMENT &&
          berth_mpi_record_end(NULL) == BERTH_INVALID_ARGUMENT);
    CHECK(berth_mpi_replay_begin(NULL) == BERTH_INVALID_ARGUMENT &&
          berth_mpi_replay_end(NULL, NULL) == BERTH_INVALID_ARGUMENT);
    CHECK(berth_mpi_agree(job) == BERTH_OK); /* on nothing */
    CHECK(berth_mpi_replay_begin(job) == BERTH_OK && berth_mpi_replay_end(job, NULL) == BERTH_OK);
    CHECK(berth_mpi_destroy(job) == BERTH_OK);
    check_live_beside_what_outlives();
}

/* ---- A rank is killed ------------------------------------------------------------------------------- */

static void test_killed(void)
{
    berth_mpi *job = NULL;
    step program[TENSORS];
    program_of(rank, program);
    CHECK(berth_mpi_create(MPI_COMM_WORLD, NULL, &job) == BERTH_OK);
    record(job, program);
    CHECK(berth_mpi_agree(job) == BERTH_OK);
    ring_round(job, program, 0);
    printf("killed: rank %d is there\n", rank);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == ranks - 1)
        raise(SIGKILL);
    MPI_Barrier(MPI_COMM_WORLD); /* which never comes */
    berth_mpi_destroy(job);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {{"ring", test_ring},         {"other", test_other},         {"busy", test_busy},
                 {"past", test_past_the_job}, {"arguments", test_arguments}, {"killed", test_killed}};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    bool found = false;
    for (size_t k = 0; k < sizeof tests / sizeof tests[0]; k++)
        if (argc > 1 && strcmp(argv[1], tests[k].name) == 0) {
            found = true;
            tests[k].run();
        }
    CHECK(found);
    MPI_Finalize();
    return 0;
}
