#include "client/cli/files.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace precis::cli {
namespace {

Status refused(const char* verb, const std::string& path) {
  return Status::invalid("cannot " + std::string(verb) + " " + path + ": " +
                         std::generic_category().message(errno));
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) return refused("read", path);
  return std::move(text).str();
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
