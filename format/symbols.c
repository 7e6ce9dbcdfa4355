/* Symbols by elfutils' libdw, which reads symbol tables and DWARF, also in separate files found by build id. */
#include "format/symbols.h"

#include <stdlib.h>
#include <string.h>

#ifdef BERTH_HAVE_DW
#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* A symbol's, as the first process had it. */
struct place {
    uint64_t start, end;
    uint64_t farthest; /* the largest end up to here: who looks back need not look farther */
    const char *name;  /* the module's */
    uint8_t rank;      /* of several at one place the one that others link to */
};

/* Code of a unit of debug information. */
struct unit {
    uint64_t start, end;
    Dwarf_Die *die; /* the module's */
};

/* A file that was read once for all processes that mapped it: a program starts many others that share their libraries, and each
 * open file takes a descriptor, of which there are few. */
struct loaded {
    Dwfl *dwfl; /* one a file: several may have been mapped at one place, one after the other */
    Dwfl_Module *module;
    char *path, *build_id;
    uint64_t base;        /* where the first process had it */
    struct place *places; /* of its symbol tables, by address; made when one is asked for */
    size_t place_count;
    bool has_places;
    struct unit *units; /* by address; made when one is asked for that no index has */
    size_t unit_count;
    Dwarf_Addr unit_bias;
    bool has_units;
};

/* What stands at an address. The same one is asked for again and again, once for each stack that it is part of, and a look into
 * DWARF walks all of a unit: half a millisecond. */
struct answer {
    uint32_t file; /* plus 1; 0: nothing is kept here */
    uint32_t count;
    uint64_t address;
    format_symbol *told; /* with function names of its own */
};

enum { ANSWERS = 1 << 14 };

struct format_symbols {
    struct loaded *files;
    uint32_t file_count, file_room;
    struct mapped {
        uint32_t file;
        uint64_t base;
    } * items;
    uint32_t count, room;
    void *library; /* of C++, if there is one */
    char *(*demangle)(const char *name, char *room, size_t *size, int *status);
    char *plain;                    /* the last name that was demangled */
    struct answer answers[ANSWERS]; /* by hash: a newer one replaces an older one */
};

/* ---- C++ names ---------------------------------------------------------------------------------------- */

/* The command is C, and does not need the library of C++: where there is one it is asked, else names stay mangled. */
static void symbols_find_demangler(format_symbols *symbols)
{
    static const char *const libraries[] = {"libstdc++.so.6", "libc++abi.so.1"};
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0] && !symbols->demangle; i++) {
        symbols->library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
        if (symbols->library)
            *(void **)&symbols->demangle = dlsym(symbols->library, "__cxa_demangle");
        if (symbols->library && !symbols->demangle)
            dlclose(symbols->library);
    }
}

/* Templates of templates may have names of megabytes, which nobody reads. */
static const char *symbols_plain_name(format_symbols *symbols, const char *name)
{
    enum { MANGLED_MOST = 1024, PLAIN_MOST = 2048 };
    int status;
    if (!name || strncmp(name, "_Z", 2) != 0 || strlen(name) > MANGLED_MOST || !symbols->demangle)
        return name;
    char *plain = symbols->demangle(name, NULL, NULL, &status);
    if (!plain)
        return name;
    free(symbols->plain);
    symbols->plain = plain;
    if (strlen(plain) > PLAIN_MOST) {
        size_t end = PLAIN_MOST;
        while (end && (plain[end] & 0xc0) == 0x80) /* not inside a character */
            end--;
        plain[end] = 0;
    }
    return plain;
}

/* ---- Modules ------------------------------------------------------------------------------------------ */

static char *debug_path;
static const Dwfl_Callbacks callbacks = {
    .find_elf = dwfl_build_id_find_elf,
    .find_debuginfo = dwfl_standard_find_debuginfo,
    .section_address = dwfl_offline_section_address,
    .debuginfo_path = &debug_path,
};

format_symbols *format_symbols_create(void)
{
    format_symbols *symbols = calloc(1, sizeof *symbols);
    if (symbols)
        symbols_find_demangler(symbols);
    return symbols;
}

static void loaded_finish(struct loaded *file)
{
    if (file->dwfl)
        dwfl_end(file->dwfl);
    free(file->path);
    free(file->build_id);
    free(file->places);
    free(file->units);
}

static void answer_finish(struct answer *answer)
{
    for (uint32_t i = 0; i < answer->count; i++)
        free((void *)(uintptr_t)answer->told[i].function);
    free(answer->told);
    *answer = (struct answer){0};
}

