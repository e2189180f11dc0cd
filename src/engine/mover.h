// Moving the data: copies between host memory and media, in slices of a few microseconds, so that completions that are
// due go out between slices; controllers take turns, so that a long run of copies of one delays no other.
//
// Plain transfers wait in their controllers' move queues as the copies that they are. Everything else is prepared when
// its turn comes: a transfer becomes copies, or media that takes its time gets it; any other command goes to the
// executor. For the worker's thread, inside the guard of its ports; what ends commands while the worker is paused.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "command_set/nvm_decode.h"
#include "engine/completer.h"
#include "engine/copy_engine.h"
#include "engine/executor.h"
#include "engine/media_transfers.h"
#include "engine/move_queue.h"
#include "engine/requests.h"
#include "engine/turns.h"

namespace flashmob::engine {

// Which transfers of a run of one queue and one namespace are plain: a PlainTransfer and a copy say all about them.
class PlainRule {
 public:
  PlainRule(const Sq& sq, const command_set::Namespace& ns, bool whole, const command_set::PieceLocks* locks)
      : page_bytes_(sq.controller->io_limits().data_pointer.page_bytes),
        reads_(!whole && ns.base != nullptr),
        writes_(reads_ && sq.controller->write_cache_enabled() && !ns.has_marks() && ns.direct_stores &&
                locks == nullptr) {}

  // Within one memory page by PRP, with none of dword 12's options.
  bool takes(const nvme::Sqe& sqe, const command_set::Transfer& transfer) const {
    const std::uint64_t offset = sqe.prp1 & (page_bytes_ - 1);
    return (transfer.is_write ? writes_ : reads_) && sqe.flags == 0 && sqe.cdw12 <= 0xFFFFu &&
           transfer.bytes <= page_bytes_ - offset && (offset & 3) == 0;
  }

 private:
  std::uint32_t page_bytes_;
  bool reads_, writes_;
};

class Mover {
 public:
  Mover(const WorkerContext& context, Requests& requests, Completer& completer, Executor& executor,
        MediaTransfers& media, RedoQueue& redo, std::unique_ptr<CopyEngine> copies);

  const CopyEngine& copy_engine() const { return *copy_engine_; }
  // For so many controllers at most.
  void reserve(std::size_t controllers) { turns_.reserve(controllers); }

  // --- Requests come ---
  // Queues the copies of a batch of transfers; each gets a ColdRequest if `whole`, else only those that need it.
  void queue(const Sq& sq, command_set::Namespace& ns, const nvme::Sqe* sqes, std::span<const Slot> slots, bool whole);
  // Takes over a request that is no plain transfer.
  void take(Slot slot) {
    MoveQueue& moves = *requests_.port_of(requests_.hot(slot)).moves;
    take_turns(moves);
    moves.push_other(slot);
  }
  // Takes over a plain transfer, of which Requests::plain() tells.
  void take_plain(Slot slot);

  // --- Rounds ---
  bool has_work() const { return !turns_.empty() || has_prepared(); }
  void move_slice();
  // Copies were started that are not finished: host memory that they touch must stay where it is.
  bool copies_in_flight() const { return copies_in_flight_ != 0; }
  // Notes which copies are done.
  void collect_copies();
  // Waits for them, inside the guard they were started in: a few microseconds, or the copy engine's time-out.
  void finish_copies();

  // --- Requests that end before their time ---
  // Takes the copies of a controller's aborted requests, and of those whose queue is gone, out of the way; they are
  // given back in their turn.
  void stop_zombies(PortContext& port);
  // Ends the plain transfers of a namespace that have not been moved, or the Writes among them.
  void fail_plain(const command_set::Namespace& ns, nvme::Status status, bool writes_alone);
  // Host pointers of prepared copies are stale: those requests are prepared again. And what waits in a line is looked
  // at once more: it may have been ended.
  void redo_copies();
  // Host memory has changed: where do the plain transfers of this controller go to now?
  void refresh(PortContext& port);
  // All requests of a controller have been ended, and its queue of moves goes.
  void drop(PortContext& port);
  bool knows(const media::Media& media);

