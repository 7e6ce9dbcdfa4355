/* Any bytes as the memory behind a descriptor that somebody sent: attaching answers, and never faults. Once as they are and, since
 * few inputs guess it, once with a good checksum. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "berth/berth.h"
#include "shared/shared.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned sum; /* so that what is read is read */

static void touch_all(berth_shared *s)
{
    size_t id = 0, bytes = 0;
    berth_plan *plan = NULL;
    for (size_t i = 0; i < berth_shared_count(s); i++) {
        void *at = NULL;
        if (berth_shared_get(s, i, &at, &bytes) == BERTH_OK)
            sum += ((unsigned char *)at)[0] + ((unsigned char *)at)[bytes - 1];
    }
    (void)berth_shared_find(s, "a", &id);
    (void)berth_shared_plan(s, &plan);
    (void)berth_shared_wait(s, 0, 0, NULL);
    (void)berth_shared_read_begin(s, NULL);
    berth_plan_release(plan);
}

static void attach(const void *bytes, size_t size, uint64_t file_bytes)
{
    int descriptor = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    berth_shared *s = NULL;
    if (descriptor >= 0 && ftruncate(descriptor, (off_t)file_bytes) == 0 &&
        pwrite(descriptor, bytes, size, 0) == (ssize_t)size &&
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0 &&
        berth_shared_attach(descriptor, NULL, &s) == BERTH_OK)
        touch_all(s);
    berth_shared_release(s);
    if (descriptor >= 0)
        close(descriptor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = 1 << 16 };
    const uint64_t file_most = UINT64_C(1) << 40;
    if (size < sizeof(berth__shared_head) || size > MOST)
        return 0;
    attach(data, size, size);
    char *copy = malloc(MOST);
    if (!copy)
        return 0;
    memset(copy, 0, MOST);
    memcpy(copy, data, size);
    berth__shared_head *head = (berth__shared_head *)(void *)copy;
    uint64_t bytes = berth__shared_file_bytes(head);
    if (bytes >= size && bytes <= file_most && head->image_bytes >= BERTH__SHARED_TABLE &&
        head->image_bytes <= MOST) {
        head->checksum = berth__shared_checksum(copy);
        attach(copy, size, bytes);
    }
    free(copy);
    return 0;
}
