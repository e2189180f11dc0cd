// One queue pair of the NVMe/TCP door: entries of a ring in the host's memory become commands of a TcpStream, and what
// completes there is posted to a completion ring, as a PCIe controller would do it.
//
// A non-blocking state machine for one pump thread; poll() is called inside the reader's guard. Once the connection is
// lost, every command ends with a transport error, those in the rings and those that follow.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "initiator/nvme_tcp/block_sizes.h"
#include "initiator/nvme_tcp/device_rings.h"
#include "initiator/nvme_tcp/tcp_stream.h"
#include "memory/address_space.h"

namespace flashmob::initiator {

class TcpQueue : private TcpStream::Owner {
 public:
  // Takes the stream with its socket. Commands of the host leave `own_slots` of the stream's for the door's own.
  TcpQueue(fabrics::Stream bytes, const TcpStreamLimits& limits, std::uint32_t own_slots);
  virtual ~TcpQueue() = default;

  std::uint16_t qid() const { return qid_; }
  TcpStream& stream() { return stream_; }
  const TcpStream& stream() const { return stream_; }
  // From now on commands are read from this ring; none: the host's part is over, what completes is dropped.
  void attach(std::optional<SubmissionRing> ring, std::shared_ptr<CompletionRing> completions);
  CompletionRing* completions() { return completions_.get(); }

  // Looks at the doorbell; before each poll(), outside the guard.
  void look_at_doorbell() {
    if (ring_) ring_->look();
  }
  // One round: true if it did anything. `look` receives even if no command is in flight, which shows a lost connection.
  bool poll(memory::AddressSpace::Reader& reader, bool look);
  // Runs a command of the door's own as soon as there is room; `done` is told on this thread.
  void run_own(const nvme::Sqe& sqe, CommandData data, std::byte* local, std::function<void(const nvme::Cqe&)> done);
  // Ends the host's command that screen() has kept.
  void finish_kept(std::uint16_t cid, std::uint16_t status_field, std::uint32_t dw0);
  // The connection is given up, and every command in flight ends with a transport error.
  void abandon(const std::string& reason) { stream_.lose(reason); }
  // Deleting the queue: no more commands are fetched, and that the controller closes is no failure; then the commands
  // in flight end as told.
  void begin_close();
  bool closing() const { return closing_; }
  void end_commands(nvme::Status status) { stream_.end_commands(status); }
  // A ring was unreachable or a doorbell out of range: the host has broken its side.
  bool rings_broken() const;

  // Time passes: for what the queue does by itself, next at deadline_ns().
  virtual void tick(std::uint64_t) {}
  virtual std::uint64_t deadline_ns() const { return UINT64_MAX; }

 protected:
  enum class Verdict : std::uint8_t {
    forward,  // to the controller
    wait,     // look at it again in the next round
    refuse,   // ends at once with `status`
    keep,     // somebody calls finish_kept()
  };
  struct Screening {
    Verdict verdict;
    CommandData data{};
    nvme::Status status = nvme::Status::success;
  };

  virtual Screening screen(const nvme::Sqe& sqe) = 0;
  // Sees every completion before the host does.
  virtual void observe(const nvme::Cqe&) {}

 private:
  void completed(const nvme::Cqe& entry) override;
  void post_or_hold(const nvme::Cqe& entry);
  bool post_held(memory::AddressSpace::Reader& reader);
  bool fetch(memory::AddressSpace::Reader& reader);
  bool start_own_commands(memory::AddressSpace::Reader& reader);

  struct Own {
    nvme::Sqe sqe;
    CommandData data;
    std::byte* local;
    std::function<void(const nvme::Cqe&)> done;
  };

  std::uint16_t qid_;
  std::uint32_t host_limit_;  // commands of the host, until their completions are posted
  std::uint32_t host_commands_ = 0;
  TcpStream stream_;
  std::optional<SubmissionRing> ring_;
  std::shared_ptr<CompletionRing> completions_;
  std::vector<nvme::Cqe> held_;  // ended, not yet posted: a ring
  std::size_t held_head_ = 0;
  std::size_t held_count_ = 0;
  std::deque<Own> own_;
  bool closing_ = false;
};

// An I/O queue. Lengths that it does not know it asks for with `look_up`, which may be called again and again.
class TcpIoQueue final : public TcpQueue {
 public:
  TcpIoQueue(fabrics::Stream bytes, const TcpStreamLimits& limits, std::uint32_t own_slots, BlockSizes& sizes,
             std::function<void(std::uint32_t nsid)> look_up);

 private:
  Screening screen(const nvme::Sqe& sqe) override;

  BlockSizes& sizes_;
  std::function<void(std::uint32_t)> look_up_;
};

}  // namespace flashmob::initiator
