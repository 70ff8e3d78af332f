#include "cachesvc/admin/request_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <type_traits>

#include "precis/keep.h"
#include "precis/printable.h"

namespace precis::admin {
namespace {

template <typename T>
concept HasFields = requires {
  Fields<T>::all;
};

std::string_view parameter_name(std::string_view field) {
  if (field == "budget") return "keep";
  if (field == "position") return "after";
  return field == "json" ? "profile" : field;
}

Status wrong(const std::string& what) { return Status::invalid("must be " + what); }

template <typename Number>
Result<Number> number(const Json& value, const std::string& what) {
  if (value.is_number_unsigned()) {
    const auto whole = value.get<std::uint64_t>();
    if (whole > std::numeric_limits<Number>::max()) return wrong(what);
    return static_cast<Number>(whole);
  }
  if (!value.is_string()) return wrong(what);
  const auto& text = value.get_ref<const std::string&>();
  Number parsed{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, parsed);
  if (error != std::errc() || end != last || text.empty()) return wrong(what);
  return parsed;
}

Result<std::string> cursor(const std::string& hex) {
  if (hex.size() % 2 != 0) return wrong("the `next` of a page");
  std::string bytes;
  for (std::size_t at = 0; at < hex.size(); at += 2) {
    unsigned byte = 0;
    const char* const last = hex.data() + at + 2;
    const auto [end, error] = std::from_chars(hex.data() + at, last, byte, 16);
    if (error != std::errc() || end != last) return wrong("the `next` of a page");
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

// ---- one overload of read() and schema() for each type of a field that is a parameter -----------

Status read(std::string_view name, std::string& into, const Json& value) {
  if (name == "json" || name == "recipe") {  // JSON itself
    into = value.is_string() ? value.get<std::string>()
                             : value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return {};
  }
  if (!value.is_string()) return wrong("a string");
  if (name != "after") {
    into = value.get<std::string>();
    return {};
  }
  PRECIS_ASSIGN(into, cursor(value.get_ref<const std::string&>()));
  return {};
}

Status read(std::string_view, bool& into, const Json& value) {
  if (value != true && value != false && value != "true" && value != "false") {
    return wrong("true or false");
  }
  into = value == true || value == "true";
  return {};
}

template <typename Number>
requires std::is_unsigned_v<Number> Status read(std::string_view, Number& into, const Json& value) {
  PRECIS_ASSIGN(into,
                number<Number>(value, "a whole number of at most " +
                                          std::to_string(std::numeric_limits<Number>::max())));
  return {};
}

Status read(std::string_view, SegmentId& into, const Json& value) {
  if (!value.is_string()) return wrong("a segment's id");
  PRECIS_ASSIGN(into, parse_segment_id(value.get_ref<const std::string&>()));
  return {};
}

Status read(std::string_view, Digest& into, const Json& value) {
  if (!value.is_string()) return wrong("a model's fingerprint");
  PRECIS_ASSIGN(into, parse_digest(value.get_ref<const std::string&>()));
  return {};
}

Status read(std::string_view, Durability& into, const Json& value) {
  if (!value.is_string()) return wrong("memory, wal, fsync or shared");
  PRECIS_ASSIGN(into, parse_durability(value.get_ref<const std::string&>()));
  return {};
}

Status read(std::string_view name, Budget& into, const Json& value) {
  if (value.is_number()) {
    PRECIS_ASSIGN(into, Budget::ratio(value.get<double>()));
    return {};
  }
  if (value == "all") {
    into = Budget::all();
    return {};
  }
  if (value.is_string()) {
    PRECIS_ASSIGN(into, parse_keep(value.get<std::string>(), std::string(parameter_name(name))));
    return {};
  }
  const std::string kind = value.is_object() ? value.value("kind", Json()).dump() : "";
  const Json amount = value.is_object() ? value.value("value", Json()) : Json();
  if (kind == "\"all\"") {
    into = Budget::all();
  } else if (kind == "\"ratio\"" && amount.is_number()) {
    PRECIS_ASSIGN(into, Budget::ratio(amount.get<double>()));
  } else if (kind == "\"entries\"" && amount.is_number_unsigned()) {
    into = Budget::entries(amount.get<std::uint64_t>());
  } else if (kind == "\"bytes\"" && amount.is_number_unsigned()) {
    into = Budget::bytes(amount.get<std::uint64_t>());
  } else if (kind == "\"byte_share\"" && amount.is_number()) {
    PRECIS_ASSIGN(into, Budget::byte_share(amount.get<double>()));
  } else if (kind == "\"loss\"" && amount.is_number()) {
    PRECIS_ASSIGN(into, Budget::loss(amount.get<double>()));
  } else {
    return wrong("a ratio, a text such as \"128 entries\", or an object with kind and value");
  }
  return {};
}

template <typename T>
concept IsPlain = requires(T field, const Json& value) {
  read("", field, value);
};

// null unsets: an empty text, all entries, no number, no model.
template <IsPlain T>
Status read(std::string_view name, std::optional<T>& into, const Json& value) {
  if (value.is_null()) {
    into = std::is_unsigned_v<T> ? std::nullopt : std::optional(T{});
    return {};
  }
  return read(name, into.emplace(), value);
}
Status read(std::string_view name, std::optional<Digest>& into, const Json& value) {
  into.reset();
  return value.is_null() ? Status() : read(name, into.emplace(), value);
}

Json type(const char* name, const char* meaning = nullptr) {
  Json schema{{"type", name}};
  if (meaning != nullptr) schema["description"] = meaning;
  return schema;
}
Json schema(std::string_view name, const std::string&) {
  if (name == "json") return type("object", "A profile, as precis profile build writes it");
  if (name == "position") {
    return type("string", "A position; \"oldest\", \"newest\"; empty: first all that is stored");
  }
  if (name == "after") return type("string", "The `next` of the page before");
  if (name == "recipe") return type("string", "A recipe; empty unsets the default");
  return type("string");
}
Json schema(std::string_view, const bool& usual) {
  Json schema = type("boolean");
  schema["default"] = usual;
  return schema;
}
template <typename Number>
requires std::is_unsigned_v<Number> Json schema(std::string_view, const Number& usual) {
  Json schema = type("integer");
  schema["minimum"] = 0;
  schema["default"] = usual;
  return schema;
}
Json schema(std::string_view, const SegmentId&) { return type("string", "A segment's id"); }
Json schema(std::string_view, const Digest&) { return type("string", "A model's fingerprint"); }
Json schema(std::string_view, const Durability&) {
  return {{"type", "string"}, {"enum", {"memory", "wal", "fsync", "shared"}}};
}
Json schema(std::string_view, const Budget&) {
  return type("string",
              "A ratio such as 0.3, '128 entries' per head, '64 MiB' per segment, or '10% bytes'");
}
template <IsPlain T>
Json schema(std::string_view name, const std::optional<T>&) {
  return schema(name, T{});
}

template <typename T>
concept IsParameter = requires(T field, const Json& value) {
  read("", field, value);
};

// Calls visit(name, field) for the parameters among the fields of `message`.
template <typename Message, typename Visit>
void each_parameter(Message& message, const Visit& visit) {
  if constexpr (HasFields<std::remove_const_t<Message>>) {
    for_each_field(message, [&](std::string_view name, auto& field) {
      using T = std::remove_cvref_t<decltype(field)>;
      if constexpr (IsParameter<T>) {
        visit(name, field);
      } else if constexpr (HasFields<T>) {
        each_parameter(field, visit);
      }
    });
  }
}

}  // namespace

std::vector<Parameter> parameters_of(const msg::RequestBody& request) {
  std::vector<Parameter> parameters;
  std::visit(
      [&](const auto& message) {
        each_parameter(message, [&](std::string_view name, const auto& field) {
          parameters.push_back({std::string(parameter_name(name)), schema(name, field)});
        });
      },
      request);
  return parameters;
}

Status set_parameters(msg::RequestBody& request, const Json& values) {
  Status status;
  std::size_t known = 0;
  std::visit(
      [&](auto& message) {
        each_parameter(message, [&](std::string_view field_name, auto& field) {
          const std::string name(parameter_name(field_name));
          const auto value = values.find(name);
          if (value == values.end()) return;
          ++known;
          const Status set = read(field_name, field, *value);
          if (!set.ok() && status.ok()) status = set.with_context(name);
        });
      },
      request);
  if (!status.ok() || known == values.size()) return status;
  std::string names;
  const auto parameters = parameters_of(request);
  for (const Parameter& each : parameters) names += (names.empty() ? "" : ", ") + each.name;
  for (const auto& [name, value] : values.items()) {
    const auto is_it = [&, &given = name](const Parameter& each) { return each.name == given; };
    if (std::ranges::none_of(parameters, is_it)) {
      return Status::invalid("there is no parameter '" + name + "'" +
                             (names.empty() ? "" : "; choose among " + names));
    }
  }
  return status;
}

std::string cursor_hex(std::string_view cursor) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : cursor) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

}  // namespace precis::admin
