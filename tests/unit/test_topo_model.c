/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "comm/tree.h"
#include "support/check.h"
#include "topo/bind.h"
#include "topo/json.h"
#include "topo/ranks.h"

static copse_error error;

static copse__topo *from_xml(const char *path) {
    copse__topo *topo = NULL;
    copse__topo_options how = {.hwloc_xml = path};
    ASSERT_OK(copse__topo_open(&topo, &how, &error));
    return topo;
}

static int node_at(const copse__topo *topo, uint32_t bus) {
    for (size_t i = 0; i < topo->node_count; i++)
        if (topo->nodes[i].kind == COPSE__NODE_PCI && topo->nodes[i].pci.bus == bus)
            return (int)i;
    ck_abort_msg("no device on bus %02x", bus);
    return -1;
}

/* Reasoned out by hand from the bridges in the file: two switches under each host bridge, two
 * cards under each switch, the network card at a root port of its own. */
START_TEST(test_path_eight_gpus_by_hand) {
    static const uint32_t bus[] = {0x23, 0x24, 0x27, 0x28, 0xa3, 0xa4, 0xa7, 0xa8, 0x29};
    static const char *const expected[] = {
        "X PIX PHB PHB SYS SYS SYS SYS PHB", "PIX X PHB PHB SYS SYS SYS SYS PHB",
        "PHB PHB X PIX SYS SYS SYS SYS PHB", "PHB PHB PIX X SYS SYS SYS SYS PHB",
        "SYS SYS SYS SYS X PIX PHB PHB SYS", "SYS SYS SYS SYS PIX X PHB PHB SYS",
        "SYS SYS SYS SYS PHB PHB X PIX SYS", "SYS SYS SYS SYS PHB PHB PIX X SYS",
        "PHB PHB PHB PHB SYS SYS SYS SYS X"};
    copse__topo *topo = from_xml("tests/data/topologies/eight_gpus.xml");
    for (size_t i = 0; i < COPSE__COUNT(bus); i++) {
        char row[128] = "";
        for (size_t j = 0; j < COPSE__COUNT(bus); j++)
            snprintf(row + strlen(row), sizeof row - strlen(row), "%s%s", j ? " " : "",
                     copse__path_name(copse__node_path(topo, node_at(topo, bus[i]),
                                                       node_at(topo, bus[j]))));
        ck_assert_str_eq(row, expected[i]);
    }
    ck_assert_str_eq(copse__path_name(copse__node_path(topo, -1, 3)), "?");
    copse__topo_close(topo);
}
END_TEST

/* Two switches, one below the other: PXB. */
START_TEST(test_path_cascaded_switches_are_several) {
    copse__topo topo = {.node_count = 9};
    copse__node nodes[9] = {
        {.kind = COPSE__NODE_MACHINE, .parent = -1, .numa = -1},
        {.kind = COPSE__NODE_HOST_BRIDGE, .parent = 0, .numa = -1},
        {.kind = COPSE__NODE_BRIDGE, .parent = 1, .numa = -1}, /* upstream port */
        {.kind = COPSE__NODE_BRIDGE, .parent = 2, .numa = -1}, /* its ports */
        {.kind = COPSE__NODE_PCI, .parent = 3, .numa = -1},
        {.kind = COPSE__NODE_BRIDGE, .parent = 2, .numa = -1},
        {.kind = COPSE__NODE_BRIDGE, .parent = 5, .numa = -1}, /* the second switch */
        {.kind = COPSE__NODE_BRIDGE, .parent = 6, .numa = -1},
        {.kind = COPSE__NODE_PCI, .parent = 7, .numa = -1},
    };
    topo.nodes = nodes;
    ck_assert_int_eq(copse__node_path(&topo, 4, 8), COPSE__PATH_PXB);
    ck_assert_int_eq(copse__node_path(&topo, 8, 4), COPSE__PATH_PXB);
    ck_assert_int_eq(copse__node_path(&topo, 4, 4), COPSE__PATH_SELF);
}
END_TEST

