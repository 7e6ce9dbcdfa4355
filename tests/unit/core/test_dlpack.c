/* DLPack with a consumer and a producer of our own, for what NumPy 1.24 and PyTorch 1.13 do not speak: versions, flags,
 * streams, strides of every kind. tests/dlpack runs the rest against those two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/berth.h"

/* DLPack's binary form on 64-bit machines. */
_Static_assert(sizeof(void *) != 8 ||
                   (sizeof(berth_dl_tensor) == 48 && offsetof(berth_dl_tensor, shape) == 24 &&
                    offsetof(berth_dl_tensor, byte_offset) == 40),
               "DLTensor");
_Static_assert(sizeof(void *) != 8 ||
                   (sizeof(berth_dl_managed) == 64 && offsetof(berth_dl_managed, deleter) == 56),
               "DLManagedTensor");
_Static_assert(sizeof(void *) != 8 ||
                   (sizeof(berth_dl_versioned) == 80 && offsetof(berth_dl_versioned, flags) == 24 &&
                    offsetof(berth_dl_versioned, tensor) == 32),
               "DLManagedTensorVersioned");

static berth_buffer *new_buffer(berth_allocator *a, size_t size_bytes)
{
    berth_buffer *buffer = NULL;
    assert_int_equal(berth_buffer_create(a, size_bytes, 64, false, &buffer), BERTH_OK);
    return buffer;
}

static berth_tensor floats(berth_buffer *buffer, int64_t rows, int64_t columns)
{
    berth_tensor t = BERTH_TENSOR_INIT;
    t.buffer = buffer;
    t.type = (berth_dl_type){BERTH_DL_FLOAT, 32, 1};
    t.dims = 2;
    t.shape[0] = rows;
    t.shape[1] = columns;
    return t;
}

/* ---- Out ----------------------------------------------------------------------------------------------------- */

static void what_is_lent_describes_itself(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    berth_allocator *a = NULL;
    assert_int_equal(berth_pool_create(NULL, &a), BERTH_OK);
    berth_buffer *buffer = new_buffer(a, 100);
    berth_tensor t = floats(buffer, 3, 8);
    t.flags = BERTH_DL_READ_ONLY | BERTH_DL_COPIED;
    t.offset_bytes = 4;
    struct DLManagedTensorVersioned *out = NULL;
    assert_int_equal(berth_dlpack_export(&t, NULL, NULL, &out), BERTH_OK);
    berth_dl_versioned *v = (berth_dl_versioned *)out;
    assert_int_equal(v->major, 1);
    assert_int_equal(v->flags, 3);
    assert_ptr_equal(v->tensor.data, (char *)berth_buffer_data(buffer) + 4);
    assert_int_equal(v->tensor.byte_offset, 0);
    assert_int_equal(v->tensor.device_type, BERTH_DL_CPU);
    assert_int_equal(v->tensor.device_id, 0);
    assert_int_equal(v->tensor.dims, 2);
    assert_int_equal(v->tensor.type.bits, 32);
    assert_int_equal(v->tensor.shape[0], 3);
    assert_int_equal(v->tensor.strides[0], 8);
    assert_int_equal(v->tensor.strides[1], 1);
    /* It outlives ours, and the allocator's. */
    berth_buffer_release(buffer);
    berth_allocator_release(a);
    ((float *)v->tensor.data)[23] = 1;
    v->deleter(out);
    assert_int_equal(berth__heap_live(), live);
}

static void the_older_form_has_no_flags(void **state)
{
    (void)state;
    berth_buffer *buffer = new_buffer(berth_cpu_allocator(), 64);
    berth_tensor t = floats(buffer, 4, 4);
    struct DLManagedTensor *out = NULL;
    t.flags = BERTH_DL_READ_ONLY;
    assert_int_equal(berth_dlpack_export_unversioned(&t, NULL, NULL, &out), BERTH_UNSUPPORTED);
    assert_null(out);
    t.flags = 0;
    assert_int_equal(berth_dlpack_export_unversioned(&t, NULL, NULL, &out), BERTH_OK);
    berth_dl_managed *m = (berth_dl_managed *)out;
    assert_ptr_equal(m->tensor.data, berth_buffer_data(buffer));
    m->deleter(out);
    berth_buffer_release(buffer);
}

