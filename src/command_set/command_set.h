// What I/O commands mean. A command set executes one command of its kind completely: it checks every field, moves
// the data, and says what the command asks of the timing model. It also knows all that others have to know of it: its
// identifier and commands, what a namespace of it must be, what Identify and its log pages say.
//
// The engine handles the common case, Read and Write, itself (nvm.h: decode_read_write) so that whole batches are
// decoded, timed and copied without a call per command, where the namespace says that it may (Namespace::runs);
// everything else goes through execute().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/clock.h"
#include "command_set/lba_formats.h"
#include "command_set/namespace.h"
#include "command_set/piece_locks.h"
#include "flashmob/config.h"
#include "memory/address_space.h"
#include "memory/command_data.h"
#include "memory/data_pointer.h"
#include "nvme/command.h"
#include "nvme/dataset.h"
#include "nvme/identify.h"
#include "nvme/io_commands.h"
#include "nvme/log_page.h"
#include "nvme/status.h"
#include "timing/demand.h"
#include "timing/model.h"

namespace flashmob::command_set {

// What a controller allows; fixed while it is enabled.
struct IoLimits {
  memory::DataPointerLimits data_pointer;
  std::uint64_t max_transfer_bytes = 1 << 20;  // MDTS in bytes
  bool volatile_write_cache = true;            // Flush and FUA then mean Media::flush() and sync()
  bool sgl_supported = true;
  bool read_only = false;  // this host may not write
  std::uint64_t max_append_bytes = 1 << 20;  // ZASL in bytes
  bool has_placement = false;  // the drive has Flexible Data Placement, whether or not it is enabled
};

inline bool may_write(const Namespace& ns, const IoLimits& limits) {
  return ns.writable.load(std::memory_order_relaxed) && !limits.read_only;
}

// Asked by commands that write blocks, once everything else has been found right, in namespaces where not all blocks
// may be written at any time. `first` may be moved; a status that is not success ends the command.
class WriteGate {
 public:
  virtual ~WriteGate() = default;
  virtual nvme::Status admit(std::uint64_t& first, std::uint64_t blocks) = 0;
  // Whether a command that reads blocks in order to write others (Copy) may read these.
  virtual nvme::Status check_source(std::uint64_t first, std::uint64_t blocks) = 0;
};

// Blocks, in bytes of the namespace.
struct MediaRange {
  std::uint64_t offset;
  std::uint64_t bytes;
};

// Blocks that are to read as zeroes: a command's own, in the order of its ranges.
struct Zeroing {
  using Range = MediaRange;
  std::array<Range, nvme::kMaxDatasetManagementRanges> ranges;
  std::uint32_t count = 0;
  // So far: whole ranges, and of the next one so many bytes.
  std::uint32_t done = 0;
  std::uint64_t done_bytes = 0;
  bool is_discard = false;  // Media::discard() will do
  bool is_deallocated = false;  // the timing model is to be told

  bool all_done() const { return done == count; }
  void advance(std::uint64_t bytes) {
    done_bytes += bytes;
    if (done_bytes != ranges[done].bytes) return;
    ++done;
    done_bytes = 0;
  }
  void restart() {
    count = done = 0;
    done_bytes = 0;
  }
};

// Blocks that are to be copied: a command's sources, in their order, and where all of them go.
struct Copying {
  std::array<MediaRange, nvme::kMaxCopySourceRanges> sources;
  MediaRange destination;
  std::uint32_t count = 0;
  // So far: whole sources, and of the next one so many bytes; behind the last one, of the destination.
  std::uint32_t done = 0;
  std::uint64_t done_bytes = 0;
  std::uint64_t read_bytes = 0;  // of all sources

  bool is_writing() const { return done == count; }
  bool all_done() const { return is_writing() && done_bytes == destination.bytes; }
  void advance(std::uint64_t bytes) {
    done_bytes += bytes;
    if (is_writing()) return;
    read_bytes += bytes;
    if (done_bytes != sources[done].bytes) return;
    ++done;
    done_bytes = 0;
  }
  void restart() {
    count = done = 0;
    done_bytes = read_bytes = 0;
  }
};

// Where a command that is carried out in steps has got to: its set's own, and nothing before the first of them.
class Progress {
 public:
  static constexpr std::size_t kMaxBytes = 192;

