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

// Places live as long as the process, so the handler may walk their list at any moment; free ones are used again.
struct Place {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};  // 0: free
  std::atomic<std::size_t> page_bytes{0};
  std::atomic<bool> hit{false};
  Place* next = nullptr;
};

std::atomic<Place*> first_place{nullptr};
std::atomic<std::uint64_t> hit_count{0};
std::mutex places_mutex;
std::vector<Place*>& free_places() {
  static auto* const places = new std::vector<Place*>;  // outlives every static object that guards something
  return *places;
}
struct sigaction previous_action;

// The place whose range holds `address`; nullptr if none does.
Place* find_place(std::uintptr_t address) {
  for (Place* place = first_place.load(std::memory_order_acquire); place != nullptr; place = place->next) {
    if (address < place->end.load(std::memory_order_acquire) && address >= place->begin.load(std::memory_order_relaxed))
      return place;
  }
  return nullptr;
}

// The bare system call: all that a signal handler may count on.
bool put_zeroes(std::uintptr_t begin, std::uintptr_t end) {
  return syscall(SYS_mmap, begin, end - begin, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != -1;
}

// The whole range where there is no mapping left to split it.
bool replace_rest(const Place& place, std::uintptr_t address) {
  const std::size_t page_bytes = place.page_bytes.load(std::memory_order_relaxed);
  const std::uintptr_t begin = place.begin.load(std::memory_order_relaxed);
  const std::uintptr_t bytes = place.end.load(std::memory_order_relaxed) - begin;
  const std::uintptr_t end = begin + (bytes + page_bytes - 1) / page_bytes * page_bytes;
  return put_zeroes(address & ~(page_bytes - 1), end) || put_zeroes(begin, end);
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (Place* place = find_place(address)) {
    place->hit.store(true, std::memory_order_relaxed);
    hit_count.fetch_add(1, std::memory_order_release);
    if (replace_rest(*place, address)) return;
  }
  pass_signal_on(previous_action, signal, info, context);
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
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
  const std::lock_guard lock(places_mutex);
  Place* place = nullptr;
  if (!free_places().empty()) {
    place = free_places().back();
    free_places().pop_back();
  } else {
    free_places().reserve(free_places().capacity() + 1);  // so that the destructor need not allocate
    place = new Place;
    place->next = first_place.load(std::memory_order_relaxed);
    first_place.store(place, std::memory_order_release);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  place->begin.store(address, std::memory_order_relaxed);
  place->page_bytes.store(page_bytes, std::memory_order_relaxed);
  place->hit.store(false, std::memory_order_relaxed);
  place->end.store(address + bytes, std::memory_order_release);
  place_ = place;
}

BusErrorGuard::~BusErrorGuard() {
  const std::lock_guard lock(places_mutex);
  auto* place = static_cast<Place*>(place_);
  place->end.store(0, std::memory_order_release);
  free_places().push_back(place);
}

bool BusErrorGuard::was_hit() const { return static_cast<const Place*>(place_)->hit.load(std::memory_order_relaxed); }

std::uint64_t BusErrorGuard::hits() { return hit_count.load(std::memory_order_acquire); }

}  // namespace flashmob::vfio