void format_symbols_destroy(format_symbols *symbols)
{
    if (!symbols)
        return;
    for (uint32_t i = 0; i < symbols->file_count; i++)
        loaded_finish(&symbols->files[i]);
    for (uint32_t i = 0; i < ANSWERS; i++)
        answer_finish(&symbols->answers[i]);
    free(symbols->files);
    free(symbols->items);
    free(symbols->plain);
    if (symbols->demangle)
        dlclose(symbols->library);
    free(symbols);
}

/* Whether the file is the one that was mapped, as far as is known: a rebuilt one would give wrong names, one whose id is only
 * the beginning of the other just so. */
static bool has_build_id(Dwfl_Module *module, const char *expected)
{
    const unsigned char *bits;
    GElf_Addr address;
    if (!*expected)
        return true;
    int length = dwfl_module_build_id(module, &bits, &address);
    if (length <= 0 || strlen(expected) != 2 * (size_t)length)
        return false;
    for (int i = 0; i < length; i++) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", bits[i]);
        if (strncmp(expected + 2 * (size_t)i, digits, 2) != 0)
            return false;
    }
    return true;
}

/* The path is the trace's, which may come from anybody: opening a pipe or a terminal would wait. -1: no ordinary file. */
static int open_ordinary(const char *path)
{
    struct stat s;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file >= 0 && (fstat(file, &s) || !S_ISREG(s.st_mode))) {
        close(file);
        return -1;
    }
    return file;
}

static Dwfl_Module *load(Dwfl *dwfl, const char *path, const char *build_id, uint64_t base)
{
    int file = open_ordinary(path);
    if (file < 0)
        return NULL;
    dwfl_report_begin(dwfl);
    Dwfl_Module *module = dwfl_report_elf(dwfl, "module", path, file, base, false);
    dwfl_report_end(dwfl, NULL, NULL);
    if (!module) /* else it is the module's */
        close(file);
    return module && has_build_id(module, build_id) ? module : NULL;
}

/* Room for one more of `size` bytes. */
static bool symbols_grow(void **items, uint32_t count, uint32_t *room, size_t size)
{
    if (count < *room)
        return true;
    uint32_t more = *room ? *room * 2 : 16;
    void *grown = realloc(*items, more * size);
    if (!grown)
        return false;
    *items = grown;
    *room = more;
    return true;
}

/* The number of the file; what cannot be read is kept too, so that nobody tries again. False: no memory. */
static bool symbols_file(format_symbols *symbols, const char *path, const char *build_id, uint64_t base,
                         uint32_t *number)
{
    for (*number = 0; *number < symbols->file_count; ++*number)
        if (strcmp(symbols->files[*number].path, path) == 0 &&
            strcmp(symbols->files[*number].build_id, build_id) == 0)
            return true;
    if (!symbols_grow((void **)&symbols->files, symbols->file_count, &symbols->file_room,
                      sizeof *symbols->files))
        return false;
    struct loaded file = {
        .dwfl = dwfl_begin(&callbacks), .path = strdup(path), .build_id = strdup(build_id), .base = base};
    if (!file.path || !file.build_id) {
        loaded_finish(&file);
        return false;
    }
    file.module = file.dwfl ? load(file.dwfl, path, build_id, base) : NULL;
    if (!file.module && file.dwfl) { /* descriptors are few */
        dwfl_end(file.dwfl);
        file.dwfl = NULL;
    }
    symbols->files[symbols->file_count++] = file;
    return true;
}

uint32_t format_symbols_module(format_symbols *symbols, const char *path, const char *build_id, uint64_t base)
{
    uint32_t file;
    if (!symbols_file(symbols, path, build_id, base, &file) || !symbols->files[file].module ||
        !symbols_grow((void **)&symbols->items, symbols->count, &symbols->room, sizeof *symbols->items))
        return 0;
    symbols->items[symbols->count++] = (struct mapped){file, base};
    return symbols->count;
}

/* ---- Symbol tables ------------------------------------------------------------------------------------ */

/* libdwfl goes through all symbols of a file for each address: 25 ms of node's. So they are sorted once. */

/* Of several names of one function the one that people write is the plainest. */
static size_t odd_of(const char *name)
{
    return strspn(name, "_") + (strchr(name, '@') || strchr(name, '.') ? 4 : 0);
}

/* Whoever looks from behind finds the better ones first. */
static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if ((x->end > x->start) != (y->end > y->start)) /* else it is a label */
        return x->end > x->start ? 1 : -1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    size_t x_odd = odd_of(x->name), y_odd = odd_of(y->name);
    return x_odd != y_odd ? (x_odd > y_odd ? -1 : 1) : strcmp(y->name, x->name);
}

