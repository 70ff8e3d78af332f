// The rules about citations: comments and documents name files, headings, decisions and tests that
// exist.
#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <set>
#include <sstream>
#include <string_view>

#include "rules.h"

namespace precis::tidy {
namespace {

namespace fs = std::filesystem;

// The page that lists the decisions, one per table row: "| D1 | ...".
constexpr std::string_view kDecisions = "docs/design/policies.md";
// Files of other projects (SGLang, xxHash) that we cite.
constexpr std::array<std::string_view, 2> kForeignFiles = {"srt/", "doc/xxhash_spec.md"};

constexpr std::array<std::string_view, 15> kFileEndings = {
    ".md", ".h",  ".cc",  ".cu",   ".cuh",  ".def",   ".py",   ".pyi",
    ".sh", ".in", ".txt", ".toml", ".json", ".cmake", ".capnp"};

bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
// Characters of a path, and those that make it a pattern, a placeholder or an address.
bool is_path_char(char c) {
  return is_name_char(c) || std::string_view("./+-*<>{}$~@:").find(c) != std::string_view::npos;
}

// The part of a line that people read: a whole line of a document, the comment of a line of code.
// Lines must be passed in order.
class ReadableText {
 public:
  explicit ReadableText(const std::string& path) : kind_(kind_of(path)) {}

  std::string_view of(std::string_view line) {
    switch (kind_) {
      case Kind::kNothing: return {};
      case Kind::kDocument: return line;
      case Kind::kSlashes: return after(line, "//");
      case Kind::kHash: return after(line, "#");
      case Kind::kPython: break;
    }
    const bool was_inside = in_docstring_;
    std::size_t quotes = 0;
    for (auto at = line.find(kQuotes); at != line.npos; at = line.find(kQuotes, at + 3)) ++quotes;
    if (quotes % 2 == 1) in_docstring_ = !in_docstring_;
    return was_inside || quotes > 0 ? line : after(line, "#");
  }

 private:
  enum class Kind { kNothing, kDocument, kSlashes, kHash, kPython };
  static constexpr std::string_view kQuotes = "\"\"\"";

  static Kind kind_of(const std::string& path) {
    const std::string ending = fs::path(path).extension().string();
    const auto is_one_of = [&](std::initializer_list<const char*> endings) {
      return std::find(endings.begin(), endings.end(), ending) != endings.end();
    };
    if (ending == ".md") return Kind::kDocument;
    if (is_one_of({".h", ".cc", ".cu", ".cuh", ".def"})) return Kind::kSlashes;
    if (is_one_of({".py", ".pyi"})) return Kind::kPython;
    if (is_one_of({".json", ".html"})) return Kind::kNothing;
    return Kind::kHash;
  }
  // The text after `mark`. The "//" of an address is no mark.
  static std::string_view after(std::string_view line, std::string_view mark) {
    for (auto at = line.find(mark); at != line.npos; at = line.find(mark, at + 1)) {
      if (at == 0 || line[at - 1] != ':') return line.substr(at + mark.size());
    }
    return {};
  }

  const Kind kind_;
  bool in_docstring_ = false;
};

// The anchor that a heading has in a link.
std::string slug_of(std::string_view heading) {
  std::string slug;
  for (const char c : heading) {
    if (c == ' ') slug += '-';
    if (is_name_char(c) || c == '-') {
      slug += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return slug;
}

std::set<std::string> slugs_of(const std::string& document) {
  std::set<std::string> slugs;
  std::istringstream lines(document);
  for (std::string line; std::getline(lines, line);) {
    const auto text = line.find_first_not_of('#');
    if (text == 0 || text == line.npos || line[text] != ' ') continue;
    slugs.insert(slug_of(std::string_view(line).substr(text + 1)));
  }
  return slugs;
}

std::set<std::string> decisions_of(const Tree& tree) {
  std::set<std::string> decisions;
  const auto page = tree.find(std::string(kDecisions));
  if (page == tree.end()) return decisions;
  std::istringstream lines(page->second);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("| D")) decisions.insert(line.substr(2, line.find(' ', 2) - 2));
  }
  return decisions;
}

class Checker {
 public:
  explicit Checker(const Tree& tree) : tree_(tree), decisions_(decisions_of(tree)) {
    for (const auto& [path, content] : tree) {
      const std::string_view whole = path;
      endings_.emplace(whole);
      for (auto at = whole.find('/'); at != whole.npos; at = whole.find('/', at + 1)) {
        endings_.emplace(whole.substr(at + 1));
      }
    }
  }

