/* SPDX-License-Identifier: Apache-2.0 */
#include "io/tfevents.h"

#include <errno.h>
#include <fcntl.h>
#include <io/proto/event.pb-c.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "io/tfrecord.h"

enum { BUCKETS = 30, DT_FLOAT = 1, DT_DOUBLE = 2, CLASS_SCALAR = 1, CLASS_TENSOR = 2 };

struct copse__tfevents {
    char *path;
    int fd;
    uint64_t bytes; /* of whole events */
    unsigned char *buffer;
    size_t capacity;
};

static double wall_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* One record by one write; what of it a full disk took is taken back. */
static copse_status write_event(copse__tfevents *writer,
                                const Copse__Events__Event *event, copse_error *err) {
    size_t bytes = copse__events__event__get_packed_size(event);
    size_t whole = COPSE__RECORD_HEAD + bytes + COPSE__RECORD_TAIL, done = 0;
    copse_status status = copse__grow(&writer->buffer, &writer->capacity, whole, 1, err);
    if (status != COPSE_OK)
        return status;
    unsigned char *data = writer->buffer + COPSE__RECORD_HEAD;
    copse__events__event__pack(event, data);
    copse__tfrecord_frame(writer->buffer, data + bytes, data, bytes);
    while (done < whole) {
        ssize_t put = write(writer->fd, writer->buffer + done, whole - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            status =
                copse__fail(err, COPSE_IO, put < 0 ? errno : ENOSPC, writer->path,
                            "cannot write it: %s", strerror(put < 0 ? errno : ENOSPC));
            break;
        }
        done += (size_t)put;
    }
    if (status == COPSE_OK)
        writer->bytes += whole;
    else if (done > 0 && ftruncate(writer->fd, (off_t)writer->bytes) != 0)
        return copse__fail(err, COPSE_IO, errno, writer->path,
                           "cannot take a cut event back: %s", strerror(errno));
    return status;
}

static copse_status open_file(copse__tfevents *writer, const char *folder,
                              copse_error *err) {
    static atomic_uint counter; /* two files of one second and process must differ */
    char host[64] = "", name[160];
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0')
        snprintf(host, sizeof host, "localhost");
    for (char *at = host; *at; at++)
        if (*at == '/')
            *at = '_';
    snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld.%u",
             (long long)time(NULL), host, (long)getpid(), atomic_fetch_add(&counter, 1));
    copse_status status = copse__make_folders(folder, err);
    if (status == COPSE_OK)
        status = copse__path_join(&writer->path, folder, name, err);
    if (status != COPSE_OK)
        return status;
    writer->fd =
        open(writer->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    return writer->fd >= 0 ? COPSE_OK
                           : copse__fail(err, COPSE_IO, errno, writer->path,
                                         "cannot write it: %s", strerror(errno));
}

copse_status copse__tfevents_open(copse__tfevents **out, const char *folder, int64_t step,
                                  copse_error *err) {
    *out = NULL;
    copse__tfevents *writer;
    copse_status status = copse__calloc(&writer, 1, sizeof *writer, err);
    if (status != COPSE_OK)
        return status;
    writer->fd = -1;
    Copse__Events__Event event = COPSE__EVENTS__EVENT__INIT;
    char version[] = "brain.Event:2";
    event.wall_time = wall_time();
    event.what_case = COPSE__EVENTS__EVENT__WHAT_FILE_VERSION;
    event.file_version = version;
    COPSE__TRY(open_file(writer, folder, err), fail);
    COPSE__TRY(write_event(writer, &event, err), fail);
    /* The first session too: TensorBoard takes only the second start for a restart. */
    Copse__Events__SessionLog start = COPSE__EVENTS__SESSION_LOG__INIT;
    start.status = 1;
    event.step = step;
    event.what_case = COPSE__EVENTS__EVENT__WHAT_SESSION_LOG;
    event.session_log = &start;
    COPSE__TRY(write_event(writer, &event, err), fail);
    *out = writer;
    return COPSE_OK;
fail:
    copse__tfevents_close(writer);
    return status;
}

void copse__tfevents_close(copse__tfevents *writer) {
    if (!writer)
        return;
    if (writer->fd >= 0)
        close(writer->fd);
    free(writer->buffer);
    free(writer->path);
    free(writer);
}

