#include "rules.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>

namespace precis::tidy {
namespace {

namespace fs = std::filesystem;

// ---- the tables ---------------------------------------------------------------------------------

// The other parts that a part may include, as in ARCHITECTURE.md. Tests may include anything.
const std::map<std::string, std::set<std::string>> kAllowed = {
    {"schema", {}},
    {"records", {"schema"}},
    {"kernels", {"schema", "records"}},
    {"base", {"schema"}},
    {"net", {"schema", "base"}},
    {"cluster", {"schema", "base", "net"}},
    {"transport", {"schema", "base", "net"}},
    {"store", {"schema", "base"}},
    {"shared", {"schema", "base", "store"}},
    {"catalog", {"schema", "base", "store"}},
    {"pipeline", {"schema", "records", "kernels", "base", "net", "transport", "store", "catalog"}},
    {"capacity", {"schema", "base", "store", "catalog", "pipeline"}},
    {"backup", {"schema", "base", "store", "catalog", "pipeline"}},
    {"server",
     {"schema", "records", "kernels", "base", "net", "cluster", "transport", "store", "shared",
      "catalog", "pipeline", "capacity", "backup"}},
    {"admin", {"schema", "base", "net", "transport", "server"}},
    {"publish", {"schema", "base", "net", "server"}},
    {"trace", {"schema", "base", "net", "server"}},
    {"precisd",
     {"schema", "records", "kernels", "base", "net", "cluster", "transport", "store", "shared",
      "catalog", "pipeline", "capacity", "backup", "server", "admin", "publish", "trace"}},
    {"client", {"schema", "records", "base", "net"}},
    {"python", {"schema", "records", "kernels", "client"}},
    {"cli", {"schema", "client"}},
    {"examples", {"client"}},
    {"c", {"schema", "client"}},
    {"embed",
     {"schema", "records", "kernels", "base", "net", "transport", "store", "catalog", "pipeline",
      "server", "client"}},
};

// The headers that include Asio or Beast, which take long to compile.
const std::set<std::string> kAsioHeaders = {"cachesvc/base/asio.h", "cachesvc/net/http_link.h",
                                            "cachesvc/admin/beast.h"};

// A library's headers, and prefixes of the only paths that may include them.
struct Foreign {
  std::string library;
  std::vector<std::string> headers;
  std::vector<std::string> homes;
};
const std::vector<Foreign> kForeign = {
    {"UCX", {"ucp/", "uct/", "ucs/", "ucm/"}, {"cachesvc/net/rdma/uct"}},
    {"RocksDB",
     {"rocksdb/"},
     {"cachesvc/store/rocksdb_store.cc", "cachesvc/store/rocksdb_options",
      "cachesvc/store/rocksdb_snapshot"}},
    {"Boost", {"boost/"}, {"cachesvc/base/asio.h", "cachesvc/net/http_link.h"}},
    {"ZeroMQ", {"zmq.h"}, {"cachesvc/publish/kv_publisher.cc"}},
    {"prometheus-cpp", {"prometheus/"}, {"cachesvc/admin/metrics_text.cc"}},
    {"Cap'n Proto", {"capnp/", "kj/", "*.capnp.h"}, {"schema/src/"}},
    {"CUDA",
     {"cuda", "cub/", "thrust/", "nvtx3/", "cooperative_groups"},
     {"kernels/backend_cuda.cc", "kernels/*.cu", "kernels/*.cuh"}},
    {"librados", {"rados/"}, {"cachesvc/shared/rados_"}},
    {"libcurl", {"curl/"}, {"cachesvc/shared/s3_library.h"}},
    {"OpenSSL", {"openssl/"}, {"schema/src/", "cachesvc/net/tls.cc", "cachesvc/cluster/base64.cc"}},
    {"xxHash",
     {"xxhash.h"},
     {"schema/src/", "kernels/", "cachesvc/store/ack_record.cc", "cachesvc/store/extent_header.cc",
      "cachesvc/store/table_check.cc", "cachesvc/shared/log_record.cc",
      "cachesvc/pipeline/path_digests.cc"}},
    {"JSON", {"nlohmann/"}, {"schema/src/", "schema/json/", "cachesvc/cluster/", "client/cli/"}},
    {"toml++", {"toml++/", "toml.hpp"}, {"cachesvc/base/"}},
    {"spdlog", {"spdlog/"}, {"cachesvc/base/"}},
    {"fmt", {"fmt/"}, {"cachesvc/base/", "client/cli/"}},
    {"CLI11", {"CLI/"}, {"cachesvc/main.cc", "client/cli/"}},
    {"nanobind", {"nanobind/", "Python.h"}, {"client/python/"}},
};

// Each of these words may appear in one file only, which converts the foreign error to a Status.
const std::vector<std::string> kForeignErrors = {
    "ucs_status_string", "rocksdb::Status", "kj::Exception", "cudaGetErrorString", "zmq_strerror"};

// Programs may read the environment.
const std::set<std::string> kEnvironmentReaders = {
    "cachesvc/main.cc", "client/examples/quickstart.cc", "client/cli/main.cc"};

constexpr std::size_t kLineMax = 100, kHeaderMax = 220, kSourceMax = 350, kTestMax = 450;
// Longer files, each with its reason. A number may only be reduced.
const std::map<std::string, std::size_t> kLonger = {
    {"schema/include/precis/messages.h",
     380},  // one struct per message; splitting hides the protocol
    {"schema/include/precis/recipe.h", 240},  // one enum per choice that a recipe makes
};

// ---- helpers ------------------------------------------------------------------------------------

bool begins(std::string_view s, std::string_view with) { return s.substr(0, with.size()) == with; }
bool ends(std::string_view s, std::string_view with) {
  return s.size() >= with.size() && s.substr(s.size() - with.size()) == with;
}
std::string extension(const std::string& path) { return fs::path(path).extension().string(); }
bool is_header(const std::string& path) {
  return extension(path) == ".h" || extension(path) == ".cuh";
}
bool is_source(const std::string& path) {
  return extension(path) == ".cc" || extension(path) == ".cu" || extension(path) == ".c";
}
bool is_cxx(const std::string& path) { return is_header(path) || is_source(path); }
bool is_page(const std::string& path) { return begins(path, "cachesvc/admin/page/"); }
bool is_test(const std::string& path) { return begins(path, "tests/"); }
bool is_tidy(const std::string& path) { return begins(path, "tests/tidy/"); }

// The pattern is "dir/*.ext" or the beginning of a path.
bool matches(const std::string& path, const std::string& pattern) {
  const auto star = pattern.find('*');
  if (star == std::string::npos) return begins(path, pattern);
  return begins(path, pattern.substr(0, star)) && ends(path, pattern.substr(star + 1));
}
bool matches_any(const std::string& path, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(path, pattern); });
}

