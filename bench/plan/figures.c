/* The planner's figures: generated families of up to a million buffers written as CSV, then read, bounded and
 * planned, each in a process of its own so that its memory can be told; then from file to file. Prints the best of
 * several rounds.
 *
 *     build-bench/bench/plan_figures [--rounds N] [--count N] [FILE.csv...]
 *
 * Files given are planned by `auto` and by every heuristic, to show that auto is never above them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "berth/problem_file.h"

typedef struct outcome {
    double read, bound, solve; /* seconds */
    double whole;              /* reading, planning by auto, writing */
    double ratio;              /* peak over lower bound */
    long memory_kib;           /* of the whole process */
    bool ok;
} outcome;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return z ^ (z >> 27);
}

/* ---- Families ------------------------------------------------------------------------------------ */

typedef struct row {
    int64_t lower, upper;
    uint64_t size;
} row;

/* Layers one after the other: most buffers live for a few steps, some skip far ahead. */
static row inference(uint64_t *state, size_t i, size_t count)
{
    (void)count;
    uint64_t r = next(state);
    uint64_t life = r % 1000 == 0 ? 1000 + next(state) % 50000 : 2 + r % 7;
    return (row){(int64_t)i, (int64_t)(i + life),
                 (1 + next(state) % 16) * ((uint64_t)64 << (next(state) % 11))};
}

/* Half of the steps go forward and keep what the way back needs; scratch lives briefly on both. */
static row training(uint64_t *state, size_t i, size_t count)
{
    uint64_t size = (1 + next(state) % 16) * ((uint64_t)256 << (next(state) % 9));
    if (i < count / 2 && i % 4 == 0)
        return (row){(int64_t)i, (int64_t)(count - i), size};
    return (row){(int64_t)i, (int64_t)(i + 1 + next(state) % 6), size};
}

static row mixed(uint64_t *state, size_t i, size_t count)
{
    static const unsigned longest[] = {4, 16, 64, 256, 4096};
    (void)count;
    uint64_t life = 1 + next(state) % longest[next(state) % 5];
    size_t begin = next(state) % 2 ? i : i / 2;
    return (row){(int64_t)begin, (int64_t)(begin + life),
                 8 + next(state) % (next(state) % 2 ? 100000 : 1000)};
}

static const struct {
    const char *name;
    row (*make)(uint64_t *state, size_t i, size_t count);
} families[] = {{"inference", inference}, {"training", training}, {"mixed", mixed}};

static bool write_family(size_t family, size_t count, const char *path)
{
    FILE *f = fopen(path, "w");
    uint64_t state = 1;
    if (!f)
        return false;
    fputs("id,lower,upper,size\n", f);
    for (size_t i = 0; i < count; i++) {
        row r = families[family].make(&state, i, count);
        fprintf(f, "%zu,%" PRId64 ",%" PRId64 ",%" PRIu64 "\n", i, r.lower, r.upper, r.size);
    }
    return fclose(f) == 0;
}

/* ---- One run in a process of its own ------------------------------------------------------------- */

static void run(const char *path, const char *solver, outcome *out)
{
    berth_problem_file *file;
    double t0 = now();
    if (berth_problem_file_read(path, &file))
        return;
    double t1 = now();
    const berth_problem *problem = berth_problem_file_problem(file);
    uint64_t bytes, *offsets = malloc((problem->buffer_count + 1) * sizeof *offsets);
    berth_certificate c = {.struct_size = sizeof c};
    berth_solve_options options = {.struct_size = sizeof options, .solver = solver};
    if (!offsets || berth_problem_max_live(problem, &bytes, NULL))
        return;
    double t2 = now();
    if (berth_solve(problem, &options, offsets, &c))
        return;
    double t3 = now();
    out->read = t1 - t0;
    out->bound = t2 - t1;
    out->solve = t3 - t2;
    out->ratio = c.lower_bound_bytes ? (double)c.peak_bytes / (double)c.lower_bound_bytes : 1;
    struct rusage usage; /* before the checker adds its own */
    getrusage(RUSAGE_SELF, &usage);
    out->memory_kib = usage.ru_maxrss;
    out->ok = berth_problem_check(problem, offsets, NULL) == BERTH_OK;
}

/* What `berth plan -o` does, without its report. */
static void run_whole(const char *path, const char *output, outcome *out)
{
    berth_problem_file *file;
    double t0 = now();
    if (berth_problem_file_read(path, &file))
        return;
    double t1 = now();
    const berth_problem *problem = berth_problem_file_problem(file);
    uint64_t *offsets = malloc((problem->buffer_count + 1) * sizeof *offsets);
    berth_certificate c = {.struct_size = sizeof c};
    if (!offsets || berth_problem_file_solve(file, 0, 0, NULL, offsets, &c))
        return;
    double t2 = now();
    out->ok = berth_problem_file_write(file, offsets, output) == BERTH_OK;
    out->read = t1 - t0;
    out->solve = t2 - t1;
    out->whole = now() - t0;
    out->ratio = c.lower_bound_bytes ? (double)c.peak_bytes / (double)c.lower_bound_bytes : 1;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    out->memory_kib = usage.ru_maxrss;
}

