#include "engine/fault_rule.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "command_set/registry.h"
#include "flashmob/error.h"
#include "nvme/io_command.h"
#include "nvme/io_commands.h"
#include "nvme/opcode.h"

namespace flashmob::engine {
namespace {

constexpr std::uint64_t kMaxDelayNs = 3'600'000'000'000;
constexpr std::uint64_t kDefaultReorderNs = 1'000'000;

struct KindName {
  std::string_view name;
  FaultKind kind;
};
constexpr std::array kKinds = {
    KindName{"error", FaultKind::error},     KindName{"delay", FaultKind::delay},
    KindName{"reorder", FaultKind::reorder}, KindName{"lose", FaultKind::lose},
    KindName{"corrupt", FaultKind::corrupt}, KindName{"drop", FaultKind::drop},
    KindName{"fatal", FaultKind::fatal},
};

struct OpcodeName {
  std::string_view name;
  nvme::AdminOpcode opcode;
};
constexpr std::array kAdminOpcodes = {
    OpcodeName{"identify", nvme::AdminOpcode::identify},
    OpcodeName{"get-log-page", nvme::AdminOpcode::get_log_page},
    OpcodeName{"set-features", nvme::AdminOpcode::set_features},
    OpcodeName{"get-features", nvme::AdminOpcode::get_features},
    OpcodeName{"abort", nvme::AdminOpcode::abort},
    OpcodeName{"keep-alive", nvme::AdminOpcode::keep_alive},
    OpcodeName{"format", nvme::AdminOpcode::format_nvm},
    OpcodeName{"create-sq", nvme::AdminOpcode::create_io_sq},
    OpcodeName{"create-cq", nvme::AdminOpcode::create_io_cq},
};

// Of the rule that is being read, so that every message names it.
[[noreturn]] void reject(const FaultRule& rule, const std::string& what, const std::string& fix) {
  throw ConfigError("fault \"" + rule.text.substr(0, 200) + "\": " + what + " is not possible: " + fix);
}

template <class Names>
std::string listed(const Names& names) {
  std::string all;
  for (const auto& entry : names) all += (all.empty() ? "" : ", ") + std::string(entry.name);
  return all;
}

// The names of all I/O commands, each once, whichever command sets have it.
std::string listed_io_commands() {
  std::string all;
  std::vector<std::string_view> names;
  for (const command_set::CommandSet* const set : command_set::command_sets()) {
    for (const nvme::IoCommand& command : set->commands()) {
      if (std::ranges::find(names, command.name) != names.end()) continue;
      names.push_back(command.name);
      all += (all.empty() ? "" : ", ") + std::string(command.name);
    }
  }
  return all;
}

const nvme::IoCommand* io_command_named(std::string_view name) {
  for (const command_set::CommandSet* const set : command_set::command_sets())
    for (const nvme::IoCommand& command : set->commands())
      if (command.name == name) return &command;
  return nullptr;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    const bool separates = c == ' ' || c == ',' || c == '\t';
    if (!separates) word += c;
    if (separates && !word.empty()) words.push_back(std::exchange(word, {}));
  }
  return words;
}

std::uint64_t whole_number(const FaultRule& rule, const std::string& key, std::string_view text, std::uint64_t low) {
  const bool hexadecimal = text.starts_with("0x");
  if (hexadecimal) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, hexadecimal ? 16 : 10);
  if (error != std::errc{} || end != text.data() + text.size() || value < low)
    reject(rule, key + "=" + std::string(text), "use a whole number from " + std::to_string(low) + " on");
  return value;
}

// A number and what follows it.
double number(const std::string& text, std::string& unit) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  unit = end;
  return end == text.c_str() ? std::nan("") : value;
}

std::uint64_t time_ns(const FaultRule& rule, const std::string& text) {
  std::string unit;
  const double value = number(text, unit);
  // A number alone is refused: some would read it as milliseconds, others as seconds.
  const double scale = unit == "s" ? 1e9 : unit == "ms" ? 1e6 : unit == "us" ? 1e3 : unit == "ns" ? 1 : 0;
  if (!(value > 0) || scale == 0 || value * scale < 1 || value * scale > static_cast<double>(kMaxDelayNs))
    reject(rule, "delay=" + text, "use a time such as 200us, 5ms or 2s, up to an hour");
  return static_cast<std::uint64_t>(value * scale);
}

void take_commands(FaultRule& rule, const std::string& value) {
  rule.admin = value == "admin";
  if (value == "io" || value == "admin") return;
  if (io_command_named(value) != nullptr) {
    rule.command = value;
    return;
  }
  const auto found = std::ranges::find(kAdminOpcodes, value, &OpcodeName::name);
  if (found == kAdminOpcodes.end())
    reject(rule, "on=" + value, "use io, admin, " + listed_io_commands() + ", " + listed(kAdminOpcodes));
  rule.admin = true;
  rule.opcode = static_cast<std::uint8_t>(found->opcode);
}

void take_lbas(FaultRule& rule, const std::string& value) {
  const std::size_t dash = value.find('-');
  rule.first_lba = whole_number(rule, "lba", value.substr(0, dash), 0);
  rule.last_lba = dash == std::string::npos ? *rule.first_lba : whole_number(rule, "lba", value.substr(dash + 1), 0);
  if (rule.last_lba < *rule.first_lba) reject(rule, "lba=" + value, "the first block comes first: lba=100-199");
}

