#include "initiator/nvme_tcp/tcp_queue.h"

#include <utility>

#include "base/check.h"

namespace flashmob::initiator {

using nvme::Status;

namespace {

std::uint16_t refusal_field(Status status) {
  return status == Status::transient_transport_error ? nvme::to_field(status) : nvme::with_do_not_retry(status);
}

}  // namespace

TcpQueue::TcpQueue(fabrics::Stream bytes, const TcpStreamLimits& limits, std::uint32_t own_slots)
    : qid_(limits.qid),
      host_limit_(limits.entries - 1 - own_slots),
      stream_(std::move(bytes), limits, *this),
      held_(limits.entries) {
  FLASHMOB_CHECK(own_slots + 1 < limits.entries);
}

void TcpQueue::attach(std::optional<SubmissionRing> ring, std::shared_ptr<CompletionRing> completions) {
  ring_ = ring;
  completions_ = std::move(completions);
  host_commands_ -= static_cast<std::uint32_t>(held_count_);
  held_head_ = held_count_ = 0;
}

bool TcpQueue::rings_broken() const {
  return (ring_ && !ring_->ok()) || (completions_ != nullptr && !completions_->ok());
}

bool TcpQueue::poll(memory::AddressSpace::Reader& reader, bool look) {
  bool worked = false;
  if (stream_.in_flight() > 0 || look) worked |= stream_.receive(reader);
  if (held_count_ > 0) worked |= post_held(reader);
  if (!own_.empty()) worked |= start_own_commands(reader);
  if (ring_ && ring_->has_entry()) worked |= fetch(reader);
  worked |= stream_.send(reader);
  // What a refused command or a connection lost in send() has ended is posted in the same round.
  if (held_count_ > 0) worked |= post_held(reader);
  return worked;
}

bool TcpQueue::fetch(memory::AddressSpace::Reader& reader) {
  bool worked = false;
  nvme::Sqe sqe;
  while (host_commands_ < host_limit_ && (stream_.lost() || stream_.can_start()) && ring_->peek(reader, sqe)) {
    if (stream_.reserved(sqe.cid)) break;
    Screening screening{.verdict = Verdict::refuse, .status = Status::transient_transport_error};
    if (!stream_.lost()) screening = screen(sqe);
    if (screening.verdict == Verdict::wait) break;
    ring_->take();
    ++host_commands_;
    worked = true;
    if (screening.verdict == Verdict::keep) continue;
    if (screening.verdict == Verdict::forward) screening.status = stream_.start(reader, sqe, screening.data);
    if (screening.status == Status::success) continue;
    nvme::Cqe entry{};
    entry.cid = sqe.cid;
    entry.status_phase = static_cast<std::uint16_t>(refusal_field(screening.status) << 1);
    post_or_hold(entry);
  }
  return worked;
}

void TcpQueue::run_own(const nvme::Sqe& sqe, CommandData data, std::byte* local,
                       std::function<void(const nvme::Cqe&)> done) {
  own_.push_back({sqe, data, local, std::move(done)});
}

bool TcpQueue::start_own_commands(memory::AddressSpace::Reader& reader) {
  bool worked = false;
  while (!own_.empty()) {
    if (!stream_.lost() && !stream_.can_start()) break;
    Own own = std::move(own_.front());
    own_.pop_front();
    worked = true;
    if (stream_.start_own(reader, own.sqe, own.data, own.local, own.done)) continue;
    nvme::Cqe entry{};
    entry.status_phase = static_cast<std::uint16_t>(nvme::to_field(Status::transient_transport_error) << 1);
    own.done(entry);
  }
  return worked;
}

void TcpQueue::completed(const nvme::Cqe& entry) {
  observe(entry);
  post_or_hold(entry);
}

void TcpQueue::finish_kept(std::uint16_t cid, std::uint16_t status_field, std::uint32_t dw0) {
  nvme::Cqe entry{};
  entry.cid = cid;
  entry.dw0 = dw0;
  entry.status_phase = static_cast<std::uint16_t>(status_field << 1);
  post_or_hold(entry);
}

// Completions are posted together at two places of a round; until then, and where their ring is full, they are held.
void TcpQueue::post_or_hold(const nvme::Cqe& entry) {
  if (completions_ == nullptr) {
    --host_commands_;
    return;
  }
  FLASHMOB_CHECK(held_count_ < held_.size());
  held_[(held_head_ + held_count_) % held_.size()] = entry;
  ++held_count_;
}

bool TcpQueue::post_held(memory::AddressSpace::Reader& reader) {
  bool worked = false;
  while (held_count_ > 0 && completions_->ok() && completions_->has_room()) {
    nvme::Cqe entry = held_[held_head_];
    entry.sqid = qid_;
    entry.sqhd = ring_ ? ring_->head() : 0;
    completions_->post(reader, entry);
    held_head_ = held_head_ + 1 == held_.size() ? 0 : held_head_ + 1;
    --held_count_;
    --host_commands_;
    worked = true;
  }
  return worked;
}

void TcpQueue::begin_close() {
  closing_ = true;
  ring_.reset();
}

TcpIoQueue::TcpIoQueue(fabrics::Stream bytes, const TcpStreamLimits& limits, std::uint32_t own_slots, BlockSizes& sizes,
                       std::function<void(std::uint32_t nsid)> look_up)
    : TcpQueue(std::move(bytes), limits, own_slots), sizes_(sizes), look_up_(std::move(look_up)) {}

TcpQueue::Screening TcpIoQueue::screen(const nvme::Sqe& sqe) {
  std::uint32_t block_bytes = 0;
  if (memory::counts_blocks(sqe)) {
    block_bytes = sizes_.get(sqe.nsid);
    if (block_bytes == BlockSizes::kUnknown) {
      look_up_(sqe.nsid);
      return {.verdict = Verdict::wait};
    }
    if (block_bytes == BlockSizes::kAbsent) {
      // Asked again for the next command: the namespace may be attached by then.
      if (sqe.nsid != 0 && sqe.nsid != UINT32_MAX) sizes_.set(sqe.nsid, BlockSizes::kUnknown);
      return {.verdict = Verdict::refuse, .status = Status::invalid_namespace_or_format};
    }
  }
  return {.verdict = Verdict::forward, .data = memory::io_command_data(sqe, block_bytes)};
}

}  // namespace flashmob::initiator
