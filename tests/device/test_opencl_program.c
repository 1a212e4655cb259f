/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>

#include "backend/opencl/internal.h"
#include "support/files.h"
#include "support/op_case.h"

/* Programs: built once, kept on disk, never handed damaged to a driver. */

#define SOURCE(text_, hash_)                                                             \
    { "sample", text_, sizeof(text_) - 1, hash_ }

static const copse__cl_source twice =
    SOURCE("kernel void twice(global uint *x) { x[get_global_id(0)] *= FACTOR; }\n",
           "0123456789abcdef0123456789abcdef");
static const copse__cl_source broken =
    SOURCE("#line 1 \"sample.cl\"\nkernel void broken(global uint *x) {\n  x[0] = "
           "unheard_of;\n}\n",
           "ffffffffffffffffffffffffffffffff");

/* The only entry of a folder whose name ends so; "" where there is none. */
static const char *entry_of(const char *folder, const char *ending) {
    static char path[1024];
    path[0] = '\0';
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *at; (at = readdir(dir));) {
        size_t length = strlen(at->d_name);
        if (length > strlen(ending) &&
            strcmp(at->d_name + length - strlen(ending), ending) == 0)
            snprintf(path, sizeof path, "%s/%s", folder, at->d_name);
    }
    closedir(dir);
    return path;
}

static bool loads(const char *folder, const char *key, const char *wanted) {
    unsigned char *binary;
    size_t bytes;
    copse__cl_binary_load(&binary, &bytes, folder, key);
    bool found = binary != NULL;
    if (found) {
        ck_assert_uint_eq(bytes, strlen(wanted));
        ck_assert_mem_eq(binary, wanted, bytes);
    }
    free(binary);
    return found;
}

static const char text[] = "what a compiler made of it, some bytes long";

static void store(const char *folder) {
    copse__cl_binary_store(folder, "a key", (const unsigned char *)text, strlen(text));
}

START_TEST(test_binary_load_whole_entry_is_given_back) {
    const char *folder = make_folder();
    ck_assert(!loads(folder, "a key", text));
    store(folder);
    ck_assert(loads(folder, "a key", text));
    ck_assert(!loads(folder, "another key", text));
    struct stat file;
    ck_assert_int_eq(stat(entry_of(folder, ".clbin"), &file), 0);
    ck_assert_uint_eq(file.st_mode & 0777, 0600);
    remove_folder(folder);
}
END_TEST

START_TEST(test_binary_load_every_truncation_is_refused) {
    const char *folder = make_folder();
    store(folder);
    const char *path = entry_of(folder, ".clbin");
    size_t bytes;
    unsigned char *whole = read_whole(path, &bytes);
    for (size_t keep = 0; keep < bytes; keep++) {
        write_file(path, whole, keep);
        ck_assert_msg(!loads(folder, "a key", text), "%zu of %zu bytes", keep, bytes);
    }
    write_file(path, whole, bytes);
    ck_assert(loads(folder, "a key", text));
    free(whole);
    remove_folder(folder);
}
END_TEST

START_TEST(test_binary_load_every_flipped_bit_is_refused) {
    const char *folder = make_folder();
    store(folder);
    const char *path = entry_of(folder, ".clbin");
    size_t bytes;
    unsigned char *whole = read_whole(path, &bytes);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        whole[bit / 8] ^= (unsigned char)(1u << bit % 8);
        write_file(path, whole, bytes);
        ck_assert_msg(!loads(folder, "a key", text), "bit %zu", bit);
        whole[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    free(whole);
    remove_folder(folder);
}
END_TEST

START_TEST(test_binary_load_foreign_or_linked_entry_is_ignored) {
    const char *folder = make_folder();
    store(folder);
    char path[1024], moved[1100];
    snprintf(path, sizeof path, "%s", entry_of(folder, ".clbin"));
    snprintf(moved, sizeof moved, "%s.moved", path);
    ck_assert_int_eq(rename(path, moved), 0);
    ck_assert_int_eq(symlink(moved, path), 0);
    ck_assert(!loads(folder, "a key", text));
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rename(moved, path), 0);
    ck_assert(loads(folder, "a key", text));
    ck_assert_int_eq(chmod(path, 0666), 0);
    ck_assert(!loads(folder, "a key", text));
    ck_assert_int_eq(chmod(path, 0600), 0);
    if (chown(path, 65534, (gid_t)-1) == 0)
        ck_assert(!loads(folder, "a key", text));
    else
        printf("not checked: only root can give a file to another user\n");
    remove_folder(folder);
}
END_TEST

/* Another device like test_device, with its programs in a folder. */
static copse__device *open_cached(const char *folder) {
    copse_error error = {0};
    copse__device *device;
    copse__device_options options = {.cache_folder = folder};
    ASSERT_OK(copse__device_open(&device, &copse__device_get(test_device)->choice,
                                 &options, &error));
    return device;
}

