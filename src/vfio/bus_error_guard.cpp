#include "vfio/bus_error_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/signal_chain.h"

namespace flashmob::vfio {
namespace {

GuardedRanges& ranges() {
  static auto* const all = new GuardedRanges;  // outlives every static object that guards something
  return *all;
}
std::atomic<std::uint64_t> hit_count{0};
struct sigaction previous_action;

// The bare system call: all that a signal handler may count on.
bool put_zeroes(std::uintptr_t begin, std::uintptr_t end) {
  return syscall(SYS_mmap, begin, end - begin, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != -1;
}

// The whole range where there is no mapping left to split it.
bool replace_rest(const GuardedRange& place, std::uintptr_t address) {
  const std::size_t page_bytes = place.page_bytes.load(std::memory_order_relaxed);
  const std::uintptr_t begin = place.begin.load(std::memory_order_relaxed);
  const std::uintptr_t bytes = place.end.load(std::memory_order_relaxed) - begin;
  const std::uintptr_t end = begin + (bytes + page_bytes - 1) / page_bytes * page_bytes;
  return put_zeroes(address & ~(page_bytes - 1), end) || put_zeroes(begin, end);
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (GuardedRange* place = ranges().find(address)) {
    place->hit.store(true, std::memory_order_relaxed);
    hit_count.fetch_add(1, std::memory_order_release);
    if (replace_rest(*place, address)) return;
  }
  pass_signal_on(previous_action, signal, info, context);
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    ranges();  // made before the handler needs it
    struct sigaction action{};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous_action);
  });
}

}  // namespace

BusErrorGuard::BusErrorGuard(void* begin, std::size_t bytes, std::size_t page_bytes) {
  install_handler();
  place_ = ranges().add(begin, bytes, page_bytes);
}

BusErrorGuard::~BusErrorGuard() { ranges().remove(place_); }

bool BusErrorGuard::was_hit() const { return place_->hit.load(std::memory_order_relaxed); }

std::uint64_t BusErrorGuard::hits() { return hit_count.load(std::memory_order_acquire); }

}  // namespace flashmob::vfio