/* A tensor as the one value of a summary, for a plugin of TensorBoard. */
static copse_status write_tensor(copse__tfevents *writer, const char *tag, int64_t step,
                                 Copse__Events__Tensor *tensor, const char *plugin,
                                 int32_t data_class, copse_error *err) {
    Copse__Events__PluginData data = COPSE__EVENTS__PLUGIN_DATA__INIT;
    Copse__Events__SummaryMetadata metadata = COPSE__EVENTS__SUMMARY_METADATA__INIT;
    Copse__Events__SummaryValue value = COPSE__EVENTS__SUMMARY_VALUE__INIT;
    Copse__Events__SummaryValue *values[] = {&value};
    Copse__Events__Summary summary = COPSE__EVENTS__SUMMARY__INIT;
    Copse__Events__Event event = COPSE__EVENTS__EVENT__INIT;
    data.plugin_name = (char *)(uintptr_t)plugin;
    metadata.plugin_data = &data;
    metadata.data_class = data_class;
    value.tag = (char *)(uintptr_t)tag;
    value.tensor = tensor;
    value.metadata = &metadata;
    summary.n_value = 1;
    summary.value = values;
    event.wall_time = wall_time();
    event.step = step;
    event.what_case = COPSE__EVENTS__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    return write_event(writer, &event, err);
}

copse_status copse__tfevents_scalar(copse__tfevents *writer, const char *tag,
                                    int64_t step, double value, copse_error *err) {
    if (!writer)
        return COPSE_OK;
    float number = (float)value;
    Copse__Events__TensorShape shape = COPSE__EVENTS__TENSOR_SHAPE__INIT;
    Copse__Events__Tensor tensor = COPSE__EVENTS__TENSOR__INIT;
    tensor.dtype = DT_FLOAT;
    tensor.tensor_shape = &shape;
    tensor.n_float_val = 1;
    tensor.float_val = &number;
    return write_tensor(writer, tag, step, &tensor, "scalars", CLASS_SCALAR, err);
}

/* left, right and count of each bucket, as TensorBoard's histogram summary computes them. */
static void fill_buckets(double out[BUCKETS][3], const float *values, size_t count) {
    double least = INFINITY, most = -INFINITY;
    size_t finite = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            continue;
        finite++;
        least = fmin(least, (double)values[i]);
        most = fmax(most, (double)values[i]);
    }
    memset(out, 0, BUCKETS * sizeof *out);
    if (finite == 0)
        return;
    double width = (most - least) / BUCKETS;
    for (size_t b = 0; b < BUCKETS; b++) {
        out[b][0] = least + (double)b * width;
        out[b][1] = b + 1 == BUCKETS ? most : least + (double)(b + 1) * width;
    }
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            continue;
        size_t bucket = BUCKETS - 1;
        if (width > 0)
            bucket = copse__min_size((size_t)(((double)values[i] - least) / width),
                                     BUCKETS - 1);
        out[bucket][2] += 1;
    }
}

copse_status copse__tfevents_histogram(copse__tfevents *writer, const char *tag,
                                       int64_t step, const float *values, size_t count,
                                       copse_error *err) {
    if (!writer)
        return COPSE_OK;
    double buckets[BUCKETS][3];
    fill_buckets(buckets, values, count);
    Copse__Events__TensorShapeDim rows = COPSE__EVENTS__TENSOR_SHAPE_DIM__INIT;
    Copse__Events__TensorShapeDim columns = COPSE__EVENTS__TENSOR_SHAPE_DIM__INIT;
    Copse__Events__TensorShapeDim *dims[] = {&rows, &columns};
    Copse__Events__TensorShape shape = COPSE__EVENTS__TENSOR_SHAPE__INIT;
    Copse__Events__Tensor tensor = COPSE__EVENTS__TENSOR__INIT;
    rows.size = BUCKETS;
    columns.size = 3;
    shape.n_dim = 2;
    shape.dim = dims;
    tensor.dtype = DT_DOUBLE;
    tensor.tensor_shape = &shape;
    tensor.n_double_val = BUCKETS * 3;
    tensor.double_val = &buckets[0][0];
    return write_tensor(writer, tag, step, &tensor, "histograms", CLASS_TENSOR, err);
}
