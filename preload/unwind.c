/* What a return address says of its frame, from .eh_frame (DWARF's call frame information), which all code for x86-64 has. */
#include "preload/unwind.h"

#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "preload/recorder.h"

#if defined(__x86_64__)

/* ---- Rules -------------------------------------------------------------------------------------------- */

enum { NONE = 0, STEP = 1, END = 2, FOREIGN = 3 };
enum { RBP = 6, RSP = 7, RETURN = 16 }; /* registers as the tables number them */

struct rule {
    uint32_t kind;
    bool by_rbp;         /* else by rsp */
    uint64_t cfa_offset; /* from that register */
    uint64_t rbp_offset; /* below the canonical frame address; 0: rbp is as it was */
};

/* A word of the table, so that threads need no lock:
 *
 *     63      34 33          17 16     15           3 2    1 0
 *     | rest   | cfa_offset/8 | by_rbp | rbp_offset/8 |  -  | kind |
 *
 * An address has 47 bits. Multiplied by an odd number it is another one of 47, and nothing is lost: 17 of them are the place in
 * the table, 30 the rest. */
enum { PLACE_BITS = 17, REST_BITS = 30, CFA_BITS = 17, RBP_BITS = 13 };
static const uint64_t address_mask = (UINT64_C(1) << (PLACE_BITS + REST_BITS)) - 1;
static const uint64_t rest_mask = (UINT64_C(1) << REST_BITS) - 1;

static _Atomic(_Atomic uint64_t *) table;

static uint64_t address_mix(uint64_t address)
{
    return address * UINT64_C(0x5851f42d4c957f2d) & address_mask;
}

static uint64_t rule_pack(const struct rule *r, uint64_t mixed)
{
    return (mixed & rest_mask) << 34 | r->cfa_offset / 8 << 17 | (uint64_t)r->by_rbp << 16 |
           r->rbp_offset / 8 << 3 | r->kind;
}

static struct rule rule_unpack(uint64_t word)
{
    return (struct rule){.kind = word & 3,
                         .by_rbp = word >> 16 & 1,
                         .cfa_offset = (word >> 17 & ((1 << CFA_BITS) - 1)) * 8,
                         .rbp_offset = (word >> 3 & ((1 << RBP_BITS) - 1)) * 8};
}

/* ---- Reading tables ----------------------------------------------------------------------------------- */

struct reader {
    const uint8_t *at, *end;
    bool failed;
};

static uint64_t read_fixed(struct reader *r, size_t size)
{
    uint64_t value = 0;
    if ((size_t)(r->end - r->at) < size) {
        r->failed = true;
        r->at = r->end;
        return 0;
    }
    memcpy(&value, r->at, size);
    r->at += size;
    return value;
}

static uint64_t read_leb(struct reader *r, bool is_signed)
{
    uint64_t value = 0;
    unsigned shift = 0, byte = 0x80;
    while (byte & 0x80) {
        byte = (unsigned)read_fixed(r, 1);
        if (r->failed || shift > 56)
            return r->failed = true, 0;
        value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
    }
    if (is_signed && byte & 0x40)
        value |= UINT64_MAX << shift;
    return value;
}

static void skip(struct reader *r, uint64_t size)
{
    if ((uint64_t)(r->end - r->at) < size)
        r->failed = true;
    r->at = r->failed ? r->end : r->at + size;
}

/* An entry of .eh_frame: `at` behind its length. */
static struct reader entry_begin(const uint8_t *at)
{
    uint32_t length;
    memcpy(&length, at, sizeof length);
    bool is_none = !length || length == UINT32_MAX; /* the end; one of 64 bits */
    return (struct reader){at + 4, at + 4 + (is_none ? 0 : length), is_none};
}

/* What the entries of many functions have in common. */
struct common {
    struct reader program;
    uint64_t code_step;
    int64_t data_step;
};

enum { ENCODING_PCREL_SDATA4 = 0x1b, ENCODING_DATAREL_SDATA4 = 0x3b, ENCODING_UDATA4 = 0x03 };

static void skip_encoded(struct reader *r, unsigned encoding)
{
    static const uint8_t sizes[16] = {8, 0, 2, 4, 8, 0, 0, 0, 0, 0, 2, 4, 8};
    if ((encoding & 0x70) == 0x50 || !sizes[encoding & 15]) /* aligned, or of no fixed length */
        r->failed = true;
    else
        skip(r, sizes[encoding & 15]);
}

