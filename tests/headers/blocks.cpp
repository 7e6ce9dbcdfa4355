// The same file as C++.
#include "blocks.c"