/* The file of a newer hwloc, real: each P100 of a POWER8 has a host bridge of its own. */
START_TEST(test_path_power8_by_hand) {
    static const char *const expected[] = {"X NODE SYS SYS", "NODE X SYS SYS",
                                           "SYS SYS X NODE", "SYS SYS NODE X"};
    copse__topo *topo = from_xml("tests/data/topologies/power8_p100.xml");
    ck_assert_uint_eq(topo->handle_count, 4);
    ck_assert_uint_eq(topo->physical_count, 4);
    for (size_t i = 0; i < 4; i++) {
        char row[64] = "";
        for (size_t j = 0; j < 4; j++)
            snprintf(row + strlen(row), sizeof row - strlen(row), "%s%s", j ? " " : "",
                     copse__path_name(copse__device_path(topo, i, j)));
        ck_assert_str_eq(row, expected[i]);
        ck_assert_str_eq(topo->physicals[i].tag, "nvidia");
        ck_assert_int_eq(topo->physicals[i].numa, i < 2 ? 0 : 1);
    }
    ck_assert_str_eq(topo->physicals[2].id, "pci:000a:01:00.0");
    copse__topo_close(topo);
}
END_TEST

/* A 2-socket Xeon, real: one card alone on socket 0; on socket 1 two root ports with cards,
 * the second of which carries a two-function AMD and NVIDIA pair and the InfiniBand card. */
START_TEST(test_path_xeon_by_hand) {
    copse__topo *topo = from_xml("tests/data/topologies/xeon_e5_2650.xml");
    ck_assert_uint_eq(topo->physical_count, 4);
    static const char *const expected[] = {"X SYS SYS SYS", "SYS X PHB PHB",
                                           "SYS PHB X PIX", "SYS PHB PIX X"};
    for (size_t i = 0; i < 4; i++) {
        char row[64] = "";
        for (size_t j = 0; j < 4; j++)
            snprintf(row + strlen(row), sizeof row - strlen(row), "%s%s", j ? " " : "",
                     copse__path_name(copse__device_path(topo, i, j)));
        ck_assert_str_eq(row, expected[i]);
    }
    ck_assert_uint_eq(topo->handle_count, 1);
    ck_assert_str_eq(topo->physicals[topo->handles[0].physical].id, "pci:0000:84:00.1");
    copse__topo_close(topo);
}
END_TEST

START_TEST(test_json_reads_back_to_the_same_bytes) {
    static const char *const files[] = {"eight_gpus.xml", "three_gpus.xml",
                                        "power8_p100.xml", "xeon_e5_2650.xml"};
    for (size_t i = 0; i < COPSE__COUNT(files); i++) {
        char path[128];
        copse__text first = {0}, second = {0};
        snprintf(path, sizeof path, "tests/data/topologies/%s", files[i]);
        copse__topo *topo = from_xml(path), *back = calloc(1, sizeof *back);
        ASSERT_OK(copse__json_report(&first, topo, false, &error));
        ASSERT_OK(copse__json_read_text(back, first.data, first.length, "first", &error));
        ASSERT_OK(copse__json_report(&second, back, false, &error));
        ck_assert_str_eq(first.data, second.data);
        copse__text_free(&first);
        copse__text_free(&second);
        copse__topo_close(topo);
        copse__topo_close(back);
    }
}
END_TEST

static void refuse_json(const char *text, const char *problem) {
    copse__topo *topo = calloc(1, sizeof *topo);
    ASSERT_FAILS(COPSE_FORMAT,
                 copse__json_read_text(topo, text, strlen(text), "saved.json", &error));
    ck_assert_msg(!strncmp(error.place, "saved.json", 10), "%s", error.place);
    ck_assert_msg(strstr(error.text, problem) != NULL, "%s: %s", text, error.text);
    copse__topo_close(topo);
}

