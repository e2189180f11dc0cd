#include "command_set/registry.h"

#include <algorithm>
#include <array>

#include "base/config_checks.h"
#include "command_set/kv.h"
#include "command_set/nvm.h"
#include "command_set/zns.h"

namespace flashmob::command_set {
namespace {

const NvmCommandSet kNvm{};
const ZnsCommandSet kZns{};
const KvCommandSet kKv{};

constexpr std::array<const CommandSet*, 3> kSets = {&kNvm, &kZns, &kKv};

}  // namespace

std::span<const CommandSet* const> command_sets() { return kSets; }

const CommandSet* command_set_of(nvme::Csi csi) {
  const auto found = std::ranges::find_if(kSets, [csi](const CommandSet* set) { return set->csi() == csi; });
  return found == kSets.end() ? nullptr : *found;
}

const CommandSet* command_set_named(std::string_view name) {
  const auto found = std::ranges::find_if(kSets, [name](const CommandSet* set) { return set->name() == name; });
  return found == kSets.end() ? nullptr : *found;
}

void check_command_sets(const SubsystemConfig& config) {
  for (std::size_t i = 0; i < config.namespaces.size(); ++i) {
    const NamespaceConfig& ns = config.namespaces[i];
    const std::string key = "subsystem.namespaces[" + std::to_string(i) + "]";
    const CommandSet* const set = command_set_named(ns.command_set);
    if (set == nullptr) {
      std::string names;
      for (const CommandSet* known : kSets) names += (names.empty() ? "" : " or ") + std::string(known->name());
      config_checks::reject(key + ".command_set", config_checks::quoted(ns.command_set), "use " + names);
    }
    set->check(key, ns);
  }
}

std::uint64_t command_sets_of(const SubsystemConfig& config) {
  std::uint64_t sets = nvme::io_command_set_bit(nvme::Csi::nvm);
  for (const NamespaceConfig& ns : config.namespaces)
    if (const CommandSet* const set = command_set_named(ns.command_set); set != nullptr)
      sets |= nvme::io_command_set_bit(set->csi());
  return sets;
}

}  // namespace flashmob::command_set