  template <class T>
  T& begin() {
    static_assert(sizeof(T) <= kMaxBytes && alignof(T) <= 8 && std::is_trivially_copyable_v<T>);
    has_begun_ = true;
    return *new (room_.data()) T();
  }
  bool has_begun() const { return has_begun_; }
  template <class T>
  T& as() {
    return *std::launder(reinterpret_cast<T*>(room_.data()));
  }

 private:
  alignas(8) std::array<std::byte, kMaxBytes> room_;
  bool has_begun_ = false;
};

// What a command needs to run on some thread. One per thread; the reader is inside its guard.
struct ExecContext {
  memory::AddressSpace::Reader& reader;
  memory::SegmentList& segments;
  std::span<std::byte> bounce;  // at least max_transfer_bytes + one page: for compare, copy, unmapped media
  const IoLimits& limits;
  PieceLocks* locks = nullptr;  // where other threads copy, too
  bool write_through = false;   // the write cache is off: all that is written is to be durable, as with FUA
  timing::TimingModel* model = nullptr;  // told what is deallocated, ...
  std::uint64_t writes_before = timing::kAllWrites;  // ... of what so many writes have written
  WriteGate* gate = nullptr;
  Zeroing* zeroing = nullptr;  // blocks are not zeroed, but noted here: it may take long
  Copying* copying = nullptr;  // the same of blocks that are to be copied
  std::span<const std::byte> stored = {};  // what CommandSet::looks_at() names, where that has been read
  std::uint64_t fetched_ns = 0;  // when the command was, and the timing model is asked
  const Clock* clock = nullptr;  // says when a step has taken long enough; nullptr: none does
};

struct Outcome {
  nvme::Status status = nvme::Status::success;
  std::uint64_t result = 0;  // dwords 0 and 1 of the completion
  timing::Demand demand{0, 0, timing::DemandKind::immediate, {}};
  std::uint64_t extra_ns = 0;  // what the device takes beyond that
  std::uint64_t target_ns = 0;  // when all is done that the command itself has asked the model for; 0: nothing
  // For SMART: bytes that the host read or wrote by this command (0 for others).
  std::uint64_t host_read_bytes = 0;
  std::uint64_t host_write_bytes = 0;
  // What a command that succeeded has read or written, and must be durable before it is answered; 0 bytes: nothing.
  // That is its caller's to see to (Media::sync()), who may go on with others while a disk is waited for. What was read
  // before it became durable is what became durable, or newer.
  std::uint64_t sync_offset = 0;
  std::uint64_t sync_bytes = 0;
  bool sync_is_of_write = false;
  // Also of a command that failed half-way: it is answered after Namespace::save_marks(), which is its caller's, too.
  bool marks_changed = false;
};

// What Identify says of any namespace, for sets whose own structure says it, too.
struct NamespaceIdentity {
  std::array<std::uint8_t, 16> nguid{};
  std::array<std::uint8_t, 8> eui64{};
  bool shared = false;
};

using IdentifyPage = std::array<std::byte, nvme::kIdentifyBytes>;

// One object for each set, which all namespaces share: what belongs to one of them is in Namespace::state.
class CommandSet {
 public:
  virtual ~CommandSet() = default;
  virtual nvme::Csi csi() const = 0;
  virtual std::string_view name() const = 0;  // as `command_set` of a namespace gives it
  std::span<const nvme::IoCommand> commands() const { return nvme::io_commands(csi()); }

  // --- Of a namespace that begins ---
  // Throws ConfigError where it is not what this set needs; `key` names it.
  virtual void check(const std::string& /*key*/, const NamespaceConfig& /*config*/) const {}
  // What it needs beside its blocks, and which of its commands the engine may take in runs.
  virtual void prepare(Namespace& /*ns*/, const NamespaceConfig& /*config*/) const {}
  // Whether hosts may make namespaces of it (Namespace Management).
  virtual bool hosts_create() const { return false; }
  // Whether a namespace is so many blocks of equal length, which Identify CNS 00h describes.
  virtual bool has_logical_blocks() const { return true; }
  // How many formats Format NVM may choose from.
  virtual unsigned formats() const { return kLbaFormats; }

