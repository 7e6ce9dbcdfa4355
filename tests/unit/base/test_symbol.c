/* Names from ELF files: static functions are found, and damaged files are answered, never believed. */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/symbol.h"

__attribute__((noinline)) static int hidden_function(int x)
{
    __asm__ volatile("" : "+r"(x));
    return x + 1;
}

static void a_static_function_has_a_name(void **state)
{
    (void)state;
    Dl_info info;
    char name[64];
    uint64_t offset = 99;
    const char *here = (const char *)(uintptr_t)hidden_function;
    assert_int_equal(hidden_function(1), 2);
    assert_true(dladdr(here, &info));
    assert_null(info.dli_sname); /* else this test would test nothing */
    /* The program's name is not a path here: the file is found all the same. */
    assert_true(berth__symbol_of(here, info.dli_fbase, "no/such/file", name, sizeof name, &offset));
    assert_string_equal(name, "hidden_function");
    assert_int_equal(offset, 0);
    char tiny[7];
    assert_true(berth__symbol_of(here + 1, info.dli_fbase, NULL, tiny, sizeof tiny, &offset));
    assert_string_equal(tiny, "hidden");
    assert_int_equal(offset, 1);
    assert_false(berth__symbol_of(here, info.dli_fbase, NULL, tiny, 0, &offset));
}

/* ---- A small file of our own ------------------------------------------------------------------------- */

struct image {
    Elf64_Ehdr header;
    Elf64_Phdr piece;
    Elf64_Shdr sections[3];
    Elf64_Sym symbols[2];
    char strings[8];
};

static struct image good_image(void)
{
    struct image image = {.header = {.e_phoff = offsetof(struct image, piece),
                                     .e_phentsize = sizeof(Elf64_Phdr),
                                     .e_phnum = 1,
                                     .e_shoff = offsetof(struct image, sections),
                                     .e_shentsize = sizeof(Elf64_Shdr),
                                     .e_shnum = 3},
                          .piece = {.p_type = PT_LOAD},
                          .strings = "\0found"};
    memcpy(image.header.e_ident, ELFMAG, SELFMAG);
    image.header.e_ident[EI_CLASS] = ELFCLASS64;
    image.header.e_ident[EI_DATA] = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
    image.sections[1] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                                     .sh_offset = offsetof(struct image, symbols),
                                     .sh_size = sizeof image.symbols,
                                     .sh_entsize = sizeof(Elf64_Sym),
                                     .sh_link = 2};
    image.sections[2] = (Elf64_Shdr){
        .sh_type = SHT_STRTAB, .sh_offset = offsetof(struct image, strings), .sh_size = sizeof image.strings};
    image.symbols[1] = (Elf64_Sym){.st_name = 1,
                                   .st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC),
                                   .st_shndx = 1,
                                   .st_value = 16,
                                   .st_size = 8};
    return image;
}

/* Whether `size_bytes` of the image give a name for `address`; if so it is closed by a zero. */
static bool ask(const struct image *image, size_t size_bytes, uint64_t address, char name[16])
{
    uint64_t offset;
    int fd = memfd_create("image", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, image, size_bytes), (ssize_t)size_bytes);
    memset(name, 'x', 16);
    bool found = berth__symbol_in_file(fd, address, name, 16, &offset);
    if (found)
        assert_non_null(memchr(name, 0, 16));
    close(fd);
    return found;
}

static void a_function_ends_where_it_ends(void **state)
{
    (void)state;
    struct image image = good_image();
    char name[16];
    assert_true(ask(&image, sizeof image, 16, name));
    assert_string_equal(name, "found");
    assert_true(ask(&image, sizeof image, 23, name));
    assert_false(ask(&image, sizeof image, 15, name));
    assert_false(ask(&image, sizeof image, 24, name));
}

/* The system as another one, with larger pages (see tests/CMakeLists.txt). */
static long page_bytes; /* 0: as they are */

long __real_sysconf(int name);
long __wrap_sysconf(int name);
long __wrap_sysconf(int name)
{
    return name == _SC_PAGESIZE && page_bytes ? page_bytes : __real_sysconf(name);
}

/* A file whose first piece begins in the middle of a page is loaded from the page's start on. */
static void a_module_starts_at_a_page_of_the_system(void **state)
{
    (void)state;
    static const char module[1]; /* where it would be; only compared */
    struct image image = good_image();
    char path[64], name[16];
    uint64_t offset;
    image.piece.p_vaddr = 0x1f000;
    image.symbols[1].st_value = 0x1f010;
    int fd = memfd_create("image", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, &image, sizeof image), (ssize_t)sizeof image);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (uintptr_t page = 0x1000; page <= 0x10000; page *= 4) {
        page_bytes = (long)page;
        uintptr_t at = 0x1f014 - 0x1f000 / page * page;
        bool found = berth__symbol_of((const void *)((uintptr_t)module + at), module, path, name, sizeof name,
                                      &offset);
        page_bytes = 0;
        assert_true(found);
        assert_string_equal(name, "found");
        assert_int_equal(offset, 4);
    }
    close(fd);
}

static void damaged_files_are_answered(void **state)
{
    (void)state;
    struct image image = good_image();
    char name[16];
    /* Up to the strings everything is needed. */
    for (size_t length = 0; length <= offsetof(struct image, strings); length++)
        assert_false(ask(&image, length, 16, name));
    static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff};
    for (size_t at = 0; at < sizeof image; at++)
        for (size_t v = 0; v < sizeof values; v++) {
            struct image bad = image;
            ((unsigned char *)&bad)[at] = values[v];
            (void)ask(&bad, sizeof bad, 16, name);
        }
    for (size_t at = 0; at + 8 <= sizeof image; at += 4) { /* whole fields, which a byte does not make huge */
        struct image bad = image;
        memset((char *)&bad + at, 0xff, 8);
        (void)ask(&bad, sizeof bad, 16, name);
    }
}

static void a_string_table_without_an_end_is_cut(void **state)
{
    (void)state;
    struct image image = good_image();
    char name[16];
    memset(image.strings, 'y', sizeof image.strings);
    assert_true(ask(&image, sizeof image, 16, name));
    assert_string_equal(name, "yyyyyyy");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_static_function_has_a_name),
        cmocka_unit_test(a_function_ends_where_it_ends),
        cmocka_unit_test(a_module_starts_at_a_page_of_the_system),
        cmocka_unit_test(damaged_files_are_answered),
        cmocka_unit_test(a_string_table_without_an_end_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
