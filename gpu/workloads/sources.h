// What kernels of the workloads read through, apart from the software cache: plain memory, and commands of their own.
//
// Like the arrays of flashmob/gpu/striped.h, each offers read(t, i), read(t, mask, i) and prefetch(t, mask, i), so that
// one kernel serves for all. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/coalesce.h"
#include "flashmob/gpu/share_table.h"
#include "flashmob/gpu/striped.h"
#include "workloads/ssd_set.h"

namespace flashmob::gpu::workloads {

// An array in memory.
template <class T>
class PlainRef {
 public:
  FLASHMOB_HD explicit PlainRef(const T* values) : values_(values) {}

  template <class Lane>
  FLASHMOB_HD T read(Lane&, std::uint64_t i) const {
    return values_[i];
  }
  template <class Lane>
  FLASHMOB_HD T read(Lane&, std::uint32_t, std::uint64_t i) const {
    return values_[i];
  }
  template <class Lane>
  FLASHMOB_HD void prefetch(Lane&, std::uint32_t, std::uint64_t) const {}

 private:
  const T* values_;
};

// An array on SSDs, and `line_bytes` of buffer for each thread of the kernel.
struct BufferedLines {
  FLASHMOB_HD BufferedLines(const StripeMap& stripes, Fault* noted, std::byte* memory, std::uint32_t bytes,
                            std::uint32_t element_bytes)
      : map(stripes), fault(noted), buffers(memory), line_bytes(bytes), split(bytes, element_bytes) {}
  template <class Lane>
  FLASHMOB_HD std::byte* buffer(Lane& t) const {
    return buffers + std::uint64_t{t.thread()} * line_bytes;
  }

  StripeMap map;
  Fault* fault;
  std::byte* buffers;
  std::uint32_t line_bytes;
  LineSplit split;
};

// An array on SSDs that is not cached: each access is a command of its own, into the thread's buffer. Lanes of a warp
// that want the same line share one command.
template <class T>
class UncachedRef {
 public:
  FLASHMOB_HD UncachedRef(const SsdSet& ssds, const BufferedLines& lines) : ssds_(ssds), lines_(lines) {}

  template <class Lane>
  FLASHMOB_HD T read(Lane& t, std::uint64_t i) const {
    const T* line = fetch(t, lines_.split.line(i));
    return line != nullptr ? line[lines_.split.slot(i)] : T{};
  }
  template <class Lane>
  FLASHMOB_HD T read(Lane& t, std::uint32_t mask, std::uint64_t i) const {
    const std::uint64_t line = lines_.split.line(i);
    const Group group = coalesce(t, mask, line);
    std::uint64_t address = 0;
    if (group.leads) address = reinterpret_cast<std::uint64_t>(fetch(t, line));
    address = share(t, group, address);
    const T value = address != 0 ? reinterpret_cast<const T*>(address)[lines_.split.slot(i)] : T{};
    meet(t, group);
    return value;
  }
  template <class Lane>
  FLASHMOB_HD void prefetch(Lane&, std::uint32_t, std::uint64_t) const {}

 private:
  // The thread's buffer with the line in it; nullptr if the SSD did not deliver.
  template <class Lane>
  FLASHMOB_HD const T* fetch(Lane& t, std::uint64_t line) const {
    // Only an answer ends the wait: until then the buffer is the SSD's.
    constexpr WaitLimit kForever{~std::uint64_t{0}};
    const BlockKey key = lines_.map(line);
    const SsdRef& ssd = ssds_.at[key.ssd];
    std::byte* buffer = lines_.buffer(t);
    const std::uint32_t blocks = lines_.line_bytes >> ssd.ns(key.ns).lba_shift;
    const IoStatus status = ssd.read(t, key.ns, key.block * blocks, blocks, buffer).wait(t, kForever);
    if (status.ok()) return reinterpret_cast<const T*>(buffer);
    lines_.fault->note(t, status);
    return nullptr;
  }

  SsdSet ssds_;
  BufferedLines lines_;
};

using BufferTable = ShareTable<DirectBlocks<SsdRef>>;

// An array on SSDs whose lines lie in buffers of the threads: who wants a line that a thread has just read, or reads,
// is given that thread's buffer.
template <class T>
class SharedRef {
 public:
  FLASHMOB_HD SharedRef(const BufferTable& table, const BufferedLines& lines) : table_(table), lines_(lines) {}

  template <class Lane>
  FLASHMOB_HD T read(Lane& t, std::uint64_t i) const {
    Share share = open(t, lines_.split.line(i));
    const T value = share.status.ok() ? reinterpret_cast<const T*>(share.data)[lines_.split.slot(i)] : T{};
    close(t, share);
    return value;
  }
  template <class Lane>
  FLASHMOB_HD T read(Lane& t, std::uint32_t mask, std::uint64_t i) const {
    const std::uint64_t line = lines_.split.line(i);
    const Group group = coalesce(t, mask, line);
    Share mine;
    std::uint64_t address = 0;
    if (group.leads) {
      mine = open(t, line);
      if (mine.status.ok()) address = reinterpret_cast<std::uint64_t>(mine.data);
    }
    address = share(t, group, address);
    const T value = address != 0 ? reinterpret_cast<const T*>(address)[lines_.split.slot(i)] : T{};
    meet(t, group);
    if (group.leads) close(t, mine);
    return value;
  }
  template <class Lane>
  FLASHMOB_HD void prefetch(Lane&, std::uint32_t, std::uint64_t) const {}

 private:
  // Only answers end the waits: until then the buffer is the SSD's or another thread's.
  static constexpr WaitLimit kForever{~std::uint64_t{0}};

  template <class Lane>
  FLASHMOB_HD Share open(Lane& t, std::uint64_t line) const {
    Share share = table_.open(t, lines_.map(line), lines_.buffer(t), kForever);
    const IoStatus status = table_.wait(t, share, kForever);
    if (!status.ok()) lines_.fault->note(t, status);
    return share;
  }
  template <class Lane>
  FLASHMOB_HD void close(Lane& t, Share& share) const {
    const IoStatus status = table_.close(t, share, kForever);
    if (!status.ok()) lines_.fault->note(t, status);
  }

  BufferTable table_;
  BufferedLines lines_;
};

}  // namespace flashmob::gpu::workloads
