/* The version that the library was built as. */
#include "berth/version.h"

const char *berth_version(void)
{
    return BERTH_VERSION;
}
