/* The part of ONNX Runtime's C interface that is used here. Its library brings no headers in the packages that we run, so the
 * few types and functions are declared again, by their documented places: OrtApi is one long table of functions to which
 * versions only append, and OrtAllocator a table that grows with OrtAllocator.version. A program that has ONNX Runtime's own
 * header includes that and not this. */
#ifndef BERTH_ORT_API_H
#define BERTH_ORT_API_H

#include <stddef.h>
#include <stdint.h>

/* The version that this was written for, 1.30 of the library. */
#define BERTH_ORT_API_VERSION 30u

typedef struct OrtEnv OrtEnv;
typedef struct OrtStatus OrtStatus; /* NULL: success */
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtValue OrtValue;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtKeyValuePairs OrtKeyValuePairs;
typedef struct OrtSyncStream OrtSyncStream;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtApi OrtApi;
typedef struct OrtApiBase OrtApiBase;

typedef enum OrtErrorCode {
    ORT_OK = 0,
    ORT_FAIL = 1,
    ORT_INVALID_ARGUMENT = 2,
    ORT_RUNTIME_EXCEPTION = 6,
} OrtErrorCode;

typedef enum OrtLoggingLevel { ORT_LOGGING_LEVEL_ERROR = 3, ORT_LOGGING_LEVEL_FATAL = 4 } OrtLoggingLevel;
typedef enum OrtAllocatorType { ORT_DEVICE_ALLOCATOR = 0, ORT_ARENA_ALLOCATOR = 1 } OrtAllocatorType;
#define ORT_MEMORY_DEFAULT 0
#define ORT_SEQUENTIAL 0

typedef enum OrtElementType {
    ORT_FLOAT = 1,
    ORT_UINT8 = 2,
    ORT_INT32 = 6,
    ORT_INT64 = 7,
} OrtElementType;

struct OrtAllocator {
    uint32_t version; /* of the interface that the one who fills the table knows */
    void *(*Alloc)(OrtAllocator *self, size_t bytes);
    void (*Free)(OrtAllocator *self, void *p);
    const OrtMemoryInfo *(*Info)(const OrtAllocator *self);
    void *(*Reserve)(OrtAllocator *self, size_t bytes);                              /* since 18 */
    OrtStatus *(*GetStats)(const OrtAllocator *self, OrtKeyValuePairs **out);        /* since 23 */
    void *(*AllocOnStream)(OrtAllocator *self, size_t bytes, OrtSyncStream *stream); /* since 23 */
    OrtStatus *(*Shrink)(OrtAllocator *self);                                        /* since 25 */
};
#define BERTH_ORT_SINCE_RESERVE 18u
#define BERTH_ORT_SINCE_STATS 23u
#define BERTH_ORT_SINCE_SHRINK 25u

struct OrtApiBase {
    const OrtApi *(*GetApi)(uint32_t version); /* NULL: the library is older */
    const char *(*GetVersionString)(void);     /* "1.30.0" */
};