  // --- What hosts are told; `page` is all zero ---
  // CNS 05h and 1Bh.
  virtual void identify_namespace(const Namespace& /*ns*/, const NamespaceIdentity& /*identity*/,
                                  const IoLimits& /*limits*/, IdentifyPage& /*page*/) const {}
  virtual void identify_controller(const IoLimits& /*limits*/, IdentifyPage& /*page*/) const {}  // CNS 06h
  // The log pages of a namespace that this set has, and one of them; unless it is retained it is forgotten.
  virtual std::span<const nvme::LogPage> log_pages() const { return {}; }
  virtual std::vector<std::byte> log_page(nvme::LogPage /*page*/, Namespace& /*ns*/, bool /*retain*/) const {
    return {};
  }

  // What the lengths of a namespace's commands follow from, for those who carry their data.
  virtual memory::DataShape shape(const Namespace& ns) const {
    return {.block_bytes = static_cast<std::uint32_t>(ns.lba_bytes()), .csi = csi()};
  }

  // --- Commands ---
  // What a command asks of the timing model, where the command alone says that: it is asked when the command is
  // fetched, in the order of all. Of others, and of those that are wrong, execute() says it. Not of fused halves.
  virtual std::optional<timing::Demand> demand_of(const nvme::Sqe& /*sqe*/, const Namespace& /*ns*/,
                                                  const IoLimits& /*limits*/) const {
    return std::nullopt;
  }
  // Executes one command on an attached namespace, fused halves and Flush excepted, which is the caller's. NSIDs that
  // name no attached namespace were answered by the caller.
  virtual Outcome execute(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) const = 0;
  // The blocks of a command that looks at these and changes nothing, where it can be given them in ExecContext::stored.
  // Of others, and of those that are wrong, execute() reads itself.
  virtual std::optional<MediaRange> looks_at(const nvme::Sqe& /*sqe*/, const Namespace& /*ns*/,
                                             const IoLimits& /*limits*/) const {
    return std::nullopt;
  }
  // Whether this command notes blocks where it is given ExecContext::zeroing.
  virtual bool notes_zeroing(const nvme::Sqe& /*sqe*/) const { return false; }
  // Ends one that has, when they are zeroed, and the timing model knows it: `status` says how that went.
  virtual Outcome end_zeroing(const nvme::Sqe& /*sqe*/, Namespace& /*ns*/, const ExecContext& /*context*/,
                              const Zeroing& /*zeroing*/, nvme::Status /*status*/) const {
    return {};
  }
  // The same of a command that copies blocks, with ExecContext::copying.
  virtual bool notes_copying(const nvme::Sqe& /*sqe*/) const { return false; }
  virtual Outcome end_copying(const nvme::Sqe& /*sqe*/, Namespace& /*ns*/, const ExecContext& /*context*/,
                              const Copying& /*copying*/, nvme::Status /*status*/) const {
    return {};
  }
  // Whether this command may be carried out in steps, each of some ten microseconds at most.
  virtual bool has_steps(const nvme::Sqe& /*sqe*/) const { return false; }
  // Of those: whether it may need more than one. The others are carried out at once, as soon as it is their turn.
  virtual bool has_several_steps(const nvme::Sqe& sqe) const { return has_steps(sqe); }
  // Carries out the next one. None: there are more; or, where none has begun, it is not this command's turn yet.
  virtual std::optional<Outcome> step(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context,
                                      Progress& /*progress*/) const {
    return execute(sqe, ns, context);
  }
  // What it waits for where it is not its turn: commands with the same number stand in one line, others do not.
  virtual std::uint64_t room_of(const nvme::Sqe& /*sqe*/, const Namespace& /*ns*/) const { return 0; }
  // No more of them will be: what the command holds is free, and what it was to change is as it was.
  virtual void abandon(Namespace& /*ns*/, Progress& /*progress*/) const {}
  // Executes a fused pair (first: Compare, second: Write). Fills one outcome each.
  virtual void execute_fused(const nvme::Sqe& first, const nvme::Sqe& second, Namespace& ns, ExecContext& context,
                             Outcome& first_outcome, Outcome& second_outcome) const = 0;
};

}  // namespace flashmob::command_set
