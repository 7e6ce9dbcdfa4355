/* Choosing how many classes a doubling a bound on waste needs. */
#include "host/size_class.h"

bool berth__size_classes_init(berth__size_classes *classes, double max_waste)
{
    if (!(max_waste >= 1.0 / 64 && max_waste <= 1.0))
        return false;
    uint32_t log2 = 0;
    while (1.0 / (double)(1u << log2) > max_waste)
        log2++;
    classes->per_doubling_log2 = log2;
    classes->count = berth__class_of(classes, BERTH__CLASS_BYTES_MAX) + 1;
    return true;
}
