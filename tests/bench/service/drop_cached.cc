#include "tests/bench/service/drop_cached.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

namespace precis::bench {

void drop_cached(const std::string& folder) {
  ::sync();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;  // removed since it was listed
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

}  // namespace precis::bench
