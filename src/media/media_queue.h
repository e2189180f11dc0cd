// One thread's way to media whose bytes are not addressable: transfers are begun, and asked for when they are done.
//
// Data passes through buffers of the queue's own, so the host's memory is touched by its owner's thread alone: a host
// may take it back while the medium is at work. From start() to finish() the blocks of a transfer are its own (a Write)
// or shared with other readers, whichever thread they belong to.
//
// Nothing allocates after construction.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flashmob::media {

enum class TransferState : std::uint8_t {
  pending,  // the medium is at work; poll() hands it out again
  wants_data,  // a Write: fill in `data`, then write()
  done,  // a Read: its bytes are in `data`, if it is good
};

enum class TransferResult : std::uint8_t { good, failed, disk_full };

struct Transfer {
  std::byte* data;
  std::uint64_t offset;
  std::uint32_t bytes;
  std::uint32_t token;  // the caller's
  bool is_write;
  bool is_zeroes;  // a Write of zeroes, which wants no data
  bool durable;
  TransferState state;
  TransferResult result;
};

class MediaQueue {
 public:
  virtual ~MediaQueue() = default;
  // nullptr: the blocks or the buffers are in use; try again after a poll(). A Write that is `durable` is done when it
  // would survive a power cut.
  virtual Transfer* start(std::uint64_t offset, std::uint32_t bytes, bool is_write, bool durable,
                          std::uint32_t token) = 0;
  virtual void write(Transfer& transfer) = 0;
  // Has the range read as zeroes, and take no space where the medium can do that. Others see all of it or nothing.
  // nullptr: as above.
  virtual Transfer* start_zeroes(std::uint64_t offset, std::uint32_t bytes, std::uint32_t token) = 0;
  // Has the medium begin what was started.
  virtual void kick() = 0;
  // The next transfer that is pending no more; nullptr if there is none at present.
  virtual Transfer* poll() = 0;
  // Ends a transfer that is not pending.
  virtual void finish(Transfer& transfer) = 0;
  // Transfers between start() and finish().
  std::uint32_t outstanding() const { return outstanding_; }

 protected:
  std::uint32_t outstanding_ = 0;
};

}  // namespace flashmob::media
