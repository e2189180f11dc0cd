#include "vfio/capabilities.h"

#include <charconv>

namespace flashmob::vfio {
namespace {

// Deeper JSON is refused, so that a hostile text cannot exhaust the stack.
constexpr int kMaxDepth = 8;

// A reader of JSON (RFC 8259) that keeps only what capabilities need: names, whole numbers and truth values.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  bool at_end() {
    skip_space();
    return position_ == text_.size();
  }

  // Calls `member(name)` for each member of an object; it must read the value and return whether it could.
  template <class Member>
  bool object(Member member) {
    if (!take('{')) return false;
    if (take('}')) return true;
    do {
      std::string_view name;
      if (!string(name) || !take(':') || !member(name)) return false;
    } while (take(','));
    return take('}');
  }

  bool number(std::uint64_t& value) {
    skip_space();
    const char* const begin = text_.data() + position_;
    const char* const end = text_.data() + text_.size();
    const auto [after, error] = std::from_chars(begin, end, value);
    if (error != std::errc{}) return false;
    // A fraction or an exponent would make it another number.
    if (after != end && (*after == '.' || *after == 'e' || *after == 'E')) return false;
    position_ += static_cast<std::size_t>(after - begin);
    return true;
  }

  bool boolean(bool& value) {
    if (word("true")) return value = true;
    if (!word("false")) return false;
    value = false;
    return true;
  }

  bool skip_value(int depth = 0) {
    if (depth > kMaxDepth) return false;
    skip_space();
    if (position_ == text_.size()) return false;
    switch (text_[position_]) {
      case '{':
        return object([&](std::string_view) { return skip_value(depth + 1); });
      case '[':
        take('[');
        if (take(']')) return true;
        do {
          if (!skip_value(depth + 1)) return false;
        } while (take(','));
        return take(']');
      case '"': {
        std::string_view unused;
        return string(unused);
      }
      default:
        return word("true") || word("false") || word("null") || skip_number();
    }
  }

 private:
  void skip_space() {
    while (position_ < text_.size() && std::string_view(" \t\r\n").find(text_[position_]) != std::string_view::npos)
      ++position_;
  }
  bool take(char wanted) {
    skip_space();
    if (position_ == text_.size() || text_[position_] != wanted) return false;
    ++position_;
    return true;
  }
  bool word(std::string_view wanted) {
    skip_space();
    if (text_.substr(position_, wanted.size()) != wanted) return false;
    position_ += wanted.size();
    return true;
  }
  // Escapes stay as they are: no name that matters has any.
  bool string(std::string_view& value) {
    if (!take('"')) return false;
    const std::size_t begin = position_;
    for (; position_ < text_.size(); ++position_) {
      if (text_[position_] == '"') {
        value = text_.substr(begin, position_++ - begin);
        return true;
      }
      if (text_[position_] == '\\') ++position_;
    }
    return false;
  }
  bool skip_number() {
    const std::size_t begin = position_;
    while (position_ < text_.size() &&
           std::string_view("+-.eE0123456789").find(text_[position_]) != std::string_view::npos)
      ++position_;
    return position_ != begin;
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

bool read_capability(JsonReader& json, std::string_view name, Capabilities& into) {
  if (name == "max_msg_fds") return json.number(into.max_message_fds);
  if (name == "max_data_xfer_size") return json.number(into.max_data_transfer_bytes);
  if (name == "max_dma_maps") return json.number(into.max_dma_maps);
  if (name == "pgsizes") return json.number(into.page_sizes);
  if (name == "write_multiple") return json.boolean(into.write_multiple);
  return json.skip_value();
}

}  // namespace

std::optional<Capabilities> parse_capabilities(std::string_view text) {
  while (!text.empty() && text.back() == '\0') text.remove_suffix(1);
  Capabilities capabilities;
  if (text.empty()) return capabilities;
  JsonReader json(text);
  const bool good = json.object([&](std::string_view section) {
    if (section != "capabilities") return json.skip_value();
    return json.object([&](std::string_view name) { return read_capability(json, name, capabilities); });
  });
  if (!good || !json.at_end()) return std::nullopt;
  return capabilities;
}

std::string format_capabilities(const Capabilities& capabilities) {
  std::string text = R"({"capabilities":{"max_msg_fds":)" + std::to_string(capabilities.max_message_fds) +
                     R"(,"max_data_xfer_size":)" + std::to_string(capabilities.max_data_transfer_bytes) +
                     R"(,"max_dma_maps":)" + std::to_string(capabilities.max_dma_maps) + R"(,"pgsizes":)" +
                     std::to_string(capabilities.page_sizes);
  if (capabilities.write_multiple) text += R"(,"write_multiple":true)";
  return text + "}}";
}

}  // namespace flashmob::vfio
