// A way to ask the kernel for I/O, as one thread of a measured run uses it, and the table of all of them.
//
// What an interface cannot do here, because of the kernel, a container's rules, the file system or the device, is an
// Unsupported with one sentence: nothing else is done in its place. Interfaces differ in how transfers are handed over
// and how their ends are learnt; offsets, buffers, times and results are the run's (run.h).
//
// Thread rule: an Interface belongs to the thread that made it. The table is constant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace flashmob::interfaces {

class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What one thread works with. Outlives its interface.
struct Lane {
  int file = -1;  // opened for this thread alone
  std::uint64_t size_bytes = 0;
  std::uint32_t block_bytes = 0;
  std::uint32_t depth = 1;
  bool is_random = true;
  bool writes = false;
  std::span<std::byte> buffers;  // one block per slot, aligned to pages

  std::byte* buffer(std::uint32_t slot) const { return buffers.data() + std::size_t{slot} * block_bytes; }
};

struct Done {
  std::uint32_t slot = 0;
  std::int32_t result = 0;  // bytes that were moved, or a negative errno
};

class Interface {
 public:
  explicit Interface(const Lane& lane) : lane_(lane) {}
  virtual ~Interface() = default;
  Interface(const Interface&) = delete;
  Interface& operator=(const Interface&) = delete;

  // Transfers a block between a slot's buffer and the target, now or at the next wait(). A slot has one at a time.
  virtual void submit(std::uint32_t slot, std::uint64_t offset, bool is_write) = 0;
  // Hands over what was submitted and waits until something is done; something must be under way. `done` has room for
  // every slot.
  virtual std::size_t wait(std::span<Done> done) = 0;

  // Those that this thread made, not those of helpers.
  std::uint64_t system_calls() const { return system_calls_; }

 protected:
  const Lane& lane_;
  std::uint64_t system_calls_ = 0;
};

// How it submits and completes, in the words of the energy study (docs/guide/study.md).
struct InterfaceKind {
  const char* name;
  const char* submission;
  const char* completion;
  // One transfer at a time for each thread.
  bool is_synchronous;
  // Completions are polled: direct I/O on a device with queues for it.
  bool is_polled;
  // Reads and writes the page cache, whatever is asked.
  bool is_cached;
  std::unique_ptr<Interface> (*make)(const Lane& lane);
  // A library makes system calls that nobody here can count.
  bool hides_system_calls = false;
};

std::span<const InterfaceKind> kinds();
// nullptr: no such name.
const InterfaceKind* find_kind(std::string_view name);

// "io_setup: Resource temporarily unavailable".
std::string errno_text(std::string_view what, int error);
// "EAGAIN"; its number where it has no name.
std::string errno_name(int error);

}  // namespace flashmob::interfaces
