/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/bench.h"
#include "backend/clblast_sizes.h"
#include "backend/node_run.h"
#include "backend/opencl/packed.h"
#include "backend/tuned.h"
#include "support/check.h"

static copse__tensor_id tensor(copse__graph *graph, size_t rows, size_t columns) {
    copse__dim dims[] = {{rows, COPSE__BATCH}, {columns, COPSE__FIXED}};
    copse__tensor_id id;
    ck_assert_int_eq(copse__graph_tensor(graph, "t", COPSE_F32, COPSE__ROLE_ACTIVATION, 2,
                                         dims, &id, NULL),
                     COPSE_OK);
    return id;
}

START_TEST(test_key_tells_what_speed_depends_on) {
    copse__graph *graph;
    char key[COPSE__TUNED_KEY], other[COPSE__TUNED_KEY];
    ck_assert_int_eq(copse__graph_new(&graph, NULL), COPSE_OK);
    copse__node node = {.op = COPSE__OP_DENSE, .input_count = 3, .output_count = 1};
    node.inputs[0] = tensor(graph, 32, 784);
    node.inputs[1] = tensor(graph, 784, 128);
    node.inputs[2] = COPSE__NO_TENSOR;
    node.outputs[0] = tensor(graph, 32, 128);
    node.attrs.act = COPSE__ACT_RELU;
    ck_assert_str_eq(copse__tuned_key(key, graph, &node),
                     "dense 32x784 784x128 - > 32x128 relu");
    node.op = COPSE__OP_CONV2D;
    node.attrs.act = COPSE__ACT_NONE;
    node.attrs.window = (copse__window){3, 3, 2, 1, 1, 1, 1, 0};
    copse__tuned_key(key, graph, &node);
    node.attrs.window.pad_left = 1;
    ck_assert_str_ne(key, copse__tuned_key(other, graph, &node));
    copse__graph_free(graph);
}
END_TEST

START_TEST(test_find_own_key_comes_before_operation) {
    static const copse__tuned entries[] = {
        {"dense", "rows", ""},
        {"dense_grad_input", "tiled", ""},
        {"dense 1x2 2x3 - > 1x3", "packed", "mr=4"},
        {"dense 1x2 2x3 - > 1x3", "packed", "mr=5"},
    };
    const copse__tuned *found = copse__tuned_find(entries, 4, "dense 1x2 2x3 - > 1x3");
    ck_assert_ptr_eq(found, &entries[2]);
    ck_assert_ptr_eq(copse__tuned_find(entries, 4, "dense 9x9 9x9 - > 9x9"), &entries[0]);
    ck_assert_ptr_null(copse__tuned_find(entries + 1, 1, "dense 9x9 9x9 - > 9x9"));
    ck_assert_ptr_null(copse__tuned_find(entries, 4, "conv2d 1x1x1x1"));
    ck_assert_ptr_null(copse__tuned_find(NULL, 0, "dense"));
}
END_TEST

START_TEST(test_parameters_read_strictly) {
    static const char *const names[] = {"mr", "kc"};
    static const char *const bad[] = {"mr",
                                      "mr=",
                                      "=4",
                                      "mr=4x",
                                      "mr=4  kc=5",
                                      " mr=4",
                                      "mr=4 ",
                                      "mr=4 mr=5",
                                      "m=4",
                                      "mrx=4",
                                      "mr=-4",
                                      "mr=+4",
                                      "mr=4,kc=5",
                                      "mr= 4",
                                      "mr=4=5",
                                      "kc=4 nc=2",
                                      "mr=99999999999999999999",
                                      "mr=4294967296"};
    size_t values[] = {1, 2};
    ck_assert(copse__parameters_read("", names, values, 2));
    ck_assert_uint_eq(values[0], 1);
    ck_assert(copse__parameters_read("kc=256", names, values, 2));
    ck_assert_uint_eq(values[0], 1);
    ck_assert_uint_eq(values[1], 256);
    ck_assert(copse__parameters_read("kc=0 mr=4294967295", names, values, 2));
    ck_assert_uint_eq(values[0], UINT32_MAX);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(!copse__parameters_read(bad[i], names, values, 2), "%s", bad[i]);
}
END_TEST

static copse__packed_sizes usual(void) {
    copse__packed_sizes sizes;
    ck_assert(copse__packed_sizes_default(&sizes, 8, 512 << 10));
    return sizes;
}

START_TEST(test_packed_sizes_are_read_back_as_written) {
    copse__packed_sizes s = usual(), other = usual();
    char text[256];
    s.mr = 4, s.nv = 3, s.kc = 128, s.mc = 48, s.nc = 192;
    s.parts = 4, s.tile_m = 40, s.tile_n = 48;
    copse__packed_parameters(&s, true, text, sizeof text);
    ck_assert_str_eq(text,
                     "vw=8 nv=3 mr=4 kc=128 mc=48 nc=192 parts=4 tile_m=40 tile_n=48");
    ck_assert(copse__packed_sizes_set(&other, text, 512 << 10));
    ck_assert_mem_eq(&s, &other, sizeof s);
}
END_TEST