START_TEST(test_json_damaged_is_refused_with_its_place) {
    static const char *const lists[] = {"icds",    "platforms", "nodes",
                                        "devices", "warnings",  "bench"};
    static const struct {
        const char *list, *value, *problem; /* value NULL: the list is not there */
    } bad[] = {
        {"icds", "{}", "\"icds\" is not a list"},
        {"platforms", NULL, "\"platforms\" is missing"},
        {"warnings", NULL, "\"warnings\" is missing"},
        {"nodes", "3", "\"nodes\" is not a list"},
        {"nodes", "[1]", "\"nodes\": entry 0 is not an object"},
        {"nodes", "[{\"kind\":\"pci\",\"id\":0}]", "a parent comes before"},
        {"nodes",
         "[{\"kind\":\"machine\",\"id\":0},{\"kind\":\"numa\",\"id\":1,\"parent\":1}]",
         "a parent comes before"},
        {"devices", NULL, "\"devices\" is missing"},
        {"devices", "[{\"id\":\"\",\"handles\":[]}]", "it has no id"},
        {"devices", "[{\"id\":\"a\"}]", "\"handles\" is missing"},
        {"devices", "[{\"id\":\"a\",\"handles\":-1}]", "\"handles\" is not a list"},
        {"devices", "[{\"id\":\"a\",\"handles\":[]},{\"id\":\"a\",\"handles\":[]}]",
         "its id is that of another"},
        {"devices", "[{\"id\":\"a\",\"node\":0,\"handles\":[]}]",
         "a node that is not listed"},
        {"devices", "[{\"id\":\"a\",\"handles\":[{\"platform\":0,\"index\":0}]}]",
         "a platform that is not listed"},
        {"bench", "[{\"device\":\"b\"}]", "a device that is not listed"}};
    refuse_json("", "not JSON");
    refuse_json("{", "not JSON");
    refuse_json("[]", "no report of cltopo");
    refuse_json("{\"schema\":\"cltopo/2\"}", "no report of cltopo");
    refuse_json("{\"schema\":\"cltopo/1\"}", "\"icds\" is missing");
    refuse_json("{\"schema\":\"cltopo/1\",\"schema\":\"cltopo/1\"}", "duplicate");
    for (size_t i = 0; i < COPSE__COUNT(bad); i++) {
        copse__text text = {0};
        copse__text_add(&text, "{\"schema\":\"cltopo/1\"");
        for (size_t k = 0; k < COPSE__COUNT(lists); k++) {
            const char *value = strcmp(lists[k], bad[i].list) ? "[]" : bad[i].value;
            if (value)
                copse__text_add(&text, ",\"%s\":%s", lists[k], value);
        }
        copse__text_add(&text, "}");
        refuse_json(text.data, bad[i].problem);
        copse__text_free(&text);
    }
}
END_TEST

START_TEST(test_open_of_damaged_or_missing_files_fails) {
    copse__topo *topo = NULL;
    copse__topo_options how = {.hwloc_xml = "tests/data/topologies/README.md"};
    ASSERT_FAILS(COPSE_FORMAT, copse__topo_open(&topo, &how, &error));
    ck_assert_ptr_null(topo);
    how = (copse__topo_options){.input_json = "/nonexistent"};
    ASSERT_FAILS(COPSE_IO, copse__topo_open(&topo, &how, &error));
    ck_assert_ptr_null(topo);
    how = (copse__topo_options){.input_json = "a", .hwloc_xml = "b"};
    ASSERT_FAILS(COPSE_INVALID, copse__topo_open(&topo, &how, &error));
}
END_TEST

