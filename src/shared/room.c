/* How much memory may still be taken: by the system, and by the control groups that the process is in. The kernel does not refuse
 * what is more than that, it ends a process. */
#include <stdio.h>
#include <string.h>

#include "shared/shared.h"

enum { PATH_ROOM = 4096, LINE_ROOM = 4096 };

/* The number behind `key` at a line's beginning; "" is before the first. A word in its place ("max") is no number. */
static bool read_number(const char *path, const char *key, uint64_t *out)
{
    char line[LINE_ROOM];
    unsigned long long number = 0;
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file))
        found = strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%llu", &number) == 1;
    if (file)
        fclose(file);
    *out = number;
    return found;
}

static uint64_t room_of_system(const char *root)
{
    char path[PATH_ROOM];
    uint64_t available = 0, swap = 0;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (!read_number(path, "MemAvailable:", &available))
        return UINT64_MAX;
    (void)read_number(path, "SwapFree:", &swap);
    return (available + swap) << 10;
}

/* The files of one control group, by version. */
typedef struct group_files {
    const char *limit, *usage, *cache; /* cache: what of the usage goes when it is needed */
} group_files;

static uint64_t room_of_group(const char *folder, const group_files *names)
{
    char path[PATH_ROOM + 64];
    uint64_t limit = 0, usage = 0, cache = 0;
    snprintf(path, sizeof path, "%s/%s", folder, names->limit);
    if (!read_number(path, "", &limit))
        return UINT64_MAX; /* none, or "max" */
    snprintf(path, sizeof path, "%s/%s", folder, names->usage);
    (void)read_number(path, "", &usage);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    (void)read_number(path, names->cache, &cache);
    usage -= cache < usage ? cache : usage;
    return limit > usage ? limit - usage : 0;
}

/* A group has its parents' limits too. Inside a container the path may be one of outside: then the root is what is seen. */
static uint64_t room_of_groups(const char *mount, const char *group, const group_files *names)
{
    char folder[PATH_ROOM];
    const size_t root = strlen(mount);
    uint64_t room = UINT64_MAX;
    snprintf(folder, sizeof folder, "%s%s", mount, group);
    for (;;) {
        uint64_t here = room_of_group(folder, names);
        room = here < room ? here : room;
        char *end = strrchr(folder + root, '/');
        if (!end)
            return room;
        *end = '\0';
    }
}

/* A line of /proc/self/cgroup: number:controllers:path, without controllers for version 2. */
static uint64_t room_of_line(const char *root, char *line)
{
    static const group_files v1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};
    static const group_files v2 = {"memory.max", "memory.current", "inactive_file "};
    char mount[PATH_ROOM / 2];
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
        return UINT64_MAX;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    const bool is_v2 = controllers[1] == '\0';
    if (!is_v2 && strcmp(controllers + 1, "memory") != 0)
        return UINT64_MAX;
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, is_v2 ? "" : "/memory");
    return room_of_groups(mount, group, is_v2 ? &v2 : &v1);
}

uint64_t berth__shared_room(const char *root)
{
    char path[PATH_ROOM], line[LINE_ROOM];
    uint64_t room = room_of_system(root);
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        uint64_t here = room_of_line(root, line);
        room = here < room ? here : room;
    }
    if (file)
        fclose(file);
    return room;
}