using OnLine = std::function<void(std::size_t number, const std::string& line)>;
void each_line(const std::string& content, const OnLine& on_line) {
  std::istringstream in(content);
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) on_line(number, line);
}

std::string finding(const std::string& path, std::size_t line, const std::string& what) {
  return path + ":" + std::to_string(line) + ": " + what;
}

struct Include {
  std::size_t line = 0;
  bool quoted = false;
  std::string header;
};
std::vector<Include> includes_of(const std::string& content) {
  std::vector<Include> found;
  each_line(content, [&](std::size_t number, const std::string& line) {
    const auto hash = line.find_first_not_of(" \t");
    if (hash == std::string::npos || line[hash] != '#') return;
    const auto word = line.find_first_not_of(" \t", hash + 1);
    if (word == std::string::npos || line.compare(word, 7, "include") != 0) return;
    const auto open = line.find_first_of("<\"", word);
    if (open == std::string::npos) return;
    const auto close = line.find_first_of(">\"", open + 1);
    if (close == std::string::npos) return;
    found.push_back({number, line[open] == '"', line.substr(open + 1, close - open - 1)});
  });
  return found;
}

// The part of the architecture that a file belongs to; empty if there is none.
std::string part_of(const std::string& path) {
  for (const char* folder : {"python", "cli", "examples", "c"}) {
    if (begins(path, "client/" + std::string(folder) + "/")) return folder;
  }
  // The interfaces of precis_records and precis_device, which the client may use.
  for (const char* name : {"record", "row_code", "page_mover"}) {
    if (path == "kernels/include/precis/" + std::string(name) + ".h") return "records";
  }
  for (const char* top : {"schema", "kernels", "client", "tests"}) {
    if (begins(path, std::string(top) + "/")) return top;
  }
  const std::string service = "cachesvc/";
  if (!begins(path, service)) return "";
  const auto slash = path.find('/', service.size());
  if (slash == std::string::npos) return "precisd";
  const std::string layer = path.substr(service.size(), slash - service.size());
  return kAllowed.count(layer) != 0 ? layer : "";
}

// The file that a quoted include names; empty if it is not one of ours.
std::string resolve(const Tree& tree, const std::string& from, const std::string& header) {
  const std::string folder = fs::path(from).parent_path().generic_string();
  for (const std::string& base :
       {folder, std::string(), std::string("schema/include"), std::string("kernels/include"),
        std::string("client/include"), std::string("schema"), std::string("kernels"),
        std::string("client/src")}) {
    const auto path = (fs::path(base) / header).lexically_normal().generic_string();
    if (tree.count(path) != 0) return path;
  }
  // schema/generate.py writes precis/schema/NAME.h and wire_NAME.h from schema/NAME.capnp.
  std::string name = fs::path(header).stem().generic_string();
  if (name.rfind("wire_", 0) == 0) name = name.substr(5);
  const std::string schema = "schema/" + name + ".capnp";
  const bool is_generated =
      header.rfind("precis/schema/", 0) == 0 || header == "wire_" + name + ".h";
  return is_generated && tree.count(schema) != 0 ? schema : "";
}

