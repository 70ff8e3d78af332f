#include "cachesvc/base/private_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace precis {

MadePrivate make_private(const std::string& dir) {
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  std::error_code ignored;
  const auto above = std::filesystem::path(dir).lexically_normal().parent_path();
  if (!above.empty()) std::filesystem::create_directories(above, ignored);
  MadePrivate made;
  if (::mkdir(dir.c_str(), S_IRWXU) == 0) return made;
  struct stat folder {};
  if (::stat(dir.c_str(), &folder) != 0 || !S_ISDIR(folder.st_mode)) return made;
  made.was_open = (folder.st_mode & kOthers) != 0;
  if (made.was_open && (folder.st_mode & S_ISVTX) != 0) {
    made.left_open =
        Status::invalid("it is shared by all users (sticky); choose a folder for Precis alone");
  } else if (folder.st_uid != ::geteuid()) {
    made.left_open = Status::denied("it belongs to user " + std::to_string(folder.st_uid) +
                                    "; choose a folder of the service's user");
  } else if (!made.was_open) {
    return made;
  } else if (::chmod(dir.c_str(), folder.st_mode & 07777 & ~kOthers) != 0) {
    made.left_open = Status::denied("chmod: " + std::generic_category().message(errno));
  }
  return made;
}

}  // namespace precis
