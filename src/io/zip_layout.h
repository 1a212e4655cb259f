/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes and signatures of a zip archive's records. */
#ifndef COPSE_IO_ZIP_LAYOUT_H
#define COPSE_IO_ZIP_LAYOUT_H

enum {
    LOCAL_BYTES = 30,
    ENTRY_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR64_BYTES = 20,
    COMMENT_MOST = 65535
};

#define LOCAL_MAGIC 0x04034b50u
#define ENTRY_MAGIC 0x02014b50u
#define END_MAGIC 0x06054b50u
#define END64_MAGIC 0x06064b50u
#define LOCATOR64_MAGIC 0x07064b50u

#endif
