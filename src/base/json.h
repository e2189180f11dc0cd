// A writer for JSON documents: the one place that formats results. Not for hot paths.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace flashmob {

// Objects and arrays are opened and closed by the caller; commas and quoting are taken care of.
class JsonWriter {
 public:
  JsonWriter& begin_object(std::string_view key = {}) { return open(key, '{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array(std::string_view key = {}) { return open(key, '['); }
  JsonWriter& end_array() { return close(']'); }

  JsonWriter& field(std::string_view key, std::string_view value);
  JsonWriter& field(std::string_view key, const char* value) { return field(key, std::string_view(value)); }
  JsonWriter& field(std::string_view key, double value);  // null if not finite
  JsonWriter& field(std::string_view key, std::uint64_t value);
  JsonWriter& field(std::string_view key, std::uint32_t value) { return field(key, std::uint64_t{value}); }
  JsonWriter& field(std::string_view key, bool value);
  JsonWriter& null_field(std::string_view key);
  // Inside an array.
  JsonWriter& element(double value) { return field({}, value); }
  JsonWriter& element(std::uint64_t value) { return field({}, value); }

  const std::string& text() const { return text_; }

 private:
  JsonWriter& open(std::string_view key, char bracket);
  JsonWriter& close(char bracket);
  void start(std::string_view key);
  void quote(std::string_view value);

  std::string text_;
  bool first_ = true;
};

}  // namespace flashmob
