// Reads the settings of a TOML file, for config.cc.
#pragma once

#include <toml++/toml.h>

#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cachesvc/base/byte_size.h"
#include "cachesvc/base/near_name.h"
#include "precis/keep.h"
#include "precis/status.h"

namespace precis {

// Reads keys of one table and remembers them, so that unknown keys can be refused.
class ConfigReader {
 public:
  ConfigReader(const toml::table& table, std::string where)
      : table_(table), where_(std::move(where)) {}

  // "FILE:LINE" of `node`.
  static std::string place(const std::string& where, const toml::node& node) {
    return where + ":" + std::to_string(node.source().begin.line);
  }

  template <typename T>
  void read(std::string_view key, T& into) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    using Stored = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
    std::optional<Stored> value;
    if constexpr (std::is_floating_point_v<T>) {
      if (node->is_number()) value = node->value<Stored>();  // an integer such as 1 is also valid
    } else {
      value = node->value_exact<Stored>();  // toml++ would cast numbers that do not fit
    }
    if (!value) return complain(*node, key, std::string("must be ") + wanted<T>());
    if constexpr (std::is_integral_v<T>) {
      if (*value < 0 || static_cast<std::uint64_t>(*value) > std::numeric_limits<T>::max()) {
        return complain(*node, key,
                        "is " + std::to_string(*value) + ", must be in [0, " +
                            std::to_string(std::numeric_limits<T>::max()) + "]");
      }
      into = static_cast<T>(*value);
    } else {
      into = *value;
    }
  }

  // A number of bytes, also as text with a unit.
  void read(std::string_view key, std::uint64_t& into) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const auto number = node->value_exact<std::int64_t>();
    if (!number && !node->is_string()) {
      return complain(*node, key,
                      std::string("must be a number of bytes, or in quotes ") + kSizeForm);
    }
    const std::string text =
        number ? std::to_string(*number) : std::string(node->value_or(std::string_view{}));
    auto bytes = parse_bytes(text);
    if (!bytes.ok()) return complain(*node, key, bytes.status().message());
    into = *bytes;
  }

  void read(std::string_view key, bool& into) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const auto value = node->value_exact<bool>();
    if (!value) return complain(*node, key, "must be true or false, without quotes");
    into = *value;
  }

  // A share of the entries as a number, or text as parse_keep() takes it.
  void read(std::string_view key, Budget& into) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    if (!node->is_number() && !node->is_string()) {
      return complain(*node, key, "must be a share such as 0.3, or in quotes, such as '20% bytes'");
    }
    std::string text(node->value_or(std::string_view{}));
    if (const auto number = node->value<double>()) {
      char digits[32];
      text.assign(digits, std::to_chars(digits, digits + sizeof digits, *number).ptr);
    }
    auto keep = parse_keep(text, std::string(key));
    if (!keep.ok()) return tell(*node, keep.status().message());
    into = *keep;
  }

  // A list of numbers.
  void read(std::string_view key, std::vector<double>& into) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const toml::array* list = node->as_array();
    const char* const form = "must be a list of numbers, such as [0.3, 0.1]";
    if (list == nullptr) return complain(*node, key, form);
    std::vector<double> values;
    for (const toml::node& item : *list) {
      if (!item.is_number()) return complain(*node, key, form);
      values.push_back(*item.value<double>());
    }
    into = std::move(values);
  }

  void require(std::string_view key) {
    if (table_.get(key) == nullptr) complain(table_, key, "is missing");
  }

  void allow(std::string_view key) { known_.insert(std::string(key)); }

  // "FILE:LINE" of each key that was found and read.
  const std::map<std::string, std::string, std::less<>>& said_at() const { return said_at_; }

  const std::set<std::string>& known() const { return known_; }

  // `of_service`: for a [[tenant]], the keys that belong above the first [[tenant]].
  Status finish(const std::set<std::string>& of_service = {}) {
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (!known_.contains(name)) complain(node, name, unknown(name, of_service));
    }
    return problems_.empty() ? Status() : Status::invalid(problems_);
  }

 private:
  // Explains an unknown key.
  std::string unknown(const std::string& key, const std::set<std::string>& of_service) const {
    if (of_service.contains(key)) {
      return "is not a setting of a tenant: write it above the first [[tenant]]";
    }
    if (const std::string meant = near_name(key, known_); !meant.empty()) {
      return "is not a setting; did you mean '" + meant + "'?";
    }
    std::string choices;
    for (const std::string& each : known_) choices += (choices.empty() ? "" : ", ") + each;
    return "is not a setting; choose from " + choices;
  }
  const toml::node* find(std::string_view key) {
    known_.insert(std::string(key));
    const toml::node* node = table_.get(key);
    if (node != nullptr) said_at_[std::string(key)] = place(where_, *node);
    return node;
  }
  template <typename T>
  static const char* wanted() {
    if constexpr (std::is_integral_v<T>) return "a whole number, without quotes";
    if constexpr (std::is_floating_point_v<T>) return "a number, without quotes";
    return "a string, in quotes";
  }
  void complain(const toml::node& node, std::string_view key, const std::string& what) {
    tell(node, std::string(key) + " " + what);
  }
  void tell(const toml::node& node, const std::string& problem) {
    problems_ += (problems_.empty() ? "" : "\n") + place(where_, node) + ": " + problem;
  }
  const toml::table& table_;
  std::string where_;
  std::set<std::string> known_;
  std::map<std::string, std::string, std::less<>> said_at_;
  std::string problems_;
};

}  // namespace precis