/* False: it names no code or data. */
static bool take_symbol(Dwfl_Module *module, int number, struct place *place)
{
    GElf_Sym symbol;
    GElf_Addr address;
    GElf_Word section = 0;
    const char *name = dwfl_module_getsym_info(module, number, &symbol, &address, &section, NULL, NULL);
    int type = name ? GELF_ST_TYPE(symbol.st_info) : STT_NOTYPE, bind = GELF_ST_BIND(symbol.st_info);
    if (!name || !*name || section == SHN_UNDEF || section == SHN_ABS || type == STT_SECTION ||
        type == STT_FILE || type == STT_TLS)
        return false;
    *place = (struct place){.start = address,
                            .end = address + symbol.st_size,
                            .name = name,
                            .rank = bind == STB_LOCAL  ? 0
                                    : bind == STB_WEAK ? 1
                                                       : 2};
    return true;
}

/* Without memory there are none. */
static void loaded_take_symbols(struct loaded *file)
{
    int count = dwfl_module_getsymtab(file->module);
    uint64_t farthest = 0;
    file->has_places = true;
    file->places = count > 0 ? malloc((size_t)count * sizeof *file->places) : NULL;
    if (!file->places)
        return;
    for (int i = 0; i < count; i++)
        file->place_count += take_symbol(file->module, i, &file->places[file->place_count]);
    if (file->place_count)
        qsort(file->places, file->place_count, sizeof *file->places, compare_places);
    for (size_t i = 0; i < file->place_count; i++) {
        farthest = file->places[i].end > farthest ? file->places[i].end : farthest;
        file->places[i].farthest = farthest;
    }
}

/* The symbol that holds an address; else, in code of an assembler, the label before it, which libdwfl tells. */
static const char *symbol_at(struct loaded *file, uint64_t address)
{
    if (!file->has_places)
        loaded_take_symbols(file);
    size_t low = 0, high = file->places ? file->place_count : 0; /* the last one that begins at or before */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (file->places[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = low; i-- > 0 && file->places[i].farthest > address;)
        if (file->places[i].end > address)
            return file->places[i].name;
    bool is_label = low && file->places[low - 1].end == file->places[low - 1].start;
    return is_label ? dwfl_module_addrname(file->module, address) : NULL;
}

/* ---- Units of debug information ---------------------------------------------------------------------- */

/* libdw finds a unit by the index .debug_aranges, which gcc writes; clang and rustc do not, and then it finds none. */

static int compare_units(const void *a, const void *b)
{
    const struct unit *x = a, *y = b;
    return x->start != y->start ? (x->start < y->start ? -1 : 1) : 0;
}

/* Without memory there are fewer. */
static void loaded_take_units(struct loaded *file)
{
    Dwarf_Addr base, start, end;
    size_t room = 0;
    file->has_units = true;
    for (Dwarf_Die *die = NULL; (die = dwfl_module_nextcu(file->module, die, &file->unit_bias));) {
        ptrdiff_t next = 0;
        while ((next = dwarf_ranges(die, next, &base, &start, &end)) > 0) {
            if (file->unit_count == room) {
                room = room ? 2 * room : 64;
                struct unit *more = realloc(file->units, room * sizeof *more);
                if (!more)
                    break;
                file->units = more;
            }
            file->units[file->unit_count++] =
                (struct unit){start + file->unit_bias, end + file->unit_bias, die};
        }
    }
    if (file->unit_count)
        qsort(file->units, file->unit_count, sizeof *file->units, compare_units);
}

static Dwarf_Die *unit_at(struct loaded *file, uint64_t address, Dwarf_Addr *bias)
{
    Dwarf_Die *indexed = dwfl_module_addrdie(file->module, address, bias);
    if (indexed)
        return indexed;
    if (!file->has_units)
        loaded_take_units(file);
    *bias = file->unit_bias;
    size_t low = 0, high = file->unit_count; /* the last one that begins at or before */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (file->units[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low && file->units[low - 1].end > address ? file->units[low - 1].die : NULL;
}

/* ---- Places ------------------------------------------------------------------------------------------- */

/* The name that a linker would know, else the plain one; of an inlined function its origin's. */
static const char *function_name(Dwarf_Die *die)
{
    Dwarf_Attribute attribute;
    const char *name = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute));
    if (!name)
        name = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attribute));
    return name ? name : dwarf_diename(die);
}