  Findings run() {
    for (const auto& [path, content] : tree_) {
      if (path.starts_with("tests/tidy/")) continue;  // It cites what does not exist.
      path_ = path;
      number_ = 0;
      ReadableText readable(path);
      std::istringstream lines(content);
      for (std::string line; std::getline(lines, line);) {
        ++number_;
        const std::string_view text = readable.of(line);
        check_files(text);
        check_decisions(text);
      }
    }
    return std::move(findings_);
  }

 private:
  void add(const std::string& what) {
    findings_.push_back(path_ + ":" + std::to_string(number_) + ": " + what);
  }

  void check_files(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      while (at < text.size() && is_path_char(text[at])) ++at;
      if (at == begin) {
        ++at;
        continue;
      }
      std::string_view cited = text.substr(begin, at - begin);
      while (cited.ends_with('.') || cited.ends_with(':')) cited.remove_suffix(1);
      if (!is_citation(cited)) continue;
      if (!exists(cited)) {
        add("no file is " + std::string(cited));
      } else if (cited.ends_with(".md")) {
        check_heading(cited, text.substr(begin + cited.size()));
      }
    }
  }

  static bool is_citation(std::string_view cited) {
    const auto ends_so = [&](std::string_view ending) { return cited.ends_with(ending); };
    const auto begins_so = [&](std::string_view file) { return cited.starts_with(file); };
    return std::ranges::any_of(kFileEndings, ends_so) &&
           (cited.find('/') != cited.npos || cited.ends_with(".md")) && !cited.starts_with('/') &&
           cited.find_first_of("*<>{}$~@:") == cited.npos && !has_placeholder(cited) &&
           std::ranges::none_of(kForeignFiles, begins_so);
  }
  // A part in capitals, as in FOLDER/NAME.h. Documents may have such names.
  static bool has_placeholder(std::string_view cited) {
    if (cited.ends_with(".md")) return false;
    const auto is_capital = [](char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; };
    for (const fs::path& part : fs::path(cited)) {
      const std::string stem = part.stem().string();
      if (stem.size() > 1 && std::ranges::all_of(stem, is_capital)) return true;
    }
    return false;
  }

  std::string beside(std::string_view cited) const {
    return (fs::path(path_).parent_path() / cited).lexically_normal().generic_string();
  }
  // Paths begin at the root, at the citing file's folder, or at any folder on the way.
  bool exists(std::string_view cited) const {
    return tree_.contains(beside(cited)) ||
           endings_.contains(fs::path(cited).lexically_normal().generic_string());
  }

  // `rest` follows the name of a document: #anchor, a comma and a heading in quotes, or a number,
  // which must be a heading too.
  void check_heading(std::string_view cited, std::string_view rest) {
    std::string slug, heading;
    if (rest.starts_with('#')) {
      const auto end = std::find_if(rest.begin() + 1, rest.end(),
                                    [](char c) { return !is_name_char(c) && c != '-'; });
      slug = heading = std::string(rest.begin() + 1, end);
    } else if (rest.starts_with(", \"") && rest.find('"', 3) != rest.npos) {
      heading = rest.substr(3, rest.find('"', 3) - 3);
      slug = slug_of(heading);
    } else if (rest.size() > 1 && rest[0] == ' ' && std::isdigit(rest[1]) != 0) {
      heading = rest.substr(1, rest.find_first_not_of("0123456789.", 1) - 1);
      slug = slug_of(heading);
    }
    if (slug.empty()) return;
    const std::string near = beside(cited), ending = "/" + std::string(cited);
    for (const auto& [path, content] : tree_) {
      const bool is_meant =
          tree_.contains(near) ? path == near : path == cited || path.ends_with(ending);
      if (is_meant && slugs_of(content).contains(slug)) return;
    }
    add(std::string(cited) + " has no heading '" + heading + "'");
  }