static void elements_outside_the_buffer_are_refused(void **state)
{
    (void)state;
    berth_buffer *buffer = new_buffer(berth_cpu_allocator(), 64);
    static const struct {
        int64_t shape, stride;
        uint64_t offset;
        berth_status answer;
    } cases[] = {
        {16, 1, 0, BERTH_OK},
        {17, 1, 0, BERTH_INVALID_ARGUMENT},
        {16, 1, 1, BERTH_INVALID_ARGUMENT},
        {4, 5, 0, BERTH_OK}, /* the last one is number 15 */
        {4, 5, 4, BERTH_INVALID_ARGUMENT},
        {16, -1, 60, BERTH_OK},
        {16, -1, 56, BERTH_INVALID_ARGUMENT},
        {1 << 30, 0, 60, BERTH_OK}, /* one element, many times */
        {0, 1000, 64, BERTH_OK},    /* none */
        {0, 1, 65, BERTH_INVALID_ARGUMENT},
        {-1, 1, 0, BERTH_INVALID_ARGUMENT},
        {INT64_MAX, INT64_MAX, 0, BERTH_OVERFLOW},
        {2, INT64_MIN, 0, BERTH_OVERFLOW},
        {INT64_MAX, 1, 0, BERTH_OVERFLOW},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berth_tensor t = floats(buffer, 0, 0);
        t.dims = 1;
        t.has_strides = true;
        t.shape[0] = cases[i].shape;
        t.strides[0] = cases[i].stride;
        t.offset_bytes = cases[i].offset;
        struct DLManagedTensorVersioned *out = NULL;
        assert_int_equal(berth_dlpack_export(&t, NULL, NULL, &out), cases[i].answer);
        assert_true((out != NULL) == (cases[i].answer == BERTH_OK));
        if (out)
            ((berth_dl_versioned *)out)->deleter(out);
    }
    berth_tensor t = floats(buffer, INT64_MAX, INT64_MAX);
    struct DLManagedTensorVersioned *out = NULL;
    assert_int_equal(berth_dlpack_export(&t, NULL, NULL, &out), BERTH_OVERFLOW);
    /* Nothing fits, whatever its other sides. */
    t = floats(buffer, INT64_MAX, INT64_MAX);
    t.shape[t.dims++] = 0;
    assert_int_equal(berth_dlpack_export(&t, NULL, NULL, &out), BERTH_OK);
    ((berth_dl_versioned *)out)->deleter(out);
    t = floats(buffer, 1, 1);
    t.type.bits = 0;
    assert_int_equal(berth_dlpack_export(&t, NULL, NULL, &out), BERTH_INVALID_ARGUMENT);
    t = floats(buffer, 1, 1);
    t.dims = BERTH_DIMS_MAX + 1;
    assert_int_equal(berth_dlpack_export(&t, NULL, NULL, &out), BERTH_INVALID_ARGUMENT);
    berth_buffer_release(buffer);
}

/* Four bits each: two in a byte, or padded one in a byte. */
static void elements_of_less_than_a_byte(void **state)
{
    (void)state;
    berth_buffer *buffer = new_buffer(berth_cpu_allocator(), 8);
    berth_tensor t = BERTH_TENSOR_INIT;
    t.buffer = buffer;
    t.type = (berth_dl_type){BERTH_DL_UINT, 4, 1};
    t.dims = 1;
    struct DLManagedTensorVersioned *out = NULL;
    for (int padded = 0; padded < 2; padded++) {
        t.flags = padded ? BERTH_DL_SUB_BYTE_PADDED : 0;
        t.shape[0] = padded ? 8 : 16;
        assert_int_equal(berth_dlpack_export(&t, NULL, NULL, &out), BERTH_OK);
        ((berth_dl_versioned *)out)->deleter(out);
        t.shape[0]++;
        assert_int_equal(berth_dlpack_export(&t, NULL, NULL, &out), BERTH_INVALID_ARGUMENT);
    }
    berth_buffer_release(buffer);
}

/* ---- Streams ------------------------------------------------------------------------------------------------- */