static void call_place(Dwarf_Die *unit, Dwarf_Die *inlined, const char **file, uint32_t *line)
{
    Dwarf_Attribute attribute;
    Dwarf_Word number;
    Dwarf_Files *files;
    *file = NULL;
    *line = 0;
    if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &number) == 0)
        *line = (uint32_t)number;
    if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &number) == 0 &&
        dwarf_getsrcfiles(unit, &files, NULL) == 0)
        *file = dwarf_filesrc(files, number, NULL, NULL);
}

/* From the debug information: the scopes around the address, innermost first, as far as the function that is no part of
 * another. `at` is the place in the innermost one. */
static unsigned tell_scopes(format_symbols *symbols, Dwarf_Die *unit, uint64_t address, format_symbol at,
                            format_symbol_fn tell, void *context)
{
    Dwarf_Die *here = NULL, *scopes = NULL;
    /* Behind an inlined function come the scopes in which it was written; who it has become a part of is asked by its place. */
    int count = unit ? dwarf_getscopes(unit, address, &here) : 0;
    if (count > 0)
        count = dwarf_getscopes_die(&here[0], &scopes);
    unsigned told = 0;
    for (int i = 0; i < count; i++) {
        int tag = dwarf_tag(&scopes[i]);
        if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram)
            continue;
        at.function = symbols_plain_name(symbols, function_name(&scopes[i]));
        tell(context, &at);
        told++;
        if (tag == DW_TAG_subprogram)
            break;
        call_place(unit, &scopes[i], &at.file, &at.line);
    }
    free(here);
    free(scopes);
    return told;
}

static void tell_place(format_symbols *symbols, struct loaded *file, uint64_t address, format_symbol_fn tell,
                       void *context)
{
    Dwarf_Addr bias = 0;
    Dwarf_Die *unit = unit_at(file, address, &bias);
    format_symbol at = {0};
    int line = 0;
    Dwarf_Line *found = unit ? dwarf_getsrc_die(unit, address - bias) : NULL;
    if (found && dwarf_lineno(found, &line) == 0)
        at.file = dwarf_linesrc(found, NULL, NULL);
    at.line = (uint32_t)line;
    if (tell_scopes(symbols, unit, address - bias, at, tell, context))
        return;
    at.function = symbols_plain_name(symbols, symbol_at(file, address));
    if (at.function || at.file)
        tell(context, &at);
}

/* Without memory the rest stays untold. */
static void answer_add(void *context, const format_symbol *symbol)
{
    struct answer *answer = context;
    format_symbol *told = realloc(answer->told, (answer->count + 1) * sizeof *told);
    char *function = symbol->function ? strdup(symbol->function) : NULL;
    if (told)
        answer->told = told;
    if (!told || (symbol->function && !function)) {
        free(function);
        return;
    }
    told[answer->count++] = (format_symbol){function, symbol->file, symbol->line};
}

unsigned format_symbols_find(format_symbols *symbols, uint32_t module, uint64_t address,
                             format_symbol_fn tell, void *context)
{
    if (!module || module > symbols->count)
        return 0;
    const struct mapped *mapped = &symbols->items[module - 1];
    struct loaded *file = &symbols->files[mapped->file];
    address += file->base - mapped->base; /* where it would stand in the first process */
    uint64_t hash = (address ^ (uint64_t)mapped->file << 48) * UINT64_C(0x9e3779b97f4a7c15);
    struct answer *answer = &symbols->answers[(hash >> 32) % ANSWERS];
    if (answer->file != mapped->file + 1 || answer->address != address) {
        answer_finish(answer);
        answer->file = mapped->file + 1;
        answer->address = address;
        tell_place(symbols, file, address, answer_add, answer);
    }
    for (uint32_t i = 0; i < answer->count; i++)
        tell(context, &answer->told[i]);
    return answer->count;
}
#else
struct format_symbols {
    char none;
};

format_symbols *format_symbols_create(void)
{
    return calloc(1, sizeof(format_symbols));
}
void format_symbols_destroy(format_symbols *symbols)
{
    free(symbols);
}
uint32_t format_symbols_module(format_symbols *symbols, const char *path, const char *build_id, uint64_t base)
{
    (void)symbols, (void)path, (void)build_id, (void)base;
    return 0;
}
unsigned format_symbols_find(format_symbols *symbols, uint32_t module, uint64_t address,
                             format_symbol_fn tell, void *context)
{
    (void)symbols, (void)module, (void)address, (void)tell, (void)context;
    return 0;
}
#endif
