/* berth devices: what is there, what it can do, and for what is missing, why and what to install. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "berth/device_ops.h"
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/size.h"

enum { KINDS = 4 + CLI_LIST_ROOM }; /* the built-in ones and those that are loaded */

/* The virtual kind is left out: its devices are what a test makes of them. */
static size_t find_kinds(berth_device_kind kinds[KINDS])
{
    size_t count = 0;
    berth_device_kind kind = BERTH_DEVICE_UNKNOWN;
    while (count < KINDS && (kind = berth_device_kind_next(kind)) != BERTH_DEVICE_UNKNOWN)
        if (kind != BERTH_DEVICE_VIRTUAL)
            kinds[count++] = kind;
    return count;
}

static const struct {
    berth_memory_kind kind;
    const char *name;
} memory_kinds[] = {{BERTH_MEMORY_DEVICE, "device"},
                    {BERTH_MEMORY_PINNED, "pinned"},
                    {BERTH_MEMORY_MANAGED, "managed"},
                    {BERTH_MEMORY_WRITE_COMBINED, "write-combined"}};

static bool has_memory(const berth_device_info *info, berth_memory_kind kind)
{
    return (info->memory_kinds >> kind & 1) != 0;
}

/* ---- For people ------------------------------------------------------------------------------------ */

static void print_abilities(const berth_device_info *info)
{
    printf("  memory   ");
    if (!info->memory_kinds)
        printf(" none that berth can use");
    for (size_t i = 0; i < sizeof memory_kinds / sizeof memory_kinds[0]; i++)
        if (has_memory(info, memory_kinds[i].kind))
            printf(" %s", memory_kinds[i].name);
    printf("\n  also     ");
    if (info->host_accessible)
        printf(" the host touches it in place;");
    if (info->stream_ordered)
        printf(" allocates and frees on streams;");
    if (info->virtual_memory)
        printf(" maps memory in pieces;");
    printf(" streams and events\n");
}

static void print_device(berth_device device, const berth_device_info *info)
{
    char size[CLI_SIZE_ROOM];
    printf("%s:%d  %s\n", berth_device_kind_name((berth_device_kind)device.kind), (int)device.ordinal,
           info->name);
    if (info->driver[0])
        printf("  driver    %s\n", info->driver);
    printf("  total     %s\n", info->total_bytes ? cli_size_text(info->total_bytes, size) : "unknown");
    uint64_t free_bytes = 0, total_bytes = 0;
    if (berth_device_memory(device, &free_bytes, &total_bytes) == BERTH_OK)
        printf("  free      %s now\n", cli_size_text(free_bytes, size));
    print_abilities(info);
}

/* ---- For programs ---------------------------------------------------------------------------------- */

static void put_device(cli_json *json, berth_device device, const berth_device_info *info)
{
    cli_json_item_begin(json);
    cli_json_text(json, "kind", berth_device_kind_name((berth_device_kind)device.kind));
    cli_json_number(json, "ordinal", (uint64_t)device.ordinal);
    cli_json_text(json, "name", info->name);
    cli_json_text(json, "driver", info->driver[0] ? info->driver : NULL);
    if (info->total_bytes)
        cli_json_number(json, "total_bytes", info->total_bytes);
    else
        cli_json_null(json, "total_bytes");
    uint64_t free_bytes = 0, total_bytes = 0;
    if (berth_device_memory(device, &free_bytes, &total_bytes) == BERTH_OK)
        cli_json_number(json, "free_bytes", free_bytes);
    else
        cli_json_null(json, "free_bytes");
    cli_json_bool(json, "device_memory", has_memory(info, BERTH_MEMORY_DEVICE));
    cli_json_bool(json, "pinned_memory", has_memory(info, BERTH_MEMORY_PINNED));
    cli_json_bool(json, "managed_memory", has_memory(info, BERTH_MEMORY_MANAGED));
    cli_json_bool(json, "host_accessible", info->host_accessible);
    cli_json_bool(json, "stream_ordered", info->stream_ordered);
    cli_json_bool(json, "virtual_memory", info->virtual_memory);
    cli_json_item_end(json);
}

/* ---- Both ------------------------------------------------------------------------------------------ */

/* Why a kind is missing, kept from the moment it was asked for. */
typedef char reason[512];

