#include "media/page_access.h"

#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/guarded_ranges.h"
#include "base/signal_chain.h"

namespace flashmob::media {
namespace {

GuardedRanges& ranges() {
  static auto* const all = new GuardedRanges;  // outlives every static object that has pages
  return *all;
}
struct sigaction previous_action;
// Where this thread goes on when an access fails; nullptr: no access is under way.
thread_local constinit sigjmp_buf* way_out = nullptr;

void on_bus_error(int signal, siginfo_t* info, void* context) {
  if (way_out != nullptr && ranges().find(reinterpret_cast<std::uintptr_t>(info->si_addr)) != nullptr) {
    // The handler is left by a jump: what is blocked while it runs (by sanitizers, everything) would stay so.
    pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
    siglongjmp(*way_out, 1);
  }
  pass_signal_on(previous_action, signal, info, context);
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    ranges();  // made before the handler needs it
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
  place_ = ranges().add(begin, bytes, 0);
}

FilePages::~FilePages() { ranges().remove(place_); }

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
