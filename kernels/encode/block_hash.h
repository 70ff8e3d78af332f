// The checksums of a record's entries (docs/design/stored-form.md).
#pragma once

#include <cstdint>

#include "kernels/encode/xxh3_op.h"
#include "precis/record.h"

namespace precis::kernels {

// In the byte order that xxHash prints: big-endian.
Checksum checksum_of(const xxh3::Hash128& hash);
// Hashes entries [first, last) of every section.
Checksum hash_entries(const RecordView& record, std::uint32_t first, std::uint32_t last);
// Hashes one block of kChecksumBlockEntries entries; the last block may be shorter.
Checksum hash_block(const RecordView& record, std::uint32_t block);

}  // namespace precis::kernels
