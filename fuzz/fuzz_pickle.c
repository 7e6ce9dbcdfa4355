/* Any bytes as a pickle of a memory snapshot: refused with words, or read, in bounded memory. */
#include <stdlib.h>

#include "format/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Half of all dictionaries are dropped when they are appended, as events are. */
static bool take_item(void *context, struct format_pickle_object *list,
                      const struct format_pickle_object *item)
{
    (void)context;
    list->tag++;
    return item->count % 2 == 0 && list->tag % 2;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    format_history h = {0};
    format_pickle *pickle = NULL;
    format_pickle_value value;
    format_error error = {0};
    if (!format_history_init(&h, "fuzz"))
        abort();
    if (format_pickle_read(data, size, &h, take_item, NULL, NULL, &pickle, &value, &error)) {
        if (!error.words[0])
            abort();
    } else if (value.type == FORMAT_PICKLE_DICT) {
        (void)format_pickle_number(value.as.object, format_history_text(&h, "size", 4));
    }
    format_pickle_destroy(pickle);
    format_history_finish(&h);
    return 0;
}
