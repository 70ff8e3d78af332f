// The rule about plain words: a sentence of a comment begins with its subject. "Of what is stored
// nothing is written" has to be read twice.
#include <array>
#include <cctype>
#include <sstream>
#include <string_view>

#include "rules.h"

namespace precis::tidy {
namespace {

constexpr std::array<std::string_view, 6> kOpeners = {"Of",   "Who",   "Whose",
                                                      "What", "Where", "Whatever"};

std::string_view comment_mark(std::string_view path) {
  for (const std::string_view ending : {".h", ".cc", ".cu", ".cuh"}) {
    if (path.ends_with(ending)) return "//";
  }
  for (const std::string_view ending : {".py", ".capnp", ".sh", ".cmake"}) {
    if (path.ends_with(ending)) return "#";
  }
  return {};
}

std::string_view without_spaces(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == text.npos ? std::string_view() : text.substr(first);
}

// The opener that a sentence begins with; empty if none.
std::string_view opener_of(std::string_view sentence) {
  for (const std::string_view word : kOpeners) {
    if (sentence.starts_with(word) && sentence.substr(word.size()).starts_with(' ')) return word;
  }
  return {};
}

// The first bad sentence of one line of a comment. `begins`: the line begins a sentence.
std::string_view bad_opener(std::string_view text, bool begins) {
  if (begins && !opener_of(text).empty()) return opener_of(text);
  for (std::size_t end = text.find(". "); end != text.npos; end = text.find(". ", end + 1)) {
    const std::string_view next = text.substr(end + 2);
    if (!opener_of(next).empty()) return opener_of(next);
  }
  return {};
}

}  // namespace

Findings check_plain_words(const Tree& tree) {
  Findings findings;
  for (const auto& [path, content] : tree) {
    const std::string_view mark = comment_mark(path);
    if (mark.empty()) continue;
    std::istringstream lines(content);
    bool begins = true;  // the next line of this comment begins a sentence
    std::size_t number = 1;
    for (std::string line; std::getline(lines, line); ++number) {
      const std::string_view code = without_spaces(line);
      if (!code.starts_with(mark)) {
        begins = true;
        continue;
      }
      const std::string_view text = without_spaces(code.substr(mark.size()));
      const std::string_view word = bad_opener(text, begins);
      if (!word.empty()) {
        findings.push_back(path + ":" + std::to_string(number) + ": a sentence opens with \"" +
                           std::string(word) + "\"; begin it with its subject");
      }
      begins =
          text.empty() || std::string_view(".:;!?").find(text.back()) != std::string_view::npos;
    }
  }
  return findings;
}

}  // namespace precis::tidy
