// Transfers of media that takes its time (media/media_queue.h): they are asked for in one round and done in a later
// one. And commands that take long, as those that have many blocks zeroed or copied, or move large values: part by
// part, so that nobody waits for all of them.
//
// Host memory is touched inside the guard of a round alone, when data is copied to or from the medium's own buffers; so
// a host that takes its memory back waits for no disk. Before queues are deleted, commands aborted or controllers
// reset, all that is under way ends (finish), so no write lands behind its host's back. For the worker's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/executor.h"
#include "engine/places.h"
#include "engine/requests.h"
#include "media/media_queue.h"

namespace flashmob::engine {

class MediaTransfers {
 public:
  MediaTransfers(const WorkerContext& context, Requests& requests, Completer& completer, Executor& executor,
                 RedoQueue& redo);

  // True if the media has the transfer, or it waits for the media; false if the media only has calls that wait.
  bool start(Slot slot);
  // The same of a command that looks at blocks (Compare, Verify), which the media reads for it.
  bool start_look(Slot slot);
  enum class PartState : std::uint8_t {
    none,  // it is to be carried out in one piece
    taken,  // the media will zero its blocks, or it has been answered
    stopped,  // it is to be prepared again when it is its controller's turn
    holds,  // the same, and it has what other controllers may wait for
    waits,  // it has not begun, and will not before others are done
  };
  // Of a command that has blocks read as zeroes, or copied, or is carried out in steps. Where it waits, `line` is the
  // number of its line (MoveQueue::lines).
  PartState do_part(Slot slot, std::size_t& line);
  // A command of which no more parts will be done, whatever it is.
  void forget_parts(Slot slot);
  // The same, of steps alone, before its namespace is another's.
  void forget_steps(Slot slot);
  // Whether a command that runs in one piece may wait for blocks of other threads' transfers: it must do so without any
  // of its own thread's, for these might wait for it. A Flush is for what is done already.
  bool may_block(const ColdRequest& cold) const;
  // Media has requests of this worker, or will.
  bool any() const { return requests_held_ != 0; }
  // Takes up what media has done, and starts what could not be started. True if anything moved.
  bool poll();
  // What was started in this round goes to the disk together.
  void kick() {
    for (media::MediaQueue* queue : busy_) queue->kick();
  }
  // Until this thread has no transfer outstanding. Inside the guard.
  void drain();
  // The same; and those that wait are prepared again.
  void finish();

 private:
  media::MediaQueue* queue_of(const ColdRequest& cold) const { return cold.ns->media->queue(context_.number); }
  bool try_start(Slot slot);
  bool begin_zeroing(Slot slot, std::uint32_t number);
  PartState zero(Slot slot, std::size_t& line);
  PartState zero_slice(Slot slot);
  PartState step(Slot slot, std::size_t& line);
  PartState copy(Slot slot, std::size_t& line);
  static std::size_t line_of_room(const ColdRequest& cold);
  bool begin_copying(Slot slot, std::uint32_t number);
  void aim(ColdRequest& cold);
  void copied(media::MediaQueue& queue, media::Transfer& transfer);
  void end_copying(Slot slot, nvme::Status status);
  void finish(media::MediaQueue& queue, media::Transfer& transfer);
  bool try_zero(media::MediaQueue& queue, Slot slot);
  void zeroed(media::MediaQueue& queue, media::Transfer& transfer);
  void looked(media::MediaQueue& queue, media::Transfer& transfer);
  void end_zeroing(Slot slot, nvme::Status status);
  void wait_or_start(Slot slot);

  // That have been begun, of a worker's: what each takes is kept, and hosts may send hundreds of thousands. The number
  // of its place, from 1, is its command's ColdRequest::copies_left.
  static constexpr std::uint32_t kMostZeroings = 256;
  static constexpr std::uint32_t kMostCopies = 8;
  static constexpr std::uint32_t kMostProgresses = 256;
  command_set::Zeroing& zeroing_of(const ColdRequest& cold) { return zeroings_.at(cold.copies_left); }
  PortContext& port_of(Slot slot) const { return requests_.port_of(requests_.hot(slot)); }
  void go_on(media::MediaQueue& queue, media::Transfer& transfer);
  bool collect();

  const WorkerContext& context_;
  Requests& requests_;
  Completer& completer_;
  Executor& executor_;
  RedoQueue& redo_;
  std::vector<media::MediaQueue*> busy_;  // those with transfers outstanding
  std::uint32_t requests_held_ = 0;  // that media has, or that wait for it
  Places<command_set::Zeroing> zeroings_{1, kMostZeroings};
  struct Copy {
    command_set::Copying ranges;
    std::vector<std::byte> bytes;  // of all sources
  };
  Copy& copy_of(const ColdRequest& cold) { return copies_.at(cold.copies_left); }
  Places<Copy> copies_{1 + kMostZeroings, kMostCopies};
  // Of commands that are between two steps.
  Places<command_set::Progress> progresses_{1 + kMostZeroings + kMostCopies, kMostProgresses};
  bool draining_ = false;  // nothing more is begun
  SlotLine waiting_;  // for blocks or buffers
};

}  // namespace flashmob::engine
