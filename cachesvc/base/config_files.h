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

// Reads a tenant's token_file. kInvalidArgument if it cannot be used, or if the tenant also has a
// token.
Result<TokenFile> read_token_file(const TenantConfig& tenant, const std::string& credentials_dir,
                                  const std::string& beside);

}  // namespace precis
