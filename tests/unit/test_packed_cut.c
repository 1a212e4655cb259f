/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "backend/opencl/packed.h"
#include "support/check.h"

static copse__packed_sizes usual(void) {
    copse__packed_sizes sizes;
    ck_assert(copse__packed_sizes_default(&sizes, 8, 512 << 10));
    return sizes;
}

START_TEST(test_sizes_default_fits_local_memory) {
    static const size_t local_bytes[] = {32 << 10, 48 << 10, 64 << 10, 512 << 10};
    static const size_t widths[] = {1, 4, 8, 16};
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 4; j++) {
            copse__packed_sizes s;
            ck_assert(copse__packed_sizes_default(&s, widths[j], local_bytes[i]));
            ck_assert_uint_ge(s.mc, s.mr);
            ck_assert_uint_eq(s.mc % s.mr, 0);
            ck_assert_uint_eq(s.nc % (s.vw * s.nv), 0);
            size_t a = s.mc * (s.kc + 16), nr = s.vw * s.nv;
            ck_assert_uint_le(4 * (a + s.nc / nr * (s.kc * nr + 16)), local_bytes[i]);
            ck_assert_uint_le(4 * (s.slab + s.panels), local_bytes[i]);
        }
    copse__packed_sizes s;
    ck_assert(!copse__packed_sizes_default(&s, 8, 4096));
}
END_TEST

START_TEST(test_gemm_cut_covers_and_keeps_parts) {
    static const size_t sizes[] = {1, 5, 6, 7, 16, 97, 256, 1000, 7200};
    copse__packed_sizes s = usual();
    for (size_t i = 0; i < 9; i++)
        for (size_t j = 0; j < 9; j++)
            for (size_t k = 0; k < 9; k++) {
                size_t parts = copse__gemm_parts(&s, sizes[i], sizes[j], sizes[k], 2);
                copse__gemm_cut cut =
                    copse__gemm_cut_at(&s, sizes[i], sizes[j], sizes[k], 2, parts);
                ck_assert_uint_le(cut.groups[2], parts);
                ck_assert_uint_ge(cut.tile_n * cut.groups[0], sizes[j]);
                ck_assert_uint_ge(cut.tile_m * cut.groups[1], sizes[i]);
                ck_assert_uint_ge(cut.tile_k * cut.groups[2], sizes[k]);
                ck_assert_uint_lt(cut.tile_n * (cut.groups[0] - 1), sizes[j]);
                ck_assert_uint_lt(cut.tile_m * (cut.groups[1] - 1), sizes[i]);
                ck_assert_uint_lt(cut.tile_k * (cut.groups[2] - 1), sizes[k]);
            }
    copse__gemm_cut none = copse__gemm_cut_at(&s, 8, 8, 0, 2, 1);
    ck_assert_uint_eq(none.groups[2], 1);
}
END_TEST

/* The bits of a sum depend on where k is cut, and on nothing else. */
START_TEST(test_gemm_cut_of_k_is_independent_of_rows) {
    copse__packed_sizes s = usual();
    copse__gemm_cut whole = copse__gemm_cut_at(&s, 256, 128, 7200, 2, 4);
    copse__gemm_cut less = copse__gemm_cut_at(&s, 13, 128, 7200, 1, 4);
    ck_assert_uint_eq(whole.tile_k, less.tile_k);
}
END_TEST

static copse__conv_size same_3x3(size_t images, size_t side, size_t c, size_t f) {
    return (copse__conv_size){.images = images,
                              .h = side,
                              .w = side,
                              .c = c,
                              .p = side,
                              .q = side,
                              .f = f,
                              .kernel_h = 3,
                              .kernel_w = 3,
                              .stride_h = 1,
                              .stride_w = 1,
                              .dilation_h = 1,
                              .dilation_w = 1,
                              .pad_top = 1,
                              .pad_left = 1};
}

