#include "base/uring.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace flashmob {

std::unique_ptr<Uring> Uring::make(std::uint32_t entries, io_uring_params params) {
  const long ring = ::syscall(SYS_io_uring_setup, entries, &params);
  if (ring < 0) return nullptr;
  std::unique_ptr<Uring> made(new Uring(static_cast<int>(ring), params));
  constexpr std::uint32_t kNeeded = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS;
  if ((params.features & kNeeded) != kNeeded) {
    errno = ENOSYS;
    return nullptr;
  }
  return made->map() ? std::move(made) : nullptr;
}

Uring::~Uring() {
  if (rings_ != nullptr) ::munmap(rings_, rings_bytes_);
  if (entries_ != nullptr) ::munmap(entries_, params_.sq_entries * sizeof(io_uring_sqe));
  ::close(ring_);
}

bool Uring::map() {
  rings_bytes_ = std::max<std::size_t>(params_.sq_off.array + params_.sq_entries * sizeof(std::uint32_t),
                                       params_.cq_off.cqes + params_.cq_entries * sizeof(io_uring_cqe));
  rings_ = static_cast<std::byte*>(map_part(rings_bytes_, IORING_OFF_SQ_RING));
  entries_ = static_cast<io_uring_sqe*>(map_part(params_.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
  return rings_ != nullptr && entries_ != nullptr;
}

void* Uring::map_part(std::size_t bytes, std::uint64_t offset) {
  void* const part =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_, static_cast<off_t>(offset));
  return part == MAP_FAILED ? nullptr : part;
}

void Uring::show() {
  tail_ += unsent_;
  shown_ += unsent_;
  unsent_ = 0;
  field(params_.sq_off.tail).store(tail_, std::memory_order_release);
}

long Uring::enter(std::uint32_t least_completions, std::uint32_t flags) {
  const long taken = ::syscall(SYS_io_uring_enter, ring_, shown_, least_completions, flags, nullptr, 0);
  if (taken < 0) return -errno;
  shown_ -= std::min(shown_, static_cast<std::uint32_t>(taken));
  return taken;
}

bool Uring::await(std::uint64_t at_most_ns) const {
  // Kernels before 5.11 know no time-out for io_uring_enter(2); all of them let a ring be polled.
  constexpr std::uint64_t kSecondNs = 1'000'000'000;
  constexpr std::uint64_t kMostSeconds = 1 << 30;
  pollfd ring{ring_, POLLIN, 0};
  const timespec time{static_cast<std::time_t>(std::min(at_most_ns / kSecondNs, kMostSeconds)),
                      static_cast<long>(at_most_ns % kSecondNs)};
  return ::ppoll(&ring, 1, &time, nullptr) >= 0 || errno != EINTR;
}

bool Uring::thread_sleeps() const {
  // The kernel's thread says that it sleeps and then looks once more; the order here is the other way round.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return (field(params_.sq_off.flags).load(std::memory_order_relaxed) & IORING_SQ_NEED_WAKEUP) != 0;
}

long Uring::enroll(unsigned operation, const void* argument, unsigned count) {
  return ::syscall(SYS_io_uring_register, ring_, operation, argument, count) < 0 ? -errno : 0;
}

}  // namespace flashmob