static void list_kind(berth_device_kind kind, cli_json *json, reason why)
{
    int32_t count = 0;
    why[0] = '\0';
    if (berth_device_count(kind, &count) != BERTH_OK)
        snprintf(why, sizeof(reason), "%s", berth_last_error()->message);
    for (int32_t i = 0; i < count; i++) {
        const berth_device device = {(int32_t)kind, i};
        berth_device_info info = {.struct_size = sizeof info};
        if (berth_device_describe(device, &info) != BERTH_OK)
            continue;
        if (json)
            put_device(json, device, &info);
        else
            print_device(device, &info);
    }
}

static void list_json(void)
{
    cli_json json;
    berth_device_kind kinds[KINDS];
    size_t kind_count = find_kinds(kinds);
    reason why[KINDS];
    cli_json_begin(&json, stdout);
    cli_json_number(&json, "schema", 1);
    cli_json_list_begin(&json, "devices");
    for (size_t i = 0; i < kind_count; i++)
        list_kind(kinds[i], &json, why[i]);
    cli_json_list_end(&json);
    cli_json_list_begin(&json, "missing");
    for (size_t i = 0; i < kind_count; i++)
        if (why[i][0]) {
            cli_json_item_begin(&json);
            cli_json_text(&json, "kind", berth_device_kind_name(kinds[i]));
            cli_json_text(&json, "reason", why[i]);
            cli_json_item_end(&json);
        }
    cli_json_list_end(&json);
    cli_json_end(&json);
}

static void list_text(void)
{
    berth_device_kind kinds[KINDS];
    size_t kind_count = find_kinds(kinds);
    reason why[KINDS];
    for (size_t i = 0; i < kind_count; i++)
        list_kind(kinds[i], NULL, why[i]);
    for (size_t i = 0; i < kind_count; i++)
        if (why[i][0])
            printf("%-8s  not here: %s\n", berth_device_kind_name(kinds[i]), why[i]);
}

/* A device from a shared library; it stays to the end. */
static int load_device(const char *path)
{
    const berth_device_ops *ops = NULL;
    void *self = NULL;
    berth_device_kind kind;
    berth_device_entry_fn *entry = NULL;
    char file[4096]; /* without a slash the loader would look in the system's folders */
    snprintf(file, sizeof file, "%s%s", strchr(path, '/') ? "" : "./", path);
    void *library = dlopen(file, RTLD_NOW);
    if (library)
        *(void **)&entry = dlsym(library, BERTH_DEVICE_ENTRY);
    if (!entry) {
        fprintf(stderr, "berth devices: %s cannot be loaded: %s\n", path,
                library ? "it exports no function " BERTH_DEVICE_ENTRY : dlerror());
        return CLI_SURROUNDINGS;
    }
    if (entry(&ops, &self) == BERTH_OK && berth_device_register(ops, self, &kind) == BERTH_OK)
        return CLI_OK;
    fprintf(stderr, "berth devices: %s: %s\n", path, berth_last_error()->message);
    return CLI_SURROUNDINGS;
}

static int devices_run(int argc, char **argv)
{
    bool json = false;
    cli_list loaded = {0};
    size_t operand_count = 0;
    const char *operand = NULL;
    const struct cli_option options[] = {{"--json", NULL, CLI_FLAG, &json},
                                         {"--load", NULL, CLI_LIST, &loaded}};
    int code = cli_options_read("devices", argc, argv, options, 2, &operand, 1, &operand_count);
    if (code)
        return code;
    if (operand_count)
        return cli_misuse("devices", "'%s' is too much: all devices are listed", operand);
    for (size_t i = 0; i < loaded.count && code == CLI_OK; i++)
        code = load_device(loaded.items[i]);
    if (code)
        return code;
    if (json)
        list_json();
    else
        list_text();
    return CLI_OK;
}

const struct cli_verb cli_verb_devices = {
    .name = "devices",
    .summary = "list the devices here, what they can do, and what is missing",
    .help =
        "usage: berth devices [--json] [--load LIBRARY.so]\n\n"
        "Lists every device that Berth can use: its kind and number, name, driver, memory (in all, and free\n"
        "now where the driver tells) and abilities.\n"
        "Drivers are looked for at run time; for a kind that is missing it says why and what to install.\n\n"
        "  --json               print the same facts as one JSON object\n"
        "  --load LIBRARY.so    load a device of your own first (berth/device_ops.h); may be given again\n\n"
        "BERTH_CUDA_LIBRARY, BERTH_HIP_LIBRARY and BERTH_OPENCL_LIBRARY name a driver's library where\n"
        "the usual one is not the right one.\n\n"
        "example:\n"
        "  berth devices\n",
    .run = devices_run,
};