static void the_consumers_stream_comes_after_and_holds_the_block(void **state)
{
    (void)state;
    berth_device device;
    berth_allocator *a = NULL;
    berth_stream *from = NULL, *to = NULL;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.device = device;
    assert_int_equal(berth_pool_create(&options, &a), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &from), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &to), BERTH_OK);
    berth_buffer *buffer = new_buffer(a, 64);
    char *data = berth_buffer_data(buffer), seen = 0;
    data[0] = 7;
    assert_int_equal(berth_zero(device, data, 64, from, false), BERTH_OK);
    berth_tensor t = floats(buffer, 4, 4);
    struct DLManagedTensorVersioned *out = NULL;
    assert_int_equal(berth_dlpack_export(&t, from, to, &out), BERTH_OK);
    assert_int_equal(((berth_dl_versioned *)out)->tensor.device_type, BERTH_DL_OTHER);
    /* What the consumer enqueues waits for what fills it. */
    assert_int_equal(berth_copy(device, &seen, data, 1, BERTH_COPY_INFER, to, false), BERTH_OK);
    for (int i = 0; i < 4; i++)
        berth_virtual_step(to);
    assert_int_equal(seen, 0);
    assert_true(berth_virtual_pending(to) > 0);
    berth_virtual_run(from);
    /* Freed before the consumer has run: the block is not another's yet. */
    berth_buffer_release(buffer);
    ((berth_dl_versioned *)out)->deleter(out);
    void *other = NULL;
    assert_int_equal(berth_allocate(a, 64, 64, NULL, &other), BERTH_OK);
    assert_ptr_not_equal(other, data);
    berth_virtual_run(to);
    berth_deallocate(a, other, 0, NULL);
    /* To the host: it is waited for. */
    buffer = new_buffer(a, 64);
    assert_int_equal(berth_zero(device, berth_buffer_data(buffer), 64, from, false), BERTH_OK);
    assert_int_equal(berth_virtual_set_waits_run(device, true), BERTH_OK);
    t.buffer = buffer;
    assert_int_equal(berth_dlpack_export(&t, from, NULL, &out), BERTH_OK);
    assert_int_equal(berth_virtual_pending(from), 0);
    ((berth_dl_versioned *)out)->deleter(out);
    berth_buffer_release(buffer);
    berth_stream_destroy(from);
    berth_stream_destroy(to);
    berth_allocator_release(a);
    assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
}

/* ---- In ------------------------------------------------------------------------------------------------------ */

static int deleted;

static void count_versioned(struct DLManagedTensorVersioned *self)
{
    (void)self;
    deleted++;
}

static void count_managed(struct DLManagedTensor *self)
{
    (void)self;
    deleted++;
}

static float numbers[12];

static berth_dl_versioned produce(int64_t *shape, int64_t *strides, int32_t dims)
{
    berth_dl_versioned v = {.major = 1, .minor = 9, .deleter = count_versioned};
    v.tensor = (berth_dl_tensor){.data = numbers,
                                 .device_type = BERTH_DL_CPU,
                                 .dims = dims,
                                 .type = {BERTH_DL_FLOAT, 32, 1},
                                 .shape = shape,
                                 .strides = strides};
    deleted = 0;
    return v;
}

static berth_status import(berth_dl_versioned *v, berth_tensor *out)
{
    return berth_dlpack_import((struct DLManagedTensorVersioned *)v, out);
}

static void the_last_release_calls_the_deleter(void **state)
{
    (void)state;
    int64_t shape[] = {3, 4};
    berth_dl_versioned v = produce(shape, NULL, 2);
    v.flags = BERTH_DL_READ_ONLY;
    v.tensor.byte_offset = 0;
    berth_tensor t = BERTH_TENSOR_INIT;
    assert_int_equal(import(&v, &t), BERTH_OK);
    assert_int_equal(t.flags, BERTH_DL_READ_ONLY);
    assert_false(t.has_strides);
    assert_int_equal(t.strides[0], 4);
    assert_int_equal(berth_buffer_size(t.buffer), sizeof numbers);
    assert_ptr_equal(berth_buffer_data(t.buffer), numbers);
    assert_null(berth_buffer_allocator(t.buffer));
    berth_buffer *part = NULL;
    assert_int_equal(berth_buffer_sub(t.buffer, 4, 8, &part), BERTH_OK);
    berth_buffer_release(t.buffer);
    assert_int_equal(deleted, 0);
    berth_buffer_release(part);
    assert_int_equal(deleted, 1);

    berth_dl_managed m = {.tensor = v.tensor, .deleter = count_managed};
    assert_int_equal(berth_dlpack_import_unversioned((struct DLManagedTensor *)&m, &t), BERTH_OK);
    assert_int_equal(t.flags, 0);
    berth_buffer_release(t.buffer);
    assert_int_equal(deleted, 2);
    m.deleter = NULL; /* allowed */
    assert_int_equal(berth_dlpack_import_unversioned((struct DLManagedTensor *)&m, &t), BERTH_OK);
    berth_buffer_release(t.buffer);
}