void take_probability(FaultRule& rule, const std::string& value) {
  std::string rest;
  rule.probability = number(value, rest);
  if (!(rule.probability > 0 && rule.probability <= 1) || !rest.empty())
    reject(rule, "p=" + value, "use a share above 0 and up to 1, such as 0.001");
}

void take_status(FaultRule& rule, const std::string& value) {
  // Specifications and reports write codes in hexadecimal, and a decimal one would be another.
  const std::uint64_t status = value.starts_with("0x") ? whole_number(rule, "status", value, 0) : 0;
  if (status == 0 || status > 0x7FF)
    reject(rule, "status=" + value, "use status code type and code, such as 0x281 or 0x006");
  rule.status = static_cast<nvme::Status>(status);
}

void take(FaultRule& rule, const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::string key = word.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
  if (key == "on")
    take_commands(rule, value);
  else if (key == "nsid")
    rule.nsid = static_cast<std::uint32_t>(std::min<std::uint64_t>(whole_number(rule, key, value, 1), UINT32_MAX));
  else if (key == "lba")
    take_lbas(rule, value);
  else if (key == "p")
    take_probability(rule, value);
  else if (key == "every")
    rule.every = whole_number(rule, key, value, 1);
  else if (key == "at")
    rule.at = whole_number(rule, key, value, 1);
  else if (key == "times")
    rule.times = whole_number(rule, key, value, 1);
  else if (key == "seed")
    rule.seed = whole_number(rule, key, value, 0);
  else if (key == "status")
    take_status(rule, value);
  else if (key == "delay")
    rule.delay_ns = time_ns(rule, value);
  else
    reject(rule, word, "use on=, nsid=, lba=, p=, every=, at=, times=, seed=, status=, delay=");
}

// Those whose data a fault may corrupt.
bool moves_blocks(const nvme::IoCommand* command) {
  return command != nullptr && command->data == nvme::IoData::blocks &&
         (command->name == "read" || command->name == "write" || command->name == "zone-append");
}

void check(FaultRule& rule) {
  const bool late = rule.kind == FaultKind::delay || rule.kind == FaultKind::reorder;
  if (rule.kind == FaultKind::reorder && rule.delay_ns == 0) rule.delay_ns = kDefaultReorderNs;
  if (rule.kind == FaultKind::delay && rule.delay_ns == 0)
    reject(rule, "a delay without delay=", "say how long: delay=5ms");
  if (rule.delay_ns != 0 && !late) reject(rule, "delay=", "only delay and reorder take one");
  if (rule.status && rule.kind != FaultKind::error) reject(rule, "status=", "only error takes one");
  if (rule.every != 0 && rule.at != 0) reject(rule, "every= with at=", "use one of them");
  const bool moves_data = !rule.admin && (rule.command.empty() || moves_blocks(io_command_named(rule.command)));
  if (rule.kind == FaultKind::corrupt && !moves_data)
    reject(rule, "on=", "only reads, writes and appends can be corrupted");
  if (rule.first_lba && rule.admin) reject(rule, "lba=", "admin commands have no blocks");
  if (rule.first_lba && !rule.command.empty() && !io_command_named(rule.command)->names_blocks)
    reject(rule, "lba= with on=" + rule.command, "leave one out, for that command names no blocks");
}

}  // namespace

FaultRule FaultRule::parse(const std::string& text) {
  FaultRule rule;
  rule.text = text;
  const std::vector<std::string> words = words_of(text);
  const auto kind = words.empty() ? kKinds.end() : std::ranges::find(kKinds, words[0], &KindName::name);
  if (kind == kKinds.end()) reject(rule, words.empty() ? "nothing" : words[0], "begin with one of " + listed(kKinds));
  rule.kind = kind->kind;
  std::vector<std::string> keys;
  for (std::size_t i = 1; i < words.size(); ++i) {
    take(rule, words[i]);
    const std::string key = words[i].substr(0, words[i].find('=') + 1);
    if (std::ranges::find(keys, key) != keys.end()) reject(rule, key + " twice", "give it once");
    keys.push_back(key);
  }
  check(rule);
  return rule;
}

bool FaultRule::is_meant_for(const nvme::Sqe& sqe, bool is_admin, nvme::Csi csi) const {
  if (is_admin != admin || (opcode && *opcode != sqe.opcode) || (nsid != 0 && nsid != sqe.nsid)) return false;
  if (is_admin) return true;
  const nvme::IoCommand* const sent = nvme::find_io_command(csi, sqe.opcode);
  if (!command.empty() && (sent == nullptr || sent->name != command)) return false;
  if (kind == FaultKind::corrupt && !moves_blocks(sent)) return false;
  if (!first_lba) return true;
  if (sent == nullptr || !sent->names_blocks) return false;
  const std::uint64_t begin = nvme::starting_lba(sqe);
  return begin <= last_lba && begin + nvme::block_count(sqe) > *first_lba;
}

}  // namespace flashmob::engine
