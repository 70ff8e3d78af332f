#include "client/cli/files.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace precis::cli {
namespace {

Status refused(const std::string& path) {
  return Status::invalid("cannot write " + path + ": " + std::generic_category().message(errno));
}

}  // namespace

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
