// What the Key Value command set keeps of a namespace, and its commands, one function each.
//
// Any thread. `mutex` guards the store, for moments; values are copied without it. A value that is being read is kept
// until that is over, even if it is replaced or deleted meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

#include "command_set/command_set.h"
#include "command_set/kv/store.h"
#include "flashmob/config.h"

namespace flashmob::command_set {

class KvState final : public NamespaceState {
 public:
  // Throws std::bad_alloc.
  KvState(const kv::Limits& limits, const KeyValueConfig& config);
  void restart() override;

  static KvState& of(Namespace& ns) { return static_cast<KvState&>(*ns.state); }
  static const KvState& of(const Namespace& ns) { return static_cast<const KvState&>(*ns.state); }

  // --- The mutex is held ---
  // Keeps a value for a reader. None: there are too many readers; it may be read with the mutex held.
  std::optional<std::size_t> pin(const kv::Value& value);
  void unpin(std::size_t reader);
  // A value that no key has any more: its room is free once nobody reads it.
  void let_go(const kv::Value& value);

  mutable std::mutex mutex;
  kv::Store store;
  const KeyValueConfig config;

 private:
  struct Reader {
    kv::Value value;
    bool reads = false;
    bool is_last_holder = false;  // of a value that no key has, or one of several
  };
  std::size_t readers_of(const kv::Value& value) const;

  std::array<Reader, 64> readers_;  // threads that serve queues; more are served, too
  std::size_t reading_ = 0;
};

// Where a value's bytes lie, from and to the host's memory. False: the media failed.
bool write_value(Namespace& ns, const kv::Value& value, std::span<const memory::Segment> segments);
bool read_value(Namespace& ns, const kv::Value& value, std::uint64_t bytes, std::span<const memory::Segment> segments);

namespace kv_commands {

Outcome store(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome retrieve(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome delete_key(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome exist(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome list(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);

}  // namespace kv_commands

}  // namespace flashmob::command_set
