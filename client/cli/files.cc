#include "client/cli/files.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "precis/read_file.h"

namespace precis::cli {
namespace {

Status refused(const std::string& path) {
  return Status::invalid("cannot write " + path + ": " + std::generic_category().message(errno));
}

}  // namespace

Result<std::string> read_named(const std::string& path, std::size_t bytes_max) {
  auto text = read_file(path, bytes_max);
  if (!text.ok()) return Status::invalid(text.status().message());
  return text;
}

Status write_file(const std::string& path, const std::string& text) {
  const std::string scratch = path + ".part";
  std::ofstream out(scratch, std::ios::binary);
  out << text;
  out.close();
  if (!out) return refused(path);
  std::error_code error;
  std::filesystem::rename(scratch, path, error);
  if (error) return Status::invalid("cannot write " + path + ": " + error.message());
  return {};
}

}  // namespace precis::cli