bool is_foreign(const Foreign& library, const std::string& header) {
  return matches_any(header, library.headers);
}

}  // namespace

// ---- the rules ----------------------------------------------------------------------------------

Findings check_dependencies(const Tree& tree) {
  Findings findings;
  for (const auto& [path, content] : tree) {
    if (!is_cxx(path) || is_test(path)) continue;
    const std::string part = part_of(path);
    if (part.empty()) {
      findings.push_back(finding(path, 1, "belongs to no part of the architecture"));
      continue;
    }
    for (const Include& include : includes_of(content)) {
      if (!include.quoted || ends(include.header, ".capnp.h")) continue;
      const std::string target = resolve(tree, path, include.header);
      const std::string target_part = target.empty() ? "" : part_of(target);
      if (target.empty()) {
        findings.push_back(finding(path, include.line, "no file is " + include.header));
      } else if (target_part != part && kAllowed.at(part).count(target_part) == 0) {
        findings.push_back(finding(path, include.line,
                                   part + " may not include " + target_part + " (" + target + ")"));
      } else if (is_header(path) && kAsioHeaders.count(path) == 0 &&
                 kAsioHeaders.count(target) > 0) {
        findings.push_back(finding(path, include.line, "Asio and Beast belong in no other header"));
      }
    }
  }
  return findings;
}

Findings check_foreign_headers(const Tree& tree) {
  Findings findings;
  std::map<std::string, std::set<std::string>> error_homes;
  for (const auto& [path, content] : tree) {
    if (!is_cxx(path) || is_test(path)) continue;
    for (const Include& include : includes_of(content)) {
      for (const Foreign& library : kForeign) {
        if (!is_foreign(library, include.header)) continue;
        if (path.find("/include/precis/") != std::string::npos) {
          findings.push_back(finding(path, include.line, library.library + " in a public header"));
        } else if (!matches_any(path, library.homes)) {
          findings.push_back(finding(path, include.line, library.library + " outside its home"));
        }
      }
    }
    for (const std::string& word : kForeignErrors) {
      if (content.find(word) == std::string::npos) continue;
      error_homes[word].insert(fs::path(path).replace_extension("").generic_string());
    }
  }
  for (const auto& [word, paths] : error_homes) {
    if (paths.size() < 2) continue;
    std::string list;
    for (const std::string& path : paths) list += " " + path;
    findings.push_back(word + " is turned into a Status in one file, not in:" + list);
  }
  return findings;
}

Findings check_sizes(const Tree& tree) {
  static const std::set<std::string> kWidthKinds = {".h",     ".cc", ".cu",    ".cuh", ".py",
                                                    ".capnp", ".sh", ".cmake", ".js",  ".css"};
  Findings findings;
  for (const auto& [path, content] : tree) {
    const bool sized = is_cxx(path) || is_page(path);
    if (!sized && kWidthKinds.count(extension(path)) == 0) continue;
    std::size_t lines = 0;
    each_line(content, [&](std::size_t number, const std::string& line) {
      lines = number;
      // Counts columns and not bytes: continuation bytes of UTF-8 do not count.
      const auto width =
          static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
            return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
          }));
      if (width > kLineMax) {
        findings.push_back(finding(path, number, std::to_string(width) + " columns"));
      }
    });
    const auto longer = kLonger.find(path);
    const std::size_t most = longer != kLonger.end() ? longer->second
                             : is_header(path)       ? kHeaderMax
                             : is_test(path)         ? kTestMax
                                                     : kSourceMax;
    if (sized && lines > most) {
      findings.push_back(finding(path, lines, "over " + std::to_string(most) + " lines"));
    }
  }
  return findings;
}

Findings check_words(const Tree& tree) {
  Findings findings;
  for (const auto& [path, content] : tree) {
    if (is_tidy(path)) continue;  // These files must name the words.
    const bool may_ask_environment = kEnvironmentReaders.count(path) != 0;
    each_line(content, [&, file = path](std::size_t number, const std::string& line) {
      const auto refuse = [&](const char* word, const char* why) {
        if (line.find(word) != std::string::npos) {
          findings.push_back(finding(file, number, std::string(word) + ": " + why));
        }
      };
      for (const char* word : {"TODO", "FIXME", "HACK"}) refuse(word, "finish it");
      for (const char* word : {"/work/", "/home/", "/root/", "/opt/wheels", "/tmp/b-"}) {
        refuse(word, "a path of one machine");
      }
      if (is_cxx(file) && !is_test(file) && !may_ask_environment) {
        refuse("getenv(", "the environment is read in main alone");
      }
    });
  }
  return findings;
}