/* What the kernels would read or write beyond their arrays with is refused, and nothing of it stays. */
START_TEST(test_packed_sizes_that_cannot_be_are_refused) {
    static const char *const bad[] = {"mr=0",
                                      "mr=17",
                                      "nv=0",
                                      "nv=5",
                                      "vw=3",
                                      "vw=32",
                                      "mc=95",
                                      "mc=0",
                                      "nc=250",
                                      "nc=0",
                                      "kc=0",
                                      "kc=31",
                                      "kc=8192",
                                      "slab=0",
                                      "pixels=0",
                                      "panels=0",
                                      "panels=16",
                                      "slab=4000000",
                                      "parts=65",
                                      "tile_m=7",
                                      "tile_n=9",
                                      "panels=79",
                                      "slab=106300 pixels=8192",
                                      "slab=121000 panels=80",
                                      "mr=4 kc=",
                                      "unroll=4",
                                      "nc=8192 kc=4096"};
    copse__packed_sizes s = usual(), before = usual();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_msg(!copse__packed_sizes_set(&s, bad[i], 512 << 10), "%s", bad[i]);
        ck_assert_mem_eq(&s, &before, sizeof s);
    }
}
END_TEST

/* What CLBlast divides by zero with, or computes wrong products. */
START_TEST(test_clblast_sizes_that_cannot_be_are_refused) {
    static const size_t good[16] = {0,  1,  32, 2, 16, 16, 64, 16,
                                    16, 64, 1,  1, 0,  0,  4,  4};
    static const size_t direct[10] = {2, 8, 8, 8, 8, 1, 1, 1, 1, 8};
    size_t v[16], d[10];
    ck_assert(copse__clblast_xgemm_can_be(good));
    ck_assert(copse__clblast_direct_can_be(direct));
    for (size_t i = 0; i < 16; i++) {
        memcpy(v, good, sizeof v);
        v[i] = i == 0 || (i >= 10 && i <= 13) ? 2 : 0; /* a flag; a size */
        ck_assert_msg(!copse__clblast_xgemm_can_be(v), "%zu", i);
        v[i] = SIZE_MAX;
        ck_assert_msg(!copse__clblast_xgemm_can_be(v), "%zu", i);
    }
    for (size_t i = 0; i < 10; i++) {
        memcpy(d, direct, sizeof d);
        d[i] = i == 5 || i == 6 ? 2 : 0;
        ck_assert_msg(!copse__clblast_direct_can_be(d), "%zu", i);
        d[i] = SIZE_MAX;
        ck_assert_msg(!copse__clblast_direct_can_be(d), "%zu", i);
    }
    memcpy(d, direct, sizeof d);
    d[2] = 32; /* MDIMCD of a tile of 8 */
    ck_assert(!copse__clblast_direct_can_be(d));
}
END_TEST

START_TEST(test_packed_neighbours_can_all_be_and_differ) {
    static const size_t local_bytes[] = {32 << 10, 64 << 10, 512 << 10};
    for (size_t l = 0; l < 3; l++)
        for (int gemm = 0; gemm < 2; gemm++) {
            copse__packed_sizes s, next;
            char text[256], own[256];
            size_t count = 0;
            ck_assert(copse__packed_sizes_default(&s, 8, local_bytes[l]));
            copse__packed_parameters(&s, gemm, own, sizeof own);
            while (copse__packed_neighbour(&next, &s, count, gemm, local_bytes[l])) {
                copse__packed_sizes read = s;
                copse__packed_parameters(&next, gemm, text, sizeof text);
                ck_assert_str_ne(text, own);
                ck_assert(copse__packed_sizes_set(&read, text, local_bytes[l]));
                count++;
            }
            ck_assert_uint_ge(count, 4);
        }
}
END_TEST

START_TEST(test_gemm_cut_neighbours_cover_the_product) {
    copse__packed_sizes s = usual(), next;
    static const size_t sizes[][3] = {
        {256, 128, 7200}, {32, 10, 128}, {7, 5, 3}, {513, 700, 1000}};
    for (size_t i = 0; i < 4; i++) {
        size_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2], number = 0;
        for (; copse__gemm_cut_neighbour(&next, &s, number, m, n, k, 2); number++) {
            size_t parts = copse__gemm_parts(&next, m, n, k, 2);
            copse__gemm_cut cut = copse__gemm_cut_at(&next, m, n, k, 2, parts);
            ck_assert_uint_ge(cut.tile_n * cut.groups[0], n);
            ck_assert_uint_ge(cut.tile_m * cut.groups[1], m);
            ck_assert_uint_ge(cut.tile_k * cut.groups[2], k);
            ck_assert_uint_le(cut.groups[2], parts);
            if (next.tile_m > 0)
                ck_assert_uint_eq(cut.tile_m, next.tile_m);
        }
        ck_assert_uint_le(number, 64);
    }
    ck_assert(!copse__gemm_cut_neighbour(&next, &s, 0, 0, 5, 5, 2));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tuned");
    ADD_TEST(suite, test_key_tells_what_speed_depends_on);
    ADD_TEST(suite, test_find_own_key_comes_before_operation);
    ADD_TEST(suite, test_parameters_read_strictly);
    ADD_TEST(suite, test_packed_sizes_are_read_back_as_written);
    ADD_TEST(suite, test_packed_sizes_that_cannot_be_are_refused);
    ADD_TEST(suite, test_clblast_sizes_that_cannot_be_are_refused);
    ADD_TEST(suite, test_packed_neighbours_can_all_be_and_differ);
    ADD_TEST(suite, test_gemm_cut_neighbours_cover_the_product);
    return run_suite(suite);
}
