/* SPDX-License-Identifier: Apache-2.0 */
#include "io/output.h"

#include <string.h>
#include <zlib.h>

#include "base/mem.h"

enum { BUFFER = 256 << 10 };

struct copse__output {
    copse__atomic_file *file;
    bool gzip;
    z_stream zip;
    unsigned char *buffer; /* of bytes on their way into the file */
    size_t used;
};

bool copse__is_gzip_name(const char *path) {
    size_t n = strlen(path);
    return n > 3 && strcmp(path + n - 3, ".gz") == 0;
}

copse_status copse__output_open(copse__output **out, const char *path, bool gzip,
                                copse_error *err) {
    *out = NULL;
    copse__output *o;
    copse_status status = copse__calloc(&o, 1, sizeof *o, err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(copse__calloc(&o->buffer, BUFFER, 1, err), fail);
    if (gzip && deflateInit2(&o->zip, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8,
                             Z_DEFAULT_STRATEGY) != Z_OK) {
        status = copse__fail_nomem(err, sizeof o->zip);
        goto fail;
    }
    o->gzip = gzip;
    COPSE__TRY(copse__atomic_open(&o->file, path, err), fail);
    *out = o;
    return COPSE_OK;
fail:
    copse__output_abort(o);
    return status;
}

static copse_status flush(copse__output *o, copse_error *err) {
    copse_status status = copse__atomic_write(o->file, o->buffer, o->used, err);
    o->used = 0;
    return status;
}

static copse_status deflate_all(copse__output *o, const void *data, size_t bytes,
                                int mode, copse_error *err) {
    const unsigned char *from = data;
    for (;;) {
        size_t piece = copse__min_size(bytes, (size_t)1 << 30);
        o->zip.next_in = (unsigned char *)(uintptr_t)from;
        o->zip.avail_in = (uInt)piece;
        o->zip.next_out = o->buffer + o->used;
        o->zip.avail_out = (uInt)(BUFFER - o->used);
        int code = deflate(&o->zip, mode);
        from += piece - o->zip.avail_in;
        bytes -= piece - o->zip.avail_in;
        o->used = BUFFER - o->zip.avail_out;
        if (code == Z_STREAM_END)
            return COPSE_OK;
        if (o->used == BUFFER) {
            copse_status status = flush(o, err);
            if (status != COPSE_OK)
                return status;
        } else if (bytes == 0 && mode == Z_NO_FLUSH) {
            return COPSE_OK;
        }
    }
}

copse_status copse__output_write(copse__output *o, const void *data, size_t bytes,
                                 copse_error *err) {
    if (o->gzip)
        return deflate_all(o, data, bytes, Z_NO_FLUSH, err);
    if (bytes > BUFFER - o->used) {
        copse_status status = flush(o, err);
        if (status != COPSE_OK)
            return status;
    }
    if (bytes > BUFFER)
        return copse__atomic_write(o->file, data, bytes, err);
    memcpy(o->buffer + o->used, data, bytes);
    o->used += bytes;
    return COPSE_OK;
}

static void release(copse__output *o) {
    if (o->gzip)
        deflateEnd(&o->zip);
    free(o->buffer);
    free(o);
}

copse_status copse__output_commit(copse__output *o, copse_error *err) {
    copse_status status = o->gzip ? deflate_all(o, "", 0, Z_FINISH, err) : COPSE_OK;
    if (status == COPSE_OK)
        status = flush(o, err);
    if (status != COPSE_OK) {
        copse__output_abort(o);
        return status;
    }
    copse__atomic_file *file = o->file;
    release(o);
    return copse__atomic_commit(file, err);
}

void copse__output_abort(copse__output *o) {
    if (!o)
        return;
    copse__atomic_abort(o->file);
    release(o);
}