START_TEST(test_balanced_tree_joins_neighbours_pass_by_pass) {
    static const copse__merge five[] = {{0, 1, 0}, {2, 3, 0}, {0, 2, 1}, {0, 4, 2}};
    copse__merge made[40];
    ck_assert_uint_eq(copse__balanced_tree(0, made), 0);
    ck_assert_uint_eq(copse__balanced_tree(1, made), 0);
    ck_assert_uint_eq(copse__balanced_tree(5, made), 4);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(made[i].into, five[i].into);
        ck_assert_uint_eq(made[i].from, five[i].from);
        ck_assert_uint_eq(made[i].level, five[i].level);
    }
    for (uint32_t n = 2; n <= 33; n++) {
        bool gone[40] = {false};
        ck_assert_uint_eq(copse__balanced_tree(n, made), n - 1);
        for (uint32_t i = 0; i + 1 < n; i++) {
            ck_assert(made[i].into < made[i].from && made[i].from < n);
            ck_assert(!gone[made[i].into] && !gone[made[i].from]);
            gone[made[i].from] = true;
        }
        ck_assert(!gone[0]);
    }
}
END_TEST

/* What plan shows is what the all-reduce does: the same bits, of values that tell the
 * associations apart. */
START_TEST(test_balanced_tree_is_the_one_of_the_sums) {
    copse__merge made[70];
    for (uint32_t n = 1; n <= 65; n++) {
        double values[65], partial[65];
        for (uint32_t i = 0; i < n; i++)
            partial[i] = values[i] = (i % 3 ? 1.0 : -1e3) / (double)(7 * i + 3);
        size_t count = copse__balanced_tree(n, made);
        for (size_t i = 0; i < count; i++)
            partial[made[i].into] += partial[made[i].from];
        double sum = copse__tree_sum(n, values, NULL);
        ck_assert_mem_eq(&partial[0], &sum, sizeof sum);
    }
}
END_TEST

static void add_rate(copse__topo *topo, int handle, const char *what, const char *path,
                     double rate) {
    topo->measures =
        realloc(topo->measures, (topo->measure_count + 1) * sizeof(copse__measure));
    copse__measure *m = &topo->measures[topo->measure_count++];
    *m = (copse__measure){.handle = handle,
                          .physical = handle,
                          .devices = 1,
                          .median = rate,
                          .verified = true,
                          .moves = true};
    snprintf(m->what, sizeof m->what, "%s", what);
    snprintf(m->path, sizeof m->path, "%s", path);
}

/* Two of four copied ranks: S = 1e9 bytes; link: 1e9 / 10e9 = 100 ms; memory: (3*2+2) S / 40
 * GB/s = 200 ms; CPU: 2 S / 50 GB/s = 40 ms. */
START_TEST(test_rank_plan_models_the_limit) {
    copse__topo *topo = from_xml("tests/data/topologies/power8_p100.xml");
    copse__device_choice *choices = NULL;
    copse__rank_plan *plan = NULL;
    size_t count = 0;
    ASSERT_OK(copse__select_devices(topo, "0:0,0:1", &choices, &count, &error));
    ASSERT_OK(copse__rank_plan_make(&plan, topo, choices, count, 1000000000, &error));
    ck_assert_str_eq(plan->bound, "");
    ck_assert(plan->link_s < 0 && plan->memory_s < 0 && plan->cpu_s < 0);
    ck_assert(!plan->weights_known);
    copse__rank_plan_free(plan);
    for (int h = 0; h < 2; h++) {
        add_rate(topo, h, "d2h", "copy_pinned", 12);
        add_rate(topo, h, "h2d", "copy_pinned", 10);
        add_rate(topo, h, "d2h", "read_pinned", 25);
        add_rate(topo, h, "h2d", "read_pinned", 4);
        add_rate(topo, h, "gemm_f32", "", h ? 3000 : 1000);
    }
    add_rate(topo, -1, "host_copy", "plain", 40);
    add_rate(topo, -1, "host_sum", "four", 50);
    ASSERT_OK(copse__rank_plan_make(&plan, topo, choices, count, 1000000000, &error));
    ck_assert_str_eq(plan->ranks[0].path, "copy_pinned");
    ck_assert_double_eq_tol(plan->link_s, 0.1, 1e-9);
    ck_assert_double_eq_tol(plan->memory_s, 0.2, 1e-9);
    ck_assert_double_eq_tol(plan->cpu_s, 0.04, 1e-9);
    ck_assert_str_eq(plan->bound, "mem");
    ck_assert(plan->weights_known);
    ck_assert_double_eq(plan->ranks[1].weight, 3000);
    copse__rank_plan_free(plan);
    free(choices);
    copse__topo_close(topo);
}
END_TEST

