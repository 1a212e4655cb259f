/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TOPO_BENCH_KERNELS_H
#define COPSE_TOPO_BENCH_KERNELS_H

/* The kernels of the bench. They stand here and not in cl/, since they measure a device and
 * are no part of training, and this room does not know the backend that carries those.
 *
 * real is float or half; sums are float. C = A B, row-major, n x n, n a multiple of 64.
 * gemm_tiled: work-groups of 16 x 16, each a 64 x 64 tile through local memory, 4 x 4
 * elements a work-item; for devices with fast local memory. gemm_wide: a work-item makes 4
 * rows of 16 columns, loading B in vectors; for devices that vectorise explicit vectors. */
static const char copse__bench_source[] =
    "#ifdef USE_HALF\n"
    "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
    "typedef half real;\n"
    "#define LOAD16(p) vload_half16(0, p)\n"
    "#else\n"
    "typedef float real;\n"
    "#define LOAD16(p) (*(global const float16 *)(p))\n"
    "#endif\n"
    "kernel void nothing(global int *unused) { }\n"
    "kernel void copy(global const float4 *from, global float4 *to) {\n"
    "    size_t i = get_global_id(0);\n"
    "    to[i] = from[i];\n"
    "}\n"
    "kernel __attribute__((reqd_work_group_size(16, 16, 1)))\n"
    "void gemm_tiled(global const real *a, global const real *b, global float *c, int n) "
    "{\n"
    "    local float ta[16][65], tb[16][64];\n"
    "    int x = get_local_id(0), y = get_local_id(1), t = y * 16 + x;\n"
    "    int col = get_group_id(0) * 64, row = get_group_id(1) * 64;\n"
    "    float s[4][4];\n"
    "    for (int i = 0; i < 4; i++)\n"
    "        for (int j = 0; j < 4; j++) s[i][j] = 0.0f;\n"
    "    for (int k = 0; k < n; k += 16) {\n"
    "        for (int e = t; e < 1024; e += 256) {\n"
    "            ta[e % 16][e / 16] = a[(size_t)(row + e / 16) * n + k + e % 16];\n"
    "            tb[e / 64][e % 64] = b[(size_t)(k + e / 64) * n + col + e % 64];\n"
    "        }\n"
    "        barrier(CLK_LOCAL_MEM_FENCE);\n"
    "        for (int q = 0; q < 16; q++) {\n"
    "            float va[4], vb[4];\n"
    "            for (int i = 0; i < 4; i++) va[i] = ta[q][y * 4 + i];\n"
    "            for (int j = 0; j < 4; j++) vb[j] = tb[q][x + j * 16];\n"
    "            for (int i = 0; i < 4; i++)\n"
    "                for (int j = 0; j < 4; j++) s[i][j] += va[i] * vb[j];\n"
    "        }\n"
    "        barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    }\n"
    "    for (int i = 0; i < 4; i++)\n"
    "        for (int j = 0; j < 4; j++)\n"
    "            c[(size_t)(row + y * 4 + i) * n + col + x + j * 16] = s[i][j];\n"
    "}\n"
    "kernel void gemm_wide(global const real *a, global const real *b, global float *c,\n"
    "                      int n) {\n"
    "    int col = get_global_id(0) * 16, row = get_global_id(1) * 4;\n"
    "    float16 s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;\n"
    "    for (int k = 0; k < n; k++) {\n"
    "        float16 v = LOAD16(b + (size_t)k * n + col);\n"
    "        s0 += (float16)(float)a[(size_t)row * n + k] * v;\n"
    "        s1 += (float16)(float)a[(size_t)(row + 1) * n + k] * v;\n"
    "        s2 += (float16)(float)a[(size_t)(row + 2) * n + k] * v;\n"
    "        s3 += (float16)(float)a[(size_t)(row + 3) * n + k] * v;\n"
    "    }\n"
    "    *(global float16 *)(c + (size_t)row * n + col) = s0;\n"
    "    *(global float16 *)(c + (size_t)(row + 1) * n + col) = s1;\n"
    "    *(global float16 *)(c + (size_t)(row + 2) * n + col) = s2;\n"
    "    *(global float16 *)(c + (size_t)(row + 3) * n + col) = s3;\n"
    "}\n";

#endif
