// A namespace as the I/O path sees it: an immutable description plus the mutable sets that commands keep.
//
// Units hold plain pointers to it while requests are in flight: Format NVM replaces it by another object, deletion
// detaches it, and it is freed when no request knows it any more. Everything here may be read by an engine's threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/platform.h"
#include "command_set/namespace_shape.h"
#include "command_set/placement.h"
#include "media/media.h"
#include "media/saved_state.h"
#include "nvme/status.h"

namespace flashmob::command_set {

class CommandSet;

// A set of LBA ranges guarded by a mutex, with a lock-free "is it empty" so that the hot path pays one load.
class LbaRangeSet {
 public:
  // Hosts decide what is in the set, so its memory is bounded: about 64 MiB of ranges that do not touch.
  static constexpr std::uint64_t kMaxRanges = 1 << 20;

  explicit LbaRangeSet(std::uint64_t max_ranges = kMaxRanges) : max_ranges_(max_ranges) {}

  bool empty() const { return count_.load(std::memory_order_acquire) == 0; }
  // False, and nothing changed, if the set would exceed its bound.
  [[nodiscard]] bool insert(std::uint64_t first, std::uint64_t blocks);
  // False, and nothing has changed, if that would cut a range in two while the set is full.
  [[nodiscard]] bool erase(std::uint64_t first, std::uint64_t blocks);
  bool intersects(std::uint64_t first, std::uint64_t blocks) const;
  void clear();
  // A smaller bound than that of the constructor; while the set is empty.
  void limit(std::uint64_t max_ranges) { max_ranges_ = max_ranges; }
  // Its ranges, ascending.
  std::vector<media::SavedRange> ranges() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> ranges_;  // first -> one past last; disjoint
  std::atomic<std::uint64_t> count_{0};            // ranges_.size()
  std::uint64_t max_ranges_;
};

enum class Unmarked : std::uint8_t {
  none,  // the blocks had no mark, in memory or on the disk
  some,  // their marks are gone, and may still be on the disk
  refused,  // they stay, for there is no room for two ranges in one's place
};

// Which commands of a namespace the engine may take in runs, as Reads and Writes of the NVM command set that need
// nothing but decode_read_write() and a copy. The engine asks once for a run.
enum class Runs : std::uint8_t { none, reads, all };

// What a command set keeps of one namespace beside its blocks.
class NamespaceState {
 public:
  virtual ~NamespaceState() = default;
  // The namespace has been formatted; no command is under way.
  virtual void restart() = 0;
};

// Hot, read by every request: its shape and what follows, the first cache line.
struct Namespace : NamespaceShape {
  std::atomic<bool> writable{true};  // Namespace Write Protection may change it
  bool pages_may_go = false;        // media->pages_may_go()
  bool direct_stores = true;        // media->direct_stores()
  std::atomic<Runs> runs{Runs::all};
  const CommandSet* command_set = nullptr;
  media::Media* media = nullptr;
  std::unique_ptr<NamespaceState> state;  // of its command set, where that needs any
  std::unique_ptr<NamespacePlacement> placement;  // where it has_directives

  // Blocks that Write Uncorrectable marked; reading them gives Unrecovered Read Error until they are written.
  LbaRangeSet uncorrectable;
  // Serialises Compare-and-Write pairs of this namespace (see command_set/nvm.h for what is atomic against what).
  std::mutex fused_mutex;

  // Marks blocks uncorrectable. False: there is no room for one more mark, and nothing has changed.
  [[nodiscard]] bool mark(std::uint64_t first, std::uint64_t count);
  // Takes the marks off blocks that have just been written. A block whose mark is still on the disk is not safe with
  // whoever writes it next, either.
  Unmarked unmark(std::uint64_t first, std::uint64_t count);
  // False: unmark() has nothing to do.
  bool has_marks() const { return !uncorrectable.empty() || !unmarked_.empty(); }
  // Whether marks that outlive the run are others than those that are saved. A command that has changed some, and every
  // Flush and write with FUA, is answered after save_marks() then: whoever changed them may have failed to save them.
  bool marks_unsaved() const {
    return marks_changes_.load(std::memory_order_acquire) != marks_saved_.load(std::memory_order_acquire) &&
           media->saved() != nullptr;
  }
  // Has what was written so far on the disk, and then the marks of now: a block that is saved without its mark must not
  // come back with what it held before. False if the disk refuses either; `flushed` tells of the first alone. Any
  // thread; waits for the disk.
  bool save_marks(bool* flushed = nullptr);
  // All that was written so far, and the marks where they are not saved. False if the disk refuses.
  bool flush();
  // Flushes that have begun so far: one that begins later has all on the disk that was written before this was asked.
  std::uint64_t flushes_begun() const { return flushes_begun_.load(std::memory_order_acquire); }
  // As flush(), unless another's that began after `begun` of them has done it; `waited` then stays as it is, and
  // becomes true otherwise.
  bool flush_since(std::uint64_t begun, bool& waited);
  // The marks go with the namespace's format if `go` says that it has changed: from then on save_marks() makes durable
  // what was written and no more. While it is being found out, nobody's marks are saved, and nobody is told so.
  void retire_marks(const std::function<bool()>& go);
  // None, as it was made: the format is this one again.
  void restart_marks();

  // The status of a write that the media has refused.
  nvme::Status write_failure() const {
    return media->is_disk_full() ? nvme::Status::capacity_exceeded : nvme::Status::write_fault;
  }

 private:
  std::atomic<std::uint64_t> marks_changes_{0}, marks_saved_{0};  // changes; those of them that are on the disk
  std::atomic<std::uint64_t> flushes_begun_{0}, flushed_{0};  // the second: the latest that the disk did not refuse
  LbaRangeSet unmarked_;  // marks that are gone, and may be on the disk; of media that save them
  std::mutex changes_mutex_;  // held while a change is made, in whichever of these, and counted
  std::mutex marks_mutex_;  // held while they are being saved; taken before changes_mutex_
  bool marks_retired_ = false;
};

}  // namespace flashmob::command_set
