#include "driver/key_value_queue.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "nvme/kv.h"

namespace flashmob::driver {
namespace {

// How often a controller that keeps silent is asked whether it is dead.
constexpr std::uint64_t kLookForFatalNs = 1'000'000;
// How many of these looks there are for each question whether the call is to go on.
constexpr std::uint32_t kLooksPerQuestion = 10;
constexpr std::uint32_t kEntries = 2;  // one command, and the slot that stays empty

}  // namespace

KeyValueQueue::KeyValueQueue(NvmeDriver& driver, std::uint64_t max_bytes, const std::atomic<bool>& stopping)
    : driver_(driver),
      generation_(driver.generation()),
      max_bytes_(std::max<std::uint64_t>(max_bytes, PrpLists::kPageBytes)),
      stopping_(stopping),
      memory_(driver.device(), max_bytes_),
      lists_(driver.device(), 1, max_bytes_),
      pair_(driver.create_queue_pair({.sq_entries = kEntries})) {}

KeyValueQueue::~KeyValueQueue() {
  try {
    if (!is_gone()) driver_.delete_queue_pair(pair_);
  } catch (const std::exception&) {
    // The controller is dead or keeps silent; a reset will take the pair away.
  }
}

KeyValueQueue::Answer KeyValueQueue::send(const Command& command, std::span<const std::byte> value) {
  if (value.size() > max_bytes_) throw std::length_error("a value of more bytes than one command carries");
  if (!value.empty()) std::memcpy(memory_.data(), value.data(), value.size());
  return run(command, value.size());
}

KeyValueQueue::Answer KeyValueQueue::receive(const Command& command, std::span<std::byte> out) {
  if (out.size() > max_bytes_) throw std::length_error("a buffer of more bytes than one command carries");
  const Answer answer = run(command, out.size());
  if (answer.status_field == 0 && !out.empty()) std::memcpy(out.data(), memory_.data(), out.size());
  return answer;
}

KeyValueQueue::Answer KeyValueQueue::run(const Command& command, std::size_t bytes) {
  if (is_gone() || stopping_) throw std::runtime_error("the queue is gone: the controller was reset");
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(command.opcode);
  sqe.nsid = command.nsid;
  sqe.cdw10 = static_cast<std::uint32_t>(bytes);
  sqe.cdw11 = std::uint32_t{command.options} << 8;
  set_kv_key(sqe, command.key);
  if (bytes != 0) lists_.describe(0, sqe, memory_.iova(), bytes);
  pair_.submit() = sqe;
  pair_.ring_sq();
  std::optional<Answer> answer;
  std::uint32_t looks = 0;
  const std::uint64_t begun_ns = driver_.waiter().now_ns();
  for (std::uint64_t checked_ns = begun_ns; !answer;) {
    pair_.reap(1, [&](const nvme::Cqe& entry) {
      answer = Answer{static_cast<std::uint16_t>(entry.status_phase >> 1), entry.dw0};
    });
    pair_.ring_cq();
    const std::uint64_t now_ns = driver_.waiter().now_ns();
    if (answer) break;
    if (stopping_) throw std::runtime_error("the SSD was reset or closed before a key-value command was answered");
    if (now_ns - begun_ns > timeout_ns)
      throw NvmeTimeout("a key-value command was not completed within " + std::to_string(timeout_ns / 1'000'000) +
                        " ms");
    if (now_ns - checked_ns > kLookForFatalNs) {
      checked_ns = now_ns;
      if (interrupted && ++looks % kLooksPerQuestion == 0 && interrupted())
        throw std::runtime_error("the wait for a key-value command was interrupted");
      if (driver_.fatal()) throw NvmeFatal("the controller reports a fatal status, or does not answer at all");
    }
    driver_.waiter().pump();
  }
  return *answer;
}

}  // namespace flashmob::driver
