#include "client/cli/files.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace precis::cli {
namespace {

Status refused(const char* verb, const std::string& path) {
  return Status::invalid("cannot " + std::string(verb) + " " + path + ": " +
                         std::generic_category().message(errno));
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) {
    errno = EISDIR;  // A folder opens as a stream, and reading it throws.
    return refused("read", path);
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad() || errno != 0) return refused("read", path);
  return text;
}

Status write_file(const std::string& path, const std::string& text) {
  const std::string scratch = path + ".part";
  std::ofstream out(scratch, std::ios::binary);
  out << text;
  out.close();
  if (!out) return refused("write", path);
  std::error_code error;
  std::filesystem::rename(scratch, path, error);
  if (error) return Status::invalid("cannot write " + path + ": " + error.message());
  return {};
}

}  // namespace precis::cli
