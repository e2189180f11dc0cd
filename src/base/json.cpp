#include "base/json.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace flashmob {

void JsonWriter::start(std::string_view key) {
  if (!first_) text_ += ',';
  first_ = false;
  if (key.empty()) return;
  quote(key);
  text_ += ':';
}

void JsonWriter::quote(std::string_view value) {
  text_ += '"';
  for (const char c : value) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (code < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", code);
      text_ += escaped;
    } else {
      text_ += c;
    }
  }
  text_ += '"';
}

JsonWriter& JsonWriter::open(std::string_view key, char bracket) {
  start(key);
  text_ += bracket;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  text_ += bracket;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::field(std::string_view key, std::string_view value) {
  start(key);
  quote(value);
  return *this;
}

JsonWriter& JsonWriter::field(std::string_view key, double value) {
  if (!std::isfinite(value)) return null_field(key);
  start(key);
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value);
  text_.append(digits, end.ptr);
  return *this;
}

JsonWriter& JsonWriter::field(std::string_view key, std::uint64_t value) {
  start(key);
  text_ += std::to_string(value);
  return *this;
}

JsonWriter& JsonWriter::field(std::string_view key, bool value) {
  start(key);
  text_ += value ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::null_field(std::string_view key) {
  start(key);
  text_ += "null";
  return *this;
}

}  // namespace flashmob