/* False: not as GCC and clang write them, or of a signal's frame, in which all registers are elsewhere. */
static bool common_read(const uint8_t *at, struct common *c)
{
    struct reader r = entry_begin(at);
    uint64_t id = read_fixed(&r, 4), version = read_fixed(&r, 1);
    const char *letters = (const char *)r.at;
    size_t length = strnlen(letters, (size_t)(r.end - r.at));
    skip(&r, length + 1);
    c->code_step = read_leb(&r, false);
    c->data_step = (int64_t)read_leb(&r, true);
    uint64_t returns = version == 1 ? read_fixed(&r, 1) : read_leb(&r, false);
    if (r.failed || id || (version != 1 && version != 3) || returns != RETURN || letters[0] != 'z')
        return false;
    uint64_t more = read_leb(&r, false), encoding = 0;
    const uint8_t *start = r.at;
    for (size_t i = 1; i < length && !r.failed; i++) {
        if (letters[i] == 'R')
            encoding = read_fixed(&r, 1);
        else if (letters[i] == 'L')
            skip(&r, 1);
        else if (letters[i] == 'P')
            skip_encoded(&r, (unsigned)read_fixed(&r, 1));
        else
            return false;
    }
    if (r.failed || encoding != ENCODING_PCREL_SDATA4)
        return false;
    r.at = start;
    skip(&r, more);
    c->program = r;
    return !r.failed;
}

/* ---- Running their programs --------------------------------------------------------------------------- */

struct row {
    uint64_t cfa_register, cfa_offset;
    int64_t rbp; /* where it is, from the canonical frame address; 0: as it was */
    bool is_end; /* nobody has called */
    bool is_foreign;
};

struct machine {
    struct row row, first, kept[4];
    uint32_t kept_count;
    uint64_t at;
};

static void set_register(struct row *row, uint64_t number, int64_t offset)
{
    if (number == RBP)
        row->rbp = offset;
    else if (number == RSP || (number == RETURN && offset != -8))
        row->is_foreign = true;
    if (number == RETURN)
        row->is_end = false;
}

/* In a way that is not looked into. */
static void lose_register(struct row *row, uint64_t number)
{
    if (number == RBP || number == RETURN || number == RSP)
        row->is_foreign = true;
}

static void restore_register(struct machine *m, uint64_t number)
{
    if (number == RBP)
        m->row.rbp = m->first.rbp;
    if (number == RETURN)
        m->row.is_end = m->first.is_end;
}

static void keep_row(struct machine *m, struct reader *r)
{
    if (m->kept_count == sizeof m->kept / sizeof m->kept[0])
        r->failed = true;
    else
        m->kept[m->kept_count++] = m->row;
}

static void take_row(struct machine *m, struct reader *r)
{
    if (!m->kept_count)
        r->failed = true;
    else
        m->row = m->kept[--m->kept_count];
}

/* Instructions about one register. False: it is none of them. */
static bool run_register(struct machine *m, struct reader *r, const struct common *c, unsigned code)
{
    uint64_t number = code >= 0x05 && code <= 0x09 ? read_leb(r, false) : 0;
    switch (code) {
    case 0x05: /* offset_extended */
        set_register(&m->row, number, (int64_t)read_leb(r, false) * c->data_step);
        return true;
    case 0x06: /* restore_extended */
        restore_register(m, number);
        return true;
    case 0x07: /* undefined: so ends a stack */
        if (number == RETURN)
            m->row.is_end = true;
        else
            lose_register(&m->row, number);
        return true;
    case 0x08: /* same_value */
        if (number == RBP)
            m->row.rbp = 0;
        else
            lose_register(&m->row, number);
        return true;
    case 0x09: /* register */
        (void)read_leb(r, false);
        lose_register(&m->row, number);
        return true;
    case 0x10: /* expression */
    case 0x16: /* val_expression */
        lose_register(&m->row, read_leb(r, false));
        skip(r, read_leb(r, false));
        return true;
    case 0x11: /* offset_extended_sf */
        number = read_leb(r, false);
        set_register(&m->row, number, (int64_t)read_leb(r, true) * c->data_step);
        return true;
    case 0x14: /* val_offset */
    case 0x15: /* val_offset_sf */
        lose_register(&m->row, read_leb(r, false));
        (void)read_leb(r, false);
        return true;
    default:
        return false;
    }
}

