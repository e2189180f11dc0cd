#include "transport/vfio_user/message_queues.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <iterator>
#include <span>
#include <utility>

#include "base/check.h"
#include "nvme/admin_command.h"
#include "nvme/registers.h"
#include "nvme/status.h"

namespace flashmob::transport {
namespace {

using nvme::AdminOpcode;
using namespace std::chrono_literals;

constexpr std::uint64_t kPageBytes = 4096;
// A client's own buffers here: one for each of its commands that moves data. A page more than the longest has room for
// data that begins within a page. Their PRP lists are one page behind that, which holds no data.
constexpr std::size_t kBuffers = 8;
constexpr std::size_t kListEntries = kPageBytes / sizeof(std::uint64_t);
constexpr std::uint64_t kMaxTransferBytes = kPageBytes * kListEntries;
constexpr std::uint64_t kRingSpacing = std::uint64_t{1} << 24;
constexpr std::uint64_t kBuffersIova = DmaRegions::kOwnIova + (std::uint64_t{1} << 44);
constexpr std::uint32_t kFetchLimit = 32;
constexpr std::uint32_t kPostLimit = 64;
// How often completions are looked for that no interrupt announces: soon after the last one, and later.
constexpr auto kLookSoon = 50us;
constexpr auto kLookLater = 2ms;
constexpr unsigned kSoonLooks = 2000;

std::uint32_t key_of(std::uint16_t sqid, std::uint16_t cid) { return std::uint32_t{sqid} << 16 | cid; }

std::uint64_t round_up_to_page(std::uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Where in their first page so many bytes begin in a buffer: aim() tells why.
std::uint64_t begin_in_page(std::uint64_t bytes) {
  return bytes > kPageBytes + 4 && bytes <= 2 * kPageBytes ? (2 * kPageBytes - bytes) / 4 * 4 + 4 : 0;
}

void set_status(nvme::Cqe& cqe, nvme::Status status) {
  cqe.status_phase = static_cast<std::uint16_t>((cqe.status_phase & 1) | unsigned{nvme::to_field(status)} << 1);
}

}  // namespace

MessageQueues::MessageQueues(controller::Controller& controller, MessageMemory& client,
                             std::function<void(std::uint16_t vector)> interrupt)
    : controller_(controller),
      client_(client),
      interrupt_(std::move(interrupt)),
      max_transfer_bytes_(std::min<std::uint64_t>(controller.config().max_transfer_bytes, kMaxTransferBytes)),
      data_bytes_(round_up_to_page(max_transfer_bytes_) + kPageBytes),
      buffer_bytes_(data_bytes_ + kPageBytes),
      buffers_(kBuffers * buffer_bytes_) {
  controller_.address_space().map(kBuffersIova, buffers_.size(), buffers_.data());
}

MessageQueues::~MessageQueues() {
  FLASHMOB_CHECK(!thread_.joinable());
  forget();
  controller_.address_space().unmap(kBuffersIova, buffers_.size());
}

MessageQueues::AdminQueues MessageQueues::start(const AdminQueues& clients) {
  FLASHMOB_CHECK(!thread_.joinable() && sqs_.empty() && cqs_.empty());
  stop_ = false;
  rung_ = false;
  vectors_.clear();
  for (std::size_t i = 0; i < kBuffers; ++i) free_buffers_.push_back(i);
  sqs_[0] = new_ring(clients.sq_iova, clients.sq_entries, 0, true);
  cqs_[0] = new_ring(clients.cq_iova, clients.cq_entries, 0, false);
  thread_ = std::thread([this] {
    try {
      run();
    } catch (const std::exception&) {
      failed_.store(true, std::memory_order_release);
      client_.call();
    }
  });
  return {sqs_[0]->iova, cqs_[0]->iova, clients.sq_entries, clients.cq_entries};
}

void MessageQueues::stop_copying() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void MessageQueues::forget() {
  for (auto& [key, command] : in_flight_)
    if (command.made) lose(*command.made);
  in_flight_.clear();
  for (Rings* rings : {&sqs_, &cqs_}) {
    for (auto& [qid, ring] : *rings) lose(*ring);
    rings->clear();
  }
  gone_.clear();
  free_buffers_.clear();
  unanswered_ = 0;
}

bool MessageQueues::ring(std::uint16_t qid, std::uint32_t tail) {
  const std::lock_guard lock(mutex_);
  const auto found = sqs_.find(qid);
  if (found == sqs_.end() || tail >= found->second->entries) return false;
  found->second->tail = tail;
  rung_ = true;
  wake_.notify_one();
  return true;
}

void MessageQueues::interrupt(std::uint16_t vector) {
  const std::lock_guard lock(mutex_);
  vectors_.insert(vector);
  wake_.notify_one();
}

void MessageQueues::run() {
  bool posted = false;
  unsigned looks = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto called = [this] { return stop_ || rung_ || !vectors_.empty(); };
    if (unanswered_ == 0 && !posted)
      wake_.wait(lock, called);
    else if (!posted)
      wake_.wait_for(lock, looks < kSoonLooks ? std::chrono::microseconds(kLookSoon) : kLookLater, called);
    if (stop_) return;
    rung_ = false;
    const std::set<std::uint16_t> vectors = std::exchange(vectors_, {});
    std::vector<std::pair<std::uint16_t, std::uint32_t>> tails;
    for (const auto& [qid, ring] : sqs_)
      if (ring->next != ring->tail) tails.emplace_back(qid, ring->tail);
    lock.unlock();
    posted = post_all();
    looks = posted || !tails.empty() ? 0 : looks + 1;
    // An entry is posted before the engine interrupts for it, so it has gone to the client by now.
    for (const std::uint16_t vector : vectors) interrupt_(vector);
    for (const auto& [qid, tail] : tails)
      if (const auto found = sqs_.find(qid); found != sqs_.end()) fetch(qid, *found->second, tail);
    lock.lock();
  }
}

// I/O completions before those of the admin queue that were there first, so that a queue's deletion is never told
// before the completions of its commands.
bool MessageQueues::post_all() {
  const std::uint32_t admin_entries = ready_entries(*cqs_.at(0));
  bool any = false;
  // Not by the map itself: a completion may end a queue.
  walked_.clear();
  for (const auto& [qid, ring] : cqs_)
    if (qid != 0) walked_.push_back(qid);
  for (const std::uint16_t qid : walked_) {
    const auto found = cqs_.find(qid);
    if (found == cqs_.end()) continue;
    Ring& ring = *found->second;
    while (post(ring, kPostLimit)) any = true;
  }
  for (std::uint32_t left = admin_entries; left != 0;) {
    const std::uint32_t before = cqs_.at(0)->next;
    if (!post(*cqs_.at(0), left)) break;
    const Ring& admin = *cqs_.at(0);
    left -= std::min(left, (admin.next + admin.entries - before) % admin.entries);
    any = true;
  }
  gone_.clear();
  return any;
}

// Entries posted by the engine and not yet by us, up to the ring's end and a limit.
std::uint32_t MessageQueues::ready_entries(const Ring& ring) {
  if (ring.iova == 0) return 0;
  // The engine stores the last dword, which holds the phase, after the others.
  const auto phase = [&](std::uint32_t index) {
    auto* words = reinterpret_cast<std::uint32_t*>(ring.memory.data() + std::size_t{index} * sizeof(nvme::Cqe));
    return (std::atomic_ref<std::uint32_t>(words[3]).load(std::memory_order_acquire) >> 16) & 1;
  };
  std::uint32_t count = 0;
  while (count < kPostLimit && ring.next + count < ring.entries && phase(ring.next + count) == ring.phase) ++count;
  return count;
}

bool MessageQueues::post(Ring& ring, std::uint32_t limit) {
  const std::uint32_t count = std::min(limit, ready_entries(ring));
  if (count == 0) return false;
  std::array<nvme::Cqe, kPostLimit> batch;
  std::memcpy(batch.data(), ring.memory.data() + std::size_t{ring.next} * sizeof(nvme::Cqe), count * sizeof(nvme::Cqe));
  const std::uint64_t iova = ring.client_iova + std::uint64_t{ring.next} * sizeof(nvme::Cqe);
  ring.next += count;
  if (ring.next == ring.entries) {
    ring.next = 0;
    ring.phase ^= 1;
  }
  for (std::uint32_t i = 0; i < count; ++i) bring_back(ring, batch[i]);
  if (!client_.write(iova, std::as_bytes(std::span(batch).first(count)))) lose(ring);
  return true;
}

// An entry is believed only where its command's queue has its completions: whoever could write one elsewhere is not the
// engine.
void MessageQueues::bring_back(const Ring& ring, nvme::Cqe& cqe) {
  const auto found = in_flight_.find(key_of(cqe.sqid, cqe.cid));
  if (found == in_flight_.end() || found->second.cqid != ring.cqid) return;
  InFlight command = std::move(found->second);
  in_flight_.erase(found);
  if (has_changed_format(command, cqe)) set_status(cqe, nvme::Status::format_in_progress);
  const bool succeeded = cqe.status_phase >> 1 == 0;
  if (succeeded && command.buffer && command.data.way == memory::DataWay::from_device) {
    std::span<const std::byte> data(command.place, command.data.bytes);
    for (const ClientPiece& piece : command.pieces) {
      if (!piece.dropped && !client_.write(piece.iova, data.first(piece.bytes)))
        set_status(cqe, nvme::Status::data_transfer_error);
      data = data.subspan(piece.bytes);
    }
  }
  if (command.queue_change) after_queue_change(command, succeeded);
  release(command);
}

// Whether the command's blocks were perhaps of another length when it was carried out than when its data was brought:
// what it has moved is not known, and the client may ask again. It may also have found that its data does not reach.
bool MessageQueues::has_changed_format(const InFlight& command, const nvme::Cqe& cqe) const {
  const unsigned status = (cqe.status_phase >> 1) & ~unsigned{nvme::kStatusMore | nvme::kStatusDoNotRetry};
  return command.buffer && cqe.sqid != 0 && (status == 0 || status == to_field(nvme::Status::data_transfer_error)) &&
         command.format != controller_.attachment_changes(command.nsid);
}

void MessageQueues::release(InFlight& command) {
  if (command.buffer) free_buffers_.push_back(*command.buffer);
  if (!command.waits) --unanswered_;
}

void MessageQueues::after_queue_change(InFlight& command, bool succeeded) {
  const bool submission =
      command.queue_change == AdminOpcode::create_io_sq || command.queue_change == AdminOpcode::delete_io_sq;
  Rings& rings = submission ? sqs_ : cqs_;
  if (command.made) {
    if (!succeeded) {
      lose(*command.made);
      return;
    }
    const std::lock_guard lock(mutex_);
    rings[command.queue] = std::move(command.made);
    return;
  }
  const auto found = rings.find(command.queue);
  if (!succeeded || found == rings.end()) return;
  lose(*found->second);
  {
    const std::lock_guard lock(mutex_);
    // Whoever called may be at its entries still.
    gone_.push_back(std::move(found->second));
    rings.erase(found);
  }
  if (!submission) return;
  // What had no completion is over with its queue.
  for (auto at = in_flight_.begin(); at != in_flight_.end();) {
    const bool over = at->first >> 16 == command.queue;
    if (over) release(at->second);
    at = over ? in_flight_.erase(at) : std::next(at);
  }
}

void MessageQueues::fetch(std::uint16_t qid, Ring& ring, std::uint32_t tail) {
  auto* const entries = reinterpret_cast<nvme::Sqe*>(ring.memory.data());
  while (ring.iova != 0 && ring.next != tail && !free_buffers_.empty()) {
    const std::uint32_t end = tail > ring.next ? tail : ring.entries;
    const std::uint32_t count = std::min(end - ring.next, kFetchLimit);
    std::array<nvme::Sqe, kFetchLimit> batch;
    if (!client_.read(ring.client_iova + std::uint64_t{ring.next} * sizeof(nvme::Sqe),
                      std::as_writable_bytes(std::span(batch).first(count)))) {
      lose(ring);
      return;
    }
    for (std::uint32_t i = 0; i < count && !free_buffers_.empty(); ++i) {
      take_in(qid, ring.cqid, batch[i]);
      entries[ring.next] = batch[i];
      ring.next = ring.next + 1 == ring.entries ? 0 : ring.next + 1;
    }
    controller_.write_register(nvme::kRegDoorbells + 8u * qid, 4, ring.next);
  }
}

// Makes a command one whose memory is ours. What cannot be made so goes to the engine with a pointer to nothing, and
// fails with the status of the rule that it breaks, or with a data transfer error.
void MessageQueues::take_in(std::uint16_t qid, std::uint16_t cqid, nvme::Sqe& sqe) {
  InFlight command;
  command.cqid = cqid;
  command.nsid = sqe.nsid;
  if (qid == 0) {
    const auto opcode = static_cast<AdminOpcode>(sqe.opcode);
    command.waits = opcode == AdminOpcode::async_event_request;
    if (opcode == AdminOpcode::create_io_sq || opcode == AdminOpcode::create_io_cq ||
        opcode == AdminOpcode::delete_io_sq || opcode == AdminOpcode::delete_io_cq)
      take_in_queue_change(sqe, opcode, command);
    command.data = memory::admin_command_data(sqe);
  } else {
    // Before the shape: whoever sees another one then has seen another format, too.
    command.format = controller_.attachment_changes(sqe.nsid);
    command.data = memory::io_command_data(sqe, controller_.attached_shape(sqe.nsid));
  }
  // Of a kind that there is not, or not for this command, the engine says that: it sees what kind it was.
  const unsigned kind = sqe.flags & nvme::kFlagPsdtMask;
  const bool is_kind_valid = kind == 0 || (qid != 0 && kind != nvme::kFlagPsdtMask);
  const Pointer pointer = command.data.bytes != 0 && is_kind_valid ? bring_data(sqe, command) : Pointer::unreachable;
  if (pointer == Pointer::whole)
    aim(sqe, command);
  else if (!command.queue_change)
    break_pointer(sqe, pointer, command.data.bytes);
  const std::uint32_t key = key_of(qid, sqe.cid);
  ++unanswered_;
  if (command.waits) --unanswered_;
  // Two commands by one name are the client's mistake: the second one's data goes nowhere.
  if (in_flight_.contains(key)) {
    if (command.made) lose(*command.made);
    release(command);
    return;
  }
  in_flight_.emplace(key, std::move(command));
}

void MessageQueues::take_in_queue_change(nvme::Sqe& sqe, AdminOpcode opcode, InFlight& command) {
  command.queue_change = opcode;
  command.queue = static_cast<std::uint16_t>(sqe.cdw10);
  const bool submission = opcode == AdminOpcode::create_io_sq;
  if (!submission && opcode != AdminOpcode::create_io_cq) return;
  const std::uint32_t entries = (sqe.cdw10 >> 16) + 1;
  const bool contiguous = (sqe.cdw11 & 1) != 0;
  const std::uint64_t client_iova = std::exchange(sqe.prp1, DmaRegions::kNowhereIova + sqe.prp1 % kPageBytes);
  if (!contiguous || client_iova % kPageBytes != 0 || entries > controller_.config().max_queue_entries) return;
  command.made = new_ring(client_iova, entries, command.queue, submission);
  if (!command.made) return;
  command.made->cqid = submission ? static_cast<std::uint16_t>(sqe.cdw11 >> 16) : command.queue;
  sqe.prp1 = command.made->iova;
}

Pointer MessageQueues::bring_data(const nvme::Sqe& sqe, InFlight& command) {
  const bool to_device = command.data.way == memory::DataWay::to_device;
  if (command.data.bytes > max_transfer_bytes_) return Pointer::unreachable;
  const Pointer found = find_pieces(client_, sqe, command.data.bytes, to_device, command.pieces);
  if (found != Pointer::whole) return found;
  std::byte* const begin = buffer(free_buffers_.back());
  command.place = begin + begin_in_page(command.data.bytes);
  std::span<std::byte> data(command.place, command.data.bytes);
  // Nothing is left of the commands before it, as far as the pages that the engine is told of reach.
  const std::uint64_t end = round_up_to_page(begin_in_page(command.data.bytes) + command.data.bytes);
  if (!to_device) std::ranges::fill(data, std::byte{0});
  std::fill(data.data() + data.size(), begin + end, std::byte{0});
  for (const ClientPiece& piece : command.pieces) {
    if (to_device && (piece.dropped || !client_.read(piece.iova, data.first(piece.bytes)))) return Pointer::unreachable;
    data = data.subspan(piece.bytes);
  }
  command.buffer = free_buffers_.back();
  free_buffers_.pop_back();
  return Pointer::whole;
}

// The engine computes the length anew, perhaps from another LBA size: no length may make a page of the client's data a
// list, nor lead to memory that is not this command's. So PRP2 names either nothing or a list page, which holds nothing
// of the client's; what a longer transfer would find there is nowhere. Data of a length that has no list (two pages,
// one of them PRP2) begins within a page so that it takes three, but for 4100 bytes, which cannot; then four bytes of
// the client's are all that its second page holds, which name nothing of ours.
void MessageQueues::aim(nvme::Sqe& sqe, const InFlight& command) const {
  const std::uint64_t iova = kBuffersIova + *command.buffer * buffer_bytes_;
  const std::uint64_t begin = begin_in_page(command.data.bytes);
  const std::uint64_t pages = round_up_to_page(begin + command.data.bytes) / kPageBytes;
  sqe.flags = static_cast<std::uint8_t>(sqe.flags & ~nvme::kFlagPsdtMask);
  sqe.prp1 = iova + begin;
  sqe.prp2 = DmaRegions::kNowhereIova;
  if (pages == 2) sqe.prp2 = iova + kPageBytes;
  if (pages <= 2) return;
  const std::span list(reinterpret_cast<std::uint64_t*>(buffer(*command.buffer) + data_bytes_), kListEntries);
  sqe.prp2 = iova + data_bytes_;
  for (std::uint64_t i = 0; i < list.size(); ++i)
    list[i] = i + 1 < pages ? iova + (i + 1) * kPageBytes : DmaRegions::kNowhereIova;
}

// nullptr where there is such a ring already: the controller refuses the command.
std::unique_ptr<MessageQueues::Ring> MessageQueues::new_ring(std::uint64_t client_iova, std::uint32_t entries,
                                                             std::uint16_t qid, bool submission) {
  const std::uint64_t iova = DmaRegions::kOwnIova + (2u * qid + (submission ? 0u : 1u) + 1) * kRingSpacing;
  if (places_.contains(iova)) return nullptr;
  auto ring = std::make_unique<Ring>();
  ring->client_iova = client_iova;
  ring->entries = entries;
  ring->iova = iova;
  ring->memory = memory::HostMemory(std::size_t{entries} * (submission ? sizeof(nvme::Sqe) : sizeof(nvme::Cqe)));
  places_.insert(iova);
  controller_.address_space().map(iova, ring->memory.size(), ring->memory.data());
  return ring;
}

// Takes a ring from the engine, which then treats the queue as one whose memory was unmapped.
void MessageQueues::lose(Ring& ring) {
  if (ring.iova == 0) return;
  FLASHMOB_CHECK(controller_.address_space().unmap(ring.iova, ring.memory.size()));
  places_.erase(std::exchange(ring.iova, 0));
}

}  // namespace flashmob::transport
