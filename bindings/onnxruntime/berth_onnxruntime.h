/* ONNX Runtime on Berth: libberth_onnxruntime.so. Tensors of its CPU provider come from any allocator of Berth's, and runs are
 * served from one planned block for each shape of their inputs.
 *
 *     berth_ort_create(OrtGetApiBase(), berth_cpu_allocator(), &memory); // or berth_ort_load's base
 *     berth_ort_register(memory, env);
 *     berth_ort_use(memory, session_options, true);                      // before CreateSession
 *     status = berth_ort_run(memory, session, NULL, names, inputs, 1, output_names, 1, outputs); // for OrtApi's Run
 *
 * Lifetimes. ONNX Runtime never says when it is done with an allocator: sessions and values hold it until they are released. So
 * what they took keeps the allocator alive after berth_ort_release, and the table of functions stays for the life of the
 * process (about 5 KiB). Sessions, values and the environment may be released before or after, in any order.
 *
 * When memory runs out, ONNX Runtime would use a NULL from an allocator as an address. Where the request comes from
 * its library the answer is therefore an exception of C++'s with Berth's words, which becomes the OrtStatus of the call; others who
 * ask get NULL. berth_ort_explain has the full explanation either way. */
#ifndef BERTH_ONNXRUNTIME_H
#define BERTH_ONNXRUNTIME_H

#include <berth/plan.h>
#include <berth/replay.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ONNX Runtime's own types, from its header or by name alone. */
struct OrtAllocator;
struct OrtApiBase;
struct OrtEnv;
struct OrtRunOptions;
struct OrtSession;
struct OrtSessionOptions;
struct OrtStatus;
struct OrtValue;

typedef struct berth_ort berth_ort;

/* Loads ONNX Runtime for a program that is not linked with it: `path`, or where it is NULL what BERTH_ONNXRUNTIME_LIBRARY names,
 * else libonnxruntime.so.1. It stays loaded. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED (not found, not
 * ONNX Runtime, or a version that is not one of 1.17 and later; the words say which). */
BERTH_API berth_status berth_ort_load(const char *path, const struct OrtApiBase **out);

/* Makes an OrtAllocator over `allocator`, which is retained and must give memory that the host can use. Knows the interface of
 * ONNX Runtime 1.30; of older libraries it uses what they have, newer ones keep it. The caller owns it. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED (another version, as berth_ort_load, or device memory), BERTH_DEVICE_ERROR (the
 * runtime refuses, in its words), BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_ort_create(const struct OrtApiBase *base, berth_allocator *allocator,
                                        berth_ort **out);

/* Lets go of it; NULL is a no-op. Sessions that still have memory of it give it back as usual; new requests fail, those of runs
 * that are under way too. Unregister it first where the environment is used further. */
BERTH_API void berth_ort_release(berth_ort *memory);

/* The OrtAllocator itself, for CreateTensorAsOrtValue and others. It lives as long as the process. NULL for NULL. */
BERTH_API struct OrtAllocator *berth_ort_allocator(berth_ort *memory);

/* Registers it as the environment's allocator of CPU memory, for every session that asks for those (berth_ort_use), in the place
 * of the one before. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_DEVICE_ERROR (the runtime refuses, in its words: 1.22
 * does so while another is registered, 1.30 puts the new one in its place). */
BERTH_API berth_status berth_ort_register(berth_ort *memory, struct OrtEnv *env);

/* Takes it back: sessions that are made from now on do not get it, those that exist keep it. Before ReleaseEnv: environments are told
 * apart by their addresses, and a later one may have an earlier one's. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_NOT_FOUND (it is not, or another has taken its place), BERTH_DEVICE_ERROR. */
BERTH_API berth_status berth_ort_unregister(berth_ort *memory, struct OrtEnv *env);

/* Sets up the options of a session that is to use the environment's allocators (session.use_env_allocators). `planned`: for
 * berth_ort_run too, with ONNX Runtime's memory pattern off, which would hide what a run asks for, and operators one after the
 * other. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_DEVICE_ERROR. */
BERTH_API berth_status berth_ort_use(berth_ort *memory, struct OrtSessionOptions *options, bool planned);

/* OrtApi's Run, planned. The first run of a session with inputs of these types and shapes, and these outputs, is recorded; later
 * ones take their memory from one block at planned places. Outputs, and what else outlives the run, come from the allocator.
 * Threads run at once, with a block each while they do. What a run asks for beyond the plan, on other threads too, comes from
 * the allocator; a plan that no longer fits is made anew. A run for which nothing can be planned is an ordinary one. The
 * OrtStatus is Run's own; `memory` is never NULL, since only its runtime could make a status that says so. */
BERTH_API struct OrtStatus *berth_ort_run(berth_ort *memory, struct OrtSession *session,
                                          const struct OrtRunOptions *options, const char *const *input_names,
                                          const struct OrtValue *const *inputs, size_t input_count,
                                          const char *const *output_names, size_t output_count,
                                          struct OrtValue **outputs);

/* The same around any work of the calling thread, such as RunWithBinding, under a key of the caller's that says what run it is:
 * session and shapes. Every begin that is BERTH_OK is followed by an end; `failed` forgets a recording of work that did
 * not succeed. `report` may be NULL. As berth_cached_begin and berth_cached_end. */
BERTH_API berth_status berth_ort_begin(berth_ort *memory, const void *key, size_t key_bytes);
BERTH_API berth_status berth_ort_end(berth_ort *memory, bool failed, berth_report *report);

/* The plan of the run that ended last, of any thread; the caller gets a reference. NULL: none is kept. */
BERTH_API berth_plan *berth_ort_plan(berth_ort *memory);

/* Gives idle memory back: blocks of plans that no run uses, and what the allocator keeps. As berth_trim. */
BERTH_API berth_status berth_ort_trim(berth_ort *memory, size_t keep_bytes, size_t *released);

/* What was done so far. */
typedef struct berth_ort_figures {
    size_t struct_size;
    uint64_t allocs;       /* requests that were served; of 0 bytes none */
    uint64_t reserves;     /* of them for weights and others that stay (OrtAllocator's Reserve) */
    uint64_t failures;     /* requests that were not */
    uint64_t live_blocks;  /* not given back yet */
    uint64_t recorded;     /* runs that were recorded */
    uint64_t replayed;     /* runs from a plan */
    uint64_t unplanned;    /* runs without: an open scope, no memory for the block */
    uint64_t from_plan;    /* requests served from plans */
    uint64_t by_fallback;  /* requests in replays that deviated from the plan */
    uint64_t outside_plan; /* requests in replays for what outlives the run: outputs */
    uint64_t remade;       /* plans that no longer fitted */
    size_t plans;          /* kept now */
    size_t plan_bytes;     /* that the plans themselves take */
} berth_ort_figures;

#define BERTH_ORT_FIGURES_INIT                                           \
    {                                                                    \
        sizeof(berth_ort_figures), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/* The caller sets out->struct_size. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_ort_figures_get(berth_ort *memory, berth_ort_figures *out);

/* Why the last request failed, on whatever thread: its words, then what berth_explain says of that moment. Writes at most
 * `capacity` bytes with the final 0, and what all of it takes to `needed` (may be NULL). Any thread. BERTH_OK,
 * BERTH_NOT_FOUND (no request has failed), BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_ort_explain(berth_ort *memory, char *text, size_t capacity, size_t *needed);

#ifdef __cplusplus
}
#endif
#endif
