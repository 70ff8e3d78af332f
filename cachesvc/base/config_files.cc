#include "cachesvc/base/config_files.h"

#include <sys/stat.h>

#include <string_view>
#include <system_error>
#include <utility>

#include "precis/limits.h"
#include "precis/read_file.h"

namespace precis {

bool is_readable_by_all(const std::string& path) {
  struct stat file {};
  return ::stat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode) && (file.st_mode & S_IROTH) != 0;
}

Result<std::filesystem::path> find_file(const std::string& name, const std::string& credentials_dir,
                                        const std::string& beside) {
  constexpr std::string_view kVariables[] = {"$CREDENTIALS_DIRECTORY", "${CREDENTIALS_DIRECTORY}"};
  std::filesystem::path path = name;
  bool of_credentials = path.is_relative() && !credentials_dir.empty();
  for (const std::string_view variable : kVariables) {
    if (name != variable && !name.starts_with(std::string(variable) + "/")) continue;
    if (credentials_dir.empty()) {
      return Status::invalid("is '" + name +
                             "', and CREDENTIALS_DIRECTORY is not set: systemd sets it if the unit "
                             "has LoadCredential; otherwise give the path of a file");
    }
    path = std::filesystem::path(name.substr(variable.size())).relative_path();
    of_credentials = true;
  }
  // operator/ keeps an absolute path as it is.
  return std::filesystem::path(of_credentials ? credentials_dir : beside) / path;
}

Result<TokenFile> read_token_file(const std::string& name, const std::string& credentials_dir,
                                  const std::string& beside) {
  PRECIS_ASSIGN(const auto path, find_file(name, credentials_dir, beside));
  // Reading a pipe without a writer would block.
  std::error_code none;
  if (std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none)) {
    return Status::invalid(path.string() +
                           " is not a regular file; give the path of a file that holds the token");
  }
  PRECIS_ASSIGN(std::string text, read_file(path.string(), limits::kCredentialBytesMax));
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  if (text.empty()) return Status::invalid(path.string() + " is empty, must hold the token");
  return TokenFile{path.string(), std::move(text)};
}

}  // namespace precis