/* Those about the canonical frame address. False: none of them. */
static bool run_cfa(struct machine *m, struct reader *r, unsigned code)
{
    switch (code) {
    case 0x0c: /* def_cfa */
        m->row.cfa_register = read_leb(r, false);
        m->row.cfa_offset = read_leb(r, false);
        return true;
    case 0x0d: /* def_cfa_register */
        m->row.cfa_register = read_leb(r, false);
        return true;
    case 0x0e: /* def_cfa_offset */
        m->row.cfa_offset = read_leb(r, false);
        return true;
    case 0x0f: /* def_cfa_expression; a def_cfa ends it */
        m->row.cfa_register = UINT64_MAX;
        skip(r, read_leb(r, false));
        return true;
    default:
        return false;
    }
}

/* As far as the row of `pc`. */
static bool run(struct machine *m, struct reader r, const struct common *c, uint64_t pc)
{
    while (r.at < r.end && !r.failed) {
        unsigned code = (unsigned)read_fixed(&r, 1), low = code & 0x3f;
        uint64_t step = 0;
        if (code >> 6 == 1)
            step = low;
        else if (code >> 6 == 2)
            set_register(&m->row, low, (int64_t)read_leb(&r, false) * c->data_step);
        else if (code >> 6 == 3)
            restore_register(m, low);
        else if (code >= 0x02 && code <= 0x04) /* advance_loc1, 2 and 4 */
            step = read_fixed(&r, (size_t)1 << (code - 2));
        else if (code == 0x0a)
            keep_row(m, &r);
        else if (code == 0x0b)
            take_row(m, &r);
        else if (code == 0x2e) /* GNU_args_size */
            (void)read_leb(&r, false);
        else if (code && !run_register(m, &r, c, code) && !run_cfa(m, &r, code))
            return false;
        m->at += step * c->code_step;
        if (m->at > pc)
            break;
    }
    return !r.failed;
}

static struct rule rule_of(const struct row *row)
{
    struct rule foreign = {.kind = FOREIGN};
    if (row->is_end)
        return (struct rule){.kind = END};
    if (row->is_foreign || (row->cfa_register != RSP && row->cfa_register != RBP) || row->cfa_offset % 8 ||
        !row->cfa_offset || row->cfa_offset / 8 >> CFA_BITS)
        return foreign;
    if (row->rbp > 0 || row->rbp % 8 || (uint64_t)-row->rbp / 8 >> RBP_BITS)
        return foreign;
    return (struct rule){STEP, row->cfa_register == RBP, row->cfa_offset, (uint64_t)-row->rbp};
}

/* ---- Finding an address's entry ----------------------------------------------------------------------- */

/* The sorted table in .eh_frame_hdr: pairs of a function's begin and its entry, from the header's address. NULL: no such. */
static const uint8_t *find_entry(const uint8_t *header, size_t size, uint64_t pc)
{
    if (size < 12 || header[0] != 1 || header[2] != ENCODING_UDATA4 || header[3] != ENCODING_DATAREL_SDATA4)
        return NULL;
    size_t skipped = header[1] == ENCODING_PCREL_SDATA4 ? 8 : 0;
    uint32_t count;
    memcpy(&count, header + 8, sizeof count);
    if (!skipped || !count || count > (size - 12) / 8)
        return NULL;
    int64_t wanted = (int64_t)(pc - (uintptr_t)header);
    uint32_t low = 0, high = count; /* the last one that begins at or before */
    int32_t pair[2];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        memcpy(pair, header + 12 + (size_t)middle * 8, sizeof pair);
        if (pair[0] <= wanted)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low)
        return NULL;
    memcpy(pair, header + 12 + (size_t)(low - 1) * 8, sizeof pair);
    return header + pair[1];
}

/* A place in a module without tables of its own (the system's first instructions) ends a stack, unless it is one of those to which
 * a signal's handler returns: mov $15, %rax; syscall. */
