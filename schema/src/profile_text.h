// Reads the text of a profile in one pass.
#pragma once

#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "precis/limits.h"
#include "precis/status.h"
#include "recipe_fields.h"

namespace precis {

// Reads a profile's JSON: one object of plain values and lists of numbers. A parse tree of
// arbitrary JSON could take a hundred times the memory of its text.
class ProfileText final : public nlohmann::json_sax<nlohmann::json> {
 public:
  static constexpr std::size_t kLossNumbers = 4;  // of a row: tokens, keep, mean, error
  nlohmann::json fields = nlohmann::json::object();
  std::vector<double> table, losses;
  Status problem;  // set if the text is JSON but not a profile

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return value(v); }
  bool number_unsigned(number_unsigned_t v) override { return value(v); }
  bool number_float(number_float_t v, const string_t&) override { return value(v); }
  bool string(string_t& v) override { return value(std::move(v)); }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& v) override {
    key_ = std::move(v);
    return true;
  }
  bool start_object(std::size_t) override {
    if (!std::exchange(inside_, true)) return true;
    return refuse("is an object");
  }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override {
    if (!inside_) return false;
    if (list_ == nullptr && key_ == "table") return start(table, kNumbersMax);
    if (list_ == nullptr && key_ == "losses") return start(losses, kLossesMax * kLossNumbers);
    return refuse("is a list");
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool refuse(const char* why) {
    problem = Status::invalid("profile: " + in_quotes(key_) + " " + why +
                              "; only table and losses may be lists, of numbers");
    return false;
  }
  bool start(std::vector<double>& list, std::size_t most) {
    list.clear();
    list_ = &list;
    most_ = most;
    return true;
  }
  template <typename V>
  bool value(V v) {
    if (!inside_) return false;
    if (list_ != nullptr) {
      if (list_->size() == most_) {
        problem = Status::invalid("profile: " + key_ + " has more than " + std::to_string(most_) +
                                  " numbers");
        return false;
      }
      if constexpr (std::is_arithmetic_v<V> && !std::is_same_v<V, bool>) {
        list_->push_back(static_cast<double>(v));
      } else {
        list_->push_back(std::nan(""));  // not a number either, and refused with it
      }
      return true;
    }
    if (key_ == "losses") return refuse("is no list");
    if (fields.size() == kFieldsMax && !fields.contains(key_)) {
      problem = Status::invalid("profile: more than " + std::to_string(kFieldsMax) + " fields");
      return false;
    }
    fields[key_] = std::move(v);
    return true;
  }

  // The most fields that a profile may have besides its lists. Unknown fields are ignored.
  static constexpr std::size_t kFieldsMax = 64;
  // The most numbers in a table. profile_json() writes at least four bytes for each, such as
  // "0.0,".
  static constexpr std::size_t kNumbersMax = limits::kProfileBytesMax / 4;
  static constexpr std::size_t kLossesMax = 256;

  bool inside_ = false;
  std::string key_;
  std::vector<double>* list_ = nullptr;  // the list being read, of at most `most_` numbers
  std::size_t most_ = 0;
};

}  // namespace precis