/* Mapping counts as a rate only where something moves; without figures a unified device is mapped. */
START_TEST(test_rank_plan_maps_where_measured_to_be_faster) {
    static const struct {
        double down, up, map_rate; /* 0: not measured */
        bool unified, moves, mapped, measured;
    } cases[] = {{10, 10, 1000, true, false, true, true},
                 {10, 10, 21, true, true, true, true},
                 {10, 10, 9, true, true, false, true},
                 {10, 10, 1000, false, false, false, true},
                 {0, 0, 0, true, true, true, false},
                 {0, 0, 0, false, true, false, false},
                 {10, 10, 0, true, true, false, true},
                 {0, 0, 50, true, true, true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        copse__topo *topo = from_xml("tests/data/topologies/power8_p100.xml");
        copse__device_choice *choices = NULL;
        copse__rank_plan *plan = NULL;
        size_t count = 0;
        topo->handles[0].unified = cases[i].unified;
        if (cases[i].down > 0) {
            add_rate(topo, 0, "d2h", "read_pinned", cases[i].down);
            add_rate(topo, 0, "h2d", "read_pinned", cases[i].up);
        }
        if (cases[i].map_rate > 0)
            for (int up = 0; up < 2; up++) {
                add_rate(topo, 0, up ? "h2d" : "d2h", "map", cases[i].map_rate);
                topo->measures[topo->measure_count - 1].moves = cases[i].moves;
            }
        ASSERT_OK(copse__select_devices(topo, "0:0", &choices, &count, &error));
        ASSERT_OK(copse__rank_plan_make(&plan, topo, choices, count, 1000, &error));
        ck_assert_msg(plan->ranks[0].mapped == cases[i].mapped &&
                          plan->ranks[0].measured == cases[i].measured,
                      "case %zu", i);
        ck_assert_int_eq(strcmp(plan->ranks[0].path, "map") == 0, cases[i].mapped);
        copse__rank_plan_free(plan);
        free(choices);
        copse__topo_close(topo);
    }
}
END_TEST

/* Of two equal GPUs the second's figures go to the second, also where other devices came before; those
 * of a device that is gone, and of a host with other CPUs, to nobody. */
START_TEST(test_take_measures_finds_the_same_devices) {
    copse__topo *here = from_xml("tests/data/topologies/power8_p100.xml");
    copse__topo *saved = from_xml("tests/data/topologies/power8_p100.xml");
    add_rate(saved, 1, "d2h", "read_pinned", 7);
    add_rate(saved, 2, "d2h", "read_pinned", 8);
    add_rate(saved, -1, "host_copy", "plain", 40);
    snprintf(saved->handles[2].driver, sizeof saved->handles[2].driver, "older");
    ASSERT_OK(copse__topo_take_measures(here, saved, "f.json", &error));
    ck_assert_uint_eq(here->measure_count, 2);
    ck_assert_int_eq(here->measures[0].handle, 1);
    ck_assert_int_eq(here->measures[0].physical, here->handles[1].physical);
    ck_assert_int_eq(here->measures[1].handle, -1);
    here->measure_count = 0;
    saved->cpu_count++;
    ASSERT_OK(copse__topo_take_measures(here, saved, "f.json", &error));
    ck_assert_uint_eq(here->measure_count, 1);
    here->measure_count = 0;
    snprintf(saved->handles[1].name, sizeof saved->handles[1].name, "another");
    ASSERT_FAILS(COPSE_INVALID, copse__topo_take_measures(here, saved, "f.json", &error));
    ck_assert_str_eq(error.place, "f.json");
    copse__topo_close(here);
    copse__topo_close(saved);
}
END_TEST

START_TEST(test_clean_utf8_replaces_what_is_none) {
    char text[] = "a\xff\xc3\xa9\xe2\x82\xc0\x80\x01z";
    copse__clean_utf8(text);
    ck_assert_str_eq(text, "a?\xc3\xa9??"
                           "?? z");
}
END_TEST

START_TEST(test_put_cuts_at_a_character) {
    char text[4];
    ck_assert_uint_eq(copse__put(text, sizeof text, "ab\xc3\xa9"), 2);
    ck_assert_str_eq(text, "ab");
    ck_assert_uint_eq(copse__put(text, sizeof text, "abc"), 3);
}
END_TEST

START_TEST(test_numa_nodes_share_threads_by_their_cpus) {
    int nodes[64];
    uint32_t cpus[64], all = 0;
    const size_t count = copse__numa_nodes(nodes, cpus, 64);
    ck_assert_uint_ge(count, 1);
    for (size_t n = 0; n < count; n++) {
        ck_assert_int_ge(nodes[n], n > 0 ? nodes[n - 1] + 1 : 0);
        all += cpus[n];
    }
    ck_assert_uint_ge(all, copse__allowed_cpus()); /* a quota may leave fewer */
    const uint32_t uneven[] = {2, 6, 8};
    size_t threads[3] = {0};
    for (size_t i = 0; i < 8; i++)
        threads[copse__numa_of_thread(uneven, 3, i, 8)]++;
    ck_assert_uint_eq(threads[0], 1);
    ck_assert_uint_eq(threads[1], 3);
    ck_assert_uint_eq(threads[2], 4);
    ck_assert_uint_eq(copse__numa_of_thread(uneven, 1, 5, 8), 0);
    ck_assert_uint_eq(copse__numa_of_thread(uneven, 3, 0, 1), 0);
}
END_TEST

START_TEST(test_bind_stays_within_the_allowed_cpus) {
    cpu_set_t before, after;
    ck_assert_uint_ge(copse__allowed_cpus(), 1);
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    ASSERT_OK(copse__bind_to_numa(-1, &error));
    ASSERT_FAILS(COPSE_INVALID, copse__bind_to_numa(100000, &error));
    copse_status status = copse__bind_to_numa(0, &error);
    ck_assert(status == COPSE_OK || status == COPSE_UNSUPPORTED);
    ck_assert_int_eq(sched_getaffinity(0, sizeof after, &after), 0);
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        ck_assert(!CPU_ISSET(i, &after) || CPU_ISSET(i, &before));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("topo_model");
    ADD_TEST(suite, test_path_eight_gpus_by_hand);
    ADD_TEST(suite, test_path_cascaded_switches_are_several);
    ADD_TEST(suite, test_path_power8_by_hand);
    ADD_TEST(suite, test_path_xeon_by_hand);
    ADD_TEST(suite, test_json_reads_back_to_the_same_bytes);
    ADD_TEST(suite, test_json_damaged_is_refused_with_its_place);
    ADD_TEST(suite, test_open_of_damaged_or_missing_files_fails);
    ADD_TEST(suite, test_balanced_tree_joins_neighbours_pass_by_pass);
    ADD_TEST(suite, test_balanced_tree_is_the_one_of_the_sums);
    ADD_TEST(suite, test_rank_plan_models_the_limit);
    ADD_TEST(suite, test_rank_plan_maps_where_measured_to_be_faster);
    ADD_TEST(suite, test_take_measures_finds_the_same_devices);
    ADD_TEST(suite, test_clean_utf8_replaces_what_is_none);
    ADD_TEST(suite, test_put_cuts_at_a_character);
    ADD_TEST(suite, test_bind_stays_within_the_allowed_cpus);
    ADD_TEST(suite, test_numa_nodes_share_threads_by_their_cpus);
    return run_suite(suite);
}
