#include "flashmob/config_text.h"

#include <charconv>
#include <concepts>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <vector>

#include "flashmob/error.h"

namespace flashmob {
namespace {

constexpr std::size_t kMostNamespaces = 256;

// Visits every table with the beginning of its keys' names.
template <class Device, class Visit>
void for_each_table(Device& device, const Visit& visit) {
  visit("", device);
  visit("subsystem.", device.subsystem);
  visit("subsystem.placement.", device.subsystem.placement);
  for (std::size_t i = 0; i < device.subsystem.namespaces.size(); ++i) {
    auto& ns = device.subsystem.namespaces[i];
    const std::string place = "subsystem.namespaces." + std::to_string(i) + ".";
    visit(place, ns);
    visit(place + "zoned.", ns.zoned);
    visit(place + "kv.", ns.kv);
  }
  visit("controller.", device.controller);
  visit("timing.", device.timing);
  visit("timing.nand.", device.timing.nand);
  visit("engine.", device.engine);
  visit("fidelity.", device.fidelity);
}

template <class Value>
std::string value_text(const Value& value) {
  if constexpr (std::is_same_v<Value, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<Value, bool>) {
    return value ? "true" : "false";
  } else {
    char text[64];
    return {text, std::to_chars(text, text + sizeof(text), value).ptr};
  }
}
template <class Value>
std::string value_text(const std::vector<Value>& values) {
  std::string text;
  for (const Value& value : values) text += (text.empty() ? "" : ",") + value_text(value);
  return text;
}

// Whether the text is a value of this kind, which then is set.
template <class Value>
bool set_value(Value& value, std::string_view text) {
  if constexpr (std::is_same_v<Value, std::string>) {
    value = text;
    return true;
  } else if constexpr (std::is_same_v<Value, bool>) {
    value = text == "true";
    return value || text == "false";
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  }
}
template <class Value>
bool set_value(std::vector<Value>& values, std::string_view text) {
  // Rules have commas of their own.
  if constexpr (std::is_same_v<Value, std::string>) {
    values.emplace_back(text);
    return true;
  } else {
    values.clear();
    while (!text.empty()) {
      const std::size_t comma = text.find(',');
      Value value{};
      if (!set_value(value, text.substr(0, comma))) return false;
      values.push_back(value);
      text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    }
    return true;
  }
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// A key of a namespace that there is none of yet makes it.
void make_room(DeviceConfig& config, std::string_view key) {
  constexpr std::string_view kPlace = "subsystem.namespaces.";
  if (!key.starts_with(kPlace)) return;
  std::size_t index = kMostNamespaces;
  std::from_chars(key.data() + kPlace.size(), key.data() + key.size(), index);
  if (index < kMostNamespaces && index >= config.subsystem.namespaces.size())
    config.subsystem.namespaces.resize(index + 1);
}

}  // namespace

std::string config_text(const DeviceConfig& config) {
  std::string text;
  for_each_table(config, [&text](const std::string& place, const auto& table) {
    for_each_key(table, [&]<class Value>(const char* key, const Value& value) {
      if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
        for (const std::string& one : value) text += place + key + " = " + one + "\n";
      } else {
        text += place + key + " = " + value_text(value) + "\n";
      }
    });
  });
  return text;
}

DeviceConfig parse_config_text(const std::string& text, const std::string& name) {
  DeviceConfig config;
  std::istringstream lines(text);
  std::string line;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    const std::string_view said = trimmed(line);
    if (said.empty() || said.front() == '#') continue;
    const std::string where = name + ", line " + std::to_string(number) + ": ";
    const std::size_t equals = said.find('=');
    if (equals == std::string_view::npos) throw ConfigError(where + "write KEY = VALUE, not " + std::string(said));
    const std::string key(trimmed(said.substr(0, equals)));
    const std::string_view value_said = trimmed(said.substr(equals + 1));
    make_room(config, key);
    bool is_known = false, is_right = false;
    for_each_table(config, [&](const std::string& place, auto& table) {
      if (!std::string_view(key).starts_with(place)) return;
      for_each_key(table, [&](const char* of_table, auto& value) {
        if (std::string_view(key).substr(place.size()) != of_table) return;
        is_known = true;
        is_right = set_value(value, value_said);
      });
    });
    if (!is_known)
      throw ConfigError(where + key + " is no setting of a device; flashmob profiles show NAME lists them");
    if (!is_right) throw ConfigError(where + key + " cannot be " + std::string(value_said));
  }
  return config;
}

}  // namespace flashmob