Findings check_compiler_traps(const Tree& tree) {
  Findings findings;
  for (const auto& [path, content] : tree) {
    if (!is_cxx(path) || is_tidy(path)) continue;
    std::size_t line = 1, question = std::string::npos;  // question: in the current statement
    for (std::size_t at = 0; at < content.size(); ++at) {
      const char c = content[at];
      if (c == '\n') ++line;
      if (c == ';' || c == '{' || c == '}') question = std::string::npos;
      if (c == '?') question = at;
      if (question != std::string::npos && content.compare(at, 8, "co_await") == 0) {
        findings.push_back(finding(path, line, "co_await inside a conditional expression"));
        question = std::string::npos;
      }
    }
  }
  return findings;
}

Findings check_twice_defined(const Tree& tree) {
  static const std::regex kNamespace("^namespace ([a-z0-9_:]+) \\{");
  // Only definitions in the first column, so in the namespace itself; declarations do not match.
  static const std::regex kConstant(
      "^(?:inline )?constexpr [^=({]*?\\b(k[A-Z]\\w*)\\s*(?:\\[|=|\\{)");
  static const std::regex kClass(
      "^(?:struct|class|enum class|union) (?:alignas\\(\\w+\\) )?(\\w+)\\b(?!::)[^;]*\\{");
  std::map<std::string, std::string> homes;  // namespace::name -> first file
  Findings findings;
  for (const auto& [path, content] : tree) {
    if ((extension(path) != ".h" && extension(path) != ".cuh") || begins(path, "tests/")) continue;
    std::istringstream text(content);
    std::string of_namespace;
    std::smatch match;
    std::size_t line = 0;
    for (std::string row; std::getline(text, row);) {
      ++line;
      if (std::regex_search(row, match, kNamespace)) of_namespace = match[1];
      if (!std::regex_search(row, match, kConstant) && !std::regex_search(row, match, kClass)) {
        continue;
      }
      const std::string name = of_namespace + "::" + match[1].str();
      const auto [home, first] = homes.emplace(name, path);
      if (first || home->second == path) continue;
      findings.push_back(finding(path, line, name + " is defined in " + home->second + " too"));
    }
  }
  return findings;
}

Findings check_build_lists(const Tree& tree) {
  std::map<std::string, std::string> lists;  // folder -> content of its CMake files
  for (const auto& [path, content] : tree) {
    if (ends(path, "CMakeLists.txt") || extension(path) == ".cmake") {
      lists[fs::path(path).parent_path().generic_string()] += content + "\n";
    }
  }
  const auto names = [](const std::string& list, const std::string& file) {
    std::istringstream words(list);
    for (std::string word; words >> word;) {
      std::erase_if(word, [](char c) { return c == '(' || c == ')' || c == '"'; });
      if (word == file || ends(word, "/" + file)) return true;
    }
    return false;
  };
  Findings findings;
  for (const auto& [path, content] : tree) {
    if (!is_source(path)) continue;
    bool listed = false;
    for (fs::path folder = fs::path(path).parent_path(); !listed; folder = folder.parent_path()) {
      const auto list = lists.find(folder.generic_string());
      listed = list != lists.end() &&
               names(list->second, fs::path(path).lexically_relative(folder).generic_string());
      if (folder.empty()) break;
    }
    if (!listed) findings.push_back(finding(path, 1, "stands in no CMakeLists.txt"));
  }
  return findings;
}

Findings check_links(const Tree& tree) {
  Findings findings;
  for (const auto& [path, content] : tree) {
    if (extension(path) != ".md") continue;
    const fs::path folder = fs::path(path).parent_path();
    each_line(content, [&, file = path](std::size_t number, const std::string& line) {
      for (auto at = line.find("]("); at != std::string::npos; at = line.find("](", at + 2)) {
        const auto close = line.find(')', at);
        if (close == std::string::npos) return;
        std::string target = line.substr(at + 2, close - at - 2);
        target = target.substr(0, target.find('#'));
        if (target.empty() || target.find("://") != std::string::npos) continue;
        const auto wanted = (folder / target).lexically_normal().generic_string();
        const bool found = std::any_of(tree.begin(), tree.end(), [&](const auto& entry) {
          return entry.first == wanted || begins(entry.first, wanted + "/");
        });
        if (!found) findings.push_back(finding(file, number, "no file is " + target));
      }
    });
  }
  return findings;
}

}  // namespace precis::tidy
