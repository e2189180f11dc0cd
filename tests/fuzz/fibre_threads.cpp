#include "fuzz/fibre_threads.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <boost/context/fiber.hpp>
#include <boost/context/stack_context.hpp>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <mutex>
#include <thread>

#include "base/check.h"

#if defined(FLASHMOB_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif

namespace flashmob::fuzz {
namespace {

constexpr std::size_t kStackBytes = 1 << 20;  // frames under AddressSanitizer are several times larger

// Of a stack that is never given back.
struct KeptStack {
  std::byte* memory;
  boost::context::stack_context allocate() const {
    boost::context::stack_context context;
    context.size = kStackBytes;
    context.sp = memory + kStackBytes;
    return context;
  }
  void deallocate(boost::context::stack_context&) const {}
};

// A fibre, which runs one thread after the other and never ends.
struct Fibre {
  boost::context::fiber context, home;
  std::byte* stack = nullptr;
  void* frames = nullptr;  // AddressSanitizer's, while others run
  std::unique_ptr<std::thread::_State> work;
  const void* waits_for = nullptr;
  bool told = false, timed = false;
  std::int64_t until_ns = 0;

  bool can_run(bool pass_time) const { return work && (waits_for == nullptr || told || (timed && pass_time)); }
};

struct Threads {
  bool on = false;
  std::array<Fibre, 8> fibres;
  Fibre* running = nullptr;
  std::int64_t skipped_ns = 0;  // that waits took on the steady clock and in no other way
  const void* home_bottom = nullptr;
  std::size_t home_bytes = 0;
};
// Never destroyed: the fibres stand in the middle of their work when the process ends.
union Forever {
  Threads threads;
  Forever() : threads() {}
  ~Forever() {}
};
Forever forever;
Threads& threads = forever.threads;

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec + threads.skipped_ns;
}

void to_fibre([[maybe_unused]] Fibre& fibre, [[maybe_unused]] void*& frames) {
#if defined(FLASHMOB_ASAN)
  __sanitizer_start_switch_fiber(&frames, fibre.stack, kStackBytes);
#endif
}
void at_home([[maybe_unused]] void* frames) {
#if defined(FLASHMOB_ASAN)
  __sanitizer_finish_switch_fiber(frames, nullptr, nullptr);
#endif
}
void on_fibre([[maybe_unused]] Fibre& fibre) {
#if defined(FLASHMOB_ASAN)
  __sanitizer_finish_switch_fiber(fibre.frames, &threads.home_bottom, &threads.home_bytes);
#endif
}
void to_home([[maybe_unused]] Fibre& fibre) {
#if defined(FLASHMOB_ASAN)
  __sanitizer_start_switch_fiber(&fibre.frames, threads.home_bottom, threads.home_bytes);
#endif
}

// On a fibre: the others go on.
void yield(Fibre& fibre) {
  to_home(fibre);
  fibre.home = std::move(fibre.home).resume();
  on_fibre(fibre);
}

boost::context::fiber make_context(Fibre& fibre) {
  void* const memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  FLASHMOB_CHECK(memory != MAP_FAILED);
  fibre.stack = static_cast<std::byte*>(memory);
  return boost::context::fiber(std::allocator_arg, KeptStack{fibre.stack}, [&fibre](boost::context::fiber&& home) {
    fibre.home = std::move(home);
    on_fibre(fibre);
    for (;;) {
      fibre.work->_M_run();
      fibre.work.reset();
      yield(fibre);
    }
    return std::move(fibre.home);
  });
}

void resume(Fibre& fibre) {
  if (fibre.stack == nullptr) fibre.context = make_context(fibre);
  if (fibre.waits_for != nullptr && !fibre.told)
    threads.skipped_ns += std::max<std::int64_t>(fibre.until_ns - now_ns(), 0);
  threads.running = &fibre;
  void* frames = nullptr;
  to_fibre(fibre, frames);
  fibre.context = std::move(fibre.context).resume();
  at_home(frames);
  threads.running = nullptr;
}

// True if it was told, false if the time had come.
bool wait(const void* condition, const std::int64_t* until_ns) {
  Fibre& fibre = *threads.running;
  fibre.waits_for = condition;
  fibre.told = false;
  fibre.timed = until_ns != nullptr;
  fibre.until_ns = fibre.timed ? *until_ns : 0;
  yield(fibre);
  fibre.waits_for = nullptr;
  return fibre.told;
}

void tell(const void* condition) {
  for (Fibre& fibre : threads.fibres)
    if (fibre.waits_for == condition) fibre.told = true;
}

}  // namespace