static void check_cut(const copse__packed_sizes *s, const copse__conv_cut *cut,
                      copse__conv_pass pass, const copse__conv_size *z) {
    const copse_conv_shape *g = &cut->shape;
    int pitch = g->channels;
    if (pass == COPSE__CONV_GRAD_FILTER)
        pitch = COPSE_CONV_PITCH(g->channels);
    int height = g->block_rows + 2, width = g->block_columns + 2;
    ck_assert_int_le(g->block_images * height * width * pitch, (int)s->slab);
    int pixels = g->block_images * g->block_rows * g->block_columns;
    ck_assert_int_le(pixels, (int)s->pixels);
    if (pass == COPSE__CONV_GRAD_FILTER)
        ck_assert_int_le((pixels + 1) * (int)(s->vw * s->nv), (int)s->panels);
    size_t blocks = (z->images + (size_t)g->block_images - 1) / (size_t)g->block_images;
    blocks *= (z->p + (size_t)g->block_rows - 1) / (size_t)g->block_rows;
    blocks *= (z->q + (size_t)g->block_columns - 1) / (size_t)g->block_columns;
    ck_assert_uint_ge(cut->groups[0] * (size_t)g->group_blocks, blocks);
    ck_assert_int_ge((int)cut->groups[2] * g->group_panels * 16, g->target_c);
}