  // D and one or two digits, standing alone.
  void check_decisions(std::string_view text) {
    for (auto at = text.find('D'); at != text.npos; at = text.find('D', at + 1)) {
      std::size_t end = at + 1;
      while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
      const bool alone = (at == 0 || !is_name_char(text[at - 1])) &&
                         (end == text.size() || !is_name_char(text[end]));
      const std::string decision(text.substr(at, end - at));
      if (!alone || decision.size() < 2 || decision.size() > 3) continue;
      if (!decisions_.contains(decision)) add("no decision is " + decision);
    }
  }

  const Tree& tree_;
  const std::set<std::string> decisions_;
  std::set<std::string, std::less<>> endings_;  // every path, whole and from each folder on
  std::string path_;
  std::size_t number_ = 0;
  Findings findings_;
};

// ---- tests --------------------------------------------------------------------------------------

// Names of Catch2's tests; a name may be several adjacent literals.
std::set<std::string> test_names(const std::string& content) {
  std::set<std::string> names;
  for (auto at = content.find("TEST_CASE"); at != std::string::npos;
       at = content.find("TEST_CASE", at + 1)) {
    std::size_t next = content.find('"', at);
    std::string name;
    while (next != std::string::npos && content[next] == '"') {
      const std::size_t end = content.find('"', next + 1);
      if (end == std::string::npos) break;
      name += content.substr(next + 1, end - next - 1);
      next = content.find_first_not_of(" \n", end + 1);
    }
    names.insert(name);
  }
  return names;
}

// Names of pytest's tests.
std::set<std::string> python_test_names(const std::string& content) {
  static constexpr std::string_view kBefore = "\ndef ";
  std::set<std::string> names;
  for (auto at = content.find("\ndef test_"); at != std::string::npos;
       at = content.find("\ndef test_", at + 1)) {
    const auto begin = content.begin() + static_cast<std::ptrdiff_t>(at + kBefore.size());
    names.emplace(begin, std::find_if_not(begin, content.end(), is_name_char));
  }
  return names;
}

// A test's name has four words or begins with test_. Anything else is a command, a value or a
// formula.
bool is_test_name(const std::string& quoted) {
  if (quoted.starts_with("test_")) return true;
  const bool is_formula = quoted.find_first_of("*/<>^[") != quoted.npos ||
                          std::ranges::any_of(std::array{"...", " - ", " + "}, [&](auto sign) {
                            return quoted.find(sign) != quoted.npos;
                          });
  return !is_formula && std::count(quoted.begin(), quoted.end(), ' ') >= 3;
}

}  // namespace

Findings check_citations(const Tree& tree) { return Checker(tree).run(); }

Findings check_promises(const Tree& tree) {
  std::set<std::string> names;
  for (const auto& [path, content] : tree) {
    if (!path.starts_with("tests/") && path.find("/tests/") == path.npos) continue;
    if (path.ends_with(".cc")) names.merge(test_names(content));
    if (path.ends_with(".py")) names.merge(python_test_names(content));
  }
  Findings findings;
  for (const auto& [path, content] : tree) {
    if (path != "docs/promises.md" && !path.starts_with("docs/design/")) continue;
    std::istringstream lines(content);
    std::string line;
    for (std::size_t number = 1; std::getline(lines, line); ++number) {
      for (auto at = line.find('`'); at != line.npos;) {
        const auto close = line.find('`', at + 1);
        if (close == line.npos) break;
        const std::string quoted = line.substr(at + 1, close - at - 1);
        if (is_test_name(quoted) && !names.contains(quoted)) {
          findings.push_back(path + ":" + std::to_string(number) + ": no test is called '" +
                             quoted + "'");
        }
        at = line.find('`', close + 1);
      }
    }
  }
  return findings;
}

}  // namespace precis::tidy