/* Builds `twice` with this factor and runs it on 21. */
static uint32_t times(copse__device *device, const char *options) {
    copse_error error = {0};
    cl_program program;
    copse__buffer *buffer;
    uint32_t number = 21;
    size_t one = 1;
    cl_command_queue queue = device->queues[COPSE__QUEUE_COMPUTE];
    ASSERT_OK(copse__cl_program_get(&program, device, &twice, options, &error));
    ASSERT_OK(copse__cl_buffer_new(&buffer, device, 4, COPSE__MEMORY_DEVICE, &error));
    cl_int code;
    cl_kernel kernel = clCreateKernel(program, "twice", &code);
    ck_assert_int_eq(code, CL_SUCCESS);
    ck_assert_int_eq(clEnqueueWriteBuffer(queue, buffer->memory, CL_TRUE, 0, 4, &number,
                                          0, NULL, NULL),
                     CL_SUCCESS);
    ck_assert_int_eq(clSetKernelArg(kernel, 0, sizeof(cl_mem), &buffer->memory),
                     CL_SUCCESS);
    ck_assert_int_eq(
        clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL),
        CL_SUCCESS);
    ck_assert_int_eq(
        clEnqueueReadBuffer(queue, buffer->memory, CL_TRUE, 0, 4, &number, 0, NULL, NULL),
        CL_SUCCESS);
    clReleaseKernel(kernel);
    copse__cl_buffer_free(buffer);
    return number;
}

START_TEST(test_program_get_damaged_entry_is_built_anew) {
    const char *folder = make_folder();
    copse__device *device = open_cached(folder);
    ck_assert_uint_eq(times(device, "-DFACTOR=2"), 42);
    copse__device_close(device);
    const char *path = entry_of(folder, ".clbin");
    ck_assert_msg(path[0] != '\0', "no binary was kept");
    size_t bytes;
    unsigned char *whole = read_whole(path, &bytes);
    const size_t kept[] = {bytes, 0, 10, bytes / 2, bytes - 1};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        write_file(path, whole, kept[i]);
        device = open_cached(folder);
        ck_assert_uint_eq(times(device, "-DFACTOR=2"), 42);
        copse__device_close(device);
    }
    whole[bytes - bytes / 4] ^= 0x10;
    write_file(path, whole, bytes);
    device = open_cached(folder);
    ck_assert_uint_eq(times(device, "-DFACTOR=2"), 42);
    copse__device_close(device);
    free(whole);
    remove_folder(folder);
}
END_TEST

START_TEST(test_program_get_options_are_part_of_the_key) {
    const char *folder = make_folder();
    copse__device *device = open_cached(folder);
    ck_assert_uint_eq(times(device, "-DFACTOR=2"), 42);
    ck_assert_uint_eq(times(device, "-DFACTOR=3"), 63);
    copse__device_close(device);
    device = open_cached(folder);
    ck_assert_uint_eq(times(device, "-DFACTOR=3"), 63);
    copse__device_close(device);
    remove_folder(folder);
}
END_TEST

static char logged[4096];

static void note_line(copse_log_level level, const char *line, void *user) {
    (void)user;
    if (level == COPSE_LOG_ERROR && strlen(logged) + strlen(line) + 2 < sizeof logged)
        strcat(strcat(logged, line), "\n");
}

START_TEST(test_program_get_build_error_names_the_line) {
    copse_error error = {0};
    cl_program program;
    logged[0] = '\0';
    copse_log_set(note_line, COPSE_LOG_ERROR, NULL);
    for (int again = 0; again < 2; again++) {
        error = (copse_error){0};
        ASSERT_FAILS(COPSE_KERNEL,
                     copse__cl_program_get(&program, test_device, &broken, "", &error));
        ck_assert_ptr_null(program);
        ck_assert_msg(strstr(error.text, "unheard_of") != NULL, "%s", error.text);
        ck_assert_ptr_null(strchr(error.text, '\n'));
        ck_assert_ptr_nonnull(strstr(error.place, test_device->base.choice.label));
    }
    copse_log_set(NULL, COPSE_LOG_ERROR, NULL);
    ck_assert_ptr_nonnull(strstr(logged, "unheard_of"));
    /* the second time it was only remembered */
    const char *first = strstr(logged, "sample.cl does not build");
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_null(strstr(first + 1, "sample.cl does not build"));
}
END_TEST

static void *get_program(void *out) {
    copse_error error = {0};
    copse_status status =
        copse__cl_program_get(out, test_device, &twice, "-DFACTOR=5", &error);
    return status == COPSE_OK ? out : NULL;
}

START_TEST(test_program_get_from_many_threads_is_built_once) {
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    cl_program programs[THREADS] = {0};
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, get_program, &programs[i]), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *result;
        ck_assert_int_eq(pthread_join(threads[i], &result), 0);
        ck_assert_ptr_nonnull(result);
    }
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_ptr_eq(programs[i], programs[0]);
    ck_assert_uint_eq(times(test_device, "-DFACTOR=5"), 105);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("opencl programs");
    ADD_TEST(suite, test_binary_load_whole_entry_is_given_back);
    ADD_TEST(suite, test_binary_load_every_truncation_is_refused);
    ADD_TEST(suite, test_binary_load_every_flipped_bit_is_refused);
    ADD_TEST(suite, test_binary_load_foreign_or_linked_entry_is_ignored);
    TCase *cached = device_case(suite, "cached");
    tcase_add_test(cached, test_program_get_damaged_entry_is_built_anew);
    tcase_add_test(cached, test_program_get_options_are_part_of_the_key);
    TCase *built = device_case(suite, "built");
    tcase_add_test(built, test_program_get_build_error_names_the_line);
    tcase_add_test(built, test_program_get_from_many_threads_is_built_once);
    return run_device_suite(suite);
}