static void a_buffer_begins_at_the_lowest_element(void **state)
{
    (void)state;
    int64_t shape[] = {3, 2}, strides[] = {-4, 2};
    berth_dl_versioned v = produce(shape, strides, 2);
    v.tensor.byte_offset = 9 * sizeof(float); /* from 9 down to 1, and 2 to the right */
    berth_tensor t = BERTH_TENSOR_INIT;
    assert_int_equal(import(&v, &t), BERTH_OK);
    assert_true(t.has_strides);
    assert_int_equal(t.strides[0], -4);
    assert_ptr_equal(berth_buffer_data(t.buffer), &numbers[1]);
    assert_int_equal(t.offset_bytes, 8 * sizeof(float));
    assert_int_equal(berth_buffer_size(t.buffer), 11 * sizeof(float));
    /* And out again, it is the same tensor. */
    struct DLManagedTensorVersioned *out = NULL;
    assert_int_equal(berth_dlpack_export(&t, NULL, NULL, &out), BERTH_OK);
    const berth_dl_versioned *w = (berth_dl_versioned *)out;
    assert_ptr_equal(w->tensor.data, &numbers[9]);
    assert_int_equal(w->tensor.strides[0], -4);
    assert_int_equal(w->tensor.strides[1], 2);
    berth_buffer_release(t.buffer);
    assert_int_equal(deleted, 0);
    ((berth_dl_versioned *)out)->deleter(out);
    assert_int_equal(deleted, 1);
}

static void what_is_not_understood_stays_the_callers(void **state)
{
    (void)state;
    int64_t shape[] = {2, 3}, many[64] = {0};
    berth_tensor t = BERTH_TENSOR_INIT;
    for (int i = 0; i < 9; i++) {
        berth_dl_versioned v = produce(shape, NULL, 2);
        berth_status expected = BERTH_UNSUPPORTED;
        switch (i) {
        case 0:
            v.major = 2;
            break;
        case 1:
            v.tensor.device_type = 8;
            break;
        case 2:
            v.tensor.device_type = BERTH_DL_OTHER;
            break;
        case 3:
            v.tensor.dims = 64, v.tensor.shape = many;
            break;
        case 4:
            v.tensor.dims = -1, expected = BERTH_INVALID_ARGUMENT;
            break;
        case 5:
            v.tensor.shape = NULL, expected = BERTH_INVALID_ARGUMENT;
            break;
        case 6:
            v.tensor.data = NULL, expected = BERTH_INVALID_ARGUMENT;
            break;
        case 7: /* its data would be a cl_mem */
            v.tensor.device_type = BERTH_DL_OPENCL;
            break;
        default:
            v.tensor.byte_offset = UINT64_MAX, expected = BERTH_OVERFLOW;
            break;
        }
        assert_int_equal(import(&v, &t), expected);
        assert_int_equal(deleted, 0);
        assert_null(t.buffer);
    }
    berth_dl_versioned v = produce(shape, NULL, 2);
    assert_int_equal(import(NULL, &t), BERTH_INVALID_ARGUMENT);
    assert_int_equal(import(&v, NULL), BERTH_INVALID_ARGUMENT);
    /* No elements need no memory, and no dimensions are one element. */
    shape[0] = 0;
    v.tensor.data = NULL;
    assert_int_equal(import(&v, &t), BERTH_OK);
    assert_int_equal(berth_buffer_size(t.buffer), 0);
    berth_buffer_release(t.buffer);
    v = produce(NULL, NULL, 0);
    assert_int_equal(import(&v, &t), BERTH_OK);
    assert_int_equal(berth_buffer_size(t.buffer), sizeof(float));
    berth_buffer_release(t.buffer);
}

/* Host memory that a driver pinned is the host's. */
static void pinned_memory_is_the_hosts(void **state)
{
    (void)state;
    int64_t shape[] = {12};
    for (int type = BERTH_DL_CUDA_HOST; type <= BERTH_DL_ROCM_HOST;
         type += BERTH_DL_ROCM_HOST - BERTH_DL_CUDA_HOST) {
        berth_dl_versioned v = produce(shape, NULL, 1);
        v.tensor.device_type = type;
        v.tensor.device_id = 3;
        berth_tensor t = BERTH_TENSOR_INIT;
        assert_int_equal(import(&v, &t), BERTH_OK);
        assert_true(berth_device_equal(berth_buffer_device(t.buffer), berth_device_cpu()));
        berth_buffer_release(t.buffer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_lent_describes_itself),
        cmocka_unit_test(the_older_form_has_no_flags),
        cmocka_unit_test(elements_outside_the_buffer_are_refused),
        cmocka_unit_test(elements_of_less_than_a_byte),
        cmocka_unit_test(the_consumers_stream_comes_after_and_holds_the_block),
        cmocka_unit_test(the_last_release_calls_the_deleter),
        cmocka_unit_test(a_buffer_begins_at_the_lowest_element),
        cmocka_unit_test(what_is_not_understood_stays_the_callers),
        cmocka_unit_test(pinned_memory_is_the_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
