// The rule about sources: the members of a class are defined in one source, so that a reader finds
// them. A class that is too long for one source is two classes.
#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "rules.h"

namespace precis::tidy {
namespace {

constexpr std::array<std::string_view, 4> kProduct = {"cachesvc/", "client/", "kernels/",
                                                      "schema/"};

// Sources that have members of a class besides its own source.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kApart = {{
    // linked only by programs that run the service themselves
    {"precis::Client", "cachesvc/embed/open.cc"},
    // built in place of uct_device.cc if UCX is not there
    {"precis::RdmaDevice", "cachesvc/net/rdma/no_rdma.cc"},
}};

bool is_product_source(std::string_view path) {
  const auto is_in = [&](std::string_view folder) { return path.starts_with(folder); };
  return std::ranges::any_of(kProduct, is_in) && (path.ends_with(".cc") || path.ends_with(".cu"));
}

bool is_apart(std::string_view name, std::string_view path) {
  return std::ranges::find(kApart, std::pair(name, path)) != kApart.end();
}

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_small(char c) { return std::islower(static_cast<unsigned char>(c)) != 0; }
bool is_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':' || c == '~';
}

// "Outer::Inner", if the line begins the definition of a member of that class; else empty.
std::string_view class_of(std::string_view line) {
  if (line.empty() || !is_letter(line.front())) return {};
  int depth = 0;  // of template arguments
  std::size_t end = 0;
  for (; end < line.size(); ++end) {
    if (line[end] == '<') ++depth;
    if (line[end] == '>') --depth;
    if (depth > 0) continue;
    if (line[end] == '=' || line[end] == '{') return {};  // a value
    if (line[end] == '(' || line.substr(end).starts_with("operator")) break;
  }
  if (end == line.size()) return {};
  std::size_t begin = end;
  while (begin > 0 && is_of_name(line[begin - 1])) --begin;
  std::string_view name = line.substr(begin, end - begin);
  const std::size_t member = name.rfind("::");
  if (member == name.npos) return {};
  name = name.substr(0, member);
  while (!name.empty() && is_small(name.front())) {  // a namespace
    const std::size_t next = name.find("::");
    name = next == name.npos ? std::string_view() : name.substr(next + 2);
  }
  return name;
}

using Names = std::set<std::string, std::less<>>;

// The classes that a source defines itself. A class of the same name elsewhere is another class.
Names own_classes(const std::string& content) {
  Names own;
  std::istringstream lines(content);
  for (std::string line; std::getline(lines, line);) {
    std::string_view rest = line;
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const bool is_class = rest.starts_with("class ") || rest.starts_with("struct ");
    if (!is_class || (rest.ends_with(';') && rest.find('{') == rest.npos)) continue;
    rest.remove_prefix(rest.find(' ') + 1);
    std::size_t end = 0;
    while (end < rest.size() && is_of_name(rest[end])) ++end;
    own.emplace(rest.substr(0, end));
  }
  return own;
}

// Whether the source defines the class, or one around it.
bool is_own(std::string_view name, const Names& own) {
  for (std::size_t end = name.find("::");; end = name.find("::", end + 2)) {
    if (own.contains(name.substr(0, end))) return true;
    if (end == name.npos) return false;
  }
}

}  // namespace

Findings check_one_source(const Tree& tree) {
  std::map<std::string, std::string> homes;  // namespace::class -> its first source
  Findings findings;
  for (const auto& [path, content] : tree) {
    if (!is_product_source(path)) continue;
    const Names own = own_classes(content);
    Names told;
    std::vector<std::string> around{""};  // the namespaces, each with those around it
    std::istringstream lines(content);
    std::size_t number = 1;
    for (std::string line; std::getline(lines, line); ++number) {
      const std::string_view code = line;
      if (code.starts_with("namespace ") && code.ends_with("{")) {
        around.push_back(around.back() + std::string(code.substr(10, code.size() - 11)));
        if (around.back().ends_with(' ')) around.back().replace(around.back().size() - 1, 1, "::");
      } else if (code.starts_with("}  // namespace") && around.size() > 1) {
        around.pop_back();
      }
      const std::string_view found = class_of(line);
      if (found.empty() || is_own(found, own)) continue;
      const std::string name = around.back() + std::string(found);
      if (is_apart(name, path)) continue;
      const auto [home, is_first] = homes.emplace(name, path);
      if (home->second == path || !told.insert(name).second) continue;
      findings.push_back(path + ":" + std::to_string(number) + ": " + name + " has members in " +
                         home->second + " too");
    }
  }
  return findings;
}

}  // namespace precis::tidy
