// Files that the configuration names.
#pragma once

#include <filesystem>
#include <string>

#include "cachesvc/base/config.h"

namespace precis {

bool is_readable_by_all(const std::string& path);

// Resolves the path of a file that the configuration names, by the rule of Config::read_tokens().
Result<std::filesystem::path> find_file(const std::string& name, const std::string& credentials_dir,
                                        const std::string& beside);

struct TokenFile {
  std::string path, text;
};

// Reads a file that holds a token, and finds it by the same rule. kInvalidArgument if it cannot be
// used.
Result<TokenFile> read_token_file(const std::string& name, const std::string& credentials_dir,
                                  const std::string& beside);

}  // namespace precis
