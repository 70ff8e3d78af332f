#include "precis/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace precis {
namespace {

Status cannot_read(const std::string& path, int error) {
  std::string text = "cannot read " + path + ": " + std::generic_category().message(error);
  return error == ENOENT ? Status::not_found(std::move(text)) : Status::invalid(std::move(text));
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t bytes_max) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (file < 0) return cannot_read(path, errno);
  std::string text;
  Status status;
  std::array<char, 64 * 1024> part;
  for (;;) {
    const ssize_t size = ::read(file, part.data(), part.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) status = cannot_read(path, errno);
    if (size <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(size));
    if (text.size() > bytes_max) {
      status = Status::invalid(path + " has more than " + std::to_string(bytes_max) +
                               " bytes, the most that are read here; is it the right file?");
      break;
    }
  }
  ::close(file);
  if (!status.ok()) return status;
  return text;
}

}  // namespace precis
