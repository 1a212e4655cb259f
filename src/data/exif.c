/* SPDX-License-Identifier: Apache-2.0
 *
 * The one EXIF tag that changes pixels: the camera's orientation. */
#include <string.h>

#include "data/image.h"

typedef struct tiff {
    const unsigned char *data;
    size_t bytes;
    bool big; /* most significant byte first */
} tiff;

static unsigned get16(const tiff *t, size_t at) {
    const unsigned char *d = t->data + at;
    return t->big ? (unsigned)d[0] << 8 | d[1] : (unsigned)d[1] << 8 | d[0];
}

static size_t get32(const tiff *t, size_t at) {
    size_t first = get16(t, at), second = get16(t, at + 2);
    return t->big ? first << 16 | second : second << 16 | first;
}

int copse__exif_orientation(const unsigned char *app1, size_t bytes) {
    enum { HEAD = 6, ENTRY = 12, TAG = 0x0112, SHORT = 3 };
    if (bytes < HEAD + 8 || memcmp(app1, "Exif\0\0", HEAD) != 0)
        return 1;
    tiff t = {app1 + HEAD, bytes - HEAD, app1[HEAD] == 'M'};
    if (memcmp(t.data, t.big ? "MM\0*" : "II*\0", 4) != 0)
        return 1;
    size_t at = get32(&t, 4);
    if (at > t.bytes || t.bytes - at < 2)
        return 1;
    size_t count = get16(&t, at);
    at += 2;
    for (size_t i = 0; i < count && t.bytes - at >= ENTRY; i++, at += ENTRY) {
        if (get16(&t, at) != TAG || get16(&t, at + 2) != SHORT)
            continue;
        unsigned value = get16(&t, at + 8);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}