START_TEST(test_conv_cut_fits_and_covers) {
    static const copse__conv_pass passes[] = {COPSE__CONV_FORWARD, COPSE__CONV_GRAD_INPUT,
                                              COPSE__CONV_GRAD_FILTER};
    static const size_t layers[][4] = {
        {256, 32, 3, 32},   {8, 56, 64, 64},  {8, 7, 512, 512},  {1, 224, 3, 64},
        {1, 500, 128, 256}, {3, 9, 4000, 10}, {1000, 4, 16, 16}, {1, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        for (size_t p = 0; p < 3; p++)
            for (size_t small = 0; small < 2; small++) {
                copse__packed_sizes s;
                ck_assert(copse__packed_sizes_default(&s, 8, (small ? 64 : 512) << 10));
                copse__conv_size z =
                    same_3x3(layers[i][0], layers[i][1], layers[i][2], layers[i][3]);
                copse__conv_cut cut;
                size_t parts = copse__conv_parts(&z, 2);
                ck_assert(copse__conv_cut_at(&cut, &s, passes[p], &z, 2, parts));
                check_cut(&s, &cut, passes[p], &z);
                ck_assert_uint_le(cut.parts, parts);
            }
}
END_TEST

/* Whole windows in every block; forward with all channels at once. */
START_TEST(test_conv_cut_of_a_pooled_map_is_even) {
    static const size_t layers[][4] = {
        {256, 32, 3, 32}, {8, 56, 64, 64}, {3, 6, 200, 64}};
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        for (int pass = COPSE__CONV_FORWARD; pass <= COPSE__CONV_GRAD_FILTER; pass++) {
            copse__packed_sizes s = usual();
            copse__conv_size z =
                same_3x3(layers[i][0], layers[i][1], layers[i][2], layers[i][3]);
            copse__conv_cut cut;
            z.pooled = true;
            ck_assert(copse__conv_cut_at(&cut, &s, (copse__conv_pass)pass, &z, 2, 8));
            check_cut(&s, &cut, (copse__conv_pass)pass, &z);
            if (pass == COPSE__CONV_GRAD_INPUT)
                continue;
            ck_assert_int_eq(cut.shape.block_rows % 2, 0);
            ck_assert_int_eq(cut.shape.block_columns % 2, 0);
            if (pass == COPSE__CONV_FORWARD)
                ck_assert_int_eq(cut.shape.channels, cut.shape.source_c);
        }
    copse__packed_sizes s = usual();
    copse__conv_cut cut;
    copse__conv_size deep = same_3x3(1, 8, 4000, 8), odd = same_3x3(1, 9, 3, 8);
    deep.pooled = odd.pooled = true;
    ck_assert(!copse__conv_cut_at(&cut, &s, COPSE__CONV_FORWARD, &deep, 2, 8));
    ck_assert(!copse__conv_cut_at(&cut, &s, COPSE__CONV_FORWARD, &odd, 2, 8));
}
END_TEST

/* Pieces of channels of which the last alone is a multiple of 32, and others. */
START_TEST(test_winograd_cut_fits_and_covers) {
    static const size_t channels[] = {8, 64, 136, 208, 512};
    for (size_t i = 0; i < sizeof channels / sizeof channels[0]; i++)
        for (size_t outputs = 2; outputs <= 4; outputs += 2)
            for (size_t local = 128 << 10; local <= 512 << 10; local *= 2) {
                copse__packed_sizes s;
                copse__conv_cut cut;
                copse__conv_size z = same_3x3(2, 24, channels[i], 64);
                size_t points = (outputs + 2) * (outputs + 2), tiles = 2;
                ck_assert(copse__packed_sizes_default(&s, 8, local));
                ck_assert(copse__winograd_cut_at(&cut, &s, COPSE__CONV_GRAD_FILTER, &z,
                                                 outputs, 2, 8));
                size_t block = (size_t)cut.shape.block_columns;
                size_t pitch = (size_t)COPSE_CONV_PITCH(cut.shape.channels);
                tiles *= (24 / outputs) * (24 / outputs);
                ck_assert_uint_le(points * block * pitch, s.slab);
                ck_assert_uint_le(points * block * s.vw * s.nv, s.panels);
                ck_assert_uint_ge(cut.parts * block * (size_t)cut.shape.group_blocks,
                                  tiles);
                ck_assert_uint_ge(cut.groups[1] * (size_t)cut.shape.channels,
                                  channels[i]);
            }
}
END_TEST

START_TEST(test_conv_cut_refuses_what_does_not_fit) {
    copse__packed_sizes s = usual();
    copse__conv_cut cut;
    copse__conv_size many_taps = same_3x3(1, 40, 1, 1);
    many_taps.kernel_h = many_taps.kernel_w = 17;
    ck_assert(!copse__conv_cut_at(&cut, &s, COPSE__CONV_FORWARD, &many_taps, 2, 1));
    copse__conv_size far_apart = same_3x3(1, 1000, 8, 8);
    far_apart.dilation_h = far_apart.dilation_w = 200;
    ck_assert(!copse__conv_cut_at(&cut, &s, COPSE__CONV_FORWARD, &far_apart, 2, 1));
    copse__conv_size huge = same_3x3((size_t)1 << 40, 4, 1, 1);
    ck_assert(!copse__conv_cut_at(&cut, &s, COPSE__CONV_FORWARD, &huge, 2, 1));
}
END_TEST

START_TEST(test_conv_cut_without_images_has_nothing_to_do) {
    copse__packed_sizes s = usual();
    copse__conv_cut cut;
    copse__conv_size z = same_3x3(0, 8, 3, 4);
    ck_assert(copse__conv_cut_at(&cut, &s, COPSE__CONV_FORWARD, &z, 2, 1));
    ck_assert_uint_eq(cut.groups[0], 0);
    ck_assert(copse__conv_cut_at(&cut, &s, COPSE__CONV_GRAD_FILTER, &z, 2, 8));
    ck_assert_uint_eq(cut.parts, 1); /* which writes zeros */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("packed_cut");
    ADD_TEST(suite, test_sizes_default_fits_local_memory);
    ADD_TEST(suite, test_gemm_cut_covers_and_keeps_parts);
    ADD_TEST(suite, test_gemm_cut_of_k_is_independent_of_rows);
    ADD_TEST(suite, test_conv_cut_fits_and_covers);
    ADD_TEST(suite, test_conv_cut_of_a_pooled_map_is_even);
    ADD_TEST(suite, test_winograd_cut_fits_and_covers);
    ADD_TEST(suite, test_conv_cut_refuses_what_does_not_fit);
    ADD_TEST(suite, test_conv_cut_without_images_has_nothing_to_do);
    return run_suite(suite);
}
