// What the Key Value command set keeps of a namespace and of a command that is carried out in steps, and its commands.
//
// Any thread. `mutex` guards the store, for moments: nobody looks at more than kAtOnce granules or keys while it is
// held. Values are copied without it. One that is being read is kept until that is over, even if it is replaced or
// deleted meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

#include "command_set/command_set.h"
#include "command_set/kv/lazy_array.h"
#include "command_set/kv/store.h"
#include "flashmob/config.h"

namespace flashmob::command_set {

class KvState final : public NamespaceState {
 public:
  static constexpr std::uint32_t kAtOnce = 64;

  // Throws std::bad_alloc.
  KvState(const kv::Limits& limits, const std::array<std::uint64_t, 2>& secret, const KeyValueConfig& config);
  void restart() override;

  static KvState& of(Namespace& ns) { return static_cast<KvState&>(*ns.state); }
  static const KvState& of(const Namespace& ns) { return static_cast<const KvState&>(*ns.state); }

  // --- The mutex is held ---
  // Keeps a value for a reader.
  void pin(const kv::Value& value);
  // How many granules that has freed; they are to be swept.
  std::uint32_t unpin(const kv::Value& value);
  // The same of a value that no key has any more: its room is free once nobody reads it.
  std::uint32_t let_go(const kv::Value& value);
  // Room for a Store that the store says yes to. Who begins has all that it needs, and waits for nobody; so where
  // others have it, they will be done with it. One waits as the first, whom so many who come later may still pass; the
  // others come again, and do so until there is no first.
  enum class Room : std::uint8_t { promised, waits_first, comes_again };
  Room room_for_newcomer(std::uint32_t granules);
  // True: it is promised to the first, who then waits no more.
  bool has_room_for_first(std::uint32_t granules);
  void first_leaves() { first_waits_ = false; }

  mutable std::mutex mutex;
  kv::Store store;
  const KeyValueConfig config;

 private:
  std::uint32_t release(const kv::Value& value);

  // Of each value, by its last granule: how many readers it has, and whether they are all that hold it.
  static constexpr std::uint16_t kNoKey = 0x8000;
  kv::LazyArray<std::uint16_t> readers_;
  std::uint64_t reading_ = 0;
  // Small values find room beside a large one that waits, and would keep it waiting for ever.
  static constexpr std::uint32_t kMostPass = 64;
  bool first_waits_ = false;
  std::uint32_t passed_ = 0;
};

// What a command asks of the timing model for the bytes that it moves: each run of granules where it lies, those that
// follow each other, or are read from one unit, together.
class MediumWork {
 public:
  void touch(const Namespace& ns, std::uint64_t offset, std::uint64_t bytes, timing::DemandKind kind,
             const ExecContext& context);
  // All that was touched is asked for.
  void ask(const Namespace& ns, timing::DemandKind kind, const ExecContext& context);
  std::uint64_t target_ns() const { return target_ns_; }

 private:
  std::uint64_t begin_ = 0, end_ = 0;  // not asked for yet, ...
  std::uint64_t bytes_ = 0;  // ... and how much of it is moved
  std::uint64_t target_ns_ = 0;
};

// A command between two steps.
struct KvProgress {
  enum class Stage : std::uint8_t { waits, moves, lists, clears, sweeps };
  Stage stage = Stage::moves;
  bool is_pinned = false;
  kv::Key key;
  kv::Value value;  // of Retrieve
  kv::Granules::Ring ring;  // of Store: what it has taken so far, ...
  std::uint32_t promised = 0;  // ... and may still take
  std::uint32_t at = 0;  // of Retrieve: the next granule
  std::uint32_t bytes = 0;  // to be moved in all, or the host's buffer
  std::uint32_t done_bytes = 0;
  std::uint32_t keys = 0;  // of List
  std::uint32_t to_sweep = 0;
  MediumWork medium;
  Outcome outcome;
};

namespace kv_commands {

// What has to be right before the first step, and that: an outcome where there is no other.
using Step = std::optional<Outcome>;
Step begin_store(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, Progress& progress);
Step begin_retrieve(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, Progress& progress);
Step begin_delete(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, Progress& progress);
Step begin_list(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, Progress& progress);
Outcome exist(const nvme::Sqe& sqe, Namespace& ns);

// The next step of a command that has begun.
Step go_on(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, KvProgress& progress);
Step list_more(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, KvProgress& progress);
// No room for it yet, after its first step or a later one.
inline bool is_waiting(Progress& progress) {
  return !progress.has_begun() || progress.as<KvProgress>().stage == KvProgress::Stage::waits;
}
void abandon(Namespace& ns, KvProgress& progress);

// --- What the commands share ---
// The key that a command names. A length of 0 is for List alone.
nvme::Status key_of(const nvme::Sqe& sqe, const Namespace& ns, kv::Key& key);
// A failed command has looked for its key, too.
Outcome failed_after_lookup(nvme::Status status, const Namespace& ns);
// A look at the index: somewhere, but for equal keys at the same place.
void ask_for_index(const Namespace& ns, const kv::Key& key, std::uint64_t bytes, Outcome& outcome);

}  // namespace kv_commands

}  // namespace flashmob::command_set