/* With `output`, the whole way; else by one solver. */
static outcome measure(const char *path, const char *solver, const char *output, int rounds)
{
    outcome best = {.read = 1e9, .bound = 1e9, .solve = 1e9, .whole = 1e9, .ok = true};
    outcome *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int k = 0; k < rounds && shared != MAP_FAILED; k++) {
        memset(shared, 0, sizeof *shared);
        pid_t child = fork();
        if (child == 0) {
            if (output)
                run_whole(path, output, shared);
            else
                run(path, solver, shared);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        best.ok = best.ok && shared->ok;
        best.read = shared->read < best.read ? shared->read : best.read;
        best.bound = shared->bound < best.bound ? shared->bound : best.bound;
        best.solve = shared->solve < best.solve ? shared->solve : best.solve;
        best.whole = shared->whole < best.whole ? shared->whole : best.whole;
        best.ratio = shared->ratio;
        best.memory_kib = shared->memory_kib;
    }
    return best;
}

static int families_table(size_t largest, int rounds)
{
    char path[] = "/tmp/berth_figures_XXXXXX";
    int fd = mkstemp(path), failed = 0;
    if (fd < 0)
        return 1;
    close(fd);
    printf("%-10s %9s %10s %10s %10s %8s %8s\n", "family", "buffers", "read", "bound", "greedy", "memory",
           "peak/lb");
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++)
        for (size_t count = largest < 100 ? 1 : largest / 100; count <= largest; count *= 10) {
            if (!write_family(f, count, path))
                return 1;
            outcome o = measure(path, "greedy", NULL, rounds);
            printf("%-10s %9zu %8.1fms %8.1fms %8.1fms %5ld MB %8.4f%s\n", families[f].name, count,
                   o.read * 1e3, o.bound * 1e3, o.solve * 1e3, o.memory_kib / 1024, o.ratio,
                   o.ok ? "" : "  NOT VALID");
            failed |= !o.ok;
            if (count == largest && largest == 1000000 &&
                (o.read > 0.3 || o.bound > 0.2 || o.solve > 1 || o.memory_kib > 150 * 1024))
                printf("%-10s figures: read 300 ms, bound 200 ms, greedy 1000 ms, 150 MB: not all met\n", "");
        }
    unlink(path);
    return failed;
}

/* From file to file by `auto`. Memory is promised in bytes a row; time is shown beside that of reading, since
 * seconds are the machine's. */
static int whole_table(size_t count, int rounds)
{
    enum { BYTES_A_ROW = 120 };
    char path[] = "/tmp/berth_figures_XXXXXX", output[] = "/tmp/berth_planned_XXXXXX";
    int fd = mkstemp(path), second = mkstemp(output), failed = 0;
    if (fd < 0 || second < 0)
        return 1;
    close(fd);
    close(second);
    printf("\n%-10s %9s %10s %14s %12s %8s\n", "whole", "buffers", "time", "times reading", "bytes a row",
           "peak/lb");
    for (size_t f = 0; f < sizeof families / sizeof families[0] && !failed; f++) {
        if (!write_family(f, count, path))
            return 1;
        outcome o = measure(path, NULL, output, rounds);
        double bytes = (double)o.memory_kib * 1024 / (double)count;
        bool above = count >= 1000000 && bytes > BYTES_A_ROW;
        printf("%-10s %9zu %8.2f s %14.1f %12.1f %8.4f%s%s\n", families[f].name, count, o.whole,
               o.whole / o.read, bytes, o.ratio, o.ok ? "" : "  NOT WRITTEN", above ? "  ABOVE 120" : "");
        failed |= !o.ok || above;
    }
    unlink(path);
    unlink(output);
    return failed;
}

static int file_table(char **paths, int count, int rounds)
{
    int failed = 0;
    printf("\n%-44s %10s %9s %12s\n", "auto", "time", "peak/lb", "best single");
    for (int i = 0; i < count; i++) {
        outcome automatic = measure(paths[i], "auto", NULL, rounds);
        double single = 1e9;
        for (size_t k = 1; berth_solver_name(k); k++) {
            outcome o = measure(paths[i], berth_solver_name(k), NULL, 1);
            single = o.ratio < single ? o.ratio : single;
        }
        const char *name = strrchr(paths[i], '/');
        printf("%-44s %8.2fms %9.4f %12.4f%s\n", name ? name + 1 : paths[i], automatic.solve * 1e3,
               automatic.ratio, single,
               !automatic.ok              ? "  NOT VALID"
               : automatic.ratio > single ? "  ABOVE"
                                          : "");
        failed |= !automatic.ok || automatic.ratio > single;
    }
    return failed;
}

int main(int argc, char **argv)
{
    int rounds = 5, first = 1;
    size_t count = 1000000;
    for (; first + 1 < argc && argv[first][0] == '-'; first += 2) {
        if (strcmp(argv[first], "--rounds") == 0)
            rounds = atoi(argv[first + 1]);
        else if (strcmp(argv[first], "--count") == 0)
            count = (size_t)atoll(argv[first + 1]);
        else
            break;
    }
    int failed = families_table(count, rounds < 1 ? 1 : rounds);
    failed |= whole_table(count, rounds < 1 ? 1 : rounds);
    if (first < argc)
        failed |= file_table(argv + first, argc - first, rounds < 1 ? 1 : rounds);
    return failed;
}