 private:
  // A slice ends after so many copies or bytes: a few microseconds, so that completions due are never far behind. It is
  // twice as long where no request has a target that could be missed, because every turn to something else empties the
  // CPU's window of loads that wait for memory.
  static constexpr std::uint32_t kSliceCopies = 64;
  static constexpr std::uint32_t kMaxSliceCopies = 2 * kSliceCopies;
  static constexpr std::uint32_t kSliceBytes = 32 * 1024;
  static_assert(kMaxSliceCopies <= Completer::kDueBatch);
  // What a slow machine takes for a copy, for the gap monitor: random blocks from DRAM took 80 ns for 512 B and 0.45 us
  // for 4 KiB on the machines seen.
  static constexpr std::uint32_t kCopyNs = 100;
  static constexpr std::uint32_t kCopyBytesPerNs = 4;
  // What is left of a slice.
  struct Budget {
    std::uint32_t copies;
    std::uint32_t bytes;
    bool is_spent() const { return copies == 0 || bytes == 0; }
    void spend() { copies = bytes = 0; }
    void take(std::uint32_t some_copies, std::uint32_t some_bytes) {
      copies -= std::min(copies, some_copies);
      bytes -= std::min(bytes, some_bytes);
    }
  };

  // Before something is put into a queue.
  void take_turns(MoveQueue& moves) {
    if (moves.empty()) turns_.join(moves);
  }
  // The queue of the controller whose turn it is; there is one.
  MoveQueue& in_turn() { return turns_.current(); }
  // The next controller's turn: each has a run of plain transfers moved, or one of its other commands prepared.
  void end_turn() { turns_.pass(in_turn().empty()); }
  // Copies of commands other than plain transfers that wait to be started.
  bool has_prepared() const { return copies_at_ != copies_.size() || !redo_.empty(); }
  bool next_to_prepare(Slot& slot);
  std::uint32_t prepare(Slot slot);
  void do_part(Slot slot);
  void leave_lines(MoveQueue& moves, Slot slot, const WaitingLine* but);
  void end_lines();
  std::uint32_t prepare_transfer(Slot slot);
  bool move_by_media(Slot slot, std::span<const memory::Segment> segments);
  void move_prepared(Budget& left);
  void make_copies(std::span<const Copy> pending, std::size_t count);
  bool submit(CopyRun& run, std::size_t count, bool streaming, bool& made);
  bool has_room_for(std::size_t copies);
  void make_singly(std::span<const Copy> copies);
  bool outgrows_cache(std::uint32_t bytes) const;
  bool splits_block(const Copy& copy);
  void copied(Slot slot);
  void note_pages(const command_set::Namespace& ns) {
    if (ns.pages_may_go) [[unlikely]]
      pages_may_go_ = true;
  }

  // mover_plain.cpp
  void move_plain(Budget& left);
  void move_plain_singly(const MoveQueue& moves, std::span<const Copy> copies);
  std::uint32_t look_at_sources(std::span<const Copy> copies);
  void copy_torn_again(const MoveQueue& moves, std::span<const Copy> copies);
  void fail_one(const Copy& copy, const PlainTransfer& plain, nvme::Status status);

  const WorkerContext& context_;
  Requests& requests_;
  Completer& completer_;
  Executor& executor_;
  MediaTransfers& media_;
  RedoQueue& redo_;
  Turns<MoveQueue> turns_;  // those of controllers that have data to move
  std::vector<Copy> copies_;  // prepared copies; [copies_at_, size) are not started
  std::size_t copies_at_ = 0;
  std::size_t copies_asked_ = 0;  // of those that are not started, the first so many were asked for
  std::uint32_t copies_in_flight_ = 0;  // always 0 after a slice when the CPU copies
  bool pages_may_go_ = false;  // of some media that copies have come from or gone to
  std::unique_ptr<CopyEngine> copy_engine_;
  // Of the sources of a run of plain Reads: two pieces of media each at most.
  std::array<std::array<std::uint64_t, 2>, kMaxSliceCopies> looks_{};
};

}  // namespace flashmob::engine
