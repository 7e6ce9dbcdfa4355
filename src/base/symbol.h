/* Names of functions, static ones too: read from the symbol table of the file a module was loaded from. */
#ifndef BERTH_BASE_SYMBOL_H
#define BERTH_BASE_SYMBOL_H

#include "base/base.h"

/* The function of the 64-bit ELF file `fd` that holds `address`, as the file counts addresses: its name into
 * `name`, cut to fit, and how far inside it is. False: none, no symbol table, or no such file. Any content is
 * safe. Any thread; asks for no memory. */
bool berth__symbol_in_file(int fd, uint64_t address, char *name, size_t capacity, uint64_t *offset);

/* The same for an address of the running program, in the module that lies at `module`, loaded from `path`. */
bool berth__symbol_of(const void *address, const void *module, const char *path, char *name, size_t capacity,
                      uint64_t *offset);

/* A return address as "module(function+0x12)", "module(+0x34)" or a bare number into `text`, cut to fit. */
void berth__symbol_format(const void *frame, char *text, size_t capacity);

#endif