static struct rule rule_without_entry(uint64_t pc)
{
    static const uint8_t trampoline[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
    return (struct rule){.kind =
                             memcmp((const void *)(pc + 1), trampoline, sizeof trampoline) ? END : FOREIGN};
}

static struct rule read_rule(const uint8_t *header, size_t size, uint64_t pc)
{
    struct rule foreign = {.kind = FOREIGN};
    const uint8_t *entry = find_entry(header, size, pc);
    struct common c;
    if (!entry)
        return foreign;
    struct reader r = entry_begin(entry);
    const uint8_t *field = r.at;
    uint64_t back = read_fixed(&r, 4);
    if (r.failed || !back || !common_read(field - back, &c))
        return foreign;
    uint64_t begin = (uintptr_t)r.at;
    begin += (uint64_t)(int64_t)(int32_t)read_fixed(&r, 4);
    uint64_t length = read_fixed(&r, 4);
    skip(&r, read_leb(&r, false)); /* where exceptions go */
    if (r.failed)
        return foreign;
    if (pc - begin >= length)
        return rule_without_entry(pc);
    struct machine m = {.row = {.cfa_register = UINT64_MAX}, .at = begin};
    if (!run(&m, c.program, &c, UINT64_MAX))
        return foreign;
    m.first = m.row;
    m.at = begin;
    return run(&m, r, &c, pc) ? rule_of(&m.row) : foreign;
}

struct asked {
    uint64_t pc;
    struct rule rule;
};

/* With the loader's lock held: the tables stay while they are read. */
static int ask_object(struct dl_phdr_info *info, size_t size, void *out)
{
    (void)size;
    struct asked *asked = out;
    const ElfW(Phdr) *tables = NULL;
    bool is_here = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && asked->pc - (info->dlpi_addr + p->p_vaddr) < p->p_memsz)
            is_here = true;
        if (p->p_type == PT_GNU_EH_FRAME)
            tables = p;
    }
    if (is_here && tables)
        asked->rule =
            read_rule((const uint8_t *)(info->dlpi_addr + tables->p_vaddr), tables->p_memsz, asked->pc);
    return is_here;
}

static struct rule rule_find(_Atomic uint64_t *rules, uint64_t address)
{
    uint64_t mixed = address_mix(address);
    _Atomic uint64_t *place = &rules[mixed >> REST_BITS];
    uint64_t word = atomic_load_explicit(place, memory_order_relaxed);
    if (BERTH_LIKELY(word >> 34 == (mixed & rest_mask) && (word & 3) != NONE))
        return rule_unpack(word);
    struct asked asked = {address - 1, {.kind = FOREIGN}}; /* a call may be a function's last instruction */
    dl_iterate_phdr(ask_object, &asked);
    atomic_store_explicit(place, rule_pack(&asked.rule, mixed), memory_order_relaxed);
    return asked.rule;
}

/* ---- Walking ------------------------------------------------------------------------------------------ */

static size_t table_bytes(void)
{
    return sizeof(uint64_t) << PLACE_BITS;
}

static _Atomic uint64_t *table_get(void)
{
    _Atomic uint64_t *rules = atomic_load_explicit(&table, memory_order_acquire);
    if (BERTH_LIKELY(rules != NULL))
        return rules;
    _Atomic uint64_t *mine = recorder_pages(table_bytes());
    if (mine && !atomic_compare_exchange_strong(&table, &rules, mine)) {
        recorder_pages_give(mine, table_bytes());
        return rules;
    }
    return mine;
}

void recorder_unwind_forget(void)
{
    _Atomic uint64_t *rules = atomic_load(&table);
    if (rules)
        (void)madvise((void *)rules, table_bytes(),
                      MADV_DONTNEED); /* they are zero when they are read again */
}

/* Frames of another kind end the walk; the stack above them is not read. */
bool __attribute__((noinline)) recorder_unwind(recorder_walk *w, uint32_t skipped)
{
    _Atomic uint64_t *rules = table_get();
    /* A function that asks for this has a frame pointer: the caller's is there, and the return address above it. */
    const uint64_t *here = __builtin_frame_address(0);
    const uint64_t *slot = here + 1, *rbp_at = here;
    uint64_t rbp = *here;
    w->depth = w->pointer_count = 0;
    w->has_slots = true;
    while (rules && w->depth < w->most) {
        uint64_t address = *slot;
        if (!address)
            return true;
        if (skipped) {
            skipped--;
        } else {
            w->slots[w->depth] = slot;
            w->frames[w->depth++] = address;
        }
        struct rule rule = {.kind = FOREIGN};
        if (!(address >> 47))
            rule = rule_find(rules, address);
        if (rule.kind == END)
            return true;
        uint64_t cfa = (rule.by_rbp ? rbp : (uintptr_t)(slot + 1)) + rule.cfa_offset;
        if (rule.kind != STEP || cfa % 8 || cfa <= (uintptr_t)(slot + 1))
            return false;
        if (rule.by_rbp && rbp_at != here) /* the first is the caller's own */
            w->pointers[w->pointer_count++] = rbp_at;
        if (rule.rbp_offset) {
            rbp_at = (const uint64_t *)(cfa - rule.rbp_offset);
            rbp = *rbp_at;
        }
        slot = (const uint64_t *)cfa - 1;
    }
    return rules != NULL;
}

#else
bool recorder_unwind(recorder_walk *w, uint32_t skipped)
{
    (void)w, (void)skipped;
    return false;
}
void recorder_unwind_forget(void)
{
}
#endif
