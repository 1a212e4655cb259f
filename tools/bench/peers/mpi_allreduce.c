/* SPDX-License-Identifier: Apache-2.0 */
/* MPI_Allreduce of float sums over shared memory, one process a rank: what a user without
 * copse would take. Prints the same JSON lines as `copse bench allreduce`.
 * Arguments: smallest and largest size in bytes, seconds a size. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 2000

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(size_t bytes, double seconds, int rank, int ranks) {
    const size_t count = bytes / sizeof(float);
    float *from = malloc(bytes), *to = malloc(bytes);
    static double times[MOST];
    double total = 0;
    int runs = -1, go_on = 1, right = 1; /* the first one warms up */
    if (from == NULL || to == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t e = 0; e < count; e++)
        from[e] = (float)(e % 1000 + (size_t)rank);
    while (go_on) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        MPI_Allreduce(from, to, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double mine = MPI_Wtime() - begin, slowest = 0;
        MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        for (size_t e = 0; e < count; e++)
            right = right && to[e] == (float)(e % 1000) * (float)ranks +
                                          (float)(ranks * (ranks - 1) / 2);
        if (runs >= 0) {
            times[runs] = slowest * 1e6;
            total += slowest;
        }
        runs++;
        go_on = runs < 5 || (total < seconds && runs < MOST);
        MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    int all_right = 0;
    MPI_Allreduce(&right, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (rank == 0) {
        qsort(times, (size_t)runs, sizeof times[0], compare);
        printf(
            "{\"bench\":\"mpi_allreduce\",\"ranks\":%d,\"bytes\":%zu,\"repetitions\":%d,"
            "\"time_us\":{\"median\":%.3f,\"min\":%.3f,\"max\":%.3f},"
            "\"busbw_GBps\":%.4f,\"verified\":%s}\n",
            ranks, bytes, runs, times[runs / 2], times[0], times[runs - 1],
            (double)bytes / times[runs / 2] * 1e-3 * 2 * (ranks - 1) / ranks,
            all_right ? "true" : "false");
        fflush(stdout);
    }
    free(from);
    free(to);
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const size_t from = argc > 1 ? strtoull(argv[1], NULL, 10) : 4096;
    const size_t to = argc > 2 ? strtoull(argv[2], NULL, 10) : (size_t)64 << 20;
    const double seconds = argc > 3 ? strtod(argv[3], NULL) : 1.0;
    for (size_t bytes = from; bytes <= to && bytes > 0; bytes *= 2)
        measure(bytes, seconds, rank, ranks);
    MPI_Finalize();
    return 0;
}