void keep_threads_here() { threads.on = true; }

bool run_threads(bool pass_time) {
  bool any = false;
  for (Fibre& fibre : threads.fibres) {
    if (!fibre.can_run(pass_time)) continue;
    resume(fibre);
    any = true;
  }
  return any;
}

}  // namespace flashmob::fuzz

// The linker's names: __wrap_X is called for X, __real_X is X. A thread's handle is its fibre's number, from 1 on.
extern "C" {
using namespace flashmob::fuzz;
using State = std::unique_ptr<std::thread::_State>;

void __real__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(std::thread*, State*,
                                                                                                  void (*)());
void __real__ZNSt6thread4joinEv(std::thread*);
void __real__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable*,
                                                                      std::unique_lock<std::mutex>*);
void __real__ZNSt18condition_variable10notify_oneEv(std::condition_variable*);
void __real__ZNSt18condition_variable10notify_allEv(std::condition_variable*);
int __real_pthread_cond_clockwait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);

// std::thread::_M_start_thread(); it takes the state over.
void __wrap__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(std::thread* thread,
                                                                                                  State* state,
                                                                                                  void (*depend)()) {
  if (!threads.on)
    return __real__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(thread, state,
                                                                                                        depend);
  auto* const free = std::find_if(threads.fibres.begin(), threads.fibres.end(), [](const Fibre& f) { return !f.work; });
  FLASHMOB_CHECK(free != threads.fibres.end());
  free->work = std::move(*state);
  free->waits_for = nullptr;
  static_assert(sizeof(std::thread) == sizeof(std::uintptr_t));
  *reinterpret_cast<std::uintptr_t*>(thread) = static_cast<std::uintptr_t>(free - threads.fibres.begin()) + 1;
}

// std::thread::join()
void __wrap__ZNSt6thread4joinEv(std::thread* thread) {
  auto& handle = *reinterpret_cast<std::uintptr_t*>(thread);
  if (handle == 0 || handle > threads.fibres.size()) return __real__ZNSt6thread4joinEv(thread);
  Fibre& fibre = threads.fibres[handle - 1];
  while (fibre.work) {
    FLASHMOB_CHECK(fibre.can_run(true) && "a thread is joined that nobody ends");
    resume(fibre);
  }
  handle = 0;
}

// std::condition_variable::wait()
void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* condition,
                                                                      std::unique_lock<std::mutex>* lock) {
  if (threads.running == nullptr)
    return __real__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(condition, lock);
  lock->mutex()->unlock();
  (void)wait(condition, nullptr);
  lock->mutex()->lock();
}

int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const timespec* until) {
  if (threads.running == nullptr) return __real_pthread_cond_clockwait(condition, mutex, clock, until);
  const std::int64_t until_ns = until->tv_sec * 1'000'000'000 + until->tv_nsec;
  pthread_mutex_unlock(mutex);
  const bool told = wait(condition, &until_ns);
  pthread_mutex_lock(mutex);
  return told ? 0 : ETIMEDOUT;
}

void __wrap__ZNSt18condition_variable10notify_oneEv(std::condition_variable* condition) {
  tell(condition);
  __real__ZNSt18condition_variable10notify_oneEv(condition);
}
void __wrap__ZNSt18condition_variable10notify_allEv(std::condition_variable* condition) {
  tell(condition);
  __real__ZNSt18condition_variable10notify_allEv(condition);
}

// std::chrono::steady_clock::now()
std::int64_t __wrap__ZNSt6chrono3_V212steady_clock3nowEv() { return now_ns(); }
}
