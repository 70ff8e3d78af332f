// A file with the keys of a user of S3, for a test.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace precis::testing {

// Writes the file to `folder` unless it is there. Returns its path.
inline std::string s3_keys_file(const std::string& folder, const std::string& id,
                                const std::string& secret) {
  std::string file = folder + "/keys-" + id + "-" + secret;
  if (std::filesystem::exists(file)) return file;
  std::ofstream(file) << "[default]\naws_access_key_id = " << id
                      << "\naws_secret_access_key = " << secret << "\n";
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  return file;
}

}  // namespace precis::testing
