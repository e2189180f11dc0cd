#include "media/page_access.h"

#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/signal_chain.h"

namespace flashmob::media {
namespace {

// Places live as long as the process, so the handler may walk their list at any moment; free ones are used again.
struct Place {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};  // 0: free
  Place* next = nullptr;
};

std::atomic<Place*> first_place{nullptr};
std::mutex places_mutex;
struct sigaction previous_action;
// Where this thread goes on when an access fails; nullptr: no access is under way.
thread_local constinit sigjmp_buf* way_out = nullptr;

bool is_registered(std::uintptr_t address) {
  for (const Place* place = first_place.load(std::memory_order_acquire); place != nullptr; place = place->next) {
    if (address < place->end.load(std::memory_order_acquire) && address >= place->begin.load(std::memory_order_relaxed))
      return true;
  }
  return false;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  if (way_out != nullptr && is_registered(reinterpret_cast<std::uintptr_t>(info->si_addr))) {
    // The handler is left by a jump: what is blocked while it runs (by sanitizers, everything) would stay so.
    pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
    siglongjmp(*way_out, 1);
  }
  pass_signal_on(previous_action, signal, info, context);
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous_action);
  });
}

}  // namespace

FilePages::FilePages(const void* begin, std::size_t bytes) {
  install_handler();
  const std::lock_guard lock(places_mutex);
  Place* place = first_place.load(std::memory_order_relaxed);
  while (place != nullptr && place->end.load(std::memory_order_relaxed) != 0) place = place->next;
  if (place == nullptr) {
    place = new Place;
    place->next = first_place.load(std::memory_order_relaxed);
    first_place.store(place, std::memory_order_release);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  place->begin.store(address, std::memory_order_relaxed);
  place->end.store(address + bytes, std::memory_order_release);
  place_ = place;
}

FilePages::~FilePages() { static_cast<Place*>(place_)->end.store(0, std::memory_order_release); }

bool try_access(void (*access)(void*), void* context) {
  sigjmp_buf* const outer = way_out;
  sigjmp_buf here;
  if (sigsetjmp(here, 0) != 0) {
    way_out = outer;
    return false;
  }
  way_out = &here;
  access(context);
  way_out = outer;
  return true;
}

}  // namespace flashmob::media
