// What a namespace of the Key Value command set is and says of itself, and which of its commands goes where.
#include "command_set/kv.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <random>

#include "base/config_checks.h"
#include "command_set/kv_state.h"
#include "command_set/nvm_commands.h"
#include "nvme/identify_namespace.h"
#include "nvme/kv.h"
#include "nvme/opcode.h"

namespace flashmob::command_set {

using nvme::Status;

namespace {

constexpr std::uint64_t kMaxTimeNs = 3'600'000'000'000;
constexpr std::uint32_t kMaxValueBytes = 16 << 20;
constexpr std::uint32_t kMinGranuleBytes = 64, kMaxGranuleBytes = 64 << 10;
constexpr std::uint64_t kMaxGranules = UINT32_MAX;
// Unless a profile says more: a table for them all, of which few use each page, is not that large.
constexpr std::uint32_t kUsualMaxKeys = 1 << 24;

kv::Limits limits_of(const NamespaceConfig& config) {
  kv::Limits limits{.size_bytes = config.size_bytes,
                    .granule_bytes = config.kv.value_granularity_bytes,
                    .max_value_bytes = config.kv.max_value_bytes,
                    .max_keys = config.kv.max_keys,
                    .max_key_bytes = static_cast<std::uint8_t>(config.kv.max_key_bytes)};
  if (limits.max_keys == 0) limits.max_keys = kUsualMaxKeys;
  limits.max_keys = std::min(limits.max_keys, limits.capacity());
  return limits;
}

// Not of the run's randomness: nothing that anybody sees follows from it, and hosts must not know it.
std::array<std::uint64_t, 2> secret() {
  std::random_device random;
  std::array<std::uint64_t, 2> words{};
  for (std::uint64_t& word : words) word = std::uint64_t{random()} << 32 | random();
  return words;
}

}  // namespace

void KvCommandSet::check(const std::string& key, const NamespaceConfig& config) const {
  using config_checks::check_range, config_checks::reject;
  const std::string keys = key + ".kv.";
  const KeyValueConfig& kv = config.kv;
  if (config.media != "memory")
    reject(key + ".media", config_checks::quoted(config.media),
           "use memory, for keys do not outlive a run (command_set = \"kv\")");
  if (config.lba_bytes != 512)
    reject(key + ".lba_bytes", std::to_string(config.lba_bytes), "leave it out, for values have no blocks");
  check_range(keys + "max_key_bytes", kv.max_key_bytes, 1, nvme::kMaxKeyBytes);
  check_range(keys + "max_value_bytes", kv.max_value_bytes, 0, kMaxValueBytes);
  check_range(keys + "max_keys", kv.max_keys, 0, kv::KeyOrder::kMaxEntries);
  config_checks::check_power_of_two(keys + "value_granularity_bytes", kv.value_granularity_bytes, kMinGranuleBytes,
                                    kMaxGranuleBytes);
  check_range(keys + "lookup_ns", kv.lookup_ns, 0, kMaxTimeNs);
  check_range(keys + "list_key_ns", kv.list_key_ns, 0, kMaxTimeNs);
  if (config.size_bytes / kv.value_granularity_bytes > kMaxGranules)
    reject(keys + "value_granularity_bytes", std::to_string(kv.value_granularity_bytes),
           "raise it, so that size_bytes is at most " + std::to_string(kMaxGranules) + " of them");
  if (limits_of(config).capacity() == 0)
    reject(key + ".size_bytes", std::to_string(config.size_bytes),
           "use more than one value of " + keys + "max_value_bytes, which is " + std::to_string(kv.max_value_bytes));
}

void KvCommandSet::prepare(Namespace& ns, const NamespaceConfig& config) const {
  // No command of this set is a Read or a Write, whatever its number is.
  ns.runs.store(Runs::none, std::memory_order_relaxed);
  try {
    kv::Limits limits = limits_of(config);
    const auto granule_shift = static_cast<unsigned>(std::countr_zero(limits.granule_bytes));
    limits.group_shift = std::max<unsigned>(ns.unit_shift, granule_shift) - granule_shift;
    ns.state = std::make_unique<KvState>(limits, secret(), config.kv);
  } catch (const std::bad_alloc&) {
    config_checks::reject("subsystem.namespaces.kv.max_keys", std::to_string(limits_of(config).max_keys),
                          "lower it, for the machine has no address space for such an index");
  }
}

void KvCommandSet::identify_namespace(const Namespace& ns, const NamespaceIdentity& identity, const IoLimits& limits,
                                      IdentifyPage& page) const {
  const KvState& state = KvState::of(ns);
  const kv::Limits& of_store = state.store.limits();
  nvme::IdentifyNamespaceKv n{};
  n.nsze = std::uint64_t{of_store.capacity()} * of_store.granule_bytes;
  {
    const std::lock_guard lock(state.mutex);
    n.nuse = state.store.used_bytes();
  }
  n.nmic = identity.shared ? nvme::kNmicShared : 0;
  n.novg = of_store.granule_bytes;
  n.nsattr = may_write(ns, limits) ? 0 : nvme::kNsattrWriteProtected;
  std::copy(identity.nguid.begin(), identity.nguid.end(), n.nguid);
  std::copy(identity.eui64.begin(), identity.eui64.end(), n.eui64);
  n.kvf[0].kml = of_store.max_key_bytes;
  // Of the format, whatever a controller transfers in one command (MDTS): another may transfer more.
  n.kvf[0].vml = of_store.max_value_bytes;
  n.kvf[0].mnk = of_store.max_keys;
  std::memcpy(page.data(), &n, sizeof(n));
}

bool KvCommandSet::has_steps(const nvme::Sqe& sqe) const {
  using nvme::KvOpcode;
  const auto opcode = static_cast<KvOpcode>(sqe.opcode);
  return opcode == KvOpcode::store || opcode == KvOpcode::retrieve || opcode == KvOpcode::delete_key ||
         opcode == KvOpcode::list;
}

std::optional<Outcome> KvCommandSet::step(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context,
                                          Progress& progress) const {
  using nvme::KvOpcode;
  if (progress.has_begun()) return kv_commands::go_on(sqe, ns, context, progress.as<KvProgress>());
  switch (static_cast<KvOpcode>(sqe.opcode)) {
    case KvOpcode::store:
      return kv_commands::begin_store(sqe, ns, context, progress);
    case KvOpcode::retrieve:
      return kv_commands::begin_retrieve(sqe, ns, context, progress);
    case KvOpcode::delete_key:
      return kv_commands::begin_delete(sqe, ns, context, progress);
    case KvOpcode::exist:
      return kv_commands::exist(sqe, ns);
    case KvOpcode::list:
      return kv_commands::begin_list(sqe, ns, context, progress);
  }
  // Flush, which may be of every attached namespace, is the caller's.
  return commands::failed(Status::invalid_opcode);
}

void KvCommandSet::abandon(Namespace& ns, Progress& progress) const {
  if (progress.has_begun()) kv_commands::abandon(ns, progress.as<KvProgress>());
}

Outcome KvCommandSet::execute(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) const {
  Progress progress;
  for (;;) {
    if (const std::optional<Outcome> outcome = step(sqe, ns, context, progress)) return *outcome;
    if (!kv_commands::is_waiting(progress)) continue;
    // Those who have the room may be this thread's to carry on.
    abandon(ns, progress);
    return kv_commands::failed_after_lookup(Status::capacity_exceeded, ns);
  }
}

void KvCommandSet::execute_fused(const nvme::Sqe&, const nvme::Sqe&, Namespace&, ExecContext&, Outcome& first_outcome,
                                 Outcome& second_outcome) const {
  first_outcome = second_outcome = commands::failed(Status::invalid_field);
}

}  // namespace flashmob::command_set
