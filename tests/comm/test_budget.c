/* SPDX-License-Identifier: Apache-2.0 */
/* Staging memory against what the process, its cgroups and a device allow. */
#include "comm/budget.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "comm/ranks.h"
#include "support/check.h"
#include "support/fake_device.h"

#define MIB ((size_t)1 << 20)

typedef struct file {
    const char *path, *text;
} file;

typedef struct machine {
    const char *what;
    file files[10];
    size_t left;
} machine;

static const machine machines[] = {
    {"nothing to read", {{NULL, NULL}}, SIZE_MAX},
    {"no cgroup",
     {{"proc/meminfo", "MemTotal: 9000 kB\nMemFree: 5 kB\nMemAvailable:    4000 kB\n"}},
     4000 * 1024},
    {"the second version, seen from within a container",
     {{"proc/meminfo", "MemAvailable: 900000 kB\n"},
      {"proc/self/cgroup", "0::/docker/abc\n"},
      {"sys/fs/cgroup/memory.max", "5000000\n"},
      {"sys/fs/cgroup/memory.current", "4500000\n"},
      {"sys/fs/cgroup/memory.stat", "anon 7\ninactive_file 300000\nactive_file 9\n"}},
     800000},
    {"an outer group that leaves less than the inner one",
     {{"proc/self/cgroup", "0::/outer/inner\n"},
      {"sys/fs/cgroup/outer/memory.max", "1000\n"},
      {"sys/fs/cgroup/outer/memory.current", "400\n"},
      {"sys/fs/cgroup/outer/inner/memory.max", "900\n"},
      {"sys/fs/cgroup/outer/inner/memory.current", "100\n"}},
     600},
    {"a group without a limit, and one that is over its own",
     {{"proc/self/cgroup", "0::/outer/inner\n"},
      {"sys/fs/cgroup/outer/memory.max", "max\n"},
      {"sys/fs/cgroup/outer/memory.current", "400\n"},
      {"sys/fs/cgroup/outer/inner/memory.max", "900\n"},
      {"sys/fs/cgroup/outer/inner/memory.current", "1000\n"}},
     0},
    {"the first version",
     {{"proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a\n1:name=systemd:/\n"},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
      {"sys/fs/cgroup/memory/memory.usage_in_bytes", "100\n"},
      {"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "7000\n"},
      {"sys/fs/cgroup/memory/a/memory.usage_in_bytes", "2000\n"},
      {"sys/fs/cgroup/memory/a/memory.stat",
       "inactive_file 1\ntotal_inactive_file 50\n"}},
     5050},
};

static void write_file(const char *root, const file *one) {
    char command[1024], path[512];
    snprintf(path, sizeof path, "%s/%s", root, one->path);
    snprintf(command, sizeof command, "mkdir -p \"$(dirname %s)\"", path);
    ck_assert_int_eq(system(command), 0);
    FILE *out = fopen(path, "w");
    ck_assert_ptr_nonnull(out);
    fputs(one->text, out);
    fclose(out);
}

START_TEST(test_free_memory_is_what_the_tightest_limit_leaves) {
    for (size_t m = 0; m < COPSE__COUNT(machines); m++) {
        char root[] = "/tmp/copse-budget-XXXXXX", command[64];
        ck_assert_ptr_nonnull(mkdtemp(root));
        for (const file *one = machines[m].files; one->path != NULL; one++)
            write_file(root, one);
        const size_t left = copse__free_memory(root);
        snprintf(command, sizeof command, "rm -r %s", root);
        ck_assert_int_eq(system(command), 0);
        if (left != machines[m].left)
            ck_abort_msg("%s: %zu, not %zu", machines[m].what, left, machines[m].left);
    }
    ck_assert_uint_gt(copse__free_memory(""), MIB); /* and here there is some */
}
END_TEST

static void open_ranks(ranks *all, const size_t *elements, size_t count) {
    *all = (ranks){.count = count, .bucket_count = 1, .elements = elements};
    for (size_t r = 0; r < count; r++)
        all->devices[r] = fake_device_new(r, false);
    ranks_make_buffers(all);
}

static copse_status make(ranks *all, size_t staging_bytes, copse_error *error) {
    const copse__allreduce_options options = {.devices = all->devices,
                                              .rank_count = all->count,
                                              .bucket_elements = all->elements,
                                              .bucket_count = 1,
                                              .staging_bytes = staging_bytes};
    return copse__allreduce_new(&all->engine, &options, error);
}

static void run_and_close(ranks *all) {
    ranks_run_step(all, 0, NULL);
    for (size_t r = 0; r < all->count; r++)
        ck_assert_msg(all->status[r] == COPSE_OK, "%s", all->errors[r].text);
    ranks_check(all);
    copse__allreduce_free(all->engine);
    all->engine = NULL;
}

static void free_devices(ranks *all) {
    ranks_free_buffers(all);
    for (size_t r = 0; r < all->count; r++) {
        ck_assert_uint_eq(fake_live_objects(all->devices[r]), 0);
        fake_device_free(all->devices[r]);
    }
}

/* Fewer slots first, then smaller ones, to the least there can be; then a clear refusal. */
START_TEST(test_slots_shrink_to_the_bytes_that_are_left) {
    const size_t elements[] = {2 * MIB};
    ranks all;
    copse_error error;
    open_ranks(&all, elements, 3);
    size_t before = SIZE_MAX;
    for (size_t budget = 64 * MIB; budget >= 3 * MIB / 8; budget /= 2) {
        ASSERT_OK(make(&all, budget, &error));
        size_t taken = 0;
        for (size_t r = 0; r < 3; r++)
            taken += fake_staging_bytes(all.devices[r]);
        ck_assert_uint_le(taken, budget);
        ck_assert_uint_gt(taken, 0);
        ck_assert_uint_le(taken, before);
        before = taken;
        run_and_close(&all);
    }
    ck_assert_uint_eq(before, 3 * 2 * 65536); /* two slots of the smallest chunk */
    ASSERT_FAILS(COPSE_NOMEM, make(&all, before - 1, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "for the staging memory of 3 devices"));
    free_devices(&all);
}
END_TEST

START_TEST(test_slots_shrink_to_what_one_device_allows) {
    const size_t elements[] = {2 * MIB};
    ranks all;
    copse_error error;
    open_ranks(&all, elements, 3);
    for (size_t most = MIB; most >= 2 * 65536; most /= 2) {
        fake_limit_allocation(all.devices[1], most);
        ASSERT_OK(make(&all, 64 * MIB, &error));
        for (size_t r = 0; r < 3; r++) /* all alike, or slots would not match */
            ck_assert_uint_eq(fake_staging_bytes(all.devices[r]),
                              fake_staging_bytes(all.devices[1]));
        ck_assert_uint_le(fake_staging_bytes(all.devices[1]), most);
        run_and_close(&all);
    }
    fake_limit_allocation(all.devices[1], 65536);
    ASSERT_FAILS(COPSE_DEVICE_MEMORY, make(&all, 64 * MIB, &error));
    ck_assert_str_eq(error.place, "fake:1");
    for (size_t r = 0; r < 3; r++)
        ck_assert_uint_eq(fake_staging_bytes(all.devices[r]), 0);
    free_devices(&all);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("budget");
    ADD_TEST(suite, test_free_memory_is_what_the_tightest_limit_leaves);
    ADD_TEST(suite, test_slots_shrink_to_the_bytes_that_are_left);
    ADD_TEST(suite, test_slots_shrink_to_what_one_device_allows);
    return run_suite(suite);
}