/* Fields named from_N are the functions from place N on that are not used. */
struct OrtApi {
    OrtStatus *(*CreateStatus)(OrtErrorCode code, const char *words);
    OrtErrorCode (*GetErrorCode)(const OrtStatus *status);
    const char *(*GetErrorMessage)(const OrtStatus *status);
    OrtStatus *(*CreateEnv)(OrtLoggingLevel level, const char *name, OrtEnv **out);
    void *from_4[3];
    OrtStatus *(*CreateSession)(const OrtEnv *env, const char *path, const OrtSessionOptions *options,
                                OrtSession **out);
    OrtStatus *(*CreateSessionFromArray)(const OrtEnv *env, const void *model, size_t bytes,
                                         const OrtSessionOptions *options, OrtSession **out);
    OrtStatus *(*Run)(OrtSession *session, const OrtRunOptions *options, const char *const *input_names,
                      const OrtValue *const *inputs, size_t input_count, const char *const *output_names,
                      size_t output_count, OrtValue **outputs);
    OrtStatus *(*CreateSessionOptions)(OrtSessionOptions **out);
    void *from_11[2];
    OrtStatus *(*SetSessionExecutionMode)(OrtSessionOptions *options, int mode);
    void *from_14[2];
    OrtStatus *(*EnableMemPattern)(OrtSessionOptions *options);
    OrtStatus *(*DisableMemPattern)(OrtSessionOptions *options);
    void *from_18[1];
    OrtStatus *(*DisableCpuMemArena)(OrtSessionOptions *options);
    void *from_20[4];
    OrtStatus *(*SetIntraOpNumThreads)(OrtSessionOptions *options, int threads);
    void *from_25[5];
    OrtStatus *(*SessionGetInputCount)(const OrtSession *session, size_t *out);
    OrtStatus *(*SessionGetOutputCount)(const OrtSession *session, size_t *out);
    void *from_32[1];
    OrtStatus *(*SessionGetInputTypeInfo)(const OrtSession *session, size_t index, OrtTypeInfo **out);
    void *from_34[2];
    OrtStatus *(*SessionGetInputName)(const OrtSession *session, size_t index, OrtAllocator *allocator,
                                      char **out);
    OrtStatus *(*SessionGetOutputName)(const OrtSession *session, size_t index, OrtAllocator *allocator,
                                       char **out);
    void *from_38[1];
    OrtStatus *(*CreateRunOptions)(OrtRunOptions **out);
    void *from_40[8];
    OrtStatus *(*CreateTensorAsOrtValue)(OrtAllocator *allocator, const int64_t *shape, size_t rank,
                                         OrtElementType type, OrtValue **out);
    OrtStatus *(*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo *info, void *data, size_t bytes,
                                                 const int64_t *shape, size_t rank, OrtElementType type,
                                                 OrtValue **out);
    OrtStatus *(*IsTensor)(const OrtValue *value, int *out);
    OrtStatus *(*GetTensorMutableData)(OrtValue *value, void **out);
    void *from_52[3];
    OrtStatus *(*CastTypeInfoToTensorInfo)(const OrtTypeInfo *info, const OrtTensorTypeAndShapeInfo **out);
    void *from_56[4];
    OrtStatus *(*GetTensorElementType)(const OrtTensorTypeAndShapeInfo *info, OrtElementType *out);
    OrtStatus *(*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo *info, size_t *out);
    OrtStatus *(*GetDimensions)(const OrtTensorTypeAndShapeInfo *info, int64_t *out, size_t count);
    void *from_63[1];
    OrtStatus *(*GetTensorShapeElementCount)(const OrtTensorTypeAndShapeInfo *info, size_t *out);
    OrtStatus *(*GetTensorTypeAndShape)(const OrtValue *value, OrtTensorTypeAndShapeInfo **out);
    void *from_66[3];
    OrtStatus *(*CreateCpuMemoryInfo)(OrtAllocatorType type, int memory_type, OrtMemoryInfo **out);
    void *from_70[5];
    OrtStatus *(*AllocatorAlloc)(OrtAllocator *allocator, size_t bytes, void **out);
    OrtStatus *(*AllocatorFree)(OrtAllocator *allocator, void *p);
    void *from_77[1];
    OrtStatus *(*GetAllocatorWithDefaultOptions)(OrtAllocator **out);
    void *from_79[13];
    void (*ReleaseEnv)(OrtEnv *env);
    void (*ReleaseStatus)(OrtStatus *status);
    void (*ReleaseMemoryInfo)(OrtMemoryInfo *info);
    void (*ReleaseSession)(OrtSession *session);
    void (*ReleaseValue)(OrtValue *value);
    void (*ReleaseRunOptions)(OrtRunOptions *options);
    void (*ReleaseTypeInfo)(OrtTypeInfo *info);
    void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo *info);
    void (*ReleaseSessionOptions)(OrtSessionOptions *options);
    void *from_101[29];
    OrtStatus *(*AddSessionConfigEntry)(OrtSessionOptions *options, const char *key, const char *value);
    OrtStatus *(*CreateAllocator)(const OrtSession *session, const OrtMemoryInfo *info, OrtAllocator **out);
    void (*ReleaseAllocator)(OrtAllocator *allocator);
    void *from_133[32];
    OrtStatus *(*AddRunConfigEntry)(OrtRunOptions *options, const char *key, const char *value);
    void *from_166[10];
    OrtStatus *(*RegisterAllocator)(OrtEnv *env, OrtAllocator *allocator);
    OrtStatus *(*UnregisterAllocator)(OrtEnv *env, const OrtMemoryInfo *info);
    void *from_178[117];
    void (*CreateKeyValuePairs)(OrtKeyValuePairs **out);
    void (*AddKeyValuePair)(OrtKeyValuePairs *pairs, const char *key, const char *value);
    const char *(*GetKeyValue)(const OrtKeyValuePairs *pairs, const char *key);
    void *from_298[2];
    void (*ReleaseKeyValuePairs)(OrtKeyValuePairs *pairs);
    void *from_301[18];
    OrtStatus *(*AllocatorGetStats)(const OrtAllocator *allocator, OrtKeyValuePairs **out);
};

#define BERTH_ORT_PLACE(name, place) \
    _Static_assert(offsetof(OrtApi, name) == (place) * sizeof(void *), "the place of " #name)
/* The last function of a version stands where ONNX Runtime's own assertions have it, or beside it. */
BERTH_ORT_PLACE(Run, 9);
BERTH_ORT_PLACE(ReleaseSessionOptions, 100);
BERTH_ORT_PLACE(AddSessionConfigEntry, 130);
BERTH_ORT_PLACE(RegisterAllocator, 176);
BERTH_ORT_PLACE(CreateKeyValuePairs, 295);
BERTH_ORT_PLACE(AllocatorGetStats, 319);

#endif
