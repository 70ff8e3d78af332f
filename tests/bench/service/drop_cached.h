// Empties the page cache of a folder's files, so that the next read of them is from the disk.
#pragma once

#include <string>

namespace precis::bench {

void drop_cached(const std::string& folder);

}  // namespace precis::bench
