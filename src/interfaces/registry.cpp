// The table of interfaces: one line each.
#include <cstring>

#include "interfaces/interface.h"
#include "interfaces/io_uring.h"
#include "interfaces/libaio.h"
#include "interfaces/mapped.h"
#include "interfaces/posix_aio.h"
#include "interfaces/posix_sio.h"

namespace flashmob::interfaces {
namespace {

constexpr const char* kCall = "system call";
constexpr const char* kThread = "polled by a kernel thread";
constexpr const char* kInterrupt = "interrupt";
constexpr const char* kPolled = "polled";
constexpr const char* kHybrid = "sleep, then polled";

// Name, submission, completion, synchronous, polled, cached, how it is made, with system calls that are not seen.
constexpr InterfaceKind kKinds[] = {
    {"posix-sio", kCall, kInterrupt, true, false, false, &make_posix_sio},
    {"posix-sio-hipri", kCall, kPolled, true, true, false, &make_posix_sio_hipri},
    {"posix-aio", "threads of the C library", kInterrupt, false, false, false, &make_posix_aio, true},
    {"libaio", kCall, kInterrupt, false, false, false, &make_libaio},
    {"io_uring", kCall, kInterrupt, false, false, false, &make_io_uring<0>},
    {"io_uring-fixed", kCall, kInterrupt, false, false, false, &make_io_uring<kFixed>},
    {"io_uring-iopoll", kCall, kPolled, false, true, false, &make_io_uring<kIoPoll>},
    {"io_uring-iopoll-fixed", kCall, kPolled, false, true, false, &make_io_uring<kIoPoll | kFixed>},
    {"io_uring-hybrid", kCall, kHybrid, false, true, false, &make_io_uring<kHybridPoll>},
    {"io_uring-hybrid-fixed", kCall, kHybrid, false, true, false, &make_io_uring<kHybridPoll | kFixed>},
    {"io_uring-sqpoll", kThread, kInterrupt, false, false, false, &make_io_uring<kSqPoll>},
    {"io_uring-sqpoll-fixed", kThread, kInterrupt, false, false, false, &make_io_uring<kSqPoll | kFixed>},
    {"io_uring-sqpoll-iopoll", kThread, kPolled, false, true, false, &make_io_uring<kSqPoll | kIoPoll>},
    {"io_uring-sqpoll-iopoll-fixed", kThread, kPolled, false, true, false, &make_io_uring<kSqPoll | kIoPoll | kFixed>},
    {"mmap", "page fault", kInterrupt, true, false, true, &make_mapped},
};

}  // namespace

std::span<const InterfaceKind> kinds() { return kKinds; }

const InterfaceKind* find_kind(std::string_view name) {
  for (const InterfaceKind& kind : kKinds)
    if (kind.name == name) return &kind;
  return nullptr;
}

std::string errno_text(std::string_view what, int error) { return std::string(what) + ": " + ::strerrordesc_np(error); }

std::string errno_name(int error) {
  const char* const name = ::strerrorname_np(error);
  return name != nullptr ? name : std::to_string(error);
}

}  // namespace flashmob::interfaces
