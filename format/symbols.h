/* What stands at an address of a module: function, file and line, with the functions that were inlined there. */
#ifndef BERTH_FORMAT_SYMBOLS_H
#define BERTH_FORMAT_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct format_symbols format_symbols;

typedef struct format_symbol {
    const char *function; /* NULL: unknown. Lives until the next question */
    const char *file;     /* likewise */
    uint32_t line;
} format_symbol;

/* Called for each, the innermost first. */
typedef void (*format_symbol_fn)(void *context, const format_symbol *symbol);

/* NULL: no memory. */
format_symbols *format_symbols_create(void);
void format_symbols_destroy(format_symbols *symbols);

/* A file as it was mapped; its number for questions, or 0 if it cannot be read or is not the one (by build id, in hexadecimal
 * digits, if there is one). */
uint32_t format_symbols_module(format_symbols *symbols, const char *path, const char *build_id,
                               uint64_t base);

/* Tells what stands at `address` of the process. How many were told; 0: nothing is known. */
unsigned format_symbols_find(format_symbols *symbols, uint32_t module, uint64_t address,
                             format_symbol_fn tell, void *context);

#endif
