/* Reads ELF symbol tables. The file is read piece by piece and never mapped: one that is cut short meanwhile is
 * a short read and not a signal. Every number in it is checked before it is used. */
#include "base/symbol.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum { SYMBOLS_AT_ONCE = 64 };

/* All of it or nothing. */
static bool read_at(int fd, uint64_t at, void *to, size_t size_bytes)
{
    return at <= INT64_MAX && pread(fd, to, size_bytes, (off_t)at) == (ssize_t)size_bytes;
}

/* The entry number `index` of a table at `table`. */
static bool read_entry(int fd, uint64_t table, uint64_t index, void *to, size_t entry_bytes)
{
    uint64_t at;
    return !berth__mul_overflows(index, entry_bytes, &at) && !berth__add_overflows(at, table, &at) &&
           read_at(fd, at, to, entry_bytes);
}

static bool read_header(int fd, Elf64_Ehdr *header)
{
    static const uint16_t one = 1;
    unsigned char native = *(const unsigned char *)&one ? ELFDATA2LSB : ELFDATA2MSB;
    return read_at(fd, 0, header, sizeof *header) && memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
           header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_ident[EI_DATA] == native &&
           header->e_shentsize == sizeof(Elf64_Shdr) && header->e_phentsize == sizeof(Elf64_Phdr);
}

/* The symbol table and the strings that belong to it. */
static bool find_table(int fd, const Elf64_Ehdr *header, Elf64_Shdr *symbols, Elf64_Shdr *strings)
{
    for (uint64_t i = 0; i < header->e_shnum; i++) {
        if (!read_entry(fd, header->e_shoff, i, symbols, sizeof *symbols))
            return false;
        if (symbols->sh_type == SHT_SYMTAB && symbols->sh_entsize == sizeof(Elf64_Sym))
            return symbols->sh_link < header->e_shnum &&
                   read_entry(fd, header->e_shoff, symbols->sh_link, strings, sizeof *strings) &&
                   strings->sh_type == SHT_STRTAB;
    }
    return false;
}

static bool read_name(int fd, const Elf64_Shdr *strings, uint32_t at, char *name, size_t capacity)
{
    uint64_t begin;
    if (at >= strings->sh_size || berth__add_overflows(strings->sh_offset, at, &begin) || begin > INT64_MAX)
        return false;
    uint64_t room = strings->sh_size - at < capacity ? strings->sh_size - at : capacity;
    ssize_t length = pread(fd, name, (size_t)room, (off_t)begin);
    if (length <= 0)
        return false;
    name[(size_t)length < capacity ? (size_t)length : capacity - 1] = '\0';
    return name[0] != '\0';
}

static bool symbol_holds(const Elf64_Sym *symbol, uint64_t address)
{
    return ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF &&
           address >= symbol->st_value && address - symbol->st_value < symbol->st_size;
}

bool berth__symbol_in_file(int fd, uint64_t address, char *name, size_t capacity, uint64_t *offset)
{
    Elf64_Ehdr header;
    Elf64_Shdr symbols, strings;
    if (capacity == 0 || !read_header(fd, &header) || !find_table(fd, &header, &symbols, &strings))
        return false;
    Elf64_Sym some[SYMBOLS_AT_ONCE];
    uint64_t count = symbols.sh_size / sizeof *some;
    for (uint64_t i = 0; i < count;) {
        uint64_t left = count - i, at;
        size_t n = left < SYMBOLS_AT_ONCE ? (size_t)left : SYMBOLS_AT_ONCE;
        if (berth__add_overflows(symbols.sh_offset, i * sizeof *some, &at) ||
            !read_at(fd, at, some, n * sizeof *some))
            return false; /* the end of the file comes first, whatever the count says */
        for (const Elf64_Sym *s = some; s < some + n; s++)
            if (symbol_holds(s, address)) {
                *offset = address - s->st_value;
                return read_name(fd, &strings, s->st_name, name, capacity);
            }
        i += n;
    }
    return false;
}

/* What the file calls the address at which its first piece was loaded: at a page of this system, which may be larger than
 * those that the file was made for. */
static bool first_address(int fd, uint64_t *out)
{
    Elf64_Ehdr header;
    Elf64_Phdr piece;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (!read_header(fd, &header))
        return false;
    for (uint64_t i = 0; i < header.e_phnum; i++) {
        if (!read_entry(fd, header.e_phoff, i, &piece, sizeof piece))
            return false;
        if (piece.p_type == PT_LOAD) {
            *out = piece.p_vaddr / page * page;
            return true;
        }
    }
    return false;
}

/* The program is known by how it was called, which need not be a path, nor one from this folder. */
static bool is_program(const void *module)
{
    Dl_info info;
    uintptr_t headers = getauxval(AT_PHDR);
    return headers && dladdr((void *)headers, &info) && info.dli_fbase == module;
}

bool berth__symbol_of(const void *address, const void *module, const char *path, char *name, size_t capacity,
                      uint64_t *offset)
{
    const char *real = is_program(module) ? "/proc/self/exe" : path;
    int fd = real ? open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0)
        return false;
    uint64_t first;
    bool found = first_address(fd, &first) &&
                 berth__symbol_in_file(fd, (uint64_t)((uintptr_t)address - (uintptr_t)module) + first, name,
                                       capacity, offset);
    close(fd);
    return found;
}

static const char *last_part(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "?";
}

void berth__symbol_format(const void *frame, char *text, size_t capacity)
{
    const char *call = (const char *)frame - 1; /* what it returns to may be the next function already */
    Dl_info info;
    char name[128];
    uint64_t offset;
    if (!dladdr(call, &info))
        snprintf(text, capacity, "%p", frame);
    else if (info.dli_sname)
        snprintf(text, capacity, "%s(%s+0x%zx)", last_part(info.dli_fname), info.dli_sname,
                 (size_t)((const char *)frame - (const char *)info.dli_saddr));
    else if (berth__symbol_of(call, info.dli_fbase, info.dli_fname, name, sizeof name, &offset))
        /* Programs export few of their functions, and nobody a static one. */
        snprintf(text, capacity, "%s(%s+0x%llx)", last_part(info.dli_fname), name,
                 (unsigned long long)offset + 1);
    else
        snprintf(text, capacity, "%s(+0x%zx)", last_part(info.dli_fname),
                 (size_t)((const char *)frame - (const char *)info.dli_fbase));
}
